"""The trainer's kernels: incremental counts against full verification, the sweep against building every candidate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training_problems import (
    WEIGHTS,
    Problem,
    full_counts,
    model_of,
    random_operation,
    random_problem,
)

from metasilvae._core.training.evolution import Individual, Workspace


def check_invariants(individual: Individual, problem: Problem) -> None:
    feature, threshold, left, right, counts = individual.nodes()
    assert individual.counts == full_counts(individual, problem)
    assert individual.n_leaves == int((feature < 0).sum())
    samples_at = {0: np.arange(problem.dataset.n_samples)}
    for node in range(len(feature)):
        here = samples_at.pop(node)
        assert len(here) > 0
        assert (
            counts[node].tolist() == np.bincount(problem.dataset.y[here], minlength=problem.dataset.n_labels).tolist()
        )
        if feature[node] >= 0:
            goes_left = problem.dataset.X[here, feature[node]] <= threshold[node]
            samples_at[left[node]], samples_at[right[node]] = here[goes_left], here[~goes_left]
    assert not samples_at


@pytest.mark.parametrize("seed", range(60))
def test_counts_stay_exact_over_long_sequences_of_operations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=None if seed % 3 else 200)
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(WEIGHTS[seed % len(WEIGHTS)], max_depth=12, min_leaf=1 + seed % 2)
    tree, donor = (Individual(samples).become_leaf(workspace) for _ in range(2))
    for step in range(60):
        random_operation(rng, tree, donor, objective, workspace)
        assert tree.counts == full_counts(tree, problem)
        if step % 10 == 0:
            check_invariants(tree, problem)
            tree, donor = donor, Individual(samples).become(tree)
    check_invariants(tree, problem)


@pytest.mark.parametrize("seed", range(12))
def test_a_moved_test_never_lowers_the_fitness(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=(60, 200, 400)[seed % 3])
    samples, workspace = problem.samples, Workspace(problem.samples)
    objective = problem.objective(min_leaf=3, leaf_penalty=1 / problem.dataset.n_samples)
    tree = Individual(samples).become_leaf(workspace)
    tree.grow(0, objective, workspace, by_score=False, reach=0.2, n_splits=25)
    for _ in range(2):
        node = 0
        while node < tree.n_nodes:
            if tree.nodes()[0][node] >= 0:
                before, parts = tree.fitness(objective), [each.tobytes() for each in (*tree.nodes(), *tree.tests())]
                if tree.move_threshold(node, objective, workspace):
                    assert tree.fitness(objective) >= before
                else:
                    assert [each.tobytes() for each in (*tree.nodes(), *tree.tests())] == parts
                assert tree.counts == full_counts(tree, problem)
            node += 1
        tree.improve_locally(objective, workspace)
        check_invariants(tree, problem)


def all_thresholds(problem: Problem, feature: int) -> list[float]:
    """One threshold for each interval between neighbouring events, and the events themselves."""
    x = problem.dataset.X[:, feature]
    down, up, low, high = (part[feature] for part in problem.radii.arrays)
    events = np.unique(np.concatenate([x, np.maximum(x - down, low), np.minimum(x + up, high)]))
    return sorted({*events.tolist(), *(events[:-1] + np.diff(events) / 2).tolist()})


def score_with(tree: Individual, problem: Problem, objective, workspace, node: int, feature: int, threshold: float):
    """Tallies of the tree with one node given another test, by verifying that tree; None if a side is empty."""
    model_nodes = [column.copy() for column in tree.nodes()[:4]]
    features, thresholds, left, right = model_nodes
    if features[node] < 0:
        n = len(features)
        features = np.append(features, [-1, -1]).astype(np.int32)
        thresholds = np.append(thresholds, [0.0, 0.0])
        left, right = (np.append(side, [-1, -1]).astype(np.int32) for side in (left, right))
        left[node], right[node] = n, n + 1
    features[node], thresholds[node] = feature, threshold
    candidate = Individual(problem.samples).take_nodes(features, thresholds, left, right, objective, workspace)
    if candidate.n_nodes != len(features):
        return None
    correct, stable, robust = full_counts(candidate, problem)
    return correct, stable, robust


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS), st.integers(1, 3))
def test_the_sweep_finds_the_best_split_of_all(seed: int, weights: tuple[float, float, float], min_leaf: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=int(rng.integers(2, 16)))
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(weights, min_leaf=min_leaf)
    tree = Individual(samples).become_leaf(workspace)
    for _ in range(rng.integers(0, 4)):
        tree.grow(
            int(rng.choice(np.flatnonzero(tree.nodes()[0] < 0))), objective, workspace, by_score=bool(rng.integers(2))
        )
    leaf = int(rng.choice(np.flatnonzero(tree.nodes()[0] < 0)))
    found = tree.best_split(leaf, objective, workspace)
    n = problem.dataset.n_samples
    scores = [
        sum(w / n * count for w, count in zip(weights, counts, strict=True))
        for feature in range(problem.dataset.n_features)
        for threshold in all_thresholds(problem, feature)
        if (counts := score_with(tree, problem, objective, workspace, leaf, feature, threshold)) is not None
    ]
    if found is None:
        assert not scores
        return
    assert found[2] == pytest.approx(max(scores), abs=1e-12)
    counts = score_with(tree, problem, objective, workspace, leaf, found[0], found[1])
    assert counts is not None
    assert found[2] == pytest.approx(sum(w / n * c for w, c in zip(weights, counts, strict=True)), abs=1e-12)
    tree.grow(leaf, objective, workspace)
    assert tree.counts == counts


def gini(counts: np.ndarray) -> float:
    total = counts.sum()
    return float(total - (counts**2).sum() / total) if total else 0.0


def entropy(counts: np.ndarray) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-counts.sum() * (shares * np.log(shares)).sum() / np.log(max(len(counts), 2)))


@pytest.mark.parametrize("measure", [gini, entropy])
@pytest.mark.parametrize("seed", range(40))
def test_the_gain_is_the_decrease_of_the_blended_impurity(seed: int, measure) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=30)
    dataset, m = problem.dataset, problem.dataset.n_labels
    if m < 2:
        return
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective()
    tree = Individual(samples).become_leaf(workspace)
    reach = float(rng.random())
    found = tree.best_split(
        0, objective, workspace, by_score=False, reach=reach, impurity="entropy" if measure is entropy else "gini"
    )
    if found is None:
        return

    def gain(feature: int, threshold: float) -> float | None:
        x = dataset.X[:, feature]
        down, up, low, high = (part[feature] for part in problem.radii.arrays)
        sides = [x <= threshold, x > threshold]
        boxes = [np.maximum(x - down, low) <= threshold, np.minimum(x + up, high) > threshold]
        if not (sides[0].any() and sides[1].any()):
            return None

        def counts(mask: np.ndarray) -> np.ndarray:
            return np.bincount(dataset.y[mask], minlength=m)

        before = measure(counts(np.ones(len(x), dtype=bool)))
        own = before - sum(measure(counts(side)) for side in sides)
        boxed = before - sum(measure(counts(box)) for box in boxes)
        return (1 - reach) * own + reach * boxed

    gains = [
        value
        for feature in range(dataset.n_features)
        for threshold in all_thresholds(problem, feature)
        if (value := gain(feature, threshold)) is not None
    ]
    assert found[3] == pytest.approx(max(gains), abs=1e-9)
    assert gain(found[0], found[1]) == pytest.approx(max(gains), abs=1e-9)


def loss_of_values(problem: Problem, reach: float, label: int, sides: np.ndarray, boxes: np.ndarray):
    """Exponential loss as a function of the values of the two sides, from its definition, row by row."""
    sign = np.where(problem.dataset.y == label, 1.0, -1.0)

    def loss(left: float, right: float) -> float:
        of_side = np.exp(-sign[:, None] * np.array([left, right]))
        own = np.where(sides[0], of_side[:, 0], of_side[:, 1]).sum()
        worst = np.where(boxes.T, of_side, 0.0).max(axis=1).sum()
        return float((1 - reach) * own + reach * worst)

    return loss


def smallest(function, low: float = -30.0, high: float = 30.0, n_steps: int = 70) -> float:
    """Minimum of a convex function by ternary search."""
    for _ in range(n_steps):
        third = (high - low) / 3
        if function(low + third) <= function(high - third):
            high -= third
        else:
            low += third
    return function((low + high) / 2)


@pytest.mark.parametrize("seed", range(60))
def test_the_gain_of_exponential_loss_is_that_of_the_best_values(seed: int) -> None:
    """The closed form against the definition: the worst side of each box, minimized over the values of both sides."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=25)
    dataset, m = problem.dataset, problem.dataset.n_labels
    if m < 2:
        return
    workspace = Workspace(problem.samples)
    objective = problem.objective()
    tree = Individual(problem.samples).become_leaf(workspace)
    reach = float(rng.choice([0.0, 1.0, rng.random()]))
    found = tree.best_split(0, objective, workspace, by_score=False, reach=reach, impurity="exponential")
    if found is None:
        return
    labels = range(m) if m > 2 else [0]

    def masks(feature: int, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        x = dataset.X[:, feature]
        down, up, low, high = (part[feature] for part in problem.radii.arrays)
        boxes = np.array([np.maximum(x - down, low) <= threshold, np.minimum(x + up, high) > threshold])
        return np.array([x <= threshold, x > threshold]), boxes

    def gain(feature: int, threshold: float) -> float:
        total = 0.0
        for label in labels:
            loss = loss_of_values(problem, reach, label, *masks(feature, threshold))
            before = smallest(lambda value, loss=loss: loss(value, value))
            total += before - smallest(
                lambda left, loss=loss: smallest(lambda right: loss(left, right), n_steps=35), n_steps=35
            )
        return total

    assert found[3] == pytest.approx(gain(found[0], found[1]), abs=1e-3)
    # No other threshold is better; a few are enough to find out, because the sweep is the same for all criteria.
    for _ in range(3):
        feature = int(rng.integers(dataset.n_features))
        threshold = float(rng.choice(all_thresholds(problem, feature)))
        sides, _ = masks(feature, threshold)
        if sides[0].any() and sides[1].any():
            assert gain(feature, threshold) <= found[3] + 1e-3


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS))
def test_a_moved_test_scores_as_promised_where_no_leaf_changes(seed: int, weights: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=int(rng.integers(6, 20)))
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(weights)
    tree = Individual(samples).become_leaf(workspace)
    tree.grow(0, objective, workspace, by_score=False, n_splits=4)
    inner = np.flatnonzero(tree.nodes()[0] >= 0)
    if not len(inner):
        return
    node = int(rng.choice(inner))
    before, counts_before = model_of(tree, problem), tree.nodes()[4]
    found = tree.best_threshold_move(node, objective, workspace)
    if found is None or not tree.move_threshold(node, objective, workspace):
        return
    after = model_of(tree, problem)
    if after.n_nodes == before.n_nodes and all(
        after.leaf_predictions.sets[a] == before.leaf_predictions.sets[b]
        for a, b in zip(after.leaf_predictions.ids, before.leaf_predictions.ids, strict=True)
    ):
        assert tree.fitness(objective) == pytest.approx(found[2], abs=1e-12)
        assert counts_before.sum() > 0
