"""The radius of each row of a forest: a search over the finite set of radii at which anything can change.

When the box of a row grows, what it holds changes only where a bound passes a threshold: at critical radii. Between
two of them the row stays stable or unstable. The complete search of metasilvae.forest_verification decides single
radii, from small ones upwards, because small boxes are decided fast, then by halves. A witness shows that the row is
unstable at the radius of its leaves already, which is often much smaller than the one that was tried.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import forest_search
from metasilvae._core.verification import radius as kernel
from metasilvae.forest_verification import (
    INTERRUPTED,
    STEPS,
    STEPS_PER_SLICE,
    TIMEOUT,
    Limits,
    Referee,
    number_thresholds,
)
from metasilvae.model import AnswerTable, Model
from metasilvae.parallel import run_workers
from metasilvae.perturbation import Boxes, OneHotGroups
from metasilvae.voting import VOTINGS

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class BreakingRadii:
    """What is known of the smallest radius at which each row is unstable.

    Attributes
    ----------
    at_least, at_most : float64 arrays, shape (n_samples,)
        Equal where it is known exactly; infinite where no radius is large enough, or none is known.
    leaves : int32 array, shape (n_samples, n_trees)
        Where at_most is finite, a leaf of each tree; they meet in the box with that radius, with another answer.
    reasons : dict
        For rows that are not known exactly, why.
    """

    at_least: FloatArray
    at_most: FloatArray
    leaves: NDArray[np.int32]
    reasons: dict[int, str] = field(default_factory=dict)


@dataclass
class Budget:
    """What is left for a row."""

    limits: Limits
    stop: threading.Event
    start: float
    steps: int = 0

    def reason(self) -> str | None:
        """Why the search must end, if it must."""
        if self.stop.is_set():
            return INTERRUPTED
        if self.limits.steps is not None and self.steps >= self.limits.steps:
            return STEPS
        if self.limits.seconds is not None and time.perf_counter() - self.start >= self.limits.seconds:
            return TIMEOUT
        return None

    def half(self) -> Budget:
        """Half of what is left, so that one hard radius does not use up everything."""
        now = time.perf_counter()
        seconds = None if self.limits.seconds is None else (self.limits.seconds - (now - self.start)) / 2
        steps = None if self.limits.steps is None else max((self.limits.steps - self.steps) // 2, 1)
        return Budget(Limits(seconds, steps), self.stop, now)


def find_breaking_radii(
    model: Model,
    X: FloatArray,
    weights: Boxes,
    groups: OneHotGroups,
    voting: str,
    answers: AnswerTable,
    *,
    limits: Limits,
    jobs: int | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> BreakingRadii:
    """Search for the smallest radius at which each row can get another answer than the given one.

    Parameters
    ----------
    model : Model
        As kernels search it (`metasilvae.verification.Question.searched`).
    weights : Boxes
        With the radii by which a radius is multiplied, and the limits.
    limits : Limits
        For all radii of a row together.
    stop : threading.Event or None
        Once set, the rows that are left keep the bounds that are known.
    on_rows : function
        Called with the number of rows that are done since the last call, by any thread.
    """
    n_samples = len(X)
    stop = threading.Event() if stop is None else stop
    found = BreakingRadii(
        np.zeros(n_samples), np.full(n_samples, np.inf), np.zeros((n_samples, model.n_trees), dtype=np.int32)
    )
    numbers = itertools.count()

    def work() -> None:
        searcher = _Searcher(model, X, weights, groups, voting, answers, found)
        for row in numbers:
            if row >= n_samples:
                return
            searcher.search(row, Budget(limits, stop, time.perf_counter()))
            on_rows(1)

    run_workers(work, n_samples, jobs, stop)
    return replace(found, reasons=dict(sorted(found.reasons.items())))


class _Searcher:
    """Searches row by row; each thread needs its own."""

    def __init__(
        self,
        model: Model,
        X: FloatArray,
        weights: Boxes,
        groups: OneHotGroups,
        voting: str,
        answers: AnswerTable,
        found: BreakingRadii,
    ) -> None:
        n_features = X.shape[1]
        self.model, self.X, self.groups, self.answers, self.found = model, X, groups, answers, found
        self.weights, self.scale = weights, weights.scale
        thresholds, starts, numbers = number_thresholds(model, n_features)
        self.thresholds = thresholds
        self.features = np.repeat(np.arange(n_features, dtype=np.int32), np.diff(starts))
        is_member = answers.memberships(model.n_labels).astype(np.uint8)
        # The box that is looked at, and the answer that is expected there; the search reads them when it begins.
        self.lower, self.upper = np.zeros((1, n_features)), np.zeros((1, n_features))
        self.expected = np.zeros(1, dtype=np.int32)
        # Why the last radius that was given up was given up.
        self.reason: str | None = None
        nothing, endless = np.zeros(n_features), np.full(n_features, np.inf)
        scores = VOTINGS[voting].score(model)
        self.forest = forest_search.ForestSearch(
            model.nodes, model.roots, model.max_depth, thresholds, starts, numbers, scores.units, scores.error,
            groups.members, groups.starts, self.lower, self.upper, nothing, nothing, -endless, endless,
            self.expected, is_member, Referee(scores),
        )  # fmt: skip

    def search(self, row: int, budget: Budget) -> None:
        """Find the smallest critical radius of a row at which it is unstable, or bounds for it."""
        critical = self._critical_radii(row)
        # Stable at critical[low], unstable at critical[high]; the radii from first to last were tried in vain.
        low, high = -1, len(critical)
        first, last = len(critical), -1
        step = 1
        reason = None
        while high - low > 1:
            reason = budget.reason()
            if reason is not None:
                break
            if last < 0:
                place = min(low + step, high - 1) if high == len(critical) else (low + high) // 2
                step *= 2
            elif last + 1 < high:
                place = last + max((high - last) // 2, 1) if high < len(critical) else high - 1
            elif low + 1 < first:
                place = (low + first) // 2
            else:
                reason = self.reason
                break
            is_stable = self._decide(row, float(critical[place]), budget)
            if is_stable is None:
                first, last = min(first, place), max(last, place)
            elif is_stable:
                low = place
            else:
                high = min(place, int(np.searchsorted(critical, self._radius_of_witness(row))))
            if low >= last or high <= first:
                first, last = len(critical), -1
        self.found.at_least[row] = critical[low + 1] if low + 1 < len(critical) else np.inf
        if high < len(critical):
            self.found.at_most[row] = critical[high]
        if reason is not None and self.found.at_least[row] != self.found.at_most[row]:
            self.found.reasons[row] = reason

    def _critical_radii(self, row: int) -> FloatArray:
        radii = np.empty(len(self.thresholds) + len(self.groups.members))
        n_thresholds = len(self.thresholds)
        kernel.fill_critical_radii(self.thresholds, self.features, self.X, *self.scale, row, radii[:n_thresholds])
        kernel.fill_member_radii(self.groups.members, self.X, *self.scale[:4], row, radii[n_thresholds:])
        return np.unique(radii[np.isfinite(radii)])

    def _decide(self, row: int, radius: float, budget: Budget) -> bool | None:
        """Whether a row is stable at a radius; None if that takes too much of what is left."""
        self.lower[0], self.upper[0] = self.weights.bounds_times(row, radius)
        self.expected[0] = self.answers.ids[row]
        part = budget.half()
        self.forest.begin(0)
        while True:
            left = STEPS_PER_SLICE if part.limits.steps is None else part.limits.steps - part.steps
            result = self.forest.advance(min(STEPS_PER_SLICE, left))
            budget.steps += self.forest.n_steps - part.steps
            part.steps = self.forest.n_steps
            if result == SearchStatus.ABSENT:
                return True
            if result == SearchStatus.FOUND:
                self.forest.witness(self.found.leaves[row])
                return False
            self.reason = part.reason()
            if self.reason is not None:
                return None

    def _radius_of_witness(self, row: int) -> float:
        if self.groups.n_groups:
            # Where the leaves meet, a point may need more to have one-hot groups.
            return np.inf
        radius: float = kernel.find_radius_of_leaves(
            self.model.nodes,
            self.model.parents,
            self.model.leaf_nodes,
            self.found.leaves[row],
            self.X,
            *self.scale,
            row,
        )
        return radius
