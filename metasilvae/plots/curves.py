"""Stability and robustness over epsilon, or over the factor of an attack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from metasilvae.plots.canvas import new_figure, put_heading, put_legend_below, say, style, tell_apart
from metasilvae.plots.palette import INK, colour_of
from metasilvae.report.curves import CurveReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES: dict[str, Literal["-", "--"]] = {"stability": "-", "robustness": "--"}


@style()
def draw_curves(reports: Sequence[CurveReport], title: str | None = None) -> Figure:
    """The curves of all models in one picture."""
    figure = new_figure(7, 4.8)
    axes = figure.subplots()
    right = _right_edge(reports)
    names = _name_curves(reports)
    for number, report in enumerate(reports):
        epsilon, *counts = report.curve.steps
        finite = epsilon[np.isfinite(epsilon)]
        for of_rows, (name, line) in zip(counts, LINES.items(), strict=True):
            # Beyond the last finite radius only rows with an infinite one are left.
            shares = np.append(of_rows, 0)[: len(finite) + 1] / report.curve.n_samples
            axes.stairs(
                shares, [0.0, *finite, right], baseline=None, color=colour_of(number), linestyle=line, linewidth=1.5,
                label=f"{names[number]}: {name}",
            )  # fmt: skip
    axes.set(xlabel=reports[0].axis, ylabel="share of rows", xlim=(0, right), ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    put_heading(figure, say(reports[0].dataset.source, 200) if title is None else say(title, 200))
    _draw_legend(figure, names)
    return figure


def _right_edge(reports: Sequence[CurveReport]) -> float:
    """Where all curves end: a little beyond the last step of any of them."""
    radii = np.concatenate([report.curve.steps[0] for report in reports])
    last = radii[np.isfinite(radii)].max(initial=0.0)
    return 1.05 * float(last) if last > 0 else 1.0


def _name_curves(reports: Sequence[CurveReport]) -> list[str]:
    """Models, and attacks where there are any, told apart from each other; bounds are called bounds."""
    parts = [tell_apart(column) for column in zip(*(report.subject.values() for report in reports), strict=True)]
    bounds = ["" if report.curve.is_exact else " (at least)" for report in reports]
    return [": ".join(words) + bound for *words, bound in zip(*parts, bounds, strict=True)]


def _draw_legend(figure: Figure, names: Sequence[str]) -> None:
    """An entry for the colour of each model, and one for each kind of line."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=INK, linestyle=line, label=name) for name, line in LINES.items()]
    handles += [Line2D([], [], color=colour_of(number), linewidth=3, label=name) for number, name in enumerate(names)]
    put_legend_below(figure, handles)
