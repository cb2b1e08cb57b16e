"""Missing values: predictions, verdicts, radii, differences and simplified models against enumeration.

For samples in which a fixed set of features is missing, a model with directions is a model that does not test them
(`collapse`), and the oracles for samples without missing values apply.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.oracles import (
    TINIEST,
    classify,
    collapse,
    data_of,
    elect,
    forest_predictions,
    leaf_of,
    make_model,
    models,
    points_with_missing,
    random_model,
    subsets,
    with_directions,
)

from metasilvae.analysis.difference import DifferenceStatus, InputBox, compare_models
from metasilvae.analysis.explanation import explain
from metasilvae.analysis.simplification import simplify
from metasilvae.dataset import Dataset
from metasilvae.errors import ModelError, PerturbationError
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, LeafKind, Model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.boxes import Ball, Boxes
from metasilvae.prediction import find_leaves, predict
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import find_nearest_witnesses, find_radii
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import find_witnesses, verify

VOTINGS = {LeafKind.COUNTS: ("max", "average"), LeafKind.SCORES: ("softargmax",)}


@dataclass(frozen=True)
class Dropping:
    """Balls in which some features may become missing."""

    radius: float
    features: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    minimum: float = -math.inf
    maximum: float = math.inf

    def boxes(self, dataset: Dataset) -> Boxes:
        n = dataset.n_features
        radius = self.radius * np.array(self.weights or (1.0,) * n)
        droppable = np.zeros(n, dtype=np.uint8)
        droppable[list(self.features)] = 1
        limits = np.full(n, self.minimum), np.full(n, self.maximum)
        some = np.broadcast_to(droppable, dataset.X.shape) if self.features else None
        return Boxes(dataset.X, dataset.X, radius, radius, *limits, droppable=some)

    def describe(self) -> str:
        return "dropping"


@dataclass(frozen=True)
class Problem:
    """A model with directions, rows with missing values, and features that an attacker may drop."""

    model: Model
    dataset: Dataset
    perturbation: Dropping
    voting: str

    @property
    def query(self) -> VerificationQuery:
        return make_query(self.model, self.dataset, self.perturbation, voting=self.voting)

    def patterns(self, row: int) -> list[tuple[int, ...]]:
        """The sets of features that may be missing in what an attacker makes of a row."""
        missing = np.flatnonzero(np.isnan(self.dataset.X[row])).tolist()
        free = [f for f in self.perturbation.features if f not in missing]
        return [tuple(sorted((*missing, *chosen))) for chosen in subsets(free)]


def random_number(rng: random.Random) -> float:
    return rng.choice([float(rng.randint(-4, 4)), rng.random(), rng.choice([0.5, 0.25, -1.5])])


def random_problem(seed: int, max_trees: int, may_drop: bool = True) -> Problem:
    rng = random.Random(seed)
    n_features = rng.randint(1, 3)
    trees = [rng.randint(0, 6 if max_trees > 1 else 12) for _ in range(rng.randint(1, max_trees))]
    thresholds = [random_number(rng) for _ in range(4)]
    n_labels = rng.randint(2, 3)
    kind = rng.choice(list(LeafKind)) if max_trees > 1 else LeafKind.COUNTS

    def leaf() -> list[float]:
        if kind is LeafKind.SCORES:
            return [rng.choice([0.0, 0.1, 0.3, 1.0, -0.7, rng.random()]) for _ in range(n_labels)]
        row = [rng.randint(0, 2) for _ in range(n_labels)]
        return row if any(row) else [1] * n_labels

    def tree(n_splits: int) -> tuple | list:
        parts: list[tuple | list] = [leaf() for _ in range(n_splits + 1)]
        while len(parts) > 1:
            place = rng.randrange(len(parts) - 1)
            parts[place : place + 2] = [(rng.randrange(n_features), rng.choice(thresholds), *parts[place : place + 2])]
        return parts[0]

    labels = [chr(ord("a") + i) for i in range(n_labels)]
    model = with_directions(make_model([tree(n) for n in trees], n_features, labels, kind), rng)
    near = [*thresholds, *(random_number(rng) for _ in range(3))]
    rows = [[math.nan if rng.random() < 0.3 else rng.choice(near) for _ in range(n_features)] for _ in range(3)]
    dataset = data_of(rows, [rng.choice(labels) for _ in rows])
    if not model.has_directions:
        dataset = replace(dataset, X=np.nan_to_num(dataset.X))
    chosen = tuple(f for f in range(n_features) if may_drop and model.has_directions and rng.random() < 0.4)
    weights = tuple(rng.choice([0.0, 0.5, 1.0, 2.0, 1.0]) for _ in range(n_features))
    perturbation = Dropping(rng.choice([0.0, 0.5, 1.0, 1e-9, 3.0]), chosen, weights)
    return Problem(model, dataset, perturbation, rng.choice(VOTINGS[kind]))


def check_verdicts(problem: Problem) -> None:
    query, model = problem.query, problem.model
    outcome = verify(query, jobs=1)
    witnesses = {witness.row: witness for witness in find_witnesses(query, outcome)}
    for row, sample in enumerate(problem.dataset.X.tolist()):
        lower, upper = (np.nan_to_num(bound).tolist() for bound in query.boxes.bounds(row))
        prediction = elect(model, sample, problem.voting)
        assert outcome.predictions.sets[outcome.predictions.ids[row]] == prediction
        possible = set()
        for missing in problem.patterns(row):
            possible |= forest_predictions(collapse(model, missing), lower, upper, problem.voting)
        is_stable = possible == {prediction}
        assert outcome.stability[row] == (Stability.STABLE if is_stable else Stability.UNSTABLE)
        assert (row in witnesses) == (not is_stable)
        if is_stable:
            continue
        found = witnesses[row]
        point = found.point.tolist()
        assert elect(model, point, problem.voting) == found.perturbed_prediction != prediction
        assert tuple(np.flatnonzero(np.isnan(found.point)).tolist()) in problem.patterns(row)
        values = ~np.isnan(found.point)
        assert (found.lower[values] <= found.point[values]).all()
        assert (found.point[values] <= found.upper[values]).all()
        assert (np.isnan(found.lower) == ~values).all()


@settings(max_examples=1500)
@given(st.integers(0, 2**40))
def test_trees_are_decided_as_by_enumeration(seed: int) -> None:
    check_verdicts(random_problem(seed, max_trees=1))


@settings(max_examples=1500)
@given(st.integers(0, 2**40))
@example(83390222)
def test_forests_are_decided_as_by_enumeration(seed: int) -> None:
    check_verdicts(random_problem(seed, max_trees=4))


def breaking_radius(problem: Problem, row: int) -> float:
    """The smallest multiple of the radii at which another prediction is possible, pattern by pattern."""
    x = problem.dataset.X[[row]]
    prediction = elect(problem.model, x[0].tolist(), problem.voting)
    best = math.inf
    own = tuple(np.flatnonzero(np.isnan(x[0])).tolist())
    for missing in problem.patterns(row):
        model = collapse(problem.model, missing)
        dataset = replace(problem.dataset.subset(np.array([row])), X=np.nan_to_num(x))
        radius = 0.0
        if elect(model, dataset.X[0].tolist(), problem.voting) == prediction:
            query = make_query(model, dataset, replace(problem.perturbation, features=()), voting=problem.voting)
            radius = float(np.nextafter(find_radii(query, jobs=1).upper[0], np.inf))
        best = min(best, radius if missing == own else max(radius, TINIEST))
    return best


@settings(max_examples=700)
@given(st.integers(0, 2**40), st.sampled_from([1, 3]))
def test_radii_are_those_of_all_patterns(seed: int, max_trees: int) -> None:
    problem = random_problem(seed, max_trees)
    problem = replace(problem, perturbation=replace(problem.perturbation, radius=1.0))
    radii = find_radii(problem.query, jobs=1)
    assert radii.is_exact.all()
    for row in range(problem.dataset.n_samples):
        assert np.nextafter(radii.upper[row], np.inf) == breaking_radius(problem, row)
    for witness in find_nearest_witnesses(problem.query, radii):
        assert witness.prediction != witness.perturbed_prediction


@settings(max_examples=300)
@given(st.integers(0, 2**40))
def test_branches_that_no_sample_takes_are_dropped(seed: int) -> None:
    model = random_problem(seed, max_trees=3).model
    points = points_with_missing(model) if model.has_directions else []
    for position in range(model.n_trees):
        reached = set()
        for point in points:
            reached.add(leaf_of(model, point, position))
            for other in (model.feasible, model.without_contradictions):
                assert leaf_of(other, point, position) == leaf_of(model, point, position)
        for other in (model.feasible.tree(position), model.without_contradictions.tree(position)):
            assert not points or other.n_leaves == len(reached)
    assert np.isfinite(model.without_contradictions.nodes["threshold"]).all()


@settings(max_examples=400)
@given(st.integers(0, 2**40), st.booleans())
def test_simplified_trees_predict_the_same(seed: int, is_bounded: bool) -> None:
    rng = random.Random(seed)
    tree = with_directions(random_model(rng, max_splits=10), rng)
    domain = InputBox.between(-1.0, 1.0, 2) if is_bounded else InputBox.everything(2)
    simple = simplify(tree, domain)
    assert simple.n_leaves <= tree.n_leaves
    box = list(zip(domain.lower.tolist(), domain.upper.tolist(), strict=True))
    points = points_with_missing(tree, box) if tree.has_directions else []
    for point in points:
        assert classify(simple, point) == classify(tree, point)
    if tree.has_directions and simple.n_leaves > 1:
        assert compare_models(tree, simple, domain).result is DifferenceStatus.EQUAL
        assert simple.has_directions
    if points and len({classify(tree, point) for point in points}) == 1:
        assert simple.n_leaves == 1


@settings(max_examples=400)
@given(st.integers(0, 2**40), st.sampled_from([1, 3]))
def test_differences_are_those_of_enumeration(seed: int, max_trees: int) -> None:
    rng = random.Random(seed)
    first = random_problem(seed, max_trees).model
    if not first.has_directions:
        return
    # The same trees with some other directions, or with another leaf.
    second = replace(first, nodes=first.nodes.copy(), leaf_values=first.leaf_values.copy())
    inner = np.flatnonzero(second.nodes["feature"] >= 0)
    for place in rng.sample(inner.tolist(), min(len(inner), rng.randint(0, 2))):
        second.nodes["leaf"][place] = rng.choice([MISSING_LEFT, MISSING_RIGHT])
    if rng.random() < 0.3:
        second.leaf_values[rng.randrange(second.n_leaves)] = first.leaf_values[rng.randrange(first.n_leaves)]
    voting = VOTINGS[first.leaf_kind][0]
    points = points_with_missing(first)
    expected = {point for point in points if elect(first, point, voting) != elect(second, point, voting)}
    found = compare_models(first, second, voting=voting, max_regions=10**6)
    assert found.result is (DifferenceStatus.DIFFERENT if expected else DifferenceStatus.EQUAL)
    assert "missing" in found.domain.description
    for region in found.regions:
        assert region.is_difference
        point = region.point.tolist()
        assert elect(first, point, voting) != elect(second, point, voting)
    if first.n_trees == 1:
        pairs = {(leaf_of(first, point), leaf_of(second, point)) for point in expected}
        assert found.n_regions == len(found.regions) == len(pairs)


@settings(max_examples=150)
@given(st.integers(0, 2**40), st.sampled_from([1, 3]))
def test_explanations_freeze_features_that_may_be_dropped(seed: int, max_trees: int) -> None:
    problem = random_problem(seed, max_trees)
    for row in explain(problem.query, jobs=1).rows:
        if row.frozen.features is None:
            continue
        # With the frozen features fixed at their values, or missing as they are, the row is stable.
        rest = tuple(f for f in problem.perturbation.features if f not in row.frozen.features)
        weights = tuple(
            0.0 if f in row.frozen.features else weight for f, weight in enumerate(problem.perturbation.weights or ())
        )
        frozen = replace(problem, perturbation=replace(problem.perturbation, features=rest, weights=weights))
        assert verify(frozen.query, jobs=1).stability[row.row] == Stability.STABLE


@settings(max_examples=200)
@given(models(max_trees=3), st.randoms(use_true_random=False))
def test_missing_values_follow_the_directions(model: Model, rng: random.Random) -> None:
    model = with_directions(model, rng)
    X = np.array([[math.nan if rng.random() < 0.5 else random_number(rng) for _ in range(model.n_features)]] * 3)
    leaves = find_leaves(model, X)
    for position in range(model.n_trees):
        assert leaves[0, position] == leaf_of(model, X[0].tolist(), position)


TREE = make_model([(0, 1.0, [5, 0], (1, 0.5, [0, 4], [3, 0]))])


def directed(model: Model, *directions: int) -> Model:
    nodes = model.nodes.copy()
    nodes["leaf"][nodes["feature"] >= 0] = directions
    return replace(model, nodes=nodes)


def rows_of(*rows: list[float]) -> Dataset:
    return data_of(list(rows), ["a"] * len(rows))


def test_a_model_without_directions_refuses_missing_values() -> None:
    data = rows_of([0.0, 0.0], [0.0, math.nan])
    with pytest.raises(ModelError, match=r"data.csv: row 1: x\[1\] is missing, and <memory> takes none; fill"):
        make_query(TREE, data, Ball(0.1))
    partly = directed(TREE, MISSING_LEFT, -1)
    with pytest.raises(ModelError, match=r"has no direction for missing values of x\[1\]"):
        make_query(partly, data, Ball(0.1))
    assert verify(make_query(partly, rows_of([math.nan, 0.0]), Ball(0.1))).stability.tolist() == [Stability.STABLE]


def test_a_missing_value_stays_missing_unless_it_may_appear() -> None:
    model = directed(TREE, MISSING_RIGHT, MISSING_LEFT)
    data = rows_of([0.0, 0.0], [math.nan, 0.9], [math.nan, math.nan])
    assert [prediction[0] for prediction in _predictions(model, data.X)] == [0, 0, 1]
    outcome = verify(make_query(model, data, Ball(0.3)))
    assert outcome.stability.tolist() == [Stability.STABLE] * 3
    attack = fit_attack(parse_attack(b'[default]\nradius = 0.3\nmissing = "may appear"\n', "a.toml"), data)
    query = make_query(model, data, attack)
    outcome = verify(query)
    assert outcome.stability.tolist() == [Stability.UNSTABLE, Stability.UNSTABLE, Stability.STABLE]
    first, second = find_witnesses(query, outcome)
    assert np.isnan(first.point).tolist() == [True, False]
    assert np.isnan(second.point).tolist() == [True, True]


def test_members_of_one_hot_groups_cannot_be_missing() -> None:
    model = directed(TREE, MISSING_RIGHT, MISSING_LEFT)
    with pytest.raises(PerturbationError, match="belongs to a one-hot group"):
        make_query(model, rows_of([1.0, math.nan]), Ball(0.3), tiers=[1, 1])


def test_an_attacker_may_drop_values_only_where_the_model_has_directions() -> None:
    data = rows_of([0.0, 0.0])
    attack = fit_attack(parse_attack(b'[columns]\n1 = { radius = 0.1, missing = "may appear" }\n', "a.toml"), data)
    with pytest.raises(ModelError, match=r"does not say where missing values of x\[1\] go"):
        make_query(TREE, data, attack)


def test_a_test_for_missing_values_alone_is_kept() -> None:
    """Below `x <= 1`, the split `x <= 1` separates values from missing ones."""
    model = directed(make_model([(0, 1.0, (0, 1.0, [5, 0], [0, 5]), [3, 0])]), MISSING_LEFT, MISSING_RIGHT)
    assert model.feasible.n_leaves == model.n_leaves
    assert model.feasible.nodes["threshold"][1] == np.inf
    data = rows_of([0.0, 0.0], [math.nan, 0.0], [2.0, 0.0])
    assert [prediction[0] for prediction in _predictions(model, data.X)] == [0, 1, 0]
    assert verify(make_query(model, data, Ball(1e9))).stability.tolist() == [Stability.STABLE] * 3
    assert simplify(model).n_leaves == 3


def _predictions(model: Model, X: NDArray[np.float64]) -> list[tuple[int, ...]]:
    table = predict(model, X)
    return [table.sets[number] for number in table.ids]
