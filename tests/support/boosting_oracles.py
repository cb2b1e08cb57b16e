"""Slow, obvious twins of the kernels of robust boosting: they move real values and boxes, and know no codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np


@dataclass(frozen=True)
class LeafProblem:
    """The samples of one leaf.

    Attributes
    ----------
    x, lower, upper : float64 arrays, shape (n_samples, n_features)
        Samples and the ends of their boxes.
    falls, reaches : bool arrays, shape (n_samples,)
        Whether a sample falls into the leaf, and whether its box reaches it.
    is_positive : bool array, shape (n_samples,)
    own_gradient, own_hessian, gradient, hessian : int arrays, shape (n_samples,)
    """

    x: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    falls: np.ndarray
    reaches: np.ndarray
    is_positive: np.ndarray
    own_gradient: np.ndarray
    own_hessian: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray


def loss_of_values(problem: LeafProblem, feature: int, threshold: float, left: float, right: float) -> float:
    """Twice the quadratic loss if the children have the given values: each sample at itself and at its worst."""
    total = 0.0
    for i in range(len(problem.x)):
        if problem.falls[i]:
            value = left if problem.x[i, feature] <= threshold else right
            total += 2 * int(problem.own_gradient[i]) * value + int(problem.own_hessian[i]) * value**2
        if problem.reaches[i]:
            reached = []
            if problem.lower[i, feature] <= threshold:
                reached.append(left)
            if problem.upper[i, feature] > threshold:
                reached.append(right)
            value = min(reached) if problem.is_positive[i] else max(reached)
            total += 2 * int(problem.gradient[i]) * value + int(problem.hessian[i]) * value**2
    return total


def sums_of_order(problem: LeafProblem, feature: int, threshold: float, is_rising: bool) -> tuple[int, int, int, int]:
    """First and second derivatives of the left and the right child if the left value is the lower one, or the higher.

    Under either order every sample has one worst child, so that each child has a value of its own.
    """
    sums = [0, 0, 0, 0]
    for i in range(len(problem.x)):
        if problem.falls[i]:
            side = 0 if problem.x[i, feature] <= threshold else 2
            sums[side] += int(problem.own_gradient[i])
            sums[side + 1] += int(problem.own_hessian[i])
        if problem.reaches[i]:
            goes_left = problem.lower[i, feature] <= threshold
            if goes_left and problem.upper[i, feature] > threshold:
                # A positive sample is worst off where the value is low.
                goes_left = bool(problem.is_positive[i]) == is_rising
            side = 0 if goes_left else 2
            sums[side] += int(problem.gradient[i])
            sums[side + 1] += int(problem.hessian[i])
    return sums[0], sums[1], sums[2], sums[3]


def value_of(gradient: float, hessian: float, penalty: float) -> float:
    """The best value of a leaf; 0 if the loss has no bend there."""
    return -gradient / (hessian + penalty) if hessian + penalty > 0 else 0.0


def merit_of(gradient: float, hessian: float, penalty: float) -> float:
    """Twice what this value takes off the loss."""
    return gradient * gradient / (hessian + penalty) if hessian + penalty > 0 else 0.0


def least_loss(problem: LeafProblem, feature: int, threshold: float, penalty: float) -> float:
    """Twice the smallest loss with its penalty over all values of the children, by the closed form."""
    left_first, left_second, right_first, right_second = sums_of_order(problem, feature, threshold, True)
    best = -merit_of(left_first + right_first, left_second + right_second, 2 * penalty)
    for is_rising in (True, False):
        sums = sums_of_order(problem, feature, threshold, is_rising)
        left, right = (value_of(sums[side], sums[side + 1], penalty) for side in (0, 2))
        if (left <= right) == is_rising:
            best = min(best, -sum(merit_of(sums[side], sums[side + 1], penalty) for side in (0, 2)))
    return best


def best_values(
    problem: LeafProblem, feature: int, threshold: float, penalty: float
) -> tuple[float, tuple[int, int, int, int]] | None:
    """Twice the gain over a single leaf and the four sums of the better order; None if neither gains."""
    found = None
    for is_rising in (True, False):
        sums = sums_of_order(problem, feature, threshold, is_rising)
        left, right = (value_of(sums[side], sums[side + 1], penalty) for side in (0, 2))
        gain = sum(merit_of(sums[side], sums[side + 1], penalty) for side in (0, 2))
        gain -= merit_of(sums[0] + sums[2], sums[1] + sums[3], penalty)
        if (left <= right) == is_rising and gain > (0.0 if found is None else found[0]):
            found = gain, sums
    return found


def best_split(
    problem: LeafProblem, feature: int, thresholds: np.ndarray, penalty: float, min_samples: int
) -> tuple[float, list[int]]:
    """Twice the best gain over all thresholds of a feature, and the numbers of the thresholds that have it."""
    best, numbers = 0.0, []
    for number, threshold in enumerate(thresholds.tolist()):
        n_left = int((problem.falls & (problem.x[:, feature] <= threshold)).sum())
        if min(n_left, int(problem.falls.sum()) - n_left) < min_samples:
            continue
        found = best_values(problem, feature, threshold, penalty)
        if found is None:
            continue
        if found[0] > best:
            best, numbers = found[0], []
        if found[0] == best:
            numbers.append(number)
    return best, numbers


def best_by_search(problem: LeafProblem, feature: int, threshold: float, penalty: float, values: np.ndarray) -> float:
    """Twice the smallest loss with its penalty over all pairs of the given values."""
    return min(
        loss_of_values(problem, feature, threshold, left, right) + penalty * (left**2 + right**2)
        for left, right in product(values.tolist(), repeat=2)
    )


@dataclass
class SlowLeaf:
    """A leaf of a tree that grows: which samples fall into it, and which ones have boxes that reach it."""

    node: int
    falls: np.ndarray
    reaches: np.ndarray
    value: float = 0.0


@dataclass
class SlowSplit:
    """The best test of a leaf."""

    gain: float
    feature: int
    number: int
    children: list[SlowLeaf] = field(default_factory=list)

    @property
    def n_pairs(self) -> int:
        return sum(int(child.reaches.sum()) for child in self.children)


@dataclass
class SlowGrowth:
    """A tree that grows level by level, see `boosting_growth.Growth`; every step is written as it is described.

    Attributes
    ----------
    problem : LeafProblem
        All samples; those to grow on fall into the root and reach it.
    thresholds : list of float64 arrays
    share : float
        Weight of a sample in leaves that it reaches but where it is not worst off.
    """

    problem: LeafProblem
    thresholds: list[np.ndarray]
    penalty: float
    min_samples: int
    share: float
    most_pairs: int

    def grow(self, features_of_levels: Sequence[Sequence[int]], n_refits: int) -> tuple[list[list[int]], list[float]]:
        """Feature, number of the threshold, left and right of the nodes, and their values (0 in inner nodes)."""
        root = SlowLeaf(0, self.problem.falls, self.problem.reaches)
        root.value = value_of(*self._sums(root, [root], 1.0), self.penalty)
        nodes, leaves, level = [[-1, -1, -1, -1]], [root], [root]
        for features in features_of_levels:
            splits = {leaf.node: self._best_split(leaf, leaves, features) for leaf in level}
            chosen = self._within_limit([(leaf, splits[leaf.node]) for leaf in level])
            children = []
            for leaf in level:
                split = splits[leaf.node]
                if split is None or leaf.node not in chosen:
                    continue
                for child in split.children:
                    child.node = len(nodes)
                    nodes.append([-1, -1, -1, -1])
                nodes[leaf.node] = [split.feature, split.number, *(child.node for child in split.children)]
                leaves.remove(leaf)
                children += split.children
            leaves, level = leaves + children, children
        for _ in range(n_refits):
            best = [value_of(*self._sums(leaf, leaves, 0.0), self.penalty) for leaf in leaves]
            for leaf, value in zip(leaves, best, strict=True):
                leaf.value = (value + leaf.value) * 0.5
        values = [0.0] * len(nodes)
        for leaf in leaves:
            values[leaf.node] = leaf.value
        return nodes, values

    def _weighted(self, leaf: SlowLeaf, leaves: list[SlowLeaf], share: float) -> LeafProblem:
        """The samples of a leaf, with a share of the certified part of those that are worse off in another leaf."""
        problem = self.problem
        gradient, hessian = problem.gradient.tolist(), problem.hessian.tolist()
        for i in np.flatnonzero(leaf.reaches).tolist():
            reached = [other.value for other in leaves if other.reaches[i]]
            if leaf.value != (min(reached) if problem.is_positive[i] else max(reached)):
                gradient[i], hessian[i] = int(share * gradient[i]), int(share * hessian[i])
        return replace(
            problem, falls=leaf.falls, reaches=leaf.reaches, gradient=np.array(gradient), hessian=np.array(hessian)
        )

    def _sums(self, leaf: SlowLeaf, leaves: list[SlowLeaf], share: float) -> tuple[int, int]:
        at = self._weighted(leaf, leaves, share)
        first = at.own_gradient[at.falls].sum() + at.gradient[at.reaches].sum()
        return int(first), int(at.own_hessian[at.falls].sum() + at.hessian[at.reaches].sum())

    def _best_split(self, leaf: SlowLeaf, leaves: list[SlowLeaf], features: Sequence[int]) -> SlowSplit | None:
        """Of equal tests the first one, those with a rising value before those with a falling one."""
        problem, best = self._weighted(leaf, leaves, self.share), None
        for feature in features:
            for is_rising, (number, threshold) in product((True, False), enumerate(self.thresholds[feature].tolist())):
                goes_left = problem.x[:, feature] <= threshold
                n_left, n_right = int((leaf.falls & goes_left).sum()), int((leaf.falls & ~goes_left).sum())
                if min(n_left, n_right) < self.min_samples:
                    continue
                sums = sums_of_order(problem, feature, threshold, is_rising)
                parts = (sums[:2], sums[2:])
                left, right = (value_of(*part, self.penalty) for part in parts)
                whole = merit_of(sums[0] + sums[2], sums[1] + sums[3], self.penalty)
                gain = merit_of(*parts[0], self.penalty) + merit_of(*parts[1], self.penalty) - whole
                if (left <= right) == is_rising and gain > (0.0 if best is None else best.gain):
                    below, above = problem.lower[:, feature] <= threshold, problem.upper[:, feature] > threshold
                    best = SlowSplit(gain, feature, number, [
                        SlowLeaf(-1, leaf.falls & goes_left, leaf.reaches & below, left),
                        SlowLeaf(-1, leaf.falls & ~goes_left, leaf.reaches & above, right),
                    ])  # fmt: skip
        return best

    def _within_limit(self, splits: list[tuple[SlowLeaf, SlowSplit | None]]) -> set[int]:
        """The leaves to split: those with the largest gains, as long as their children have few enough pairs."""
        found = sorted(((leaf, split) for leaf, split in splits if split), key=lambda each: -each[1].gain)
        chosen, n_pairs = set(), 0
        for leaf, split in found:
            n_pairs += split.n_pairs
            if n_pairs <= self.most_pairs:
                chosen.add(leaf.node)
        return chosen


def bounds_of_tree(
    feature: np.ndarray, threshold: np.ndarray, left: np.ndarray, right: np.ndarray, value: np.ndarray,
    x: np.ndarray, lower: np.ndarray, upper: np.ndarray,
) -> tuple[float, float, float]:  # fmt: skip
    """Score of one sample by a tree, and the lowest and the highest one in its box."""

    def reached(node: int) -> list[float]:
        if feature[node] < 0:
            return [float(value[node])]
        found = []
        if lower[feature[node]] <= threshold[node]:
            found += reached(left[node])
        if upper[feature[node]] > threshold[node]:
            found += reached(right[node])
        return found

    node = 0
    while feature[node] >= 0:
        node = left[node] if x[feature[node]] <= threshold[node] else right[node]
    return float(value[node]), min(reached(0)), max(reached(0))


def leaves_of(tree: tuple[np.ndarray, ...], low: np.ndarray, high: np.ndarray, node: int = 0) -> list[int]:
    """Leaves that a box reaches, from left to right; `tree` is feature, threshold, left and right of the nodes."""
    feature, threshold, left, right = tree
    f = feature[node]
    if f < 0:
        return [node]
    found = []
    if low[f] <= threshold[node]:
        found += leaves_of(tree, low, high, left[node])
    if high[f] > threshold[node]:
        found += leaves_of(tree, low, high, right[node])
    return found


def loss_of_tree(
    tree: tuple[np.ndarray, ...], value: np.ndarray, x: np.ndarray, lower: np.ndarray, upper: np.ndarray,
    is_positive: np.ndarray, derivatives: tuple[np.ndarray, ...], penalty: float,
) -> float:  # fmt: skip
    """The quadratic loss of a tree: each sample at itself and at the worst leaf that its box reaches."""
    own_gradient, own_hessian, gradient, hessian = derivatives
    loss = sum(0.5 * penalty * value[leaf] ** 2 for leaf in np.flatnonzero(tree[0] < 0))
    for i in range(len(x)):
        own = value[leaves_of(tree, x[i], x[i])[0]]
        reached = [value[leaf] for leaf in leaves_of(tree, lower[i], upper[i])]
        worst = min(reached) if is_positive[i] else max(reached)
        loss += float(own_gradient[i]) * own + 0.5 * int(own_hessian[i]) * own**2
        loss += float(gradient[i]) * worst + 0.5 * int(hessian[i]) * worst**2
    return float(loss)
