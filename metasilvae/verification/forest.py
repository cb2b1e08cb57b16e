"""The rows of a forest, decided one by one by a complete search (forest_search.pyx).

Most searches end after a few steps, so chunks of rows are tried together first. The rows that this leaves undecided are
searched one at a time within their budget. Threads take the chunks in turn.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import forest_search
from metasilvae.execution.threads import run_workers
from metasilvae.model import PredictionTable
from metasilvae.perturbations.boxes import BoxArrays
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.verdicts import Stability
from metasilvae.voting import VOTINGS, Scores

ROWS_PER_CHUNK = 64
# Steps for each row of a chunk.
QUICK_STEPS = 16
# Steps of a row before the first local search for a witness, and before the bound is tightened by messages between
# trees; what they cost pays for hard rows only (scripts/bench_hard_forests.py).
STEPS_BEFORE_LOCAL = 8
STEPS_BEFORE_DIVISION = 64


class ForestTables:
    """What all searches of a forest share: its thresholds, numbered by feature and size, and its scores.

    Attributes
    ----------
    thresholds : float64 array
        All distinct thresholds, by feature and size.
    starts : int32 array, shape (n_features + 1,)
        Where the thresholds of each feature begin.
    """

    def __init__(self, query: VerificationQuery, predictions: PredictionTable) -> None:
        self._query = query
        self.thresholds, starts, self._numbers = query.searched.numbered_thresholds
        # Data may have more features than the model.
        self.starts = np.pad(starts, (0, query.dataset.n_features - query.model.n_features), mode="edge")
        self._scores = VOTINGS[query.voting].score(query.searched)
        self._is_member = predictions.memberships(query.model.n_labels).astype(np.uint8)

    def make_search(
        self,
        boxes: BoxArrays,
        dropping: NDArray[np.uint8],
        options: NDArray[np.uint64],
        prediction_ids: NDArray[np.int32],
    ) -> forest_search.ForestSearch:
        """A search for other predictions than the given ones in the given boxes; each thread needs its own.

        Parameters
        ----------
        dropping : uint8 array, shape (n_samples, n_features)
            Whether values may become missing; without rows if none may.
        options : uint64 array, shape (n_samples, n_groups, n_words)
            The options of table groups that samples allow; without rows if all are allowed.
        """
        model, groups = self._query.searched, self._query.groups
        return forest_search.ForestSearch(
            model.nodes, model.roots, model.max_depth, self.thresholds, self.starts, self._numbers,
            self._scores.units, self._scores.error, *groups.arrays, options, *boxes, dropping,
            self._query.has_missing, prediction_ids, self._is_member, Referee(self._scores),
            STEPS_BEFORE_LOCAL, STEPS_BEFORE_DIVISION,
        )  # fmt: skip


class Referee:
    """Compares margins of one label over another as exact numbers."""

    def __init__(self, scores: Scores) -> None:
        self._exact = scores.exact

    def __call__(self, ahead: int, behind: int, is_strict: bool, leaves: list[list[int]]) -> list[int] | None:
        """The best leaf of each list; None if the sum of their margins is too small."""
        chosen, total = [], Fraction(0)
        for several in leaves:
            margin, best = max((self._exact(leaf, ahead) - self._exact(leaf, behind), -leaf) for leaf in several)
            chosen.append(-best)
            total += margin
        return chosen if total > 0 or (total == 0 and not is_strict) else None


@dataclass(frozen=True)
class ForestDecisions:
    """The result for each row.

    Attributes
    ----------
    stability : uint8 array, shape (n_samples,)
        Values of `Stability`.
    is_admissible : bool array, shape (n_samples,)
        False where no point of the box takes options of all table groups.
    leaves : int32 array, shape (n_samples, n_trees)
        For unstable rows a leaf of each tree; the prediction changes where these leaves intersect.
    row_seconds : float64 array, shape (n_samples,)
    reasons : dict
        For undecided rows, why.
    """

    stability: NDArray[np.uint8]
    is_admissible: NDArray[np.bool_]
    leaves: NDArray[np.int32]
    row_seconds: NDArray[np.float64]
    reasons: dict[int, str]


def decide_rows(
    query: VerificationQuery,
    predictions: PredictionTable,
    *,
    budget: Budget,
    jobs: int | None,
    stop: threading.Event | None,
    on_rows: Callable[[int], object],
) -> ForestDecisions:
    """Decide for each row whether its box holds a point with another prediction; see `verifier.verify`."""
    n_samples = query.dataset.n_samples
    stop = threading.Event() if stop is None else stop
    found = np.full(n_samples, SearchStatus.UNDECIDED, dtype=np.uint8)
    leaves = np.zeros((n_samples, query.model.n_trees), dtype=np.int32)
    row_seconds = np.zeros(n_samples)
    reasons: dict[int, str] = {}
    tables = ForestTables(query, predictions)
    quick_steps = QUICK_STEPS if budget.steps is None else min(QUICK_STEPS, budget.steps)
    numbers = itertools.count()

    def work() -> None:
        search = tables.make_search(query.boxes.arrays, query.boxes.dropping, query.boxes.options, predictions.ids)
        for first in map(ROWS_PER_CHUNK.__mul__, numbers):
            if first >= n_samples:
                return
            last = min(first + ROWS_PER_CHUNK, n_samples)
            if not stop.is_set():
                start = time.perf_counter()
                search.decide(first, last, quick_steps, found, leaves)
                row_seconds[first:last] = (time.perf_counter() - start) / (last - first)
            undecided = (first + np.flatnonzero(found[first:last] == SearchStatus.UNDECIDED)).tolist()
            on_rows(last - first - len(undecided))
            for row in undecided:
                remaining = RemainingBudget(budget, stop)
                search.begin(row)
                found[row], reason = remaining.run(search)
                if found[row] == SearchStatus.FOUND:
                    search.witness(leaves[row])
                if reason is not None:
                    reasons[row] = reason
                row_seconds[row] = time.perf_counter() - remaining.start
                on_rows(1)

    run_workers(work, n_samples, jobs, stop)
    stability = np.full(n_samples, Stability.UNKNOWN, dtype=np.uint8)
    stability[found == SearchStatus.ABSENT] = Stability.STABLE
    stability[found == SearchStatus.FOUND] = Stability.UNSTABLE
    is_admissible = found != SearchStatus.INADMISSIBLE
    return ForestDecisions(stability, is_admissible, leaves, row_seconds, dict(sorted(reasons.items())))
