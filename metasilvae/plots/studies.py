"""What weights and seeds make of the figures, from tables of trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from metasilvae.errors import DataError
from metasilvae.formats.study_tables import TEST_PREFIX, StudyTable
from metasilvae.plots.canvas import limit_shares, new_figure, put_heading, put_legend_below, say, style, tell_apart
from metasilvae.plots.palette import INK, blend, colour_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WEIGHTED = {"accuracy": ("o", "-"), "stability": ("s", "--")}
WEIGHTS = ("w_acc", "w_st", "w_rob")
SPREAD = ("accuracy", "stability", "phi", "leaves")
ROW_KINDS = ("training", "test")
PANELS_IN_A_ROW = 3
MOST_SETS = 40


def choose_rows(tables: Sequence[StudyTable], wanted: str | None) -> str:
    """Whose figures to show: those of test rows if all tables have them."""
    return wanted or ("test" if all(table.has_test for table in tables) else "training")


def _column(table: StudyTable, name: str, rows: str) -> list[float]:
    has_rows = name not in ("leaves", "w_acc")
    return table.column(f"{TEST_PREFIX}{name}" if has_rows and rows == "test" else name)


def _refuse_crowds(tables: Sequence[StudyTable], n_sets: int) -> None:
    if n_sets > MOST_SETS:
        raise DataError(f"{tables[0].source}: a plot of {n_sets} sets cannot be read; draw {MOST_SETS} at most")


# Weights


@style()
def draw_weights(tables: Sequence[StudyTable], rows: str, title: str | None = None) -> Figure:
    """Accuracy and stability over the weight of accuracy, a panel for each set: medians, and quartiles of the seeds."""
    points: dict[str, dict[str, dict[float, list[float]]]] = {}
    for table in tables:
        weights, columns = _column(table, "w_acc", rows), {name: _column(table, name, rows) for name in WEIGHTED}
        for place, (each, weight) in enumerate(zip(table.sets(), weights, strict=True)):
            for name, values in columns.items():
                points.setdefault(each, {}).setdefault(name, {}).setdefault(weight, []).append(values[place])
    _refuse_crowds(tables, len(points))
    n_columns = min(len(points), PANELS_IN_A_ROW)
    n_lines = math.ceil(len(points) / n_columns)
    figure = new_figure(max(3.2 * n_columns, 5), 2.8 * n_lines + 0.8)
    panels = figure.subplots(n_lines, n_columns, squeeze=False, sharey=True).ravel()
    for axes, (each, figures) in zip(panels, points.items(), strict=False):
        for number, (name, by_weight) in enumerate(figures.items()):
            _draw_medians(axes, by_weight, name, colour_of(number))
        axes.set(title=say(each), xlabel="weight of accuracy")
        axes.grid(alpha=0.3)
    for axes in panels[len(points) :]:
        axes.set_axis_off()
    for axes in panels[::n_columns]:
        axes.set_ylabel(f"share of {rows} rows")
    if title is not None:
        put_heading(figure, say(title, 200))
    limit_shares(panels[0])
    put_legend_below(figure, panels[0].get_legend_handles_labels()[0])
    return figure


def _draw_medians(axes: Axes, by_weight: dict[float, list[float]], name: str, colour: str) -> None:
    weights = sorted(by_weight)
    low, middle, high = np.array([np.quantile(by_weight[weight], (0.25, 0.5, 0.75)) for weight in weights]).T
    mark, line = WEIGHTED[name]
    axes.plot(weights, middle, color=colour, marker=mark, markersize=4, linestyle=line, label=name)
    if any(len(values) > 1 for values in by_weight.values()):
        axes.fill_between(weights, low, high, color=colour, alpha=0.2, linewidth=0)


# Seeds


@style()
def draw_variance(tables: Sequence[StudyTable], rows: str, title: str | None = None) -> Figure:
    """A box for each set and its weights: median, quartiles, and all seeds as dots, for each of four figures."""
    groups = _group(tables, rows)
    figure = new_figure(max(7.0, 3 + 1.2 * min(len(groups), 8) + 0.7 * max(len(groups) - 8, 0)), 6.5)
    all_axes = dict(zip(SPREAD, figure.subplots(2, 2, sharex=True).ravel(), strict=True))
    for name, axes in all_axes.items():
        _draw_boxes(axes, [figures[name] for figures in groups.values()])
        axes.set_ylabel(name if name == "leaves" else f"{name}, {rows} rows")
        axes.grid(axis="y", alpha=0.3)
    for name in ("accuracy", "stability", "phi"):
        limit_shares(all_axes[name])
    all_axes["leaves"].set_ylim(bottom=0)
    all_axes["leaves"].yaxis.get_major_locator().set_params(integer=True)
    for name in ("phi", "leaves"):
        _name_boxes(all_axes[name], list(groups))
    put_heading(figure, _count_seeds(tables, groups) if title is None else say(title, 200))
    return figure


def _draw_boxes(axes: Axes, values: list[list[float]]) -> None:
    thin = {"linewidth": 0.8}
    drawn = axes.boxplot(
        values, widths=0.55, showfliers=False, patch_artist=True, whis=(0, 100), medianprops={"color": INK},
        boxprops=thin, whiskerprops=thin, capprops=thin,
    )  # fmt: skip
    for number, (box, numbers) in enumerate(zip(drawn["boxes"], values, strict=True)):
        box.set_facecolor(blend([colour_of(number)], 0.6))
        # Dots lie beside each other, in the same way in every picture of the same seeds.
        places = [number + 1 + 0.36 * ((place * 0.618034 + 0.5) % 1 - 0.5) for place in range(len(numbers))]
        axes.scatter(places, numbers, s=9, color=colour_of(number), edgecolors=INK, linewidths=0.3, zorder=3)


def _name_boxes(axes: Axes, names: list[str]) -> None:
    """Names under the boxes; they lean if there is not enough room for them."""
    axes.set_xticks(range(1, len(names) + 1), tell_apart(names, 32))
    if sum(map(len, names)) > 30:
        for label in axes.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")


def _count_seeds(tables: Sequence[StudyTable], groups: dict[str, dict[str, list[float]]]) -> str:
    """How many dots a box has; trainings that differ in something else than the seed are not called seeds."""
    counts = sorted({len(figures["leaves"]) for figures in groups.values()})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    found = [
        (name, record["seed"])
        for table, names in zip(tables, _name_groups(tables), strict=True)
        for name, record in zip(names, table.records, strict=True)
        if "seed" in record
    ]
    noun = "seed" if len(found) == len(set(found)) else "training"
    return f"{number} {noun}{'' if counts == [1] else 's'}"


def _group(tables: Sequence[StudyTable], rows: str) -> dict[str, dict[str, list[float]]]:
    """Figures by set; where a set has several weights or is in several tables, by these too."""
    groups: dict[str, dict[str, list[float]]] = {}
    for table, names in zip(tables, _name_groups(tables), strict=True):
        columns = {name: _column(table, name, rows) for name in SPREAD}
        for place, each in enumerate(names):
            figures = groups.setdefault(each, {name: [] for name in SPREAD})
            for name, values in columns.items():
                figures[name].append(values[place])
    _refuse_crowds(tables, len(groups))
    return groups


def _name_groups(tables: Sequence[StudyTable]) -> list[list[str]]:
    """The box that each training of each table belongs to."""
    owners: dict[str, set[int]] = {}
    weights: dict[str, set[tuple[str, ...]]] = {}
    for number, table in enumerate(tables):
        for each, record in zip(table.sets(), table.records, strict=True):
            owners.setdefault(each, set()).add(number)
            weights.setdefault(each, set()).add(_weights_of(record))
    return [
        [
            (each if len(owners[each]) == 1 else f"{table.source}: {each}") + _say_weights(record, weights[each])
            for each, record in zip(table.sets(), table.records, strict=True)
        ]
        for table in tables
    ]


def _weights_of(record: dict[str, object]) -> tuple[str, ...]:
    return tuple(str(record.get(name, "")) for name in WEIGHTS)


def _say_weights(record: dict[str, object], of_set: set[tuple[str, ...]]) -> str:
    """The weights of a training, where its set has several: that of accuracy if it tells them apart, or all."""
    if len(of_set) == 1:
        return ""
    is_enough = len({of_accuracy for of_accuracy, *_ in of_set}) == len(of_set)
    names = WEIGHTS[:1] if is_enough else WEIGHTS
    return ", " + " ".join(f"{name} {weight}" for name, weight in zip(names, _weights_of(record), strict=False))
