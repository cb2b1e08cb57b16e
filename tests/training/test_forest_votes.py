"""Votes of a forest and what they prove, against a slow twin."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.norm_training import POWERS, ROUNDING, cost_of_intervals, leaf_intervals, random_norm_problem
from support.oracles import (
    boxes_of_leaves,
    classify,
    feasible_leaves,
    make_model,
    models,
    points,
    prediction_of,
    random_model,
)

from metasilvae._core.training.evolution import Individual, Workspace
from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.perturbations.norms import NormBall
from metasilvae.prediction import predict
from metasilvae.training.forest_votes import GrowingForest, bound, poll
from metasilvae.training.samples import as_model
from metasilvae.verification.verdicts import Stability


def dataset_for(model: Model, rows: list[list[float]], y: list[int] | None = None) -> Dataset:
    X = np.array(rows, dtype=float).reshape(len(rows), model.n_features)
    return Dataset(X, np.array(y or [0] * len(rows), dtype=np.int32), model.labels)


def grow(model: Model, dataset: Dataset, epsilon: float) -> GrowingForest:
    forest = GrowingForest(dataset, Ball(epsilon))
    for position in range(model.n_trees):
        forest.add(model.tree(position))
    return forest


def possible_labels(model: Model, position: int, x: list[float], epsilon: float) -> set[int]:
    lower, upper = [v - epsilon for v in x], [v + epsilon for v in x]
    leaves = feasible_leaves(model, lower, upper, position)
    return {label for leaf in leaves for label in prediction_of(model.leaf_values[leaf].tolist())}


def slow_margins(model: Model, x: list[float], label: int, epsilon: float) -> tuple[int, int]:
    """Margins of a label over its strongest rival: for the sample, and at worst as far as the trees tell."""
    own, worst = [], []
    for rival in range(model.n_labels):
        if rival == label:
            continue
        cast = [classify(model.tree(position), x) for position in range(model.n_trees)]
        reached = [possible_labels(model, position, x, epsilon) for position in range(model.n_trees)]
        own.append(sum(label in prediction for prediction in cast) - sum(rival in prediction for prediction in cast))
        worst.append(sum(found == {label} for found in reached) - sum(rival in found for found in reached))
    return min(own), min(worst)


@given(st.data(), models(max_trees=4), st.sampled_from([0.0, 0.25, 1.0, 3.0]))
@settings(max_examples=150, deadline=None)
def test_the_votes_are_those_of_the_slow_twin(data: st.DataObject, model: Model, epsilon: float) -> None:
    rows = data.draw(st.lists(points(model), min_size=1, max_size=4))
    y = data.draw(st.lists(st.integers(0, model.n_labels - 1), min_size=len(rows), max_size=len(rows)))
    dataset = dataset_for(model, rows, y)
    for position in range(model.n_trees):
        ballots = poll(model.tree(position), dataset, Ball(epsilon).boxes(dataset))
        for row, x in enumerate(rows):
            assert set(np.flatnonzero(ballots.cast[row])) == set(classify(model.tree(position), x))
            assert set(np.flatnonzero(ballots.possible[row])) == possible_labels(model, position, x, epsilon)
    if model.n_labels > 1:
        forest = grow(model, dataset, epsilon)
        slow = [slow_margins(model, x, label, epsilon) for x, label in zip(rows, y, strict=True)]
        assert list(zip(forest.own_margins.tolist(), forest.worst_margins.tolist(), strict=True)) == slow


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_votes_in_a_norm_are_those_of_all_leaves_in_reach(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_norm_problem(rng, n_samples=int(rng.integers(4, 16)))
    samples, limit = problem.samples, problem.limited.limit
    workspace, objective = Workspace(samples), problem.objective()
    tree = Individual(samples).become_leaf(workspace)
    tree.grow(0, objective, workspace, by_score=False, n_splits=5)
    model = as_model(tree, problem.dataset)
    boxes = problem.limited.boxes(problem.dataset)
    ballots = poll(model, problem.dataset, boxes)
    leaves = list(leaf_intervals(tree.nodes()[:4]))
    budget = Fraction(limit.epsilon) ** max(POWERS[limit.norm], 1)
    for row in range(problem.dataset.n_samples):
        exact: set[int] = set()
        wider: set[int] = set()
        for node, intervals in leaves:
            costs = cost_of_intervals(problem, row, intervals)
            labels = prediction_of(tree.nodes()[4][node].tolist())
            # A test of the right side at the very end of a box, or of the budget, is reached by rounding.
            if costs is not None and sum(costs.values(), Fraction(0)) <= budget:
                exact |= set(labels)
            if costs is not None and sum(costs.values(), Fraction(0)) <= budget * (1 + 4 * ROUNDING):
                wider |= set(labels)
        found = set(np.flatnonzero(ballots.possible[row]).tolist())
        assert exact <= found <= wider


@pytest.mark.parametrize(("norm", "both"), [("l1", "ab"), ("l2", "abc")])
@pytest.mark.parametrize("size", [2.0**1000, 1.0, 2.0**-1040])
def test_votes_in_a_norm_do_not_depend_on_the_unit(norm: str, both: str, size: float) -> None:
    # Squares of such sizes are infinite or 0.
    left, right = (0, 0.25 * size, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]), (1, 0.5 * size, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    model = make_model([(0, 0.5 * size, left, right)], labels=("a", "b", "c"))
    # The second row needs changes of 1 and 0.75 to become c: 1.75 together, and 1.25 as a distance.
    rows = [[0.0, 0.0], [-0.5, -0.25], [1.5, 0.0], [20.0, 20.0]]
    dataset = dataset_for(model, (size * np.array(rows)).tolist())
    possible = poll(model, dataset, NormBall(norm, 1.25 * size).boxes(dataset)).possible
    found = ["".join(np.array(model.labels)[row > 0]) for row in possible]
    assert found == ["abc", both, "abc", "c"]


def can_change(model: Model, x: list[float], epsilon: float) -> bool:
    """By enumeration of all combinations of leaves, one of each tree, that meet within the box."""
    lower, upper = [v - epsilon for v in x], [v + epsilon for v in x]
    parts = [list(boxes_of_leaves(model, lower, upper, position)) for position in range(model.n_trees)]
    predictions = set()
    for combination in itertools.product(*parts):
        low = [max(values) for values in zip(*(part[1] for part in combination), strict=True)]
        high = [min(values) for values in zip(*(part[2] for part in combination), strict=True)]
        if all(a <= b for a, b in zip(low, high, strict=True)):
            votes = np.zeros(model.n_labels)
            for leaf, _, _ in combination:
                votes[list(prediction_of(model.leaf_values[leaf].tolist()))] += 1
            predictions.add(prediction_of(votes.tolist()))
    return len(predictions) > 1


def test_what_is_called_stable_is_stable() -> None:
    rng = random.Random(1)
    n_stable = n_missed = 0
    for _ in range(300):
        model = random_model(rng, n_trees=3, max_splits=4)
        rows = [[rng.uniform(-5, 5) for _ in range(model.n_features)] for _ in range(4)]
        epsilon = rng.choice([0.1, 0.5, 1.0])
        dataset = dataset_for(model, rows, [rng.randrange(model.n_labels) for _ in rows])
        found = grow(model, dataset, epsilon).certainty
        predictions = predict(model, dataset.X, "max")
        for row, x in enumerate(rows):
            assert found.is_correct[row] == (predictions.sets[predictions.ids[row]] == (int(dataset.y[row]),))
            is_stable = not can_change(model, x, epsilon)
            assert is_stable or not found.is_stable[row]
            n_stable += int(found.is_stable[row])
            n_missed += int(is_stable and not found.is_stable[row])
    # The bound says much, and not everything.
    assert n_stable > 100
    assert n_missed > 0


def test_a_bound_is_an_outcome_that_says_what_it_does_not_know() -> None:
    trees = [(0, 0.0, [3, 0], [0, 3]), (0, 1.0, [3, 0], [0, 3]), (0, 9.0, [3, 0], [0, 3])]
    model = make_model(trees, n_features=1, labels=("a", "b"))
    dataset = Dataset(np.array([[-5.0], [0.5], [5.0], [5.0]]), np.array([1, 1, 0, 2], np.int32), ("b", "a", "c"))
    with pytest.warns(UserWarning, match="labels that"):
        found = bound(model, dataset, Ball(1.0))
    assert found.stability.tolist() == [Stability.STABLE, Stability.UNKNOWN, Stability.STABLE, Stability.STABLE]
    assert found.is_correct.tolist() == [True, True, True, False]
    assert [found.predictions.sets[number] for number in found.predictions.ids] == [(0,), (0,), (1,), (1,)]
    assert (found.counts.stable, found.counts.no_info, found.counts.unstable) == (3, 1, 0)


def test_an_even_vote_is_not_correct_and_not_stable() -> None:
    model = make_model([[1, 0], [0, 1]], n_features=1)
    found = grow(model, dataset_for(model, [[0.0]]), 1.0).certainty
    assert not found.is_correct[0]
    assert not found.is_stable[0]
    assert found.fractions == (0.0, 0.0, 0.0)
