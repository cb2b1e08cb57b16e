"""Tuning by cross-validation: choosing how strongly to regularize a tree.

How much regularization a tree needs depends on the data. Where few samples can be stable, a robust weight costs
accuracy and gains nothing; where samples are few, it makes a tree generalize. The noisier the labels, the larger the
leaf penalty must be. Tuning tries candidates on splits of the samples, see `metasilvae.training.trials`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import MANY_SAMPLES, plan_cross_validation
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.training.checkpoint.files import damaged, take, take_array
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.interactions import Interaction
from metasilvae.training.options import BLENDS, TrainingOptions
from metasilvae.training.population import FIRST_SPLITS, INTERACTION_CRITERIA, list_interactions, plan_sizes
from metasilvae.training.protocol import BaseTrainer, Progress, StopReason, TrainerGroup, hold_out, read_progress
from metasilvae.training.quick_choice import QuickChoice
from metasilvae.training.samples import draw_places
from metasilvae.training.trials import (
    NOISE_PENALTY,
    PART,
    TRIAL_BLENDS,
    QuickTrees,
    Race,
    Selection,
    Trial,
    choose_blends,
    list_factors,
    list_robust_weights,
)

# What is trained with if there are too few samples to choose by.
USUAL: dict[str, float] = {"training_epsilon_factor": 1.0, "robust_weight": 0.2, "leaf_penalty": 1.0}
# Values of many samples that tuning looks at.
MOST_VALUES = 2e6
# No fitness is so large; its square is finite.
LARGEST_SCORE = 1e100
# Options of a run whose tree will be a single leaf.
SINGLE_LEAF: dict[str, Any] = {"generations": 0, "polish": 0, "blends": (0.3,), "seed_leaves": 2}
# Options of the initial tree, which is there at once for a user who stops early; it is not regularized.
INITIAL_TREE: dict[str, Any] = {
    "tune": False, "pretune": False, "validation": 0.0, "training_epsilon_factor": 1.0, "robust_weight": 0.0,
    "leaf_penalty": 0.0, "blends": (0.3, 0.1, 0.0), "generations": 0,
}  # fmt: skip
# With more distinct values of few samples than this, folds are not repeated, and trees are grown by fewer criteria.
# They are counted in so many features.
MANY_VALUES = 1.2e4
COUNTED_FEATURES = 64


def count_values(dataset: Dataset) -> float:
    """Number of distinct values, summed over the features; estimated if they are many."""
    counted = dataset.X[:, draw_places(dataset.n_features, COUNTED_FEATURES)]
    return float(sum(len(np.unique(column)) for column in counted.T) * dataset.n_features / counted.shape[1])


class TreeTuning:
    """The choice of a candidate for one tree: splits of the samples, and the race of the candidates on them.

    Parameters
    ----------
    learned : Dataset
        Samples to tune on.
    perturbation : Perturbation
    options : TrainingOptions

    Attributes
    ----------
    validation : CrossValidation
    race : Race
    """

    def __init__(self, learned: Dataset, perturbation: Perturbation, options: TrainingOptions) -> None:
        self._learned = learned
        self._perturbation = perturbation
        self._options = options
        self._has_many = learned.n_samples > MANY_SAMPLES
        self._is_costly = self._has_many or count_values(learned) > MANY_VALUES
        self._blends: tuple[float, ...] | None = None
        self._lock = threading.Lock()
        self.validation = plan_cross_validation(
            learned, options.seed, options.split, MOST_VALUES, is_repeated=not self._is_costly
        )
        self.race = Race(
            list_factors(learned, perturbation), list_robust_weights(options), learned.n_samples,
            len(self.validation.pairs), self.validation.n_first,
        )  # fmt: skip

    def prepare(self, group: TrainerGroup) -> None:
        """Choose the criteria of growth of all trials; none are chosen if the group is stopped meanwhile."""
        if self.validation.pairs:
            self._choose_blends(group)

    def try_candidates(self, trial: Trial, group: TrainerGroup) -> list[float]:
        """Fitness of quick trees of some candidates on the samples left out; not to be used if the group is stopped."""
        kept, held = self.validation.pairs[trial.split]
        candidates = [self.race.candidates[number] for number in trial.candidates]
        trees = QuickTrees(
            self._learned.subset(kept), self._learned.subset(held), self._perturbation, self._options,
            candidates[0]["training_epsilon_factor"], self._has_many, self._choose_blends(group),
            bool(self.interactions),
        )  # fmt: skip
        with group.watching(trees):
            return trees.score([(each["robust_weight"], each["leaf_penalty"]) for each in candidates])

    @cached_property
    def interactions(self) -> tuple[Interaction, ...]:
        """Features that trees begin with, by all samples to tune on."""
        return list_interactions(self._learned, self._options)

    def _choose_blends(self, group: TrainerGroup) -> tuple[float, ...]:
        """Criteria of growth, the same for all trials; not to be used if the group is stopped."""
        with self._lock:
            if self._blends is None:
                found: tuple[float, ...] = TRIAL_BLENDS
                if self._is_costly:
                    kept = self._learned.subset(self.validation.pairs[0][0])
                    share = PART if self._has_many else 1.0
                    found = choose_blends(kept, self._perturbation, self._options, share=share, group=group)
                if group.is_stopped:
                    return found
                self._blends = found
            return self._blends

    def list_blends(self, group: TrainerGroup) -> tuple[float, ...]:
        """Criteria of growth for the run that is tuned.

        With many samples these are `TRIAL_BLENDS`, and the ones between the lowest and the highest that trials use.
        """
        known = self._options.blends
        if known != BLENDS or not self._has_many or not self.validation.pairs:
            return known
        used = self._choose_blends(group)
        return tuple(each for each in known if min(used) <= each <= max(used) or each in TRIAL_BLENDS)

    @property
    def winner(self) -> dict[str, float]:
        """The candidate that the race has found, as it was tried."""
        return self.race.candidates[self.race.choice] if self.validation.pairs else dict(USUAL)

    @property
    def candidate(self) -> dict[str, float]:
        """The winner with its leaf penalty for all samples."""
        penalty = self.winner["leaf_penalty"]
        n_samples = self._learned.n_samples
        if NOISE_PENALTY <= penalty < n_samples and self.validation.n_rows < n_samples:
            penalty = round(penalty * math.sqrt(n_samples / len(self.validation.pairs[0][0])), 1)
        return {**self.winner, "leaf_penalty": penalty}

    def describe(self, group: TrainerGroup) -> dict[str, Any]:
        """What was chosen and by which scores, as JSON has it."""
        finalists = self.race.describe() if self.validation.pairs else []
        scores = self.race.describe_choice() if finalists else {"score": None, "error": None, "splits": 0}
        return {
            "chosen": self.candidate, **scores,
            "split": self.validation.kind, "rows": self.validation.n_rows, "finalists": finalists,
        }  # fmt: skip


class TunedTrainer(BaseTrainer):
    """Tuning, then training of one tree with the chosen candidate; see `metasilvae.training.protocol.Trainer`.

    With the option `pretune` in the place of `tune` it is the quick choice of `metasilvae.training.quick_choice`.

    Observers do not see the trees of trials, nor the initial tree if it was trained on rows that are held out later.

    Attributes
    ----------
    candidate : dict or None
        The chosen training_epsilon_factor, robust_weight and leaf_penalty, of a quick choice the robust weight at most;
        None before.
    tuning : dict or None
        The same with the scores of the finalists; of a quick choice, also the criteria of growth.
    """

    norms = SHARED_NORMS

    def __init__(
        self, dataset: Dataset, perturbation: Perturbation, options: TrainingOptions, jobs: int | None = 1
    ) -> None:
        super().__init__(dataset, perturbation, options, jobs)
        self.candidate: dict[str, Any] | None = None
        make = TreeTuning if options.tune else QuickChoice
        self._tuning: Selection = make(self.learned, perturbation, options)
        self._chosen: dict[str, Any] | None = None
        self._validation, self._race = self._tuning.validation, self._tuning.race
        self._n_trials = 0
        self._group = TrainerGroup()
        # With few samples a pass of local search takes a moment.
        first = replace(options, **{**INITIAL_TREE, "polish": int(self.learned.n_samples <= MANY_SAMPLES)})
        if not options.tune:
            # The run itself is short, and continues this growth if it uses the same criterion.
            first = replace(first, blends=options.blends[:1], seed_leaves=FIRST_SPLITS + 1)
        self._initial = TreeTrainer(
            dataset, perturbation, first, self._jobs, clock=self._clock, keep_growth=True,
            interactions=() if first.seed_leaves else self._tuning.interactions,
        )  # fmt: skip
        self._group.add(self._initial)
        if self.held_out is None:
            self.share_observers(self._initial)
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
        n_initial += INTERACTION_CRITERIA * len(self._tuning.interactions)
        main = n_initial + self.options.generations + self.options.polish
        return self._initial.n_steps + self._race.n_most_trials + main

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
        return {
            "steps": initial["steps"] + self._n_trials + (0 if main is None else main["steps"]),
            "initial": initial,
            "latest": None if self._latest is None else asdict(self._latest),
            "scores": self._race.scores.ravel(),
            "trials": self._n_trials,
            "is_tuned": self.candidate is not None,
            "main": main,
            "has_overtaken": self._has_overtaken,
            "seconds": self.seconds,
        }

    def resume(self, document: dict[str, Any]) -> None:
        state = take(document, "initial", dict)
        self._initial.resume(state)
        if document.get("latest") is not None:
            self._latest = read_progress(take(document, "latest", dict))
        elif self._initial.state["steps"]:
            raise damaged("the latest step is missing")
        scores = take_array(document, "scores", "<f8")
        if scores.size != self._race.scores.size:
            raise damaged("the tuning has another size")
        if (np.abs(scores) > LARGEST_SCORE).any():
            raise damaged("a score of the tuning is out of range")
        self._race.scores[:] = scores.reshape(self._race.scores.shape)
        self._n_trials = take(document, "trials", int)
        if take(document, "is_tuned", bool):
            if self._latest is None or self._race.plan():
                raise damaged("the tuning is not complete")
            self._choose()
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
        for step, progress in enumerate(self._initial.run(), start=self._initial.state["steps"]):
            self._latest = replace(progress, phase="initial tree", step=step)
            yield self._latest
        self._initial_state = self._initial.state
        if self._initial.stop_reason in (StopReason.TARGET, StopReason.TIME_LIMIT, StopReason.INTERRUPTED):
            self._end(self._initial.stop_reason)

    def _tune(self) -> Iterator[Progress]:
        """Try candidates until the race is over, then choose."""
        assert self._latest is not None
        pool = futures.ThreadPoolExecutor(self._jobs)
        try:
            self._wait(pool.submit(self._tuning.prepare, self._group))
            if self._is_over():
                return
            if self._n_trials == 0 and self._race.n_most_trials and not self._race.plan():
                # Criteria alone were to be chosen.
                self._choose()
                self._n_trials = 1
                yield replace(self._latest, phase="tuning", step=0, seconds=self.seconds, tuning=self.tuning)
            while trials := self._race.plan():
                tasks = [pool.submit(self._try, trial) for trial in trials]
                for trial, task in zip(trials, tasks, strict=True):
                    scores = self._wait(task)
                    if self.stop_reason is None:
                        self._race.record(trial, scores)
                        self._n_trials += 1
                        if not self._race.plan():
                            self._choose()
                    step = self._n_trials - (self.stop_reason is None)
                    yield replace(self._latest, phase="tuning", step=step, seconds=self.seconds, tuning=self.tuning)
                    if self._is_over():
                        return
        finally:
            pool.shutdown(cancel_futures=True)
        if not self._is_over() and self.candidate is None:
            self._choose()

    def _try(self, trial: Trial) -> list[float]:
        return self._tuning.try_candidates(trial, self._group)

    def _choose(self) -> None:
        self.candidate = self._tuning.candidate
        self._chosen = self._tuning.describe(self._group)
        self.options = replace(self.options, **self.candidate)

    @property
    def tuning(self) -> dict[str, Any] | None:
        """What was chosen and by which scores, as JSON has it; None before."""
        return self._chosen

    def _make_main(self, candidate: dict[str, Any]) -> TreeTrainer:
        blends = self._tuning.list_blends(self._group)
        changes: dict[str, Any] = {"tune": False, "pretune": False}
        if candidate.get("leaf_penalty", 0.0) >= self.learned.n_samples:
            changes |= SINGLE_LEAF
        self.options = replace(self.options, blends=blends)
        options = replace(self.options, **changes)
        main = TreeTrainer(
            self.dataset, self.perturbation, options, self._jobs, like=self._initial, clock=self._clock,
            interactions=() if options.seed_leaves else self._tuning.interactions,
        )  # fmt: skip
        self.share_observers(main)
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
    if not options.greedy or start is not None:
        return TreeTrainer(dataset, perturbation, options, jobs, start)
    n_samples = len(hold_out(dataset, options.validation)[0]) if options.validation else dataset.n_samples
    if options.tune or (options.pretune and n_samples > MANY_SAMPLES):
        return TunedTrainer(dataset, perturbation, options, jobs)
    return TreeTrainer(dataset, perturbation, replace(options, pretune=False), jobs)
