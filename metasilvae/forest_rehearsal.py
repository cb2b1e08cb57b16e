"""Choosing how to grow a forest, by growing small ones on parts of the samples and testing them on the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.ensemble_votes import GrowingForest
from metasilvae.forest_growth import grow_forest
from metasilvae.forest_options import FEW_SAMPLES, ForestOptions
from metasilvae.perturbation import Perturbation
from metasilvae.rehearsal import plan_splits
from metasilvae.tree_tasks import Stoppable, grow_tree

# What is chosen among; each was the best one on some of the paper's sets. All by validation on parts of the training
# splits.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"blends": (0.3,), "radius_factor": 1.15, "caution": 0.2, "focus": 1.0, "strength": 0.2},
    {"blends": (0.3,), "radius_factor": 1.15, "caution": 0.5, "focus": 1.0, "strength": 0.5},
    {"blends": (0.3,), "radius_factor": 1.15, "caution": 0.2, "focus": 0.5, "strength": 0.1},
    {"blends": (0.1,), "radius_factor": 1.0, "caution": 0.1, "focus": 0.1, "strength": 0.2},
    {"blends": (0.02,), "radius_factor": 1.15, "caution": 0.1, "focus": 0.5, "strength": 0.1},
    {"blends": (0.0,), "radius_factor": 1.0, "caution": 0.0, "focus": 0.1, "strength": 0.5},
    {"blends": (0.3,), "radius_factor": 1.15, "caution": 0.2, "method": "independent"},
)
# The same for few samples. Independent trees, together, are more accurate and more stable than the best single one;
# those that look at each other give up stability and must be clearly better to be chosen.
SETTINGS_IF_FEW: tuple[dict[str, Any], ...] = (
    {"radius_factor": 1.15, "caution": 0.2, "method": "independent"},
    {"radius_factor": 1.15, "caution": 0.2, "focus": 1.0, "strength": 0.2, "method": "reweighted"},
)
# Of many samples so many are grown on and so many are tested on, which is cheap; growing more trees, or on more
# samples, would tell the settings apart no better. Fewer samples are split again and again.
GROWN_SAMPLES = 2400
TESTED_SAMPLES = 10000
MOST_TREES = 9


def list_settings(options: ForestOptions, n_samples: int) -> list[dict[str, Any]]:
    """The settings to choose among; of those that do not differ where the method is fixed, one."""
    kept: dict[ForestOptions, dict[str, Any]] = {}
    for setting in SETTINGS_IF_FEW if n_samples <= FEW_SAMPLES else SETTINGS:
        candidate = options.with_setting(setting)
        if not candidate.is_reweighted:
            candidate = candidate.with_setting({"strength": 0.0, "focus": 0.0})
        kept.setdefault(candidate, setting)
    return list(kept.values())


def plan_rehearsal(
    y: NDArray[np.int32], rows: NDArray[np.intp], seed: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of rows to grow on and rows to test on, all among the given ones."""
    if len(rows) <= FEW_SAMPLES:
        return [(rows[kept], rows[held]) for kept, held in plan_splits(y[rows], seed)]
    drawn = np.random.default_rng([seed, 4]).permutation(rows)[: GROWN_SAMPLES + TESTED_SAMPLES]
    return [(np.sort(drawn[:GROWN_SAMPLES]), np.sort(drawn[GROWN_SAMPLES:]))]


def rehearse(
    dataset: Dataset,
    perturbation: Perturbation,
    options: ForestOptions,
    kept: NDArray[np.intp],
    held: NDArray[np.intp],
    stoppable: Stoppable | None = None,
) -> float:
    """Fitness, or less, of a small forest on the rows that were held out; a task like `grow_tree`."""
    judged = GrowingForest(dataset.subset(held), perturbation)
    watched = stoppable or Stoppable()
    numbers = range(min(options.n_trees, MOST_TREES))
    growth = grow_forest(
        dataset, perturbation, options, kept, numbers,
        lambda tasks: (grow_tree(dataset, perturbation, task, watched) for task in tasks), lambda: math.inf,
    )  # fmt: skip
    for tree, _ in growth:
        if watched.is_stopped:
            return math.nan
        judged.add(tree)
    return options.tree.fitness.value(*judged.certainty.shares)
