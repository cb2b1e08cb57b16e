"""What `data check` found, as one screen of text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from metasilvae.data_summary import DataSummary
from metasilvae.dataset import Dataset
from metasilvae.report.tables import Record, as_text

_CLASSES_SHOWN = 12
_FEATURES_SHOWN = 6
_LINE_WIDTH = 100


@dataclass(frozen=True)
class DataCheck:
    """Result of checking a file; a broken one has problems and neither data set nor summary."""

    source: str
    dataset: Dataset | None
    summary: DataSummary | None
    problems: list[str]
    oddities: list[str]


def _show_classes(class_counts: dict[str, int]) -> str:
    shown = [f"{label} {count}" for label, count in list(class_counts.items())[:_CLASSES_SHOWN]]
    rest = len(class_counts) - len(shown)
    text = f"{len(class_counts)}: " + ", ".join(shown) + (f" and {rest} more" if rest else "")
    return text if len(text) <= 2 * _LINE_WIDTH else text[: 2 * _LINE_WIDTH - 3] + "..."


def _facts(dataset: Dataset, summary: DataSummary) -> list[str]:
    names = "with names" if dataset.feature_names else "without names"
    repeats = summary.duplicates.n_repeats
    return [
        f"rows      {summary.n_samples}, {repeats} of them repeat{'s' * (repeats == 1)} the values of an earlier one",
        f"features  {summary.n_features} {names}, {len(summary.constant_features)} constant",
        f"values    {summary.minimum.min():g} to {summary.maximum.max():g}{', all whole numbers' * summary.is_whole}",
        f"classes   {_show_classes(summary.class_counts)}",
    ]


def _ranges(dataset: Dataset, summary: DataSummary) -> str:
    records: list[Record] = [
        {
            "feature": dataset.feature_name(feature),
            "minimum": float(summary.minimum[feature]),
            "maximum": float(summary.maximum[feature]),
        }
        for feature in range(min(_FEATURES_SHOWN, summary.n_features))
    ]
    rest = summary.n_features - len(records)
    return as_text(records) + (f"... {rest} more, --format json shows all\n" if rest else "")


def _list(title: str, sentences: list[str]) -> str:
    return "\n".join([f"{title}:", *(f"- {sentence}" for sentence in sentences)]) + "\n"


def check_as_text(check: DataCheck) -> str:
    """Facts first; what is wrong comes last, where the eye is when the text has scrolled by."""
    parts = []
    if check.dataset is not None and check.summary is not None:
        parts.append("\n".join([check.source, *_facts(check.dataset, check.summary)]) + "\n")
        parts.append(_ranges(check.dataset, check.summary))
    if check.oddities:
        parts.append(_list("worth a look", check.oddities))
    if check.problems:
        parts.append(_list("problems (the file cannot be used)", check.problems))
    else:
        parts.append("problems: none\n")
    return "\n".join(parts)


def check_as_json(check: DataCheck) -> str:
    content: dict[str, object] = {"source": check.source}
    if check.dataset is not None and check.summary is not None:
        summary = check.summary
        content |= {
            "rows": summary.n_samples,
            "features": summary.n_features,
            "classes": summary.class_counts,
            "feature_names": check.dataset.feature_names,
            "minimum": summary.minimum.tolist(),
            "maximum": summary.maximum.tolist(),
            "constant_features": summary.constant_features,
            "repeated_rows": summary.duplicates.n_repeats,
            "conflicting_rows": summary.duplicates.conflicts,
        }
    content |= {"oddities": check.oddities, "problems": check.problems}
    return json.dumps(content, indent=1) + "\n"


CHECK_FORMATS: dict[str, Callable[[DataCheck], str]] = {"text": check_as_text, "json": check_as_json}
