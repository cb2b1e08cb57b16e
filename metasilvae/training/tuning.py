"""Tuning by cross-validation: choosing how strongly to regularize a tree.

How much regularization a tree needs depends on the data. Where few samples can be stable, a robust weight costs
accuracy and gains nothing; where samples are few, it makes a tree generalize. Tuning trains a quick tree for each
candidate on each split of the samples, and chooses the candidate with the best mean fitness on the samples left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent import futures
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import MANY_SAMPLES, plan_splits
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.checkpoint.files import damaged, take, take_array
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import TrainingOptions
from metasilvae.training.population import plan_sizes
from metasilvae.training.protocol import BaseTrainer, Progress, StopReason, TrainerGroup, read_progress
from metasilvae.verification.metrics import evaluate

# The first candidate is the best one for few samples; each of the others was the best one on some of the paper's larger
# sets. All were found by cross-validation on the training splits.
CANDIDATES: tuple[dict[str, Any], ...] = (
    {"training_epsilon_factor": 1.15, "robust_weight": 0.2, "leaf_penalty": 1.0},
    {"training_epsilon_factor": 1.0, "robust_weight": 0.0, "leaf_penalty": 2.0},
    {"training_epsilon_factor": 1.15, "robust_weight": 0.1, "leaf_penalty": 1.0},
    {"training_epsilon_factor": 1.15, "robust_weight": 0.0, "leaf_penalty": 1.0},
    {"training_epsilon_factor": 1.3, "robust_weight": 0.1, "leaf_penalty": 0.5},
)
# A gain over the first candidate counts if it exceeds so many standard errors.
ERRORS = 2.0
# Options of a trial.
QUICK: dict[str, Any] = {
    "tune": False, "validation": 0.0, "generations": 0, "polish": 2, "blends": (0.3, 0.1, 0.0, 1.0),
}  # fmt: skip
# Options of the initial tree, which is there at once for a user who stops early; it is not regularized.
INITIAL_TREE: dict[str, Any] = {
    **QUICK, "training_epsilon_factor": 1.0, "robust_weight": 0.0, "leaf_penalty": 0.0,
    "polish": 1, "blends": (0.3, 0.1, 0.0),
}  # fmt: skip
# Generations of the initial tree; with few samples they take a moment.
INITIAL_GENERATIONS = 20


def choose_candidate(scores: NDArray[np.float64]) -> int:
    """Number of the candidate to train with, from the fitness of each candidate (rows) on each split (columns).

    A single split means many samples, and the best fitness decides. Where samples are few, the fitness is noisy:
    another candidate than the first is chosen only if its gain is clear, because the best of several is mostly the
    luckiest.
    """
    gains = scores - scores[0]
    n_splits = scores.shape[1]
    mean = gains.mean(axis=1)
    error = gains.std(axis=1, ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.zeros(len(mean))
    return int(np.argmax(np.where(mean > ERRORS * error, mean, 0.0)))


class TunedTrainer(BaseTrainer):
    """Tuning, then training of one tree with the chosen candidate; see `metasilvae.training.protocol.Trainer`.

    Observers do not see the trees of trials, nor the initial tree if it was trained on rows that are held out later.

    Attributes
    ----------
    candidate : dict or None
        The chosen training_epsilon_factor, robust_weight and leaf_penalty; None before.
    """

    def __init__(
        self, dataset: Dataset, perturbation: Perturbation, options: TrainingOptions, jobs: int | None = 1
    ) -> None:
        super().__init__(dataset, perturbation, options, jobs)
        self.candidate: dict[str, Any] | None = None
        self._splits = plan_splits(self.learned.y, options.seed)
        self._scores = np.full((len(CANDIDATES), len(self._splits)), np.nan)
        self._group = TrainerGroup()
        n_samples = self.learned.n_samples
        n_generations = min(INITIAL_GENERATIONS, options.generations) if n_samples <= MANY_SAMPLES else 0
        first = replace(options, **{**INITIAL_TREE, "generations": n_generations})
        self._initial = TreeTrainer(dataset, perturbation, first, self._jobs, clock=self._clock)
        self._group.add(self._initial)
        if self.held_out is None:
            self._initial._observers = self._observers
        self._initial_state: dict[str, Any] | None = None
        # Progress of the initial tree.
        self._latest: Progress | None = None
        self._main: TreeTrainer | None = None
        self._main_state: dict[str, Any] | None = None
        # The trainer with the better tree, and whether the main one has overtaken the initial one for good.
        self._leader = self._initial
        self._has_overtaken = False

    @property
    def n_steps(self) -> int:
        n_initial = len(plan_sizes(self.learned.n_samples, self.options))
        main = n_initial + self.options.generations + self.options.polish
        return self._initial.n_steps + self._scores.size + main

    @property
    def model(self) -> Model:
        return self._leader.model

    @property
    def held_out_fitness(self) -> float | None:
        """Fitness of the best tree so far on the held-out rows, if it was trained without them."""
        return self._leader.held_out_fitness

    @property
    def state(self) -> dict[str, Any]:
        initial = self._initial_state or self._initial.state
        main = self._main_state if self._main is None else self._main.state
        n_trials = int(np.isfinite(self._scores).sum())
        return {
            "steps": initial["steps"] + n_trials + (0 if main is None else main["steps"]),
            "initial": initial,
            "latest": None if self._latest is None else asdict(self._latest),
            "scores": self._scores.ravel(),
            "candidate": None if self.candidate is None else CANDIDATES.index(self.candidate),
            "main": main,
            "has_overtaken": self._has_overtaken,
            "seconds": self.seconds,
        }

    def resume(self, document: dict[str, Any]) -> None:
        state = take(document, "initial", dict)
        self._initial.resume(state)
        if document.get("latest") is not None:
            self._latest = read_progress(take(document, "latest", dict))
        scores = take_array(document, "scores", "<f8")
        if scores.size != self._scores.size:
            raise damaged("the tuning has another size")
        self._scores[:] = scores.reshape(self._scores.shape)
        if document.get("candidate") is not None:
            position = take(document, "candidate", int)
            if position >= len(CANDIDATES) or self._latest is None:
                raise damaged("there is no such candidate")
            self.candidate = dict(CANDIDATES[position])
            self._initial_state = state
        if document.get("main") is not None:
            self._main_state = take(document, "main", dict)
            self._has_overtaken = take(document, "has_overtaken", bool)
        self._clock.resume(take(document, "seconds", float))

    # Parts of the run

    def _steps(self) -> Iterator[Progress]:
        if self._main_state is None:
            yield from self._train_initial_tree()
            if self._is_over():
                return
            yield from self._tune()
        if self.candidate is None or self.stop_reason is not None:
            return
        self._main = self._make_main(self.candidate)
        if not self._is_over():
            yield from self._train(self._main)

    def _train_initial_tree(self) -> Iterator[Progress]:
        for progress in self._initial.run():
            self._latest = replace(progress, phase="initial tree", step=self._initial._n_reported - 1)
            yield self._latest
        self._initial_state = self._initial.state
        if self._initial.stop_reason in (StopReason.TARGET, StopReason.TIME_LIMIT, StopReason.INTERRUPTED):
            self._end(self._initial.stop_reason)

    def _tune(self) -> Iterator[Progress]:
        """Try every candidate on every split, then choose."""
        assert self._latest is not None
        pool = futures.ThreadPoolExecutor(self._jobs)
        places = [(row, column) for column in range(len(self._splits)) for row in range(len(CANDIDATES))]
        try:
            tasks = {
                step: pool.submit(self._score_candidate, CANDIDATES[row], *self._splits[column])
                for step, (row, column) in enumerate(places)
                if np.isnan(self._scores[row, column])
            }
            for step, task in tasks.items():
                score = self._wait(task)
                if self.stop_reason is None:
                    self._scores[places[step]] = score
                yield replace(self._latest, phase="tuning", step=step, seconds=self.seconds)
                if self._is_over():
                    return
        finally:
            pool.shutdown(cancel_futures=True)
        if not self._is_over():
            self.candidate = dict(CANDIDATES[choose_candidate(self._scores) if self._splits else 0])

    def _score_candidate(self, candidate: dict[str, Any], kept: NDArray[np.intp], held: NDArray[np.intp]) -> float:
        """Fitness of a quick tree on the samples left out."""
        if self.stop_reason is not None:
            return math.nan
        options = replace(self.options, **QUICK, **candidate)
        model = self._group.run(TreeTrainer(self.learned.subset(kept), self.perturbation, options, 1))
        return evaluate(model, self.learned.subset(held), [self.perturbation], jobs=1)[0].phi(self.options.fitness)

    def _make_main(self, candidate: dict[str, Any]) -> TreeTrainer:
        options = replace(self.options, tune=False, **candidate)
        main = TreeTrainer(self.dataset, self.perturbation, options, self._jobs, like=self._initial, clock=self._clock)
        main._observers = self._observers
        self._group.add(main)
        if self._main_state is not None:
            main.resume(self._main_state)
            self._leader = main if self._has_overtaken else self._initial
        return main

    def _train(self, main: TreeTrainer) -> Iterator[Progress]:
        assert self._latest is not None
        for progress in main.run():
            # Until its initial population is complete, the initial tree may be better.
            if progress.phase != "initial population" or progress.fitness >= self._latest.fitness:
                self._leader = main
                self._has_overtaken |= main.stop_reason is None
            is_leading = self._leader is main
            yield (
                progress
                if is_leading
                else replace(self._latest, phase=progress.phase, step=progress.step, seconds=progress.seconds)
            )
        if main.stop_reason not in (StopReason.TIME_LIMIT, StopReason.INTERRUPTED):
            self._leader = main
        self.stop_reason = self.stop_reason or main.stop_reason

    def _stop_work(self) -> None:
        self._group.stop()


def make_tree_trainer(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions,
    jobs: int | None = 1,
    start: Model | None = None,
) -> TreeTrainer | TunedTrainer:
    """The trainer of a single tree; with trees to start from there is no tuning."""
    if options.tune and options.greedy and start is None:
        return TunedTrainer(dataset, perturbation, options, jobs)
    return TreeTrainer(dataset, perturbation, options, jobs, start)
