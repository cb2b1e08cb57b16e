"""The order in which labels are shown; models and data have them in the order of their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from metasilvae._core.parsing.number_text import parse_number

_DIGITS = re.compile(r"([0-9]+)")


def order_labels(labels: Iterable[str]) -> list[str]:
    """Numbers by their values if all labels are numbers; else by letters, but by values where digits stand."""
    found = list(labels)
    values = {label: parse_number(label.encode(errors="replace")) for label in found}
    numbers = {label: value for label, value in values.items() if value is not None and not math.isnan(value)}
    if len(numbers) == len(values):
        return sorted(found, key=lambda label: (numbers[label], label))
    return sorted(found, key=_natural)


def _natural(label: str) -> tuple[list[tuple[str, int, str]], str]:
    pieces = _DIGITS.split(label)
    words, digits = pieces[::2], [*pieces[1::2], ""]
    key = [
        (word.casefold(), len(number.lstrip("0")), number.lstrip("0"))
        for word, number in zip(words, digits, strict=True)
    ]
    return key, label
