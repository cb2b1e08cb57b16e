"""HTML in which every text is escaped unless it was made here."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable

# Elements without content and end.
_VOID = frozenset({"br", "input", "meta"})
# Characters that HTML has no place for, and halves of characters from names that are not valid UTF-8.
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
