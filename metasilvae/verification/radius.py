"""The radius of each row of a forest: a search over the finite set of radii at which anything can change.

When the box of a row grows, what it holds changes only where a bound passes a threshold: at critical radii. Between
two of them the row stays stable or unstable. The complete search of metasilvae.verification.forest decides single
radii, from small ones upwards, because small boxes are decided fast, then by halves. A witness shows that the row is
unstable at the radius of its leaves already, which is often much smaller than the one that was tried.

For each row, the largest radius at which the answer cannot change, and what lies just beyond it.

The radius of a row is the largest float64 number r such that `metasilvae.verification.verifier.verify` finds the row
stable when all radii of the perturbation are multiplied by r (`metasilvae.perturbations.boxes.Enlarged`). With the next
larger number it finds the row unstable. Under ``Ball(1)`` that is the distance in the maximum norm; weights are radii
other than 1.
Whole numbers move by the whole part of a multiple. An infinite radius stays infinite for every r but 0: where values
that may be swapped at will are enough to change the answer, the radius is 0.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import forest_search, reach
from metasilvae._core.verification import radius as kernel
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.execution.threads import over_rows, run_workers
from metasilvae.model import Model, PredictionTable
from metasilvae.perturbations.boxes import Boxes, OneHotGroups
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.verification.forest import STEPS_PER_SLICE, Referee, number_thresholds
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.verification.verifier import WITNESS_BATCH, VerificationQuery, Witness, find_witnesses
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


def find_breaking_radii(
    model: Model,
    X: FloatArray,
    weights: Boxes,
    groups: OneHotGroups,
    voting: str,
    predictions: PredictionTable,
    *,
    budget: Budget,
    jobs: int | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> BreakingRadii:
    """Search for the smallest radius at which each row can get another answer than the given one.

    Parameters
    ----------
    model : Model
        As kernels search it (`metasilvae.verification.verifier.Question.searched`).
    weights : Boxes
        With the radii by which a radius is multiplied, and the limits.
    budget : Budget
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
        searcher = _Searcher(model, X, weights, groups, voting, predictions, found)
        for row in numbers:
            if row >= n_samples:
                return
            searcher.search(row, RemainingBudget(budget, stop, time.perf_counter()))
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
        predictions: PredictionTable,
        found: BreakingRadii,
    ) -> None:
        n_features = X.shape[1]
        self.model, self.X, self.groups, self.predictions, self.found = model, X, groups, predictions, found
        self.weights, self.scale = weights, weights.scale
        thresholds, starts, numbers = number_thresholds(model, n_features)
        self.thresholds = thresholds
        self.features = np.repeat(np.arange(n_features, dtype=np.int32), np.diff(starts))
        is_member = predictions.memberships(model.n_labels).astype(np.uint8)
        # The box that is looked at, and the answer that is expected there; the search reads them when it begins.
        self.lower, self.upper = np.zeros((1, n_features)), np.zeros((1, n_features))
        self.expected = np.zeros(1, dtype=np.int32)
        # Why the last radius that was given up was given up.
        self.reason: str | None = None
        nothing, endless = np.zeros(n_features), np.full(n_features, np.inf)
        scores = VOTINGS[voting].score(model)
        self.forest: Any = forest_search.ForestSearch(
            model.nodes, model.roots, model.max_depth, thresholds, starts, numbers, scores.units, scores.error,
            groups.members, groups.starts, self.lower, self.upper, nothing, nothing, -endless, endless,
            self.expected, is_member, Referee(scores),
        )  # fmt: skip

    def search(self, row: int, remaining: RemainingBudget) -> None:
        """Find the smallest critical radius of a row at which it is unstable, or bounds for it."""
        critical = self._critical_radii(row)
        # Stable at critical[low], unstable at critical[high]; the radii from first to last were tried in vain.
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
        radii = np.empty(len(self.thresholds) + len(self.groups.members))
        n_thresholds = len(self.thresholds)
        kernel.fill_critical_radii(self.thresholds, self.features, self.X, *self.scale, row, radii[:n_thresholds])
        kernel.fill_member_radii(self.groups.members, self.X, *self.scale[:4], row, radii[n_thresholds:])
        return np.unique(radii[np.isfinite(radii)])

    def _decide(self, row: int, radius: float, remaining: RemainingBudget) -> bool | None:
        """Whether a row is stable at a radius; None if that takes too much of what is left."""
        self.lower[0], self.upper[0] = self.weights.bounds_times(row, radius)
        self.expected[0] = self.predictions.ids[row]
        part = remaining.half()
        self.forest.begin(0)
        while True:
            left = STEPS_PER_SLICE if part.budget.steps is None else part.budget.steps - part.steps
            result = self.forest.advance(min(STEPS_PER_SLICE, left))
            remaining.steps += self.forest.n_steps - part.steps
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


@dataclass(frozen=True)
class Radii:
    """How far the answer for each row cannot change.

    Attributes
    ----------
    answers : AnswerTable
        Answer for each unperturbed row.
    is_correct : bool array, shape (n_samples,)
        Whether the answer is the true label and nothing else.
    lower : float64 array, shape (n_samples,)
        The largest radius at which the row was found stable; infinite if it is stable whatever the radius.
    upper : float64 array, shape (n_samples,)
        The radius is at most this: with the next larger number the row was found unstable.
    seconds : float
        Time of the analysis.
    reasons : dict
        For rows with lower < upper, why.
    witness_leaves : int32 array, shape (n_samples, n_trees), or None
        For rows of a forest with a finite upper bound, leaves that meet just beyond it.
    """

    predictions: PredictionTable
    is_correct: NDArray[np.bool_]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    seconds: float
    reasons: dict[int, str] = field(default_factory=dict)
    witness_leaves: NDArray[np.int32] | None = None

    @property
    def n_samples(self) -> int:
        return len(self.lower)

    def subset(self, rows: NDArray[np.intp]) -> Radii:
        """The radii of some rows."""
        return replace(
            self,
            predictions=PredictionTable(self.predictions.sets, self.predictions.ids[rows]),
            is_correct=self.is_correct[rows],
            lower=self.lower[rows],
            upper=self.upper[rows],
            reasons={item: self.reasons[row] for item, row in enumerate(rows.tolist()) if row in self.reasons},
            witness_leaves=None if self.witness_leaves is None else self.witness_leaves[rows],
        )

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
    """The radius of each row, in multiples of the radii of the question.

    Parameters
    ----------
    question : Question
        Under a perturbation with radii, the same for all rows.
    jobs : int or None
        Threads; None means all available cores. The radii do not depend on it.
    budget : Budget or None
        What may be spent on one row of a forest; None finds every radius exactly, however long it takes.
    stop : threading.Event or None
        Once set, the rows of a forest that are left get the bounds that are known.
    on_rows : function
        Called with the number of rows that are done since the last call, by any thread.
    """
    check_radii(query)
    model, X = query.searched, query.dataset.X
    start = time.perf_counter()
    predictions = predict(model, X, query.voting, jobs)
    is_correct = (query.true_labels >= 0) & (predictions.only_label[predictions.ids] == query.true_labels)
    if model.n_trees > 1:
        found = find_breaking_radii(
            model, X, query.boxes, query.groups, query.voting, predictions,
            budget=budget or Budget(), jobs=jobs, stop=stop, on_rows=on_rows,
        )  # fmt: skip
        return Radii(
            predictions, is_correct, _just_below(found.at_least), _just_below(found.at_most),
            time.perf_counter() - start, found.reasons, found.leaves,
        )  # fmt: skip
    breaking = np.empty(len(X))
    groups = query.groups
    group_of = np.full(X.shape[1], -1, dtype=np.int32)
    group_of[groups.members] = np.repeat(np.arange(groups.n_groups, dtype=np.int32), np.diff(groups.starts))

    def fill(first: int, last: int) -> None:
        kernel.fill_breaking_radii(
            model.nodes, model.leaf_predictions.ids, model.max_depth, X, *query.boxes.scale,
            groups.members, groups.starts, group_of, predictions.ids, first, last, breaking,
        )  # fmt: skip

    over_rows(fill, len(X), jobs)
    on_rows(len(X))
    radii = _just_below(breaking)
    return Radii(predictions, is_correct, radii, radii, time.perf_counter() - start)


def _just_below(breaking: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isinf(breaking), np.inf, np.nextafter(breaking, 0.0))


def find_nearest_witnesses(query: VerificationQuery, radii: Radii, jobs: int | None = None) -> Iterator[Witness]:
    """For each row whose answer can change a nearest known perturbed sample with another answer, in order.

    It lies in the box with the smallest radius at which the row was found unstable, and is classified again before it
    is handed out.
    """
    finite = np.flatnonzero(np.isfinite(radii.upper))
    for start in range(0, len(finite), WITNESS_BATCH):
        rows = finite[start : start + WITNESS_BATCH]
        part = replace(query.subset(rows), boxes=boxes_at(query, rows, np.nextafter(radii.upper[rows], np.inf)))
        outcome = Outcome(
            PredictionTable(radii.predictions.sets, radii.predictions.ids[rows]),
            radii.is_correct[rows],
            np.full(len(rows), Stability.UNSTABLE, dtype=np.uint8),
            0.0,
            witness_leaves=None if radii.witness_leaves is None else radii.witness_leaves[rows],
        )
        for witness in find_witnesses(part, outcome, jobs):
            yield replace(witness, row=int(rows[witness.row]))


def boxes_at(query: VerificationQuery, rows: NDArray[np.intp], radii: NDArray[np.float64]) -> Boxes:
    """The boxes of some rows, each with its own radius."""
    bounds = [query.boxes.bounds_times(row, radius) for row, radius in zip(rows, radii.tolist(), strict=True)]
    lower, upper = (np.array([pair[side] for pair in bounds]) for side in (0, 1))
    return query.boxes.with_bounds(lower, upper)


def has_radii(query: VerificationQuery) -> bool:
    """Whether the perturbation of a question consists of radii that can be multiplied, the same for all rows."""
    boxes, X = query.boxes, query.dataset.X
    return boxes.low_center is X and boxes.high_center is X


def in_common_unit(query: VerificationQuery) -> VerificationQuery:
    """The question with radii of 1 if they are the same for all features: the radius of a row is then an epsilon."""
    boxes = query.boxes
    both = np.concatenate([boxes.radius_down, boxes.radius_up])
    if np.isinf(both[0]) or not (both == both[0]).all():
        return query
    ones = np.ones(len(boxes.radius_down))
    return replace(query, boxes=replace(boxes, radius_down=ones, radius_up=ones))


def check_radii(query: VerificationQuery) -> None:
    """Refuse perturbations without radii, and samples that are not admissible themselves."""
    boxes, dataset = query.boxes, query.dataset
    if not has_radii(query):
        raise RequestError(
            "boxes from a file have no radii that could be multiplied; for radii, say what may be perturbed by "
            "--perturbation l_inf or --attack"
        )
    nothing = np.zeros(dataset.n_features)
    empty = reach.find_empty_box(dataset.X, dataset.X, nothing, nothing, boxes.minimum, boxes.maximum)
    if empty is not None:
        row, feature = empty
        raise PerturbationError(
            f"{dataset.source}: row {dataset.number_of(row)}, {dataset.feature_name(feature)} = "
            f"{dataset.X[row, feature]:g} does not lie in [{boxes.minimum[feature]:g}, {boxes.maximum[feature]:g}]; "
            "a radius needs rows that do: widen the range"
        )
    groups = query.groups
    for first, last in zip(groups.starts[:-1], groups.starts[1:], strict=True):
        values = dataset.X[:, groups.members[first:last]]
        is_one_hot = ((values == 0) | (values == 1)).all(axis=1) & ((values == 1).sum(axis=1) == 1)
        if not is_one_hot.all():
            raise PerturbationError(
                f"{dataset.source}: row {dataset.number_of(int(np.argmin(is_one_hot)))} is not one-hot in the features "
                f"{', '.join(map(str, groups.members[first:last]))}; check --tiers"
            )
