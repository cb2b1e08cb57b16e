"""The trainer that given options ask for."""

from __future__ import annotations

from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training import tuning
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.forest import ForestTrainer
from metasilvae.training.options import ForestOptions, TrainingOptions
from metasilvae.training.tuning import TunedTrainer

AnyTrainer = TreeTrainer | TunedTrainer | ForestTrainer


def make_trainer(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions | ForestOptions,
    jobs: int | None = 1,
    forest: Model | None = None,
) -> AnyTrainer:
    """For a tree or for a forest; `forest` holds trees from which the search for one tree starts."""
    if isinstance(options, ForestOptions):
        return ForestTrainer(dataset, perturbation, options, jobs)
    return tuning.make_trainer(dataset, perturbation, options, jobs, forest)
