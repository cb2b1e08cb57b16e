"""Files of weights: one number for each feature, separated by commas or white space."""

from __future__ import annotations

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.errors import PerturbationError, at_line, shorten
from metasilvae.storage import display_name, read_source


def read_weights(source: str) -> tuple[float, ...]:
    """Read the weights of all features, in order."""
    name = display_name(source)
    weights = []
    for line, text in enumerate(read_source(source).splitlines(), start=1):
        for word in text.replace(b",", b" ").split():
            number = parse_number(word)
            if number is None:
                found = shorten(word.decode(errors="replace"))
                raise PerturbationError(
                    at_line(
                        name, line, f"{found} is not a number; expected one weight for each feature, such as 1,0.5,0"
                    )
                )
            weights.append(number)
    return tuple(weights)
