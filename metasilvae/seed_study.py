"""What came of a training run, and how much the result depends on the seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.evaluation import Evaluation, evaluate
from metasilvae.fitness import Fitness
from metasilvae.model import Model
from metasilvae.rehearsal import RehearsedTrainer
from metasilvae.training import StopReason, Trainer


@dataclass(frozen=True)
class TrainedModel:
    """A finished training run.

    Attributes
    ----------
    held_out_fitness : float or None
        On the rows that were held out, if any were.
    held_out_rows : int
    training_merit : float
        Fitness on the training rows less the price of the leaves.
    training, test : Evaluation
        With the perturbation that the model is to withstand; `test` only where there are test rows.
    """

    seed: int
    model: Model
    held_out_fitness: float | None
    held_out_rows: int
    training_merit: float
    seconds: float
    stop_reason: StopReason | None
    fitness: Fitness
    training: Evaluation
    test: Evaluation | None

    def phi(self, evaluation: Evaluation) -> float:
        """Fitness by the figures of an evaluation under a perturbation."""
        return _phi(self.fitness, evaluation)


def _phi(fitness: Fitness, evaluation: Evaluation) -> float:
    assert evaluation.stability is not None
    assert evaluation.robustness is not None
    return fitness.value(evaluation.accuracy, evaluation.stability, evaluation.robustness)


def finish(
    trainer: Trainer | RehearsedTrainer, seconds: float, test: Dataset | None, jobs: int | None, source: str
) -> TrainedModel:
    """Evaluate what a trainer has found; `source` names the model in messages."""
    found = trainer.model
    model = Model(
        found.nodes, found.roots, found.leaf_values, found.leaf_kind, found.n_features, found.labels, False, source
    )
    training, *rest = (
        evaluate(model, dataset, [trainer.perturbation], jobs=jobs)[0]
        for dataset in (trainer.dataset, test)
        if dataset is not None
    )
    price = trainer.options.price_of_leaf(trainer.dataset.n_samples)
    return TrainedModel(
        trainer.options.seed,
        model,
        trainer.held_out_fitness,
        0 if trainer.held_out is None else trainer.held_out.n_samples,
        _phi(trainer.options.fitness, training) - price * model.n_leaves,
        seconds,
        trainer.stop_reason,
        trainer.options.fitness,
        training,
        rest[0] if rest else None,
    )


def choose_best(runs: Sequence[TrainedModel]) -> TrainedModel:
    """The best run by held-out rows if there are any, else by the training rows. Test rows have no say."""

    def merit(run: TrainedModel) -> tuple[float, float, int]:
        held_out = -math.inf if run.held_out_fitness is None else run.held_out_fitness
        return held_out, run.training_merit, -run.model.n_leaves

    return max(runs, key=merit)


QUANTILES = {"minimum": 0.0, "1st quartile": 0.25, "median": 0.5, "3rd quartile": 0.75, "maximum": 1.0}


def spread(runs: Sequence[TrainedModel], figure: Callable[[TrainedModel], float]) -> dict[str, float]:
    """Quartiles of a figure over the runs."""
    values = [figure(run) for run in runs]
    return {name: float(np.quantile(values, share)) for name, share in QUANTILES.items()}
