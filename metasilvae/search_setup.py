"""What the options of a training run mean for the kernels: the objective, and how generations are bred."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.training_options import TrainingOptions

# Samples times features that one random move may look at.
SWEEP_BUDGET = 3e5


def make_objective(options: TrainingOptions, dataset: Dataset) -> evolution.Objective:
    """What is to be maximized on the given samples, within which limits."""
    n = dataset.n_samples
    features = np.arange(dataset.n_features, dtype=np.int32)
    if options.allowed_features:
        if options.allowed_features > len(features):
            raise RequestError(
                f"{options.allowed_features} features are to be drawn, {dataset.source} has {len(features)}"
            )
        rng = np.random.default_rng([options.seed, 1])
        features = np.sort(rng.choice(features, options.allowed_features, replace=False)).astype(np.int32)
    correct, stable, robust = options.fitness.weights
    moved = options.caution * max(correct, 0.0)
    correct, robust = correct - moved, robust + moved
    return evolution.Objective(
        correct / n,
        stable / n,
        robust / n,
        features,
        min_leaf=options.min_samples_leaf,
        max_leaves=options.max_leaves,
        max_depth=options.max_depth,
        leaf_penalty=options.price_of_leaf(n),
    )


def make_recipe(options: TrainingOptions, fitness: NDArray[np.float64]) -> evolution.Reproduction:
    """How a population with the given fitness has offspring."""
    probability = options.mutation_probability
    if options.mutation_probability_rule == "encourage-variance":
        probability *= float(np.clip(1 - (fitness.max() - fitness.min()), 0, 1))
    return evolution.Reproduction(
        selection=options.selection,
        tournament_size=options.tournament_size,
        crossover_probability=options.crossover,
        mutation_probability=probability,
        mutation=options.mutation,
        aggressiveness=options.aggressiveness,
        split_by_score=options.split_by_score,
        impurity=options.impurity,
        max_burst=options.max_burst,
        sweep_budget=SWEEP_BUDGET,
        blends=options.blends,
    )
