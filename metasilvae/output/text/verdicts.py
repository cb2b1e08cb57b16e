"""Printed reports of a verification. Each format is a function from a report to pieces of text.

Files of counterexamples: samples that the tool can load again, or silva's boxes.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from metasilvae.dataset import Dataset
from metasilvae.model import LabelSet, Model
from metasilvae.output.text.headings import Subject, describe_subject
from metasilvae.verification.requirements import Requirement, RequirementResult
from metasilvae.verification.shards import ShardNote
from metasilvae.verification.verdicts import Outcome, Verdict
from metasilvae.verification.verifier import Witness

# Rows formatted at a time, so that a long report needs little memory.
ROWS_PER_PIECE = 4096
DEFAULT_PRINT_LENGTH = 32
# silva takes a smaller --max-print-length for this one.
SHORTEST_PRINT_LENGTH = 8


@dataclass(frozen=True)
class VerificationReport:
    """Everything that a report may want to say; for one shard of several, also where it belongs."""

    query: Subject
    perturbation: str
    outcome: Outcome
    requirements: list[tuple[Requirement, RequirementResult]] = field(default_factory=list)
    print_length: int = DEFAULT_PRINT_LENGTH
    shard: ShardNote | None = None

    @cached_property
    def predictions(self) -> list[list[str]]:
        """Labels of each answer that occurs."""
        labels = self.query.model.labels
        return [[labels[label] for label in label_set] for label_set in self.outcome.predictions.sets]

    def columns(self) -> Iterator[tuple[int, int, int]]:
        """For each row the positions of its label, its answer and its verdict."""
        outcome = self.outcome
        return zip(
            self.query.dataset.y.tolist(), outcome.predictions.ids.tolist(), outcome.verdicts.tolist(), strict=True
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """For each row: its number, label, answer, verdict, and for an undecided one the reason."""
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
            "robustness": float(counts.robustness),
            "counts": counts.as_dict(),
        }
        if self.shard is not None:
            summary["shard"] = asdict(self.shard)
        if self.requirements:
            summary["requirements"] = [
                {"requirement": requirement.text, "result": result.name.lower()}
                for requirement, result in self.requirements
            ]
        return summary


def _in_pieces(lines: Iterator[str]) -> Iterator[str]:
    piece: list[str] = []
    for line in lines:
        piece.append(line)
        if len(piece) == ROWS_PER_PIECE:
            yield "".join(piece)
            piece = []
    yield "".join(piece)


def write_text(report: VerificationReport) -> Iterator[str]:
    """A short summary for people."""
    counts = report.outcome.counts
    yield describe_subject(report.query, report.perturbation, report.shard) + "\n"
    for name, count in (
        ("accuracy", counts.correct),
        ("stability", counts.stable),
        ("robustness", counts.robust),
    ):
        yield f"{name:12}  {100 * count / counts.size:6.2f} %  {count:>8} of {counts.size}\n"
    yield "\n"
    yield f"ROBUST        {counts.robust:>8}   correct, no perturbation changes the answer\n"
    yield f"FRAGILE       {counts.fragile:>8}   correct, some perturbation changes the answer\n"
    yield f"VULNERABLE    {counts.vulnerable:>8}   wrong, no perturbation changes the answer\n"
    yield f"BROKEN        {counts.broken:>8}   wrong, some perturbation changes the answer\n"
    if counts.no_info:
        by_reason = Counter(report.outcome.reasons.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(by_reason.items()))
        yield f"NO-INFO       {counts.no_info:>8}   not decided{': ' * bool(reasons)}{reasons}\n"
    yield f"\nanalysed in {report.outcome.seconds:.3g} s\n"
    for requirement, result in report.requirements:
        yield f"required {requirement.explain(report.outcome, result)}\n"


def _cut(name: str, length: int) -> str:
    """silva's way to shorten a path; length 0 keeps it whole."""
    if length == 0 or len(name) <= length - 3:
        return name
    return "..." + name[len(name) - (length - 3) :]


def _pad(prediction: list[str]) -> str:
    return " " * max(0, 17 - 2 * len(prediction)) + ",".join(prediction)


def write_silva(report: VerificationReport) -> Iterator[str]:
    """silva's report, column by column; behind the time of an undecided row stands the reason."""
    width = 0 if report.print_length < 0 else max(report.print_length, SHORTEST_PRINT_LENGTH)
    model, data = (_cut(part.source, width) for part in (report.query.model, report.query.dataset))
    row_seconds = report.outcome.row_seconds
    # One row of a tree takes less than the clock can tell; each gets its share of the whole.
    share = f"{report.outcome.seconds / report.outcome.n_samples:10.3g}"
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
            seconds = share if row_seconds is None else f"{row_seconds[row]:10.3g}"
            reason = f" {reasons[row]}" if row in reasons else ""
            found = f"{labels[label]} {predictions[prediction]} {words[verdict]}"
            yield f"{model} {data} {number:>8} {found} {seconds}{reason}\n"

    yield from _in_pieces(lines())
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
    yield json.dumps({**report.summary(), "rows": list(report.rows())}, indent=1) + "\n"


def write_jsonl(report: VerificationReport) -> Iterator[str]:
    """One line for each row, the last one with the summary."""
    yield from _in_pieces(json.dumps(record) + "\n" for record in report.rows())
    yield json.dumps({"summary": report.summary()}) + "\n"


def write_csv(report: VerificationReport) -> Iterator[str]:
    """One line for each row; labels of a tied answer are joined by commas."""
    names = ["row", "label", "prediction", "verdict", "reason"]

    def lines() -> Iterator[str]:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, names, lineterminator="\n", restval="")
        writer.writeheader()
        for record in report.rows():
            writer.writerow({**record, "prediction": ",".join(record["prediction"])})
            yield stream.getvalue()
            stream.seek(0)
            stream.truncate()

    yield from _in_pieces(lines())


VERDICT_FORMATS: dict[str, Callable[[VerificationReport], Iterator[str]]] = {
    "text": write_text,
    "silva": write_silva,
    "json": write_json,
    "jsonl": write_jsonl,
    "csv": write_csv,
}


def _join(model: Model, label_set: LabelSet) -> str:
    return ",".join(model.labels[label] for label in label_set)


def write_samples(model: Model, dataset: Dataset, witnesses: Iterable[Witness]) -> Iterator[str]:
    """CSV of perturbed samples under their true labels.

    Columns whose name starts with ``#`` are notes that readers of data pass over: the row of the sample, its answer
    before and after the perturbation.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [dataset.feature_names[f] if dataset.feature_names else f"x{f}" for f in range(dataset.n_features)]
    writer.writerow(["label", *names, "#row", "#prediction", "#perturbed_prediction"])
    for witness in witnesses:
        notes = [
            dataset.number_of(witness.row),
            _join(model, witness.prediction),
            _join(model, witness.perturbed_prediction),
        ]
        writer.writerow([dataset.labels[dataset.y[witness.row]], *map(repr, witness.point.tolist()), *notes])
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()
    yield stream.getvalue()


def write_silva_boxes(model: Model, dataset: Dataset, witnesses: Iterable[Witness]) -> Iterator[str]:
    """silva's form: for each unstable row a box in which the answer is another one."""
    for witness in witnesses:
        pairs = zip(witness.lower.tolist(), witness.upper.tolist(), strict=True)
        yield f"{dataset.number_of(witness.row)}: [{','.join(f'[{lower!r},{upper!r}]' for lower, upper in pairs)}]\n"


COUNTEREXAMPLE_FORMATS: dict[str, Callable[[Model, Dataset, Iterable[Witness]], Iterator[str]]] = {
    "csv": write_samples,
    "silva": write_silva_boxes,
}
