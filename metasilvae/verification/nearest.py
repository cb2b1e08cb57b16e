"""The nearest change of a row that gives it another prediction, or a wanted one: searches over costs of changes.

A goal is a list of conditions on scores, each that one label scores more than another one (or at least as much). A row
changes its prediction if one of several goals is reached, and gets a wanted label if its score exceeds all others. The
kernel (cost_search.pyx) proposes points; here their cost and their scores are checked exactly, whatever was rounded.

With a limit, the search ends at the first point within it. To find the nearest point, the limit grows: small limits are
decided fast. Once there is a point, its cost is the limit, until nothing cheaper is left.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification.cost_search import CostSearch
from metasilvae.errors import PerturbationError
from metasilvae.execution.threads import run_workers
from metasilvae.model import LabelSet, PredictionTable
from metasilvae.perturbations.boxes import NormLimit
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.verification.distances import CellCosts, exact_power, largest_below
from metasilvae.verification.query import VerificationQuery
from metasilvae.voting import VOTINGS, Scores

FloatArray = NDArray[np.float64]
# Label ahead, label behind, and whether equal scores do not suffice.
Condition = tuple[int, int, bool]
Goal = tuple[Condition, ...]
# Boxes between two looks at the clock.
STEPS_PER_SLICE = 16
# How fast the limit grows: where a look at the whole box was enough, and where a search was needed.
FAST_GROWTH, GROWTH = 4.0, 1.5


def goals_of_change(label_set: LabelSet, n_labels: int) -> list[Goal]:
    """Goals of which one is reached if and only if the prediction is not this label set."""
    one, *others = label_set
    rivals = [((label, one, False),) for label in range(n_labels) if label not in label_set]
    ties = [((ahead, behind, True),) for label in others for ahead, behind in ((label, one), (one, label))]
    return [*rivals, *ties]


def goal_of_target(target: int, n_labels: int) -> Goal:
    """The goal that the prediction is one label and no other."""
    return tuple((target, label, True) for label in range(n_labels) if label != target)


@dataclass(frozen=True)
class NearestPoints:
    """What the searches found for each row.

    Attributes
    ----------
    costs : list of Fraction or None
        Exact cost of the nearest point that was found.
    points : float64 array, shape (n_samples, n_features)
        These points; the rows themselves where there is none.
    at_least : list of Fraction or float
        Proved: every point that reaches a goal costs at least so much; infinite if there is none.
    reasons : dict
        For rows whose search was not finished, why.
    row_seconds : float64 array, shape (n_samples,)
    """

    costs: list[Fraction | None]
    points: FloatArray
    at_least: list[Fraction | float]
    reasons: dict[int, str]
    row_seconds: FloatArray


def search_rows(
    query: VerificationQuery,
    goals: Callable[[int], Sequence[Goal]],
    *,
    is_nearest: bool,
    budget: Budget | None = None,
    jobs: int | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> NearestPoints:
    """Search for a point of each row that reaches one of its goals.

    Parameters
    ----------
    query : VerificationQuery
        Its boxes, and their limit if they have one, are what is allowed.
    goals : function of a row
    is_nearest : bool
        Whether the nearest point is wanted, at any distance; otherwise any point within the limit. In the maximum norm
        the radii of the boxes are multiplied for the nearest one.
    """
    check_rows(query)
    n_samples = query.dataset.n_samples
    stop = threading.Event() if stop is None else stop
    found = NearestPoints([None] * n_samples, query.dataset.X.copy(), [math.inf] * n_samples, {}, np.zeros(n_samples))
    thresholds, starts, node_cuts = query.searched.numbered_thresholds
    # Data may have more features than the model.
    starts = np.pad(starts, (0, query.dataset.n_features - query.model.n_features), mode="edge")
    tables = thresholds, starts, node_cuts
    scores = VOTINGS[query.voting].score(query.searched)
    numbers = itertools.count()

    def work() -> None:
        search = _RowSearch(query, tables, scores, is_nearest)
        for row in numbers:
            if row >= n_samples:
                return
            start = time.perf_counter()
            reason = search.run(row, goals(row), RemainingBudget(budget or Budget(), stop))
            found.costs[row], found.at_least[row] = search.best, search.at_least
            if search.best_point is not None:
                found.points[row] = search.best_point
            if reason is not None:
                found.reasons[row] = reason
            found.row_seconds[row] = time.perf_counter() - start
            on_rows(1)

    run_workers(work, n_samples, jobs, stop)
    if is_nearest and query.boxes.limit is not None and query.boxes.limit.norm == "l0":
        _shorten(query, goals, found, budget, jobs, stop)
    return found


def _shorten(
    query: VerificationQuery,
    goals: Callable[[int], Sequence[Goal]],
    found: NearestPoints,
    budget: Budget | None,
    jobs: int | None,
    stop: threading.Event,
) -> None:
    """Make changes of few features small: among those of the same features, the one with the smallest sum."""
    rows = np.array([row for row, cost in enumerate(found.costs) if cost is not None], dtype=np.intp)
    if not len(rows):
        return
    part = query.subset(rows)
    X = part.dataset.X
    lower, upper = part.boxes.all_bounds
    is_kept = found.points[rows] == X
    boxes = part.boxes.with_bounds(np.where(is_kept, X, lower), np.where(is_kept, X, upper))
    limit = NormLimit("l1", math.inf, np.ones(query.dataset.n_features))
    again = search_rows(
        replace(part, boxes=replace(boxes, limit=limit)), lambda item: goals(int(rows[item])), is_nearest=True,
        budget=budget, jobs=jobs, stop=stop,
    )  # fmt: skip
    for item, row in enumerate(rows.tolist()):
        if again.costs[item] is not None:
            found.points[row] = again.points[item]


class _RowSearch:
    """Searches row by row; each thread needs its own."""

    def __init__(
        self,
        query: VerificationQuery,
        tables: tuple[FloatArray, NDArray[np.int32], NDArray[np.int32]],
        scores: Scores,
        is_nearest: bool,
    ) -> None:
        thresholds, starts, node_cuts = tables
        model, groups = query.searched, query.groups
        self._cells = CellCosts(query, thresholds, starts, has_fixed_boxes=not is_nearest)
        self._scores, self._slack = scores, 2 * scores.error * model.n_trees
        self._is_nearest = is_nearest
        limit = query.boxes.limit
        self._norm = self._cells.norm
        self._epsilon = math.inf if limit is None or is_nearest else limit.epsilon
        self._kernel = CostSearch(
            model.nodes, model.roots, model.max_depth, starts, node_cuts, scores.units, self._slack,
            *groups.arrays, self._cells.is_table, self._cells.zero_cells, self._cells.one_cells, limit is not None,
            self._norm in ("l0", "linf"), self._is_affordable,
        )  # fmt: skip
        self._leaves = np.zeros(model.n_trees, dtype=np.int32)
        # What a point may cost, exactly; at most so much, or less than the best one.
        self._limit: Fraction | float = math.inf
        self.best: Fraction | None = None
        self.best_point: FloatArray | None = None
        self.at_least: Fraction | float = math.inf

    def run(self, row: int, goals: Sequence[Goal], remaining: RemainingBudget) -> str | None:
        """Search for one row; returns why the search was not finished, if it was not."""
        self.best = self.best_point = None
        self.at_least = 0.0
        reason = remaining.reason()
        if reason is not None:
            return reason
        if not goals:
            self.at_least = math.inf
            return None
        self._cells.set_row(row)
        if self._is_nearest:
            return self._find_nearest(goals, remaining)
        epsilon = self._epsilon
        self._limit = exact_power(self._norm, Fraction(epsilon)) if math.isfinite(epsilon) else math.inf
        self._set_limit()
        reason = self._search_goals(goals, remaining)
        if reason is None and self.best is None:
            self.at_least = math.inf
        return reason

    def _find_nearest(self, goals: Sequence[Goal], remaining: RemainingBudget) -> str | None:
        smallest, largest = self._cells.cost_range
        limit = smallest
        if self._norm == "l0" and math.isfinite(limit):
            limit = math.ceil(limit)
        while True:
            limit = limit if limit < largest else math.inf
            self._limit = Fraction(limit) if math.isfinite(limit) else math.inf
            self._set_limit()
            n_before = remaining.steps
            reason = self._search_goals(goals, remaining)
            if reason is not None:
                return reason
            if self.best is not None:
                self.at_least = self.best
                return None
            # No point costs as much as the limit or less.
            self.at_least = self._limit
            if limit == math.inf:
                return None
            limit *= FAST_GROWTH if remaining.steps - n_before <= len(goals) else GROWTH
            if self._norm == "l0":
                limit = math.ceil(limit)

    def _set_limit(self) -> None:
        cells = self._cells
        self._kernel.set_row(cells.costs, cells.home, cells.is_free, cells.option_costs, self._rounded_limit())

    def _rounded_limit(self) -> float:
        """The limit as a float64 number that is not smaller."""
        if self.best is not None:
            if self._norm == "l0":
                return float(math.ceil(self.best) - 1)
            if self._norm == "linf":
                return math.nextafter(float(self.best), -math.inf)
        limit = min(self._limit, math.inf if self.best is None else self.best)
        if limit == math.inf:
            return math.inf
        try:
            rounded = float(limit)
        except OverflowError:
            return math.inf
        return rounded if Fraction(rounded) >= limit else math.nextafter(rounded, math.inf)

    def _allows(self, cost: Fraction) -> bool:
        return cost <= self._limit if self.best is None else cost < self.best

    def _is_affordable(self, cells: NDArray[np.int32]) -> bool:
        """Whether the nearest point of some cells is within the limit, exactly; called by the kernel."""
        return self._allows(self._cells.exact(np.asarray(cells)))

    def _search_goals(self, goals: Sequence[Goal], remaining: RemainingBudget) -> str | None:
        for number, goal in enumerate(goals):
            self._kernel.begin(np.array(goal, dtype=np.int32).reshape(-1, 3))
            reason = self._search_goal(goal, remaining)
            if reason is not None:
                if number + 1 == len(goals) and self._is_nearest:
                    self.at_least = max(self.at_least, min(self._kernel.least_open_cost(), self._bound_of_best()))
                return reason
            if self.best is not None and not self._is_nearest:
                return None
        return None

    def _bound_of_best(self) -> Fraction | float:
        return math.inf if self.best is None else self.best

    def _search_goal(self, goal: Goal, remaining: RemainingBudget) -> str | None:
        while True:
            n_before = self._kernel.n_steps
            left = STEPS_PER_SLICE
            if remaining.budget.steps is not None:
                left = max(min(left, remaining.budget.steps - remaining.steps), 1)
            status = self._kernel.advance(left)
            remaining.steps += self._kernel.n_steps - n_before
            if status == SearchStatus.ABSENT:
                return None
            if status == SearchStatus.CANDIDATE and self._take(goal):
                return None
            reason = remaining.reason()
            if reason is not None:
                return reason

    def _take(self, goal: Goal) -> bool:
        """Check a candidate exactly; returns whether the search has what it needs."""
        cells = np.asarray(self._kernel.point)
        cost = self._cells.exact(cells)
        if not self._allows(cost):
            # No other point of the box costs less.
            self._kernel.discard()
            return False
        broken = self._find_broken(goal)
        if broken is not None:
            self._kernel.divide(broken)
            return False
        self.best, self.best_point = cost, self._cells.point(cells)
        if not self._is_nearest:
            return True
        self._kernel.lower_limit(self._rounded_limit())
        self._kernel.discard()
        return False

    def _find_broken(self, goal: Goal) -> int | None:
        """The first condition that the candidate does not keep, by exact scores; None if it keeps all."""
        if self._slack == 0:
            return None
        self._kernel.leaves(self._leaves)
        leaves = self._leaves.tolist()
        for number, (ahead, behind, is_strict) in enumerate(goal):
            units = int((self._scores.units[leaves, ahead] - self._scores.units[leaves, behind]).sum())
            if units > self._slack:
                continue
            exact = self._scores.exact
            margin = sum((exact(leaf, ahead) - exact(leaf, behind) for leaf in leaves), Fraction(0))
            if margin < 0 or (margin == 0 and is_strict):
                return number
        return None


def check_rows(query: VerificationQuery) -> None:
    """Refuse rows that are not allowed themselves: distances begin at the row."""
    dataset = query.dataset
    if query.boxes.droppable is not None:
        raise PerturbationError(
            f'{dataset.source}: values may become missing (missing = "may appear"), which this search does not take; '
            'write missing = "stays"'
        )
    lower, upper = query.boxes.all_bounds
    X = dataset.X
    is_out = (lower > X) | (upper < X)
    if is_out.any():
        row, feature = np.argwhere(is_out)[0]
        raise PerturbationError(
            f"{dataset.source}: row {dataset.number_of(int(row))}, {dataset.feature_name(int(feature))} = "
            f"{X[row, feature]:g} does not lie in [{lower[row, feature]:g}, {upper[row, feature]:g}]; distances need "
            "rows inside the range: widen it"
        )
    refuse_not_one_hot(query)


def refuse_not_one_hot(query: VerificationQuery) -> None:
    """Refuse rows that are not one-hot in some group."""
    dataset = query.dataset
    for group in query.groups.groups:
        is_bad = group.find_options(dataset.X) < 0
        if is_bad.any():
            raise PerturbationError(
                f"{dataset.source}: row {dataset.number_of(int(np.argmax(is_bad)))} is not one-hot in the features "
                f"{', '.join(map(str, group.members))}; check --tiers"
            )


def confirm(query: VerificationQuery, found: NearestPoints, is_reached: Callable[[int, LabelSet], bool]) -> None:
    """Classify all points that were found again, by the model itself.

    Parameters
    ----------
    is_reached : function of a row and a label set
        Whether the prediction is what the row was searched for.
    """
    rows = [row for row, cost in enumerate(found.costs) if cost is not None]
    if rows:
        predictions = predict(query.model, found.points[rows], query.voting)
        for item, row in enumerate(rows):
            if not is_reached(row, predictions.sets[predictions.ids[item]]):
                raise AssertionError(f"row {row}: the point that was found does not have the expected prediction")


def confirm_changes(query: VerificationQuery, found: NearestPoints, predictions: PredictionTable) -> None:
    """The same for points with another prediction than the row."""
    confirm(query, found, lambda row, label_set: label_set != predictions.sets[predictions.ids[row]])


def radii_of(found: NearestPoints, norm: str) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of the certified radii: the largest epsilon below the nearest point of each row."""
    lower = np.array([largest_below(norm, cost) for cost in found.at_least])
    upper = np.array([math.inf if cost is None else largest_below(norm, cost) for cost in found.costs])
    return np.minimum(lower, upper), upper


def goals_for(query: VerificationQuery, predictions: PredictionTable) -> Callable[[int], Sequence[Goal]]:
    """For each row the goals of another prediction."""
    goals = [goals_of_change(label_set, query.model.n_labels) for label_set in predictions.sets]
    return lambda row: goals[predictions.ids[row]]
