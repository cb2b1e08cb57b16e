"""The share of a space on which no perturbation within epsilon changes the prediction, whatever the rows are.

The space, a box of numbers, is divided into boxes. A box is stable as a whole if the prediction is constant on all that
its points can become. It is unstable as a whole if the prediction is not constant on what all of its points can become.
Where neither is proved, the box is cut where a bound of a perturbation passes a threshold. Between such values all
points reach the same leaves, so that the share is exact in the end. With a limit it is known up to two bounds.

Bounds of boxes are rounded. So both are proved for the points of a box without a thin shell, a few units in the last
place thick, whose volume counts as rounding.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.difference import LARGEST
from metasilvae.analysis.proofs import ProofStatus, prove_constant
from metasilvae.analysis.spaces import InputSpace
from metasilvae.errors import RequestError
from metasilvae.model import Model
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.voting import choose_voting

FloatArray = NDArray[np.float64]
# Steps of a search in one box of a forest, which is divided if they are not enough.
STEPS_PER_BOX = 256
# Thickness of the shell of a box in units in the last place of its bounds.
SHELL_UNITS = 64


@dataclass(frozen=True)
class StableShare:
    """How much of a space is stable.

    Attributes
    ----------
    lower, upper : float
        Bounds of the share of the volume that is stable, proved up to the rounding of volumes; equal if it is known.
    n_boxes : int
        Boxes that were examined.
    reason : str or None
        Why the bounds differ, if they do.
    """

    model: Model
    space: InputSpace
    voting: str
    epsilon: float
    lower: float
    upper: float
    n_boxes: int
    reason: str | None


def measure_stable_share(
    model: Model,
    space: InputSpace,
    epsilon: float,
    *,
    voting: str | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_fraction: Callable[[float], object] = lambda fraction: None,
) -> StableShare:
    """The share of the volume of a space at which no change of all features by at most epsilon changes the prediction.

    Parameters
    ----------
    space : InputSpace
        A box of numbers with finite bounds, without categories, whole numbers and listed values. Missing values are
        left out.
    budget : Budget or None
        Work allowed; a step is one box. None means no limit.
    """
    voting = choose_voting(model, voting)
    _check(model, space, epsilon)
    remaining = RemainingBudget(budget or Budget(), threading.Event() if stop is None else stop)
    space = replace(space, may_be_missing=np.zeros(model.n_features, dtype=np.bool_))
    division = _Division(model.without_directions, space, epsilon, voting, remaining.stop)
    reason = None
    while division.boxes and reason is None:
        division.divide()
        remaining.steps += 1
        on_fraction(division.stable + division.unstable)
        reason = remaining.reason() if division.boxes else None
    is_exact = not division.boxes and division.undecided == 0
    upper = division.stable if is_exact else min(1.0, max(1.0 - division.unstable, division.stable))
    if not is_exact and reason is None:
        reason = "steps"
    return StableShare(model, space, voting, epsilon, float(division.stable), float(upper), remaining.steps, reason)


def _check(model: Model, space: InputSpace, epsilon: float) -> None:
    if not 0 <= epsilon < np.inf:
        raise RequestError(f"epsilon {epsilon!r}: a radius is a number, 0 or more")
    if space.groups.n_groups or space.domains.features:
        raise RequestError(f"{model.source}: the stable share is a volume, which needs columns with numbers only")
    is_open = (space.lower <= -LARGEST) | (space.upper >= LARGEST)
    is_open &= np.isin(np.arange(model.n_features), model.tested_features)
    if is_open.any():
        name = model.names.names[int(np.argmax(is_open))]
        raise RequestError(f"{name} has no bounds, so that there is no volume; give --domain DATA or --bounds MIN MAX")


class _Division:
    """Boxes that are not decided yet, the largest first, and the shares of those that are."""

    def __init__(self, model: Model, space: InputSpace, epsilon: float, voting: str, stop: threading.Event) -> None:
        self._model, self._space, self._epsilon, self._voting, self._stop = model, space, epsilon, voting, stop
        self._features = [int(f) for f in model.tested_features if space.lower[f] < space.upper[f]]
        self._widths = space.upper - space.lower
        self._is_untested = ~np.isin(np.arange(model.n_features), model.tested_features)
        thresholds, starts, _ = model.numbered_thresholds
        sizes = np.maximum(np.abs(space.lower), np.abs(space.upper)) + epsilon
        self._shell = (
            SHELL_UNITS
            * np.finfo(np.float64).eps
            * np.where((sizes < LARGEST) & (space.lower < space.upper) & ~self._is_untested, sizes, 0.0)
        )
        # Values of a feature at which a bound of the perturbation passes a threshold; those that differ by rounding
        # only are one.
        self._critical = {}
        self._thresholds = {}
        for feature in self._features:
            own = thresholds[starts[feature] : starts[feature + 1]]
            self._thresholds[feature] = own
            values = np.unique(np.concatenate([own - epsilon, own + epsilon]))
            is_new = np.diff(values, prepend=-np.inf) > self._shell[feature] / 2
            self._critical[feature] = values[is_new]
        self._numbers = itertools.count()
        self.boxes: list[tuple[float, int, FloatArray, FloatArray]] = []
        self.stable = self.unstable = self.undecided = 0.0
        self._push(1.0, space.lower, space.upper)

    def _push(self, share: float, lower: FloatArray, upper: FloatArray) -> None:
        heapq.heappush(self.boxes, (-share, next(self._numbers), lower, upper))

    def divide(self) -> None:
        """Decide the largest box, or cut it."""
        negative, _, lower, upper = heapq.heappop(self.boxes)
        share = -negative
        outer = np.where(self._is_untested, 0.0, self._epsilon) - self._shell
        if self._is_constant(lower - outer, upper + outer) is ProofStatus.PROVED:
            self.stable += share
            return
        # What all points of the box can become; not constant there means that each of them is unstable.
        low, high = upper - self._epsilon - self._shell, lower + self._epsilon + self._shell
        low[self._is_untested] = high[self._is_untested] = lower[self._is_untested]
        for feature in np.flatnonzero(low > high).tolist():
            # Each point can become some value between these two, which are alike if no threshold lies there.
            first, last = np.searchsorted(self._thresholds[feature], [high[feature], low[feature]])
            if first == last:
                low[feature] = high[feature]
        if (low <= high).all() and self._is_constant(low, high) is ProofStatus.REFUTED:
            self.unstable += share
            return
        cut = self._find_cut(lower, upper)
        if cut is None:
            self.undecided += share
            return
        feature, value = cut
        part = (value - lower[feature]) / (upper[feature] - lower[feature])
        left, right = upper.copy(), lower.copy()
        left[feature] = right[feature] = value
        self._push(share * part, lower, left)
        self._push(share * (1.0 - part), right, upper)

    def _is_constant(self, lower: FloatArray, upper: FloatArray) -> ProofStatus:
        part = replace(self._space, lower=np.maximum(lower, -LARGEST), upper=np.minimum(upper, LARGEST))
        budget = Budget(steps=STEPS_PER_BOX)
        return prove_constant(self._model, part, voting=self._voting, budget=budget, stop=self._stop).status

    def _find_cut(self, lower: FloatArray, upper: FloatArray) -> tuple[int, float] | None:
        """A critical value inside the box near the middle of its widest feature; None if there is none."""
        for feature in sorted(self._features, key=lambda f: (-(upper[f] - lower[f]) / self._widths[f], f)):
            values = self._critical[feature]
            shell = self._shell[feature]
            inside = values[(values > lower[feature] + shell) & (values < upper[feature] - shell)]
            if len(inside):
                middle = 0.5 * (lower[feature] + upper[feature])
                return feature, float(inside[np.argmin(np.abs(inside - middle))])
        return None
