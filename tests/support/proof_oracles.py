"""Proofs about all inputs by trying out inputs of every cell between thresholds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from metasilvae.analysis.difference import LARGEST
from metasilvae.analysis.spaces import InputSpace
from metasilvae.model import LeafKind, Model
from metasilvae.perturbations.domains import FeatureDomains
from metasilvae.perturbations.groups import Group, TableGroups, pack_options
from support.oracles import leaf_of, make_model, prediction_of, with_directions

Point = tuple[float, ...]
Totals = list[Fraction]


def totals_of(model: Model, x: Sequence[float], voting: str) -> Totals:
    """The exact score of each label, by definition."""
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
    return totals


def inputs_of(model: Model, space: InputSpace) -> list[Point]:
    """Inputs of a space such that every other one falls into the same leaves as one of them."""
    columns = []
    for feature in range(model.n_features):
        low, high = space.lower[feature], space.upper[feature]
        thresholds = model.nodes["threshold"][model.nodes["feature"] == feature].tolist()
        if feature in space.domains.listed:
            values = set(space.domains.listed[feature])
        elif feature in space.domains.whole:
            values = {float(math.floor(k) + step) for k in thresholds for step in (0, 1)} | {low, high}
        else:
            values = {low, high, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)}
        column = sorted(value for value in values if low <= value <= high)
        columns.append([*column, math.nan] if space.may_be_missing[feature] else column)
    rows = list(itertools.product(*columns))
    kept = space.holds(np.array(rows).reshape(-1, model.n_features))
    return [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]


def pairs_of(
    model: Model, space: InputSpace, voting: str, own: Sequence[int]
) -> Iterator[tuple[Point, Point, Totals, Totals]]:
    """All pairs of these inputs that differ only in some features, with their scores."""

    def shared(x: Point) -> tuple[float | None, ...]:
        return tuple(None if math.isnan(x[f]) else x[f] for f in range(model.n_features) if f not in own)

    rows = sorted(inputs_of(model, space), key=lambda x: [(value is None, value or 0.0) for value in shared(x)])
    for _, several in itertools.groupby(rows, key=shared):
        scored = [(x, totals_of(model, x, voting)) for x in several]
        for (x, first), (z, second) in itertools.product(scored, repeat=2):
            yield x, z, first, second


def leads_of(totals: Totals, label: int) -> list[Fraction]:
    """How far a label is ahead of each other one."""
    return [totals[label] - total for other, total in enumerate(totals) if other != label]


def is_sensitive(first: Totals, second: Totals, margin: Fraction) -> bool:
    """Whether two predictions differ; with a margin, whether both are clear and differ."""
    if margin == 0:
        return prediction_of(first) != prediction_of(second)
    clear = [
        [label for label in range(len(totals)) if all(lead >= margin for lead in leads_of(totals, label))]
        for totals in (first, second)
    ]
    return any(one != other for one in clear[0] for other in clear[1])


def exists(pairs: Iterator[tuple[Point, Point, Totals, Totals]], refutes: Callable[..., bool]) -> bool:
    return any(refutes(*pair) for pair in pairs)


# Random questions.


def random_space(rng: random.Random, model: Model) -> InputSpace:
    """A space with bounds, missing values, whole and listed numbers, and a one-hot group."""
    n = model.n_features
    lower, upper = np.full(n, -LARGEST), np.full(n, LARGEST)
    for feature in range(n):
        if rng.random() < 0.5:
            lower[feature], upper[feature] = sorted((float(rng.randint(-2, 2)), float(rng.randint(-2, 2))))
    missing = np.array([model.has_directions and rng.random() < 0.4 for _ in range(n)])
    listed: dict[int, tuple[float, ...]] = {}
    groups = TableGroups()
    if n > 1 and rng.random() < 0.5:
        groups = TableGroups.of_lists([rng.sample(range(n), rng.randint(2, n))])
    if model.nodes["feature"].max(initial=-1) != n - 1 and rng.random() < 0.7:
        # Sets of categories, and the code of a category, which no tree tests.
        members = rng.sample(range(n - 1), rng.randint(1, n - 1))
        table = [[rng.random() < 0.5 for _ in members] for _ in range(rng.randint(1, 4))]
        groups = TableGroups((Group(tuple(members), np.array(table), n - 1),))
    allowed = None
    for group in groups.groups:
        features = list(group.features)
        listed |= dict.fromkeys(group.members, (0.0, 1.0))
        missing[features] = False
        lower[features], upper[features] = 0.0, 1.0
        if group.code >= 0:
            upper[group.code] = len(group.table) - 1.0
            listed[group.code] = tuple(map(float, range(len(group.table))))
        if rng.random() < 0.5:
            some = np.array([[rng.random() < 0.6 for _ in group.table]])
            some[0, rng.randrange(len(group.table))] = True
            allowed = pack_options(some, groups.n_words)[np.newaxis]
    free = [f for f in range(n) if f not in listed]
    whole = frozenset(f for f in free if rng.random() < 0.3)
    for feature in whole:
        lower[feature], upper[feature] = -3.0, 3.0
    for feature in set(free) - whole:
        if rng.random() < 0.2:
            listed[feature] = tuple(sorted(rng.sample([-2.0, -0.5, 0.0, 0.25, 1.0, 2.0], 3)))
            lower[feature], upper[feature] = listed[feature][0], listed[feature][-1]
    return InputSpace(lower, upper, missing, "a space", groups, FeatureDomains(whole, listed), allowed)


def random_forest(rng: random.Random, max_trees: int = 4, max_splits: int = 5, n_features: int = 3) -> Model:
    """Trees with few thresholds, so that ties, equal tests and contradictory branches are likely."""
    thresholds = [rng.choice([-1.0, 0.0, 0.5, 1.0, -0.25, rng.random()]) for _ in range(3)]
    n_labels = rng.choice([2, 2, 2, 3, 4])
    kind = rng.choice([LeafKind.COUNTS, LeafKind.SCORES])
    scores = rng.choice([[0.0, 1.0, 2.0, -1.0], [0.1, 0.2, 0.3, -0.3, 1e-9]])

    def leaf() -> list[float]:
        if kind is LeafKind.SCORES:
            return [rng.choice(scores) for _ in range(n_labels)]
        row = [rng.randint(0, 3) for _ in range(n_labels)]
        return row if any(row) else [1] * n_labels

    trees = []
    for _ in range(rng.randint(1, max_trees)):
        parts = [leaf() for _ in range(rng.randint(0, max_splits) + 1)]
        while len(parts) > 1:
            place = rng.randrange(len(parts) - 1)
            parts[place : place + 2] = [
                (rng.randrange(n_features), rng.choice(thresholds), parts[place], parts[place + 1])
            ]
        trees.append(parts[0])
    model = make_model(trees, n_features + (rng.random() < 0.4), "abcd"[:n_labels], kind)
    return with_directions(model, rng) if rng.random() < 0.4 else replace(model)


def random_voting(rng: random.Random, model: Model) -> str:
    return rng.choice(["max", "average"]) if model.leaf_kind is LeafKind.COUNTS else "softargmax"
