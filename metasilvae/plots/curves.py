"""Stability and robustness over epsilon, or over the factor of an attack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from metasilvae.plots.canvas import new_figure, say, style
from metasilvae.plots.palette import colour_of
from metasilvae.report.curves import CurveReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style()
def draw_curves(reports: Sequence[CurveReport], title: str | None = None) -> Figure:
    """The curves of all models in one picture."""
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for number, report in enumerate(reports):
        epsilon, stable, robust = report.curve.steps
        finite = epsilon[np.isfinite(epsilon)]
        edges = [0.0, *finite, 1.05 * finite[-1] if len(finite) and finite[-1] > 0 else 1.0]
        bound = "" if report.curve.is_exact else " (at least)"
        for counts, line, name in ((stable, "-", "stability"), (robust, "--", "robustness")):
            # Beyond the last finite radius only rows with an infinite one are left.
            shares = np.append(counts, 0)[: len(finite) + 1] / report.curve.n_samples
            axes.stairs(
                shares, edges, baseline=None, color=colour_of(number), linestyle=line, linewidth=1.5,
                label=": ".join([*map(say, report.subject.values()), name + bound]),
            )  # fmt: skip
    axes.set(xlabel=reports[0].axis, ylabel="share of rows", ylim=(0, 1.02))
    axes.set_title(say(title, 200) if title is not None else say(reports[0].dataset.source))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
