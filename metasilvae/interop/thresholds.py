"""Tests of other libraries as tests ``x <= k`` in float64, exact for every float64 x.

Most libraries round x to float32 before they compare. The rounding is folded into k: of all float64 numbers that the
library sends to the left, k is the largest. A test with an infinite k always has the same outcome.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Half a unit in the last place above the largest float32: from here on a number is rounded to infinity.
_OVERFLOW = 2.0**128 - 2.0**103


def next_float32(numbers: NDArray[np.float32], direction: float) -> NDArray[np.float32]:
    """The neighbour of each number on the side of `direction`; beyond the largest number lies infinity."""
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(numbers, np.float32(direction)))


def next_number(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The next float64 number above each; beyond the largest number lies infinity."""
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(numbers, np.inf))


def round_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 number that is not above each threshold; -inf where there is none."""
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    below = next_float32(near, -np.inf)
    return np.asarray(np.where(near.astype(np.float64) > thresholds, below, near))


def fold_at_most(thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """k of ``float32(x) <= t``, for float64 thresholds t.

    Numbers round to the nearest float32, halfway to the even one.
    """
    last_left = round_down(np.asarray(thresholds, dtype=np.float64))
    first_right = next_float32(last_left, np.inf)
    with np.errstate(invalid="ignore"):
        halfway = (last_left.astype(np.float64) + first_right.astype(np.float64)) / 2
    halfway[np.isposinf(first_right)] = _OVERFLOW
    halfway[np.isneginf(last_left)] = -_OVERFLOW
    is_even = (last_left.view(np.uint32) & 1) == 0
    folded = np.where(is_even, halfway, np.nextafter(halfway, -np.inf))
    folded[np.isposinf(last_left)] = np.inf
    return np.asarray(folded)


def fold_below(thresholds: NDArray[np.float32]) -> NDArray[np.float64]:
    """k of ``float32(x) < t``, for float32 thresholds t."""
    last_left = next_float32(np.asarray(thresholds, dtype=np.float32), -np.inf)
    return fold_at_most(last_left.astype(np.float64))


def keep_below(thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """k of ``x < t`` in float64."""
    with np.errstate(over="ignore"):
        return np.nextafter(np.asarray(thresholds, dtype=np.float64), -np.inf)


def fold_tiny_values(thresholds: NDArray[np.float64], tiny: float) -> NDArray[np.float64]:
    """k of ``z(x) <= t``, where z(x) is 0 for all x between -tiny and tiny, else x itself."""
    k = np.array(thresholds, dtype=np.float64)
    k[(k >= 0) & (k < tiny)] = tiny
    k[(k >= -tiny) & (k < 0)] = np.nextafter(-tiny, -np.inf)
    return k
