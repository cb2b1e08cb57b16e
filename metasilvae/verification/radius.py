"""Certified radii: for each row, the largest radius at which no perturbation changes the prediction.

The certified radius of a row is the largest float64 number r such that `metasilvae.verification.verifier.verify` finds
the row stable when all radii of the perturbation are multiplied by r (`metasilvae.perturbations.boxes.Enlarged`). With
the next larger number it finds the row unstable. Under ``Ball(1)`` this is a distance in the maximum norm; weights are
radii other than 1. Whole numbers move by the whole part of a multiple. An infinite radius stays infinite for every r
but 0: where values that may be swapped at will suffice to change the prediction, the certified radius is 0.

For a tree a kernel computes the radii (verification/radius.pyx). For a forest they are searched: when the box of a row
grows, its content changes only where a bound passes a threshold, that is at finitely many critical radii. The complete
search of metasilvae.verification.forest decides single radii, from small ones upwards, because small boxes are decided
fast, then by bisection. A witness shows that the row is already unstable at the radius of its leaves, which is often
much smaller than the one that was tried.

Under a limit of the total change (norms l0, l1, l2), the certified radius of a row is the largest float64 number below
the exact distance of its nearest adversarial example, for l0 the largest whole number; boxes are not multiplied.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import radius as kernel
from metasilvae._core.verification import reach
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.execution.threads import over_rows, run_workers
from metasilvae.model import PredictionTable
from metasilvae.notebook import describe, show_facts
from metasilvae.perturbations.boxes import Boxes
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.verification.forest import ForestTables
from metasilvae.verification.nearest import (
    check_rows,
    confirm_changes,
    goals_for,
    radii_of,
    refuse_not_one_hot,
    search_rows,
)
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.verdicts import Outcome, RowResults, Stability
from metasilvae.verification.verifier import WITNESS_BATCH, Witness, find_witnesses

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Radii(RowResults):
    """The certified radius of each row.

    Attributes
    ----------
    lower : float64 array, shape (n_samples,)
        The largest radius at which the row was found stable; infinite if it is stable at every radius.
    upper : float64 array, shape (n_samples,)
        Upper bound of the radius: with the next larger number the row was found unstable. Equal to `lower` where the
        radius is known exactly.
    """

    lower: FloatArray
    upper: FloatArray

    def __repr__(self) -> str:
        return describe(
            "Radii", [f"{self.n_samples} rows", *(f"{name} {value}" for name, value in self._facts.items())]
        )

    def _repr_html_(self) -> str:
        return show_facts("Certified radii", {"rows": self.n_samples, **self._facts})

    @property
    def _facts(self) -> dict[str, str]:
        low, middle, high = (float(np.quantile(self.lower, part, method="lower")) for part in (0, 0.5, 1))
        facts = {"minimum": f"{low:.4g}", "median": f"{middle:.4g}", "maximum": f"{high:.4g}"}
        n_open = int((~self.is_exact).sum())
        return {**facts, **({"lower bounds": str(n_open)} if n_open else {})}

    @property
    def is_exact(self) -> NDArray[np.bool_]:
        return np.asarray(self.lower == self.upper)


def find_radii(
    query: VerificationQuery,
    jobs: int | None = None,
    *,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Radii:
    """The certified radius of each row, in multiples of the radii of the query.

    Parameters
    ----------
    query : VerificationQuery
        Under a perturbation with radii, the same for all rows.
    jobs : int or None
        Threads; None means all available cores. The radii do not depend on it.
    budget : Budget or None
        Work allowed for all radii of one row of a forest; None finds every radius exactly, however long it takes.
    stop : threading.Event or None
        Once set, the remaining rows of a forest get the bounds that are known.
    on_rows : function
        Called with the number of rows that are done since the last call, by any thread.
    """
    check_radii(query)
    start = time.perf_counter()
    predictions, is_correct = query.classify(jobs)
    if query.boxes.limit is not None:
        return _find_nearest(query, predictions, is_correct, jobs, budget, stop, on_rows)
    if query.model.n_trees == 1:
        at_least = at_most = _find_tree_radii(query, predictions, jobs)
        on_rows(query.dataset.n_samples)
        leaves, reasons = None, {}
    else:
        found = _BreakingRadii.unknown(query)
        _search_forest(query, predictions, found, budget or Budget(), jobs, stop or threading.Event(), on_rows)
        at_least, at_most, leaves, reasons = found.at_least, found.at_most, found.leaves, found.reasons
    return Radii(
        predictions,
        is_correct,
        _just_below(at_least),
        _just_below(at_most),
        seconds=time.perf_counter() - start,
        reasons=dict(sorted(reasons.items())),
        witness_leaves=leaves,
    )


def _find_nearest(
    query: VerificationQuery,
    predictions: PredictionTable,
    is_correct: NDArray[np.bool_],
    jobs: int | None,
    budget: Budget | None,
    stop: threading.Event | None,
    on_rows: Callable[[int], object],
) -> Radii:
    """Certified radii in the norm of the limit."""
    assert query.boxes.limit is not None
    start = time.perf_counter()
    # The search of a tree is always finished.
    budget = budget if query.model.n_trees > 1 else None
    found = search_rows(
        query, goals_for(query, predictions), is_nearest=True, budget=budget, jobs=jobs, stop=stop, on_rows=on_rows
    )
    confirm_changes(query, found, predictions)
    lower, upper = radii_of(found, query.boxes.limit.norm)
    return Radii(
        predictions,
        is_correct,
        lower,
        upper,
        seconds=time.perf_counter() - start,
        reasons={row: reason for row, reason in sorted(found.reasons.items()) if lower[row] != upper[row]},
        witness_points=found.points,
    )


def _just_below(breaking: FloatArray) -> FloatArray:
    return np.where(np.isinf(breaking), np.inf, np.nextafter(breaking, 0.0))


def _find_tree_radii(query: VerificationQuery, predictions: PredictionTable, jobs: int | None) -> FloatArray:
    """The smallest radius at which each row is unstable."""
    tree, X, groups = query.searched, query.dataset.X, query.groups
    breaking = np.empty(len(X))
    group_of = np.full(X.shape[1], -1, dtype=np.int32)
    group_of[groups.members] = np.repeat(np.arange(groups.n_groups, dtype=np.int32), np.diff(groups.starts))
    arrays = groups.arrays

    def fill(first: int, last: int) -> None:
        kernel.fill_breaking_radii(
            tree.nodes, tree.leaf_predictions.ids, tree.max_depth, X, *query.boxes.scale,
            *arrays, query.boxes.options, group_of, query.boxes.dropping, predictions.ids, first, last, breaking,
        )  # fmt: skip

    over_rows(fill, len(X), jobs)
    return breaking


@dataclass(frozen=True)
class _BreakingRadii:
    """Bounds of the smallest radius at which each row of a forest is unstable.

    Attributes
    ----------
    at_least, at_most : float64 arrays, shape (n_samples,)
        Equal where it is known exactly; infinite where no radius is large enough, or none is known.
    leaves : int32 array, shape (n_samples, n_trees)
        Where at_most is finite, a leaf of each tree; they intersect in the box with that radius.
    reasons : dict
        For rows that are not known exactly, why.
    """

    at_least: FloatArray
    at_most: FloatArray
    leaves: NDArray[np.int32]
    reasons: dict[int, str] = field(default_factory=dict)

    @classmethod
    def unknown(cls, query: VerificationQuery) -> _BreakingRadii:
        n_samples = query.dataset.n_samples
        leaves = np.zeros((n_samples, query.model.n_trees), dtype=np.int32)
        return cls(np.zeros(n_samples), np.full(n_samples, np.inf), leaves)


def _search_forest(
    query: VerificationQuery,
    predictions: PredictionTable,
    found: _BreakingRadii,
    budget: Budget,
    jobs: int | None,
    stop: threading.Event,
    on_rows: Callable[[int], object],
) -> None:
    """Search for the smallest radius at which each row can get another prediction."""
    tables = ForestTables(query, predictions)
    n_samples = query.dataset.n_samples
    numbers = itertools.count()

    def work() -> None:
        searcher = _RadiusSearch(query, predictions, tables, found)
        for row in numbers:
            if row >= n_samples:
                return
            searcher.search(row, RemainingBudget(budget, stop))
            on_rows(1)

    run_workers(work, n_samples, jobs, stop)


class _RadiusSearch:
    """Searches row by row; each thread needs its own."""

    def __init__(
        self, query: VerificationQuery, predictions: PredictionTable, tables: ForestTables, found: _BreakingRadii
    ) -> None:
        n_features = query.dataset.n_features
        self.query, self.predictions, self.found = query, predictions, found
        self.scale = query.boxes.scale
        self.thresholds = tables.thresholds
        self.features = np.repeat(np.arange(n_features, dtype=np.int32), np.diff(tables.starts))
        # The box to search and the prediction expected there; the search reads them when it begins.
        self.lower, self.upper = np.zeros((1, n_features)), np.zeros((1, n_features))
        self.expected = np.zeros(1, dtype=np.int32)
        # Why the last radius that is undecided was given up.
        self.reason: str | None = None
        zero, infinite = np.zeros(n_features), np.full(n_features, np.inf)
        boxes = (self.lower, self.upper, zero, zero, -infinite, infinite)
        has_droppable = query.boxes.droppable is not None
        self.dropping = np.zeros((1 if has_droppable else 0, n_features), dtype=np.uint8)
        # The options that the row allows, if not all rows allow all of them.
        n_rows = 0 if query.boxes.allowed is None else 1
        self.options = np.zeros((n_rows, *query.boxes.options.shape[1:]), dtype=np.uint64)
        self.forest = tables.make_search(boxes, self.dropping, self.options, self.expected)

    def search(self, row: int, remaining: RemainingBudget) -> None:
        """Find the smallest critical radius of a row at which it is unstable, or bounds for it."""
        critical = self._critical_radii(row)
        # Stable at critical[low], unstable at critical[high]; the radii from first to last were tried without a result.
        low, high = -1, len(critical)
        first, last = len(critical), -1
        step = 1
        reason = None
        while high - low > 1:
            reason = remaining.reason()
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
            is_stable = self._decide(row, float(critical[place]), remaining)
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
        X, members = self.query.dataset.X, self.query.groups.members
        radii = np.empty(len(self.thresholds) + len(members))
        n_thresholds = len(self.thresholds)
        kernel.fill_critical_radii(self.thresholds, self.features, X, *self.scale, row, radii[:n_thresholds])
        kernel.fill_member_radii(members, X, *self.scale[:4], row, radii[n_thresholds:])
        # Values may become missing at every radius but 0.
        smallest = [np.nextafter(0.0, 1.0)] if len(self.dropping) else []
        return np.unique([*radii[np.isfinite(radii)], *smallest])

    def _decide(self, row: int, radius: float, remaining: RemainingBudget) -> bool | None:
        """Whether a row is stable at a radius; None if that takes too much of the remaining budget."""
        self.lower[0], self.upper[0] = self.query.boxes.bounds_times(row, radius)
        if self.query.boxes.droppable is not None:
            self.dropping[0] = self.query.boxes.droppable[row] if radius > 0 else 0
        if self.query.boxes.allowed is not None:
            self.options[0] = self.query.boxes.allowed[row]
        self.expected[0] = self.predictions.ids[row]
        self.forest.begin(0)
        part = remaining.half()
        status, reason = part.run(self.forest)
        remaining.steps += part.steps
        if reason is not None:
            self.reason = reason
            return None
        if status == SearchStatus.FOUND:
            self.forest.witness(self.found.leaves[row])
        return bool(status == SearchStatus.ABSENT)

    def _radius_of_witness(self, row: int) -> float:
        if self.query.groups.n_groups or self.query.boxes.droppable is not None:
            # Where the leaves intersect, a point may need more to take options of groups, or less by dropping values.
            return np.inf
        forest = self.query.searched
        radius: float = kernel.find_radius_of_leaves(
            forest.nodes, forest.parents, forest.leaf_nodes, self.found.leaves[row], self.query.dataset.X,
            *self.scale, row,
        )  # fmt: skip
        return radius


def find_nearest_witnesses(query: VerificationQuery, radii: Radii, jobs: int | None = None) -> Iterator[Witness]:
    """The nearest known witness of each row whose prediction can change, in order.

    It lies in the box with the smallest radius at which the row was found unstable, and is classified again before it
    is returned.
    """
    finite = np.flatnonzero(np.isfinite(radii.upper))
    for start in range(0, len(finite), WITNESS_BATCH):
        rows = finite[start : start + WITNESS_BATCH]
        part, known = query.subset(rows), radii.subset(rows)
        if query.boxes.limit is not None:
            part = replace(part, boxes=replace(part.boxes, limit=replace(query.boxes.limit, epsilon=np.inf)))
        else:
            part = replace(part, boxes=boxes_at(query, rows, np.nextafter(known.upper, np.inf)))
        unstable = np.full(len(rows), Stability.UNSTABLE, dtype=np.uint8)
        outcome = Outcome(
            known.predictions, known.is_correct, unstable, witness_leaves=known.witness_leaves,
            witness_points=known.witness_points,
        )  # fmt: skip
        for witness in find_witnesses(part, outcome, jobs):
            yield replace(witness, row=int(rows[witness.row]))


def boxes_at(query: VerificationQuery, rows: NDArray[np.intp], radii: NDArray[np.float64]) -> Boxes:
    """The boxes of some rows, each with its own radius."""
    bounds = [query.boxes.bounds_times(row, radius) for row, radius in zip(rows, radii.tolist(), strict=True)]
    lower, upper = (np.array([pair[side] for pair in bounds]) for side in (0, 1))
    droppable = None
    if query.boxes.droppable is not None:
        droppable = (query.boxes.droppable[rows] & (radii > 0)[:, np.newaxis]).astype(np.uint8)
    allowed = None if query.boxes.allowed is None else query.boxes.allowed[rows]
    return replace(query.boxes.with_bounds(lower, upper, droppable), allowed=allowed)


def has_radii(query: VerificationQuery) -> bool:
    """Whether the rows of a query have certified radii: in a norm, or multiples of radii that all rows share."""
    boxes, X = query.boxes, query.dataset.X
    return boxes.limit is not None or (boxes.low_center is X and boxes.high_center is X)


def in_common_unit(query: VerificationQuery) -> VerificationQuery:
    """The query with radii of 1 if they are the same for all features; certified radii are then values of epsilon."""
    boxes = query.boxes
    if boxes.limit is not None:
        return query
    both = np.concatenate([boxes.radius_down, boxes.radius_up])
    if np.isinf(both[0]) or not (both == both[0]).all():
        return query
    ones = np.ones(len(boxes.radius_down))
    return replace(query, boxes=replace(boxes, radius_down=ones, radius_up=ones))


def check_radii(query: VerificationQuery) -> None:
    """Refuse perturbations without radii, and samples that are not admissible themselves."""
    boxes, dataset = query.boxes, query.dataset
    if boxes.limit is not None:
        check_rows(query)
        return
    if not has_radii(query):
        raise RequestError(
            "boxes from a file, radii relative to the value and listed swaps have no common radii to multiply; "
            "certified radii need --perturbation l_inf, or an attack file without them"
        )
    zero = np.zeros(dataset.n_features)
    empty = reach.find_empty_box(dataset.X, dataset.X, zero, zero, boxes.minimum, boxes.maximum)
    if empty is not None:
        row, feature = empty
        raise PerturbationError(
            f"{dataset.source}: row {dataset.number_of(row)}, {dataset.feature_name(feature)} = "
            f"{dataset.X[row, feature]:g} does not lie in [{boxes.minimum[feature]:g}, {boxes.maximum[feature]:g}]; "
            "certified radii need rows inside the range: widen it"
        )
    refuse_not_one_hot(query)
