"""Sufficient reasons as text and JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metasilvae.analysis.sufficiency import Sufficiency, SufficientReason
from metasilvae.output.text.headings import describe_model
from metasilvae.output.text.tables import Record, as_text, dump_json

# Columns and rows that the text shows.
SHOWN = 10


def _name(found: Sufficiency, feature: int) -> str:
    """The column that a feature stands for."""
    encoding = found.dataset.names.encoding
    if encoding is None:
        return found.dataset.feature_name(feature)
    return encoding.columns[encoding.column_of_feature[feature]].name


def _cells(found: Sufficiency, reason: SufficientReason) -> list[tuple[str, str | float]]:
    """Each column of a reason with the value of the row; a missing value is empty."""
    row = found.dataset.X[reason.row]
    changes = found.dataset.names.describe_changes(row, row, reason.features)
    return [(name, "" if value != value else value) for name, value, _ in changes]


def _predicted(found: Sufficiency, reason: SufficientReason) -> list[str]:
    return [found.model.labels[label] for label in reason.prediction]


def write_text(found: Sufficiency) -> str:
    dataset, reasons = found.dataset, found.reasons
    n_smallest = sum(reason.is_smallest for reason in reasons)
    n_minimal = sum(reason.is_minimal and not reason.is_smallest for reason in reasons)
    lines = [
        f"model   {describe_model(found.model, found.voting)}",
        f"data    {dataset.source} ({dataset.n_samples} rows, {dataset.n_features} features)",
        f"inputs  {found.space.description}",
        "",
        f"{len(reasons)} of {dataset.n_samples} rows have a proved sufficient set of columns; {n_smallest} of them are "
        f"smallest, {n_minimal} others can spare no column",
        "",
    ]
    parts = ["\n".join(lines)]
    if reasons:
        sizes: list[Record] = [{"columns": size, "rows": found.sizes[size]} for size in sorted(found.sizes)]
        counts = sorted(found.counts, key=lambda feature: (-found.counts[feature], feature))
        named: dict[str, int] = {}
        for feature in counts:
            named[_name(found, feature)] = named.get(_name(found, feature), 0) + found.counts[feature]
        parts.append("columns that suffice\n\n" + as_text(sizes))
        if named:
            columns: list[Record] = [{"column": name, "rows": n} for name, n in list(named.items())[:SHOWN]]
            more = f"and {len(named) - SHOWN} more\n" if len(named) > SHOWN else ""
            parts.append("columns in these sets\n\n" + as_text(columns) + more)
        rows = [_line(found, reason) for reason in reasons[:SHOWN]]
        more = f"and {len(reasons) - SHOWN} more rows (--format json)\n" if len(reasons) > SHOWN else ""
        parts.append("rows\n\n" + as_text(rows) + more)
    return "\n".join(parts)


def _line(found: Sufficiency, reason: SufficientReason) -> Record:
    cells = [f"{name} = {value}" if value != "" else f"{name} is missing" for name, value in _cells(found, reason)]
    return {
        "row": found.dataset.number_of(reason.row),
        **found.dataset.ids_of(reason.row),
        "prediction": ",".join(_predicted(found, reason)),
        "because of": ", ".join(cells) or "any input gets it",
        "proved": "smallest" if reason.is_smallest else "minimal" if reason.is_minimal else "sufficient",
    }


def write_json(found: Sufficiency) -> str:
    document: dict[str, Any] = {
        "model": found.model.source,
        "data": found.dataset.source,
        "inputs": found.space.description,
        "voting": found.voting,
        "rows": [
            {
                "row": found.dataset.number_of(reason.row),
                **({"ids": found.dataset.ids_of(reason.row)} if found.dataset.ids else {}),
                "prediction": _predicted(found, reason),
                "sufficient": [
                    {"column": name, "value": None if value == "" else value} for name, value in _cells(found, reason)
                ],
                "is_smallest": reason.is_smallest,
                "is_minimal": reason.is_minimal,
            }
            for reason in found.reasons
        ],
    }
    return dump_json(document)


SUFFICIENCY_FORMATS: dict[str, Callable[[Sufficiency], str]] = {"text": write_text, "json": write_json}
