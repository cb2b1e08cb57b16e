"""The section about stability and robustness over epsilon."""

from __future__ import annotations

from collections import Counter

from metasilvae.curve import Curve
from metasilvae.page.content import PageContent
from metasilvae.page.curve_chart import (
    choose_end,
    describe_curves,
    draw_curves,
    is_thinned,
    tabulate_curve,
    thin_out,
)
from metasilvae.page.markup import Markup, element, embed_json, join
from metasilvae.page.pieces import make_note, show_decimal, show_name
from metasilvae.perturbation import Ball


def show_curve(content: PageContent) -> Markup:
    """The curves of all data sets, a place to read them at, and their quantiles."""
    drawn = [(number, each, each.curve) for number, each in enumerate(content.assessments) if each.curve is not None]
    absent = [
        make_note(show_name(each.question.dataset.source), f": no curve. {each.no_curve}")
        for each in content.assessments
        if each.curve is None
    ]
    if not drawn:
        return join(absent)
    perturbation = drawn[0][1].perturbation
    if isinstance(perturbation, Ball):
        unit, marked = "epsilon", float(perturbation.epsilon)
    else:
        unit, marked = "multiple of the attack's radii", 1.0
    end = choose_end([curve for _, _, curve in drawn], marked)
    named = [(number, content.short_names[number], curve) for number, _, curve in drawn]
    legend = [
        element("li", _draw_key(f"{style} s{number % 6}"), show_name(name), f" {word}")
        for number, name, _ in named
        for style, word in (("stable", "stability"), ("robust", "robustness"))
    ]
    if marked <= end:
        legend.append(element("li", _draw_key("mark"), "what the verdicts hold for"))
    else:
        legend.append(element("li", f"The verdicts hold for {show_decimal(marked)}, far beyond the end of this axis."))
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
        draw_curves(named, end, marked, unit),
        element("ul", legend, class_="legend"),
        reader,
        [_describe_bounds(each.question.dataset.source, curve, marked) for _, each, curve in drawn],
        absent,
        element(
            "details",
            element("summary", "The curve as a table"),
            [tabulate_curve(number, name, curve, unit) for number, name, curve in named],
        ),
        embed_json("curve-data", describe_curves(named, end, marked)),
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
