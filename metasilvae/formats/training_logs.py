"""Reading what `train --log` wrote: a line of JSON for each step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from metasilvae.errors import DataError, at_line, shorten
from metasilvae.storage import display_name, open_source

FIGURES = ("seconds", "fitness", "accuracy", "stability", "leaves")


@dataclass(frozen=True)
class LoggedRun:
    """The steps of one seed.

    Attributes
    ----------
    phases : list of str
        Name of the phase that each step belongs to.
    figures : dict
        For each of `FIGURES` one number for each step.
    """

    source: str
    seed: int
    phases: list[str] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FIGURES})

    @property
    def n_steps(self) -> int:
        return len(self.phases)


def read_log(source: str) -> list[LoggedRun]:
    """The runs of a log, in order of their first steps; a last line that is not complete is left out."""
    name = display_name(source)
    runs: dict[int, LoggedRun] = {}
    with open_source(source) as stream:
        for number, document in _read_lines(stream, name):
            seed, phase = document.get("seed"), document.get("phase")
            if not isinstance(seed, int) or not isinstance(phase, str):
                raise DataError(at_line(name, number, "has no seed and phase; give a file that `train --log` wrote"))
            run = runs.setdefault(seed, LoggedRun(name, seed))
            for figure, values in run.figures.items():
                value = document.get(figure)
                if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    found = "missing" if value is None else f"{shorten(str(value))}"
                    raise DataError(at_line(name, number, f"{figure} is {found}, a finite number was expected"))
                values.append(float(value))
            run.phases.append(phase)
    if not runs:
        raise DataError(f"{name}: holds no step of a training; `metasilvae train --log {name}` writes them")
    return list(runs.values())


def _read_lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            if not line.endswith(b"\n"):
                return  # a training that goes on, or was killed, leaves half a line
            document = None
        if not isinstance(document, dict):
            raise DataError(
                at_line(name, number, f"{shorten(line.decode(errors='replace').strip())} is no step of a training; "
                        "give a file that `train --log` wrote")
            )  # fmt: skip
        yield number, document
