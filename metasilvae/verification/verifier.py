"""Proving, for each row, whether a perturbation can change the answer, and showing how where it can.

A single tree is decided at once: the answer for a row can change if and only if its box reaches a leaf with another
answer (see verification/reach.pyx). A forest needs a search for each row (metasilvae.verification.forest).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import reach
from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.execution.threads import over_rows
from metasilvae.model import LabelSet, Model, PredictionTable
from metasilvae.perturbations.boxes import Boxes, OneHotGroups, Perturbation
from metasilvae.prediction import check_width, match_labels, predict
from metasilvae.verification.budget import Budget
from metasilvae.verification.forest import decide_rows
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.voting import choose_voting

# Witnesses held in memory at a time.
WITNESS_BATCH = 1024


@dataclass(frozen=True)
class VerificationQuery:
    """One model on one data set under one perturbation; checked to fit together when made by `ask`."""

    model: Model
    dataset: Dataset
    true_labels: NDArray[np.int32]
    boxes: Boxes
    groups: OneHotGroups
    voting: str

    @cached_property
    def searched(self) -> Model:
        """The model as kernels search it: thresholds on values that features can take, no contradictory branches."""
        return self.boxes.domains.restrict(self.model).feasible

    def subset(self, rows: NDArray[np.intp]) -> VerificationQuery:
        """The same question about some rows only, which keep their numbers."""
        dataset, boxes = self.dataset.subset(rows), self.boxes.subset(rows)
        if self.boxes.low_center is self.dataset.X:
            boxes = replace(boxes, low_center=dataset.X, high_center=dataset.X)
        return replace(self, dataset=dataset, true_labels=self.true_labels[rows], boxes=boxes)


def make_query(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation,
    *,
    voting: str | None = None,
    tiers: Sequence[int] | None = None,
) -> VerificationQuery:
    """Put a question together, or say why its parts do not fit.

    Parameters
    ----------
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    tiers : sequence of int or None
        Number of each feature's one-hot group, 0 for none.
    """
    check_width(model, dataset)
    boxes = perturbation.boxes(dataset)
    if tiers is not None and boxes.groups.n_groups:
        raise RequestError(f"{perturbation.describe()} has one-hot groups of its own; leave the tiers out")
    return VerificationQuery(
        model,
        dataset,
        match_labels(model, dataset),
        boxes,
        boxes.groups if tiers is None else OneHotGroups.of_tiers(tiers, dataset.n_features),
        choose_voting(model, voting),
    )


def verify(
    query: VerificationQuery,
    jobs: int | None = None,
    *,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Outcome:
    """Decide every row.

    Parameters
    ----------
    jobs : int or None
        Threads; None means all available cores. The verdicts do not depend on it.
    budget : Budget or None
        What may be spent on one row of a forest; None decides every row, however long it takes.
    stop : threading.Event or None
        Once set, the rows of a forest that are left stay undecided.
    on_rows : function
        Called with the number of rows that were decided or given up since the last call, by any thread.
    """
    model, X = query.searched, query.dataset.X
    start = time.perf_counter()
    predictions = predict(model, X, query.voting, jobs)
    is_known = query.true_labels >= 0
    is_correct = is_known & (predictions.only_label[predictions.ids] == query.true_labels)
    if model.n_trees == 1:
        stability = _check_tree(query, predictions, jobs)
        on_rows(len(X))
        return Outcome(predictions, is_correct, stability, time.perf_counter() - start)
    found = decide_rows(
        model, query.boxes, query.groups, query.voting, predictions,
        budget=budget or Budget(), jobs=jobs, stop=stop, on_rows=on_rows,
    )  # fmt: skip
    _refuse_inadmissible(query, np.flatnonzero(~found.is_admissible))
    return Outcome(
        predictions,
        is_correct,
        found.stability,
        time.perf_counter() - start,
        found.reasons,
        found.leaves,
        found.row_seconds,
    )


def _check_tree(query: VerificationQuery, predictions: PredictionTable, jobs: int | None) -> NDArray[np.uint8]:
    tree, X = query.searched, query.dataset.X
    if query.groups.n_groups:
        rows = np.arange(len(X), dtype=np.int64)
        found = _search(query, predictions.ids, rows, np.empty((3, 0, X.shape[1])), jobs)
        _refuse_inadmissible(query, rows[found == SearchStatus.INADMISSIBLE])
        return np.where(found == SearchStatus.FOUND, Stability.UNSTABLE, Stability.STABLE).astype(np.uint8)
    stability = np.empty(len(X), dtype=np.uint8)

    def check(first: int, last: int) -> None:
        reach.check_stability(
            tree.nodes, tree.leaf_predictions.ids, tree.max_depth, *query.boxes.arrays, predictions.ids,
            first, last, stability,
        )  # fmt: skip

    over_rows(check, len(X), jobs)
    return stability


@dataclass(frozen=True)
class Witness:
    """A perturbed sample that gets another answer.

    Attributes
    ----------
    row : int
    point : float64 array, shape (n_features,)
        Inside the box of the row; for a tree as near to the sample as possible in the maximum norm, for a forest as
        near as the leaves that were found allow.
    lower, upper : float64 arrays, shape (n_features,)
        The part of the row's box in which every sample gets this other answer for the same reason.
    answer, perturbed_prediction : tuple of int
        Label sets for the sample and for the point.
    """

    row: int
    point: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    prediction: LabelSet
    perturbed_prediction: LabelSet


def find_witnesses(query: VerificationQuery, outcome: Outcome, jobs: int | None = None) -> Iterator[Witness]:
    """A witness for every unstable row, in order; each is classified again before it is handed out."""
    unstable = np.flatnonzero(outcome.stability == Stability.UNSTABLE)
    for start in range(0, len(unstable), WITNESS_BATCH):
        rows = unstable[start : start + WITNESS_BATCH].astype(np.int64)
        regions = np.empty((3, len(rows), query.dataset.n_features))
        if query.model.n_trees > 1:
            _fill_regions(query, outcome, rows, regions, jobs)
        else:
            _search(query, outcome.predictions.ids, rows, regions, jobs)
        points, lowers, uppers = regions
        perturbed = predict(query.model, points, query.voting)
        for item, row in enumerate(rows):
            prediction = outcome.predictions.sets[outcome.predictions.ids[row]]
            perturbed_prediction = perturbed.sets[perturbed.ids[item]]
            if prediction == perturbed_prediction or not _is_allowed(query, row, points[item]):
                raise AssertionError(f"row {row}: the witness does not bear out the verdict UNSTABLE")
            yield Witness(int(row), points[item], lowers[item], uppers[item], prediction, perturbed_prediction)


def _is_allowed(query: VerificationQuery, row: int, point: NDArray[np.float64]) -> bool:
    """Whether the perturbation can turn a row into a point."""
    lower, upper = query.boxes.bounds(row)
    domains = query.boxes.domains
    return (
        bool((lower <= point).all() and (point <= upper).all())
        and all(domains.holds(feature, point[[feature]]).all() for feature in domains.features)
        and all(sorted(point[group]) == [0] * (len(group) - 1) + [1] for group in query.groups.lists)
    )


def _search(
    query: VerificationQuery,
    expected: NDArray[np.int32],
    rows: NDArray[np.int64],
    regions: NDArray[np.float64],
    jobs: int | None,
) -> NDArray[np.uint8]:
    tree = query.searched
    right_starts = query.boxes.domains.right_starts(tree)
    found = np.empty(len(rows), dtype=np.uint8)

    def search(first: int, last: int) -> None:
        reach.find_witnesses(
            tree.nodes, tree.leaf_predictions.ids, tree.max_depth, *query.boxes.arrays,
            query.groups.members, query.groups.starts, right_starts,
            query.dataset.X, expected, rows, first, last, found, *regions,
        )  # fmt: skip

    over_rows(search, len(rows), jobs)
    return found


def _fill_regions(
    query: VerificationQuery,
    outcome: Outcome,
    rows: NDArray[np.int64],
    regions: NDArray[np.float64],
    jobs: int | None,
) -> None:
    forest, leaves = query.searched, outcome.witness_leaves
    assert leaves is not None
    right_starts = query.boxes.domains.right_starts(forest)

    def fill(first: int, last: int) -> None:
        reach.fill_regions(
            forest.nodes, forest.parents, forest.leaf_nodes, *query.boxes.arrays,
            query.groups.members, query.groups.starts, right_starts,
            query.dataset.X, leaves, rows, first, last, *regions,
        )  # fmt: skip

    over_rows(fill, len(rows), jobs)


def _refuse_inadmissible(query: VerificationQuery, rows: NDArray[np.int64]) -> None:
    if len(rows):
        raise PerturbationError(
            f"{query.dataset.source}: row {query.dataset.number_of(rows[0])}: no point of its box has one-hot "
            "groups (in each tier one feature 1, the others 0); check --tiers, or enlarge the perturbation"
        )
