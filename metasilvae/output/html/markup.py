"""HTML in which every text is escaped, and what sections are made of: tables that scroll, notes, names, numbers."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from metasilvae.formats.text import shortest_decimals
from metasilvae.output.axes import round_number

# Elements without content and end.
_VOID = frozenset({"br", "input", "meta"})
# Characters that are not allowed in HTML, and surrogates from names that are not valid UTF-8.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_REPLACEMENT = "\ufffd"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | Iterable["Child"] | None
Attribute = str | int | float | bool | None


def escape(text: str) -> str:
    """A text as it is written into HTML, also between quotation marks."""
    return html.escape(_UNFIT.sub(_REPLACEMENT, text), quote=True)


def join(*children: Child) -> Markup:
    """Children one after another; texts are escaped, None is nothing."""
    pieces: list[str] = []
    for child in children:
        if isinstance(child, Markup):
            pieces.append(child)
        elif isinstance(child, str | int):
            pieces.append(escape(str(child)))
        elif child is not None:
            pieces.append(join(*child))
    return Markup("".join(pieces))


def element(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element; ``class_`` is the attribute class, ``aria_label`` is aria-label, None leaves an attribute out."""
    written = "".join(_write_attribute(name, value) for name, value in attributes.items())
    start = f"<{tag}{written}>"
    return Markup(start) if tag in _VOID else Markup(f"{start}{join(*children)}</{tag}>")


def _write_attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def embed_json(name: str, value: object) -> Markup:
    """Data for the script: no text in it can end the element or be taken for HTML."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", Markup(text), type="application/json", id=name)


LONGEST_NAME = 160


@dataclass(frozen=True)
class Column:
    """Heading of a column, and whether it holds numbers."""

    title: Child
    is_number: bool = False


def make_table(name: str, caption: Child, columns: Sequence[Column], rows: Sequence[Sequence[Child]]) -> Markup:
    """A table whose first column names its rows; `name` is unique in the page."""
    head = [element("th", column.title, scope="col", class_=_style(column)) for column in columns]
    body = [
        element(
            "tr",
            element("th", cells[0], scope="row", class_=_style(columns[0])),
            [element("td", cell, class_=_style(column)) for cell, column in zip(cells[1:], columns[1:], strict=True)],
        )
        for cells in rows
    ]
    return wrap_table(name, caption, element("thead", element("tr", head)), element("tbody", body))


def make_stacking_table(
    name: str, caption: Child, columns: Sequence[Column], rows: Sequence[Sequence[Child]]
) -> Markup:
    """The same for long rows: in a narrow window each is a card, with a line for each cell and its heading.

    Roles are explicit because the styles of cards would remove them.
    """

    def make_cell(place: int, cell: Child) -> Markup:
        column = columns[place]
        return element(
            "td" if place else "th",
            element("div", cell),
            scope=None if place else "row",
            class_=_style(column),
            role="cell" if place else "rowheader",
            data_title=column.title if isinstance(column.title, str) else None,
        )

    head = [element("th", column.title, scope="col", class_=_style(column), role="columnheader") for column in columns]
    body = [element("tr", [make_cell(place, cell) for place, cell in enumerate(cells)], role="row") for cells in rows]
    return wrap_table(
        name,
        caption,
        element("thead", element("tr", head, role="row"), role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        style="stacking",
        role="table",
    )


def wrap_table(name: str, caption: Child, *parts: Markup, style: str | None = None, role: str | None = None) -> Markup:
    """A table in a frame, in which it scrolls if it is too wide for the window."""
    title = element("caption", element("span", caption), id=name)
    table = element("table", title, parts, class_=style, role=role)
    return element("div", table, class_="scroll", role="region", aria_labelledby=name, tabindex=0)


def _style(column: Column) -> str | None:
    return "number" if column.is_number else None


def put_side_by_side(parts: Sequence[Markup]) -> Markup:
    """Parts beside each other where the window is wide enough."""
    return element("div", [element("div", part) for part in parts], class_="side-by-side")


def make_note(*children: Child) -> Markup:
    """A small print paragraph."""
    return element("p", children, class_="note")


def show_fraction(count: int, total: int) -> Markup:
    """A fraction in per cent; the markup has the exact value."""
    return element("data", f"{100 * count / total:.2f} %", value=repr(count / total))


def show_part(count: int, total: int) -> Markup:
    """A number of rows, and its fraction of all rows."""
    return join(count, " ", element("span", show_fraction(count, total), class_="part"))


def show_number(value: float) -> Markup:
    """A number with few digits; the markup has the exact value."""
    return element("data", f"{value:.4g}", value=repr(value))


def show_rounded(value: float, *others: float) -> Markup | str:
    """A number with at least 6 digits, and so many that it differs from others; the markup has the exact value."""
    if np.isnan(value):
        return "missing"
    return element(
        "data", round_number(value, *(other for other in others if other == other)), value=repr(float(value))
    )


def show_decimal(value: float) -> str:
    """The shortest decimal that reads back as the same number; ``missing`` for NaN."""
    return "missing" if np.isnan(value) else next(shortest_decimals(np.array([value])))


def cut_name(text: str) -> str:
    """A name without its middle part if it is very long, so that names cannot make the page large."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME // 2]} ... {text[-LONGEST_NAME // 2 :]}"


def show_name(text: str) -> Markup:
    """A name from a file, isolated from the text around it."""
    return element("bdi", cut_name(text), class_="name")


def list_names(texts: Sequence[str], most: int = 8) -> Markup:
    """Some names, and the number of further ones."""
    shown = [join(", " if place else "", show_name(text)) for place, text in enumerate(texts[:most])]
    return join(shown, f" and {len(texts) - most} more" if len(texts) > most else None)
