"""Models built from the trees of other libraries.

A reader gives the nodes of each tree as flat lists, in any order, with children as positions. The builder walks each
tree from its root without recursion, so that trees may have any depth, and refuses children that do not exist or that
have two parents.

Boosted trees add to the score of one label each. With two labels libraries have one score, whose sign decides: here the
first label always has score 0, the second one the library's score. At 0 both labels are predicted, whichever of them
the library predicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, shorten
from metasilvae.formats.silva_models import MAX_FEATURES, MAX_NODES, label_problem
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, NO_DIRECTION, NODE_DTYPE, LeafKind, Model

if TYPE_CHECKING:
    from metasilvae.interop.imports.categories import CategorySplit

LARGEST_COUNT = 2**53
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Nodes:
    """One tree as its library stores it; node 0 is the root.

    Attributes
    ----------
    feature : int array, shape (n_nodes,)
        -1 for a leaf.
    threshold : float64 array, shape (n_nodes,)
        A sample goes left iff its feature is <= this; infinities are allowed.
    left, right : int arrays, shape (n_nodes,)
    values : array, shape (n_nodes, n_labels)
        Counts or scores; those of splits are ignored.
    missing_left : bool array, shape (n_nodes,), or None
        Whether splits send missing values to the left child; None if the library does not take missing values.
    categories : mapping from int to CategorySplit, or None
        Nodes that split by categories, whose thresholds are not used (`metasilvae.interop.imports.categories`).
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    values: np.ndarray
    missing_left: NDArray[np.bool_] | None = None
    categories: Mapping[int, CategorySplit] | None = None


def single_leaf(values: Sequence[float]) -> Nodes:
    """A tree with the same values for every sample."""
    none = np.full(1, -1, dtype=np.int64)
    return Nodes(none, np.zeros(1), none, none, np.array([values], dtype=np.float64))


def build_model(
    trees: Iterable[Nodes], kind: LeafKind, n_features: int, labels: Sequence[str], is_forest: bool, source: str
) -> Model:
    """Lay out trees in pre-order, without splits of which only one side can be reached.

    Where missing values have a side of their own, the split is kept with the largest float64 number as its threshold.

    Nodes that do not form a tree, and values that silva's format cannot represent, raise a `ModelError`.
    """
    _check_head(n_features, labels, source)
    nodes: list[tuple[float, int, int, int, int]] = []
    leaves: list[np.ndarray] = []
    roots: list[int] = []
    for number, tree in enumerate(trees):
        where = f"{source}: tree {number}"
        roots.append(len(nodes))
        _check_shapes(tree, len(labels), where)
        order = _lay_out(tree, n_features, len(nodes), sum(map(len, leaves)), nodes, where)
        leaves.append(_check_values(tree.values[order], kind, where))
        if len(nodes) > MAX_NODES:
            raise ModelError(f"{source}: more than the {MAX_NODES} nodes that fit")
    if not roots:
        raise ModelError(f"{source}: the model has no trees")
    node_array, root_array = np.array(nodes, dtype=NODE_DTYPE), np.array(roots, dtype=np.int32)
    leaf_values = np.concatenate(leaves)
    return Model(node_array, root_array, leaf_values, kind, n_features, tuple(labels), is_forest, source)


def count_levels(trees: Iterable[Nodes], most: int) -> int:
    """Splits above the deepest leaf, also those that the model omits; counting ends at `most` + 1."""
    return max((_count_tree_levels(tree, most) for tree in trees), default=0)


def _count_tree_levels(tree: Nodes, most: int) -> int:
    nodes = np.zeros(1, dtype=np.int64)
    for level in range(most + 1):
        splits = nodes[tree.feature[nodes] >= 0]
        if not len(splits):
            return level
        nodes = np.unique(np.concatenate([tree.left[splits], tree.right[splits]]))
        nodes = nodes[(nodes >= 0) & (nodes < len(tree.feature))]
    return most + 1


def _lay_out(
    tree: Nodes, n_features: int, n_nodes: int, n_leaves: int, nodes: list[tuple[float, int, int, int, int]], where: str
) -> list[int]:
    """Append the nodes of a tree in pre-order; the positions of its leaves, in the same order."""
    features, thresholds = tree.feature.tolist(), tree.threshold.tolist()
    lefts, rights = tree.left.tolist(), tree.right.tolist()
    directions = [NO_DIRECTION] * len(features)
    if tree.missing_left is not None:
        directions = np.where(tree.missing_left, MISSING_LEFT, MISSING_RIGHT).tolist()
    is_seen = bytearray(len(features))
    order: list[int] = []
    todo = [(0, -1)]  # node, split whose right child it is
    while todo:
        node, parent = todo.pop()
        while True:
            if not 0 <= node < len(features):
                raise ModelError(f"{where}: a split leads to node {node}, but the tree has {len(features)} nodes")
            if is_seen[node]:
                raise ModelError(f"{where}: node {node} is reached in two ways; this is not a tree")
            is_seen[node] = 1
            feature, threshold = features[node], thresholds[node]
            if feature < 0:
                break
            if feature >= n_features:
                raise ModelError(
                    f"{where}: node {node} tests feature {feature}, but the model has {n_features} features, from 0 on"
                )
            if threshold != threshold:
                raise ModelError(f"{where}: the threshold of node {node} is not a number")
            left, right, direction = lefts[node], rights[node], directions[node]
            if abs(threshold) != np.inf:
                break
            # No value is above inf or equal to -inf, so the other side is reached by missing values only.
            values_left = threshold > 0
            if direction != NO_DIRECTION and values_left != (direction == MISSING_LEFT):
                left, right = (left, right) if values_left else (right, left)
                threshold, direction = LARGEST, MISSING_RIGHT
                break
            node = left if values_left else right
        here = len(nodes)
        if parent >= 0:
            nodes[parent] = (*nodes[parent][:3], here, nodes[parent][4])
        if feature < 0:
            nodes.append((0.0, -1, -1, -1, n_leaves + len(order)))
            order.append(node)
        else:
            nodes.append((threshold, feature, here + 1, -1, direction))
            todo += [(right, here), (left, -1)]
    return order


def _check_head(n_features: int, labels: Sequence[str], source: str) -> None:
    if not 1 <= n_features <= MAX_FEATURES:
        raise ModelError(f"{source}: the model has {n_features} features; 1 to {MAX_FEATURES} are supported")
    if not labels:
        raise ModelError(f"{source}: the model has no labels")
    for label in labels:
        problem = label_problem(label)
        if problem:
            raise ModelError(f"{source}: label {shorten(label)} {problem}; name the labels with --labels")
    if len(set(labels)) < len(labels):
        raise ModelError(f"{source}: two labels have the same name; name the labels with --labels")


def _check_shapes(tree: Nodes, n_labels: int, where: str) -> None:
    n_nodes = len(tree.feature)
    if n_nodes == 0:
        raise ModelError(f"{where} has no nodes")
    sizes = {len(tree.threshold), len(tree.left), len(tree.right), len(tree.values)}
    if tree.missing_left is not None:
        sizes.add(len(tree.missing_left))
    if sizes != {n_nodes} or tree.values.shape[1:] != (n_labels,):
        raise ModelError(f"{where}: its lists of nodes have different lengths; is the file damaged?")


def _check_values(values: np.ndarray, kind: LeafKind, where: str) -> np.ndarray:
    if kind is LeafKind.SCORES:
        if not np.isfinite(values).all():
            raise ModelError(f"{where}: the score of a leaf is not a finite number")
        return np.asarray(values, dtype=np.float64)
    if values.min() < 0 or values.max() > LARGEST_COUNT or not (values.max(axis=1) > 0).all():
        raise ModelError(f"{where}: the counts of a leaf are negative, too large or all zero")
    return np.asarray(values, dtype=np.int64)


def place_scores(values: NDArray[np.float64], column: int, n_columns: int) -> NDArray[np.float64]:
    """Scores of all labels, from the values that a tree adds to one of the library's scores."""
    scores = np.zeros((len(values), max(2, n_columns)))
    scores[:, 1 if n_columns == 1 else column] = values
    return scores


def spread_scores(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of all labels, from the library's scores of shape (n_samples,) or (n_samples, n_columns)."""
    columns = np.asarray(raw, dtype=np.float64).reshape(len(raw), -1)
    if columns.shape[1] > 1:
        return columns
    return np.column_stack([np.zeros(len(columns)), columns[:, 0]])


def start_trees(base: NDArray[np.float64]) -> list[Nodes]:
    """The start of every sum as a tree of one leaf; added to a leaf of another tree it would be rounded."""
    return [single_leaf(spread_scores(base[None, :])[0].tolist())] if base.any() else []
