"""Axes and numbers for people: where the axis of a curve begins and ends, its ticks, and numbers with few digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.verification.curve import Curve, choose_quantile

N_TICKS = 6
# Limits of the end of an axis, so that it can be divided.
SMALLEST_END, LARGEST_END = 1e-300, 1e300
# An axis does not reach a marked value that is so many times as large as the radii: both cannot be seen.
FAR_AWAY = 4
# Radii that reach so many times as far as the marked value, or as their median, are shown on a logarithmic axis.
LONG_TAIL = 20
# A logarithmic axis spans at most so many powers of ten.
MOST_DECADES = 6


@dataclass(frozen=True)
class Axis:
    """A horizontal axis from `start` to `end`; a linear one starts at 0."""

    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value is, from 0 (at the start or before) to 1 (at the end); beyond the end it is above 1."""
        if not self.is_log:
            return value / self.end
        if value <= self.start:
            return 0.0
        return math.log(value / self.start) / math.log(self.end / self.start)

    @property
    def ticks(self) -> list[float]:
        """Round numbers on the axis."""
        return choose_log_ticks(self.start, self.end) if self.is_log else choose_ticks(self.end)


def choose_axis(curves: Sequence[Curve], marked: float | None = None) -> Axis:
    """An axis on which the steps of the curves can be seen, and the marked value if it is not far away.

    It is logarithmic if the radii span very different sizes, as multiples of an attack and raw amounts often do.
    """
    finite = [curve.radii.lower[np.isfinite(curve.radii.lower)] for curve in curves]
    reach = max((choose_quantile(radii, 99) for radii in finite if len(radii)), default=0.0)
    known = marked or 0.0
    is_far = 0 < FAR_AWAY * reach < known
    end = 1.05 * (reach if is_far else max(reach, 2 * known))
    if not SMALLEST_END < end < LARGEST_END:
        return Axis(0.0, 1.0)
    positive = np.concatenate([*finite, np.empty(0)])
    positive = positive[positive > 0]
    usual = known or (choose_quantile(positive, 50) if len(positive) else 0.0)
    if is_far or not len(positive) or reach <= LONG_TAIL * usual:
        return Axis(0.0, end)
    first = min([choose_quantile(positive, 5), *([known / 4] if known else [])])
    start = _round_down(max(first / 1.5, end / 10**MOST_DECADES))
    return Axis(start, end, True) if start < end / 10 else Axis(0.0, end)


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (5, 2, 1, 0.5) if power * factor <= value)


def choose_ticks(end: float) -> list[float]:
    """Round numbers from 0 to the end of a linear axis."""
    power = 10.0 ** math.floor(math.log10(end / N_TICKS))
    step = next((power * factor for factor in (1, 2, 2.5, 5, 10) if end / (power * factor) <= N_TICKS), power * 10)
    return [step * number for number in range(math.floor(end / step) + 1)]


def choose_log_ticks(start: float, end: float) -> list[float]:
    """Powers of ten, and round numbers between them if there are few."""
    low, high = math.floor(math.log10(start)), math.ceil(math.log10(end))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**power for power in range(low, high + 1) for factor in factors]
        ticks = [float(f"{tick:.12g}") for tick in ticks if start * (1 - 1e-9) <= tick <= end]
        if len(ticks) <= N_TICKS + 2:
            break
    return ticks


def round_number(value: float, *others: float, digits: int = 6) -> str:
    """A number with few digits, but so many that it differs from others that are not equal to it."""
    for more in range(digits, 17):
        text = _write(value, more)
        if all(_write(other, more) != text for other in others if other != value):
            return text
    return repr(float(value))


def _write(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    if "e" in text and 1e-5 <= abs(value) < 1e15:
        return np.format_float_positional(float(text), trim="-")
    return text


def round_numbers(values: NDArray[np.float64] | Sequence[float]) -> list[str]:
    """Each number with as few digits as tell it apart from its neighbours in order."""
    ordered = np.unique(np.asarray(values, dtype=np.float64))
    texts = {}
    for place, value in enumerate(ordered.tolist()):
        around = ordered[max(place - 1, 0) : place + 2]
        texts[value] = round_number(value, *around.tolist())
    return [texts[float(value)] for value in values]
