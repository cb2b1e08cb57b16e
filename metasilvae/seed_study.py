"""What came of a training run, and how much the result depends on the seed."""

from __future__ import annotations

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
    merit : float
        What decides between runs, see `Trainer.merit`.
    held_out_rows : int
    training, test : Evaluation
        With the perturbation that the model is to withstand; `test` only where there are test rows.
    """

    seed: int
    model: Model
    merit: float
    held_out_rows: int
    seconds: float
    stop_reason: StopReason | None
    fitness: Fitness
    training: Evaluation
    test: Evaluation | None

    def phi(self, evaluation: Evaluation) -> float:
        """Fitness by the figures of an evaluation under a perturbation."""
        assert evaluation.stability is not None
        assert evaluation.robustness is not None
        return self.fitness.value(evaluation.accuracy, evaluation.stability, evaluation.robustness)


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
    return TrainedModel(
        trainer.options.seed,
        model,
        trainer.merit,
        0 if trainer.held_out is None else trainer.held_out.n_samples,
        seconds,
        trainer.stop_reason,
        trainer.options.fitness,
        training,
        rest[0] if rest else None,
    )


def choose_best(runs: Sequence[TrainedModel]) -> TrainedModel:
    """The run of most merit; of equals the one with fewer leaves, then the earlier one. Test rows have no say."""
    return max(runs, key=lambda run: (run.merit, -run.model.n_leaves))


QUANTILES = {"minimum": 0.0, "1st quartile": 0.25, "median": 0.5, "3rd quartile": 0.75, "maximum": 1.0}


def spread(runs: Sequence[TrainedModel], figure: Callable[[TrainedModel], float]) -> dict[str, float]:
    """Quartiles of a figure over the runs."""
    values = [figure(run) for run in runs]
    return {name: float(np.quantile(values, share)) for name, share in QUANTILES.items()}
