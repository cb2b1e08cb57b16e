"""Growth of one boosted tree, for the derivatives of a loss that counts the worst point of each box.

Values are replaced by codes: numbers of thresholds below them. `choose_thresholds` selects the thresholds once for a
run, and `Codes` holds the codes of the rows and of the ends of their boxes, compared as the verifier compares them. A
tree is grown level by level by a kernel (cython_ext/training/boosting_growth.pyx); all thresholds of all features are
tried for every leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import boosting_codes as kernel
from metasilvae._core.training.boosting_growth import Growth
from metasilvae._core.training.evolution import IS_MISSING
from metasilvae._core.verification import reach
from metasilvae.dataset import Dataset
from metasilvae.execution.threads import over_rows
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, NO_DIRECTION, LeafKind
from metasilvae.perturbations.boxes import Boxes
from metasilvae.prediction import find_leaves
from metasilvae.training.checkpoint.files import damaged, take_array
from metasilvae.training.samples import LARGEST, build_tree, double_columns

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
CodeArray = NDArray[np.uint8]
MOST_THRESHOLDS: int = kernel.MOST_THRESHOLDS
# Rows that thresholds are chosen by.
MOST_ROWS = 10_000
# Derivatives are whole numbers of this unit, and so are leaf values: sums of both are exact.
UNIT = 2.0**-24
VALUE_UNIT = 2.0**-20
# Weight of a sample in leaves that it reaches but where it is not worst off, while a tree grows: the values of leaves
# are still to change, so that it may become worst off there.
ELSEWHERE = 0.3
# Passes that refit the values of all leaves after growth.
REFITS = 3
# A level may have so many pairs of a sample and a leaf that it reaches, as a multiple of the samples.
MOST_PAIRS = 64


def choose_thresholds(
    X: FloatArray, boxes: Boxes, n_thresholds: int, seed: int, jobs: int | None = 1
) -> list[FloatArray]:
    """Thresholds of each feature, increasing: midpoints between rows and ends of boxes, spread by their number."""
    n_samples = len(X)
    rows = np.arange(n_samples)
    if n_samples > MOST_ROWS:
        rows = np.sort(np.random.default_rng([seed, 5]).permutation(n_samples)[:MOST_ROWS])
    low_center, high_center, down, up, minimum, maximum = boxes.arrays
    found: list[FloatArray] = [np.zeros(0)] * X.shape[1]

    def choose(start: int, stop: int) -> None:
        for feature in range(start, stop):
            with np.errstate(over="ignore"):
                lower = np.maximum(low_center[rows, feature] - down[feature], minimum[feature])
                upper = np.minimum(high_center[rows, feature] + up[feature], maximum[feature])
            values, counts = np.unique(np.concatenate([X[rows, feature], lower, upper]), return_counts=True)
            is_finite = np.isfinite(values)
            found[feature] = spread_values(values[is_finite], counts[is_finite], n_thresholds)

    over_rows(choose, X.shape[1], jobs)
    return found


def spread_values(values: FloatArray, counts: NDArray[np.intp], n_thresholds: int) -> FloatArray:
    """Midpoints between neighbours; of too many, those that divide the values evenly."""
    low, high = values[:-1], values[1:]
    # Half of each number first: their sum may be infinite.
    middle = low / 2 + high / 2
    middle = np.where((low <= middle) & (middle < high), middle, low)
    if len(middle) <= n_thresholds:
        return np.asarray(middle)
    reached = np.cumsum(counts[:-1])
    wanted = (np.arange(n_thresholds) + 0.5) / n_thresholds * counts.sum()
    places = np.searchsorted(reached, wanted).clip(0, len(middle) - 1)
    return np.asarray(middle[np.unique(places)])


@dataclass(frozen=True)
class Codes:
    """Codes of samples and of the ends of their boxes, shape (n_features, n_samples).

    Attributes
    ----------
    own, low, high : uint8 arrays
    n_thresholds : int32 array, shape (n_features,)
    exact : ExactScores or None
        Scores of samples with missing values; None if codes alone are exact.
    """

    own: CodeArray
    low: CodeArray
    high: CodeArray
    n_thresholds: IntArray
    exact: ExactScores | None = None

    @classmethod
    def of(cls, dataset: Dataset, boxes: Boxes, thresholds: list[FloatArray], jobs: int | None = 1) -> Codes:
        shape = dataset.n_features, dataset.n_samples
        own, low, high = (np.empty(shape, dtype=np.uint8) for _ in range(3))
        sizes = [len(each) for each in thresholds]
        starts = np.cumsum([0, *sizes], dtype=np.int64)
        joined = np.concatenate([*thresholds, np.zeros(0)])
        over_rows(
            lambda start, stop: kernel.fill_codes(
                dataset.X, *boxes.arrays, joined, starts, start, stop, own, low, high
            ),
            dataset.n_samples, jobs,
        )  # fmt: skip
        # A tree is grown on the samples whose box reaches a leaf, so each box holds its own sample, also where a limit
        # leaves that out.
        np.minimum(low, own, out=low)
        np.maximum(high, own, out=high)
        return cls(own, low, high, np.array(sizes, dtype=np.int32))

    @classmethod
    def joined(cls, parts: Iterable[Codes], n_samples: int) -> Codes:
        """The codes of so many samples in parts, none of which is kept after the next one is there."""
        joined: Codes | None = None
        start = 0
        for part in parts:
            if joined is None:
                own, low, high = (np.empty((len(part.own), n_samples), dtype=np.uint8) for _ in part.arrays)
                joined = cls(own, low, high, part.n_thresholds)
            for array, codes in zip(joined.arrays, part.arrays, strict=True):
                array[:, start : start + part.n_samples] = codes
            start += part.n_samples
        assert joined is not None
        return joined

    def take(self, rows: IntArray) -> Codes:
        """The codes of some samples, side by side: growing on few of many samples is much faster that way."""
        # Rows are in range; 'clip' leaves out a test of each.
        own, low, high = (np.take(codes, rows, axis=1, mode="clip") for codes in self.arrays)
        return Codes(own, low, high, self.n_thresholds)

    @property
    def n_samples(self) -> int:
        return int(self.own.shape[1])

    @property
    def arrays(self) -> tuple[CodeArray, CodeArray, CodeArray]:
        return self.own, self.low, self.high


@dataclass(frozen=True)
class Derivatives:
    """First and second derivatives of the loss for each sample, in units of `UNIT`.

    Attributes
    ----------
    own_gradient, own_hessian : int32 arrays, shape (n_samples,)
        Natural part, by the score of the sample itself.
    gradient, hessian : int32 arrays, shape (n_samples,)
        Certified part, by the score at the worst point of its box.
    """

    own_gradient: IntArray
    own_hessian: IntArray
    gradient: IntArray
    hessian: IntArray

    def take(self, rows: IntArray) -> Derivatives:
        return Derivatives(self.own_gradient[rows], self.own_hessian[rows], self.gradient[rows], self.hessian[rows])


@dataclass(frozen=True)
class GrowthLimits:
    """Limits of a tree.

    Attributes
    ----------
    max_depth : int
    min_samples : int
        Minimum samples per leaf.
    penalty : float
        Added to the second derivatives of a leaf (L2 penalty on its value), in samples.
    """

    max_depth: int = 6
    min_samples: int = 1
    penalty: float = 1.0


@dataclass(frozen=True)
class BoostedTree:
    """One tree that scores one label.

    Attributes
    ----------
    feature, code, left, right : int32 arrays, shape (n_nodes,)
        Tests by feature and number of the threshold; feature -1 marks a leaf. Children come after their parent.
    value : float64 array, shape (n_nodes,)
        Scores of leaves.
    """

    feature: IntArray
    code: IntArray
    left: IntArray
    right: IntArray
    value: FloatArray

    @property
    def n_leaves(self) -> int:
        return (len(self.feature) + 1) // 2

    @property
    def depth(self) -> int:
        return self._order()[2]

    def _order(self) -> tuple[IntArray, IntArray, int]:
        """The nodes in pre-order, the place of each node in it (of node -1: -1), and the depth."""
        n_nodes = len(self.feature)
        order, places = np.empty(n_nodes, dtype=np.int32), np.empty(n_nodes + 1, dtype=np.int32)
        places[-1] = -1
        return order, places, kernel.order_nodes(self.feature, self.left, self.right, order, places)

    def add_to(self, codes: Codes, own: FloatArray, lowest: FloatArray, highest: FloatArray) -> None:
        """Add the scores of samples, and the lowest and highest ones in their boxes, to the given sums."""
        waiting = np.empty(self.depth + 2, dtype=np.int32)
        kernel.add_tree(
            *codes.arrays, self.feature, self.code, self.left, self.right, self.value, waiting, 0, codes.n_samples,
            own, lowest, highest,
        )  # fmt: skip

    def in_preorder(self) -> tuple[IntArray, IntArray, IntArray, IntArray, FloatArray]:
        """Feature, code, left, right and value of the nodes, each tree before its right sibling."""
        order, places, _ = self._order()
        columns = self.feature[order], self.code[order], places[self.left[order]], places[self.right[order]]
        return (*columns, self.value[order])

    def scaled(self, factor: float) -> BoostedTree:
        """The same tree with its scores multiplied and rounded."""
        return replace(self, value=np.rint(self.value * factor / VALUE_UNIT) * VALUE_UNIT)


@dataclass(frozen=True)
class Tests:
    """The tests of boosted trees.

    Attributes
    ----------
    thresholds : list of float64 arrays
        Thresholds of each feature of a tree in training, increasing.
    n_columns : int
        Number of columns of the samples; these are the first features.
    doubled : int32 array
        Columns in which values are or may become missing. Each has a second feature after the columns, in which missing
        values go to the right; in the first one they go to the left. The last threshold of the second feature separates
        missing values from all others.
    """

    thresholds: list[FloatArray]
    n_columns: int
    doubled: IntArray

    @classmethod
    def of(cls, thresholds: list[FloatArray], doubled: IntArray) -> Tests:
        """From the thresholds of each column."""
        n_columns = len(thresholds)
        copies = [np.append(thresholds[column][: MOST_THRESHOLDS - 1], IS_MISSING) for column in doubled]
        return cls([*thresholds, *copies], n_columns, doubled)

    def code(self, dataset: Dataset, boxes: Boxes, jobs: int | None = 1) -> Codes:
        if not len(self.doubled):
            return Codes.of(dataset, boxes, self.thresholds, jobs)
        doubled = double_columns(dataset, boxes, self.doubled)
        return replace(Codes.of(*doubled, self.thresholds, jobs), exact=ExactScores(self, dataset, boxes))

    def read(self, tree: BoostedTree) -> tuple[tuple[np.ndarray, ...], IntArray | None, FloatArray]:
        """Columns of a tree for a model, in pre-order: nodes, directions of doubled columns, scores of leaves."""
        feature, code, left, right, value = tree.in_preorder()
        is_leaf = feature < 0
        threshold = np.zeros(len(feature))
        threshold[~is_leaf] = [
            self.thresholds[f][c] for f, c in zip(feature[~is_leaf].tolist(), code[~is_leaf].tolist(), strict=True)
        ]
        directions = None
        if len(self.doubled):
            is_copy = feature >= self.n_columns
            directions = np.full(len(feature), NO_DIRECTION, dtype=np.int32)
            directions[np.isin(feature, self.doubled)] = MISSING_LEFT
            directions[is_copy] = MISSING_RIGHT
            threshold[is_copy & (threshold == IS_MISSING)] = LARGEST
            feature = feature.copy()
            feature[is_copy] = self.doubled[feature[is_copy] - self.n_columns]
        return (feature, threshold, left, right), directions, value[is_leaf]


@dataclass(frozen=True)
class ExactScores:
    """Scores of samples with missing values, by a walk of each box through the model of a tree.

    With codes alone a box passes each test by itself. Where missing values go their own way, it could then reach a leaf
    that no point of the box falls into.
    """

    tests: Tests
    dataset: Dataset
    boxes: Boxes

    def add(self, tree: BoostedTree, own: FloatArray, lowest: FloatArray, highest: FloatArray) -> None:
        """Add the scores of samples, and the lowest and highest ones in their boxes, to the given sums."""
        columns, directions, value = self.tests.read(tree)
        model = build_tree(columns, value[:, None], self.tests.n_columns, ("score",), LeafKind.SCORES, directions)
        own += value[find_leaves(model, self.dataset.X)[:, 0]]
        searched = self.boxes.domains.restrict(model).feasible
        bounds = np.empty((2, self.dataset.n_samples, 1))
        reach.fill_score_bounds(
            searched.nodes, searched.roots, searched.leaf_values, searched.max_depth, *self.boxes.arrays,
            self.boxes.dropping, self.boxes.domains.right_starts(searched), 0, self.dataset.n_samples, *bounds,
        )  # fmt: skip
        lowest += bounds[0, :, 0]
        highest += bounds[1, :, 0]


# Calls a function with start and stop of consecutive parts of a range.
Divide = Callable[[Callable[[int, int], object], int], None]


def one_part(work: Callable[[int, int], object], n_items: int) -> None:
    work(0, n_items)


def grow_tree(
    codes: Codes,
    loss: Derivatives,
    is_positive: NDArray[np.bool_],
    rows: IntArray,
    draw_features: Callable[[int], IntArray],
    limits: GrowthLimits,
    divide: Divide = one_part,
    is_stopped: Callable[[], bool] = lambda: False,
) -> BoostedTree:
    """Grow a tree that minimizes the loss of the given samples.

    Parameters
    ----------
    is_positive : bool array, shape (n_samples,)
        Samples of the label that the tree scores.
    rows : int32 array
        Samples to grow on, increasing.
    draw_features : function
        Features that may be tested in a level of the tree, increasing. Drawing them anew for each level is as fast as
        drawing them once for the tree, and gives better trees.
    divide : function
        Distributes the features of a level to threads.
    is_stopped : function
        Once it returns True, the tree is not grown further.
    """
    growth = Growth(
        *codes.arrays, codes.n_thresholds, loss.own_gradient, loss.own_hessian, loss.gradient, loss.hessian,
        is_positive.view(np.uint8), rows, limits.penalty / UNIT, limits.min_samples, ELSEWHERE, MOST_PAIRS * len(rows),
    )  # fmt: skip
    for level in range(limits.max_depth):
        if not growth.n_open or is_stopped():
            break
        features = draw_features(level)
        growth.begin_level(features)
        divide(growth.find_splits, len(features))
        growth.end_level()
    return BoostedTree(*growth.finish(REFITS))


# Storing


def pack_trees(trees: Sequence[BoostedTree]) -> dict[str, Any]:
    """Trees as arrays; the children of nodes follow from the order in which they are grown."""

    def join(parts: list[np.ndarray], kind: Any) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype=kind), *parts])

    return {
        "sizes": np.array([len(tree.feature) for tree in trees], dtype=np.int32),
        "feature": join([tree.feature for tree in trees], np.int32),
        "code": join([tree.code for tree in trees], np.int32),
        "value": join([tree.value for tree in trees], np.float64),
    }


def unpack_trees(document: dict[str, Any]) -> list[BoostedTree]:
    """The same trees; whether features and codes exist is left to the caller."""
    sizes = take_array(document, "sizes", "<i4")
    feature, code = take_array(document, "feature", "<i4"), take_array(document, "code", "<i4")
    value = take_array(document, "value", "<f8")
    ends = np.cumsum(sizes, dtype=np.int64)
    if (len(sizes) and sizes.min() < 1) or {len(feature), len(code), len(value)} != {int(ends[-1]) if len(ends) else 0}:
        raise damaged("a tree is not complete")
    trees = []
    for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
        part = slice(end - size, end)
        is_inner = feature[part] >= 0
        first = np.where(is_inner, 2 * np.cumsum(is_inner) - 1, -1).astype(np.int32)
        if 2 * is_inner.sum() + 1 != size or (first[is_inner] <= np.flatnonzero(is_inner)).any():
            raise damaged("a tree is not complete")
        if not np.isfinite(value[part]).all() or feature[part].min() < -1 or (code[part][is_inner] < 0).any():
            raise damaged("a test or a score is no number")
        second = np.where(is_inner, first + 1, -1).astype(np.int32)
        trees.append(BoostedTree(feature[part], code[part], first, second, value[part]))
    return trees
