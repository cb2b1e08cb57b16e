"""The share of a space on which no perturbation within epsilon changes the prediction, whatever the rows are.

Numbers count by volume, whole numbers, listed values and categories by how many there are. The space is divided into
boxes. A box is stable as a whole if the prediction is constant on all that its points can become. It is unstable as a
whole if the prediction is not constant on what all of its points can become. Where neither is proved, the box is cut
where a bound of a perturbation passes a threshold, or between categories. Between such values all points reach the same
leaves, so that the share is exact in the end. With a limit it is known up to two bounds; random inputs, each of which
is verified, then give an estimate.

Bounds of boxes of numbers are rounded. So both are proved for the points of a box without a thin shell, a few units in
the last place thick, whose volume counts as rounding.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.difference import LARGEST
from metasilvae.analysis.spaces import InputSpace
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Boxes
from metasilvae.perturbations.groups import pack_options
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify
from metasilvae.voting import choose_voting

FloatArray = NDArray[np.float64]
# Steps of a search in one box of a forest, which is divided if they are not enough.
STEPS_PER_BOX = 256
MOST_STEPS = 2**60
# Boxes that are examined together, the largest ones.
BOXES_AT_A_TIME = 64
# Why a share is not known if all boxes were examined.
ROUNDING = "rounding"
# Thickness of the shell of a box in units in the last place of its bounds.
SHELL_UNITS = 64
# Random inputs of an estimate, and steps of the search for each of them.
N_DRAWN = 4000
DRAWN_AT_A_TIME = 250
STEPS_PER_INPUT = 2048
# Probability that the true share is within the margin of an estimate (Hoeffding's inequality).
CONFIDENCE = 0.99
# The part of a time limit that an estimate may take besides.
EXTRA_TIME = 0.1


@dataclass(frozen=True)
class Estimate:
    """The stable share of random inputs: not proved, but within `margin` of the true one with probability 0.99.

    Attributes
    ----------
    share, margin : float
    n_inputs : int
        Random inputs that were verified; each verdict is exact.
    """

    share: float
    margin: float
    n_inputs: int


@dataclass(frozen=True)
class StableShare:
    """How much of a space is stable.

    Attributes
    ----------
    lower, upper : float
        Bounds of the share that is stable, proved up to the rounding of volumes; equal if it is known.
    n_boxes : int
        Boxes that were examined.
    reason : str or None
        Why the bounds differ, if they do.
    estimate : Estimate or None
        If the bounds differ.
    """

    model: Model
    space: InputSpace
    voting: str
    epsilon: float
    lower: float
    upper: float
    n_boxes: int
    reason: str | None
    estimate: Estimate | None = None


def measure_stable_share(
    model: Model,
    space: InputSpace,
    epsilon: float,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_fraction: Callable[[float], object] = lambda fraction: None,
) -> StableShare:
    """The share of a space at which no change of all numbers by at most epsilon changes the prediction.

    Parameters
    ----------
    space : InputSpace
        With finite bounds. Changed inputs may leave the bounds, but keep whole numbers and listed values. Categories
        and booleans do not change. Missing values are left out.
    jobs : int or None
        Threads; None means all available cores. The result does not depend on it.
    budget : Budget or None
        Work allowed; a step is one box. None means no limit.
    """
    voting = choose_voting(model, voting)
    _check(model, space, epsilon)
    remaining = RemainingBudget(budget or Budget(), threading.Event() if stop is None else stop)
    space = replace(space, may_be_missing=np.zeros(model.n_features, dtype=np.bool_))
    # Bounds beyond all numbers stand for the largest ones.
    with np.errstate(over="ignore"):
        return _measure(model, space, epsilon, voting, jobs, remaining, on_fraction)


def _measure(
    model: Model,
    space: InputSpace,
    epsilon: float,
    voting: str,
    jobs: int | None,
    remaining: RemainingBudget,
    on_fraction: Callable[[float], object],
) -> StableShare:
    division = _Division(model, space, epsilon, voting, jobs, remaining.stop)
    reason = None
    while division.boxes and reason is None:
        count = BOXES_AT_A_TIME
        if remaining.budget.steps is not None:
            count = max(min(count, remaining.budget.steps - remaining.steps), 1)
        remaining.steps += division.divide(count)
        on_fraction(division.stable + division.unstable)
        reason = remaining.reason() if division.boxes else None
    is_exact = not division.boxes and division.undecided == 0
    upper = division.stable if is_exact else min(1.0, max(1.0 - division.unstable, division.stable))
    estimate = None
    if not is_exact:
        reason = reason or ROUNDING
        limit = remaining.budget.seconds
        estimate = division.estimate(None if limit is None or math.isinf(limit) else EXTRA_TIME * limit)
    return StableShare(
        model, space, voting, epsilon, float(division.stable), float(upper), remaining.steps, reason, estimate
    )


def _check(model: Model, space: InputSpace, epsilon: float) -> None:
    if not 0 <= epsilon < np.inf:
        raise RequestError(f"epsilon {epsilon!r}: a radius is a number, 0 or more")
    is_open = (space.lower <= -LARGEST) | (space.upper >= LARGEST)
    is_open &= np.isin(np.arange(model.n_features), model.tested_features)
    if is_open.any():
        name = model.names.names[int(np.argmax(is_open))]
        raise RequestError(f"{name} has no bounds, so that there is no volume; give --domain DATA or --bounds MIN MAX")


@dataclass(frozen=True)
class _Box:
    """Bounds of features, which are possible values, and for each group the options that belong to it."""

    lower: FloatArray
    upper: FloatArray
    options: tuple[NDArray[np.bool_], ...]
    # Steps of a search in it; more for one that cannot be divided.
    steps: int = STEPS_PER_BOX


@dataclass(frozen=True)
class _Feature:
    """How a feature takes part in the division.

    Attributes
    ----------
    values : float64 array or None
        Listed values; None for numbers and whole numbers.
    is_whole : bool
    radius : float
        How far a value may change.
    cuts : float64 array
        Values after which a box may be cut: between them a perturbation passes no threshold.
    """

    values: FloatArray | None
    is_whole: bool
    radius: float
    thresholds: FloatArray
    cuts: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def is_discrete(self) -> bool:
        return self.is_whole or self.values is not None

    def measure(self, lower: float, upper: float) -> float:
        """The width of an interval, or the number of its values."""
        if self.values is not None:
            return float(np.searchsorted(self.values, upper, "right") - np.searchsorted(self.values, lower, "left"))
        return upper - lower + 1.0 if self.is_whole else upper - lower

    def after(self, value: float) -> float:
        """Where the right part of a cut begins."""
        if self.values is not None:
            return float(self.values[np.searchsorted(self.values, value, "right")])
        return value + 1.0 if self.is_whole else value

    def draw(self, lower: float, upper: float, number: float) -> float:
        """A value between bounds for a random number from 0 to 1."""
        if self.values is not None:
            possible = self.values[(self.values >= lower) & (self.values <= upper)]
            return float(possible[int(number * len(possible))])
        if self.is_whole:
            return min(math.floor(lower + number * (upper - lower + 1.0)), upper)
        return min(lower + number * (upper - lower), upper)

    def snap(self, lower: float, upper: float) -> tuple[float, float]:
        """The outermost possible values between bounds; the first one is larger if there are none."""
        if self.values is not None:
            first, last = np.searchsorted(self.values, lower, "left"), np.searchsorted(self.values, upper, "right") - 1
            return (float(self.values[first]), float(self.values[last])) if first <= last else (1.0, 0.0)
        return (math.ceil(lower), math.floor(upper)) if self.is_whole else (lower, upper)


class _Division:
    """Boxes that are not decided yet, the largest first, and the shares of those that are."""

    def __init__(
        self, model: Model, space: InputSpace, epsilon: float, voting: str, jobs: int | None, stop: threading.Event
    ) -> None:
        self._model, self._space, self._voting = space.restrict(model), space, voting
        self._jobs, self._stop = jobs, stop
        tested = set(self._model.tested_features.tolist())
        grouped = {f for group in space.groups.groups for f in group.features}
        is_fixed = np.zeros(model.n_features, dtype=np.bool_)
        if model.encoding is not None:
            is_fixed = np.asarray(model.encoding.is_indicator, dtype=np.bool_).copy()
        is_fixed[sorted(grouped)] = True
        thresholds, starts, _ = self._model.numbered_thresholds
        sizes = np.maximum(np.abs(space.lower), np.abs(space.upper)) + epsilon
        self._shell = np.zeros(model.n_features)
        self._features: dict[int, _Feature] = {}
        for f in sorted(tested - grouped):
            own = thresholds[starts[f] : starts[f + 1]]
            listed, is_whole = space.domains.listed.get(f), f in space.domains.whole
            radius = 0.0 if is_fixed[f] else math.floor(epsilon) if is_whole else epsilon
            values = None if listed is None else np.array(listed)
            if listed is None and not is_whole and space.lower[f] < space.upper[f]:
                self._shell[f] = SHELL_UNITS * np.finfo(np.float64).eps * sizes[f]
            cuts = np.unique(np.concatenate([own - radius, own + radius]))
            if values is not None:
                cuts = values
            elif is_whole:
                cuts = np.unique(np.floor(cuts))
            else:
                # Those that differ by rounding only are one.
                cuts = cuts[np.diff(cuts, prepend=-np.inf) > self._shell[f] / 2]
            self._features[f] = _Feature(values, is_whole, radius, own, cuts)
        # Groups with options that some tree tells apart.
        self._tables = [group.table[:, [f in tested for f in group.members]] for group in space.groups.groups]
        self._is_untested = np.array([f not in self._features for f in range(model.n_features)])
        self._numbers = itertools.count()
        # Ordered by share for each step; the share is the third item.
        self.boxes: list[tuple[float, int, float, _Box]] = []
        self.stable = self.unstable = self.undecided = 0.0
        options = tuple(space.list_options(number) for number in range(space.groups.n_groups))
        self._whole = _Box(space.lower, space.upper, options)
        self._push(1.0, self._whole)

    def _push(self, share: float, box: _Box) -> None:
        heapq.heappush(self.boxes, (-share / box.steps, next(self._numbers), share, box))

    def divide(self, count: int) -> int:
        """Decide the largest boxes, at most so many, or cut them; returns how many there were."""
        popped = [heapq.heappop(self.boxes) for _ in range(min(count, len(self.boxes)))]
        shares, boxes = [each[2] for each in popped], [each[3] for each in popped]
        outer = self._find_stability([self._widen(box) for box in boxes])
        left = [place for place, found in enumerate(outer) if found != Stability.STABLE]
        inner = {place: self._common(boxes[place]) for place in left}
        asked = [place for place in left if inner[place] is not None]
        found = self._find_stability([box for place in asked if (box := inner[place]) is not None])
        is_unstable = {place for place, each in zip(asked, found, strict=True) if each == Stability.UNSTABLE}
        is_open = {place for place in left if outer[place] == Stability.UNKNOWN}
        is_open |= {place for place, each in zip(asked, found, strict=True) if each == Stability.UNKNOWN}
        for place, (share, box) in enumerate(zip(shares, boxes, strict=True)):
            if outer[place] == Stability.STABLE:
                self.stable += share
            elif place in is_unstable:
                self.unstable += share
            else:
                self._cut(share, box, place in is_open)
        return len(popped)

    def _find_stability(self, boxes: Sequence[_Box]) -> list[int]:
        """Whether the prediction is constant in each box: values of `Stability`."""
        found = [0] * len(boxes)
        for steps in {box.steps for box in boxes}:
            places = [place for place, box in enumerate(boxes) if box.steps == steps]
            part = self._search([boxes[place] for place in places], steps)
            for place, each in zip(places, part, strict=True):
                found[place] = each
        return found

    def _search(self, boxes: Sequence[_Box], steps: int) -> list[int]:
        lower = np.maximum([box.lower for box in boxes], -LARGEST)
        upper = np.minimum([box.upper for box in boxes], LARGEST)
        points = lower.copy()
        groups, n_words = self._space.groups, self._space.groups.n_words
        allowed = np.zeros((len(boxes), groups.n_groups, n_words), dtype=np.uint64)
        for number, group in enumerate(groups.groups):
            options = np.stack([box.options[number] for box in boxes])
            allowed[:, number] = pack_options(options, n_words)
            first = options.argmax(axis=1)
            points[:, list(group.members)] = group.table[first]
            if group.code >= 0:
                points[:, group.code] = first
        return self._verify(points, lower, upper, allowed if groups.n_groups else None, steps)

    def _verify(
        self, points: FloatArray, lower: FloatArray, upper: FloatArray, allowed: NDArray[np.uint64] | None, steps: int
    ) -> list[int]:
        n_features = len(self._space.lower)
        nothing, endless = np.zeros(n_features), np.full(n_features, np.inf)
        groups = self._space.groups
        # Bounds and thresholds are possible values already.
        boxes = Boxes(lower, upper, nothing, nothing, -endless, endless, groups, allowed=allowed)
        sample = Dataset(points, np.zeros(len(points), dtype=np.int32), self._model.labels, source="inputs")
        query = VerificationQuery(self._model, sample, sample.y, boxes, groups, self._voting)
        outcome = verify(query, self._jobs, budget=Budget(steps=steps), stop=self._stop)
        return [int(each) for each in outcome.stability]

    def _widen(self, box: _Box) -> _Box:
        """All that points of a box can become, but for the shell."""
        lower, upper = box.lower.copy(), box.upper.copy()
        for f, feature in self._features.items():
            radius = feature.radius - self._shell[f]
            lower[f], upper[f] = feature.snap(lower[f] - radius, upper[f] + radius)
            if lower[f] > upper[f]:
                # The box is not thicker than its shell.
                lower[f] = upper[f] = 0.5 * (box.lower[f] + box.upper[f])
        return replace(box, lower=lower, upper=upper)

    def _common(self, box: _Box) -> _Box | None:
        """What all points of a box can become, but for the shell; None if there is nothing.

        A prediction that is not constant there changes for each of these points.
        """
        lower, upper = box.lower.copy(), box.upper.copy()
        upper[self._is_untested] = lower[self._is_untested]
        for f, feature in self._features.items():
            radius = feature.radius + self._shell[f]
            low, high = feature.snap(box.upper[f] - radius, box.lower[f] + radius)
            if low > high:
                # Values of the box, or between the two bounds, are alike if no threshold lies there.
                ends = [box.lower[f], box.upper[f]] if feature.is_discrete else [high, low]
                first, last = np.searchsorted(feature.thresholds, ends)
                if first < last:
                    return None
                low = high = ends[0]
            lower[f], upper[f] = low, high
        options = []
        for own, table in zip(box.options, self._tables, strict=True):
            chosen = int(own.argmax())
            if (table[own] != table[chosen]).any():
                return None
            options.append(np.arange(len(own)) == chosen)
            # Members of the group have bounds that admit all options.
        for group in self._space.groups.groups:
            features = list(group.features)
            lower[features], upper[features] = box.lower[features], box.upper[features]
        return _Box(lower, upper, tuple(options), box.steps)

    def _cut(self, share: float, box: _Box, is_open: bool) -> None:
        """Cut a box in its relatively widest feature or group, near the middle.

        If there is nothing to cut, all points reach the same leaves, so that a longer search decides (`is_open`), or
        the box is as thin as the rounding of its bounds.
        """
        widths = [
            (-feature.measure(box.lower[f], box.upper[f]) / whole, f, False)
            for f, feature in self._features.items()
            if (whole := feature.measure(self._space.lower[f], self._space.upper[f])) > 0
        ]
        widths += [
            (-own.sum() / whole.sum(), number, True)
            for number, (own, whole) in enumerate(zip(box.options, self._whole.options, strict=True))
        ]
        for _, number, is_group in sorted(widths):
            parts = self._divide_options(box, number) if is_group else self._divide_feature(box, number)
            if parts is not None:
                fraction, left, right = parts
                self._push(share * fraction, left)
                self._push(share * (1.0 - fraction), right)
                return
        if is_open:
            self._push(share, replace(box, steps=min(8 * box.steps, MOST_STEPS)))
        else:
            self.undecided += share

    def _divide_feature(self, box: _Box, f: int) -> tuple[float, _Box, _Box] | None:
        feature, low, high = self._features[f], float(box.lower[f]), float(box.upper[f])
        cuts, shell = feature.cuts, self._shell[f]
        is_inside = (
            (cuts >= low) & (cuts < high) if feature.is_discrete else (cuts > low + shell) & (cuts < high - shell)
        )
        inside = cuts[is_inside]
        if not len(inside):
            return None
        value = float(inside[np.argmin(np.abs(inside - 0.5 * (low + high)))])
        left, right = box.upper.copy(), box.lower.copy()
        left[f], right[f] = value, feature.after(value)
        fraction = feature.measure(low, value) / feature.measure(low, high)
        return fraction, replace(box, upper=left), replace(box, lower=right)

    def _divide_options(self, box: _Box, number: int) -> tuple[float, _Box, _Box] | None:
        """Options apart that trees tell apart: in which some member, the one nearest to half of them, is 1 and 0."""
        own = np.flatnonzero(box.options[number])
        table = self._tables[number][own]
        n_ones = table.sum(axis=0)
        if not ((n_ones > 0) & (n_ones < len(own))).any():
            return None
        is_one = table[:, np.argmin(np.abs(2 * n_ones - len(own)))]
        parts = []
        for some in (own[is_one], own[~is_one]):
            options = np.zeros(len(box.options[number]), dtype=np.bool_)
            options[some] = True
            parts.append(replace(box, options=(*box.options[:number], options, *box.options[number + 1 :])))
        return float(is_one.mean()), parts[0], parts[1]

    def estimate(self, seconds: float | None) -> Estimate | None:
        """The share of random inputs that are stable; None if there was no time for it.

        Parameters
        ----------
        seconds : float or None
            After which no further inputs are drawn.
        """
        rng = np.random.default_rng(0)
        counts = {Stability.STABLE: 0, Stability.UNSTABLE: 0, Stability.UNKNOWN: 0}
        start = time.perf_counter()
        while sum(counts.values()) < N_DRAWN and not self._stop.is_set():
            if seconds is not None and time.perf_counter() - start > seconds:
                break
            found = self._find_stability([self._draw(rng) for _ in range(DRAWN_AT_A_TIME)])
            if not self._stop.is_set():
                for each in counts:
                    counts[each] += found.count(each)
        n_inputs = sum(counts.values())
        if not n_inputs:
            return None
        n_open = counts[Stability.UNKNOWN]
        margin = math.sqrt(math.log(2 / (1 - CONFIDENCE)) / (2 * n_inputs))
        share = (counts[Stability.STABLE] + n_open / 2) / n_inputs
        return Estimate(share, margin + n_open / 2 / n_inputs, n_inputs)

    def _draw(self, rng: np.random.Generator) -> _Box:
        """All that a random input can become."""
        lower, upper = self._space.lower.copy(), self._space.upper.copy()
        grouped = [f for group in self._space.groups.groups for f in group.features]
        fixed = self._is_untested.copy()
        fixed[grouped] = False
        upper[fixed] = lower[fixed]
        for f, feature in self._features.items():
            value = feature.draw(float(lower[f]), float(upper[f]), rng.random())
            lower[f], upper[f] = feature.snap(value - feature.radius, value + feature.radius)
        options = [np.flatnonzero(own) for own in self._whole.options]
        chosen = [own[rng.integers(len(own))] for own in options]
        sizes = map(len, self._whole.options)
        options_of = tuple(np.arange(size) == one for size, one in zip(sizes, chosen, strict=True))
        return _Box(lower, upper, options_of, STEPS_PER_INPUT)
