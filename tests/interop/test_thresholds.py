"""Other libraries' tests as ``x <= k``: equal for every float64 number, not only for those near the threshold."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from support.oracles import LARGEST

from metasilvae.interop.thresholds import (
    fold_at_most,
    fold_below,
    fold_tiny_values,
    keep_below,
    next_float32,
    round_down,
)

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
ROUNDED_TO_INFINITY = 2.0**128 - 2.0**103
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.floats(width=32, allow_nan=False, allow_infinity=False)
float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)


def as_float32(x: float) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(x)


def neighbours(k: float) -> list[float]:
    """Numbers on both sides of k, in float64 and in float32."""
    found = {k, math.nextafter(k, math.inf), math.nextafter(k, -math.inf), -k, 0.0, LARGEST, -LARGEST}
    near = as_float32(k)
    for side in (near, next_float32(near, np.inf), next_float32(near, -np.inf)):
        found.add(float(side))
    return [x for x in found if math.isfinite(x)]


@given(numbers, numbers)
@example(0.0, 7e-46)
@example(-0.0, -7e-46)
@example(-1e-50, -7.006492321624085e-46)
@example(LARGEST_FLOAT32, ROUNDED_TO_INFINITY)
@example(-LARGEST_FLOAT32, -ROUNDED_TO_INFINITY)
@example(LARGEST, 1.0)
@example(-LARGEST, -1.0)
@example(1.0, 1.0 + 2.0**-24)
@example(1.0 + 2.0**-23, 1.0 + 3 * 2.0**-24)
def test_at_most_in_float32(threshold: float, x: float) -> None:
    k = float(fold_at_most(np.array([threshold]))[0])
    for value in [x, *neighbours(threshold), *(neighbours(k) if math.isfinite(k) else [])]:
        assert (value <= k) == bool(float(as_float32(value)) <= threshold), value


@given(float32s, numbers)
@example(-LARGEST_FLOAT32, -ROUNDED_TO_INFINITY)
@example(0.0, -7e-46)
def test_below_in_float32(threshold: float, x: float) -> None:
    k = float(fold_below(np.array([threshold], dtype=np.float32))[0])
    for value in [x, *neighbours(threshold), *(neighbours(k) if math.isfinite(k) else [])]:
        assert (value <= k) == bool(as_float32(value) < np.float32(threshold)), value


@given(numbers)
def test_k_is_the_last_number_that_goes_left(threshold: float) -> None:
    k = float(fold_at_most(np.array([threshold]))[0])
    if math.isfinite(k):
        assert float(as_float32(k)) <= threshold
        assert float(as_float32(math.nextafter(k, math.inf))) > threshold


@given(numbers, numbers)
def test_below_in_float64(threshold: float, x: float) -> None:
    k = float(keep_below(np.array([threshold]))[0])
    for value in [x, *neighbours(threshold)]:
        assert (value <= k) == (value < threshold)


@given(numbers)
def test_round_down(threshold: float) -> None:
    last = round_down(np.array([threshold]))[0]
    assert float(last) <= threshold
    assert float(next_float32(last, np.inf)) > threshold or np.isposinf(last)


tiny_numbers = st.sampled_from([0.0, -0.0, 1e-35, -1e-35, 1e-36, -1e-36, 5e-324, 2e-35, -2e-35, 1.0, -1.0])


@given(tiny_numbers | numbers, tiny_numbers | numbers)
def test_tiny_values_count_as_zero(threshold: float, x: float) -> None:
    tiny = float(np.float32(1e-35))
    k = float(fold_tiny_values(np.array([threshold]), tiny)[0])
    for value in [x, tiny, -tiny, math.nextafter(tiny, 1), math.nextafter(-tiny, -1), *neighbours(threshold)]:
        seen = 0.0 if abs(value) <= tiny else value
        assert (value <= k) == (seen <= threshold), value
