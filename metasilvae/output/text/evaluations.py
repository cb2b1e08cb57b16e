"""Tables of evaluated models with confusion matrices, curves over epsilon, and predictions row by row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import Model, PredictionTable
from metasilvae.output.text.radii import count_interrupted, describe_open
from metasilvae.output.text.tables import (
    TABLE_FORMATS,
    Record,
    as_csv,
    dump_json,
    finite_or_none,
    in_pieces,
    in_words,
    stream_csv,
    stream_jsonl,
    stream_lines,
)
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.verification.budget import INTERRUPTED
from metasilvae.verification.ceiling import Ceiling
from metasilvae.verification.class_metrics import ClassMetrics
from metasilvae.verification.curve import QUANTILES, Curve, choose_quantile
from metasilvae.verification.metrics import Evaluation
from metasilvae.voting import choose_voting

# Labels or predictions that a confusion matrix shows; of more, mistakes are listed.
MOST_LABELS = 100
MOST_MISTAKES = 100
LONGEST_PREDICTION = 60
# Classes whose metrics a text shows.
MOST_CLASSES = 20


@dataclass(frozen=True)
class ConfusionTable:
    """Confusion matrix: a table, or a list of mistakes where a table would be too large."""

    model: Model
    dataset: Dataset
    counts: dict[tuple[str, str], int]

    @property
    def predictions(self) -> list[str]:
        return list(dict.fromkeys([*self.model.labels, *sorted(prediction for _, prediction in self.counts)]))

    @property
    def is_large(self) -> bool:
        return max(len(self.dataset.labels), len(self.predictions)) > MOST_LABELS

    @property
    def title(self) -> str:
        if not self.is_large:
            return f"{self.model.source}: confusion matrix"
        n_kinds, n_shown = len(self._mistakes()), len(self.records())
        which = f"the {n_shown} most frequent of {n_kinds}" if n_shown < n_kinds else f"all {n_kinds}"
        return (
            f"{self.model.source}: {which} kinds of mistakes (a confusion matrix has at most {MOST_LABELS} labels; "
            "--format json counts all pairs)"
        )

    def records(self) -> list[Record]:
        if self.is_large:
            return [
                {"true label": label, "prediction": _cut(prediction), "rows": rows}
                for (label, prediction), rows in self._mistakes()[:MOST_MISTAKES]
            ]
        predictions = self.predictions
        return [
            {"true label": label, **{prediction: self.counts.get((label, prediction), 0) for prediction in predictions}}
            for label in self.dataset.labels
        ]

    def _mistakes(self) -> list[tuple[tuple[str, str], int]]:
        """Pairs of different label and prediction with their rows, the most frequent first."""
        found = [(pair, rows) for pair, rows in self.counts.items() if pair[0] != pair[1]]
        return sorted(found, key=lambda item: -item[1])


def _cut(prediction: str) -> str:
    """A prediction of thousands of labels does not fit a line."""
    return prediction if len(prediction) <= LONGEST_PREDICTION else f"{prediction[:LONGEST_PREDICTION]}..."


@dataclass(frozen=True)
class ClassTable:
    """Metrics of each class; of many classes a text shows the worst ones."""

    evaluation: Evaluation

    @property
    def is_large(self) -> bool:
        return len(self.evaluation.per_class.classes) > MOST_CLASSES

    @property
    def title(self) -> str:
        evaluation = self.evaluation
        under = "" if evaluation.perturbation is None else f" under {evaluation.perturbation.describe()}"
        extent = ""
        if self.is_large:
            worst = "recall" if evaluation.counts is None else "robust accuracy"
            n_classes = len(evaluation.per_class.classes)
            extent = f": the {MOST_CLASSES} of {n_classes} with the lowest {worst} (--format csv has all)"
        return f"{evaluation.model.source}{under}: classes{extent}"

    def records(self, *, is_short: bool = False) -> list[Record]:
        """One for each class; `is_short` leaves out all but the worst of many."""
        classes = list(self.evaluation.per_class.classes)
        if is_short and self.is_large:
            classes = choose_worst(classes, MOST_CLASSES)
        return [self._record(each) for each in classes]

    def _record(self, found: ClassMetrics) -> Record:
        names = ["recall", "precision", "f1"]
        if self.evaluation.counts is not None:
            names += ["stability", "robust_accuracy"]
        values = {name: as_float(getattr(found, name)) for name in [*names, "roc_auc"]}
        return {"label": found.label, "rows": found.rows, "predicted": found.predicted, **values}

    @property
    def subject(self) -> dict[str, str]:
        """Columns that say which evaluation it is."""
        perturbation = self.evaluation.perturbation
        under = {} if perturbation is None else {"perturbation": perturbation.describe()}
        return {"model": self.evaluation.model.source, **under}


def choose_worst(classes: Sequence[ClassMetrics], most: int) -> list[ClassMetrics]:
    """Some classes with the lowest robust accuracy, or recall without a perturbation; those without rows come last."""

    def merit(found: ClassMetrics) -> tuple[bool, Fraction, Fraction]:
        recall, robust = found.recall, found.robust_accuracy
        return recall is None, Fraction(0) if robust is None else robust, Fraction(0) if recall is None else recall

    return sorted(classes, key=merit)[:most]


def as_float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


@dataclass(frozen=True)
class EvaluationReport:
    """Evaluations in the order of models and perturbations; `n_missing` were left out because of an interrupt.

    `ceilings` holds what no model can exceed under each perturbation, if that was asked for; `is_per_class` adds
    the metrics of each class.
    """

    evaluations: list[Evaluation]
    confusions: list[ConfusionTable]
    n_missing: int = 0
    ceilings: Sequence[tuple[Perturbation, Ceiling]] = ()
    is_per_class: bool = False

    @property
    def class_tables(self) -> list[ClassTable]:
        return [ClassTable(each) for each in self.evaluations] if self.is_per_class else []

    @property
    def is_partial(self) -> bool:
        return self.n_missing > 0 or any(evaluation.is_interrupted for evaluation in self.evaluations)

    def records(self) -> list[Record]:
        """One for each evaluation; in a partial report with whether it is complete."""
        has_forest = any(each.model.is_forest for each in self.evaluations)
        return [
            {
                **_record(each, has_forest, self._find_ceiling(each), self.is_per_class),
                **({"complete": not each.is_interrupted} if self.is_partial else {}),
            }
            for each in self.evaluations
        ]

    def _find_ceiling(self, evaluation: Evaluation) -> Ceiling | None:
        found = (ceiling for perturbation, ceiling in self.ceilings if perturbation is evaluation.perturbation)
        return next(found, None)


def _record(evaluation: Evaluation, has_forest: bool, ceiling: Ceiling | None, is_per_class: bool) -> Record:
    model, counts = evaluation.model, evaluation.counts
    record: dict[str, str | int | float | None] = {"model": model.source}
    if evaluation.perturbation is not None:
        record["perturbation"] = evaluation.perturbation.describe()
    record["accuracy"] = evaluation.accuracy
    if counts is not None:
        record |= {"stability": evaluation.stability, "robust_accuracy": evaluation.robust_accuracy}
        if ceiling is not None:
            share = ceiling.share(counts.robust_accuracy)
            record |= {"ceiling": ceiling.robust_accuracy, "share_of_ceiling": share}
    if is_per_class:
        means = ["balanced_accuracy", *(["balanced_robust_accuracy"] if counts is not None else []), "roc_auc"]
        record |= {name: as_float(getattr(evaluation.per_class, name)) for name in means}
    if counts is not None:
        record |= {name: getattr(counts, name) for name in ("robust", "fragile", "vulnerable", "broken", "no_info")}
    if has_forest:
        record["voting"] = name_voting(model, evaluation.voting)
    record |= {"trees": model.n_trees, "leaves": model.n_leaves, "depth": model.max_depth}
    record["acc/leaves"] = evaluation.accuracy_efficiency
    if counts is not None:
        record["st/leaves"] = evaluation.stability_efficiency
    return record


def name_voting(model: Model, requested: str | None) -> str:
    """Voting of a forest; a single tree does not vote."""
    return (requested or choose_voting(model, None)) if model.is_forest else ""


def _write_tables(report: EvaluationReport, table_format: str) -> str:
    render = TABLE_FORMATS[table_format]
    if report.is_per_class and table_format == "csv":
        return render([{**table.subject, **record} for table in report.class_tables for record in table.records()])
    parts = [render(report.records() if table_format == "csv" else in_words(report.records()))]
    if report.is_partial and table_format != "csv":
        parts.append(
            "partial, because it was interrupted: undecided rows (no_info) count as unstable"
            + (f"; {report.n_missing} evaluations were not started" if report.n_missing else "")
            + "\n"
        )
    for classes in report.class_tables:
        parts.append(f"{classes.title}\n\n{render(in_words(classes.records(is_short=True)))}")
    for table in report.confusions:
        records = table.records()
        parts.append(
            ("" if table_format == "csv" else f"{table.title}\n") + (f"\n{render(records)}" if records else "")
        )
    return "\n".join(parts)


def _write_json(report: EvaluationReport) -> str:
    document: dict[str, object] = {"evaluations": report.records()}
    if report.is_per_class:
        document["classes"] = [{**table.subject, "classes": table.records()} for table in report.class_tables]
    if report.is_partial:
        document["partial"] = {"reason": INTERRUPTED, "evaluations_missing": report.n_missing}
    if report.confusions:
        document["confusions"] = [
            {
                "model": table.model.source,
                "counts": [
                    {"label": label, "prediction": prediction, "rows": rows}
                    for (label, prediction), rows in table.counts.items()
                ],
            }
            for table in report.confusions
        ]
    return dump_json(document)


EVALUATION_FORMATS: dict[str, Callable[[EvaluationReport], str]] = {
    "text": lambda report: _write_tables(report, "text"),
    "markdown": lambda report: _write_tables(report, "markdown"),
    "json": _write_json,
    "csv": lambda report: _write_tables(report, "csv"),
}


@dataclass(frozen=True)
class CurveReport:
    """One curve of one model on one data set, over epsilon or over the factor of an attack.

    Reports show the voting if there is one; that of a single tree is shown as empty.
    """

    model: Model
    dataset: Dataset
    curve: Curve
    attack: Perturbation | None = None
    voting: str | None = None

    @property
    def axis(self) -> str:
        return "epsilon" if self.attack is None or isinstance(self.attack, NormBall) else "factor"

    @property
    def subject(self) -> dict[str, str]:
        attack = {} if self.attack is None else {"perturbation": self.attack.describe()}
        voting = {} if self.voting is None else {"voting": name_voting(self.model, self.voting)}
        return {"model": self.model.source, **attack, **voting}


def _quantiles(report: CurveReport) -> list[Record]:
    """Quantiles of the certified radii, with stability and robust accuracy there."""
    curve, radii = report.curve, report.curve.radii.lower
    records: list[Record] = []
    for name, percent in QUANTILES.items():
        epsilon = choose_quantile(radii, percent)
        records.append(
            {
                **report.subject,
                "quantile": name,
                report.axis: epsilon,
                "stability": curve.stability(epsilon),
                "robust_accuracy": curve.robust_accuracy(epsilon),
            }
        )
    return records


def _steps(report: CurveReport) -> list[Record]:
    """The whole curve: each value holds from the epsilon of the line above (exclusive) to its own (inclusive)."""
    n_samples = report.curve.n_samples
    return [
        {
            **report.subject,
            report.axis: epsilon,
            "stability": stable / n_samples,
            "robust_accuracy": robust / n_samples,
            **({} if report.curve.is_exact else {"complete": False}),
        }
        for epsilon, stable, robust in zip(*(column.tolist() for column in report.curve.steps), strict=True)
    ]


def _document(report: CurveReport) -> dict[str, object]:
    radii, steps = report.curve.radii, _steps(report)
    return {
        **report.subject,
        "data": report.dataset.source,
        "rows": report.curve.n_samples,
        "rows_exact": int(radii.is_exact.sum()),
        **({"rows_interrupted": count_interrupted(radii)} if count_interrupted(radii) else {}),
        "quantiles": {str(record["quantile"]): _finite(record[report.axis]) for record in _quantiles(report)},
        report.axis: [_finite(step[report.axis]) for step in steps],
        "stability": [step["stability"] for step in steps],
        "robust_accuracy": [step["robust_accuracy"] for step in steps],
    }


def _finite(value: object) -> float | None:
    return finite_or_none(value) if isinstance(value, float) else None


def _write_table(reports: Sequence[CurveReport], table_format: str) -> str:
    table = TABLE_FORMATS[table_format](in_words([record for report in reports for record in _quantiles(report)]))
    notes = describe_open([report.curve.radii for report in reports])
    return table + (f"\n{notes}" if notes else "")


CURVE_FORMATS: dict[str, Callable[[Sequence[CurveReport]], str]] = {
    "text": lambda reports: _write_table(reports, "text"),
    "markdown": lambda reports: _write_table(reports, "markdown"),
    "json": lambda reports: dump_json({"curves": list(map(_document, reports))}),
    "csv": lambda reports: as_csv([record for report in reports for record in _steps(report)]),
}


def _named_sets(model: Model, predictions: PredictionTable) -> list[list[str]]:
    return [[model.labels[label] for label in label_set] for label_set in predictions.sets]


def write_text(model: Model, dataset: Dataset, predictions: PredictionTable) -> Iterator[str]:
    lines = [",".join(labels) + "\n" for labels in _named_sets(model, predictions)]
    return in_pieces(lines[number] for number in predictions.ids.tolist())


Probabilities = NDArray[np.float64] | None


def _records(
    model: Model, dataset: Dataset, predictions: PredictionTable, probabilities: Probabilities
) -> Iterator[dict[str, Any]]:
    named = _named_sets(model, predictions)
    pairs = zip(dataset.y.tolist(), predictions.ids.tolist(), strict=True)
    for row, (label, number) in enumerate(pairs):
        true_label = {"label": dataset.labels[label]} if dataset.has_labels else {}
        ids = {name: cells[row] for name, cells in dataset.ids}
        shares = {} if probabilities is None else {"probabilities": probabilities[row].tolist()}
        yield {"row": row, **ids, **true_label, "prediction": named[number], **shares}


def write_csv(
    model: Model, dataset: Dataset, predictions: PredictionTable, probabilities: Probabilities = None
) -> Iterator[str]:
    names = ["row", *(name for name, _ in dataset.ids), *(["label"] if dataset.has_labels else []), "prediction"]
    records = _records(model, dataset, predictions, probabilities)
    if probabilities is None:
        return stream_csv(names, records)
    columns = [f"probability_{label}" for label in model.labels]
    lines = ([*_cells(record, names), *record["probabilities"]] for record in records)
    return stream_lines(itertools.chain([[*names, *columns]], lines))


def _cells(record: dict[str, Any], names: Sequence[str]) -> list[Any]:
    return [",".join(record[name]) if name == "prediction" else record[name] for name in names]


def write_jsonl(
    model: Model, dataset: Dataset, predictions: PredictionTable, probabilities: Probabilities = None
) -> Iterator[str]:
    records = _records(model, dataset, predictions, probabilities)
    if probabilities is None:
        return stream_jsonl(records)
    return stream_jsonl(
        {**record, "probabilities": dict(zip(model.labels, record["probabilities"], strict=True))} for record in records
    )


PREDICTION_FORMATS: dict[str, Callable[..., Iterator[str]]] = {
    "text": write_text,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
