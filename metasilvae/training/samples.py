"""Training samples in the form that the kernels take, and the way of trees from there to models and back.

A column in which values are or may become missing stands twice among the features of a tree in training: once with
missing values to the left of every threshold, once to the right. In a model it is one feature, and the copy is the
direction of the split. Columns without missing values have no copy; if there are others, their splits send a missing
value to the side with more training samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.encoding import LARGEST_NUMBER as LARGEST
from metasilvae.errors import DataError, RequestError
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, NO_DIRECTION, NODE_DTYPE, LeafKind, Model
from metasilvae.perturbations.boxes import UNEQUAL_RADII, Boxes

# Powers of changes that the kernels add up.
POWERS = {"l0": 0, "l1": 1, "l2": 2}
# Not above the number whose square is one half.
HALF_OF_SQUARES = 0.7071


def draw_places(n: int, most: int) -> NDArray[np.intp]:
    """All of n places, or `most` of them that are drawn, always the same ones; increasing.

    Drawn, not at equal distances: classes, or kinds of columns, may alternate.
    """
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).permutation(n)[:most])


def find_doubled(dataset: Dataset, boxes: Boxes) -> NDArray[np.int32]:
    """Columns whose values are or may become missing."""
    is_doubled = dataset.columns_with_missing
    if boxes.droppable is not None:
        is_doubled = is_doubled | (boxes.droppable != 0).any(axis=0)
    found = np.flatnonzero(is_doubled).astype(np.int32)
    if len(found):
        with np.errstate(invalid="ignore"):
            is_large = np.abs(dataset.X[:, found]) > kernel.MOST_VALUE
        if is_large.any():
            row, place = np.argwhere(is_large)[0]
            raise DataError(
                f"{dataset.source}: row {dataset.number_of(int(row))}: {dataset.feature_name(int(found[place]))} = "
                f"{dataset.X[row, found[place]]:g}, and other values of this column are or may become missing; then "
                f"values of at most {kernel.MOST_VALUE:.2g} can be used"
            )
    return found


def make_samples(dataset: Dataset, boxes: Boxes, like: kernel.TrainingSet | None = None) -> kernel.TrainingSet:
    """The samples as ranks, with their boxes.

    Parameters
    ----------
    like : TrainingSet or None
        The same samples with other boxes, whose ranks are used again if possible.
    """
    limit = _limit_of(dataset, boxes)
    if boxes.low_center is boxes.high_center and like is not None:
        return like.with_boxes(*boxes.arrays[2:], limit)
    parts = dataset.X, dataset.y, dataset.n_labels
    doubled = find_doubled(dataset, boxes)
    # An attack lets the values of a column become missing in all rows or in none.
    droppable = None if boxes.droppable is None else (boxes.droppable != 0).any(axis=0)
    weights = None if dataset.weights is None else dataset.weights.numbers
    if boxes.low_center is boxes.high_center:
        return kernel.TrainingSet(*parts, *boxes.arrays[2:], doubled, droppable, weights, limit)
    samples = kernel.TrainingSet.of_boxes(*parts, *boxes.all_bounds, doubled, droppable, weights, limit)
    if samples is None:
        raise RequestError(UNEQUAL_RADII)
    return samples


def _limit_of(dataset: Dataset, boxes: Boxes) -> tuple[int, float, NDArray[np.float64]] | None:
    """The limit of the total change in the form that the kernels take.

    A one-hot group changes as one feature; kernels see two of its members change, each at a part of the cost.
    """
    limit = boxes.limit
    if limit is None:
        return None
    costs = limit.costs.copy()
    for group in boxes.groups.groups:
        members = np.array(group.members)
        if not group.is_one_hot:
            names = ", ".join(dataset.feature_name(int(f)) for f in members)
            raise RequestError(
                f"{dataset.source}: the features {names} take joint values, which trees are not trained for in the "
                f"norm {limit.norm}; leave their rules out of the attack file"
            )
        costs[members] = limit.costs[members].max() * (HALF_OF_SQUARES if limit.norm == "l2" else 0.5)
    return POWERS[limit.norm], limit.epsilon, costs


def double_columns(dataset: Dataset, boxes: Boxes, doubled: NDArray[np.int32]) -> tuple[Dataset, Boxes]:
    """Samples and boxes with some columns twice, as the kernels of trees have them.

    Missing values lie below all others in the first copy and above them in the second, which comes after all columns.
    The box of a value that may be dropped reaches there too. Boxes have absolute bounds.
    """

    def double(matrix: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
        cut = np.clip(matrix[:, doubled], -kernel.MOST_VALUE, kernel.MOST_VALUE)
        whole = np.concatenate([matrix, np.where(np.isnan(cut), high, cut)], axis=1)
        whole[:, doubled] = np.where(np.isnan(cut), low, cut)
        return whole

    lower, upper = boxes.all_bounds
    X = double(dataset.X, -LARGEST, LARGEST)
    lower, upper = double(lower, -np.inf, LARGEST), double(upper, -LARGEST, np.inf)
    if boxes.droppable is not None:
        may_drop = doubled[(boxes.droppable[:, doubled] != 0).any(axis=0)]
        copies = dataset.n_features + np.flatnonzero(np.isin(doubled, may_drop))
        lower[:, may_drop], upper[:, copies] = -np.inf, np.inf
    zero, infinite = np.zeros(X.shape[1]), np.full(X.shape[1], np.inf)
    return Dataset(X, dataset.y, dataset.labels, source=dataset.source), Boxes(
        lower, upper, zero, zero, -infinite, infinite
    )


def build_tree(
    columns: Any,
    leaf_values: np.ndarray,
    n_features: int,
    labels: tuple[str, ...],
    leaf_kind: LeafKind = LeafKind.COUNTS,
    directions: NDArray[np.int32] | None = None,
) -> Model:
    """A model of one tree from feature, threshold, left and right of its nodes, and the values of its leaves.

    `directions` are those of the splits; values at leaves are ignored.
    """
    is_leaf = columns[0] < 0
    nodes = np.zeros(len(is_leaf), dtype=NODE_DTYPE)
    for name, column in zip(("feature", "threshold", "left", "right"), columns, strict=True):
        nodes[name] = column
    nodes["leaf"] = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1 if directions is None else directions)
    return Model(nodes, np.zeros(1, dtype=np.int32), leaf_values, leaf_kind, n_features, labels)


def as_model(tree: Any, dataset: Dataset) -> Model:
    """The model of a tree in training; its leaves hold the class counts of the samples it was trained on.

    With weights, these are sums of weights as whole numbers.
    """
    feature, threshold, left, right, counts = tree.nodes()
    is_leaf = feature < 0
    directions = None
    origins = tree.samples.origins
    if len(origins) > dataset.n_features:
        sizes = counts.sum(axis=1)
        goes_left = sizes[left] >= sizes[right]
        is_doubled = np.isin(feature, np.flatnonzero(np.bincount(origins) > 1)) & ~is_leaf
        is_copy = feature >= dataset.n_features
        goes_left[is_doubled] = True
        goes_left[is_copy] = False
        directions = np.where(goes_left, MISSING_LEFT, MISSING_RIGHT).astype(np.int32)
        # As splits of imported models, a split between missing values and all others is at the largest number.
        threshold = np.where(is_copy & (threshold >= kernel.MOST_VALUE), LARGEST, threshold)
        feature = np.where(is_leaf, feature, origins[feature])
    return build_tree(
        (feature, threshold, left, right), counts[is_leaf], dataset.n_features, dataset.labels, directions=directions
    )


def as_individual(model: Model, samples: Any, objective: Any, workspace: Any) -> Any:
    """A tree in training with the tests of a model of one tree, as far as samples and limits allow."""
    feature, threshold, left, right = (
        np.ascontiguousarray(model.nodes[name]) for name in ("feature", "threshold", "left", "right")
    )
    if len(samples.origins) > model.n_features:
        copies = np.full(model.n_features, -1, dtype=np.int32)
        copies[samples.origins[model.n_features :]] = np.arange(model.n_features, len(samples.origins))
        goes_right = (feature >= 0) & (model.nodes["leaf"] != MISSING_LEFT) & (copies[feature] >= 0)
        feature = np.where(goes_right, copies[feature], feature)
        is_test = goes_right & (threshold > kernel.MOST_VALUE)
        threshold = np.where(is_test, kernel.IS_MISSING, threshold)
    return kernel.Individual(samples).take_nodes(feature, threshold, left, right, objective, workspace)


def give_directions(model: Model, leaf_sizes: NDArray[np.int64] | None = None) -> Model:
    """The same tree; splits without a direction send missing values to the side with more training samples.

    `leaf_sizes` are the training samples of each leaf, by default the sums of its counts.
    """
    nodes = model.nodes.copy()
    sizes = np.zeros(len(nodes), dtype=np.int64)
    is_leaf = nodes["feature"] < 0
    leaf_sizes = model.leaf_values.sum(axis=1) if leaf_sizes is None else leaf_sizes
    sizes[is_leaf] = leaf_sizes[nodes["leaf"][is_leaf]]
    # Children lie behind their parents.
    for node in np.flatnonzero(~is_leaf)[::-1]:
        left, right = sizes[nodes["left"][node]], sizes[nodes["right"][node]]
        sizes[node] = left + right
        if nodes["leaf"][node] == NO_DIRECTION:
            nodes["leaf"][node] = MISSING_LEFT if left >= right else MISSING_RIGHT
    return replace(model, nodes=nodes)
