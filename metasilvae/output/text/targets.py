"""Reports of wanted labels: which rows can get one, and by which changes. Each format is a function of a report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.output.text.headings import Subject, describe_subject
from metasilvae.output.text.radii import describe_distance
from metasilvae.output.text.tables import as_text, dump_json, finite_or_none, stream_csv, stream_jsonl
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.shards import ShardNote
from metasilvae.verification.targets import Change, TargetResults, TargetStatus, find_changes
from metasilvae.verification.verifier import Witness

ROWS_SHOWN = 5


def list_changes(dataset: Dataset, change: Witness) -> list[Change]:
    """The columns that a change of a row changes."""
    sample, point = dataset.X[change.row], change.point
    moved = np.flatnonzero((sample != point) & ~(np.isnan(sample) & np.isnan(point))).tolist()
    return dataset.names.describe_changes(sample, point, moved)


@dataclass(frozen=True)
class TargetReport:
    """Whether each row can get a label, and the change that does it.

    Attributes
    ----------
    changes : dict
        For each row that can get the label, the columns that change.
    """

    query: Subject
    perturbation: str
    results: TargetResults
    changes: Mapping[int, list[Change]]
    shard: ShardNote | None = None

    @classmethod
    def of(
        cls, query: VerificationQuery, perturbation: str, results: TargetResults, shard: ShardNote | None = None
    ) -> TargetReport:
        """The report of a search; all changes are checked again."""
        changes = {each.row: list_changes(query.dataset, each) for each in find_changes(query, results)}
        return cls(query, perturbation, results, changes, shard)

    @property
    def described(self) -> str:
        """The perturbation; with distances, what they are."""
        return self.perturbation if self.results.distances is None else describe_distance(self.perturbation)

    @property
    def label(self) -> str:
        return self.query.model.labels[self.results.target]

    def rows(self) -> Iterator[dict[str, Any]]:
        """For each row: its number, label, prediction, whether it can get the wanted label, and what changes."""
        dataset, results = self.query.dataset, self.results
        labels = self.query.model.labels
        predictions = [[labels[label] for label in label_set] for label_set in results.predictions.sets]
        for row, status in enumerate(results.statuses.tolist()):
            record: dict[str, Any] = {"row": dataset.number_of(row), **dataset.ids_of(row)}
            if dataset.has_labels:
                record["label"] = dataset.labels[dataset.y[row]]
            record |= {
                "prediction": predictions[results.predictions.ids[row]],
                "target": self.label,
                "status": TargetStatus(status).word,
            }
            if results.distances is not None and results.at_least is not None:
                record["distance"] = float(results.distances[row])
                if results.at_least[row] < results.distances[row]:
                    record["at_least"] = float(results.at_least[row])
            if row in results.reasons:
                record["reason"] = results.reasons[row]
            if row in self.changes:
                record["changes"] = {name: [old, new] for name, old, new in self.changes[row]}
            yield record

    def summary(self) -> dict[str, Any]:
        counts = {status.name.lower(): count for status, count in self.results.counts.items()}
        return {
            "model": self.query.model.source,
            "data": self.query.dataset.source,
            "perturbation": self.perturbation,
            "voting": self.query.voting,
            "target": self.label,
            "seconds": self.results.seconds,
            **({} if self.shard is None else {"shard": asdict(self.shard)}),
            "counts": counts,
        }


def write_text(report: TargetReport) -> Iterator[str]:
    """Counts, and the rows that need the smallest changes."""
    results, dataset = report.results, report.query.dataset
    yield describe_subject(report.query, report.described, report.shard)
    yield f"target        {report.label}\n\n"
    for status, count in results.counts.items():
        if status is not TargetStatus.NO_INFO or count:
            by_reason = Counter(results.reasons.values()) if status is TargetStatus.NO_INFO else {}
            reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(by_reason.items()))
            yield f"{status.word:11}  {count:>8}   {status.meaning}{': ' * bool(reasons)}{reasons}\n"
    order = sorted(report.changes, key=lambda row: (0.0 if results.distances is None else results.distances[row], row))
    if order:
        yield "\n" + ("changes\n\n" if results.distances is None else "smallest changes\n\n")
        yield as_text([_in_words(report, row) for row in order[:ROWS_SHOWN]])
    if results.distances is not None:
        n_open = len(report.changes) - int(results.is_nearest.sum())
        if n_open:
            yield f"\n{n_open} changes may not be the nearest: the search was not finished\n"
    yield f"\n{dataset.n_samples} rows in {results.seconds:.3g} s\n"


def _in_words(report: TargetReport, row: int) -> dict[str, Any]:
    dataset, results, labels = report.query.dataset, report.results, report.query.model.labels
    distance = {} if results.distances is None else {"distance": _show_distance(float(results.distances[row]))}
    return {
        "row": dataset.number_of(row),
        **dataset.ids_of(row),
        "prediction": ",".join(labels[label] for label in results.predictions.sets[results.predictions.ids[row]]),
        **distance,
        "changes": ", ".join(f"{name} {old!s} -> {new!s}" for name, old, new in report.changes[row]),
    }


def _show_distance(distance: float) -> float | str:
    """A distance; where each multiple of an infinite radius will do, the least one is no number that means anything."""
    return "> 0" if distance == math.nextafter(0.0, 1.0) else distance


def _json_rows(report: TargetReport) -> Iterator[dict[str, Any]]:
    for record in report.rows():
        yield {name: finite_or_none(value) if isinstance(value, float) else value for name, value in record.items()}


def write_json(report: TargetReport) -> Iterator[str]:
    """One document: the summary and a list of rows; the distance of an unreachable label is null."""
    yield dump_json({**report.summary(), "rows": list(_json_rows(report))})


def write_jsonl(report: TargetReport) -> Iterator[str]:
    """One line for each row, the last one with the summary; the distance of an unreachable label is null."""
    return stream_jsonl(_json_rows(report), report.summary())


def write_csv(report: TargetReport) -> Iterator[str]:
    """One line for each row; changes are joined by semicolons."""
    dataset = report.query.dataset
    names = ["row", *(name for name, _ in dataset.ids), *(["label"] if dataset.has_labels else [])]
    names += ["prediction", "target", "status", "distance", "at_least", "reason", "changes"]
    return stream_csv(names, map(_join_changes, report.rows()))


def _join_changes(record: dict[str, Any]) -> dict[str, Any]:
    changes = record.get("changes", {})
    return {**record, "changes": "; ".join(f"{name}: {old!s} -> {new!s}" for name, (old, new) in changes.items())}


TARGET_FORMATS: dict[str, Callable[[TargetReport], Iterator[str]]] = {
    "text": write_text,
    "json": write_json,
    "jsonl": write_jsonl,
    "csv": write_csv,
}
