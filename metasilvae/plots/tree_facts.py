"""What a drawing of a tree tells about its nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.matching import check_width, match_labels
from metasilvae.model import LeafKind, Model
from metasilvae.plots.tree_layout import Children
from metasilvae.prediction import find_leaves

# A larger drawing would be of no use to anybody.
MOST_LEAVES = 500


@dataclass(frozen=True)
class NodeFacts:
    """One box of a drawing.

    Attributes
    ----------
    node : int
        Position in the tree.
    children : positions of the children among the boxes, or None
    n_leaves : int
        Leaves of the tree at and below the node.
    values : array, shape (n_labels,), or None
        Class counts of all leaves below, as the model has them; scores only of a leaf.
    rows : int or None
        Rows of the data that come to the node.
    right_rows : int or None
        Of the rows in a leaf, those whose label it answers, and no other one.
    margin : float or None
        Distance between the threshold and the nearest of these rows.
    near_rows : int or None
        Of these rows, how many the perturbation can carry to either side of the threshold.
    """

    node: int
    children: Children
    n_leaves: int
    values: np.ndarray | None
    rows: int | None = None
    right_rows: int | None = None
    margin: float | None = None
    near_rows: int | None = None


@dataclass(frozen=True)
class TreeFacts:
    """A tree as far as it is shown: boxes in pre-order, those deeper than the greatest depth folded into one.

    Attributes
    ----------
    place : the number of the tree in its forest, from 0, and how many trees that has; None for a single tree
    """

    tree: Model
    boxes: list[NodeFacts]
    dataset: Dataset | None = None
    epsilon: float | None = None
    place: tuple[int, int] | None = None

    def is_leaf(self, box: NodeFacts) -> bool:
        return bool(self.tree.nodes["feature"][box.node] < 0)

    def depth(self, box: NodeFacts) -> int:
        return int(self.tree.depths[box.node])


def gather_facts(
    tree: Model,
    dataset: Dataset | None = None,
    epsilon: float | None = None,
    max_depth: int | None = None,
    place: tuple[int, int] | None = None,
) -> TreeFacts:
    """Count what there is to tell about a single tree; refuses one that is too large to be looked at."""
    nodes = tree.nodes
    shown = np.flatnonzero(tree.depths <= (tree.max_depth if max_depth is None else max_depth))
    is_end = (nodes["feature"][shown] < 0) | (tree.depths[shown] == max_depth)
    if is_end.sum() > MOST_LEAVES:
        raise RequestError(
            f"{tree.source}: a drawing of {int(is_end.sum())} leaves cannot be read, at most {MOST_LEAVES} are drawn; "
            "fold what is deep with --max-depth, or draw a tree that was made smaller"
        )
    position_of = {int(node): position for position, node in enumerate(shown)}
    leaves = _LeafOrder(tree)
    rows = None if dataset is None else _RowOrder(tree, dataset, leaves)
    boxes = []
    for node, ends_here in zip(shown.tolist(), is_end.tolist(), strict=True):
        _, feature, left, right, leaf = nodes[node].item()
        first, last = leaves.range_of(node)
        values = tree.leaf_values[leaf] if feature < 0 else None
        if tree.leaf_kind is LeafKind.COUNTS:
            values = leaves.values[first:last].sum(axis=0, dtype=np.float64)
        children = None if ends_here else (position_of[left], position_of[right])
        found = (None,) * 4 if rows is None else rows.count(node, first, last, epsilon)
        boxes.append(NodeFacts(node, children, last - first, values, *found))
    return TreeFacts(tree, boxes, dataset, epsilon, place)


class _LeafOrder:
    """The leaves from left to right; those below a node follow each other."""

    def __init__(self, tree: Model) -> None:
        right = tree.nodes["right"].tolist()
        is_leaf = tree.nodes["feature"] < 0
        ends = list(range(1, tree.n_nodes + 1))
        for node in np.flatnonzero(~is_leaf)[::-1].tolist():
            ends[node] = ends[right[node]]
        self._ends = ends
        self._n_before = np.concatenate([[0], np.cumsum(is_leaf)])
        self.leaves: NDArray[np.int32] = tree.nodes["leaf"][is_leaf]
        self.values = tree.leaf_values[self.leaves]

    def range_of(self, node: int) -> tuple[int, int]:
        return int(self._n_before[node]), int(self._n_before[self._ends[node]])


class _RowOrder:
    """Rows in the order of their leaves, so that those that come to a node follow each other."""

    def __init__(self, tree: Model, dataset: Dataset, leaves: _LeafOrder) -> None:
        check_width(tree, dataset)
        found = find_leaves(tree, dataset.X)[:, 0]
        rank = np.empty(tree.n_leaves, dtype=np.int64)
        rank[leaves.leaves] = np.arange(len(leaves.leaves))
        ranks = rank[found]
        self._order = np.argsort(ranks, kind="stable")
        self._ranks = ranks[self._order]
        self._tree = tree
        self._X = dataset.X
        answers, true_labels = tree.leaf_answers, match_labels(tree, dataset)
        is_right = (true_labels >= 0) & (answers.only_label[answers.ids[found]] == true_labels)
        self._is_right = is_right[self._order]

    def count(
        self, node: int, first: int, last: int, epsilon: float | None
    ) -> tuple[int, int | None, float | None, int | None]:
        start, stop = np.searchsorted(self._ranks, [first, last])
        n_rows = int(stop - start)
        _, feature, _, _, _ = self._tree.nodes[node].item()
        if feature < 0:
            return n_rows, int(self._is_right[start:stop].sum()), None, None
        values = self._X[self._order[start:stop], feature]
        threshold = self._tree.nodes["threshold"][node]
        with np.errstate(over="ignore"):
            margin = float(np.abs(values - threshold).min()) if n_rows else None
            near = None
            if epsilon is not None:
                near = int(((values - epsilon <= threshold) & (values + epsilon > threshold)).sum())
        return n_rows, None, margin, near
