"""Training one tree on very many samples: a search on a part of them, then growth and local search on all of them.

A search needs many evaluations and gains little from more samples, while the last leaves and the exact thresholds do.
So the whole training (tuning, genetic search) runs on a part of the samples. Other samples then decide how large a leaf
penalty must be for the tree to generalize. The tree is continued at its leaves with all samples, and local search moves
its thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Enlarged, Perturbation
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.training.checkpoint.files import take
from metasilvae.training.evolution import TreeTrainer, make_objective
from metasilvae.training.options import TUNED, TrainingOptions
from metasilvae.training.population import count_again
from metasilvae.training.protocol import BaseTrainer, Progress, StopReason, Trainer
from metasilvae.training.samples import as_individual, as_model, make_samples
from metasilvae.training.tuning import TunedTrainer, make_tree_trainer
from metasilvae.verification.metrics import evaluate

# With more samples than this a part of them is searched; as many others decide about the leaf penalty.
VERY_MANY_SAMPLES = 200_000
SAMPLE_SIZE = 50_000
# Multiples of the leaf penalty that are tried.
PENALTY_FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
# Passes of local search on all samples, at most.
MOST_PASSES = 2


class LargeTreeTrainer(BaseTrainer):
    """Training of one tree on very many samples; see `metasilvae.training.protocol.Trainer`.

    Steps of the search on a part of the samples are reported as phase "sample". Observers see the trees that are grown
    on all samples.

    Parameters
    ----------
    sample_size : int
        Samples of the part; there must be twice as many in all.
    """

    norms = SHARED_NORMS

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: TrainingOptions,
        jobs: int | None = 1,
        sample_size: int = SAMPLE_SIZE,
    ) -> None:
        super().__init__(dataset, perturbation, options, jobs)
        order = np.random.default_rng([options.seed, 3]).permutation(self.learned.n_samples)
        self._part = self.learned.subset(np.sort(order[:sample_size]))
        self._others = self.learned.subset(np.sort(order[sample_size : 2 * sample_size]))
        self._search: TreeTrainer | TunedTrainer | None = make_tree_trainer(
            self._part, perturbation, replace(options, validation=0.0), self._jobs
        )
        self._n_search_steps = self._search.n_steps
        self._search_state: dict[str, Any] = {}
        # What the search has found, after it.
        self._start: Model | None = None
        self._full: TreeTrainer | None = None
        self._full_state: dict[str, Any] | None = None
        self._is_started = False
        self._tuning: dict[str, Any] | None = None

    @property
    def tuning(self) -> dict[str, Any] | None:
        return self._tuning if self._search is None else self._search.tuning

    @property
    def n_steps(self) -> int:
        return self._n_search_steps + 1 + len(self._deepening) + self._n_passes

    @property
    def _n_passes(self) -> int:
        return min(self.options.polish, MOST_PASSES)

    @property
    def _deepening(self) -> tuple[float, ...]:
        """Criteria by which the tree is continued."""
        return self.options.blends[:3]

    @property
    def model(self) -> Model:
        if self._full is not None and self._is_started:
            return self._full.model
        if self._start is None:
            assert self._search is not None
            return count_again(self._search.model, self.dataset)
        return count_again(self._start, self.dataset)

    @property
    def held_out_fitness(self) -> float | None:
        if self.held_out is None:
            return None
        return evaluate(self.model, self.held_out, [self.perturbation], jobs=1)[0].phi(self.options.fitness)

    @property
    def state(self) -> dict[str, Any]:
        search = self._search_state if self._search is None else self._search.state
        full = self._full_state if self._full is None else self._full.state
        return {
            "steps": search["steps"] + (0 if full is None else full["steps"]),
            "search": search,
            "full": full,
            "seconds": self.seconds,
        }

    def resume(self, document: dict[str, Any]) -> None:
        assert self._search is not None
        self._search.resume(take(document, "search", dict))
        if document.get("full") is not None:
            self._full_state = take(document, "full", dict)
        self._clock.resume(take(document, "seconds", float))

    # Parts of the run

    def _steps(self) -> Iterator[Progress]:
        assert self._search is not None
        step = self._search.state["steps"]
        for progress in self._search.run():
            yield replace(progress, phase="sample", step=step)
            step += 1
        # What tuning, or the quick choice before a run without it, has found.
        chosen = {name: getattr(self._search.options, name) for name in sorted(TUNED)}
        self.options = replace(self.options, **chosen)
        if self._search.stop_reason in (StopReason.TIME_LIMIT, StopReason.INTERRUPTED):
            self._end(self._search.stop_reason)
        if self._is_over():
            return
        self._start = self._search.model
        reason = self._search.stop_reason
        self._tuning = self._search.tuning
        # From here on its samples and trees are not needed any more.
        self._search_state, self._search = self._search.state, None
        options = replace(self.options, tune=False, pretune=False, generations=0, polish=self._n_passes)
        # By chance a split gains about as many samples as the root of their number.
        growth = math.sqrt(self.learned.n_samples / self._part.n_samples)
        penalty = growth * self._choose_penalty(options)
        if self._is_over():
            return
        self.options = replace(self.options, leaf_penalty=penalty)
        self._full = TreeTrainer(
            self.dataset, self.perturbation, replace(options, leaf_penalty=penalty), self._jobs, self._start,
            clock=self._clock, deepening=self._deepening,
        )  # fmt: skip
        self.share_observers(self._full)
        if self.stop_reason is not None:
            self._full.stop()
        if self._full_state is not None:
            self._full.resume(self._full_state)
            self._is_started = self._full_state["steps"] > 0
        for progress in self._full.run():
            self._is_started = True
            yield progress
        if self._full.stop_reason is not StopReason.ITERATIONS:
            reason = self._full.stop_reason
        self.stop_reason = self.stop_reason or reason

    def _choose_penalty(self, options: TrainingOptions) -> float:
        """The leaf penalty with which pruning gives the tree that generalizes best to the other samples.

        It is never smaller than that of the options.
        """
        assert self._start is not None
        boxes = Enlarged(self.perturbation, options.training_epsilon_factor).boxes(self._part)
        samples = make_samples(self._part, boxes)
        workspace = kernel.Workspace(samples)
        best, chosen = -math.inf, options.leaf_penalty
        for factor in PENALTY_FACTORS:
            if self._is_over():
                break
            objective = make_objective(
                replace(options, leaf_penalty=factor * options.leaf_penalty), self._part, samples
            )
            tree = as_individual(self._start, samples, objective, workspace)
            tree.trim(objective, workspace)
            evaluation = evaluate(
                as_model(tree, self._part), self._others, [self.perturbation], jobs=self._jobs
            )[0]  # fmt: skip
            fitness = evaluation.phi(options.fitness)
            if fitness >= best:
                best, chosen = fitness, factor * options.leaf_penalty
        return chosen

    def _stop_work(self) -> None:
        for trainer in (self._search, self._full):
            if trainer is not None:
                trainer.stop()


def make_single_tree_trainer(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions,
    jobs: int | None = 1,
    start: Model | None = None,
) -> Trainer:
    """The trainer of a single tree, for any number of samples.

    A search that does not begin with greedily grown trees, or whose size is given, uses all samples.
    """
    n_samples = dataset.n_samples * (1 - options.validation)
    if n_samples > VERY_MANY_SAMPLES and options.greedy and not options.seed_leaves and start is None:
        return LargeTreeTrainer(dataset, perturbation, options, jobs)
    return make_tree_trainer(dataset, perturbation, options, jobs, start)
