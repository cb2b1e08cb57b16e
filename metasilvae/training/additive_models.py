"""Additive models: one tree for each feature, whose scores add up.

In a box each feature has its own worst value, so that the worst scores of trees of different features add up exactly.
Stumps of one feature, summed up, are such a tree.

In the norms l0, l1 and l2 features share what may change, so that the worst scores of trees do not add up: each tree
would be attacked with the whole limit. If each tree tests one feature only, the attack is a knapsack problem over the
features, and its relaxation at a price for each unit of cost is nearly exact (cython_ext/training/additive.pyx). The
bound of a sample's margin is concave in its price, and the logistic loss at the bound is convex in all scores.

A tree is a step function of its feature. Many small steps, also between values that occur in no row, make each part of
a change worth little; a few high steps make only large changes worth something. Training chooses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import additive as kernel
from metasilvae._core.training.boosting_codes import fill_codes
from metasilvae.dataset import Dataset, RowWeights
from metasilvae.encoding import LARGEST_NUMBER
from metasilvae.execution.threads import over_rows
from metasilvae.model import LeafKind, Model, join_trees
from metasilvae.perturbations.boxes import Boxes
from metasilvae.prediction import find_leaves
from metasilvae.training.boosted_trees import (
    VALUE_UNIT,
    BoostedTree,
    FloatArray,
    Tests,
    choose_thresholds,
    spread_values,
)
from metasilvae.training.checkpoint.files import damaged, take, take_array
from metasilvae.training.samples import POWERS, build_tree, give_directions

MOST_THRESHOLDS: int = kernel.MOST_THRESHOLDS
# With many samples and features there are fewer thresholds: so many cells of samples in all.
MOST_CELLS = 200_000_000
FEWEST_THRESHOLDS = 15
# Rows that thresholds are chosen by.
MOST_ROWS = 10_000
# A bound must exceed this to prove anything: more than the rounding of its sum.
SLACK = 1e-6
# Squares of epsilon that costs are divided by; beyond, squares are rounded to 0 or infinity.
SMALLEST_SQUARE, LARGEST_SQUARE = 1e-290, 1e290


@dataclass(frozen=True)
class CellTable:
    """The cells of all features: between thresholds, and one for missing values after them.

    Attributes
    ----------
    thresholds : list of float64 arrays
        By feature, increasing.
    starts : int64 array, shape (n_features + 1,)
        Where the cells of each feature begin, and the end.
    last_value, first_value : float64 arrays, shape (n_cells,)
        The largest and the smallest possible value in each cell.
    """

    thresholds: list[FloatArray]
    starts: NDArray[np.int64]
    last_value: FloatArray
    first_value: FloatArray

    @classmethod
    def of(cls, dataset: Dataset, boxes: Boxes, n_thresholds: int, seed: int, jobs: int | None = 1) -> CellTable:
        if boxes.limit is None:
            return cls.of_thresholds(choose_thresholds(dataset.X, boxes, n_thresholds, seed, jobs), boxes)
        rows = np.arange(dataset.n_samples)
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng([seed, 5]).permutation(len(rows))[:MOST_ROWS])
        is_movable = (boxes.radius_down > 0) | (boxes.radius_up > 0)
        is_movable[boxes.domains.features] = False
        is_movable[boxes.groups.members] = False
        thresholds: list[FloatArray] = [np.zeros(0)] * dataset.n_features

        def choose(start: int, stop: int) -> None:
            for feature in range(start, stop):
                thresholds[feature] = choose_steps(dataset.X[rows, feature], n_thresholds, bool(is_movable[feature]))

        over_rows(choose, dataset.n_features, jobs)
        return cls.of_thresholds(thresholds, boxes)

    @classmethod
    def of_thresholds(cls, thresholds: list[FloatArray], boxes: Boxes) -> CellTable:
        starts = np.cumsum([0, *(len(each) + 2 for each in thresholds)]).astype(np.int64)
        last, first = np.full(starts[-1], np.inf), np.full(starts[-1], -np.inf)
        for feature, values in enumerate(thresholds):
            begin, end = starts[feature], starts[feature + 1] - 2
            last[begin:end] = boxes.domains.up_to(feature, values)
            first[begin + 1 : end + 1] = boxes.domains.above(feature, values)
        return cls(thresholds, starts, last, first)

    @property
    def n_features(self) -> int:
        return len(self.thresholds)

    @property
    def n_cells(self) -> int:
        return int(self.starts[-1])

    @property
    def missing(self) -> NDArray[np.int64]:
        """The cells of missing values."""
        return self.starts[1:] - 1


def count_thresholds(dataset: Dataset) -> int:
    """The largest number of thresholds of a feature: fewer with many samples and features."""
    return min(MOST_THRESHOLDS, max(FEWEST_THRESHOLDS, MOST_CELLS // max(1, dataset.X.size)))


def choose_steps(values: FloatArray, n_most: int, is_movable: bool) -> FloatArray:
    """Thresholds of a feature: midpoints between its values, and for changes of any size also an even grid."""
    found, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(found) < 2 or n_most < 1:
        return np.zeros(0)
    if not is_movable:
        return spread_values(found, counts, n_most)
    middle = spread_values(found, counts, (n_most + 1) // 2)
    n_even = n_most - len(middle)
    place = (np.arange(n_even) + 0.5) / max(n_even, 1)
    even = found[0] * (1 - place) + found[-1] * place
    return np.unique(np.concatenate([middle, even[(found[0] <= even) & (even < found[-1])]]))


@dataclass(frozen=True)
class CostModel:
    """What changes of features cost, as parts of the limit.

    Attributes
    ----------
    factors : float64 array, shape (n_features,)
    fixed : float64 array, shape (n_features,)
        Cost of any change; -1 where it grows with the size of the change.
    """

    factors: FloatArray
    fixed: FloatArray
    power: int
    limit: float

    @classmethod
    def of(cls, boxes: Boxes) -> CostModel:
        """The costs of a limit; without one, all changes within a box cost nothing."""
        if boxes.limit is None:
            nothing = np.zeros(len(boxes.minimum))
            return cls(nothing, nothing, 0, 1.0)
        norm, epsilon, costs = boxes.limit.norm, boxes.limit.epsilon, boxes.limit.costs
        power = POWERS[norm]
        limit = epsilon
        if norm == "l2":
            limit = epsilon * epsilon
            if epsilon and not SMALLEST_SQUARE <= limit <= LARGEST_SQUARE:
                # Its square is out of range, so that it divides the costs before they are squared.
                with np.errstate(over="ignore"):
                    costs, limit = np.minimum(costs / epsilon, LARGEST_NUMBER), 1.0
        fixed = np.full(len(costs), -1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if norm == "l0":
                fixed = np.where(costs == 0, 0.0, costs / limit)
            for group in boxes.groups.lists:
                whole = costs[group].max(initial=0.0) ** max(power, 1)
                # Half for the member that is 1 no more, half for the one that becomes 1.
                fixed[group] = 0.0 if whole == 0 else whole / 2 / limit
        return cls(np.ascontiguousarray(costs, dtype=np.float64), fixed, power, limit)


class AdditiveSamples:
    """Samples with their cells, and what is known about their margins.

    Attributes
    ----------
    prices, margins, bounds : float64 arrays, shape (n_samples, n_rivals)
        One rival for two classes; otherwise by label, and that of the sample itself is not used.
    """

    def __init__(self, table: CellTable, dataset: Dataset, boxes: Boxes, jobs: int | None = 1) -> None:
        self.table, self.dataset = table, dataset
        self.costs = CostModel.of(boxes)
        self.X = dataset.X
        self.y = dataset.y
        weights = dataset.weights
        self.row_weights = np.ones(len(self.y)) if weights is None else np.ascontiguousarray(weights.by_mean)
        self.weights: RowWeights | None = weights
        self.home, self.low, self.high = _find_cells(table, dataset, boxes, jobs)
        over_rows(
            lambda start, stop: kernel.limit_reach(
                self.X, *self.cell_arguments, self.home, start, stop, self.low, self.high
            ),
            dataset.n_samples, jobs,
        )  # fmt: skip
        n_rivals = 1 if dataset.n_labels == 2 else dataset.n_labels
        self.prices = np.full((dataset.n_samples, n_rivals), 0.0 if boxes.limit is None else 0.5)
        self.margins, self.bounds = np.zeros((2, dataset.n_samples, n_rivals))
        self._is_stable_wrong = np.zeros(dataset.n_samples, dtype=np.bool_)

    @property
    def n_samples(self) -> int:
        return len(self.y)

    @property
    def cell_arguments(self) -> tuple[NDArray[np.int64], FloatArray, FloatArray, FloatArray, FloatArray, int, float]:
        """Cells and costs, in the order in which kernels take them."""
        table, costs = self.table, self.costs
        return (
            table.starts, table.last_value, table.first_value, costs.factors, costs.fixed, costs.power, costs.limit,
        )  # fmt: skip

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Fractions of samples that are correct, and that the bounds prove to be stable and robust."""
        is_correct = (self.margins > 0).all(axis=1)
        is_robust = is_correct & (self.bounds > SLACK).all(axis=1)
        fraction: Callable[..., Any] = np.mean if self.weights is None else self.weights.fraction
        parts = is_correct, is_robust | (self._is_stable_wrong & ~is_correct), is_robust
        correct, stable, robust = (float(fraction(part)) for part in parts)
        return correct, stable, robust

    def move_base(self, shift: float) -> None:
        """Follow a change of the base score of two classes, which no attack depends on."""
        move = np.where(self.y == 1, shift, -shift)[:, None]
        self.margins += move
        self.bounds += move

    def as_predicted(self) -> tuple[AdditiveSamples, NDArray[np.int32]]:
        """The same samples with the wrong labels that they get, and the numbers of these samples."""
        rows = np.flatnonzero((self.margins < -SLACK).any(axis=1)).astype(np.int32)
        other = copy.copy(self)
        other.y = self.y.copy()
        other.y[rows] = 1 - self.y[rows] if self.margins.shape[1] == 1 else self.margins[rows].argmin(axis=1)
        other.prices, other.margins, other.bounds = self.prices.copy(), self.margins.copy(), self.bounds.copy()
        return other, rows

    def note_predicted(self, other: AdditiveSamples, rows: NDArray[np.int32]) -> None:
        """Take over which of the wrong samples are stable."""
        self._is_stable_wrong[:] = False
        self._is_stable_wrong[rows] = (other.bounds[rows] > SLACK).all(axis=1)


def _find_cells(
    table: CellTable, dataset: Dataset, boxes: Boxes, jobs: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """The cell of each value, and the first and last ones that its box reaches, shape (n_samples, n_features)."""
    shape = dataset.n_features, dataset.n_samples
    own, low, high = (np.empty(shape, dtype=np.uint8) for _ in range(3))
    counts = np.cumsum([0, *map(len, table.thresholds)]).astype(np.int64)
    joined = np.concatenate([*table.thresholds, np.zeros(0)])
    over_rows(
        lambda start, stop: fill_codes(dataset.X, *boxes.arrays, joined, counts, start, stop, own, low, high),
        dataset.n_samples, jobs,
    )  # fmt: skip
    found = []
    is_missing = np.isnan(dataset.X)
    missing = np.diff(table.starts) - 1
    for each in (own, low, high):
        cells = np.ascontiguousarray(each.T)
        if is_missing.any():
            cells = np.where(is_missing, missing, cells).astype(np.uint8)
        found.append(cells)
    return found[0], np.minimum(found[1], found[0]), np.maximum(found[2], found[0])


@dataclass
class StepSizes:
    """Moving averages of first and second moments of the derivatives (Adam; Kingma and Ba, ICLR 2015)."""

    mean: FloatArray
    square: FloatArray
    n_steps: int = 0
    decay: tuple[float, float] = field(default=(0.9, 0.99))

    def advance(self, gradient: FloatArray) -> FloatArray:
        """The next step, with sizes around 1."""
        first, second = self.decay
        self.n_steps += 1
        self.mean = first * self.mean + (1 - first) * gradient
        self.square = second * self.square + (1 - second) * gradient**2
        mean, square = self.mean / (1 - first**self.n_steps), self.square / (1 - second**self.n_steps)
        return np.asarray(mean / (np.sqrt(square) + 1e-12))


class AdditiveModel:
    """Scores of the cells, as sums of steps.

    With two classes there is one row of scores: those of the second label, relative to the first one.

    Attributes
    ----------
    steps : float64 array, shape (n_columns, n_cells)
        By which the score of each cell exceeds that of the cell below it; 0 for the first cell of a feature; for
        missing values the score itself.
    base : float64 array, shape (n_columns,)
    shift : float64 array, shape (n_columns,)
        What is added to the base in the end, see `settle_base`.
    """

    def __init__(
        self, table: CellTable, base: FloatArray, columns_with_missing: NDArray[np.bool_] | None = None
    ) -> None:
        self.table, self.base, self.shift = table, base.copy(), np.zeros_like(base)
        self._has_missing = np.zeros(table.n_features, bool) if columns_with_missing is None else columns_with_missing
        n_cells = int(table.starts[-1])
        self.steps = np.zeros((len(base), n_cells))
        sizes = np.diff(table.starts)
        self._features = np.repeat(np.arange(len(sizes)), sizes)
        self._is_step = np.ones(n_cells, dtype=bool)
        self._is_step[table.starts[:-1]] = False
        self._is_missing = np.zeros(n_cells, dtype=bool)
        self._is_missing[table.missing] = True
        # Functions move as fast, and are penalized as much, whatever the number of their steps.
        self._n_steps = np.maximum(sizes - 2, 1)[self._features].astype(np.float64)
        self._n_steps[self._is_missing] = 1.0
        self.moments = StepSizes(np.zeros_like(self.steps), np.zeros_like(self.steps))
        self.base_moments = StepSizes(np.zeros_like(self.base), np.zeros_like(self.base))

    @property
    def scores(self) -> FloatArray:
        """By column and cell, rounded so that sums are exact."""
        known = np.where(self._is_missing, 0.0, self.steps)
        sums = np.cumsum(known, axis=1)
        sums -= sums[:, self.table.starts[:-1]][:, self._features]
        return np.rint(np.where(self._is_missing, self.steps, sums) / VALUE_UNIT) * VALUE_UNIT

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of leaves and of trees."""
        scores = self.scores
        is_cut = (np.diff(scores, axis=1, prepend=0.0) != 0).any(axis=0) & self._is_step & ~self._is_missing
        cuts = np.bincount(self._features[is_cut], minlength=self.table.n_features)
        # Missing values have a leaf of their own.
        differs = (scores[:, self.table.missing] != scores[:, self.table.starts[:-1]]).any(axis=0)
        is_tree = (cuts > 0) | (self._has_missing & differs)
        n_trees = max(int(is_tree.sum()), 1)
        return int(cuts.sum()) + n_trees + int((is_tree & self._has_missing).sum()), n_trees

    def copy(self) -> AdditiveModel:
        """A model of its own with the same scores."""
        other = copy.copy(self)
        other.steps, other.base, other.shift = self.steps.copy(), self.base.copy(), self.shift.copy()
        other.moments, other.base_moments = replace(self.moments), replace(self.base_moments)
        return other

    @property
    def state(self) -> dict[str, Any]:
        """All that later steps depend on, as plain arrays."""
        moments, of_base = self.moments, self.base_moments
        return {
            "scores": self.steps.ravel(), "mean": moments.mean.ravel(), "square": moments.square.ravel(),
            "base": self.base, "base_mean": of_base.mean, "base_square": of_base.square, "moves": moments.n_steps,
        }  # fmt: skip

    def resume(self, document: dict[str, Any]) -> None:
        """Continue from the state of another model with the same cells."""

        def take_like(key: str, like: FloatArray) -> FloatArray:
            found = take_array(document, key, "<f8")
            if len(found) != like.size or not np.isfinite(found).all():
                raise damaged(f"{key!r} has another size")
            return found.reshape(like.shape)

        n_moves = take(document, "moves", int)
        self.steps, self.base = take_like("scores", self.steps), take_like("base", self.base)
        self.moments = StepSizes(take_like("mean", self.steps), take_like("square", self.steps), n_moves)
        self.base_moments = StepSizes(take_like("base_mean", self.base), take_like("base_square", self.base), n_moves)

    def descend(
        self,
        gradient: FloatArray,
        base_gradient: FloatArray,
        penalty: float,
        rate: float,
        is_moved: NDArray[np.bool_] | None = None,
    ) -> None:
        """Move scores down a gradient by cells, shape (n_columns, n_cells).

        Parameters
        ----------
        penalty : float
            L2 penalty on the scores.
        rate : float
            Size of a step.
        is_moved : bool array, shape (n_features,), or None
            The features to move; None for all of them.
        """
        known = np.where(self._is_missing, 0.0, gradient)
        below = np.cumsum(known, axis=1) - known
        ends = below[:, self.table.missing]
        of_steps = np.where(self._is_missing, gradient, ends[:, self._features] - below)
        of_steps = np.where(self._is_step, of_steps + penalty * self._n_steps * self.steps, 0.0)
        step = rate / np.sqrt(self._n_steps) * self.moments.advance(of_steps)
        self.steps -= step if is_moved is None else np.where(is_moved[self._features], step, 0.0)
        self.base -= rate * self.base_moments.advance(base_gradient)
        self.base = np.rint(self.base / VALUE_UNIT) * VALUE_UNIT


def settle_base(samples: AdditiveSamples, weights: tuple[float, float]) -> float:
    """What to add to the base of two classes, so that most of the samples are correct and robust, by their weights.

    The attacks on a sample do not depend on the base, so that its bounds move along. Of equally good shifts the one
    that is nearest to 0 is taken, in the middle of its interval.
    """
    sign = np.where(samples.y == 1, 1.0, -1.0)
    events: list[FloatArray] = []
    gains: list[FloatArray] = []
    for weight, values in zip(weights, (samples.margins[:, 0], samples.bounds[:, 0]), strict=True):
        # A sample of the second label counts above -value, one of the first label below value.
        events.append(-sign * values)
        gains.append(sign * weight * samples.row_weights)
    places, changes = np.concatenate(events), np.concatenate(gains)
    order = np.argsort(places, kind="stable")
    # Totals hold between a place and the next one; beyond the outermost ones, all samples get the same label.
    places = np.concatenate([[places[order[0]] - 1.0], places[order], [places[order[-1]] + 1.0]])
    totals = np.concatenate([[0.0], np.cumsum(changes[order])])
    width = np.diff(places)
    is_wide = width > 4 * SLACK
    middle = places[:-1] + width / 2
    best = totals[is_wide].max()
    is_best = is_wide & (totals >= best - 1e-9 * np.abs(changes).sum())
    nearest = np.where((places[:-1] + 2 * SLACK <= 0) & (places[1:] - 2 * SLACK >= 0), 0.0, middle)
    return float(min(nearest[is_best], key=abs))


def make_additive_model(scores: FloatArray, base: FloatArray, table: CellTable, dataset: Dataset) -> Model:
    """The forest of one tree for each feature that matters; the first tree holds the base scores too.

    Parameters
    ----------
    scores : float64 array, shape (n_columns, n_cells)
    dataset : Dataset
        Samples that tell where missing values go; they have none in features without missing values.
    """
    doubled = np.flatnonzero(dataset.columns_with_missing).astype(np.int32)
    tests = Tests.of(table.thresholds, doubled)
    trees = []
    for feature, thresholds in enumerate(table.thresholds):
        cells = slice(table.starts[feature], table.starts[feature] + len(thresholds) + 1)
        known, missing = scores[:, cells], scores[:, table.missing[feature]]
        # Cells with the scores of the cell before them need no threshold.
        cuts = np.flatnonzero((np.diff(known, axis=1) != 0).any(axis=0))
        if not len(cuts) and (feature not in doubled or (known[:, 0] == missing).all()):
            # A feature without thresholds: what its only cell adds belongs to the base.
            base = base + known[:, 0]
            continue
        copy = None
        if feature in doubled:
            place = dataset.n_features + int(np.flatnonzero(doubled == feature)[0])
            copy = place, len(tests.thresholds[place]) - 1
        trees.append(_make_tree(feature, cuts, known[:, [0, *(cuts + 1)]].T, copy, missing))
    if not trees:
        single = np.array([-1], dtype=np.int32)
        trees = [(BoostedTree(single, single, single, single, np.zeros(1)), np.zeros((1, len(base))))]
    models = []
    for number, (tree, values) in enumerate(trees):
        columns, directions, _ = tests.read(tree)
        of_labels = np.zeros((len(values), dataset.n_labels))
        of_labels[:, 1 if len(base) == 1 else slice(None)] = (values + (base if number == 0 else 0.0)).reshape(
            (len(values),) if len(base) == 1 else values.shape
        )
        model = build_tree(columns, of_labels, dataset.n_features, dataset.labels, LeafKind.SCORES, directions)
        if directions is not None:
            leaves = find_leaves(model, dataset.X)[:, 0]
            model = give_directions(model, np.bincount(leaves, minlength=model.n_leaves))
        models.append(model)
    return join_trees(models)


def _make_tree(
    feature: int, cuts: NDArray[np.intp], values: FloatArray, copy: tuple[int, int] | None, missing: FloatArray
) -> tuple[BoostedTree, FloatArray]:
    """A balanced tree over the cells of a feature, and the scores of its leaves in preorder.

    Parameters
    ----------
    cuts : int array
        Numbers of the thresholds, increasing.
    values : float64 array, shape (n_cuts + 1, n_columns)
    copy : pair of int or None
        Feature and number of the threshold that tells missing values from others; None if there are none.
    missing : float64 array, shape (n_columns,)
        Scores of missing values.
    """
    nodes: list[tuple[int, int, int, int]] = []
    leaves: list[FloatArray] = []
    # First and last cell of a node, and where its parent waits for its number.
    waiting: list[tuple[int, int, int, int]] = [(0, len(cuts), -1, 0)]
    if copy is not None:
        nodes.append((*copy, 1, -1))
        waiting = [(-1, -1, 0, 3), (0, len(cuts), 0, 2)]
    while waiting:
        first, last, parent, side = waiting.pop()
        number = len(nodes)
        if parent >= 0:
            entry = list(nodes[parent])
            entry[side] = number
            nodes[parent] = (entry[0], entry[1], entry[2], entry[3])
        if first == last:
            nodes.append((-1, -1, -1, -1))
            leaves.append(missing if first < 0 else values[first])
            continue
        middle = (first + last) // 2
        nodes.append((feature, int(cuts[middle]), -1, -1))
        waiting += [(middle + 1, last, number, 3), (first, middle, number, 2)]
    columns = np.array(nodes, dtype=np.int32).T
    tree = BoostedTree(columns[0], columns[1], columns[2], columns[3], np.zeros(len(nodes)))
    return tree, np.array(leaves)
