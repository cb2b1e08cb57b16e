"""Slow, obvious twins of the compiled kernels, and random models to compare them on.

A tree is written as nested tuples: ``(feature, threshold, left, right)`` for a split, a list of values for a
leaf.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, NODE_DTYPE, LeafKind, Model
from metasilvae.perturbations.boxes import Boxes

LARGEST = sys.float_info.max
TINIEST = 5e-324
LARGEST_COUNT = 2**53

Nested = tuple | list
LabelSet = tuple[int, ...]


# Models


def make_model(
    trees: Sequence[Nested],
    n_features: int = 2,
    labels: Sequence[str] = ("a", "b"),
    kind: LeafKind = LeafKind.COUNTS,
    is_forest: bool | None = None,
    source: str = "<memory>",
) -> Model:
    """A model from nested trees; a forest if there are several, or if asked for."""
    nodes: list[tuple[float, int, int, int, int]] = []
    values: list[list[float]] = []
    roots = []
    for tree in trees:
        roots.append(len(nodes))
        todo: list[tuple[Nested, int]] = [(tree, -1)]  # subtree, split whose right child it is
        while todo:
            subtree, parent = todo.pop()
            here = len(nodes)
            if parent >= 0:
                threshold, feature, left, _, leaf = nodes[parent]
                nodes[parent] = (threshold, feature, left, here, leaf)
            if isinstance(subtree, list):
                nodes.append((0.0, -1, -1, -1, len(values)))
                values.append(subtree)
            else:
                feature, threshold, left_part, right_part = subtree
                nodes.append((threshold, feature, here + 1, -1, -1))
                todo += [(right_part, here), (left_part, -1)]
    return Model(
        np.array(nodes, dtype=NODE_DTYPE),
        np.array(roots, dtype=np.int32),
        np.array(values, dtype=np.int64 if kind is LeafKind.COUNTS else np.float64).reshape(-1, len(labels)),
        kind,
        n_features,
        tuple(labels),
        len(trees) > 1 if is_forest is None else is_forest,
        source,
    )


def nest(model: Model, position: int = 0) -> Nested:
    """One tree of a model as nested tuples; for small trees, because it recurses."""

    def visit(node: int) -> Nested:
        threshold, feature, left, right, leaf = model.nodes[node].item()
        if feature < 0:
            return model.leaf_values[leaf].tolist()
        return (feature, threshold, visit(left), visit(right))

    return visit(int(model.roots[position]))


# Semantics


def prediction_of(values: Sequence[float]) -> LabelSet:
    """Positions of the largest value."""
    largest = max(values)
    return tuple(label for label, value in enumerate(values) if value == largest)


def leaf_of(model: Model, x: Sequence[float], position: int = 0) -> int:
    """Number of the leaf of one tree into which a sample falls."""
    node = model.nodes[model.roots[position]]
    while node["feature"] >= 0:
        value = x[node["feature"]]
        is_left = node["leaf"] == MISSING_LEFT if math.isnan(value) else value <= node["threshold"]
        node = model.nodes[node["left"] if is_left else node["right"]]
    return int(node["leaf"])


def classify(tree: Model, x: Sequence[float]) -> LabelSet:
    """Answer of a model of one tree."""
    return prediction_of(tree.leaf_values[leaf_of(tree, x)].tolist())


def boxes_of_leaves(
    tree: Model, lower: Sequence[float], upper: Sequence[float], position: int = 0
) -> Iterator[tuple[int, list[float], list[float]]]:
    """Leaves of one tree that some point of a closed box reaches, each with the part of the box that does."""
    todo = [(int(tree.roots[position]), list(lower), list(upper))]
    while todo:
        place, low, high = todo.pop()
        threshold, feature, left, right, leaf = tree.nodes[place].item()
        if feature < 0:
            yield leaf, low, high
            continue
        if low[feature] <= threshold:
            narrowed = high.copy()
            narrowed[feature] = min(high[feature], threshold)
            todo.append((left, low, narrowed))
        if high[feature] > threshold:
            narrowed = low.copy()
            narrowed[feature] = max(low[feature], math.nextafter(threshold, math.inf))
            todo.append((right, narrowed, high))


def feasible_leaves(tree: Model, lower: Sequence[float], upper: Sequence[float], position: int = 0) -> set[int]:
    """Leaves of one tree that some point of a closed box reaches."""
    return {leaf for leaf, _, _ in boxes_of_leaves(tree, lower, upper, position)}


def elect(model: Model, x: Sequence[float], voting: str) -> tuple[int, ...]:
    """Answer of a model for one sample, by definition."""
    totals = [Fraction(0)] * model.n_labels
    for position in range(model.n_trees):
        values = model.leaf_values[leaf_of(model, x, position)].tolist()
        for label, value in enumerate(values):
            if voting == "max":
                totals[label] += label in prediction_of(values)
            elif voting == "average":
                totals[label] += Fraction(value, sum(values))
            else:
                totals[label] += Fraction(value)
    return prediction_of(totals)


def forest_predictions(
    model: Model, lower: Sequence[float], upper: Sequence[float], voting: str, tiers: Sequence[int] | None = None
) -> set[LabelSet]:
    """Every answer of a forest for the finite points of a box, by trying out every combination of leaves that meet."""
    tiers = tiers or [0] * model.n_features
    groups = [[f for f, tier in enumerate(tiers) if tier == number] for number in sorted(set(tiers) - {0})]
    predictions = set()
    for ones in itertools.product(*groups):
        low, high = [max(x, -LARGEST) for x in lower], [min(x, LARGEST) for x in upper]
        for f in itertools.chain(*groups):
            low[f], high[f] = max(low[f], float(f in ones)), min(high[f], float(f in ones))
        if any(a > b for a, b in zip(low, high, strict=True)):
            continue
        regions = [(low, high)]
        for position in range(model.n_trees):
            regions = [
                (low, high) for region in regions for _, low, high in boxes_of_leaves(model, *region, position)
                if all(map(math.isfinite, low))
            ]  # fmt: skip
        predictions |= {elect(model, low, voting) for low, _ in regions}
    return predictions


def whole_space(n_features: int) -> tuple[list[float], list[float]]:
    """The box of all finite samples."""
    return [-LARGEST] * n_features, [LARGEST] * n_features


# Distances


def power_of_distance(
    norm: str,
    sample: Sequence[float],
    point: Sequence[float],
    costs: Sequence[float],
    groups: Sequence[Sequence[int]] = (),
) -> Fraction:
    """The distance of two points, squared for l2; a one-hot group counts as one feature that changes by 1."""
    total = Fraction(0)
    members = set(itertools.chain(*groups))
    changes = [
        (Fraction(costs[f]), abs(Fraction(point[f]) - Fraction(sample[f])))
        for f in range(len(sample))
        if f not in members and point[f] != sample[f]
    ]
    changes += [
        (max(Fraction(costs[f]) for f in group), Fraction(1))
        for group in groups
        if any(point[f] != sample[f] for f in group)
    ]
    for cost, size in changes:
        total += {"l0": cost, "l1": cost * size, "l2": (cost * size) ** 2}[norm]
    return total


def cells_of(model: Model, sample: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Points such that every other one falls into the same leaves as one of them that is as near to a sample."""
    columns = []
    for feature, x in enumerate(sample):
        thresholds = model.nodes["threshold"][model.nodes["feature"] == feature].tolist()
        values = {x, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)}
        columns.append(sorted(value for value in values if math.isfinite(value)))
    return itertools.product(*columns)


# Missing values


def with_directions(model: Model, rng: random.Random) -> Model:
    """The same model with a random direction of missing values in each split."""
    nodes = model.nodes.copy()
    for place in np.flatnonzero(nodes["feature"] >= 0):
        nodes["leaf"][place] = rng.choice([MISSING_LEFT, MISSING_RIGHT])
    return replace(model, nodes=nodes)


def collapse(model: Model, missing: Collection[int]) -> Model:
    """The model for samples in which these features are missing and no others: it does not test them."""

    def visit(node: int) -> Nested:
        threshold, feature, left, right, leaf = model.nodes[node].item()
        if feature < 0:
            return model.leaf_values[leaf].tolist()
        if feature in missing:
            return visit(left if leaf == MISSING_LEFT else right)
        return (feature, threshold, visit(left), visit(right))

    trees = [visit(root) for root in model.roots.tolist()]
    return make_model(trees, model.n_features, model.labels, model.leaf_kind, model.is_forest, model.source)


def subsets(items: Sequence[int]) -> list[tuple[int, ...]]:
    return [chosen for size in range(len(items) + 1) for chosen in itertools.combinations(items, size)]


def points_with_missing(model: Model, domain: Sequence[tuple[float, float]] | None = None) -> list[tuple[float, ...]]:
    """Samples such that every other one falls into the same leaves as one of them, with missing values."""
    columns = []
    for feature in range(model.n_features):
        low, high = (-LARGEST, LARGEST) if domain is None else domain[feature]
        thresholds = model.nodes["threshold"][model.nodes["feature"] == feature].tolist()
        values = {low, high, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)}
        columns.append([math.nan, *sorted(value for value in values if low <= value <= high)])
    return list(itertools.product(*columns))


# Questions


def data_of(rows: list[list[float]], labels: list[str]) -> Dataset:
    names = tuple(dict.fromkeys(labels))
    y = np.array([names.index(label) for label in labels], dtype=np.int32)
    return Dataset(np.array(rows, dtype=np.float64), y, names, source="data.csv")


@dataclass(frozen=True)
class GivenBoxes:
    """Boxes that need not contain their samples, as they may come from a file."""

    lower: list[list[float]]
    upper: list[list[float]]

    def boxes(self, dataset: Dataset) -> Boxes:
        nothing, endless = np.zeros(dataset.n_features), np.full(dataset.n_features, np.inf)
        return Boxes(np.array(self.lower), np.array(self.upper), nothing, nothing, -endless, endless)

    def describe(self) -> str:
        return "given"


# Random models

ODD_NUMBERS = (
    *(0.0, -0.0, 0.5, 1.0, 2.0, -1.0, 0.1, 0.3, 1 / 3, 5.0, 16384.0),
    *(TINIEST, -TINIEST, 2.2250738585072014e-308, 1e-7, 1e-5, 1e16, 1e22, 1e23),
    *(float(2**53), float(2**53 + 2), 1e300, LARGEST, -LARGEST),
)
finite_numbers = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.one_of(st.integers(-3, 3).map(float), st.sampled_from(ODD_NUMBERS), finite_numbers)
label_names = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"), exclude_characters=","),
    min_size=1,
    max_size=7,
)


@st.composite
def nested_trees(
    draw: st.DrawFn,
    n_features: int,
    leaves: st.SearchStrategy[list],
    thresholds: Sequence[float],
    max_splits: int,
) -> Nested:
    """A tree grown by splitting leaves; few thresholds make equal tests and contradictory branches likely."""
    n_splits = draw(st.integers(0, max_splits))
    feature = st.integers(0, n_features - 1)
    threshold = st.sampled_from(thresholds)
    parts: list[Nested] = [draw(leaves) for _ in range(n_splits + 1)]
    for _ in range(n_splits):
        # Join two neighbours, so that the shape is anything between a chain and a balanced tree.
        place = draw(st.integers(0, len(parts) - 2))
        parts[place : place + 2] = [(draw(feature), draw(threshold), parts[place], parts[place + 1])]
    return parts[0]


@st.composite
def models(
    draw: st.DrawFn,
    max_trees: int = 3,
    max_splits: int = 9,
    max_features: int = 3,
    max_labels: int = 4,
    kinds: Sequence[LeafKind] = tuple(LeafKind),
    simple_labels: bool = True,
) -> Model:
    """Trees and forests with ties, equal thresholds, contradictory branches, huge and tiny numbers."""
    n_features = draw(st.integers(1, max_features))
    n_labels = draw(st.integers(1, max_labels))
    kind = draw(st.sampled_from(kinds))
    thresholds = draw(st.lists(numbers, min_size=1, max_size=6))
    values: st.SearchStrategy[float] = numbers
    if kind is LeafKind.COUNTS:
        values = st.one_of(st.integers(0, 2), st.integers(0, LARGEST_COUNT))
    leaves = st.lists(values, min_size=n_labels, max_size=n_labels)
    if kind is LeafKind.COUNTS:
        leaves = leaves.map(lambda row: row if any(row) else [1] * n_labels)
    n_trees = draw(st.integers(1, max_trees))
    trees = [draw(nested_trees(n_features, leaves, thresholds, max_splits)) for _ in range(n_trees)]
    labels = [chr(ord("a") + i) for i in range(n_labels)]
    if not simple_labels:
        labels = draw(st.lists(label_names, min_size=n_labels, max_size=n_labels, unique=True))
    return make_model(trees, n_features, labels, kind, n_trees > 1 or draw(st.booleans()))


def random_model(rng: random.Random, n_trees: int = 1, max_splits: int = 30, n_features: int = 2) -> Model:
    """A model of counts much faster than `models` makes one, for thousands of larger cases."""
    thresholds = [rng.choice([float(rng.randint(-4, 4)), rng.choice(ODD_NUMBERS), rng.random()]) for _ in range(8)]
    n_labels = rng.randint(2, 4)

    def leaf() -> list[int]:
        row = [rng.randint(0, 2) for _ in range(n_labels)]
        return row if any(row) else [1] * n_labels

    trees = []
    for _ in range(n_trees):
        n_splits = rng.randint(0, max_splits)
        parts: list[Nested] = [leaf() for _ in range(n_splits + 1)]
        while len(parts) > 1:
            place = rng.randrange(len(parts) - 1)
            split = (rng.randrange(n_features), rng.choice(thresholds), parts[place], parts[place + 1])
            parts[place : place + 2] = [split]
        trees.append(parts[0])
    return make_model(trees, n_features, [chr(ord("a") + i) for i in range(n_labels)])


def coordinates(model: Model) -> st.SearchStrategy[float]:
    """Numbers on thresholds of a model, next to them, and anywhere."""
    thresholds = {0.0, *model.nodes["threshold"][model.nodes["feature"] >= 0].tolist()}
    near = {math.nextafter(t, to) for t in thresholds for to in (-math.inf, math.inf)}
    return st.one_of(st.sampled_from(sorted(x for x in thresholds | near if math.isfinite(x))), numbers)


def points(model: Model) -> st.SearchStrategy[list[float]]:
    """Samples for a model, many of them exactly on its thresholds."""
    return st.lists(coordinates(model), min_size=model.n_features, max_size=model.n_features)


# Conflicts


def most_independent(n_vertices: int, edges: Sequence[tuple[int, int]]) -> int:
    """The size of a maximum independent set, by trying all sets."""
    forbidden = [(1 << one) | (1 << other) for one, other in edges]
    return max(
        chosen.bit_count() for chosen in range(1 << n_vertices) if all(chosen & pair != pair for pair in forbidden)
    )


def chi_squared(sides: NDArray[np.float32], y: NDArray[np.int32]) -> float:
    """Pearson's statistic of the table of two sides and all labels that occur; 0 if there is one side only."""
    total = 0.0
    for side in (-1, 1):
        for label in set(y.tolist()):
            expected = float((sides == side).sum() * (y == label).sum() / len(y))
            if expected == 0:
                return 0.0
            total += (float(((sides == side) & (y == label)).sum()) - expected) ** 2 / expected
    return total
