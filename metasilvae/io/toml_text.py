"""Keys and texts of TOML files that are written."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SPECIAL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def write_key(name: str) -> str:
    """A name as a key, with quotes if it needs them."""
    return name if _BARE_KEY.fullmatch(name) else write_text(name)


def write_text(text: str) -> str:
    """A basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'


def write_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(write_text, texts))}]"
