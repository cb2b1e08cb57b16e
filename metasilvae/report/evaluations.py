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

# Labels or answers that a table shows; of more, mistakes are listed.
MOST_LABELS = 100
MOST_MISTAKES = 100
LONGEST_ANSWER = 60


@dataclass(frozen=True)
class ConfusionTable:
    """How often each true label got each answer: a table, or a list of mistakes where a table would be too large."""

    model: Model
    dataset: Dataset
    counts: dict[tuple[str, str], int]

    @property
    def answers(self) -> list[str]:
        return list(dict.fromkeys([*self.model.labels, *sorted(answer for _, answer in self.counts)]))

    @property
    def is_large(self) -> bool:
        return max(len(self.dataset.labels), len(self.answers)) > MOST_LABELS

    @property
    def title(self) -> str:
        if not self.is_large:
            return f"{self.model.source}: true labels against answers"
        n_kinds, n_shown = len(self._mistakes()), len(self.records())
        which = f"the {n_shown} most frequent of {n_kinds}" if n_shown < n_kinds else f"all {n_kinds}"
        return (
            f"{self.model.source}: {which} kinds of mistakes (a table has at most {MOST_LABELS} labels and answers; "
            "--format json counts all pairs)"
        )

    def records(self) -> list[Record]:
        if self.is_large:
            return [
                {"true label": label, "answer": _cut(answer), "rows": rows}
                for (label, answer), rows in self._mistakes()[:MOST_MISTAKES]
            ]
        answers = self.answers
        return [
            {"true label": label, **{answer: self.counts.get((label, answer), 0) for answer in answers}}
            for label in self.dataset.labels
        ]

    def _mistakes(self) -> list[tuple[tuple[str, str], int]]:
        """Pairs of different label and answer with their rows, the most frequent first."""
        found = [(pair, rows) for pair, rows in self.counts.items() if pair[0] != pair[1]]
        return sorted(found, key=lambda item: -item[1])


def _cut(answer: str) -> str:
    """An answer of thousands of labels does not fit a line."""
    return answer if len(answer) <= LONGEST_ANSWER else f"{answer[:LONGEST_ANSWER]}..."


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
        records = table.records()
        parts.append(
            ("" if table_format == "csv" else f"{table.title}\n") + (f"\n{render(records)}" if records else "")
        )
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
