"""What came of a training run, and how much the result depends on the seed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.execution.executors import should_stop
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.forest_votes import bound
from metasilvae.training.options import ForestOptions, TrainingOptions
from metasilvae.training.protocol import StopReason
from metasilvae.training.trainers import AnyTrainer, make_trainer
from metasilvae.verification.metrics import Evaluation, evaluate
from metasilvae.verification.objective import Fitness
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify


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
        return evaluation.phi(self.fitness)


@dataclass(frozen=True)
class TrainingResult:
    """What a training run has found, without its data: small enough to come from a worker of a cluster."""

    options: TrainingOptions
    model: Model
    held_out_fitness: float | None
    held_out_rows: int
    seconds: float
    stop_reason: StopReason | None

    @classmethod
    def of(cls, trainer: AnyTrainer, seconds: float) -> TrainingResult:
        return cls(
            trainer.options,
            trainer.model,
            trainer.held_out_fitness,
            0 if trainer.held_out is None else trainer.held_out.n_samples,
            seconds,
            trainer.stop_reason,
        )


def train_once(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions | ForestOptions,
    forest: Model | None = None,
) -> TrainingResult:
    """One training run on one thread, as a task for an executor; `forest` holds trees to start from."""
    start = time.perf_counter()
    trainer = make_trainer(dataset, perturbation, options, 1, forest)
    for _ in trainer.run():
        if should_stop():
            trainer.stop()
    return TrainingResult.of(trainer, time.perf_counter() - start)


def judge(model: Model, dataset: Dataset, perturbation: Perturbation, jobs: int | None) -> Evaluation:
    """Exact figures of a tree; of a forest those that a bound proves, because deciding every row may take long."""
    if not model.is_forest:
        return evaluate(model, dataset, [perturbation], jobs=jobs)[0]
    counts = bound(model, dataset, perturbation, jobs).counts
    return Evaluation(model, dataset, counts.correct, perturbation, counts)


def decide(evaluation: Evaluation, jobs: int | None, **control: Any) -> Evaluation:
    """The figures of a forest decided row by row where its votes prove nothing; those of a tree are exact as they are.

    Parameters
    ----------
    **control
        `stop` and `on_rows` of `verify`; rows that are left when work is stopped count as not stable.
    """
    model, dataset, perturbation = evaluation.model, evaluation.dataset, evaluation.perturbation
    if not model.is_forest or perturbation is None:
        return evaluation
    proved = bound(model, dataset, perturbation, jobs)
    rows = np.flatnonzero(proved.stability == Stability.UNKNOWN)
    if not len(rows):
        return evaluation
    stability = proved.stability.copy()
    stability[rows] = verify(make_query(model, dataset, perturbation).subset(rows), jobs, **control).stability
    return replace(evaluation, counts=replace(proved, stability=stability).counts)


def finish(
    found: TrainingResult,
    dataset: Dataset,
    perturbation: Perturbation,
    test: Dataset | None,
    jobs: int | None,
    source: str,
) -> TrainedModel:
    """Evaluate what was found on its training rows and on test rows; `source` names the model in messages."""
    model = replace(found.model, source=source)
    training, *rest = (judge(model, rows, perturbation, jobs) for rows in (dataset, test) if rows is not None)
    # A forest has leaves in plenty, and none of them is held against it.
    price = 0.0 if model.is_forest else found.options.price_of_leaf(dataset.n_samples)
    return TrainedModel(
        found.options.seed,
        model,
        found.held_out_fitness,
        found.held_out_rows,
        training.phi(found.options.fitness) - price * model.n_leaves,
        found.seconds,
        found.stop_reason,
        found.options.fitness,
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
