"""Whether a row can be made to get a wanted label, and the nearest change that does it: a counterfactual explanation.

A row gets a label if its prediction is this label and no other, the definition of a correct prediction. Allowed changes
are those of the query's perturbation; the nearest one is nearest in its norm. In the maximum norm, the nearest change
is the one in the box with the smallest multiple of the perturbation's radii. Every change is classified again, and its
distance is computed as an exact fraction, before it is returned.
"""

from __future__ import annotations

import difflib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import RequestError, list_some, shorten
from metasilvae.model import Model
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget
from metasilvae.verification.distances import as_distance, largest_below
from metasilvae.verification.nearest import confirm, goal_of_target, search_rows
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.radius import boxes_at, check_radii
from metasilvae.verification.verdicts import RowResults, RowStatus
from metasilvae.verification.verifier import Witness, is_allowed

FloatArray = NDArray[np.float64]
# Name, old and new value of a column that changes.
Change = tuple[str, str | float, str | float]


class TargetStatus(RowStatus):
    """Whether a row can get the wanted label."""

    PREDICTED = 0
    REACHABLE = 1
    UNREACHABLE = 2
    NO_INFO = 3

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    TargetStatus.PREDICTED: "the prediction is this label already",
    TargetStatus.REACHABLE: "some allowed change gives the row this label",
    TargetStatus.UNREACHABLE: "no allowed change gives the row this label",
    TargetStatus.NO_INFO: "not decided within the budget",
}


@dataclass(frozen=True)
class TargetResults(RowResults):
    """Results for each row and one wanted label.

    Attributes
    ----------
    target : int
        Position of the label.
    statuses : uint8 array, shape (n_samples,)
        Values of `TargetStatus`.
    distances : float64 array, shape (n_samples,), or None
        Distance of the nearest change that was found, rounded to float64; 0 where the label is predicted already,
        infinite where no change is known. None where only reachability was asked for.
    at_least : float64 array, shape (n_samples,), or None
        Proved lower bound of this distance; equal to it where the change is proved to be nearest.
    """

    target: int
    statuses: NDArray[np.uint8]
    distances: FloatArray | None = None
    at_least: FloatArray | None = None

    @cached_property
    def counts(self) -> dict[TargetStatus, int]:
        found = np.bincount(self.statuses, minlength=len(TargetStatus))
        return {status: int(found[status]) for status in TargetStatus}

    @property
    def is_nearest(self) -> NDArray[np.bool_]:
        """Where the change is proved to be nearest."""
        assert self.distances is not None
        return np.asarray((self.statuses == TargetStatus.REACHABLE) & (self.distances == self.at_least))


def find_label(model: Model, label: str) -> int:
    """The position of a label of a model."""
    if label in model.labels:
        return model.labels.index(label)
    near = difflib.get_close_matches(label, model.labels, 1)
    hint = f"did you mean {shorten(near[0])}?" if near else f"its labels are {list_some(model.labels)}"
    raise RequestError(f"target {shorten(label)}: is no label of {model.source}; {hint}")


def find_targets(
    query: VerificationQuery,
    target: int,
    jobs: int | None = None,
    *,
    is_nearest: bool = False,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> TargetResults:
    """Decide for every row whether an allowed change gives it the label at position `target`.

    Parameters
    ----------
    is_nearest : bool
        Whether to find the nearest such change, at any distance, instead of one within the perturbation.
    budget : Budget or None
        Work allowed for one row of a forest; None finishes every search, however long it takes.
    stop : threading.Event or None
        Once set, the remaining rows of a forest stay undecided.
    """
    if is_nearest:
        check_radii(query)
    start = time.perf_counter()
    predictions, is_correct = query.classify(jobs)
    is_predicted = predictions.only_label[predictions.ids] == target
    goal = goal_of_target(target, query.model.n_labels)
    found = search_rows(
        query,
        lambda row: [] if is_predicted[row] else [goal],
        is_nearest=is_nearest,
        budget=budget if query.model.n_trees > 1 else None,
        jobs=jobs,
        stop=stop,
        on_rows=on_rows,
    )
    confirm(query, found, lambda row, label_set: label_set == (target,))
    statuses = np.full(query.dataset.n_samples, TargetStatus.UNREACHABLE, dtype=np.uint8)
    statuses[sorted(found.reasons)] = TargetStatus.NO_INFO
    statuses[[cost is not None for cost in found.costs]] = TargetStatus.REACHABLE
    statuses[is_predicted] = TargetStatus.PREDICTED
    norm = "linf" if query.boxes.limit is None else query.boxes.limit.norm
    distances = at_least = None
    if is_nearest:
        distances = np.array([math.inf if cost is None else as_distance(norm, cost) for cost in found.costs])
        at_least = np.array([_bound_distance(norm, *each) for each in zip(found.at_least, found.costs, strict=True)])
        distances[is_predicted] = at_least[is_predicted] = 0.0
    reasons = {
        row: reason
        for row, reason in sorted(found.reasons.items())
        if statuses[row] == TargetStatus.NO_INFO
        or (distances is not None and at_least is not None and at_least[row] < distances[row])
    }
    return TargetResults(
        predictions,
        is_correct,
        target,
        statuses,
        distances,
        at_least,
        seconds=time.perf_counter() - start,
        reasons=reasons,
        witness_points=found.points,
    )


def _bound_distance(norm: str, bound: Fraction | float, cost: Fraction | None) -> float:
    """A distance that no change falls below; that of the best change if it is proved to be nearest."""
    if bound == math.inf:
        return math.inf
    if cost is not None and bound >= cost:
        return as_distance(norm, cost)
    return largest_below(norm, bound)


def find_changes(query: VerificationQuery, results: TargetResults) -> Iterator[Witness]:
    """The change of each row that can get the label, in order; each is checked again before it is returned."""
    assert results.witness_points is not None
    rows = np.flatnonzero(results.statuses == TargetStatus.REACHABLE)
    if not len(rows):
        return
    points = results.witness_points[rows]
    perturbed = predict(query.model, points, query.voting)
    allowed = query.subset(rows)
    if results.distances is not None:
        limit = query.boxes.limit
        boxes = allowed.boxes
        if limit is None:
            boxes = boxes_at(query, rows, results.distances[rows])
        else:
            boxes = replace(boxes, limit=replace(limit, epsilon=math.inf))
        allowed = replace(allowed, boxes=boxes)
    for item, row in enumerate(rows.tolist()):
        after = perturbed.sets[perturbed.ids[item]]
        if after != (results.target,) or not is_allowed(allowed, item, points[item]):
            raise AssertionError(f"row {row}: the change does not confirm that the label is reachable")
        before = results.predictions.sets[results.predictions.ids[row]]
        yield Witness(row, points[item], points[item], points[item], before, after)
