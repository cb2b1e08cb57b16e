"""Training a forest for the votes that its trees cast together, not for what each of them is worth alone.

Each tree is grown on rows drawn with weights: rows about which the forest so far is wrong, or can be made wrong within
their boxes, are drawn more often (metasilvae.tree_tasks). Trees are grown in small batches, the same ones for any
number of workers (metasilvae.forest_growth). Small forests on parts of the rows choose how to do it
(metasilvae.forest_rehearsal).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.ensemble_votes import GrowingForest
from metasilvae.errors import DataError
from metasilvae.forest_growth import grow_forest
from metasilvae.forest_options import ForestOptions
from metasilvae.forest_rehearsal import list_settings, plan_rehearsal, rehearse
from metasilvae.formats.checkpoint_files import damaged, take, take_array
from metasilvae.model import Model, join_trees
from metasilvae.parallel import available_cores, wait_for
from metasilvae.perturbation import Perturbation
from metasilvae.rehearsal import choose_setting
from metasilvae.splitting import split_rows
from metasilvae.stored_trees import pack_models, unpack_models
from metasilvae.training import HOLDING_SEED
from metasilvae.training_progress import Progress, StopReason
from metasilvae.tree_tasks import Stoppable, TreeTask, grow_tree, plan_tree

# Has a function called with the data set, the perturbation and the given arguments, somewhere.
Submit = Callable[..., "futures.Future[Any]"]
# Of a time limit, for the rehearsal.
REHEARSAL_SHARE = 0.3
# A time limit must be more than 0.
TINY = 1e-9


class ForestTrainer:
    """Training of a forest that can be watched and stopped; to its user the same as `metasilvae.training.Trainer`.

    Phases: a first tree at once ("warm-up") and the choice ("rehearsal"), if the options ask for one, then "tree".

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    perturbation : Perturbation
        What the forest is to withstand.
    options : ForestOptions
    jobs : int or None
        Threads; None means all available cores. The result does not depend on it.
    submit : function or None
        Where tasks go, if not to threads of this process: ``submit(function, *arguments)`` has
        ``function(dataset, perturbation, *arguments)`` called and gives a future. A stop cancels those futures.

    Attributes
    ----------
    options : TrainingOptions
        Of the trees, with the seed of the forest.
    setting : dict or None
        What the rehearsal chose.
    stop_reason : StopReason or None
        Why the run ended; None before.
    """

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: ForestOptions,
        jobs: int | None = 1,
        submit: Submit | None = None,
    ) -> None:
        if dataset.n_labels < 2:
            raise DataError(f"{dataset.source}: holds one class only ({dataset.labels[0]}); there is nothing to learn")
        options.features_per_tree(dataset.n_features)
        self.dataset = dataset
        self.perturbation = perturbation
        self.options = options.tree
        self.setting: dict[str, Any] | None = None
        self.stop_reason: StopReason | None = None
        self.held_out: Dataset | None = None
        self._rows = np.arange(dataset.n_samples)
        if options.tree.validation > 0:
            self._rows, held = split_rows(dataset.y, options.tree.validation, HOLDING_SEED)
            self.held_out = dataset.subset(held)
        self._numbers = range(options.n_trees) if options.numbers is None else options.numbers
        self._jobs = available_cores() if jobs is None else jobs
        self._submit = submit
        self._stoppable = Stoppable()
        self._trees: list[Model] = []
        # Those that no stop has cut short; at the start of a resumed run they are known already.
        self._whole: list[Model] = []
        self._spare: list[Model] = []
        self._has_whole_spare = False
        self._figures: list[float] = []
        # Steps that were told, and that no stop has cut short.
        self._n_told = 0
        self._pending: list[futures.Future[Any]] = []
        self.forest_options = options.for_samples(len(self._rows))
        is_rehearsed = options.tree.rehearse and options.tree.greedy
        self._settings = list_settings(self.forest_options, len(self._rows)) if is_rehearsed else []
        if len(self._settings) == 1:
            self._apply(self._settings.pop())
        self._splits = plan_rehearsal(dataset.y, self._rows, options.tree.seed) if self._settings else []
        self._seconds_before = 0.0
        self._start = time.perf_counter()

    @property
    def n_steps(self) -> int:
        """Number of progress records of a run that nothing ends early."""
        n_rehearsed = len(self._settings) * len(self._splits)
        return (1 if self._settings else 0) + n_rehearsed + len(self._numbers)

    def run(self) -> Iterator[Progress]:
        """Train; yield after each tree. Leaving the loop early keeps the trees so far."""
        self._start = time.perf_counter() - self._seconds_before
        pool = futures.ThreadPoolExecutor(self._jobs)
        if self._submit is None:
            self._submit = self._submitter(pool)
        try:
            if self._settings and self.setting is None:
                yield from self._choose_setting()
            if not self._is_over():
                yield from self._grow()
        finally:
            self._stoppable.stop()
            pool.shutdown(cancel_futures=True)
        if self.stop_reason is None:
            self.stop_reason = StopReason.ITERATIONS

    def stop(self) -> None:
        """End the run soon; may be called at any time, from a signal handler or from another thread too."""
        self._end(StopReason.INTERRUPTED)

    @property
    def model(self) -> Model:
        """The forest of the trees so far."""
        return join_trees(self._kept_trees())

    @property
    def held_out_fitness(self) -> float | None:
        """Fitness, or less, of the forest on the held-out rows, if there are any."""
        if self.held_out is None:
            return None
        judged = GrowingForest(self.held_out, self.perturbation, self._jobs)
        for tree in self._kept_trees():
            judged.add(tree)
        return self.options.fitness.value(*judged.certainty.shares)

    @property
    def state(self) -> dict[str, Any]:
        """Where the run stands after its last step that was not cut short; `resume` of another trainer takes it."""
        return {
            "spare": pack_models(self._spare if self._has_whole_spare else []),
            "figures": np.array(self._figures, dtype=np.float64),
            "setting": self._settings.index(self.setting) if self.setting in self._settings else None,
            "trees": pack_models(self._whole),
            "steps": self._n_told,
            "seconds": time.perf_counter() - self._start,
        }

    def resume(self, document: dict[str, Any]) -> None:
        """Stand where another run on the same data and options stood."""
        self._spare = unpack_models(take(document, "spare", dict), self.dataset)[:1]
        self._has_whole_spare = bool(self._spare)
        figures = take_array(document, "figures", "<f8")
        self._figures = figures.tolist()
        self._whole = unpack_models(take(document, "trees", dict), self.dataset)
        n_trials = len(self._settings) * len(self._splits)
        if len(figures) > n_trials or not np.isfinite(figures).all() or len(self._whole) > len(self._numbers):
            raise damaged("there are more trees or trials than there should be")
        if document.get("setting") is not None:
            position = take(document, "setting", int)
            if position >= len(self._settings):
                raise damaged("there is no such setting")
            self._apply(self._settings[position])
        self._n_told = take(document, "steps", int)
        self._seconds_before = take(document, "seconds", float)

    # Parts of the run

    def _choose_setting(self) -> Iterator[Progress]:
        """Grow one tree, for a user who stops the run early; then try every setting on every split and choose."""
        votes = GrowingForest(self.dataset, self.perturbation, self._jobs)
        known = list(self._spare)
        for tree in known or self._do([(grow_tree, self._plan_first())]):
            self._has_whole_spare = self.stop_reason is None
            self._spare = [tree]
            votes.add(tree)
            if not known:
                self._n_told += self._has_whole_spare
                yield self._progress("warm-up", 0, self._spare, votes)
        work = [
            (rehearse, self.forest_options.with_setting(setting), *split)
            for setting in self._settings
            for split in self._splits
        ]
        n_known = len(self._figures)
        is_whole, n_cut = True, 0
        for step, figure in enumerate(self._do(work[n_known:], REHEARSAL_SHARE), n_known):
            # A trial that was cut short has no figure, and those after it may be missing.
            is_whole = is_whole and math.isfinite(figure) and not self._stoppable.is_stopped
            if is_whole:
                self._figures.append(figure)
            self._n_told += is_whole
            n_cut += not is_whole
            yield self._progress("rehearsal", step, self._spare, votes)
        self._stoppable = Stoppable()
        if not self._is_over():
            self._n_told += n_cut
            is_done = 0 < len(self._figures) == len(work)
            shape = (len(self._settings), -1) if is_done else (1, -1)
            self._apply(self._settings[choose_setting(np.reshape(self._figures if is_done else [0.0], shape))])

    def _apply(self, setting: dict[str, Any]) -> None:
        self.setting = dict(setting)
        self.forest_options = self.forest_options.with_setting(setting)
        self.options = self.forest_options.tree

    def _grow(self) -> Iterator[Progress]:
        growth = grow_forest(
            self.dataset, self.perturbation, self.forest_options, self._rows, self._numbers,
            self._grow_batch, self._seconds_left, self._jobs,
        )  # fmt: skip
        n_known = len(self._whole)
        for step, (tree, votes) in enumerate(growth):
            self._trees.append(tree)
            progress = self._progress("tree", step, self._trees, votes)
            if step >= n_known:
                yield progress
            if progress.fitness >= self.options.target:
                self._end(StopReason.TARGET)

    def _grow_batch(self, tasks: list[TreeTask]) -> Iterator[Model]:
        n_before = len(self._trees)
        known = self._whole[n_before : n_before + len(tasks)]
        yield from known
        for tree in self._do([(grow_tree, task) for task in tasks[len(known) :]]):
            if self.stop_reason is None:
                self._whole.append(tree)
                self._n_told += 1
            # A tree that was stopped before its first split has nothing to say.
            if self.stop_reason is None or tree.n_leaves > 1:
                yield tree

    def _plan_first(self) -> TreeTask:
        limit = self._seconds_left()
        return plan_tree(self.forest_options, self._numbers[0], self._rows, None, self.dataset.n_features, limit)

    def _kept_trees(self) -> list[Model]:
        if self._trees or self._spare:
            return self._trees or self._spare
        ended = Stoppable()
        ended.stop()
        return [grow_tree(self.dataset, self.perturbation, self._plan_first(), ended)]

    # Workers and time

    def _submitter(self, pool: futures.Executor) -> Submit:
        def submit(function: Callable[..., Any], *arguments: Any) -> futures.Future[Any]:
            return pool.submit(function, self.dataset, self.perturbation, *arguments, stoppable=self._stoppable)

        return submit

    def _do(self, work: Sequence[tuple[Any, ...]], share_of_time: float = 1.0) -> Iterator[Any]:
        """Results in order; after a stop, or that share of the time limit, only those that were under way."""
        if self._is_over():
            return
        assert self._submit is not None
        deadline = self._start + share_of_time * self.options.time_limit
        hurry = self._time_out if share_of_time == 1 else self._cut_short
        self._pending = [self._submit(*each) for each in work]
        for task in self._pending:
            try:
                result = wait_for(task, deadline, hurry)
            except futures.CancelledError:
                continue
            yield result

    def _time_out(self) -> None:
        self._end(StopReason.TIME_LIMIT)

    def _end(self, reason: StopReason) -> None:
        self.stop_reason = self.stop_reason or reason
        self._cut_short()

    def _cut_short(self) -> None:
        """End the tasks of now."""
        for task in self._pending:
            task.cancel()
        self._stoppable.stop()

    def _seconds_left(self) -> float:
        return max(TINY, self._start + self.options.time_limit - time.perf_counter())

    def _is_over(self) -> bool:
        if self.stop_reason is None and time.perf_counter() - self._start >= self.options.time_limit:
            self._time_out()
        return self.stop_reason is not None

    def _progress(self, phase: str, step: int, trees: Sequence[Model], votes: GrowingForest) -> Progress:
        shares = votes.certainty.shares
        fitness = self.options.fitness.value(*shares)
        return Progress(
            phase, step, time.perf_counter() - self._start, fitness, *shares,
            sum(tree.n_leaves for tree in trees), len(trees), fitness, fitness,
        )  # fmt: skip


def train_forest(dataset: Dataset, perturbation: Perturbation, options: ForestOptions, jobs: int | None = 1) -> Model:
    """Train a forest to the end."""
    trainer = ForestTrainer(dataset, perturbation, options, jobs)
    for _ in trainer.run():
        pass
    return trainer.model
