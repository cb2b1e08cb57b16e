"""Tuning by cross-validation: choosing how strongly to regularize a tree.

How much regularization a tree needs depends on the data. Where few samples can be stable, a robust weight costs
accuracy and gains nothing; where samples are few, it is what makes a tree generalize. Tuning trains a quick tree for
each candidate on each split of the samples, and keeps the candidate with the best mean fitness on the samples left out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_dataset
from metasilvae.execution.threads import available_cores, wait_for
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.training.checkpoint.files import damaged, take, take_array
from metasilvae.training.evolution import HOLDING_SEED, TreeTrainer
from metasilvae.training.options import TrainingOptions
from metasilvae.training.population import plan_sizes
from metasilvae.training.protocol import Progress, StopReason, read_progress
from metasilvae.verification.metrics import evaluate

# What is chosen among. The first one is the best for few samples; each of the others was the best one on some of the
# paper's larger sets. All by cross-validation of the training splits.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"training_epsilon_factor": 1.15, "robust_weight": 0.2, "leaf_penalty": 1.0},
    {"training_epsilon_factor": 1.0, "robust_weight": 0.0, "leaf_penalty": 2.0},
    {"training_epsilon_factor": 1.15, "robust_weight": 0.1, "leaf_penalty": 1.0},
    {"training_epsilon_factor": 1.15, "robust_weight": 0.0, "leaf_penalty": 1.0},
    {"training_epsilon_factor": 1.3, "robust_weight": 0.1, "leaf_penalty": 0.5},
)
# A gain over the first setting counts if it exceeds so many standard errors.
ERRORS = 2.0
# Training in small.
QUICK: dict[str, Any] = {
    "tune": False, "validation": 0.0, "generations": 0, "polish": 2, "blends": (0.3, 0.1, 0.0, 1.0),
}  # fmt: skip
# The first tree is there at once, without regard to new samples, for a user who stops the run early.
WARM_UP: dict[str, Any] = {
    **QUICK, "training_epsilon_factor": 1.0, "robust_weight": 0.0, "leaf_penalty": 0.0,
    "polish": 1, "blends": (0.3, 0.1, 0.0),
}  # fmt: skip
# With few samples they take a moment.
WARM_UP_GENERATIONS = 20
# More samples would cost time and tell the settings apart no better.
MOST_SAMPLES = 12000
# So many samples are enough for a single split; fewer are split again and again.
MANY_SAMPLES = 3000
PARTS = 5
REPEATS = 3
HARD_STOPS = (StopReason.TARGET, StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
# A time limit must be more than 0.
TINY = 1e-9


def split_into_parts(y: NDArray[np.int32], n_parts: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Number of the part of each sample; every class is spread evenly."""
    parts = np.empty(len(y), dtype=np.intp)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        parts[rows] = (np.arange(len(rows)) + rng.integers(n_parts)) % n_parts
    return parts


def plan_splits(y: NDArray[np.int32], seed: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of rows to train on and rows to test on."""
    rng = np.random.default_rng([seed, 2])
    if len(y) > MANY_SAMPLES:
        rows = np.sort(rng.permutation(len(y))[:MOST_SAMPLES])
        parts = split_into_parts(y[rows], 4, rng)
        return [(rows[parts != 0], rows[parts == 0])]
    splits = []
    for _ in range(REPEATS):
        parts = split_into_parts(y, PARTS, rng)
        splits += [(np.flatnonzero(parts != part), np.flatnonzero(parts == part)) for part in range(PARTS)]
    return [(kept, held) for kept, held in splits if len(kept) and len(held) and len(np.unique(y[kept])) > 1]


def choose_candidate(figures: NDArray[np.float64]) -> int:
    """Number of the setting to train with, from the fitness of each setting (rows) on each split (columns).

    A single split means many samples, and the best figure decides. Where samples are few, figures are noisy: another
    setting than the first is chosen only if its gain is clear, because choosing the best of several would mostly choose
    noise.
    """
    gains = figures - figures[0]
    n_splits = figures.shape[1]
    mean = gains.mean(axis=1)
    error = gains.std(axis=1, ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.zeros(len(mean))
    return int(np.argmax(np.where(mean > ERRORS * error, mean, 0.0)))


class TunedTrainer:
    """A training run with a tuning before it; to its user the same as `metasilvae.training.evolution.Trainer`.

    Phases: a first tree at once ("warm-up"), the choice ("tuning"), then those of a Trainer with the chosen setting.

    Attributes
    ----------
    setting : dict or None
        The chosen values of training_epsilon_factor, robust weight and leaf_penalty; None before.
    observe, observed : function
        As in a Trainer. The observer does not see trees of the tuning, nor those of a warm-up that knows the
        held-out rows.
    """

    def __init__(
        self, dataset: Dataset, perturbation: Perturbation, options: TrainingOptions, jobs: int | None = 1
    ) -> None:
        begin = time.perf_counter()
        self.dataset = dataset
        self.perturbation = perturbation
        self.options = options
        self.setting: dict[str, Any] | None = None
        self.observe: Callable[[Sequence[Any]], object] = lambda trees: None
        self.observed: Callable[[], dict[str, Any] | None] = lambda: None
        self.held_out: Dataset | None = None
        learned = dataset
        if options.validation > 0:
            learned, self.held_out = split_dataset(dataset, options.validation, HOLDING_SEED)
        self._learned = learned
        self._jobs = available_cores() if jobs is None else jobs
        self._splits = plan_splits(learned.y, options.seed)
        self._reason: StopReason | None = None
        # All that a stop must reach; the result is that of one of them.
        self._running: list[TreeTrainer] = []
        n_generations = min(WARM_UP_GENERATIONS, options.generations) if learned.n_samples <= MANY_SAMPLES else 0
        self._warm_up = self._make_trainer(replace(options, **{**WARM_UP, "generations": n_generations}))
        self._warm_up_state: dict[str, Any] | None = None
        self._latest: Progress | None = None
        self._figures = np.full((len(SETTINGS), len(self._splits)), np.nan)
        self._main: TreeTrainer | None = None
        self._main_state: dict[str, Any] | None = None
        # When the main search began, and whether it has overtaken the warm-up.
        self._begun = 0.0
        self._leads = False
        self._trainer = self._warm_up
        self._preparation = time.perf_counter() - begin
        self._started = begin

    @property
    def n_steps(self) -> int:
        """Number of progress records of a run that nothing ends early."""
        n_first = len(plan_sizes(self._learned.n_samples, self.options))
        main = n_first + self.options.generations + self.options.polish
        return self._warm_up.n_steps + len(SETTINGS) * len(self._splits) + main

    def run(self) -> Iterator[Progress]:
        """Train; yield after each step. Leaving the loop early keeps the best tree so far."""
        self._started = time.perf_counter() - self._preparation
        if self._main_state is None:
            yield from self._prepare()
        if self._reason is not None or self.setting is None:
            return
        self._main = self._make_main()
        if not self._is_over():
            yield from self._train(self._main)

    def _prepare(self) -> Iterator[Progress]:
        """A first tree, and the choice."""
        if self.held_out is None:
            self._watch(self._warm_up)
        for progress in self._warm_up.run():
            self._latest = progress
            yield replace(progress, phase="warm-up")
        if self._warm_up.stop_reason in HARD_STOPS or self._is_over():
            return
        self._warm_up_state = self._warm_up.state
        assert self._latest is not None
        for step in self._tune():
            yield replace(self._latest, phase="tuning", step=step, seconds=time.perf_counter() - self._started)
            if self._is_over():
                return
        if not self._is_over():
            self._begun = time.perf_counter() - self._started

    def _make_main(self) -> TreeTrainer:
        assert self.setting is not None
        left = max(self.options.time_limit - self._begun, TINY)
        main = self._make_trainer(replace(self.options, tune=False, time_limit=left, **self.setting))
        self._watch(main)
        if self._main_state is not None:
            main.resume(self._main_state)
            self._trainer = main if self._leads else self._warm_up
        return main

    def _watch(self, trainer: TreeTrainer) -> None:
        trainer.observe, trainer.observed = self.observe, self.observed

    def _train(self, main: TreeTrainer) -> Iterator[Progress]:
        """The search with the chosen setting."""
        latest = self._latest
        assert latest is not None
        for progress in main.run():
            # Its first trees are small; until all of them are there, the warm-up may have the better one.
            if progress.phase != "seed" or progress.fitness >= latest.fitness:
                self._trainer = main
                self._leads |= main.stop_reason is None
            best = progress if self._trainer is main else replace(latest, phase=progress.phase, step=progress.step)
            yield replace(best, seconds=self._begun + progress.seconds)
        if main.stop_reason in (StopReason.TIME_LIMIT, StopReason.INTERRUPTED):
            self._reason = self._reason or main.stop_reason
        else:
            self._trainer = main

    @property
    def state(self) -> dict[str, Any]:
        """Where the run stands after its last step that was not cut short; `resume` of another trainer takes it."""
        warm_up = self._warm_up_state or self._warm_up.state
        main = self._main_state if self._main is None else self._main.state
        n_trials = int(np.isfinite(self._figures).sum())
        return {
            "steps": warm_up["steps"] + n_trials + (0 if main is None else main["steps"]),
            "warm_up": warm_up,
            "observed": (main or warm_up)["observed"],
            "latest": None if self._latest is None else asdict(self._latest),
            "figures": self._figures.ravel(),
            "setting": None if self.setting is None else SETTINGS.index(self.setting),
            "main": main,
            "begun": self._begun,
            "leads": self._leads,
            "seconds": time.perf_counter() - self._started,
        }

    def resume(self, document: dict[str, Any]) -> None:
        """Stand where another run on the same data and options stood."""
        state = take(document, "warm_up", dict)
        self._warm_up.resume(state)
        if document.get("latest") is not None:
            self._latest = read_progress(take(document, "latest", dict))
        figures = take_array(document, "figures", "<f8")
        if figures.size != self._figures.size:
            raise damaged("the tuning has another size")
        self._figures[:] = figures.reshape(self._figures.shape)
        if document.get("setting") is not None:
            position = take(document, "setting", int)
            if position >= len(SETTINGS) or self._latest is None:
                raise damaged("there is no such setting")
            self.setting = dict(SETTINGS[position])
            self._warm_up_state = state
        if document.get("main") is not None:
            self._main_state = take(document, "main", dict)
            self._begun = take(document, "begun", float)
            self._leads = take(document, "leads", bool)
        self._preparation += take(document, "seconds", float)

    def stop(self) -> None:
        """End the run soon; may be called at any time, from a signal handler or from another thread too."""
        self._end(StopReason.INTERRUPTED)

    @property
    def stop_reason(self) -> StopReason | None:
        return self._reason or self._trainer.stop_reason

    @property
    def model(self) -> Model:
        """The best tree so far, with the class counts of all training samples in its leaves."""
        return self._trainer.model

    @property
    def held_out_fitness(self) -> float | None:
        """Fitness of the best tree so far on the held-out rows, if it was trained without them."""
        return self._trainer.held_out_fitness

    def _make_trainer(self, options: TrainingOptions) -> TreeTrainer:
        like = self._running[0] if self._running else None
        trainer = TreeTrainer(self.dataset, self.perturbation, options, self._jobs, like=like)
        self._running.append(trainer)
        return trainer

    def _tune(self) -> Iterator[int]:
        """Try every setting on every split, then choose; yields the number of each trial."""

        def figure(setting: dict[str, Any], kept: NDArray[np.intp], held: NDArray[np.intp]) -> float:
            if self._reason is not None:
                return math.nan
            options = replace(self.options, **QUICK, **setting)
            trainer = TreeTrainer(self._learned.subset(kept), self.perturbation, options, 1)
            self._running.append(trainer)
            if self._reason is None:
                for _ in trainer.run():
                    pass
            self._running.remove(trainer)
            return self._fitness(trainer.model, self._learned.subset(held))

        pool = futures.ThreadPoolExecutor(self._jobs)
        places = [(row, column) for column in range(len(self._splits)) for row in range(len(SETTINGS))]
        try:
            tasks = {
                step: pool.submit(figure, SETTINGS[row], *self._splits[column])
                for step, (row, column) in enumerate(places)
                if np.isnan(self._figures[row, column])
            }
            for step, task in tasks.items():
                deadline = self._started + self.options.time_limit
                found = wait_for(task, deadline, lambda: self._end(StopReason.TIME_LIMIT))
                if self._reason is None:
                    self._figures[places[step]] = found
                yield step
        finally:
            pool.shutdown(cancel_futures=True)
        if self._reason is None:
            self.setting = dict(SETTINGS[choose_candidate(self._figures) if self._splits else 0])

    def _end(self, reason: StopReason) -> None:
        self._reason = self._reason or reason
        for trainer in list(self._running):
            trainer.stop()

    def _fitness(self, model: Model, dataset: Dataset) -> float:
        return evaluate(model, dataset, [self.perturbation], jobs=1)[0].phi(self.options.fitness)

    def _is_over(self) -> bool:
        if time.perf_counter() - self._started >= self.options.time_limit:
            self._end(StopReason.TIME_LIMIT)
        return self._reason is not None


def make_trainer(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions,
    jobs: int | None = 1,
    forest: Model | None = None,
) -> TreeTrainer | TunedTrainer:
    """The trainer that the options ask for."""
    if options.tune and options.greedy and forest is None:
        return TunedTrainer(dataset, perturbation, options, jobs)
    return TreeTrainer(dataset, perturbation, options, jobs, forest)


def train(dataset: Dataset, epsilon: float, options: TrainingOptions | None = None, jobs: int | None = 1) -> Model:
    """Train one tree to the end."""
    trainer = make_trainer(dataset, Ball(epsilon), options or TrainingOptions(), jobs)
    for _ in trainer.run():
        pass
    return trainer.model
