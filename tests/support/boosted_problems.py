"""Random samples, losses and trees of boosting."""

from __future__ import annotations

from typing import Any

import numpy as np

from metasilvae.training.boosted_trees import (
    UNIT,
    BoostedTree,
    Codes,
    Derivatives,
    GrowthLimits,
    choose_thresholds,
    grow_tree,
)
from support.training_problems import Problem, random_problem


def ends(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    pairs = [problem.radii.boxes(problem.dataset).bounds(row) for row in range(problem.dataset.n_samples)]
    return np.array([low for low, _ in pairs]), np.array([high for _, high in pairs])


def coded(problem: Problem, n_thresholds: int = 255) -> tuple[list[np.ndarray], Codes]:
    boxes = problem.radii.boxes(problem.dataset)
    thresholds = choose_thresholds(problem.dataset.X, boxes, n_thresholds, 0)
    return thresholds, Codes.of(problem.dataset, boxes, thresholds)


def random_loss(rng: np.random.Generator, is_positive: np.ndarray) -> Derivatives:
    """Derivatives as a logistic loss has them: a positive sample wants a higher score."""
    n = len(is_positive)
    sign = np.where(is_positive, -1, 1)
    first = [(sign * rng.integers(0, 50, n)).astype(np.int32) for _ in range(2)]
    second = [rng.integers(0, 20, n).astype(np.int32) for _ in range(2)]
    return Derivatives(first[0], second[0], first[1], second[1])


def grown(seed: int, **limits: Any) -> tuple[Problem, list[np.ndarray], Codes, BoostedTree]:
    *found, _ = grown_on(seed, **limits)
    return found[0], found[1], found[2], found[3]


def grown_on(seed: int, **limits: Any) -> tuple[Problem, list[np.ndarray], Codes, BoostedTree, np.ndarray]:
    """A tree and the rows that it was grown on."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, int(rng.integers(20, 80)))
    thresholds, codes = coded(problem)
    is_positive = rng.random(codes.n_samples) < 0.5
    scale = int(1 / UNIT) // 50
    loss = random_loss(rng, is_positive)
    loss = Derivatives(*((part * scale).astype(np.int32) for part in vars(loss).values()))
    rows = np.sort(rng.permutation(codes.n_samples)[: codes.n_samples // 2 + 1]).astype(np.int32)
    features = np.arange(problem.dataset.n_features, dtype=np.int32)
    tree = grow_tree(codes, loss, is_positive, rows, lambda level: features, GrowthLimits(**limits))
    return problem, thresholds, codes, tree, rows
