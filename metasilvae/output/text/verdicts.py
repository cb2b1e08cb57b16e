"""Reports of a verification, and files of adversarial examples, which silva calls counterexamples.

Each format is a function from a report to pieces of text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from metasilvae.dataset import Dataset
from metasilvae.formats.csv_files import NOTE_MARK
from metasilvae.model import LabelSet, Model
from metasilvae.output.text.headings import Subject, describe_subject
from metasilvae.output.text.tables import dump_json, in_pieces, stream_csv, stream_jsonl, stream_lines
from metasilvae.verification.requirements import CheckedRequirement
from metasilvae.verification.shards import ShardNote
from metasilvae.verification.verdicts import Outcome, Verdict
from metasilvae.verification.verifier import Witness

DEFAULT_PRINT_LENGTH = 32
# silva takes a smaller --max-print-length for this one.
SHORTEST_PRINT_LENGTH = 8


@dataclass(frozen=True)
class VerificationReport:
    """Content of a report; for one shard of several, also which one it is."""

    query: Subject
    perturbation: str
    outcome: Outcome
    requirements: list[CheckedRequirement] = field(default_factory=list)
    print_length: int = DEFAULT_PRINT_LENGTH
    shard: ShardNote | None = None

    @cached_property
    def predictions(self) -> list[list[str]]:
        """Labels of each prediction that occurs."""
        labels = self.query.model.labels
        return [[labels[label] for label in label_set] for label_set in self.outcome.predictions.sets]

    def columns(self) -> Iterator[tuple[int, int, int]]:
        """For each row the positions of its label, its prediction and its verdict."""
        outcome = self.outcome
        return zip(
            self.query.dataset.y.tolist(), outcome.predictions.ids.tolist(), outcome.verdicts.tolist(), strict=True
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """For each row: its number, label, prediction, verdict, and for an undecided one the reason."""
        labels, outcome = self.query.dataset.labels, self.outcome
        words = [verdict.word for verdict in Verdict]
        for row, (label, prediction, verdict) in enumerate(self.columns()):
            record = {
                "row": self.query.dataset.number_of(row),
                "label": labels[label],
                "prediction": self.predictions[prediction],
                "verdict": words[verdict],
            }
            if row in outcome.reasons:
                record["reason"] = outcome.reasons[row]
            yield record

    def explain_requirements(self) -> Iterator[str]:
        """A line for each requirement: whether it is met, and the value of the metric."""
        for checked in self.requirements:
            yield f"required {checked.sentence}"

    def summary(self) -> dict[str, Any]:
        model, dataset, outcome = self.query.model, self.query.dataset, self.outcome
        counts = outcome.counts
        summary: dict[str, Any] = {
            "model": model.source,
            "data": dataset.source,
            "perturbation": self.perturbation,
            "voting": self.query.voting,
            "seconds": outcome.seconds,
            "accuracy": float(counts.accuracy),
            "stability": float(counts.stability),
            "robust_accuracy": float(counts.robust_accuracy),
            "counts": counts.as_dict(),
        }
        if self.shard is not None:
            summary["shard"] = asdict(self.shard)
        if self.requirements:
            summary["requirements"] = [
                {"requirement": checked.requirement.text, "result": checked.result.name.lower()}
                for checked in self.requirements
            ]
        return summary


def write_text(report: VerificationReport) -> Iterator[str]:
    """A short summary for people."""
    counts = report.outcome.counts
    yield describe_subject(report.query, report.perturbation, report.shard) + "\n"
    for name, count in (("accuracy", counts.correct), ("stability", counts.stable), ("robust accuracy", counts.robust)):
        yield f"{name:15}  {100 * count / counts.size:6.2f} %  {count:>8} of {counts.size}\n"
    yield "\n"
    for verdict in Verdict:
        count = getattr(counts, verdict.name.lower())
        if verdict is not Verdict.NO_INFO:
            yield f"{verdict.word:15}  {count:>8}   {verdict.meaning}\n"
        elif count:
            by_reason = Counter(report.outcome.reasons.values())
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(by_reason.items()))
            yield f"{verdict.word:15}  {count:>8}   {verdict.meaning}{': ' * bool(reasons)}{reasons}\n"
    yield f"\nverified in {report.outcome.seconds:.3g} s\n"
    for line in report.explain_requirements():
        yield f"{line}\n"


def _cut(name: str, length: int) -> str:
    """silva's way to shorten a path; length 0 keeps it whole."""
    if length == 0 or len(name) <= length - 3:
        return name
    return "..." + name[len(name) - (length - 3) :]


def _pad(prediction: list[str]) -> str:
    return " " * max(0, 17 - 2 * len(prediction)) + ",".join(prediction)


def write_silva(report: VerificationReport) -> Iterator[str]:
    """silva's report, column by column; the time of an undecided row is followed by the reason."""
    width = 0 if report.print_length < 0 else max(report.print_length, SHORTEST_PRINT_LENGTH)
    model, data = (_cut(part.source, width) for part in (report.query.model, report.query.dataset))
    row_seconds = report.outcome.row_seconds
    # One row of a tree takes less than the clock can measure; each gets the mean time.
    mean = f"{report.outcome.seconds / report.outcome.n_samples:10.3g}"
    reasons = report.outcome.reasons

    labels = [f"{label:>8}" for label in report.query.dataset.labels]
    predictions = [_pad(prediction) for prediction in report.predictions]
    words = [f"{verdict.word:>10}" for verdict in Verdict]

    def lines() -> Iterator[str]:
        yield (
            f"{'Classifier':<{width}} {'Dataset':<{width}} {'ID':>8} {'Label':>8} {'Concrete':>16} "
            f"{'Result':>10} {'Time (s)':>10}\n"
        )
        for row, (label, prediction, verdict) in enumerate(report.columns()):
            number = report.query.dataset.number_of(row)
            seconds = mean if row_seconds is None else f"{row_seconds[row]:10.3g}"
            reason = f" {reasons[row]}" if row in reasons else ""
            found = f"{labels[label]} {predictions[prediction]} {words[verdict]}"
            yield f"{model} {data} {number:>8} {found} {seconds}{reason}\n"

    yield from in_pieces(lines())
    counts = report.outcome.counts
    columns = (
        ("Size", str(counts.size)),
        ("Time (s)", f"{round(report.outcome.seconds, 6):g}"),
        ("Correct", str(counts.correct)),
        ("Wrong", str(counts.wrong)),
        ("Stable", str(counts.stable)),
        ("Unstable", str(counts.unstable)),
        ("No info", str(counts.no_info)),
        ("Robust", str(counts.robust)),
        ("Fragile", str(counts.fragile)),
        ("Vulnerable", str(counts.vulnerable)),
        ("Broken", str(counts.broken)),
    )
    for position in (0, 1):
        cells = (f"{pair[position]:>{12 if pair[0] == 'Vulnerable' else 10}}" for pair in columns)
        yield f"[SUMMARY] {' '.join(cells)}\n"


def write_json(report: VerificationReport) -> Iterator[str]:
    """One document: the summary and a list of rows."""
    yield dump_json({**report.summary(), "rows": list(report.rows())})


def write_jsonl(report: VerificationReport) -> Iterator[str]:
    """One line for each row, the last one with the summary."""
    return stream_jsonl(report.rows(), report.summary())


def write_csv(report: VerificationReport) -> Iterator[str]:
    """One line for each row; labels of a tied prediction are joined by commas."""
    return stream_csv(["row", "label", "prediction", "verdict", "reason"], report.rows())


VERDICT_FORMATS: dict[str, Callable[[VerificationReport], Iterator[str]]] = {
    "text": write_text,
    "silva": write_silva,
    "json": write_json,
    "jsonl": write_jsonl,
    "csv": write_csv,
}


def write_samples(model: Model, dataset: Dataset, witnesses: Iterable[Witness]) -> Iterator[str]:
    """CSV of perturbed samples under their true labels, in the columns of the table that was read.

    Readers of data ignore columns whose name starts with ``#``: what identifies the sample, its row, and its prediction
    before and after the perturbation.
    """
    encoding = dataset.encoding
    if encoding is not None:
        names = [column.name for column in encoding.columns]
    else:
        names = [dataset.feature_names[f] if dataset.feature_names else f"x{f}" for f in range(dataset.n_features)]
    ids = [f"{NOTE_MARK}{name}" for name, _ in dataset.ids]
    label = [dataset.label_name if encoding is not None and dataset.label_name else "label"]
    columns = [*(label if dataset.has_labels else []), *names, *ids, "#row", "#prediction", "#perturbed_prediction"]

    def lines() -> Iterator[list[object]]:
        yield list(columns)
        for witness in witnesses:
            cells = witness.point.tolist() if encoding is None else encoding.decode(witness.point)
            yield [
                *([dataset.labels[dataset.y[witness.row]]] if dataset.has_labels else []),
                # An empty cell is a missing value.
                *(cell if isinstance(cell, str) else "" if math.isnan(cell) else repr(cell) for cell in cells),
                *dataset.ids_of(witness.row).values(),
                dataset.number_of(witness.row),
                _join(model, witness.prediction),
                _join(model, witness.perturbed_prediction),
            ]

    return stream_lines(lines())


def _join(model: Model, label_set: LabelSet) -> str:
    return ",".join(model.labels[label] for label in label_set)


def write_silva_boxes(model: Model, dataset: Dataset, witnesses: Iterable[Witness]) -> Iterator[str]:
    """silva's form: for each unstable row a box with another prediction."""
    for witness in witnesses:
        # nan,nan where a value is missing.
        pairs = zip(witness.lower.tolist(), witness.upper.tolist(), strict=True)
        yield f"{dataset.number_of(witness.row)}: [{','.join(f'[{lower!r},{upper!r}]' for lower, upper in pairs)}]\n"


COUNTEREXAMPLE_FORMATS: dict[str, Callable[[Model, Dataset, Iterable[Witness]], Iterator[str]]] = {
    "csv": write_samples,
    "silva": write_silva_boxes,
}
