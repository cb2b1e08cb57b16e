"""What can be read off a picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from matplotlib.figure import Figure
from matplotlib.text import Text

SVG = "{http://www.w3.org/2000/svg}"


def texts_of_svg(path: str | Path) -> list[str]:
    """All texts of an SVG file, in order."""
    return ["".join(each.itertext()).strip() for each in ElementTree.parse(path).iter(f"{SVG}text")]


def texts_of_figure(figure: Figure) -> list[str]:
    return [each.get_text() for each in figure.findobj(Text) if each.get_text()]
