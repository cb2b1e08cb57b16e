"""Kernels that walk over whole trees, or sweep over many samples: against single operations and full verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from support.training_problems import WEIGHTS, FeatureRadii, Problem, full_counts, random_problem

from metasilvae._core.training.evolution import GreedyGrowth, Individual, Objective, TrainingSet, Workspace
from metasilvae.dataset import Dataset


def grown(problem: Problem, objective, workspace: Workspace, n_splits: int = 15) -> Individual:
    tree = Individual(problem.samples).become_leaf(workspace)
    tree.grow(0, objective, workspace, by_score=False, reach=0.3, n_splits=n_splits)
    return tree


def list_tests(tree: Individual) -> list[tuple[int, float]]:
    feature, threshold, _ = tree.tests()
    return list(zip(feature.tolist(), threshold.tolist(), strict=True))


def leaves_below(tree: Individual, node: int) -> int:
    feature, _, left, right, _ = tree.nodes()
    return 1 if feature[node] < 0 else leaves_below(tree, left[node]) + leaves_below(tree, right[node])


def trim_one_by_one(tree: Individual, objective, workspace: Workspace, penalty: float) -> None:
    for node in range(tree.n_nodes - 1, -1, -1):
        if node < tree.n_nodes and tree.nodes()[0][node] >= 0:
            saved = leaves_below(tree, node) - 1
            after = tree.score_if_pruned(node, objective, workspace) - penalty * (tree.n_leaves - saved)
            if after >= tree.fitness(objective):
                tree.prune(node, workspace)


@pytest.mark.parametrize("seed", range(40))
def test_a_walk_over_all_nodes_equals_single_operations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=int(rng.integers(30, 200)))
    penalty = float(rng.choice([0.0, 0.003]))
    objective = problem.objective(WEIGHTS[seed % len(WEIGHTS)], leaf_penalty=penalty)
    # A workspace of its own for every operation: nothing can be left over from another one.
    tree = grown(problem, objective, Workspace(problem.samples))
    single = Individual(tree.samples).become(tree)
    workspace = Workspace(tree.samples)
    tree.improve_locally(objective, workspace)
    node = 0
    while node < single.n_nodes:
        if single.nodes()[0][node] >= 0:
            single.move_threshold(node, objective, Workspace(tree.samples))
        node += 1
    trim_one_by_one(single, objective, Workspace(tree.samples), penalty)
    assert list_tests(tree) == list_tests(single)
    assert tree.counts == single.counts == full_counts(tree, problem)


@pytest.mark.parametrize("seed", range(20))
def test_a_workspace_keeps_nothing_of_another_tree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=100)
    objective = problem.objective(min_leaf=2)
    workspace = Workspace(problem.samples)
    trees = [grown(problem, objective, workspace, n_splits) for n_splits in (3, 9)]
    for _ in range(20):
        tree, donor = rng.permutation(np.array([0, 1]))
        trees[tree].become(trees[donor]) if rng.random() < 0.2 else None
        leaves = np.flatnonzero(trees[tree].nodes()[0] < 0)
        trees[tree].grow(int(rng.choice(leaves)), objective, workspace, reach=float(rng.random()))
        trees[tree].improve_locally(objective, workspace)
        assert trees[tree].counts == full_counts(trees[tree], problem)


@pytest.mark.parametrize("seed", range(10))
def test_growth_can_be_continued_and_taken_in_parts(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed), n_samples=150)
    samples = problem.samples
    objective = problem.objective(min_leaf=2)
    workspace = Workspace(samples)
    growth = GreedyGrowth(samples, objective, workspace, reach=0.3)
    for n_splits in (2, 7, 20):
        growth.extend(n_splits, workspace)
    assert growth.n_splits <= 20
    for n_splits in (20, 1, 5, 0):
        tree = Individual(samples).become_leaf(workspace)
        if n_splits:
            tree.grow(0, objective, workspace, by_score=False, reach=0.3, n_splits=max(n_splits, 2))
        taken = growth.take(2 if n_splits == 1 else n_splits, workspace)
        assert list_tests(taken) == list_tests(tree)
        assert taken.counts == full_counts(taken, problem)


def list_gains(tree: Individual, objective, workspace: Workspace) -> dict[str, tuple[int, float]]:
    """Node and gain of the best split of each leaf that has one, by the way to the leaf."""
    feature, _, left, right, _ = tree.nodes()
    found, pending = {}, [(0, "")]
    while pending:
        node, way = pending.pop()
        if feature[node] >= 0:
            pending += [(int(left[node]), way + "l"), (int(right[node]), way + "r")]
        elif (split := tree.best_split(node, objective, workspace, by_score=False)) is not None and split[3] > 0:
            found[way] = node, split[3]
    return found


@pytest.mark.parametrize("seed", range(10))
def test_growth_splits_the_leaf_with_the_largest_gain_and_of_equal_ones_the_first(seed: int) -> None:
    # Few values, and four groups with the same rows: many gains are equal.
    rng = np.random.default_rng(seed)
    group, rows = np.repeat(np.arange(4.0), 12), np.tile(rng.integers(0, 4, (12, 2)).astype(np.float64), (4, 1))
    y = (np.tile(rng.integers(0, 2, 12), 4) ^ (group > 1)).astype(np.int32)
    dataset = Dataset(np.column_stack([group, rows]), y, ("a", "b"))
    nothing, endless = np.zeros(3), np.full(3, np.inf)
    problem = Problem(dataset, FeatureRadii((nothing, nothing, -endless, endless)))
    objective, workspace = problem.objective(), Workspace(problem.samples)
    growth = GreedyGrowth(problem.samples, objective, workspace)
    growth.extend(30, workspace)
    places = {"": 0}
    for n_splits in range(growth.n_splits + 1):
        tree = growth.take(n_splits, workspace)
        gains = list_gains(tree, objective, workspace)
        if n_splits == growth.n_splits:
            assert not gains
            break
        way = min(gains, key=lambda each: (-gains[each][1], places[each]))
        places |= {way + "l": places[way], way + "r": n_splits + 1}
        tree.grow(gains[way][0], objective, workspace, by_score=False)
        assert list_tests(tree) == list_tests(growth.take(n_splits + 1, workspace))


@pytest.mark.parametrize("seed", range(40))
def test_samples_outside_their_boxes_are_counted_cautiously(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = np.round(0.11 + 0.78 * rng.random((60, 3)), 2)
    radius, low, high = np.full(3, 0.1), np.full(3, 0.2), np.full(3, 0.8)
    dataset = Dataset(X, rng.integers(0, 2, 60).astype(np.int32), ("a", "b"))
    problem = Problem(dataset, FeatureRadii((radius, radius, low, high)))
    samples, objective = problem.samples, problem.objective()
    assert samples.has_wider_boxes
    tree = grown(Problem(dataset, problem.radii), objective, Workspace(samples), 8)
    tree.improve_locally(objective, Workspace(samples))
    counted, verified = tree.counts, full_counts(tree, problem)
    assert counted[0] == verified[0]
    assert counted[1] <= verified[1]
    assert counted[2] <= verified[2]
    inside = Dataset(np.clip(X, 0.2, 0.8), dataset.y, ("a", "b"))
    assert not Problem(inside, problem.radii).samples.has_wider_boxes


# A leaf for nearly every sample: work for each leaf that grew with the tree would take minutes here.
def test_a_tree_of_many_leaves() -> None:
    n = 32000
    rng = np.random.default_rng(0)
    dataset = Dataset(rng.permutation(n)[:, None].astype(float), rng.integers(0, 2, n).astype(np.int32), ("a", "b"))
    nothing, endless = np.zeros(1), np.full(1, np.inf)
    problem = Problem(dataset, FeatureRadii((nothing, nothing, -endless, endless)))
    samples, objective = problem.samples, problem.objective()
    workspace = Workspace(samples)
    growth = GreedyGrowth(samples, objective, workspace)
    growth.extend(n, workspace)
    assert growth.n_splits > n // 3
    tree = growth.take(n, workspace)
    assert tree.n_leaves == growth.n_splits + 1
    assert tree.counts == full_counts(tree, problem) == (n, n, n)


def large_problem(rng: np.random.Generator, n: int, d: int = 12, is_grid: bool = False) -> Problem:
    X = rng.integers(0, 40, (n, d)) / 40 if is_grid else rng.random((n, d))
    y = np.stack([X[:, 0] > 0.3, X[:, 1] > 0.6, rng.random(n) < 0.1]).sum(axis=0, dtype=np.int32)
    radius = np.full(d, 0.03)
    return Problem(
        Dataset(np.ascontiguousarray(X, dtype=np.float64), y, ("a", "b", "c", "d")),
        FeatureRadii((radius, radius, np.full(d, -np.inf), np.full(d, np.inf))),
    )


# Ranks of features with up to 256 values are bytes too; those of the others are not.
def test_features_with_few_and_with_many_values_are_swept_alike() -> None:
    rng = np.random.default_rng(0)
    n = 600
    columns = [rng.integers(0, 256, n), rng.random(n), rng.integers(0, 257, n), rng.integers(0, 3, n)]
    X = np.column_stack(columns).astype(np.float64)
    assert [len(np.unique(column)) > 256 for column in columns] == [False, True, False, False]
    y = ((X[:, 0] > 100) ^ (X[:, 1] > 0.5) ^ (X[:, 3] > 1)).astype(np.int32)
    radius = np.array([3.0, 0.01, 3.0, 0.4])
    bounds = np.full(4, -np.inf), np.full(4, np.inf)
    for d in range(1, 5):
        problem = Problem(
            Dataset(np.ascontiguousarray(X[:, -d:]), y, ("a", "b")),
            FeatureRadii((radius[-d:], radius[-d:], bounds[0][-d:], bounds[1][-d:])),
        )
        objective, workspace = problem.objective(min_leaf=2), Workspace(problem.samples)
        for by_score, reach in product((False, True), (0.0, 0.3)):
            tree = Individual(problem.samples).become_leaf(workspace)
            *_, score, _ = tree.best_split(0, objective, workspace, by_score=by_score, reach=reach)
            tree.grow(0, objective, workspace, by_score=by_score, reach=reach)
            assert tree.fitness(objective) == pytest.approx(score, abs=1e-12)
            leaf = int(np.argmax(np.where(tree.nodes()[0] < 0, tree.nodes()[4].sum(axis=1), 0)))
            tree.grow(leaf, objective, workspace, by_score=by_score, reach=reach, n_splits=12)
            tree.improve_locally(objective, workspace)
            assert tree.counts == full_counts(tree, problem)


# Where boxes do not count in the gain, features that cannot have the largest one are not swept.
@pytest.mark.parametrize("seed", range(150))
def test_the_best_of_several_features_is_the_best_of_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=int(rng.choice([12, 60, 300])))
    d, min_leaf = 4, int(rng.choice([1, 2, 6]))
    X = rng.integers(0, int(rng.choice([2, 5, 300])), (problem.dataset.n_samples, d)).astype(np.float64)
    radius = rng.choice([0.0, 0.6, 2.0], d)
    limits = np.full(d, -np.inf), np.full(d, np.inf)
    if seed % 3 == 0:
        limits = (
            X.min(axis=0) + radius * rng.random(d),
            np.maximum(X.max(axis=0) - radius * rng.random(d), X.min(axis=0)),
        )
    radii = FeatureRadii((radius, radius, *limits))
    problem = Problem(Dataset(X, problem.dataset.y, problem.dataset.labels), radii)
    weights = tuple(weight / len(X) for weight in WEIGHTS[seed % len(WEIGHTS)])
    objectives = [Objective(*weights, features, min_leaf) for features in ([0], [1], [2], [3], range(d))]
    tree, workspace = Individual(problem.samples), Workspace(problem.samples)
    tree.become_leaf(workspace)
    for _ in range(6):
        for leaf in np.flatnonzero(tree.nodes()[0] < 0):
            *single, found = [tree.best_split(leaf, each, workspace, by_score=False) for each in objectives]
            best = [each for each in single if each is not None]
            assert (found is None) == (not best)
            if found is not None:
                assert found in best
                assert (found[3], found[2]) == max((gain, score) for *_, score, gain in best)
        tree.grow(int(rng.choice(np.flatnonzero(tree.nodes()[0] < 0))), objectives[-1], workspace, by_score=False)


# Most samples have the lowest value, as in images; the others are sorted by insertion, by radix, or counted.
@pytest.mark.parametrize(("n_values", "share"), [(200, 0.02), (200, 0.1), (200, 0.6), (4, 0.3), (2, 0.01), (2, 1.0)])
def test_features_with_a_background_are_swept_exactly(n_values: int, share: float) -> None:
    rng = np.random.default_rng(n_values)
    n, d = 160, 3
    X = np.where(rng.random((n, d)) < share, rng.integers(1, n_values, (n, d)), 0).astype(np.float64)
    y = ((X[:, 0] > n_values / 2) ^ (rng.random(n) < 0.2)).astype(np.int32)
    radius = np.full(d, 0.3 * n_values / 2)
    problem = Problem(
        Dataset(X, y, ("a", "b")), FeatureRadii((radius, radius, np.full(d, -np.inf), np.full(d, np.inf)))
    )
    objective, workspace = problem.objective(min_leaf=3), Workspace(problem.samples)
    leaf = Individual(problem.samples).become_leaf(workspace)
    scores = []
    for feature in range(d):
        ends = X[:, feature, None] + radius[feature] * np.array([-1, 0, 1])
        for threshold in np.unique(ends):
            n_left = np.count_nonzero(X[:, feature] <= threshold)
            if 3 <= n_left <= n - 3:
                tests = np.array([feature, -1, -1], np.int32), np.array([threshold, 0, 0])
                children = np.array([1, -1, -1], np.int32), np.array([2, -1, -1], np.int32)
                tree = Individual(problem.samples).take_nodes(*tests, *children, objective, workspace)
                scores.append(tree.fitness(objective))
    found = leaf.best_split(0, objective, workspace, by_score=True, reach=0.3)
    assert (found is None) == (not scores)
    if scores:
        assert found[2] == pytest.approx(max(scores), abs=1e-12)


# One size for each way of sweeping: all thresholds, a part of the thresholds, a part of the samples too.
@pytest.mark.parametrize(("n", "is_grid"), [(700, False), (1500, False), (9000, False), (9000, True)])
def test_sweeps_over_many_samples_promise_the_true_score(n: int, is_grid: bool) -> None:
    problem = large_problem(np.random.default_rng(n), n, is_grid=is_grid)
    samples, objective = problem.samples, problem.objective(min_leaf=5)
    workspace = Workspace(samples)
    tree = Individual(samples).become_leaf(workspace)
    for by_score in (False, True, False):
        leaf = int(np.argmax(np.where(tree.nodes()[0] < 0, tree.nodes()[4].sum(axis=1), 0)))
        feature, threshold, score, _ = tree.best_split(leaf, objective, workspace, by_score=by_score, reach=0.1)
        assert feature in (0, 1) or leaf > 0
        tree.grow(leaf, objective, workspace, by_score=by_score, reach=0.1)
        assert (tree.nodes()[0][leaf], tree.nodes()[1][leaf]) == (feature, threshold)
        assert tree.fitness(objective) == pytest.approx(score, abs=1e-12)
        assert tree.counts == full_counts(tree, problem)
    before = tree.fitness(objective)
    tree.improve_locally(objective, workspace)
    assert tree.fitness(objective) >= before
    assert tree.counts == full_counts(tree, problem)


def list_predictions(tree: Individual) -> list[list[bool]]:
    """The labels that each leaf predicts."""
    counts = tree.nodes()[4][tree.nodes()[0] < 0]
    return (counts == counts.max(axis=1, keepdims=True)).tolist()


def wide_problem(
    rng: np.random.Generator, n: int, d: int, limit: tuple[int, float] | None
) -> tuple[TrainingSet, Callable[[Sequence[int]], Objective]]:
    """Many rows and features, with values of many, of few, or mostly of one kind; and a norm, if given."""
    kinds = (
        rng.random((n, d)),
        rng.integers(0, 6, (n, d)) / 6,
        np.where(rng.random((n, d)) < 0.7, 0, rng.random((n, d))),
    )
    X = np.ascontiguousarray(kinds[rng.integers(3)], dtype=np.float64)
    m = int(rng.integers(2, 5))
    y = ((X[:, 0] > 0.4) + (X[:, 1] > 0.6) * (m > 2) + (rng.random(n) < 0.2)) % m
    radius, endless = np.full(d, 0.05 if limit is None else 0.15), np.full(d, np.inf)
    norm = None if limit is None else (*limit, np.ones(d))
    samples = TrainingSet(X, y.astype(np.int32), m, radius, radius, -endless, endless, limit=norm)
    return samples, lambda features: Objective(0.9 / n, 0.1 / n, 0, features, min_leaf=3)


# All features are looked at with a part of the thresholds, and of the samples too where they are many (9000), or the
# features are (300). Of a feature with more than 4096 values not all thresholds are looked at.
@pytest.mark.parametrize(
    ("n", "d", "limit"),
    [
        (800, 9, None), (1500, 12, None), (1500, 30, None), (3000, 300, None), (5000, 12, None), (9000, 10, None),
        (800, 9, (1, 0.1)), (1500, 12, (2, 0.1)), (3000, 30, (0, 1.0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_sweeps_over_promising_features_promise_the_true_score(
    n: int, d: int, limit: tuple[int, float] | None, seed: int
) -> None:
    rng = np.random.default_rng([n, d, seed])
    samples, objective_of = wide_problem(rng, n, d, limit)
    objective, workspace = objective_of(range(d)), Workspace(samples)
    tree = Individual(samples).become_leaf(workspace)
    for step in range(5):
        criterion = {"by_score": bool((step + seed) % 2), "reach": 0.3}
        leaf = int(np.argmax(np.where(tree.nodes()[0] < 0, tree.nodes()[4].sum(axis=1), 0)))
        found = tree.best_split(leaf, objective, workspace, **criterion)
        if found is None:
            break
        # It is the best split of its feature, and its feature is one of the best.
        assert found == tree.best_split(leaf, objective_of([found[0]]), workspace, **criterion)
        some = [tree.best_split(leaf, objective_of([each]), workspace, **criterion) for each in range(min(d, 30))]
        worth = 2 if criterion["by_score"] else 3
        assert sum(each is not None and each[worth] > found[worth] for each in some) < 3
        tree.grow(leaf, objective, workspace, **criterion)
        assert (tree.nodes()[0][leaf], tree.nodes()[1][leaf]) == found[:2]
        assert tree.fitness(objective) == pytest.approx(found[2], abs=1e-12)
    n_nodes = tree.n_nodes
    for node in np.flatnonzero(tree.nodes()[0] >= 0):
        present = tree.best_threshold_move(node, objective_of(tree.nodes()[0][[node]]), workspace)
        found = tree.best_threshold_move(node, objective, workspace)
        assert found is not None
        assert present is not None
        assert found[2] >= present[2]
        alone = tree.best_threshold_move(node, objective_of([found[0]]), workspace)
        assert alone is not None
        assert found[2] == alone[2]
        before, predicted = tree.fitness(objective), list_predictions(tree)
        is_moved = tree.move_threshold(node, objective, workspace)
        if is_moved and list_predictions(tree) == predicted:
            assert tree.fitness(objective) == pytest.approx(found[2], abs=1e-12)
        assert tree.fitness(objective) >= before
        if tree.n_nodes != n_nodes:
            break


def test_deepening_grows_at_the_leaves_and_prunes_what_is_not_worth_it() -> None:
    problem = large_problem(np.random.default_rng(3), 1500)
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(leaf_penalty=2 / 1500)
    tree = grown(problem, objective, workspace, n_splits=2)
    assert tree.n_leaves == 3
    before, root = tree.fitness(objective), list_tests(tree)[0]
    assert tree.deepen(8, objective, workspace, reach=0.1) is tree
    assert tree.fitness(objective) > before
    assert list_tests(tree)[0] == root
    assert tree.counts == full_counts(tree, problem)
    # No leaf is worth a penalty that exceeds all samples.
    dear = problem.objective(leaf_penalty=1.0)
    tree = grown(problem, dear, workspace, n_splits=2)
    assert tree.deepen(8, dear, workspace).n_leaves == 3
