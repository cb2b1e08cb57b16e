"""Explanations of unstable rows as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from metasilvae.analysis.explanation import Explanation, UnstableRow
from metasilvae.output.text.headings import describe_subject
from metasilvae.output.text.tables import Record, as_text, dump_json, finite_or_none
from metasilvae.verification.budget import INTERRUPTED

SHOWN = 10


@dataclass(frozen=True)
class ExplanationReport:
    explanation: Explanation
    perturbation: str
    n_fragile: int

    @property
    def is_partial(self) -> bool:
        return self.explanation.n_interrupted > 0 or INTERRUPTED in self.explanation.outcome.reasons.values()

    def name(self, feature: int) -> str:
        return self.explanation.query.dataset.feature_name(feature)

    def test(self, feature: int, threshold: float) -> str:
        """The test of a feature in words; that a category is a certain one is said of the branch where it is."""
        holds, fails = self.explanation.query.dataset.names.describe_test(feature, threshold)
        return holds if self.explanation.query.dataset.names.is_number(feature) else fails

    def moves(self, row: UnstableRow) -> list[str]:
        """Each column that changes, with its old and new value."""
        dataset, point = self.explanation.query.dataset, row.witness.point
        changes = dataset.names.describe_changes(dataset.X[row.row], point, row.moved)
        return [f"{name} {old!s} -> {new!s}" for name, old, new in changes]

    def prediction(self, labels: tuple[int, ...]) -> list[str]:
        return [self.explanation.query.model.labels[label] for label in labels]


def write_text(report: ExplanationReport) -> str:
    explanation = report.explanation
    query, outcome, rows = explanation.query, explanation.outcome, explanation.rows
    parts = [
        describe_subject(query, report.perturbation),
        f"{len(rows)} of {query.dataset.n_samples} rows are unstable"
        + (f", {outcome.counts.no_info} undecided\n" if outcome.counts.no_info else "\n"),
    ]
    if report.is_partial:
        parts.append(
            f"partial, because it was interrupted: {explanation.n_interrupted} of the unstable rows are not fully "
            "explained, and undecided ones may be unstable too\n"
        )
    if rows:
        fragile = [_line(report, row) for row in explanation.most_fragile(report.n_fragile)]
        parts += [
            "features driving instability: unstable rows whose adversarial example changes the feature, and whose "
            "smallest frozen set contains it\n\n" + _features(report),
            "tests: unstable rows whose adversarial example flips the test\n\n" + _tests(report),
            "number of features to freeze to make a row stable\n\n" + _sizes(report),
        ]
        if fragile:
            parts.append("most fragile rows\n\n" + as_text(fragile))
    return "\n".join(parts)


def _features(report: ExplanationReport) -> str:
    moved, frozen = report.explanation.moved_features, report.explanation.frozen_features
    features = sorted(moved | frozen, key=lambda feature: (-moved[feature], feature))
    table = as_text([{"feature": report.name(f), "changed": moved[f], "frozen": frozen[f]} for f in features[:SHOWN]])
    return table + (f"and {len(features) - SHOWN} more\n" if len(features) > SHOWN else "")


def _tests(report: ExplanationReport) -> str:
    crossed = report.explanation.crossed_tests
    tests = sorted(crossed, key=lambda test: (-crossed[test], test))
    table = as_text([{"test": report.test(f, k), "rows": crossed[f, k]} for f, k in tests[:SHOWN]])
    return table + (f"and {len(tests) - SHOWN} more\n" if len(tests) > SHOWN else "")


def _sizes(report: ExplanationReport) -> str:
    explanation = report.explanation
    records: list[Record] = [
        {"features": n, "rows": explanation.frozen_sizes[n]} for n in sorted(explanation.frozen_sizes)
    ]
    n_none = sum(row.frozen.features is None for row in explanation.rows)
    if n_none:
        records.append({"features": "impossible or unknown", "rows": n_none})
    n_open = sum(row.frozen.features is not None and not row.frozen.is_smallest for row in explanation.rows)
    return as_text(records) + (f"{n_open} of these sets may not be the smallest\n" if n_open else "")


def _show(value: float) -> str:
    return "missing" if math.isnan(value) else str(value)


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _line(report: ExplanationReport, row: UnstableRow) -> Record:
    dataset, witness = report.explanation.query.dataset, row.witness
    moves = report.moves(row)
    frozen = "-" if row.frozen.features is None else " ".join(map(report.name, row.frozen.features))
    return {
        "row": dataset.number_of(row.row),
        **dataset.ids_of(row.row),
        **(
            {}
            if row.radius is None
            else {"certified radius": row.radius if row.has_exact_radius else f">= {row.radius:.4g}"}
        ),
        "prediction": ",".join(report.prediction(witness.prediction)),
        "becomes": ",".join(report.prediction(witness.perturbed_prediction)),
        "changes": ", ".join(moves[:3]) + (f" and {len(moves) - 3} more" if len(moves) > 3 else ""),
        "freeze": frozen,
    }


def _show_radius(radius: float, is_exact: bool) -> str | float:
    return radius if is_exact else f">= {radius:.4g}"


def write_json(report: ExplanationReport) -> str:
    explanation = report.explanation
    dataset, counts = explanation.query.dataset, explanation.outcome.counts
    document = {
        "model": explanation.query.model.source,
        "data": dataset.source,
        "perturbation": report.perturbation,
        "voting": explanation.query.voting,
        "counts": counts.as_dict(),
        **({"partial": {"reason": INTERRUPTED, "rows": explanation.n_interrupted}} if report.is_partial else {}),
        "features": [
            {
                "feature": feature,
                "name": report.name(feature),
                "rows_moved": explanation.moved_features[feature],
                "rows_frozen": explanation.frozen_features[feature],
            }
            for feature in sorted(explanation.moved_features | explanation.frozen_features)
        ],
        "tests": [
            {
                "feature": feature,
                "name": report.name(feature),
                "threshold": threshold,
                "test": report.test(feature, threshold),
                "rows": rows,
            }
            for (feature, threshold), rows in sorted(explanation.crossed_tests.items())
        ],
        "rows": [_as_json(report, row) for row in explanation.rows],
        "most_fragile": [dataset.number_of(row.row) for row in explanation.most_fragile(report.n_fragile)],
    }
    return dump_json(document)


def _as_json(report: ExplanationReport, row: UnstableRow) -> dict[str, Any]:
    dataset, witness = report.explanation.query.dataset, row.witness
    return {
        "row": dataset.number_of(row.row),
        **({"ids": dataset.ids_of(row.row)} if dataset.ids else {}),
        "label": dataset.labels[dataset.y[row.row]],
        "prediction": report.prediction(witness.prediction),
        "perturbed_prediction": report.prediction(witness.perturbed_prediction),
        "radius": row.radius,
        **({} if row.has_exact_radius else {"radius_at_most": finite_or_none(row.radius_at_most)}),
        "moved": [
            {
                "feature": f,
                "name": report.name(f),
                "from": float(dataset.X[row.row, f]),
                "to": _or_null(witness.point[f]),
            }
            for f in row.moved
        ],
        "changes": [
            {"column": name, "from": old, "to": new}
            for name, old, new in dataset.names.describe_changes(dataset.X[row.row], witness.point, row.moved)
        ],
        "crossed": [{"feature": f, "threshold": k} for f, k in row.crossed],
        "freeze": None if row.frozen.features is None else list(row.frozen.features),
        "freeze_is_smallest": row.frozen.is_smallest,
        "point": list(map(_or_null, witness.point)),
    }


EXPLANATION_FORMATS: dict[str, Callable[[ExplanationReport], str]] = {"text": write_text, "json": write_json}
