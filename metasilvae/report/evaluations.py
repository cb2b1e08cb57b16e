"""Tables of evaluated models."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from metasilvae.dataset import Dataset
from metasilvae.evaluation import Evaluation
from metasilvae.forest_verification import INTERRUPTED
from metasilvae.model import Model
from metasilvae.report.tables import TABLE_FORMATS, Record


@dataclass(frozen=True)
class ConfusionTable:
    """How often each true label got each answer."""

    model: Model
    dataset: Dataset
    counts: dict[tuple[str, str], int]

    def records(self) -> list[Record]:
        answers = list(dict.fromkeys([*self.model.labels, *sorted(answer for _, answer in self.counts)]))
        return [
            {"true label": label, **{answer: self.counts.get((label, answer), 0) for answer in answers}}
            for label in self.dataset.labels
        ]


@dataclass(frozen=True)
class EvaluationReport:
    """Evaluations in the order of models and perturbations; `n_missing` were left out because of an interrupt."""

    evaluations: list[Evaluation]
    confusions: list[ConfusionTable]
    n_missing: int = 0

    @property
    def is_partial(self) -> bool:
        return self.n_missing > 0 or any(evaluation.is_interrupted for evaluation in self.evaluations)

    def records(self) -> list[Record]:
        """One for each evaluation; those of a partial report tell whether they are complete."""
        return [
            {**_record(each), **({"complete": not each.is_interrupted} if self.is_partial else {})}
            for each in self.evaluations
        ]


def _record(evaluation: Evaluation) -> Record:
    model, tally = evaluation.model, evaluation.tally
    record: dict[str, str | int | float | None] = {"model": model.source}
    if evaluation.perturbation is not None:
        record["perturbation"] = evaluation.perturbation.describe()
    record["accuracy"] = evaluation.accuracy
    if tally is not None:
        record |= {"stability": evaluation.stability, "robustness": evaluation.robustness}
        record |= {name: getattr(tally, name) for name in ("robust", "fragile", "vulnerable", "broken", "no_info")}
    record |= {"trees": model.n_trees, "leaves": model.n_leaves, "depth": model.max_depth}
    record["acc/leaves"] = evaluation.accuracy_efficiency
    if tally is not None:
        record["st/leaves"] = evaluation.stability_efficiency
    return record


def _write_tables(report: EvaluationReport, table_format: str) -> str:
    render = TABLE_FORMATS[table_format]
    parts = [render(report.records())]
    if report.is_partial and table_format != "csv":
        parts.append(
            "partial, because it was interrupted: undecided rows (no_info) count as not stable"
            + (f"; {report.n_missing} evaluations were not begun" if report.n_missing else "")
            + "\n"
        )
    for table in report.confusions:
        title = f"{table.model.source}: true labels against answers"
        parts.append(("" if table_format == "csv" else f"{title}\n\n") + render(table.records()))
    return "\n".join(parts)


def _write_json(report: EvaluationReport) -> str:
    document: dict[str, object] = {"evaluations": report.records()}
    if report.is_partial:
        document["partial"] = {"reason": INTERRUPTED, "evaluations_missing": report.n_missing}
    if report.confusions:
        document["confusions"] = [
            {
                "model": table.model.source,
                "counts": [
                    {"label": label, "answer": answer, "rows": rows} for (label, answer), rows in table.counts.items()
                ],
            }
            for table in report.confusions
        ]
    return json.dumps(document, indent=2) + "\n"


EVALUATION_FORMATS: dict[str, Callable[[EvaluationReport], str]] = {
    "text": lambda report: _write_tables(report, "text"),
    "markdown": lambda report: _write_tables(report, "markdown"),
    "json": _write_json,
    "csv": lambda report: _write_tables(report, "csv"),
}
