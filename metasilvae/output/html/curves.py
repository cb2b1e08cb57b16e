"""The section with stability and robust accuracy over epsilon: a plot, values at any epsilon, and a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.output.axes import Axis, choose_axis
from metasilvae.output.html.content import PageContent
from metasilvae.output.html.markup import (
    Column,
    Markup,
    cut_name,
    element,
    embed_json,
    join,
    make_note,
    make_table,
    show_decimal,
    show_fraction,
    show_name,
    show_number,
)
from metasilvae.perturbations.boxes import Ball
from metasilvae.perturbations.norms import NormBall
from metasilvae.verification.curve import QUANTILES, Curve, choose_quantile

# Steps of one curve in the page; of more, every k-th step is kept, and those that other parts of the page mention.
MOST_STEPS = 4000
# Width and height of the drawing in its own units.
SIZE = 1000


def is_thinned(curve: Curve) -> bool:
    """Whether a curve has more steps than a page shows."""
    return len(curve.steps[0]) > MOST_STEPS


def thin_out(curve: Curve, marked: float) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Steps of a curve, fewer if there are too many; then each count is a lower bound since the step before.

    The steps at the marked epsilon and at the quantiles are kept: other parts of the page mention them.
    """
    epsilon, stable, robust = curve.steps
    if not is_thinned(curve):
        return epsilon, stable, robust
    named = [marked, *(choose_quantile(curve.radii.lower, percent) for percent in QUANTILES.values())]
    places = np.searchsorted(epsilon, named)
    kept = np.linspace(0, len(epsilon) - 1, MOST_STEPS).round().astype(np.intp)
    kept = np.union1d(kept, places[places < len(epsilon)])
    return epsilon[kept], stable[kept], robust[kept]


def describe_curves(curves: Sequence[tuple[int, str, Curve]], axis: Axis, marked: float) -> dict[str, Any]:
    """Data for the script; the last epsilon is null if rows are stable for every epsilon."""
    sets = []
    for _, name, curve in curves:
        epsilon, stable, robust = thin_out(curve, marked)
        sets.append(
            {
                "name": cut_name(name),
                "rows": curve.n_samples,
                "epsilon": [value if math.isfinite(value) else None for value in epsilon.tolist()],
                "stable": stable.tolist(),
                "robust": robust.tolist(),
            }
        )
    return {"start": axis.start, "end": axis.end, "log": axis.is_log, "sets": sets}


def draw_curves(curves: Sequence[tuple[int, str, Curve]], axis: Axis, marked: float, unit: str) -> Markup:
    """The curves of all data sets; the number of a data set selects its colour, dashes are robust accuracy.

    Parameters
    ----------
    curves : sequence of (number, name, curve)
    marked : float
        The verified epsilon.
    unit : str
        What the horizontal axis shows.
    """
    ticks = axis.ticks
    grid = [
        *(_line(0, SIZE, _down(fraction), _down(fraction), "grid") for fraction in (0, 0.25, 0.5, 0.75, 1)),
        *(_line(_across(tick, axis), _across(tick, axis), 0, SIZE, "grid") for tick in ticks),
    ]
    paths = []
    for number, _, curve in curves:
        epsilon, stable, robust = thin_out(curve, marked)
        for counts, style in ((stable, "stable"), (robust, "robust")):
            path = _stairs(epsilon, counts / curve.n_samples, axis)
            paths.append(element("path", d=path, class_=f"{style} s{number % 6}"))
    mark = _line(_across(marked, axis), _across(marked, axis), 0, SIZE, "mark") if marked <= axis.end else None
    plot = element(
        "svg", grid, mark, paths, _line(0, 0, 0, SIZE, "cursor"),
        viewBox=f"0 0 {SIZE} {SIZE}", preserveAspectRatio="none", class_="plot", aria_hidden="true",
    )  # fmt: skip
    left = [
        element("text", f"{percent} %", x="100%", y=f"{100 - percent}%", text_anchor="end", dy=_shift(percent))
        for percent in (0, 25, 50, 75, 100)
    ]
    below = [
        element("text", f"{tick:g}", x=f"{100 * axis.place(tick):.3f}%", y="1.1em", text_anchor=_anchor(tick, axis))
        for tick in ticks
    ]
    names = ", ".join(name for _, name, _ in curves)
    return element(
        "div",
        element("svg", left, class_="y-axis", aria_hidden="true"),
        plot,
        element("svg", below, class_="x-axis", aria_hidden="true"),
        element("p", unit, ", logarithmic" if axis.is_log else None, class_="axis-name", aria_hidden="true"),
        class_="chart", role="img", id="chart",
        aria_label=f"Stability and robust accuracy over {unit}, for {names}. The table below has the numbers.",
    )  # fmt: skip


def _across(value: float, axis: Axis) -> float:
    return SIZE * axis.place(value)


def _down(fraction: float) -> float:
    return SIZE * (1 - fraction)


def _line(x1: float, x2: float, y1: float, y2: float, style: str) -> Markup:
    return element("line", x1=f"{x1:.6g}", x2=f"{x2:.6g}", y1=f"{y1:.6g}", y2=f"{y2:.6g}", class_=style)


def _shift(percent: int) -> str:
    return {0: "0", 100: "0.8em"}.get(percent, "0.35em")


def _anchor(tick: float, axis: Axis) -> str:
    place = axis.place(tick)
    return "start" if place < 0.02 else "end" if place > 0.95 else "middle"


def _stairs(epsilon: NDArray[np.float64], fractions: NDArray[np.float64], axis: Axis) -> str:
    """Each fraction holds up to and including its epsilon; behind the last finite one it may be 0."""
    pieces: list[str] = []
    for value, fraction in zip(epsilon.tolist(), fractions.tolist(), strict=True):
        y = f"{_down(fraction):.6g}"
        pieces.append(f"{'V' if pieces else 'M0 '}{y}")
        pieces.append(f"H{_across(min(value, axis.end), axis):.6g}")
        if value >= axis.end:
            return "".join(pieces)
    return "".join([*pieces, f"V{SIZE}H{SIZE}"])


def tabulate_curve(number: int, name: str, curve: Curve, unit: str) -> Markup:
    """Quantiles of the certified radii, with stability and robust accuracy there."""
    rows, radii = [], curve.radii.lower
    for quantile, percent in QUANTILES.items():
        value = choose_quantile(radii, percent)
        stable = int((radii >= value).sum())
        robust = int(((radii >= value) & curve.radii.is_correct).sum())
        total = curve.n_samples
        shown = show_number(value) if math.isfinite(value) else "any"
        rows.append([quantile, shown, show_fraction(stable, total), show_fraction(robust, total)])
    columns = [
        Column("rows up to"),
        Column(unit, is_number=True),
        Column("stability", is_number=True),
        Column("robust accuracy", is_number=True),
    ]
    return make_table(f"quantiles-{number}", name, columns, rows)


def show_curve(content: PageContent) -> Markup:
    """The curves of all data sets, their values at a chosen epsilon, and their quantiles."""
    drawn = [(number, each, each.curve) for number, each in enumerate(content.assessments) if each.curve is not None]
    absent = [
        make_note(show_name(each.query.dataset.source), f": no curve. {each.no_curve}")
        for each in content.assessments
        if each.curve is None
    ]
    if not drawn:
        return join(absent)
    perturbation = drawn[0][1].perturbation
    if isinstance(perturbation, Ball | NormBall):
        unit, marked = "epsilon", float(perturbation.epsilon)
    else:
        unit, marked = "multiple of the attack's radii", 1.0
    axis = choose_axis([curve for _, _, curve in drawn], marked)
    named = [(number, content.short_names[number], curve) for number, _, curve in drawn]
    legend = [
        element("li", _draw_key(f"{style} s{number % 6}"), show_name(name), f" {word}")
        for number, name, _ in named
        for style, word in (("stable", "stability"), ("robust", "robust accuracy"))
    ]
    if marked <= axis.end:
        legend.append(element("li", _draw_key("mark"), "verified epsilon" if unit == "epsilon" else "verified attack"))
    else:
        legend.append(element("li", f"The verified epsilon, {show_decimal(marked)}, is far beyond this axis."))
    value = element("input", type="number", id="epsilon", min=0, step="any", value=show_decimal(marked))
    reader = element(
        "div",
        element("label", f"{unit} ", value),
        element("input", type="range", id="epsilon-range", min=0, max=1000, step=1, value=0, aria_label=unit),
        element("div", id="readout", aria_live="polite", class_="readout"),
        class_="reader",
        hidden=True,
    )
    return join(
        draw_curves(named, axis, marked, unit),
        element("ul", legend, class_="legend"),
        reader,
        [_describe_bounds(each.query.dataset.source, curve, marked) for _, each, curve in drawn],
        absent,
        element(
            "details",
            element("summary", "The curve as a table"),
            [tabulate_curve(number, name, curve, unit) for number, name, curve in named],
        ),
        embed_json("curve-data", describe_curves(named, axis, marked)),
    )


def _draw_key(style: str) -> Markup:
    line = element("line", x1=0, x2="100%", y1="50%", y2="50%", class_=style)
    return element("svg", line, class_="key", aria_hidden="true")


def _describe_bounds(name: str, curve: Curve, marked: float) -> Markup | None:
    """What is not exact in the drawing, if anything is not."""
    n_open = int((~curve.radii.is_exact).sum())
    parts = []
    if n_open:
        counts = Counter(curve.radii.reasons.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        parts.append(f"{n_open} radii are lower bounds ({reasons}), and so is the curve.")
    if is_thinned(curve):
        n_shown = len(thin_out(curve, marked)[0])
        parts.append(f"Of {len(curve.steps[0])} steps {n_shown} are shown; between them the curve is a lower bound.")
    return make_note(show_name(name), ": ", " ".join(parts)) if parts else None
