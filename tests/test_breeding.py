"""The trainer's kernels: incremental tallies against full verification, the sweep against building every candidate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae._core.training.evolution import Individual, Objective, TrainingSet, Workspace
from metasilvae.dataset import Dataset
from metasilvae.model import NODE_DTYPE, LeafKind, Model
from metasilvae.perturbation import Boxes
from metasilvae.verification import ask, verify

WEIGHTS = [(0.9, 0.1, 0.0), (1.0, 0.0, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0), (1.0, 1.0, -0.5)]


@dataclass(frozen=True)
class FeatureRadii:
    """Boxes with a radius and limits for each feature."""

    arrays: tuple[np.ndarray, ...]

    def boxes(self, dataset: Dataset) -> Boxes:
        return Boxes(dataset.X, dataset.X, *self.arrays)

    def describe(self) -> str:
        return "radii"


@dataclass(frozen=True)
class Problem:
    """A random training problem."""

    dataset: Dataset
    radii: FeatureRadii

    @property
    def samples(self) -> TrainingSet:
        return TrainingSet(self.dataset.X, self.dataset.y, self.dataset.n_labels, *self.radii.arrays)

    def objective(self, weights: tuple[float, float, float] = WEIGHTS[0], **limits: int) -> Objective:
        n = self.dataset.n_samples
        return Objective(*(weight / n for weight in weights), range(self.dataset.n_features), **limits)


def random_problem(rng: np.random.Generator, n_samples: int | None = None) -> Problem:
    n = n_samples or int(rng.integers(2, 40))
    d, m = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    # Few distinct values make ties, samples on thresholds and equal events common.
    X = rng.choice([rng.integers(0, 6, (n, d)).astype(float), rng.random((n, d)), rng.normal(size=(n, d)) * 1e9])
    scale = float(np.abs(X).max()) or 1.0
    down = rng.choice([0.0, 0.1, 0.25, 0.5], d) * scale
    up = down if rng.random() < 0.5 else rng.choice([0.0, 0.1, 0.25, 0.5], d) * scale
    cut = rng.random() < 0.3
    low = X.min(axis=0) if cut else np.full(d, -np.inf)
    high = X.max(axis=0) if cut else np.full(d, np.inf)
    y = rng.integers(0, m, n).astype(np.int32)
    labels = tuple(f"c{i}" for i in range(m))
    return Problem(Dataset(np.ascontiguousarray(X), y, labels), FeatureRadii((down, up, low, high)))


def model_of(individual: Individual, problem: Problem) -> Model:
    feature, threshold, left, right, counts = individual.nodes()
    nodes = np.zeros(len(feature), dtype=NODE_DTYPE)
    for name, column in zip(("feature", "threshold", "left", "right"), (feature, threshold, left, right), strict=True):
        nodes[name] = column
    is_leaf = feature < 0
    nodes["leaf"] = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
    dataset = problem.dataset
    return Model(
        nodes, np.zeros(1, dtype=np.int32), counts[is_leaf], LeafKind.COUNTS, dataset.n_features, dataset.labels
    )


def full_tallies(individual: Individual, problem: Problem) -> tuple[int, int, int]:
    """Correct, stable and robust samples by the verifier, which knows nothing of increments."""
    tally = verify(ask(model_of(individual, problem), problem.dataset, problem.radii), jobs=1).tally
    return tally.correct, tally.stable, tally.robust


def check_invariants(individual: Individual, problem: Problem) -> None:
    feature, threshold, left, right, counts = individual.nodes()
    assert individual.counts == full_tallies(individual, problem)
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


def random_operation(rng: np.random.Generator, tree: Individual, donor: Individual, objective, bench) -> None:
    feature = tree.nodes()[0]
    leaves, inner = np.flatnonzero(feature < 0), np.flatnonzero(feature >= 0)
    kind = rng.integers(0, 5)
    names = ("gini", "entropy")
    criterion = {"by_score": bool(rng.integers(2)), "reach": float(rng.random()), "impurity": names[rng.integers(2)]}
    if kind == 0 or len(inner) == 0:
        tree.grow(int(rng.choice(leaves)), objective, bench, **criterion)
    elif kind == 1:
        tree.grow(int(rng.choice(leaves)), objective, bench, n_splits=int(rng.integers(2, 6)), **criterion)
    elif kind == 2:
        tree.graft(int(rng.integers(tree.n_nodes)), donor, int(rng.integers(donor.n_nodes)), objective, bench)
    elif kind == 3:
        tree.move_threshold(int(rng.choice(inner)), objective, bench)
    elif rng.random() < 0.3:
        node = int(rng.choice(inner))
        promised = tree.score_if_pruned(node, objective, bench)
        tree.prune(node, bench)
        assert promised == pytest.approx(tree.fitness(objective), abs=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_tallies_stay_exact_over_long_sequences_of_operations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=None if seed % 3 else 200)
    samples = problem.samples
    bench = Workspace(samples)
    objective = problem.objective(WEIGHTS[seed % len(WEIGHTS)], max_depth=12, min_leaf=1 + seed % 2)
    tree, donor = (Individual(samples).become_leaf(bench) for _ in range(2))
    for step in range(60):
        random_operation(rng, tree, donor, objective, bench)
        assert tree.counts == full_tallies(tree, problem)
        if step % 10 == 0:
            check_invariants(tree, problem)
            tree, donor = donor, Individual(samples).become(tree)
    check_invariants(tree, problem)


def all_thresholds(problem: Problem, feature: int) -> list[float]:
    """One threshold for each interval between neighbouring events, and the events themselves."""
    x = problem.dataset.X[:, feature]
    down, up, low, high = (part[feature] for part in problem.radii.arrays)
    events = np.unique(np.concatenate([x, np.maximum(x - down, low), np.minimum(x + up, high)]))
    return sorted({*events.tolist(), *(events[:-1] + np.diff(events) / 2).tolist()})


def score_with(tree: Individual, problem: Problem, objective, bench, node: int, feature: int, threshold: float):
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
    candidate = Individual(problem.samples).take_nodes(features, thresholds, left, right, objective, bench)
    if candidate.n_nodes != len(features):
        return None
    correct, stable, robust = full_tallies(candidate, problem)
    return correct, stable, robust


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS), st.integers(1, 3))
def test_the_sweep_finds_the_best_split_of_all(seed: int, weights: tuple[float, float, float], min_leaf: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=int(rng.integers(2, 16)))
    samples = problem.samples
    bench = Workspace(samples)
    objective = problem.objective(weights, min_leaf=min_leaf)
    tree = Individual(samples).become_leaf(bench)
    for _ in range(rng.integers(0, 4)):
        tree.grow(
            int(rng.choice(np.flatnonzero(tree.nodes()[0] < 0))), objective, bench, by_score=bool(rng.integers(2))
        )
    leaf = int(rng.choice(np.flatnonzero(tree.nodes()[0] < 0)))
    found = tree.best_split(leaf, objective, bench)
    n = problem.dataset.n_samples
    scores = [
        sum(w / n * count for w, count in zip(weights, tallies, strict=True))
        for feature in range(problem.dataset.n_features)
        for threshold in all_thresholds(problem, feature)
        if (tallies := score_with(tree, problem, objective, bench, leaf, feature, threshold)) is not None
    ]
    if found is None:
        assert not scores
        return
    assert found[2] == pytest.approx(max(scores), abs=1e-12)
    tallies = score_with(tree, problem, objective, bench, leaf, found[0], found[1])
    assert tallies is not None
    assert found[2] == pytest.approx(sum(w / n * c for w, c in zip(weights, tallies, strict=True)), abs=1e-12)
    tree.grow(leaf, objective, bench)
    assert tree.counts == tallies


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
    bench = Workspace(samples)
    objective = problem.objective()
    tree = Individual(samples).become_leaf(bench)
    reach = float(rng.random())
    found = tree.best_split(
        0, objective, bench, by_score=False, reach=reach, impurity="entropy" if measure is entropy else "gini"
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


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS))
def test_a_moved_test_scores_as_promised_where_no_leaf_changes(seed: int, weights: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=int(rng.integers(6, 20)))
    samples = problem.samples
    bench = Workspace(samples)
    objective = problem.objective(weights)
    tree = Individual(samples).become_leaf(bench)
    tree.grow(0, objective, bench, by_score=False, n_splits=4)
    inner = np.flatnonzero(tree.nodes()[0] >= 0)
    if not len(inner):
        return
    node = int(rng.choice(inner))
    before, counts_before = model_of(tree, problem), tree.nodes()[4]
    found = tree.best_threshold_move(node, objective, bench)
    if found is None or not tree.move_threshold(node, objective, bench):
        return
    after = model_of(tree, problem)
    if after.n_nodes == before.n_nodes and all(
        after.leaf_answers.sets[a] == before.leaf_answers.sets[b]
        for a, b in zip(after.leaf_answers.ids, before.leaf_answers.ids, strict=True)
    ):
        assert tree.fitness(objective) == pytest.approx(found[2], abs=1e-12)
        assert counts_before.sum() > 0
