"""Training a forest for the votes that its trees cast together, not for what each of them is worth alone.

Each tree is grown on rows drawn with weights: rows about which the forest so far is wrong, or can be made wrong within
their boxes, are drawn more often (metasilvae.training.forest). Trees are grown in small batches, the same ones for any
number of workers (metasilvae.training.forest). Small forests on parts of the rows choose how to do it
(metasilvae.training.forest).

Growing one tree of a forest, as a task that any worker can do: it depends on its arguments alone.

Growing a forest batch by batch, each batch with regard to the forest before it.

Choosing how to grow a forest, by growing small ones on parts of the samples and testing them on the others.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_rows
from metasilvae.errors import DataError
from metasilvae.execution.threads import available_cores, wait_for
from metasilvae.model import Model, join_trees
from metasilvae.perturbations.boxes import Enlarged, Perturbation
from metasilvae.training.checkpoint.files import damaged, pack_models, take, take_array, unpack_models
from metasilvae.training.evolution import HOLDING_SEED, TreeTrainer
from metasilvae.training.forest_votes import Counts, GrowingForest
from metasilvae.training.options import FEW_SAMPLES, ForestOptions, TrainingOptions
from metasilvae.training.protocol import Progress, StopReason
from metasilvae.training.tuning import choose_candidate, plan_splits

# Margins are counted as if a forest had no more trees than this.
COUNTED_TREES = 12
LARGEST_EXPONENT = 500.0


class Stoppable:
    """Ends all trainers that run under it, from any thread; those that come later end at once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: list[TreeTrainer] = []
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True
        for trainer in list(self._running):
            trainer.stop()

    def run(self, trainer: TreeTrainer) -> Model:
        with self._lock:
            self._running.append(trainer)
        if self.is_stopped:
            trainer.stop()
        for _ in trainer.run():
            pass
        with self._lock:
            self._running.remove(trainer)
        return trainer.model


@dataclass(frozen=True)
class TreeTask:
    """One tree to grow.

    Attributes
    ----------
    options : TrainingOptions
        With the seed of the tree.
    rows : intp array
        Of the data set, increasing; a row may occur several times.
    features : int32 array
        That the tree may test, increasing.
    """

    options: TrainingOptions
    rows: NDArray[np.intp]
    features: NDArray[np.int32]


def grow_tree(
    dataset: Dataset, perturbation: Perturbation, task: TreeTask, stoppable: Stoppable | None = None
) -> Model:
    """Do a task on one thread; when stopped, the best tree so far."""
    part = Dataset(
        np.ascontiguousarray(dataset.X[np.ix_(task.rows, task.features)]), dataset.y[task.rows], dataset.labels,
        source=dataset.source,
    )  # fmt: skip
    tree = (stoppable or Stoppable()).run(TreeTrainer(part, perturbation.for_features(task.features), task.options, 1))
    nodes = tree.nodes.copy()
    inner = nodes["feature"] >= 0
    nodes["feature"][inner] = task.features[nodes["feature"][inner]]
    return replace(tree, nodes=nodes, n_features=dataset.n_features)


def plan_tree(
    options: ForestOptions,
    number: int,
    rows: NDArray[np.intp],
    weights: NDArray[np.float64] | None,
    n_features: int,
    time_limit: float,
) -> TreeTask:
    """The task of one tree; what it draws depends on the seed and on the number of the tree alone.

    Parameters
    ----------
    rows : intp array
        Rows to draw from, increasing.
    weights : float64 array or None
        Of these rows; None means that all are drawn alike, none of them twice.
    """
    rng = np.random.default_rng(np.random.SeedSequence(options.tree.seed, spawn_key=(number,)))
    seed = int(rng.integers(2**63 - 1))
    n_drawn = options.features_per_tree(n_features)
    features = np.sort(rng.permutation(n_features)[:n_drawn]).astype(np.int32)
    n_rows = max(1, round(options.share_of_rows * len(rows)))
    order = rng.permutation(len(rows))
    drawn = order[:n_rows] if weights is None else order[draw_evenly(weights[order], n_rows, rng.random())]
    fixed: dict[str, Any] = {"tune": False, "validation": 0.0, "allowed_features": 0, "target": np.inf}
    tree = replace(options.tree, seed=seed, time_limit=time_limit, **fixed)
    return TreeTask(tree, np.sort(rows[drawn]), features)


def draw_evenly(weights: NDArray[np.float64], n_drawn: int, start: float) -> NDArray[np.intp]:
    """Positions drawn in proportion to weights, each as often as expected, up to one more or less.

    Parameters
    ----------
    start : float
        From 0 to 1, drawn at random.
    """
    reached = np.cumsum(weights)
    places = (start + np.arange(n_drawn)) / n_drawn * reached[-1]
    return np.asarray(np.minimum(np.searchsorted(reached, places, side="right"), len(weights) - 1))


def weigh_rows(votes: GrowingForest, options: ForestOptions) -> NDArray[np.float64]:
    """Weight of each row for the next tree: the less sure the forest is to be right about it, the more."""
    # In a large forest a few hard rows would take all the weight.
    unit = options.strength * min(1.0, COUNTED_TREES / votes.n_trees)

    def doubt(margins: Counts) -> NDArray[np.float64]:
        return np.asarray(1 / (1 + np.exp(np.minimum(unit * margins, LARGEST_EXPONENT))))

    return options.focus * doubt(votes.worst_margins) + (1 - options.focus) * doubt(votes.own_margins)


# Trees that are grown at the same time for the same forest; more of them differ too little.
LARGEST_BATCH = 4


def split_into_batches(numbers: Sequence[int], is_reweighted: bool) -> list[Sequence[int]]:
    """Tree numbers in batches: small ones first, so that a forest to look at is there soon."""
    if not is_reweighted:
        return [numbers]
    batches, start = [], 0
    while start < len(numbers):
        size = min(LARGEST_BATCH, max(1, start))
        batches.append(numbers[start : start + size])
        start += size
    return batches


def grow_forest(
    dataset: Dataset,
    perturbation: Perturbation,
    options: ForestOptions,
    rows: NDArray[np.intp],
    numbers: Sequence[int],
    grow: Callable[[list[TreeTask]], Iterable[Model]],
    seconds_left: Callable[[], float],
    jobs: int | None = 1,
) -> Iterator[tuple[Model, GrowingForest]]:
    """Yield each tree together with the votes of the forest up to it.

    Parameters
    ----------
    rows : intp array
        Rows to learn from, increasing.
    numbers : sequence of int
        Of the trees; a number stands for what is drawn for the tree.
    grow : function
        Does the tasks of a batch and gives the trees in their order; fewer if it was stopped.
    """
    learned = dataset if len(rows) == dataset.n_samples else dataset.subset(rows)
    forest = GrowingForest(learned, Enlarged(perturbation, options.tree.training_epsilon_factor), jobs)
    weights = None
    for batch in split_into_batches(numbers, options.is_reweighted):
        tasks = [plan_tree(options, number, rows, weights, dataset.n_features, seconds_left()) for number in batch]
        n_before = forest.n_trees
        for tree in grow(tasks):
            forest.add(tree)
            yield tree, forest
        if forest.n_trees < n_before + len(tasks):
            return
        if options.is_reweighted:
            weights = weigh_rows(forest, options)


# What is chosen among; each was the best one on some of the paper's sets. All by validation on parts of the training
# splits.
CANDIDATES: tuple[dict[str, Any], ...] = (
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 1.0, "strength": 0.2},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.5, "focus": 1.0, "strength": 0.5},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 0.5, "strength": 0.1},
    {"blends": (0.1,), "training_epsilon_factor": 1.0, "robust_weight": 0.1, "focus": 0.1, "strength": 0.2},
    {"blends": (0.02,), "training_epsilon_factor": 1.15, "robust_weight": 0.1, "focus": 0.5, "strength": 0.1},
    {"blends": (0.0,), "training_epsilon_factor": 1.0, "robust_weight": 0.0, "focus": 0.1, "strength": 0.5},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "method": "independent"},
)
# The same for few samples. Independent trees, together, are more accurate and more stable than the best single one;
# those that look at each other give up stability and must be clearly better to be chosen.
CANDIDATES_IF_FEW: tuple[dict[str, Any], ...] = (
    {"training_epsilon_factor": 1.15, "robust_weight": 0.2, "method": "independent"},
    {"training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 1.0, "strength": 0.2, "method": "reweighted"},
)
# Of many samples so many are grown on and so many are tested on, which is cheap; growing more trees, or on more
# samples, would tell the settings apart no better. Fewer samples are split again and again.
GROWN_SAMPLES = 2400
TESTED_SAMPLES = 10000
MOST_TREES = 9


def list_candidates(options: ForestOptions, n_samples: int) -> list[dict[str, Any]]:
    """The settings to choose among; of those that do not differ where the method is fixed, one."""
    kept: dict[ForestOptions, dict[str, Any]] = {}
    for setting in CANDIDATES_IF_FEW if n_samples <= FEW_SAMPLES else CANDIDATES:
        candidate = options.with_setting(setting)
        if not candidate.is_reweighted:
            candidate = candidate.with_setting({"strength": 0.0, "focus": 0.0})
        kept.setdefault(candidate, setting)
    return list(kept.values())


def plan_tuning_splits(
    y: NDArray[np.int32], rows: NDArray[np.intp], seed: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of rows to grow on and rows to test on, all among the given ones."""
    if len(rows) <= FEW_SAMPLES:
        return [(rows[kept], rows[held]) for kept, held in plan_splits(y[rows], seed)]
    drawn = np.random.default_rng([seed, 4]).permutation(rows)[: GROWN_SAMPLES + TESTED_SAMPLES]
    return [(np.sort(drawn[:GROWN_SAMPLES]), np.sort(drawn[GROWN_SAMPLES:]))]


def score_candidate(
    dataset: Dataset,
    perturbation: Perturbation,
    options: ForestOptions,
    kept: NDArray[np.intp],
    held: NDArray[np.intp],
    stoppable: Stoppable | None = None,
) -> float:
    """Fitness, or less, of a small forest on the rows that were held out; a task like `grow_tree`."""
    judged = GrowingForest(dataset.subset(held), perturbation)
    watched = stoppable or Stoppable()
    numbers = range(min(options.n_trees, MOST_TREES))
    growth = grow_forest(
        dataset, perturbation, options, kept, numbers,
        lambda tasks: (grow_tree(dataset, perturbation, task, watched) for task in tasks), lambda: math.inf,
    )  # fmt: skip
    for tree, _ in growth:
        if watched.is_stopped:
            return math.nan
        judged.add(tree)
    return options.tree.fitness.value(*judged.certainty.shares)


# Has a function called with the data set, the perturbation and the given arguments, somewhere.
Submit = Callable[..., "futures.Future[Any]"]
# Of a time limit, for the tuning.
TUNING_FRACTION = 0.3
# A time limit must be more than 0.
TINY = 1e-9


class ForestTrainer:
    """Training of a forest that can be watched and stopped; used as `metasilvae.training.evolution.TreeTrainer`.

    Phases: a first tree at once ("warm-up") and the choice ("tuning"), if the options ask for one, then "tree".

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
        What the tuning chose.
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
        is_tuned = options.tree.tune and options.tree.greedy
        self._settings = list_candidates(self.forest_options, len(self._rows)) if is_tuned else []
        if len(self._settings) == 1:
            self._apply(self._settings.pop())
        self._splits = plan_tuning_splits(dataset.y, self._rows, options.tree.seed) if self._settings else []
        self._seconds_before = 0.0
        self._start = time.perf_counter()

    @property
    def n_steps(self) -> int:
        """Number of progress records of a run that nothing ends early."""
        n_tuned = len(self._settings) * len(self._splits)
        return (1 if self._settings else 0) + n_tuned + len(self._numbers)

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
            (score_candidate, self.forest_options.with_setting(setting), *split)
            for setting in self._settings
            for split in self._splits
        ]
        n_known = len(self._figures)
        is_whole, n_cut = True, 0
        for step, figure in enumerate(self._do(work[n_known:], TUNING_FRACTION), n_known):
            # A trial that was cut short has no figure, and those after it may be missing.
            is_whole = is_whole and math.isfinite(figure) and not self._stoppable.is_stopped
            if is_whole:
                self._figures.append(figure)
            self._n_told += is_whole
            n_cut += not is_whole
            yield self._progress("tuning", step, self._spare, votes)
        self._stoppable = Stoppable()
        if not self._is_over():
            self._n_told += n_cut
            is_done = 0 < len(self._figures) == len(work)
            shape = (len(self._settings), -1) if is_done else (1, -1)
            self._apply(self._settings[choose_candidate(np.reshape(self._figures if is_done else [0.0], shape))])

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
