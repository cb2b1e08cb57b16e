"""Checks of data files as text or JSON, and the changes that an attack file allows, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from metasilvae.dataset import Dataset
from metasilvae.datasets.summary import DataSummary
from metasilvae.output.text.tables import Record, as_text, dump_json
from metasilvae.perturbations.attack import Attack

_CLASSES_SHOWN = 12
_FEATURES_SHOWN = 6
_SHOWN_VALUES = 8
_LINE_WIDTH = 100


@dataclass(frozen=True)
class DataCheck:
    """Result of checking a file; an invalid one has problems and neither data set nor summary."""

    source: str
    dataset: Dataset | None
    summary: DataSummary | None
    problems: list[str]
    warnings: list[str]


def _show_classes(class_counts: dict[str, int]) -> str:
    shown = [f"{label} {count}" for label, count in list(class_counts.items())[:_CLASSES_SHOWN]]
    rest = len(class_counts) - len(shown)
    text = f"{len(class_counts)}: " + ", ".join(shown) + (f" and {rest} more" if rest else "")
    return text if len(text) <= 2 * _LINE_WIDTH else text[: 2 * _LINE_WIDTH - 3] + "..."


def _facts(dataset: Dataset, summary: DataSummary) -> list[str]:
    names = "with names" if dataset.feature_names else "without names"
    repeats = summary.duplicates.n_repeats
    return [
        f"rows      {summary.n_samples}, {repeats} of them duplicates",
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
    """Facts first; problems last, where they are seen when the text has scrolled by."""
    parts = []
    if check.dataset is not None and check.summary is not None:
        parts.append("\n".join([check.source, *_facts(check.dataset, check.summary)]) + "\n")
        parts.append(_ranges(check.dataset, check.summary))
    if check.warnings:
        parts.append(_list("warnings", check.warnings))
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
    content |= {"warnings": check.warnings, "problems": check.problems}
    return dump_json(content)


CHECK_FORMATS: dict[str, Callable[[DataCheck], str]] = {"text": check_as_text, "json": check_as_json}


def describe_attack(attack: Attack, dataset: Dataset) -> Iterator[str]:
    """A line for each column and each group."""
    members = {feature for group in attack.groups.lists for feature in group}
    names = [dataset.feature_name(feature) for feature in range(attack.n_features)]
    reach = attack.reach.T.tolist()
    width = max((len(name) for feature, name in enumerate(names) if feature not in members), default=0)
    for feature, name in enumerate(names):
        if feature not in members:
            dropped = ", may become missing" if attack.droppable is not None and attack.droppable[feature] else ""
            yield f"{name:{width}}  {describe_column(attack, feature, *reach[feature])}{dropped}\n"
    for group in attack.groups.lists:
        yield f"exactly one of {', '.join(names[feature] for feature in group)} is 1; which one may change\n"
    yield f"\nall {dataset.n_samples} rows of {dataset.source} satisfy these constraints\n"
    if attack.is_idle:
        yield "no value can change: every model is stable under this attack\n"


def describe_column(attack: Attack, feature: int, down: float, up: float) -> str:
    """Allowed changes of a column that is in no group, whose values may fall by `down` and rise by `up`."""
    if feature in attack.domains.listed:
        return _describe_values(attack.domains.listed[feature], down, up)
    if down == up == 0:
        return "fixed"
    unit = "whole numbers, " if feature in attack.domains.whole else ""
    if down == up:
        moves = "any value" if math.isinf(up) else f"up or down by at most {up:g}"
    elif down == 0 or up == 0:
        way, length = ("up", up) if down == 0 else ("down", down)
        moves = f"{way} only" + ("" if math.isinf(length) else f", by at most {length:g}")
    else:
        moves = f"down by at most {down:g}, up by at most {up:g}"
    low, high = float(attack.minimum[feature]), float(attack.maximum[feature])
    limits = [f"not below {low:g}"] * math.isfinite(low) + [f"not above {high:g}"] * math.isfinite(high)
    return unit + ", ".join([moves, *limits])


def _describe_values(values: tuple[float, ...], down: float, up: float) -> str:
    shown = [f"{value:g}" for value in values]
    if len(shown) > _SHOWN_VALUES:
        shown = [*shown[: _SHOWN_VALUES - 1], "...", shown[-1]]
    way = {(False, True): ", up only", (True, False): ", down only"}.get((down > 0, up > 0), "")
    if down == up == 0:
        return f"fixed, one of {', '.join(shown)}"
    return f"any of the {len(values)} values {', '.join(shown)}{way}"
