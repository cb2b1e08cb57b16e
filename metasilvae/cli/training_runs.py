"""The training runs of one command: a model for each seed, here or on a cluster, watched and kept."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

from metasilvae.checkpoint import Checkpoint
from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.training_parameters import TrainingRequest
from metasilvae.dataset import Dataset
from metasilvae.execution import TaskExecutor, open_executor
from metasilvae.forest_options import ForestOptions
from metasilvae.forest_training import ForestTrainer
from metasilvae.model import Model
from metasilvae.pareto import TreeCollector
from metasilvae.report.trainings import ProgressBar, ProgressLog
from metasilvae.seed_study import Finding, train_once
from metasilvae.trainers import AnyTrainer, make_trainer


@dataclass
class Runs:
    """What all runs of a command have in common.

    Attributes
    ----------
    forest : Model or None
        Trees to start from.
    """

    request: TrainingRequest
    dataset: Dataset
    forest: Model | None
    interrupts: Interrupts
    log: ProgressLog | None = None
    checkpoint: Checkpoint | None = None
    bar: ProgressBar = field(default_factory=ProgressBar)

    def train_here(self, jobs: int | None, collector: TreeCollector | None) -> list[Finding]:
        """One model for each seed, as far as no signal interrupts."""
        findings: list[Finding] = []
        for seed in self.request.seeds:
            known = self._recall(seed)
            if known is not None:
                findings.append(known)
                continue
            options = self.request.options_of(seed)
            started = time.perf_counter()
            trainer = make_trainer(self.dataset, self.request.perturbation, options, jobs, self.forest)
            if collector is not None and not isinstance(trainer, ForestTrainer):
                trainer.observe, trainer.observed = collector.observe, lambda: collector.state
            if self.interrupts.received:
                break
            findings.append(self._follow(trainer, seed, f"seed {seed}", started))
            if self.interrupts.received:
                break
        return findings

    def train_on_cluster(self, scheduler: str) -> list[Finding]:
        """One model for each seed, a task each; those that are done when a signal comes."""
        known = {seed: self._recall(seed) for seed in self.request.seeds}
        if all(known.values()):
            return [found for found in known.values() if found is not None]
        with open_executor(scheduler) as executor:
            options = self.request.options_of(self.request.seeds[0])
            if isinstance(options, ForestOptions) and len(self.request.seeds) == 1:
                return [self._train_forest(executor, options)]
            return self._train_seeds(executor, known)

    def _train_forest(self, executor: TaskExecutor, options: ForestOptions) -> Finding:
        rows, attack = executor.share(self.dataset), self.request.perturbation
        started = time.perf_counter()
        trainer = ForestTrainer(
            self.dataset, attack, options, None, lambda work, *rest: executor.submit(work, rows, attack, *rest)
        )
        return self._follow(trainer, options.tree.seed, "trees", started)

    def _train_seeds(self, executor: TaskExecutor, known: dict[int, Finding | None]) -> list[Finding]:
        rows, perturbation = executor.share(self.dataset), self.request.perturbation
        self.interrupts.stop = executor.stop
        tasks = {
            seed: executor.submit(train_once, rows, perturbation, self.request.options_of(seed), self.forest)
            for seed, found in known.items()
            if found is None
        }
        self.bar.start(len(known), "seeds", len(known) - len(tasks))
        try:
            for seed, task in tasks.items():
                try:
                    known[seed] = task.result()
                except CancelledError:
                    if not self.interrupts.received:
                        raise
                else:
                    self._keep(seed, known[seed])
                self.bar.advance()
        finally:
            self.bar.close()
        self.interrupts.stop = lambda: None
        return [found for found in known.values() if found is not None]

    def _follow(self, trainer: AnyTrainer, seed: int, title: str, started: float) -> Finding:
        """Run a trainer to its end, from where a checkpoint left it; tell and keep what it does.

        Its time counts from `started`, when its samples began to be prepared, as its time limit does.
        """
        n_done, seconds = (0, 0.0) if self.checkpoint is None else self.checkpoint.resume(seed, trainer)
        self.interrupts.stop = trainer.stop
        self.bar.start(trainer.n_steps, title, n_done)
        try:
            for progress in trainer.run():
                self.bar.show(progress)
                if self.log is not None:
                    self.log.write(seed, progress)
                if self.checkpoint is not None:
                    self.checkpoint.note(seed, progress, trainer)
        finally:
            self.bar.close()
        found = Finding.of(trainer, seconds + time.perf_counter() - started)
        self._keep(seed, found, trainer)
        # Between two runs there is nothing to stop, but a result to keep.
        self.interrupts.stop = lambda: None
        return found

    def _recall(self, seed: int) -> Finding | None:
        if self.checkpoint is None:
            return None
        options = self.request.options_of(seed)
        tree = options.tree if isinstance(options, ForestOptions) else options
        return self.checkpoint.finding(seed, tree, self.dataset)

    def _keep(self, seed: int, found: Finding | None, trainer: AnyTrainer | None = None) -> None:
        if self.checkpoint is not None and found is not None:
            self.checkpoint.close(seed, found, trainer)
