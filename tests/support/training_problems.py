"""Random training problems, random operations on their trees, and the slow evaluation of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from metasilvae._core.training.evolution import Individual, Objective, TrainingSet, Workspace
from metasilvae.dataset import Dataset
from metasilvae.model import NODE_DTYPE, LeafKind, Model
from metasilvae.perturbations.boxes import Boxes
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify

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


def full_counts(individual: Individual, problem: Problem) -> tuple[int, int, int]:
    """Correct, stable and robust samples by the verifier, which knows nothing of increments."""
    counts = verify(make_query(model_of(individual, problem), problem.dataset, problem.radii), jobs=1).counts
    return counts.correct, counts.stable, counts.robust


def random_operation(
    rng: np.random.Generator,
    tree: Individual,
    donor: Individual,
    objective: Objective,
    workspace: Workspace,
    names: Sequence[str] = ("gini", "entropy", "exponential"),
) -> None:
    feature = tree.nodes()[0]
    leaves, inner = np.flatnonzero(feature < 0), np.flatnonzero(feature >= 0)
    kind = rng.integers(0, 5)
    criterion = {
        "by_score": bool(rng.integers(2)),
        "reach": float(rng.random()),
        "impurity": names[rng.integers(len(names))],
    }
    if kind == 0 or len(inner) == 0:
        tree.grow(int(rng.choice(leaves)), objective, workspace, **criterion)
    elif kind == 1:
        tree.grow(int(rng.choice(leaves)), objective, workspace, n_splits=int(rng.integers(2, 6)), **criterion)
    elif kind == 2:
        tree.graft(int(rng.integers(tree.n_nodes)), donor, int(rng.integers(donor.n_nodes)), objective, workspace)
    elif kind == 3:
        before, nodes = tree.fitness(objective), [each.tobytes() for each in (*tree.nodes(), *tree.tests())]
        if tree.move_threshold(int(rng.choice(inner)), objective, workspace):
            assert tree.fitness(objective) >= before
        else:
            assert [each.tobytes() for each in (*tree.nodes(), *tree.tests())] == nodes
    elif rng.random() < 0.3:
        node = int(rng.choice(inner))
        promised = tree.score_if_pruned(node, objective, workspace)
        tree.prune(node, workspace)
        assert promised == pytest.approx(tree.fitness(objective), abs=1e-12)
