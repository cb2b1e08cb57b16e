"""Checks of data files as text or JSON, and the changes that an attack file allows, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.datasets.summary import DataSummary
from metasilvae.encoding import BOOLEAN, CATEGORY, Column, Encoding
from metasilvae.output.text.tables import Record, as_text, dump_json, finite_or_none
from metasilvae.perturbations.attack import Attack
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.verification.ceiling import Ceiling

_CLASSES_SHOWN = 12
_COLUMNS_SHOWN = 40
_FEATURES_SHOWN = 20
_SHOWN_VALUES = 8
_LINE_WIDTH = 100


@dataclass(frozen=True)
class DataCheck:
    """Result of checking a file; an invalid one has problems and neither data set nor summary.

    `bound` is what no model can exceed under a perturbation, if one was given.
    """

    source: str
    dataset: Dataset | None
    summary: DataSummary | None
    problems: list[str]
    warnings: list[str]
    bound: tuple[Perturbation, Ceiling] | None = None


def _show_classes(class_counts: dict[str, int]) -> str:
    shown = [f"{label} {count}" for label, count in list(class_counts.items())[:_CLASSES_SHOWN]]
    rest = len(class_counts) - len(shown)
    text = f"{len(class_counts)}: " + ", ".join(shown) + (f" and {rest} more" if rest else "")
    return text if len(text) <= 2 * _LINE_WIDTH else text[: 2 * _LINE_WIDTH - 3] + "..."


def _range(dataset: Dataset, summary: DataSummary) -> str:
    is_number = np.ones(dataset.n_features, dtype=bool) if dataset.encoding is None else ~dataset.encoding.is_indicator
    known = is_number & ~np.isnan(summary.minimum)
    if not known.any():
        return "no numbers"
    return f"{summary.minimum[known].min():g} to {summary.maximum[known].max():g}"


def _facts(dataset: Dataset, summary: DataSummary) -> list[str]:
    names = "with names" if dataset.feature_names else "without names"
    repeats = summary.duplicates.n_repeats
    return [
        f"rows      {summary.n_samples}, {repeats} of them duplicates",
        f"features  {summary.n_features} {names}, {len(summary.constant_features)} constant",
        f"values    {_range(dataset, summary)}{', all whole numbers' * summary.is_whole}",
        f"classes   {_show_classes(summary.class_counts)}",
    ]


def _tabulate_columns(summary: DataSummary) -> str:
    """One line for each column; of very many, the first ones."""
    shown = summary.columns if len(summary.columns) <= _COLUMNS_SHOWN else summary.columns[:_FEATURES_SHOWN]
    has_missing = any(column.n_missing for column in summary.columns)
    has_types = any(column.kind not in ("label", "number") for column in summary.columns)
    records: list[Record] = [
        {
            "column": column.name,
            "type": column.kind,
            "content": column.content,
            **({"missing": column.n_missing} if has_missing else {}),
            **({"the model sees": column.features} if has_types else {}),
        }
        for column in shown
    ]
    rest = len(summary.columns) - len(records)
    return as_text(records) + (f"... {rest} more, --format json shows all\n" if rest else "")


def _list(title: str, sentences: list[str]) -> str:
    return "\n".join([f"{title}:", *(f"- {sentence}" for sentence in sentences)]) + "\n"


def _describe_ceiling(perturbation: Perturbation, ceiling: Ceiling) -> str:
    if ceiling.limit:
        conflicts = f"not all were considered, because {ceiling.limit}"
    else:
        pairs = "1 pair" if ceiling.n_conflicts == 1 else f"{ceiling.n_conflicts} pairs"
        conflicts = f"{pairs} of rows with different labels and a common perturbation"
        conflicts += f", {ceiling.n_conflicting} rows in all"
    sharpness = "some model reaches it" if ceiling.is_exact else f"some model reaches {ceiling.reached}"
    n_rows = ceiling.n_rows
    return (
        f"ceiling under {perturbation.describe()}: no model can exceed on these rows\n"
        f"accuracy         {100 * ceiling.accuracy:6.2f} %, {ceiling.accurate} of {n_rows} rows\n"
        f"robust accuracy  {100 * ceiling.robust_accuracy:6.2f} %, {ceiling.robust} of {n_rows} rows; {sharpness}\n"
        f"conflicts        {conflicts}\n"
    )


def check_as_text(check: DataCheck) -> str:
    """Facts first; problems last, where they are seen when the text has scrolled by."""
    parts = []
    if check.dataset is not None and check.summary is not None:
        parts.append("\n".join([check.source, *_facts(check.dataset, check.summary)]) + "\n")
        parts.append(_tabulate_columns(check.summary))
    if check.bound is not None:
        parts.append(_describe_ceiling(*check.bound))
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
            "minimum": [finite_or_none(value) for value in summary.minimum.tolist()],
            "maximum": [finite_or_none(value) for value in summary.maximum.tolist()],
            "columns": [column.as_dict() for column in summary.columns],
            "constant_features": summary.constant_features,
            "repeated_rows": summary.duplicates.n_repeats,
            "conflicting_rows": summary.duplicates.conflicts,
        }
    if check.bound is not None:
        perturbation, ceiling = check.bound
        content["ceiling"] = {
            "perturbation": perturbation.describe(),
            "accuracy": ceiling.accuracy,
            "robust_accuracy": ceiling.robust_accuracy,
            "is_exact": ceiling.is_exact,
            "accurate_rows": ceiling.accurate,
            "robust_rows": ceiling.robust,
            "reached_rows": ceiling.reached,
            "conflicts": ceiling.n_conflicts,
            "conflicting_rows": ceiling.n_conflicting,
            "limit": ceiling.limit or None,
        }
    content |= {"warnings": check.warnings, "problems": check.problems}
    return dump_json(content)


CHECK_FORMATS: dict[str, Callable[[DataCheck], str]] = {"text": check_as_text, "json": check_as_json}


def describe_attack(attack: Attack, dataset: Dataset) -> Iterator[str]:
    """A line for each column and each group."""
    rules = list_rules(attack, dataset)
    width = max((len(names[0]) for names, _ in rules if len(names) == 1), default=0)
    for names, words in rules:
        if len(names) == 1:
            yield f"{names[0]:{width}}  {words}\n"
    for names, _ in rules:
        if len(names) > 1:
            yield f"exactly one of {', '.join(names)} is 1; which one may change\n"
    yield f"\nall {dataset.n_samples} rows of {dataset.source} satisfy these constraints\n"
    if attack.is_idle:
        yield "no value can change: every model is stable under this attack\n"


def list_rules(attack: Attack, dataset: Dataset) -> list[tuple[list[str], str]]:
    """Allowed changes in words for each column of the table; a group of several columns has one rule."""
    encoding = dataset.encoding or Encoding(tuple(map(Column, dataset.names.names)))
    reach = attack.reach.T.tolist()
    groups = [group.features for group in attack.groups.groups]
    of_columns = {tuple(encoding.features_of(place)) for place in range(len(encoding.columns))}
    grouped = {feature for group in groups for feature in group if group not in of_columns}
    rules = []
    for place, column in enumerate(encoding.columns):
        features = tuple(encoding.features_of(place))
        if column.kind == CATEGORY:
            words = _describe_category(attack, column, features)
            rules.append(([column.name], words + _describe_cost(attack, features[0])))
        elif column.kind == BOOLEAN:
            words = "may change" if reach[features[0]][1] > 0 else "fixed"
            words += f", {column.categories[0]} or {column.categories[1]}"
            rules.append(([column.name], words + _describe_cost(attack, features[0])))
        elif features[0] not in grouped:
            is_droppable = attack.droppable is not None and attack.droppable[features[0]]
            words = describe_column(attack, features[0], *reach[features[0]])
            words += ", may become missing" if is_droppable else ""
            rules.append(([column.name], words + _describe_cost(attack, features[0])))
    names = dataset.names.names
    for group in groups:
        if group not in of_columns:
            words = "exactly one of them is 1; which one may change"
            rules.append(([names[f] for f in group], words + _describe_cost(attack, group[0])))
    return rules


def _describe_cost(attack: Attack, feature: int) -> str:
    """What a change costs in a distance, if that is not 1."""
    cost = 1.0 if attack.costs is None else float(attack.costs[feature])
    return "" if cost == 1 else f", at cost {cost:g}"


def _describe_category(attack: Attack, column: Column, features: tuple[int, ...]) -> str:
    n_values = len(column.values)
    if column.sets is not None:
        return _describe_moves(attack, column, features[-1])
    if features in attack.swaps:
        numbers = attack.swaps[features]
        lists = [
            [value for value, each in zip(column.values, numbers, strict=True) if each == number]
            for number in dict.fromkeys(numbers)
        ]
        return _describe_swaps(column, lists)
    if attack.radius_up[features[0]] > 0:
        return f"any of the {n_values} categories"
    return f"fixed, one of {n_values} {'category' if n_values == 1 else 'categories'}"


def _describe_swaps(column: Column, lists: list[list[str]]) -> str:
    """Which values may become each other, by lists of them."""
    movable = [each for each in lists if len(each) > 1]
    stays = len(column.values) - sum(map(len, movable))
    if len(movable) == 1 and stays == column.has_missing:
        return f"any of the {len(movable[0])} categories; a missing one stays missing"
    shown = [f"{', '.join(each[:_SHOWN_VALUES])}{', ...' * (len(each) > _SHOWN_VALUES)}" for each in movable]
    return f"may become each other: {'; '.join(shown)}" + (f"; {stays} stay" if stays else "")


def _describe_moves(attack: Attack, column: Column, code: int) -> str:
    """Allowed changes of a category that splits divide into sets."""
    number = next((n for n, group in enumerate(attack.groups.groups) if group.code == code), None)
    if number is None:
        return f"fixed, one of {len(column.values)} categories"
    may_become = attack.moves[number].copy()
    may_be_dropped = bool(may_become[:-1, -1].any())
    may_become[:-1, -1] = False
    firsts = np.argmax(may_become, axis=1)
    lists = [[column.values[p] for p in np.flatnonzero(firsts == first)] for first in dict.fromkeys(firsts.tolist())]
    is_moving = any(len(each) > 1 for each in lists)
    words = _describe_swaps(column, lists) if is_moving else "stays"
    return words + (", may become missing" if may_be_dropped else "")


def describe_column(attack: Attack, feature: int, down: float, up: float) -> str:
    """Allowed changes of a column that is in no group, whose values may fall by `down` and rise by `up`."""
    if feature in attack.domains.listed:
        return _describe_values(attack.domains.listed[feature], down, up)
    if down == up == 0 and not _describe_relative(attack, feature, down, up):
        return "fixed"
    unit = "whole numbers, " if feature in attack.domains.whole else ""
    relative = _describe_relative(attack, feature, down, up)
    if relative:
        moves = relative
    elif down == up:
        moves = "any value" if math.isinf(up) else f"up or down by at most {up:g}"
    elif down == 0 or up == 0:
        way, length = ("up", up) if down == 0 else ("down", down)
        moves = f"{way} only" + ("" if math.isinf(length) else f", by at most {length:g}")
    else:
        moves = f"down by at most {down:g}, up by at most {up:g}"
    low, high = float(attack.minimum[feature]), float(attack.maximum[feature])
    limits = [f"not below {low:g}"] * math.isfinite(low) + [f"not above {high:g}"] * math.isfinite(high)
    return unit + ", ".join([moves, *limits])


def _describe_relative(attack: Attack, feature: int, down: float, up: float) -> str:
    """Allowed changes of a column with a radius that is a fraction of the value; empty for other columns."""
    fractions = [each[feature] if each else 0 for each in (attack.relative_down, attack.relative_up)]
    if not any(fractions):
        return ""
    lengths = [
        f"{float(100 * fraction):g} % of the value" if fraction else f"{length:g}"
        for fraction, length in zip(fractions, (down, up), strict=True)
    ]
    if fractions[0] == fractions[1]:
        return f"up or down by at most {lengths[1]}"
    ways = [f"{way} by at most {length}" for way, length in zip(("down", "up"), lengths, strict=True) if length != "0"]
    return ", ".join(ways)


def _describe_values(values: tuple[float, ...], down: float, up: float) -> str:
    shown = [f"{value:g}" for value in values]
    if len(shown) > _SHOWN_VALUES:
        shown = [*shown[: _SHOWN_VALUES - 1], "...", shown[-1]]
    way = {(False, True): ", up only", (True, False): ", down only"}.get((down > 0, up > 0), "")
    if down == up == 0:
        return f"fixed, one of {', '.join(shown)}"
    return f"any of the {len(values)} values {', '.join(shown)}{way}"
