"""Colours of classes and lines that people with any kind of colour vision can tell apart, as far as there are enough.

Most of the first ten are those of Okabe and Ito, *Color Universal Design* (https://jfly.uni-koeln.de/color/). Where
there are more classes, colours are not enough: leaves carry their labels, and marks and lines differ in shape.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable

COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999", "#333333", "#882255",
)  # fmt: skip
_GOLDEN = 0.6180339887498949
_LIGHTNESSES = (0.3, 0.62, 0.45, 0.78)
INK = "#222222"
FAINT = "#8A8A8A"


def colour_of(position: int) -> str:
    """The colour of the first, second, ... class or line."""
    if position < len(COLOURS):
        return COLOURS[position]
    rgb = colorsys.hls_to_rgb(position * _GOLDEN % 1, _LIGHTNESSES[position % len(_LIGHTNESSES)], 0.55)
    return "#" + "".join(f"{round(255 * part):02X}" for part in rgb)


def colour_names(names: Iterable[str]) -> dict[str, str]:
    """A colour for each distinct name, in order of appearance."""
    return {name: colour_of(position) for position, name in enumerate(dict.fromkeys(names))}


def blend(colours: Iterable[str], share_of_white: float = 0.0) -> str:
    """The mean of some colours, mixed with white."""
    parts = [[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in colours]
    means = (sum(channel) / len(parts) for channel in zip(*parts, strict=True))
    return "#" + "".join(f"{round(255 * share_of_white + mean * (1 - share_of_white)):02X}" for mean in means)
