"""Metrics over the weights of the objective, over seeds, and over the course of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from metasilvae.errors import DataError
from metasilvae.formats.training_records import TEST_PREFIX, LoggedRun, StudyTable
from metasilvae.output.plots.canvas import (
    FAINT,
    INK,
    blend,
    colour_of,
    limit_to_one,
    new_figure,
    put_heading,
    put_legend_below,
    say,
    style,
    tell_apart,
)

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
    """The rows to show metrics of: test rows if all tables have them."""
    return wanted or ("test" if all(table.has_test for table in tables) else "training")


def _column(table: StudyTable, name: str, rows: str) -> list[float]:
    has_rows = name not in ("leaves", "w_acc")
    return table.column(f"{TEST_PREFIX}{name}" if has_rows and rows == "test" else name)


def _refuse_crowds(tables: Sequence[StudyTable], n_sets: int) -> None:
    if n_sets > MOST_SETS:
        raise DataError(f"{tables[0].source}: a plot of {n_sets} sets cannot be read; draw {MOST_SETS} at most")


# Weights


@style()
def draw_objective_weights(tables: Sequence[StudyTable], rows: str, title: str | None = None) -> Figure:
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
        axes.set_ylabel(f"fraction of {rows} rows")
    if title is not None:
        put_heading(figure, say(title, 200))
    limit_to_one(panels[0])
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
    """A box for each set and its weights (median, quartiles, all seeds as dots) for each of four metrics."""
    groups = _group(tables, rows)
    figure = new_figure(max(7.0, 3 + 1.2 * min(len(groups), 8) + 0.7 * max(len(groups) - 8, 0)), 6.5)
    all_axes = dict(zip(SPREAD, figure.subplots(2, 2, sharex=True).ravel(), strict=True))
    for name, axes in all_axes.items():
        _draw_boxes(axes, [figures[name] for figures in groups.values()])
        axes.set_ylabel(name if name == "leaves" else f"{name}, {rows} rows")
        axes.grid(axis="y", alpha=0.3)
    for name in ("accuracy", "stability", "phi"):
        limit_to_one(all_axes[name])
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
        # Dots are spread in the same way in every picture.
        places = [number + 1 + 0.36 * ((place * 0.618034 + 0.5) % 1 - 0.5) for place in range(len(numbers))]
        axes.scatter(places, numbers, s=9, color=colour_of(number), edgecolors=INK, linewidths=0.3, zorder=3)


def _name_boxes(axes: Axes, names: list[str]) -> None:
    """Names under the boxes, rotated if they do not fit."""
    axes.set_xticks(range(1, len(names) + 1), tell_apart(names, 32))
    if sum(map(len, names)) > 30:
        for label in axes.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")


def _count_seeds(tables: Sequence[StudyTable], groups: dict[str, dict[str, list[float]]]) -> str:
    """The number of dots per box; runs that differ in more than the seed are not called seeds."""
    counts = sorted({len(figures["leaves"]) for figures in groups.values()})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    found = [
        (name, record["seed"])
        for table, names in zip(tables, _name_groups(tables), strict=True)
        for name, record in zip(names, table.records, strict=True)
        if "seed" in record
    ]
    noun = "seed" if len(found) == len(set(found)) else "run"
    return f"{number} {noun}{'' if counts == [1] else 's'}"


def _group(tables: Sequence[StudyTable], rows: str) -> dict[str, dict[str, list[float]]]:
    """Metrics by data set, and by weights or tables if a set has several."""
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
    """Name of the box of each run of each table."""
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
    """The weights of a run if its set has several: that of accuracy if it is enough to distinguish them, or all."""
    if len(of_set) == 1:
        return ""
    is_enough = len({of_accuracy for of_accuracy, *_ in of_set}) == len(of_set)
    names = WEIGHTS[:1] if is_enough else WEIGHTS
    return ", " + " ".join(f"{name} {weight}" for name, weight in zip(names, _weights_of(record), strict=False))


X_AXES = ("seconds", "steps")
SHOWN = {"fitness": "phi", "accuracy": "accuracy", "stability": "stability", "leaves": "leaves"}
# The name of this phase in logs could be mistaken for a random seed.
PHASE_MARKS = "osD^vP*X"
# With more lines than this, those of a log have one colour.
MOST_COLOURS = 8


@style()
def draw_convergence(runs: Sequence[LoggedRun], x_axis: str = "seconds", title: str | None = None) -> Figure:
    """Phi, accuracy, stability and leaves of the best tree so far, over time or over steps.

    The phases of a single run are bands; of several, each has a mark where it starts.
    """
    figure = new_figure(9, 6)
    axes = dict(zip(SHOWN, figure.subplots(2, 2, sharex=True).ravel(), strict=True))
    phases = list(dict.fromkeys(phase for run in runs for phase in run.phases))
    sources = list(dict.fromkeys(run.source for run in runs))
    for number, run in enumerate(runs):
        colour = colour_of(number if len(runs) <= MOST_COLOURS else sources.index(run.source))
        for name, each in axes.items():
            _draw_run(each, run, name, x_axis, colour, phases if len(runs) > 1 else [])
    for name, each in axes.items():
        each.set_ylabel(SHOWN[name])
        each.grid(alpha=0.3)
        each.set_xlim(left=0)
        if len(runs) == 1:
            _draw_bands(each, runs[0], x_axis)
        if name != "leaves":
            limit_to_one(each)
    for name in ("stability", "leaves"):
        axes[name].set_xlabel("seconds" if x_axis == "seconds" else "step")
    axes["leaves"].set_ylim(bottom=0)
    axes["leaves"].yaxis.get_major_locator().set_params(integer=True)
    heading = f"{len(runs)} runs"
    if len(runs) == 1:
        heading = f"{say(runs[0].source, 200)}, seed {runs[0].seed}: {', '.join(map(say, phases))}"
    put_heading(figure, heading if title is None else say(title, 200))
    _draw_legend(figure, runs, sources, phases)
    return figure


def _places(run: LoggedRun, x_axis: str) -> list[float]:
    return run.metrics["seconds"] if x_axis == "seconds" else [float(step) for step in range(1, run.n_steps + 1)]


def _draw_run(axes: Axes, run: LoggedRun, name: str, x_axis: str, colour: str, phases: Sequence[str]) -> None:
    places, values = _places(run, x_axis), run.metrics[name]
    mark = "." if run.n_steps == 1 else None
    axes.plot(places, values, color=colour, linewidth=1.5, drawstyle="steps-post", marker=mark)
    for phase, start, _ in _stretches(run):
        if phase in phases:
            axes.plot(
                places[start], values[start], marker=_mark(phases, phase), color=colour, markersize=5,
                markeredgecolor=INK, markeredgewidth=0.5, linestyle="none", label=f"start of {say(phase)}",
            )  # fmt: skip


def _mark(phases: Sequence[str], phase: str) -> str:
    return PHASE_MARKS[phases.index(phase) % len(PHASE_MARKS)]


def _stretches(run: LoggedRun) -> list[tuple[str, int, int]]:
    """Phases in order, with their first and last steps."""
    found = []
    for phase, steps in groupby(range(run.n_steps), key=lambda step: run.phases[step]):
        positions = list(steps)
        found.append((phase, positions[0], positions[-1]))
    return found


def _draw_bands(axes: Axes, run: LoggedRun, x_axis: str) -> None:
    """A grey band for every other phase; its name stands above it, if there is room."""
    places = _places(run, x_axis)
    start, whole = 0.0, places[-1]
    for number, (phase, _, last) in enumerate(_stretches(run)):
        end, name = places[last], say(phase)
        axes.axvspan(start, end, color="black", alpha=0.07 if number % 2 else 0.0, linewidth=0, label=f"phase {name}")
        if end - start > 0.02 * len(name) * whole:
            axes.annotate(
                name, ((start + end) / 2, 1.01), xycoords=axes.get_xaxis_transform(), ha="center", va="bottom",
                fontsize="small", color=FAINT,
            )  # fmt: skip
        start = end


def _name_runs(runs: Sequence[LoggedRun]) -> list[str]:
    return [
        f"{name}, seed {run.seed}" for name, run in zip(tell_apart([run.source for run in runs]), runs, strict=True)
    ]


def _draw_legend(figure: Figure, runs: Sequence[LoggedRun], sources: Sequence[str], phases: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    if len(runs) == 1:
        return
    if len(runs) <= MOST_COLOURS:
        names = _name_runs(runs)
    else:
        counts = [sum(run.source == source for run in runs) for source in sources[:MOST_COLOURS]]
        shown = tell_apart(sources)[:MOST_COLOURS]
        names = [f"{name}, {count} seed{'s'[: count > 1]}" for name, count in zip(shown, counts, strict=True)]
    handles = [Line2D([], [], color=colour_of(number), label=name) for number, name in enumerate(names)]
    handles += [
        Line2D([], [], linestyle="none", marker=_mark(phases, phase), color=FAINT, label=f"start of {say(phase)}")
        for phase in phases
    ]
    put_legend_below(figure, handles)
