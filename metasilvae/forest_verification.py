"""Deciding the rows of a forest one by one, within limits, on several threads.

Each row is a complete search (cython_ext/forest_search.pyx) that is run in slices; between two slices the clock, the
number of steps and the wish to stop are looked at.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core import forest_search
from metasilvae.model import AnswerTable, Model
from metasilvae.outcome import Stability
from metasilvae.parallel import available_cores
from metasilvae.perturbation import Boxes, OneHotGroups
from metasilvae.voting import VOTINGS, Scores

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
    on_row: Callable[[], object] = lambda: None,
) -> Findings:
    """Decide for each row whether its box holds a point with another answer than the given one.

    Parameters
    ----------
    model : Model
        Without contradictory branches (`Model.feasible`).
    stop : threading.Event or None
        Once set, the rows that are left stay undecided.
    on_row : function
        Called after each row, by any thread.
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
    is_expected = np.zeros((len(answers.sets), model.n_labels), dtype=np.uint8)
    for number, label_set in enumerate(answers.sets):
        is_expected[number, list(label_set)] = 1
    scores = VOTINGS[voting].score(model)
    tables = _number_thresholds(model, n_features)
    numbers = itertools.count()

    def work() -> None:
        search = forest_search.ForestSearch(
            model.nodes, model.roots, model.max_depth, *tables, scores.units, scores.error,
            groups.members, groups.starts, Referee(scores),
        )  # fmt: skip
        for row in iter(numbers.__next__, None):
            if row >= n_samples:
                return
            start = time.perf_counter()
            if stop.is_set():
                findings.reasons[row] = INTERRUPTED
                continue
            search.begin(*boxes.arrays, row, is_expected[answers.ids[row]])
            _run(search, row, start, limits, stop, findings)
            findings.row_seconds[row] = time.perf_counter() - start
            on_row()

    jobs = min(available_cores() if jobs is None else jobs, n_samples)
    if jobs <= 1:
        work()
    else:
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for done in [pool.submit(work) for _ in range(jobs)]:
                    done.result()
            except BaseException:
                stop.set()
                raise
    return Findings(
        findings.stability,
        findings.is_admissible,
        findings.leaves,
        findings.row_seconds,
        dict(sorted(findings.reasons.items())),
    )


def _run(search: Any, row: int, start: float, limits: Limits, stop: threading.Event, findings: Findings) -> None:
    while True:
        slice_steps = STEPS_PER_SLICE if limits.steps is None else min(STEPS_PER_SLICE, limits.steps - search.n_steps)
        found = search.advance(slice_steps)
        if found == forest_search.STABLE:
            findings.stability[row] = Stability.STABLE
        elif found == forest_search.UNSTABLE:
            findings.stability[row] = Stability.UNSTABLE
            search.witness(findings.leaves[row])
        elif found == forest_search.NO_ADMISSIBLE_POINT:
            findings.is_admissible[row] = False
        elif limits.steps is not None and search.n_steps >= limits.steps:
            findings.reasons[row] = STEPS
        elif limits.seconds is not None and time.perf_counter() - start >= limits.seconds:
            findings.reasons[row] = TIMEOUT
        elif stop.is_set():
            findings.reasons[row] = INTERRUPTED
        else:
            continue
        return


def _number_thresholds(model: Model, n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
