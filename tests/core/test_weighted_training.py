"""Weights of samples in the trainer's kernels: a sample of weight k is k equal samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training_problems import WEIGHTS, Problem, model_of, random_operation, random_problem

from metasilvae._core.training.evolution import MOST_WEIGHT, Individual, Objective, TrainingSet, Workspace
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify


class Weighted:
    """A problem with weights, and the same one with each sample as often as its weight."""

    def __init__(self, rng: np.random.Generator, n_samples: int | None = None, most: int = 4) -> None:
        self.problem = random_problem(rng, n_samples)
        dataset = self.problem.dataset
        self.weights = rng.integers(1, most + 1, dataset.n_samples).astype(np.int32)
        parts = dataset.X, dataset.y, dataset.n_labels
        self.samples = TrainingSet(*parts, *self.problem.radii.arrays, weights=self.weights)
        self.repeated = Problem(dataset.subset(np.repeat(np.arange(len(dataset.X)), self.weights)), self.problem.radii)

    def objective(self, weights: tuple[float, float, float], **limits: int) -> Objective:
        total = int(self.weights.sum())
        return Objective(*(weight / total for weight in weights), range(self.problem.dataset.n_features), **limits)

    def verified(self, tree: Individual) -> tuple[int, int, int]:
        query = make_query(model_of(tree, self.problem), self.problem.dataset, self.problem.radii)
        outcome = verify(query, jobs=1)
        is_stable = outcome.stability == Stability.STABLE
        masks = outcome.is_correct, is_stable, outcome.is_correct & is_stable
        correct, stable, robust = (int(self.weights[mask].sum()) for mask in masks)
        return correct, stable, robust


@pytest.mark.parametrize("seed", range(40))
def test_counts_stay_exact_over_long_sequences_of_operations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Many different weights, so that each sample has a key of its own, or few.
    problem = Weighted(rng, None if seed % 3 else 150, most=(3, 100_000)[seed % 2])
    workspace = Workspace(problem.samples)
    objective = problem.objective(WEIGHTS[seed % len(WEIGHTS)], max_depth=12, min_leaf=1 + seed % 2)
    tree, donor = (Individual(problem.samples).become_leaf(workspace) for _ in range(2))
    for step in range(50):
        random_operation(rng, tree, donor, objective, workspace)
        assert tree.counts == problem.verified(tree)
        if step % 10 == 0:
            tree, donor = donor, Individual(problem.samples).become(tree)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS))
def test_a_weight_is_a_number_of_equal_samples(seed: int, weights: tuple[float, float, float]) -> None:
    """Every operation finds the same split, score and gain, and makes the same tree."""
    problem = Weighted(np.random.default_rng(seed), int(np.random.default_rng(seed).integers(2, 40)))
    objective = problem.objective(weights)
    sets = problem.samples, problem.repeated.samples
    trees = [Individual(each) for each in sets]
    donors = [Individual(each) for each in sets]
    workspaces = [Workspace(each) for each in sets]
    for tree, donor, workspace in zip(trees, donors, workspaces, strict=True):
        tree.become_leaf(workspace)
        donor.become_leaf(workspace)
    for step in range(12):
        leaf = int(np.random.default_rng([seed, step]).choice(np.flatnonzero(trees[0].nodes()[0] < 0)))
        for criterion in ({}, {"by_score": False, "reach": 0.3}, {"by_score": False, "impurity": "exponential"}):
            found = [
                tree.best_split(leaf, objective, workspace, **criterion)
                for tree, workspace in zip(trees, workspaces, strict=True)
            ]
            assert found[0] == found[1]
        inner = np.flatnonzero(trees[0].nodes()[0] >= 0)
        if len(inner):
            node = int(np.random.default_rng([seed, step, 1]).choice(inner))
            moves = [
                tree.best_threshold_move(node, objective, workspace)
                for tree, workspace in zip(trees, workspaces, strict=True)
            ]
            assert moves[0] == moves[1]
        for tree, donor, workspace in zip(trees, donors, workspaces, strict=True):
            # Sums of logarithms depend on how many samples are added at once.
            names = "gini", "exponential"
            random_operation(np.random.default_rng([seed, step, 2]), tree, donor, objective, workspace, names)
        assert trees[0].counts == trees[1].counts
        assert trees[0].fitness(objective) == trees[1].fitness(objective)
        for ours, theirs in zip(trees[0].nodes(), trees[1].nodes(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        if step == 6:
            trees, donors = donors, trees


def test_large_weights_do_not_overflow() -> None:
    X = np.arange(8.0)[:, None]
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int32)
    limits = np.zeros(1), np.zeros(1), np.full(1, -np.inf), np.full(1, np.inf)
    samples = TrainingSet(X, y, 2, *limits, weights=np.full(8, MOST_WEIGHT // 8))
    workspace = Workspace(samples)
    objective = Objective(0.9 / MOST_WEIGHT, 0.1 / MOST_WEIGHT, 0.0, [0])
    tree = Individual(samples).become_leaf(workspace)
    assert tree.grow(0, objective, workspace) == 1
    assert tree.counts == (MOST_WEIGHT, MOST_WEIGHT, MOST_WEIGHT)
    with pytest.raises(ValueError, match="at most MOST_WEIGHT"):
        TrainingSet(X, y, 2, *limits, weights=np.full(8, MOST_WEIGHT // 8 + 1))
