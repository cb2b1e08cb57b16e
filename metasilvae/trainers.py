"""The trainer that given options ask for."""

from __future__ import annotations

from metasilvae import rehearsal
from metasilvae.dataset import Dataset
from metasilvae.forest_options import ForestOptions
from metasilvae.forest_training import ForestTrainer
from metasilvae.model import Model
from metasilvae.perturbation import Perturbation
from metasilvae.rehearsal import RehearsedTrainer
from metasilvae.training import Trainer
from metasilvae.training_options import TrainingOptions

AnyTrainer = Trainer | RehearsedTrainer | ForestTrainer


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
    return rehearsal.make_trainer(dataset, perturbation, options, jobs, forest)
