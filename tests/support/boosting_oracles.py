"""Slow, obvious twins of the kernels of robust boosting: they move real values and boxes, and know no codes."""

from __future__ import annotations

from dataclasses import dataclass
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


def least_loss(problem: LeafProblem, feature: int, threshold: float, penalty: float) -> float:
    """Twice the smallest loss with its penalty over all values of the children, by the closed form."""
    left_first, left_second, right_first, right_second = sums_of_order(problem, feature, threshold, True)
    equal = (left_first + right_first, left_second + right_second)
    best = -(float(equal[0]) ** 2) / (equal[1] + 2 * penalty)
    for is_rising in (True, False):
        sums = sums_of_order(problem, feature, threshold, is_rising)
        left, right = (-sums[side] / (sums[side + 1] + penalty) for side in (0, 2))
        if (left <= right) == is_rising:
            best = min(best, -sum(float(sums[side]) ** 2 / (sums[side + 1] + penalty) for side in (0, 2)))
    return best


def best_values(
    problem: LeafProblem, feature: int, threshold: float, penalty: float
) -> tuple[float, tuple[int, int, int, int]] | None:
    """Twice the gain over a single leaf and the four sums of the better order; None if neither gains."""
    found = None
    for is_rising in (True, False):
        sums = sums_of_order(problem, feature, threshold, is_rising)
        left, right = (-sums[side] / (sums[side + 1] + penalty) for side in (0, 2))
        gain = sum(float(sums[side]) ** 2 / (sums[side + 1] + penalty) for side in (0, 2))
        gain -= float(sums[0] + sums[2]) ** 2 / (sums[1] + sums[3] + penalty)
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
