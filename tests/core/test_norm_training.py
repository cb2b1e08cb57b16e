"""The trainer's kernels in the norms l0, l1 and l2: counts by increments against distances to all leaves in fractions,
the sweeps against building every candidate."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.norm_training import (
    POWERS,
    ROUNDING,
    WEIGHTS,
    NormProblem,
    check_counts,
    copy_with_epsilon,
    random_norm_problem,
    score,
    slow_counts,
    thresholds_of_leaf,
    with_test,
)
from support.training_problems import random_operation

from metasilvae._core.training.evolution import Individual, Objective, Workspace, make_budget
from metasilvae.dataset import Dataset, RowWeights
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Boxes, NormLimit
from metasilvae.perturbations.domains import FeatureDomains
from metasilvae.perturbations.groups import Group, TableGroups
from metasilvae.training.samples import as_model, make_samples
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify


def leaf_sets(tree: Individual) -> list[list[int]]:
    """The prediction of each leaf, in pre-order."""
    feature, *_, counts = tree.nodes()
    return [np.flatnonzero(each == each.max()).tolist() for each in counts[feature < 0]]


@pytest.mark.parametrize("seed", range(90))
def test_counts_stay_right_over_long_sequences_of_operations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_norm_problem(rng, norm=list(POWERS)[seed % 3])
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(WEIGHTS[seed % len(WEIGHTS)], max_depth=8, min_leaf=1 + seed % 2)
    tree, donor = (Individual(samples).become_leaf(workspace) for _ in range(2))
    for step in range(25):
        random_operation(rng, tree, donor, objective, workspace)
        check_counts(tree, problem)
        if step % 6 == 0:
            tree, donor = donor, Individual(samples).become(tree)
    stored = Individual(samples).take_nodes(*tree.nodes()[:4], objective, workspace)
    assert stored.counts == tree.counts


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS), st.integers(1, 3), st.sampled_from(list(POWERS)))
def test_the_sweep_finds_the_best_split_of_all(seed: int, weights, min_leaf: int, norm: str) -> None:
    rng = np.random.default_rng(seed)
    problem = random_norm_problem(rng, n_samples=int(rng.integers(2, 16)), norm=norm)
    dataset, samples = problem.dataset, problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(weights, min_leaf=min_leaf)
    tree = Individual(samples).become_leaf(workspace)
    for _ in range(rng.integers(0, 4)):
        leaves = np.flatnonzero(tree.nodes()[0] < 0)
        tree.grow(int(rng.choice(leaves)), objective, workspace, by_score=bool(rng.integers(2)))
    columns = tree.nodes()[:4]
    leaf = int(rng.choice(np.flatnonzero(columns[0] < 0)))
    found = tree.best_split(leaf, objective, workspace)
    best, best_wider = -1.0, -1.0
    for feature in range(dataset.n_features):
        for threshold in thresholds_of_leaf(problem, columns, leaf, feature):
            candidate = with_test(columns, leaf, feature, threshold)
            built = Individual(samples).take_nodes(*candidate, objective, workspace)
            if built.n_nodes == len(candidate[0]):
                best = max(best, score(slow_counts(candidate, problem), weights, dataset.n_samples))
                wider = slow_counts(candidate, problem, 1 + ROUNDING)
                best_wider = max(best_wider, score(wider, weights, dataset.n_samples))
    if found is None:
        assert best < 0
        return
    assert best_wider - 1e-12 <= found[2] <= best + 1e-12
    tree.grow(leaf, objective, workspace)
    after = score(tree.counts, weights, dataset.n_samples)
    assert found[2] <= after + 1e-12
    check_counts(tree, problem)


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS), st.sampled_from(list(POWERS)))
def test_a_moved_test_scores_as_promised_where_no_leaf_changes(seed: int, weights, norm: str) -> None:
    rng = np.random.default_rng(seed)
    problem = random_norm_problem(rng, n_samples=int(rng.integers(4, 20)), norm=norm)
    dataset, samples = problem.dataset, problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(weights)
    tree = Individual(samples).become_leaf(workspace)
    tree.grow(0, objective, workspace, n_splits=int(rng.integers(2, 6)), by_score=False)
    columns = tree.nodes()[:4]
    inner = np.flatnonzero(columns[0] >= 0)
    if not len(inner):
        return
    node = int(rng.choice(inner))
    found = tree.best_threshold_move(node, objective, workspace)
    if found is None:
        return
    predictions = leaf_sets(tree)
    candidate = with_test(columns, node, found[0], found[1])
    built = Individual(samples).take_nodes(*candidate, objective, workspace)
    if built.n_nodes == len(columns[0]) and leaf_sets(built) == predictions:
        exact = score(slow_counts(candidate, problem), weights, dataset.n_samples)
        wider = score(slow_counts(candidate, problem, 1 + ROUNDING), weights, dataset.n_samples)
        assert wider - 1e-12 <= found[2] <= exact + 1e-12
    # No threshold of the present feature is better.
    for threshold in np.unique(dataset.X[:, columns[0][node]]) + 0.0625:
        candidate = with_test(columns, node, int(columns[0][node]), float(threshold))
        built = Individual(samples).take_nodes(*candidate, objective, workspace)
        if built.n_nodes == len(columns[0]) and leaf_sets(built) == predictions:
            wider = slow_counts(candidate, problem, 1 + ROUNDING)
            assert score(wider, weights, dataset.n_samples) <= found[2] + 1e-12


@given(st.floats(0, 1.7e308), st.integers(1, 2))
def test_the_budget_is_what_epsilon_pays(epsilon: float, power: int) -> None:
    unit, budget = make_budget(power, epsilon)
    if unit == 0:
        assert Fraction(epsilon) ** power > 2**900
        return
    exact = Fraction(epsilon) ** power * Fraction(unit)
    assert budget <= exact < budget + 1
    assert budget < 2**42
    assert budget >= 2**39 or unit == 2.0**1000 or epsilon == 0


@pytest.mark.parametrize("seed", range(60))
def test_counts_are_those_of_the_verifier_with_missing_values_and_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_norm_problem(rng, missing=0.2, norm=list(POWERS)[seed % 3])
    dataset = problem.dataset
    if seed % 2:
        weights = rng.integers(1, 4, dataset.n_samples).astype(np.int32)
        dataset = replace(dataset, weights=RowWeights(weights, 1.0, "random"))
    samples = make_samples(dataset, problem.limited.boxes(dataset))
    workspace = Workspace(samples)
    objective = Objective(0.9, 0.1, 0.1, range(samples.n_features), min_leaf=1 + seed % 2)
    tree, donor = (Individual(samples).become_leaf(workspace) for _ in range(2))
    for step in range(20):
        random_operation(rng, tree, donor, objective, workspace)
        model = as_model(tree, dataset)
        found, wider = (
            verified(model, dataset, copy_with_epsilon(problem, problem.limited.limit.epsilon * factor))
            for factor in (1, 1 if problem.limited.limit.norm == "l0" else 1 + float(ROUNDING))
        )
        assert tree.counts[0] == found[0]
        assert wider[1] <= tree.counts[1] <= found[1]
        assert wider[2] <= tree.counts[2] <= found[2]
        if step % 6 == 0:
            tree, donor = donor, Individual(samples).become(tree)


def verified(model: Model, dataset: Dataset, problem: NormProblem) -> tuple[int, ...]:
    outcome = verify(make_query(model, dataset, problem.limited), jobs=1)
    is_stable = outcome.stability == Stability.STABLE
    return tuple(dataset.count(each) for each in (outcome.is_correct, is_stable, outcome.is_correct & is_stable))


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_count_as_stable_are_stable_with_one_hot_groups_and_whole_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(10, 40))
    X = np.column_stack([np.eye(3)[rng.integers(0, 3, n)], rng.integers(0, 5, n), rng.random(n) * 3])
    dataset = Dataset(np.ascontiguousarray(X), rng.integers(0, 3, n).astype(np.int32), ("a", "b", "c"))
    norm = list(POWERS)[seed % 3]
    limit = NormLimit(norm, float(rng.integers(1, 3)), np.array([1.0, 1.0, 1.0, 1.0, 2.0]))
    one, infinite = np.array([1.0, 1.0, 1.0, np.inf, np.inf]), np.full(2, np.inf)
    arrays = (one, one, np.append(np.zeros(3), -infinite), np.append(np.ones(3), infinite))
    groups, domains = TableGroups((Group.one_hot((0, 1, 2)),)), FeatureDomains(whole=frozenset({3}))
    boxes = Boxes(dataset.X, dataset.X, *arrays, groups=groups, domains=domains, limit=limit)
    samples = make_samples(dataset, boxes)
    perturbation = SimpleNamespace(boxes=lambda _: boxes, describe=lambda: "boxes")
    workspace = Workspace(samples)
    objective = Objective(0.9, 0.1, 0.1, range(samples.n_features))
    tree, donor = (Individual(samples).become_leaf(workspace) for _ in range(2))
    for _ in range(12):
        random_operation(rng, tree, donor, objective, workspace)
        query = make_query(as_model(tree, dataset), dataset, perturbation)
        counts = verify(query, jobs=1).counts
        assert tree.counts[0] == counts.correct
        assert tree.counts[1] <= counts.stable
        assert tree.counts[2] <= counts.robust
