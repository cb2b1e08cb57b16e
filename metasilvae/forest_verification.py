"""Deciding the rows of a forest one by one, within limits, on several threads.

Each row is a complete search (forest_search.pyx). Most of them end after a few steps, so chunks of rows are
tried together first; a longer search is run in slices, and between two of them the clock, the number of steps and the
wish to stop are looked at.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import forest_search
from metasilvae.model import AnswerTable, Model
from metasilvae.outcome import Stability
from metasilvae.parallel import run_workers
from metasilvae.perturbation import Boxes, OneHotGroups
from metasilvae.voting import VOTINGS, Scores

ROWS_PER_CHUNK = 64
# Steps for each row of a chunk, then for each slice of a longer search.
QUICK_STEPS = 16
STEPS_PER_SLICE = 256
TIMEOUT, STEPS, INTERRUPTED = "timeout", "steps", "interrupted"


@dataclass(frozen=True)
class Limits:
    """What may be spent on one row.

    Attributes
    ----------
    seconds : float or None
    steps : int or None
        Boxes looked at; unlike seconds the same on every machine.
    """

    seconds: float | None = None
    steps: int | None = None

    def as_dict(self) -> dict[str, float]:
        """The limits that are set, by the names of their options."""
        named = {"sample_timeout": self.seconds, "sample_steps": self.steps}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Findings:
    """What became of each row.

    Attributes
    ----------
    stability : uint8 array, shape (n_samples,)
        Values of `Stability`.
    is_admissible : bool array, shape (n_samples,)
        False where no point of the box has one-hot groups.
    leaves : int32 array, shape (n_samples, n_trees)
        For unstable rows a leaf of each tree; where they meet, the answer is another one.
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
    model: Model,
    boxes: Boxes,
    groups: OneHotGroups,
    voting: str,
    answers: AnswerTable,
    *,
    limits: Limits,
    jobs: int | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Findings:
    """Decide for each row whether its box holds a point with another answer than the given one.

    Parameters
    ----------
    model : Model
        Without contradictory branches (`Model.feasible`).
    stop : threading.Event or None
        Once set, the rows that are left stay undecided.
    on_rows : function
        Called with the number of rows that were decided or given up since the last call, by any thread.
    """
    n_samples, n_features = boxes.low_center.shape
    stop = threading.Event() if stop is None else stop
    findings = Findings(
        np.full(n_samples, Stability.UNKNOWN, dtype=np.uint8),
        np.ones(n_samples, dtype=np.bool_),
        np.zeros((n_samples, model.n_trees), dtype=np.int32),
        np.zeros(n_samples),
        {},
    )
    is_member = answers.memberships(model.n_labels).astype(np.uint8)
    scores = VOTINGS[voting].score(model)
    tables = number_thresholds(model, n_features)
    found = np.zeros(n_samples, dtype=np.uint8)
    numbers = itertools.count()

    def work() -> None:
        search = forest_search.ForestSearch(
            model.nodes, model.roots, model.max_depth, *tables, scores.units, scores.error,
            groups.members, groups.starts, *boxes.arrays, answers.ids, is_member, Referee(scores),
        )  # fmt: skip
        for first in map(ROWS_PER_CHUNK.__mul__, numbers):
            if first >= n_samples:
                return
            last = min(first + ROWS_PER_CHUNK, n_samples)
            if not stop.is_set():
                start = time.perf_counter()
                steps = QUICK_STEPS if limits.steps is None else min(QUICK_STEPS, limits.steps)
                search.decide(first, last, steps, found, findings.leaves)
                findings.row_seconds[first:last] = (time.perf_counter() - start) / (last - first)
            undecided = (first + np.flatnonzero(found[first:last] == SearchStatus.UNDECIDED)).tolist()
            on_rows(last - first - len(undecided))
            for row in undecided:
                _search_on(search, row, limits, stop, found, findings)
                on_rows(1)

    run_workers(work, n_samples, jobs, stop)
    findings.stability[found == SearchStatus.ABSENT] = Stability.STABLE
    findings.stability[found == SearchStatus.FOUND] = Stability.UNSTABLE
    findings.is_admissible[found == SearchStatus.INADMISSIBLE] = False
    return replace(findings, reasons=dict(sorted(findings.reasons.items())))


def _search_on(
    search: forest_search.ForestSearch,
    row: int,
    limits: Limits,
    stop: threading.Event,
    found: NDArray[np.uint8],
    findings: Findings,
) -> None:
    """Search for a row until it is decided or a limit is reached."""
    start = time.perf_counter()
    search.begin(row)
    while not stop.is_set():
        left = STEPS_PER_SLICE if limits.steps is None else limits.steps - search.n_steps
        found[row] = search.advance(min(STEPS_PER_SLICE, left))
        findings.row_seconds[row] = time.perf_counter() - start
        if found[row] == SearchStatus.FOUND:
            search.witness(findings.leaves[row])
        if found[row] != SearchStatus.UNDECIDED:
            return
        if limits.steps is not None and search.n_steps >= limits.steps:
            findings.reasons[row] = STEPS
            return
        if limits.seconds is not None and findings.row_seconds[row] >= limits.seconds:
            findings.reasons[row] = TIMEOUT
            return
    findings.reasons[row] = INTERRUPTED


def number_thresholds(model: Model, n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All thresholds by feature and size, where those of each feature begin, and the number of each split's own."""
    inner = np.flatnonzero(model.nodes["feature"] >= 0)
    features, thresholds = model.nodes["feature"][inner], model.nodes["threshold"][inner]
    order = np.lexsort((thresholds, features))
    features, thresholds = features[order], thresholds[order]
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = (features[1:] != features[:-1]) | (thresholds[1:] != thresholds[:-1])
    starts = np.searchsorted(features[is_new], np.arange(n_features + 1)).astype(np.int32)
    numbers = np.zeros(model.n_nodes, dtype=np.int32)
    numbers[inner[order]] = np.cumsum(is_new) - 1 - starts[features]
    return thresholds[is_new], starts, numbers


class Referee:
    """Compares leads of one label over another as exact numbers."""

    def __init__(self, scores: Scores) -> None:
        self._exact = scores.exact

    def __call__(self, ahead: int, behind: int, is_strict: bool, leaves: list[list[int]]) -> list[int] | None:
        """The best leaf of each list; None if the sum of their leads is too small."""
        chosen, total = [], Fraction(0)
        for several in leaves:
            lead, best = max((self._exact(leaf, ahead) - self._exact(leaf, behind), -leaf) for leaf in several)
            chosen.append(-best)
            total += lead
        return chosen if total > 0 or (total == 0 and not is_strict) else None
