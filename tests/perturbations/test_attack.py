"""Attacks against enumeration of all points, and attacks that do not fit the data."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest
from support.attacks import Case, random_case
from support.oracles import elect, random_model

from metasilvae._core.training.evolution import Individual, Objective, TrainingSet, Workspace
from metasilvae.analysis.explanation import explain
from metasilvae.model import Model
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import options_for
from metasilvae.training.samples import as_model
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import find_nearest_witnesses, find_radii
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import find_witnesses, verify


def stable_rows(case: Case, model: Model) -> list[bool]:
    """Row by row, by classifying every point that the attack allows."""
    rows = range(case.dataset.n_samples)
    return [len({elect(model, point, "max") for point in case.points(row, model)}) == 1 for row in rows]


def check(case: Case, model: Model) -> None:
    query = make_query(model, case.dataset, case.attack, voting="max")
    outcome = verify(query, 1)
    expected = stable_rows(case, model)
    assert (outcome.stability == Stability.STABLE).tolist() == expected, case.text
    witnesses = {witness.row: witness for witness in find_witnesses(query, outcome, 1)}
    assert sorted(witnesses) == [row for row, is_stable in enumerate(expected) if not is_stable]
    if model.n_trees > 1:
        return
    for row, witness in witnesses.items():
        x = case.dataset.X[row]
        own = elect(model, x, "max")
        others = [point for point in case.points(row, model) if elect(model, point, "max") != own]
        nearest = min(np.abs(np.array(point) - x).max() for point in others)
        assert np.abs(witness.point - x).max() == nearest, case.text


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_verdicts_on_trees_are_those_of_all_points(start: int) -> None:
    for seed in range(start, start + 100):
        rng = random.Random(seed)
        n_features = rng.randint(1, 4)
        model = random_model(rng, 1, 8, n_features)
        check(random_case(rng, n_features, 3), model)


@pytest.mark.parametrize("n_trees", [1, 3])
def test_radii_are_the_largest_multiples_at_which_all_points_agree(n_trees: int) -> None:
    """Whole numbers, listed values, endless radii and one-hot groups; some rows change by swaps alone."""
    n_zero = n_finite = n_infinite = 0
    for seed in range(150):
        rng = random.Random(seed)
        n_features = rng.randint(1, 3)
        model = random_model(rng, n_trees, 6, n_features)
        case = random_case(rng, n_features, 3)
        query = make_query(model, case.dataset, case.attack, voting="max")
        radii = find_radii(query, 1)
        assert radii.is_exact.all()
        for row, radius in enumerate(radii.lower.tolist()):
            if math.isinf(radius):
                n_infinite += 1
                assert stable_rows(case.times(1e6), model)[row]
                continue
            n_zero += radius == 0
            n_finite += radius > 0
            # At 0 nothing moves, and the enumeration would have to know the group of the row.
            assert radius == 0 or stable_rows(case.times(radius), model)[row], case.text
            assert not stable_rows(case.times(math.nextafter(radius, math.inf)), model)[row], case.text
        for witness in find_nearest_witnesses(query, radii):
            assert elect(model, witness.point, "max") != elect(model, case.dataset.X[witness.row], "max")
    assert min(n_zero, n_finite, n_infinite) > 20, (n_zero, n_finite, n_infinite)


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_verdicts_on_forests_are_those_of_all_points(start: int) -> None:
    for seed in range(start, start + 100):
        rng = random.Random(seed)
        n_features = rng.randint(1, 4)
        model = random_model(rng, rng.randint(2, 4), 4, n_features)
        check(random_case(rng, n_features, 2), model)


@pytest.mark.parametrize("start", range(0, 100, 25))
def test_frozen_features_are_as_few_as_possible(start: int) -> None:
    for seed in range(start, start + 25):
        rng = random.Random(seed)
        case = random_case(rng, 3, 2)
        model = random_model(rng, rng.randint(1, 2), 5, 3)
        for row in explain(make_query(model, case.dataset, case.attack, voting="max"), 1).rows:
            x = case.dataset.X[row.row]
            predictions = {point: elect(model, point, "max") for point in case.points(row.row, model)}

            def is_stable(frozen: tuple[int, ...], x: np.ndarray = x, predictions: dict = predictions) -> bool:
                return len({a for point, a in predictions.items() if all(point[f] == x[f] for f in frozen)}) == 1

            smallest = min(len(some) for n in range(4) for some in combinations(range(3), n) if is_stable(some))
            assert row.frozen.is_smallest
            assert row.frozen.features is not None
            assert is_stable(row.frozen.features)
            assert len(row.frozen.features) == smallest, case.text


def small_model(rng: random.Random, case: Case) -> Model:
    """A tree that the samples of a case grow, by random operations."""
    dataset = case.dataset
    samples = TrainingSet(dataset.X, dataset.y, dataset.n_labels, *case.attack.boxes(dataset).arrays[2:])
    bench = Workspace(samples)
    n = dataset.n_samples
    objective = Objective(0.9 / n, 0.1 / n, 0.0, range(dataset.n_features))
    tree = Individual(samples).become_leaf(bench)
    for _ in range(rng.randint(1, 5)):
        leaf = rng.choice(np.flatnonzero(tree.nodes()[0] < 0).tolist())
        tree.grow(leaf, objective, bench, by_score=rng.random() < 0.5, reach=rng.random())
        inner = np.flatnonzero(tree.nodes()[0] >= 0).tolist()
        if inner and rng.random() < 0.5:
            tree.move_threshold(rng.choice(inner), objective, bench)
    model = as_model(tree, dataset)
    n_stable = sum(stable_rows(case, model))
    assert tree.counts[1] == n_stable, case.text
    return model


@pytest.mark.parametrize("start", range(0, 120, 10))
def test_the_trainer_counts_the_rows_that_no_point_changes(start: int) -> None:
    for seed in range(start, start + 10):
        rng = random.Random(seed)
        case = random_case(rng, rng.randint(1, 4), rng.randint(2, 16), rng.randint(2, 3))
        check(case, small_model(rng, case))


@pytest.mark.parametrize("seed", range(8))
def test_a_whole_training_agrees_with_the_verifier(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng, 4, 40, 2)
    trainer = TreeTrainer(case.dataset, case.attack, options_for("fast", training_epsilon_factor=1.3))
    for _ in trainer.run():  # ends by comparing its own figures with the verifier's
        pass
    model = trainer.model
    outcome = verify(make_query(model, case.dataset, case.attack), 1)
    assert (outcome.stability == Stability.STABLE).tolist() == stable_rows(case, model)
