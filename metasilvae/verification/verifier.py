"""Proof, for each row, that no perturbation changes the prediction, or a witness that one does.

A single tree is decided at once: the prediction for a row can change if and only if its box reaches a leaf with another
prediction (verification/reach.pyx). A forest needs a search for each row (metasilvae.verification.forest), and so does
a limit of the total change in the norms l0, l1 and l2 (metasilvae.verification.nearest).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import reach
from metasilvae.errors import PerturbationError
from metasilvae.execution.threads import over_rows
from metasilvae.model import LabelSet, PredictionTable
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget
from metasilvae.verification.distances import exact_cost, exact_power
from metasilvae.verification.forest import decide_rows
from metasilvae.verification.nearest import confirm_changes, goals_for, search_rows
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.verdicts import Outcome, Stability

# Witnesses held in memory at a time.
WITNESS_BATCH = 1024


def verify(
    query: VerificationQuery,
    jobs: int | None = None,
    *,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Outcome:
    """Decide for every row whether a perturbation can change its prediction.

    Parameters
    ----------
    jobs : int or None
        Threads; None means all available cores. The verdicts do not depend on it.
    budget : Budget or None
        Work allowed for one row of a forest; None decides every row, however long it takes.
    stop : threading.Event or None
        Once set, the remaining rows of a forest stay undecided.
    on_rows : function
        Called with the number of rows that were decided or given up since the last call, by any thread.
    """
    start = time.perf_counter()
    predictions, is_correct = query.classify(jobs)
    if query.boxes.limit is not None:
        return _search_ball(query, predictions, is_correct, jobs, budget, stop, on_rows)
    if query.model.n_trees == 1:
        stability = _check_tree(query, predictions, jobs)
        on_rows(query.dataset.n_samples)
        return Outcome(predictions, is_correct, stability, seconds=time.perf_counter() - start)
    found = decide_rows(query, predictions, budget=budget or Budget(), jobs=jobs, stop=stop, on_rows=on_rows)
    _refuse_inadmissible(query, np.flatnonzero(~found.is_admissible))
    return Outcome(
        predictions,
        is_correct,
        found.stability,
        seconds=time.perf_counter() - start,
        reasons=found.reasons,
        witness_leaves=found.leaves,
        row_seconds=found.row_seconds,
    )


def _search_ball(
    query: VerificationQuery,
    predictions: PredictionTable,
    is_correct: NDArray[np.bool_],
    jobs: int | None,
    budget: Budget | None,
    stop: threading.Event | None,
    on_rows: Callable[[int], object],
) -> Outcome:
    """The same for a limit of the total change."""
    start = time.perf_counter()
    # The search of a tree is always finished.
    budget = budget if query.model.n_trees > 1 else None
    found = search_rows(
        query, goals_for(query, predictions), is_nearest=False, budget=budget, jobs=jobs, stop=stop, on_rows=on_rows
    )
    confirm_changes(query, found, predictions)
    stability = np.full(query.dataset.n_samples, Stability.STABLE, dtype=np.uint8)
    stability[[cost is not None for cost in found.costs]] = Stability.UNSTABLE
    stability[sorted(found.reasons)] = Stability.UNKNOWN
    return Outcome(
        predictions,
        is_correct,
        stability,
        seconds=time.perf_counter() - start,
        reasons=dict(sorted(found.reasons.items())),
        row_seconds=found.row_seconds,
        witness_points=found.points,
    )


def _check_tree(query: VerificationQuery, predictions: PredictionTable, jobs: int | None) -> NDArray[np.uint8]:
    tree, n_samples = query.searched, query.dataset.n_samples
    if query.groups.n_groups or query.boxes.droppable is not None:
        rows = np.arange(n_samples, dtype=np.int64)
        found = _search_tree(query, predictions, rows, np.empty((3, 0, query.dataset.n_features)), jobs)
        _refuse_inadmissible(query, rows[found == SearchStatus.INADMISSIBLE])
        return np.where(found == SearchStatus.FOUND, Stability.UNSTABLE, Stability.STABLE).astype(np.uint8)
    stability = np.empty(n_samples, dtype=np.uint8)

    def check(first: int, last: int) -> None:
        reach.check_stability(
            tree.nodes, tree.leaf_predictions.ids, tree.max_depth, *query.boxes.arrays, query.dataset.has_missing,
            predictions.ids, first, last, stability,
        )  # fmt: skip

    over_rows(check, n_samples, jobs)
    return stability


def _refuse_inadmissible(query: VerificationQuery, rows: NDArray[np.int64]) -> None:
    if len(rows):
        raise PerturbationError(
            f"{query.dataset.source}: row {query.dataset.number_of(rows[0])}: no point of its box has one-hot "
            "groups (in each tier one feature 1, the others 0); check --tiers, or enlarge the perturbation"
        )


@dataclass(frozen=True)
class Witness:
    """A perturbed sample with another prediction.

    Attributes
    ----------
    row : int
    point : float64 array, shape (n_features,)
        Inside the box of the row, NaN where a value is missing or became so. For a tree it drops as few values as
        possible and is as near to the sample as possible in the maximum norm, for a forest as near as the leaves that
        were found allow. Under a limit of the total change it is within the limit.
    lower, upper : float64 arrays, shape (n_features,)
        The part of the row's box in which every sample reaches the same leaves and so gets this other prediction; NaN
        where the value is missing. Under a limit of the total change it is the point alone.
    prediction, perturbed_prediction : tuple of int
        Label sets for the sample and for the point.
    """

    row: int
    point: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    prediction: LabelSet
    perturbed_prediction: LabelSet


def find_witnesses(query: VerificationQuery, outcome: Outcome, jobs: int | None = None) -> Iterator[Witness]:
    """A witness for every unstable row, in order; each is classified again before it is returned."""
    unstable = np.flatnonzero(outcome.stability == Stability.UNSTABLE)
    for start in range(0, len(unstable), WITNESS_BATCH):
        rows = unstable[start : start + WITNESS_BATCH].astype(np.int64)
        regions = np.empty((3, len(rows), query.dataset.n_features))
        if outcome.witness_points is not None:
            regions[:] = outcome.witness_points[rows]
        elif query.model.n_trees > 1:
            _fill_regions(query, outcome, rows, regions, jobs)
        else:
            _search_tree(query, outcome.predictions, rows, regions, jobs)
        points, lowers, uppers = regions
        perturbed = predict(query.model, points, query.voting)
        for item, row in enumerate(rows):
            prediction = outcome.predictions.sets[outcome.predictions.ids[row]]
            perturbed_prediction = perturbed.sets[perturbed.ids[item]]
            if prediction == perturbed_prediction or not is_allowed(query, int(row), points[item]):
                raise AssertionError(f"row {row}: the witness does not confirm the verdict UNSTABLE")
            yield Witness(int(row), points[item], lowers[item], uppers[item], prediction, perturbed_prediction)


def is_allowed(query: VerificationQuery, row: int, point: NDArray[np.float64]) -> bool:
    """Whether the perturbation can turn a row into a point; distances are compared exactly."""
    lower, upper = query.boxes.bounds(row)
    limit = query.boxes.limit
    if limit is not None and math.isfinite(limit.epsilon):
        cost = exact_cost(limit, query.groups.feature_lists, query.dataset.X[row], point)
        if cost > exact_power(limit.norm, Fraction(limit.epsilon)):
            return False
    domains, is_missing = query.boxes.domains, np.isnan(point)
    may_be_missing = np.isnan(lower)
    if query.boxes.droppable is not None:
        may_be_missing |= query.boxes.droppable[row] != 0
    return (
        bool(np.where(is_missing, may_be_missing, (lower <= point) & (point <= upper)).all())
        and all(domains.holds(f, point[[f]]).all() for f in domains.features if not is_missing[f])
        and all(_takes_option(query, row, number, point) for number in range(query.groups.n_groups))
    )


def _takes_option(query: VerificationQuery, row: int, number: int, point: NDArray[np.float64]) -> bool:
    """Whether a point takes an option of a group that its row allows."""
    option = int(query.groups.groups[number].find_options(point[np.newaxis])[0])
    if option < 0 or query.boxes.allowed is None:
        return option >= 0
    return bool(int(query.boxes.allowed[row, number, option // 64]) >> option % 64 & 1)


def _search_tree(
    query: VerificationQuery,
    predictions: PredictionTable,
    rows: NDArray[np.int64],
    regions: NDArray[np.float64],
    jobs: int | None,
) -> NDArray[np.uint8]:
    tree = query.searched
    right_starts, arrays = query.boxes.domains.right_starts(tree), query.groups.arrays
    found = np.empty(len(rows), dtype=np.uint8)

    def search(first: int, last: int) -> None:
        reach.find_witnesses(
            tree.nodes, tree.leaf_predictions.ids, tree.max_depth, *query.boxes.arrays,
            *arrays, query.boxes.options, query.boxes.dropping, right_starts,
            query.dataset.X, predictions.ids, rows, first, last, found, *regions,
        )  # fmt: skip

    over_rows(search, len(rows), jobs)
    return found


def _fill_regions(
    query: VerificationQuery, outcome: Outcome, rows: NDArray[np.int64], regions: NDArray[np.float64], jobs: int | None
) -> None:
    forest, leaves = query.searched, outcome.witness_leaves
    assert leaves is not None
    right_starts, arrays = query.boxes.domains.right_starts(forest), query.groups.arrays

    def fill(first: int, last: int) -> None:
        reach.fill_regions(
            forest.nodes, forest.parents, forest.leaf_nodes, *query.boxes.arrays,
            *arrays, query.boxes.options, right_starts,
            query.dataset.X, leaves, rows, first, last, *regions,
        )  # fmt: skip

    over_rows(fill, len(rows), jobs)
