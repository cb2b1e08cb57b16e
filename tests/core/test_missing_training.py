"""The trainer's kernels on missing values: counts against the verifier, the sweep against every candidate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training_problems import WEIGHTS, random_operation

from metasilvae._core.training.evolution import Individual, Objective, TrainingSet, Workspace
from metasilvae.dataset import Dataset
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, Model
from metasilvae.perturbations.boxes import Boxes
from metasilvae.prediction import find_leaves
from metasilvae.training.samples import LARGEST, as_individual, as_model, build_tree, make_samples
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify


@dataclass(frozen=True)
class Droppable:
    """Boxes with a radius and limits for each feature; the values of some features may be dropped."""

    arrays: tuple[np.ndarray, ...]
    droppable: np.ndarray

    def boxes(self, dataset: Dataset) -> Boxes:
        boxes = Boxes(dataset.X, dataset.X, *self.arrays)
        if self.droppable.any():
            dropping = np.broadcast_to(self.droppable.astype(np.uint8), dataset.X.shape)
            boxes = replace(boxes, droppable=dropping)
        return boxes

    def describe(self) -> str:
        return "radii"


@dataclass(frozen=True)
class Problem:
    dataset: Dataset
    radii: Droppable

    @property
    def samples(self) -> TrainingSet:
        return make_samples(self.dataset, self.radii.boxes(self.dataset))

    def objective(self, samples: TrainingSet, weights=WEIGHTS[0], **limits: int) -> Objective:
        n = self.dataset.n_samples
        return Objective(*(weight / n for weight in weights), range(samples.n_features), **limits)

    def verified(self, model: Model) -> tuple[int, int, int]:
        counts = verify(make_query(model, self.dataset, self.radii), jobs=1).counts
        return counts.correct, counts.stable, counts.robust


def random_problem(rng: np.random.Generator, n_samples: int | None = None) -> Problem:
    n = n_samples or int(rng.integers(2, 40))
    d, m = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    X = rng.choice([rng.integers(0, 6, (n, d)).astype(float), rng.random((n, d)), rng.normal(size=(n, d)) * 1e9])
    scale = float(np.abs(X).max()) or 1.0
    down = rng.choice([0.0, 0.1, 0.25, 0.5, np.inf / scale], d) * scale
    up = down if rng.random() < 0.5 else rng.choice([0.0, 0.1, 0.25, np.inf / scale], d) * scale
    cut = rng.random() < 0.3
    low = X.min(axis=0) if cut else np.full(d, -np.inf)
    high = X.max(axis=0) if cut else np.full(d, np.inf)
    y = rng.integers(0, m, n).astype(np.int32)
    X[rng.random(X.shape) < rng.choice([0.0, 0.1, 0.3, 0.7], d)] = np.nan
    droppable = rng.random(d) < rng.choice([0.0, 0.5])
    labels = tuple(f"c{i}" for i in range(m))
    return Problem(Dataset(np.ascontiguousarray(X), y, labels), Droppable((down, up, low, high), droppable))


def check(tree: Individual, problem: Problem) -> None:
    model = as_model(tree, problem.dataset)
    assert tree.counts == problem.verified(model)
    leaves = find_leaves(model, problem.dataset.X)[:, 0]
    counts = np.zeros_like(model.leaf_values)
    np.add.at(counts, (leaves, problem.dataset.y), 1)
    assert (counts == model.leaf_values).all()
    assert (counts.sum(axis=1) > 0).all()


@pytest.mark.parametrize("seed", range(80))
def test_counts_stay_exact_over_long_sequences_of_operations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=None if seed % 3 else 150)
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(samples, WEIGHTS[seed % len(WEIGHTS)], max_depth=12, min_leaf=1 + seed % 2)
    tree, donor = (Individual(samples).become_leaf(workspace) for _ in range(2))
    for step in range(60):
        random_operation(rng, tree, donor, objective, workspace)
        check(tree, problem)
        if step % 10 == 0:
            tree, donor = donor, Individual(samples).become(tree)
    # The way through a model and through a checkpoint.
    limits = objective, workspace
    again = as_individual(as_model(tree, problem.dataset), samples, *limits)
    assert again.counts == tree.counts
    assert as_model(again, problem.dataset).nodes.tobytes() == as_model(tree, problem.dataset).nodes.tobytes()
    feature, threshold, left, right, _ = tree.nodes()
    stored = Individual(samples).take_nodes(feature, threshold, left, right, *limits)
    assert stored.counts == tree.counts
    assert stored.tests()[0].tolist() == tree.tests()[0].tolist()


def candidates(problem: Problem, feature: int) -> list[tuple[float, int]]:
    """Thresholds with directions: one for each interval between events, and "is missing"."""
    x = problem.dataset.X[:, feature]
    x = x[~np.isnan(x)]
    down, up, low, high = (part[feature] for part in problem.radii.arrays)
    ends = np.concatenate([x, np.maximum(x - down, low), np.minimum(x + up, high)])
    events = np.unique(ends[np.isfinite(ends)])
    thresholds = sorted({*events.tolist(), *(events[:-1] + np.diff(events) / 2).tolist()})
    return [(k, way) for k in thresholds for way in (MISSING_LEFT, MISSING_RIGHT)] + [(LARGEST, MISSING_RIGHT)]


def split_leaf(model: Model, problem: Problem, leaf: int, feature: int, threshold: float, way: int) -> Model | None:
    """The model with a leaf split in two, or None if a side is empty; counts by the rows themselves."""
    nodes = model.nodes
    columns = [nodes[name].tolist() for name in ("feature", "threshold", "left", "right")]
    ways = np.where(nodes["feature"] >= 0, nodes["leaf"], way).tolist()

    def shifted(child: int) -> int:
        return child + 2 if child > leaf else child

    columns[2], columns[3] = ([shifted(child) for child in side] for side in columns[2:])
    for column, here, new in zip(columns, (feature, threshold, leaf + 1, leaf + 2), (-1, 0.0, -1, -1), strict=True):
        column[leaf] = here
        column[leaf + 1 : leaf + 1] = [new, new]
    ways[leaf + 1 : leaf + 1] = [-1, -1]
    dtypes = np.int32, np.float64, np.int32, np.int32
    arrays = [np.array(column, dtype=dtype) for column, dtype in zip(columns, dtypes, strict=True)]
    n_leaves = model.n_leaves + 1
    made = build_tree(
        arrays, np.ones((n_leaves, model.n_labels), dtype=np.int64), model.n_features, model.labels,
        directions=np.array(ways, dtype=np.int32),
    )  # fmt: skip
    counts = np.zeros((n_leaves, model.n_labels), dtype=np.int64)
    np.add.at(counts, (find_leaves(made, problem.dataset.X)[:, 0], problem.dataset.y), 1)
    return replace(made, leaf_values=counts) if counts.any(axis=1).all() else None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS))
def test_the_sweep_finds_the_best_split_and_direction(seed: int, weights: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n_samples=int(rng.integers(2, 16)))
    samples = problem.samples
    workspace = Workspace(samples)
    objective = problem.objective(samples, weights)
    tree = Individual(samples).become_leaf(workspace)
    for _ in range(rng.integers(0, 4)):
        tree.grow(
            int(rng.choice(np.flatnonzero(tree.nodes()[0] < 0))), objective, workspace, by_score=bool(rng.integers(2))
        )
    leaf = int(rng.choice(np.flatnonzero(tree.nodes()[0] < 0)))
    model = as_model(tree, problem.dataset)
    n = problem.dataset.n_samples
    made = [
        split_leaf(model, problem, leaf, feature, threshold, way)
        for feature in range(problem.dataset.n_features)
        for threshold, way in candidates(problem, feature)
    ]
    scores = [
        sum(w / n * count for w, count in zip(weights, problem.verified(each), strict=True))
        for each in made
        if each is not None
    ]
    found = tree.best_split(leaf, objective, workspace)
    if found is None:
        assert not scores
        return
    assert found[2] == pytest.approx(max(scores), abs=1e-12)
    assert tree.grow(leaf, objective, workspace) == 1
    assert tree.fitness(objective) == pytest.approx(found[2], abs=1e-12)
    check(tree, problem)
