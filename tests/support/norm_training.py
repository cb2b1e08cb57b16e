"""Random training problems with a limit of the total change, and the slow evaluation of their trees by fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from metasilvae._core.training.evolution import Individual, Objective, TrainingSet
from metasilvae.dataset import Dataset
from metasilvae.perturbations.boxes import Boxes, NormLimit
from metasilvae.training.samples import make_samples

# Trainers round to the safe side by less than this fraction of epsilon.
ROUNDING = Fraction(1, 10**9)
POWERS = {"l0": 0, "l1": 1, "l2": 2}
# With these weights no tree is better because fewer samples are stable.
WEIGHTS = [(0.9, 0.1, 0.0), (1.0, 0.0, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0)]
Counts = tuple[int, int, int]


@dataclass(frozen=True)
class Limited:
    """Boxes with a radius and limits for each feature, and a limit of the total change."""

    arrays: tuple[np.ndarray, ...]
    limit: NormLimit

    def boxes(self, dataset: Dataset) -> Boxes:
        return Boxes(dataset.X, dataset.X, *self.arrays, limit=self.limit)

    def describe(self) -> str:
        return "limited"


@dataclass(frozen=True)
class NormProblem:
    """A random training problem."""

    dataset: Dataset
    limited: Limited

    @property
    def samples(self) -> TrainingSet:
        return make_samples(self.dataset, self.limited.boxes(self.dataset))

    def objective(self, weights: tuple[float, float, float] = WEIGHTS[0], **limits: int) -> Objective:
        n = self.dataset.n_samples
        return Objective(*(weight / n for weight in weights), range(self.samples.n_features), **limits)


def random_norm_problem(
    rng: np.random.Generator, n_samples: int | None = None, missing: float = 0.0, norm: str | None = None
) -> NormProblem:
    n = n_samples or int(rng.integers(2, 40))
    d, m = int(rng.integers(1, 5)), int(rng.integers(2, 5))
    # Values, costs and epsilon of few bits make ties and distances of exactly epsilon common.
    X = rng.choice([rng.integers(0, 6, (n, d)) / 2, rng.random((n, d)) * 3, rng.normal(size=(n, d))])
    norm = norm or str(rng.choice(list(POWERS)))
    epsilon = float(rng.choice([0.0, 1.0, 2.0] if norm == "l0" else [0.0, 0.25, 0.5, 1.25, 2.0, float(rng.random())]))
    costs = rng.choice([1.0, 2.0, 3.0], d) if norm == "l0" else rng.choice([0.5, 1.0, 2.0, 0.3], d)
    if rng.random() < 0.5:
        costs = np.ones(d)
    # Some features cannot change, or by a limited amount only.
    down, up = (rng.choice([0.0, 0.5, np.inf, np.inf, np.inf], d) for _ in range(2))
    low, high = np.full(d, -np.inf), np.full(d, np.inf)
    if rng.random() < 0.3:
        low, high = X.min(axis=0), X.max(axis=0)
    X[rng.random(X.shape) < missing] = np.nan
    y = rng.integers(0, m, n).astype(np.int32)
    dataset = Dataset(np.ascontiguousarray(X), y, tuple(f"c{i}" for i in range(m)))
    return NormProblem(dataset, Limited((down, up, low, high), NormLimit(norm, epsilon, costs)))


def leaf_intervals(columns: tuple[np.ndarray, ...]) -> Iterator[tuple[int, dict[int, tuple[float, float]]]]:
    """Each leaf of a tree given by feature, threshold, left and right, with its intervals low < x <= high."""
    feature, threshold, left, right = columns
    todo: list[tuple[int, dict[int, tuple[float, float]]]] = [(0, {})]
    while todo:
        node, intervals = todo.pop()
        if feature[node] < 0:
            yield node, intervals
            continue
        f, k = int(feature[node]), float(threshold[node])
        low, high = intervals.get(f, (-math.inf, math.inf))
        todo.append((int(left[node]), {**intervals, f: (low, min(high, k))}))
        todo.append((int(right[node]), {**intervals, f: (max(low, k), high)}))


def cost_of_value(limit: NormLimit, f: int, x: float, value: float) -> Fraction:
    cost = Fraction(float(limit.costs[f]))
    if limit.norm == "l0":
        return cost if x != value else Fraction(0)
    return (cost * abs(Fraction(value) - Fraction(x))) ** POWERS[limit.norm]


def cost_of_intervals(
    problem: NormProblem, row: int, intervals: dict[int, tuple[float, float]]
) -> dict[int, Fraction] | None:
    """What the row pays in each feature for the nearest point; None if its box has no point there."""
    boxes = problem.limited.boxes(problem.dataset)
    lower, upper = boxes.bounds(row)
    found = {}
    for f, (low, high) in intervals.items():
        x = float(problem.dataset.X[row, f])
        value = min(max(x, math.nextafter(low, math.inf)), high)
        if not (low < high and max(lower[f], -1e300) <= value <= min(upper[f], 1e300)):
            return None
        found[f] = cost_of_value(problem.limited.limit, f, x, value)
    return found


def slow_counts(columns: tuple[np.ndarray, ...], problem: NormProblem, factor: Fraction = Fraction(1)) -> Counts:
    """Correct, stable and robust samples by the distance of every row from every leaf, for epsilon times a factor."""
    feature, threshold, left, right = columns
    dataset, limit = problem.dataset, problem.limited.limit
    budget = (Fraction(limit.epsilon) * factor) ** max(POWERS[limit.norm], 1)
    leaves = list(leaf_intervals(columns))
    own = []
    for x in dataset.X:
        node = 0
        while feature[node] >= 0:
            node = left[node] if x[feature[node]] <= threshold[node] else right[node]
        own.append(int(node))
    classes = {node: np.zeros(dataset.n_labels, dtype=int) for node, _ in leaves}
    for node, label in zip(own, dataset.y, strict=True):
        classes[node][label] += 1
    sets = {node: frozenset(np.flatnonzero(each == each.max()).tolist()) for node, each in classes.items()}
    correct = stable = robust = 0
    for row in range(dataset.n_samples):
        is_correct = sets[own[row]] == {int(dataset.y[row])}
        is_stable = True
        for node, intervals in leaves:
            if sets[node] != sets[own[row]]:
                costs = cost_of_intervals(problem, row, intervals)
                is_stable &= costs is None or sum(costs.values(), Fraction(0)) > budget
        correct += is_correct
        stable += is_stable
        robust += is_correct and is_stable
    return correct, stable, robust


def check_counts(tree: Individual, problem: NormProblem) -> None:
    """Counts of the trainer are those of the slow evaluation, or rounded to the safe side."""
    columns = tree.nodes()[:4]
    exact = slow_counts(columns, problem)
    if tree.counts != exact:
        wider = slow_counts(columns, problem, 1 + ROUNDING)
        assert problem.limited.limit.norm != "l0"
        assert tree.counts[0] == exact[0]
        assert wider[1] <= tree.counts[1] <= exact[1]
        assert wider[2] <= tree.counts[2] <= exact[2]


def thresholds_of_leaf(problem: NormProblem, columns: tuple[np.ndarray, ...], leaf: int, feature: int) -> list[float]:
    """One threshold between any two neighbouring thresholds at which some row reaches a side of a split of a leaf."""
    limit = problem.limited.limit
    intervals = dict(leaf_intervals(columns))[leaf]
    power = max(POWERS[limit.norm], 1)
    lower, upper = problem.limited.boxes(problem.dataset).all_bounds
    events = set()
    for row, x in enumerate(problem.dataset.X[:, feature].tolist()):
        costs = cost_of_intervals(problem, row, intervals)
        if costs is None:
            continue
        rest = Fraction(limit.epsilon) ** power - sum(costs.values(), Fraction(0)) + costs.get(feature, 0)
        if rest >= 0:
            radius = float(rest) ** (1 / power) / float(limit.costs[feature])
            events |= {x, *(min(max(x + way, lower[row, feature]), upper[row, feature]) for way in (-radius, radius))}
    found = sorted(event for event in events if math.isfinite(event))
    return [low + (high - low) / 2 for low, high in itertools.pairwise(found) if high - low > 1e-9]


def with_test(columns: tuple[np.ndarray, ...], node: int, feature: int, threshold: float) -> tuple[np.ndarray, ...]:
    """The nodes with another test in one of them, which may be a leaf."""
    features, thresholds, left, right = (column.copy() for column in columns)
    if features[node] < 0:
        n = len(features)
        features = np.append(features, [-1, -1]).astype(np.int32)
        thresholds = np.append(thresholds, [0.0, 0.0])
        left, right = (np.append(side, [-1, -1]).astype(np.int32) for side in (left, right))
        left[node], right[node] = n, n + 1
    features[node], thresholds[node] = feature, threshold
    return features, thresholds, left, right


def score(counts: Counts, weights: tuple[float, float, float], n: int) -> float:
    return sum(weight / n * count for weight, count in zip(weights, counts, strict=True))


def copy_with_epsilon(problem: NormProblem, epsilon: float) -> NormProblem:
    return replace(problem, limited=replace(problem.limited, limit=replace(problem.limited.limit, epsilon=epsilon)))
