"""Polishing of a boosted tree: its leaves and splits for the worst case of each row in the whole tree.

While a tree grows, each leaf is treated by itself, which promises more than the tree keeps: a row that is better off in
one leaf is then worst off in another. Here the certified part of the loss of a row counts at the worst one of all
leaves that its box reaches. The kernel (cython_ext/training/boosting_polish.pyx) lowers this loss leaf by leaf, and
removes splits that do not lower it. `polish_tree` does so for a new tree, `ReachedTree.refitted` for the leaves of a
tree among others, which were grown after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import boosting_polish as kernel
from metasilvae._core.training.boosting_codes import number_leaves, order_levels, reach_leaves
from metasilvae.training.boosted_trees import UNIT, BoostedTree, Codes, Derivatives, FloatArray, IntArray

# Passes over all leaves that lower the loss of the whole tree afterwards.
POLISHES = 3
# Room for leaves that the box of a sample reaches, on average; with more of them, they are looked for twice.
USUAL_REACH = 4


def polish_tree(
    tree: BoostedTree, codes: Codes, loss: Derivatives, is_positive: NDArray[np.bool_], penalty: float,
    n_passes: int = POLISHES, prunes: bool = True,
) -> BoostedTree:  # fmt: skip
    """The tree with other values of its leaves, pruned where a split does not lower the loss of all samples.

    Parameters
    ----------
    penalty : float
        As in `GrowthLimits`.
    n_passes : int
        Each one moves the values of all leaves, one after another.
    """
    reached = ReachedTree(tree, codes, is_positive)
    own, worst, values = reached.own, reached.worst, reached.values
    slope = float((loss.own_gradient * own + loss.gradient * worst).sum())
    bend = float((loss.own_hessian * own**2 + loss.hessian * worst**2).sum() + penalty / UNIT * (values**2).sum())
    # The loss falls from 0 along the given values, by the slope and the bend, or they are no good.
    values *= 0.0 if slope >= 0 else min(1.0, -slope / bend) if bend else 1.0
    return reached.polished(loss.own_gradient, loss.gradient, loss, penalty, prunes, n_passes)


class ReachedTree:
    """A tree in pre-order with the leaves that samples and their boxes reach.

    Attributes
    ----------
    values : float64 array, shape (n_leaves,)
    own, worst : float64 arrays, shape (n_samples,)
        Values of the leaf that each sample falls into, and of the worst one that its box reaches.
    """

    def __init__(self, tree: BoostedTree, codes: Codes, is_positive: NDArray[np.bool_]) -> None:
        feature, code, left, right, value = tree.in_preorder()
        self._nodes = feature, code, left, right
        self._is_leaf = feature < 0
        self._first, self._last = np.empty((2, len(feature)), dtype=np.int32)
        number_leaves(feature, right, self._first, self._last)
        self._own_leaf, self._starts, self._reached = _reach(codes, (*self._nodes, self._first), tree.depth)
        self._sign = np.where(is_positive, 1.0, -1.0)
        self.values = value[self._is_leaf]
        self.own = self.values[self._own_leaf]
        signed = np.repeat(self._sign, np.diff(self._starts)) * self.values[self._reached]
        self.worst = self._sign * np.minimum.reduceat(signed, self._starts[:-1])

    def scores_of(self, tree: BoostedTree) -> FloatArray:
        """Scores of the samples, and the lowest and highest ones in their boxes, by this tree with any values."""
        feature, *_, value = tree.in_preorder()
        values = value[feature < 0]
        reached, starts = values[self._reached], self._starts[:-1]
        return np.stack(
            [values[self._own_leaf], np.minimum.reduceat(reached, starts), np.maximum.reduceat(reached, starts)]
        )

    def refitted(self, loss: Derivatives, penalty: float, n_passes: int = 1) -> BoostedTree:
        """The tree with other values, where the derivatives are those at scores that it takes part in.

        The loss is taken as a parabola through the present scores, so its derivatives without the tree follow.
        """
        own_gradient = loss.own_gradient - loss.own_hessian * self.own
        gradient = loss.gradient - loss.hessian * self.worst
        return self.polished(own_gradient, gradient, loss, penalty, False, n_passes)

    def polished(
        self, own_gradient: NDArray[Any], gradient: NDArray[Any], loss: Derivatives, penalty: float, prunes: bool,
        n_passes: int,
    ) -> BoostedTree:  # fmt: skip
        """The tree with a smaller loss; second derivatives are those of `loss`."""
        n_leaves = len(self.values)
        leaf_starts = np.empty(n_leaves + 1, dtype=np.int64)
        leaf_rows = np.empty(len(self._reached), dtype=np.int32)
        kernel.group_rows(self._starts, self._reached, leaf_starts, leaf_rows)
        own_gradients, own_hessians = (
            np.concatenate([[0.0], np.cumsum(np.bincount(self._own_leaf, part, n_leaves))])
            for part in (own_gradient, loss.own_hessian)
        )
        ends = self._is_leaf.astype(np.uint8)
        kernel.polish_tree(
            *self._nodes[2:], self._first, self._last, self._starts, self._reached, leaf_starts, leaf_rows,
            own_gradients, own_hessians, self._sign, gradient.astype(np.float64), loss.hessian, penalty / UNIT, prunes,
            n_passes, self.values, ends,
        )  # fmt: skip
        return _pruned(self._nodes, self.values[self._first], ends)


def _reach(
    codes: Codes, nodes: tuple[IntArray, IntArray, IntArray, IntArray, IntArray], depth: int
) -> tuple[IntArray, NDArray[np.int64], IntArray]:
    """The leaf that each sample falls into, and those that its box reaches, with their starts."""
    n_samples = codes.n_samples
    waiting, own_leaf = np.empty(depth + 2, dtype=np.int32), np.empty(n_samples, dtype=np.int32)
    starts = np.empty(n_samples + 1, dtype=np.int64)
    room = USUAL_REACH * n_samples
    while True:
        reached = np.empty(room, dtype=np.int32)
        n_pairs = reach_leaves(*codes.arrays, *nodes, waiting, own_leaf, starts, reached)
        if n_pairs <= room:
            return own_leaf, starts, reached[:n_pairs]
        room = n_pairs


def _pruned(nodes: tuple[IntArray, ...], value: FloatArray, is_leaf: NDArray[np.uint8]) -> BoostedTree:
    """The tree down to the first leaf on each path, level by level as it would have been grown."""
    feature, code, left, right = nodes
    order = np.empty(len(feature), dtype=np.int32)
    order = order[: order_levels(left, right, is_leaf, order)]
    ends = is_leaf[order] > 0
    first = np.where(ends, -1, 2 * np.cumsum(~ends) - 1).astype(np.int32)
    return BoostedTree(
        np.where(ends, -1, feature[order]).astype(np.int32), np.where(ends, -1, code[order]).astype(np.int32),
        first, np.where(ends, -1, first + 1).astype(np.int32), np.where(ends, value[order], 0.0),
    )  # fmt: skip
