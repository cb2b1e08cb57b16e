"""Perturbation files: for each sample and feature ``[lower;upper]``, separated by white space."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import PerturbationError, at_line, shorten
from metasilvae.storage import display_name, read_source

_INTERVAL = re.compile(rb"\[\s*([^\[\];\s]+)\s*;\s*([^\[\];\s]+)\s*\]")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity)", re.IGNORECASE)
_EXPECTED = "an interval such as [0.1;0.3] was expected"


def read_boxes(source: str, n_samples: int, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read one box for each sample; bounds may be infinite.

    Returns
    -------
    lower, upper : float64 arrays, shape (n_samples, n_features)
    """
    name = display_name(source)
    text = read_source(source)
    wanted = n_samples * n_features
    bounds = np.empty((wanted, 2))
    n_found = 0
    position = 0
    for match in _INTERVAL.finditer(text):
        if text[position : match.start()].strip():
            raise _complaint(name, text, position)
        if n_found < wanted:
            bounds[n_found] = [_parse_bound(name, n_found, word) for word in match.groups()]
        n_found += 1
        position = match.end()
    if text[position:].strip():
        raise _complaint(name, text, position)
    if n_found != wanted:
        raise PerturbationError(
            f"{name}: holds {n_found} intervals, {wanted} were expected ({n_samples} samples of {n_features} "
            "features); write one interval for each feature of each sample"
        )
    boxes = bounds.reshape(n_samples, n_features, 2)
    lower, upper = np.ascontiguousarray(boxes[:, :, 0]), np.ascontiguousarray(boxes[:, :, 1])
    empty = np.argwhere(~(lower <= upper) | (lower == np.inf) | (upper == -np.inf))
    if len(empty):
        row, feature = empty[0]
        raise PerturbationError(
            f"{name}: sample {row}, feature {feature}: [{lower[row, feature]:g};{upper[row, feature]:g}] is empty; "
            "the lower bound comes first"
        )
    return lower, upper


def _parse_bound(name: str, number: int, word: bytes) -> float:
    if not _NUMBER.fullmatch(word):
        found = shorten(word.decode(errors="replace"))
        raise PerturbationError(f"{name}: interval {number + 1}: {found} is not a number; {_EXPECTED}")
    return float(word)


def _complaint(name: str, text: bytes, position: int) -> PerturbationError:
    rest = text[position:]
    start = position + len(rest) - len(rest.lstrip())
    line = text.count(b"\n", 0, start) + 1
    found = text[start:].split(None, 1)[0].decode(errors="replace")
    return PerturbationError(at_line(name, line, f"found {shorten(found)}; {_EXPECTED}"))
