"""Curves of stability and robust accuracy over epsilon, and accuracy against stability of Pareto-optimal trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metasilvae.output.axes import Axis, choose_axis, round_number
from metasilvae.output.plots.canvas import (
    FAINT,
    INK,
    colour_of,
    new_figure,
    put_heading,
    put_legend_below,
    say,
    style,
    tell_apart,
)
from metasilvae.output.text.evaluations import CurveReport
from metasilvae.output.text.trainings import ArchiveReport
from metasilvae.verification.curve import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES: dict[str, Literal["-", "--"]] = {"stability": "-", "robust accuracy": "--"}


@style()
def draw_curves(reports: Sequence[CurveReport], title: str | None = None) -> Figure:
    """The curves of all models in one picture."""
    figure = new_figure(7, 4.8)
    axes = figure.subplots()
    names = _name_curves(reports)
    axis = choose_axis([report.curve for report in reports], None if reports[0].attack is None else 1.0)
    for number, report in enumerate(reports):
        for name, line in LINES.items():
            plot_curve(
                axes, report.curve, name, axis, color=colour_of(number), linestyle=line, linewidth=1.5,
                label=f"{names[number]}: {name}",
            )  # fmt: skip
    label_axes(axes, axis, reports[0].axis if reports[0].attack is None else "multiple of the attack's radii")
    if reports[0].attack is not None and axis.place(1.0) <= 1:
        axes.axvline(1.0, color=FAINT, linestyle=":", linewidth=1, zorder=0)
    put_heading(figure, _describe_subject(reports) if title is None else say(title, 200))
    _draw_legend(figure, names)
    return figure


def plot_curve(axes: Axes, curve: Curve, metric: str, axis: Axis, **look: Any) -> Any:
    """One of the `LINES` of a curve, as stairs."""
    epsilon, *counts = curve.steps
    of_rows = counts[list(LINES).index(metric)]
    finite = epsilon[np.isfinite(epsilon)]
    # Beyond the last finite radius only rows with an infinite one are left.
    fractions = np.append(of_rows, 0)[: len(finite) + 1] / curve.n_samples
    # A logarithmic axis has no 0; what is before its start is drawn just outside of it.
    left = axis.start / 2 if axis.is_log else 0.0
    edges = np.maximum([left, *finite, max(axis.end, *finite[-1:], left)], left)
    return axes.stairs(fractions, edges, baseline=None, **look)


def label_axes(axes: Axes, axis: Axis, name: str) -> None:
    """Scale, limits and names of the axes of curves."""
    if axis.is_log:
        axes.set_xscale("log")
        axes.set_xticks(axis.ticks, [round_number(tick) for tick in axis.ticks])
        axes.minorticks_off()
    axes.set(xlabel=name, ylabel="fraction of rows", xlim=(axis.start, axis.end), ylim=(0, 1.02))
    axes.grid(alpha=0.3)


def _describe_subject(reports: Sequence[CurveReport]) -> str:
    """The data, and the attack if there is one for all curves."""
    attacks = {report.subject.get("perturbation", "") for report in reports}
    shared = f", {next(iter(attacks))}" if len(attacks) == 1 and attacks != {""} else ""
    return say(f"{reports[0].dataset.source}{shared}", 200)


def _name_curves(reports: Sequence[CurveReport]) -> list[str]:
    """Distinct names of models and, if there are several, attacks; lower bounds are marked."""
    subjects = [dict(report.subject) for report in reports]
    if len({subject.get("perturbation") for subject in subjects}) == 1:
        for subject in subjects:
            subject.pop("perturbation", None)
    parts = [tell_apart(column) for column in zip(*(subject.values() for subject in subjects), strict=True)]
    bounds = ["" if report.curve.is_exact else " (at least)" for report in reports]
    return [": ".join(words) + bound for *words, bound in zip(*parts, bounds, strict=True)]


def _draw_legend(figure: Figure, names: Sequence[str]) -> None:
    """An entry for the colour of each model, and one for each kind of line."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=INK, linestyle=line, label=name) for name, line in LINES.items()]
    handles += [Line2D([], [], color=colour_of(number), linewidth=3, label=name) for number, name in enumerate(names)]
    put_legend_below(figure, handles)


# Area of a marker in points, for the smallest and the largest tree of a picture.
MARKER_AREAS = (25.0, 400.0)


@style()
def draw_archive(report: ArchiveReport, title: str | None = None) -> Figure:
    """The larger the marker, the larger the tree. A ring marks the one that was picked."""
    archive = report.archive
    stability = [float(each.stability) for each in archive.metrics]
    accuracy = [float(each.accuracy) for each in archive.metrics]
    leaves = [each.leaves for each in archive.metrics]
    most = max(leaves, default=1)
    figure = new_figure(7, 4.8)
    axes = figure.subplots()
    areas = [_area(number, most) for number in leaves]
    axes.scatter(stability, accuracy, s=areas, alpha=0.6, color=colour_of(0), clip_on=False)
    handles = [_entry(_area(number, most), _count(number), color=colour_of(0), alpha=0.6) for number in _steps(leaves)]
    if report.picked is not None:
        place = report.picked
        ring = {"markerfacecolor": "none", "markeredgecolor": colour_of(5)}
        axes.scatter(
            stability[place], accuracy[place], s=2 * areas[place], facecolors="none", edgecolors=colour_of(5),
            clip_on=False,
        )  # fmt: skip
        handles.append(_entry(100.0, f"{say(archive.files[place])}, {_count(leaves[place])}", **ring))
    axes.set(xlabel="stability", ylabel="accuracy")
    axes.margins(0.08)
    axes.grid(alpha=0.3)
    put_heading(
        figure, f"{say(archive.data, 200)}, {say(archive.perturbation, 200)}" if title is None else say(title, 200)
    )
    if handles:
        put_legend_below(figure, handles, handletextpad=1.0)
    return figure


def _area(n_leaves: int, most: int) -> float:
    small, large = MARKER_AREAS
    return small + (large - small) * n_leaves / most


def _steps(leaves: Sequence[int]) -> list[int]:
    """Sizes for the legend: the smallest, the largest, and one between them."""
    sizes = sorted(set(leaves))
    middle = min(sizes, key=lambda size: abs(2 * size - sizes[0] - sizes[-1]), default=0)
    return sorted({*sizes[:1], middle, *sizes[-1:]}) if sizes else []


def _count(n_leaves: int) -> str:
    return f"{n_leaves} lea{'f' if n_leaves == 1 else 'ves'}"


def _entry(area: float, label: str, **look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none", marker="o", markersize=area**0.5, label=label, **look)
