"""Results of training runs: models with their metrics, the best of several seeds, and the spread over seeds."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.formats.training_records import TEST_PREFIX
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.forest_votes import bound
from metasilvae.training.options import TrainingOptions
from metasilvae.training.protocol import Observer, StopReason, Trainer
from metasilvae.training.ties import prefer_constant, settle_ties
from metasilvae.verification.budget import Budget
from metasilvae.verification.metrics import Evaluation, evaluate_under
from metasilvae.verification.objective import Fitness
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.verification.verifier import verify

# Steps of search for each row of a forest in the norms l0, l1 and l2, for metrics that are lower bounds.
PROOF_STEPS = 20
METRICS = ("phi", "accuracy", "stability", "robust_accuracy")


def take_model(trainer: Trainer) -> Model:
    """The model of a run that has ended, with its ties settled as far as `settle_ties` does."""
    return _settle(trainer.model, trainer)


def _settle(model: Model, trainer: Trainer) -> Model:
    model = settle_ties(model, trainer.dataset)
    # Without boxes, accuracy alone decides.
    if trainer.options.training_epsilon_factor > 0:
        model = prefer_constant(model, trainer.dataset, trainer.perturbation, trainer.options)
    return model


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of a training run without its data: small enough to come from a worker of a cluster.

    Attributes
    ----------
    options : TrainingOptions
        Options of the trees, with the seed of the run and the values that tuning has chosen.
    held_out_fitness : float or None
        Fitness on the held-out rows, if there are any.
    held_out_rows : int
        Number of held-out rows.
    observed : list of dict
        States of the observers.
    tuning : dict or None
        What tuning has chosen and by which scores.
    """

    options: TrainingOptions
    model: Model
    held_out_fitness: float | None
    held_out_rows: int
    seconds: float
    stop_reason: StopReason | None
    observed: list[dict[str, Any]]
    tuning: dict[str, Any] | None = None

    @classmethod
    def of(cls, trainer: Trainer, observers: Sequence[Observer] = ()) -> TrainingResult:
        trained, held_out, fitness = trainer.model, trainer.held_out, trainer.held_out_fitness
        model = _settle(trained, trainer)
        # Labels that tied in leaves are settled by now; what is known of a forest is a lower bound that may be better.
        if held_out is not None and fitness is not None and (model is not trained or not model.is_forest):
            fitness = judge(model, held_out, trainer.perturbation, 1).phi(trainer.options.fitness)
        return cls(
            trainer.options, model, fitness, 0 if held_out is None else held_out.n_samples, trainer.seconds,
            trainer.stop_reason, [observer.state for observer in observers], trainer.tuning,
        )  # fmt: skip

    @property
    def seed(self) -> int:
        return self.options.seed

    @property
    def fitness(self) -> Fitness:
        return self.options.fitness

    @property
    def stop_sentence(self) -> str:
        """Why the run ended, for users."""
        return "" if self.stop_reason is None else self.stop_reason.describe(self.options, self.model.is_forest)


@dataclass(frozen=True)
class TrainedModel(TrainingResult):
    """A result with its metrics.

    Attributes
    ----------
    training : Evaluation
        Metrics on the training rows, with the perturbation that the model should withstand.
    test : Evaluation or None
        Metrics on the test rows, if there are any.
    """

    training: Evaluation = field(kw_only=True)
    test: Evaluation | None = field(kw_only=True)

    def merit(self, leaf_penalty: float) -> float:
        """Fitness on the training rows minus a leaf penalty; a forest has many leaves and no leaf penalty."""
        options = replace(self.options, leaf_penalty=0.0 if self.model.is_forest else leaf_penalty)
        return (
            self.phi(self.training) - options.price_of_leaf(self.training.dataset.weighted_rows) * self.model.n_leaves
        )

    def phi(self, evaluation: Evaluation) -> float:
        """Fitness by the metrics of an evaluation under a perturbation."""
        return evaluation.phi(self.fitness)

    def metrics(self, evaluation: Evaluation) -> dict[str, Any]:
        """The values of `METRICS`."""
        return {"phi": self.phi(evaluation), **{name: getattr(evaluation, name) for name in METRICS[1:]}}


def judge(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation,
    jobs: int | None,
    stop: threading.Event | None = None,
) -> Evaluation:
    """Exact metrics of a tree; lower bounds of those of a forest, because deciding every row may take long.

    Once `stop` is set, what takes long stays undecided: the metrics of any model are lower bounds then.
    """
    if not model.is_forest:
        return evaluate_under(perturbation, model, dataset, jobs=jobs, stop=stop)
    outcome = _prove(model, dataset, perturbation, jobs, stop)
    results = None if dataset.weights is None else outcome
    return Evaluation(model, dataset, outcome.counts.correct, perturbation, outcome.counts, results=results)


def _prove(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation,
    jobs: int | None,
    stop: threading.Event | None = None,
) -> Outcome:
    """What a little work proves about a forest: its votes in boxes, and a few steps of search in other norms."""
    query = make_query(model, dataset, perturbation)
    if stop is not None and stop.is_set():
        predictions, is_correct = query.classify(jobs)
        return Outcome(
            predictions, is_correct, np.full(len(is_correct), Stability.UNKNOWN, dtype=np.uint8), seconds=0.0
        )
    if query.boxes.limit is None:
        return bound(model, dataset, perturbation, jobs)
    return verify(query, jobs, budget=Budget(steps=PROOF_STEPS), stop=stop)


def decide(evaluation: Evaluation, jobs: int | None, **control: Any) -> Evaluation:
    """Exact metrics of a forest: each row that its votes do not decide is verified; those of a tree are exact already.

    Parameters
    ----------
    **control
        `stop` and `on_rows` of `verify`; rows that are not decided when work is stopped count as not stable.
    """
    model, dataset, perturbation = evaluation.model, evaluation.dataset, evaluation.perturbation
    if not model.is_forest or perturbation is None:
        return evaluation
    proved = _prove(model, dataset, perturbation, jobs)
    rows = np.flatnonzero(proved.stability == Stability.UNKNOWN)
    if not len(rows):
        return evaluation
    stability = proved.stability.copy()
    stability[rows] = verify(make_query(model, dataset, perturbation).subset(rows), jobs, **control).stability
    decided = replace(proved, stability=stability)
    results = None if dataset.weights is None else decided
    return replace(evaluation, counts=decided.counts, results=results)


def score_result(
    found: TrainingResult,
    dataset: Dataset,
    perturbation: Perturbation,
    test: Dataset | None,
    jobs: int | None,
    stop: threading.Event | None = None,
) -> TrainedModel:
    """Evaluate a result on its training rows and on test rows; see `judge` for `stop`."""
    training = judge(found.model, dataset, perturbation, jobs, stop)
    on_test = None if test is None else judge(found.model, test, perturbation, jobs, stop)
    return TrainedModel(**vars(found), training=training, test=on_test)


def choose_best(runs: Sequence[TrainedModel]) -> TrainedModel:
    """The best run by held-out rows if there are any, otherwise by the training rows; test rows are not used.

    On training rows larger trees look better, so that leaves are paid for. Each run may have tuned a leaf penalty of
    its own. These are estimates of the same number, and runs are compared by one of them, their median: a run that has
    chosen a small penalty must not win because of that.
    """
    penalties = [run.options.leaf_penalty for run in runs if not run.model.is_forest]
    common = statistics.median_low(penalties) if penalties else 0.0

    def merit(run: TrainedModel) -> tuple[float, float, int]:
        held_out = -math.inf if run.held_out_fitness is None else run.held_out_fitness
        return held_out, run.merit(common), -run.model.n_leaves

    return max(runs, key=merit)


QUANTILES = {"minimum": 0.0, "1st quartile": 0.25, "median": 0.5, "3rd quartile": 0.75, "maximum": 1.0}


def spread(runs: Sequence[TrainedModel], metric: Callable[[TrainedModel], float]) -> dict[str, float]:
    """Quartiles of a metric over the runs."""
    values = [metric(run) for run in runs]
    return {name: float(np.quantile(values, fraction)) for name, fraction in QUANTILES.items()}


def tabulate(runs: Sequence[TrainedModel]) -> list[dict[str, Any]]:
    """A record for each run, in the columns of `metasilvae.formats.training_records`."""
    records = []
    for run in runs:
        record: dict[str, Any] = {"set": run.training.dataset.source, "seed": run.seed}
        record |= {"w_acc": run.fitness.correct, "w_st": run.fitness.stable, "w_rob": run.fitness.robust}
        for prefix, part in (("", run.training), (TEST_PREFIX, run.test)):
            if part is not None:
                record |= {f"{prefix}{name}": value for name, value in run.metrics(part).items()}
        records.append(record | {"leaves": run.model.n_leaves, "depth": run.model.max_depth, "seconds": run.seconds})
    return records
