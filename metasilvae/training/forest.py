"""Training a forest for the votes that its trees cast together.

Each tree is grown on rows drawn with weights: rows on which the forest so far is wrong, or can be made wrong within
their boxes, are drawn more often. Trees are grown in small batches, the same ones for any number of workers, and the
growth of one tree is a task that depends on its arguments alone, so that any worker can do it.

Before that comes tuning: small forests on parts of the rows choose among the candidates of `CANDIDATES`, a forest of
trees that are regularized as tuning does it for a single tree, and that single tree. If the tree is ahead on the rows
left out, it is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import (
    FOLDS_IF_MANY,
    CrossValidation,
    choose_kind,
    plan_cross_validation,
    split_into_blocks,
)
from metasilvae.errors import RequestError
from metasilvae.execution.threads import wait_for
from metasilvae.model import Model, join_trees
from metasilvae.perturbations.boxes import Enlarged, Perturbation
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.training.checkpoint.files import damaged, pack_models, take, take_array, unpack_models
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.forest_votes import Counts, GrowingForest
from metasilvae.training.options import FEW_SAMPLES, SINGLE, ForestOptions, TrainingOptions
from metasilvae.training.protocol import BaseTrainer, Observer, Progress, StopReason, TrainerGroup
from metasilvae.training.samples import give_directions
from metasilvae.training.trials import FACTORS, QuickTrees, choose_candidate, compare, list_factors
from metasilvae.training.tuning import SINGLE_LEAF, USUAL, TreeTuning

# Margins are counted as if a forest had no more trees than this.
COUNTED_TREES = 12
LARGEST_EXPONENT = 500.0


@dataclass(frozen=True)
class TreeTask:
    """One tree to grow.

    Attributes
    ----------
    options : TrainingOptions
        Options with the seed of the tree.
    rows : intp array
        Rows to train on, increasing; a row may occur several times.
    features : int32 array
        Features that the tree may test, increasing.
    """

    options: TrainingOptions
    rows: NDArray[np.intp]
    features: NDArray[np.int32]


def grow_tree(dataset: Dataset, perturbation: Perturbation, task: TreeTask, group: TrainerGroup | None = None) -> Model:
    """Do a task on one thread; if the group is stopped, the best tree so far."""
    part = Dataset(
        np.ascontiguousarray(dataset.X[np.ix_(task.rows, task.features)]), dataset.y[task.rows], dataset.labels,
        source=dataset.source, indicators=None if dataset.indicators is None else dataset.indicators[task.features],
        missing_columns=dataset.columns_with_missing[task.features],
        weights=None if dataset.weights is None else dataset.weights.subset(task.rows),
    )  # fmt: skip
    tree = (group or TrainerGroup()).run(TreeTrainer(part, perturbation.for_features(task.features), task.options, 1))
    nodes = tree.nodes.copy()
    inner = nodes["feature"] >= 0
    nodes["feature"][inner] = task.features[nodes["feature"][inner]]
    tree = replace(tree, nodes=nodes, n_features=dataset.n_features)
    return give_directions(tree) if dataset.columns_with_missing.any() else tree


def plan_tree(
    options: ForestOptions,
    number: int,
    rows: NDArray[np.intp],
    weights: NDArray[np.float64] | None,
    n_features: int,
    time_limit: float,
) -> TreeTask:
    """The task of one tree; its random draws depend on the seed and on the number of the tree alone.

    Parameters
    ----------
    rows : intp array
        Rows to draw from, increasing.
    weights : float64 array or None
        Weights of these rows; None draws all with the same probability, none of them twice.
    """
    rng = np.random.default_rng(np.random.SeedSequence(options.tree.seed, spawn_key=(number,)))
    seed = int(rng.integers(2**63 - 1))
    if options.is_single:
        # The same tree as without a forest.
        seed = options.tree.seed
    n_drawn = options.features_per_tree(n_features)
    features = np.sort(rng.permutation(n_features)[:n_drawn]).astype(np.int32)
    n_rows = max(1, round(options.row_fraction * len(rows)))
    order = rng.permutation(len(rows))
    drawn = order[:n_rows] if weights is None else order[draw_evenly(weights[order], n_rows, rng.random())]
    fixed: dict[str, Any] = {"tune": False, "validation": 0.0, "allowed_features": 0, "target": np.inf}
    tree = replace(options.tree, seed=seed, time_limit=time_limit, **fixed)
    return TreeTask(tree, np.sort(rows[drawn]), features)


def draw_evenly(weights: NDArray[np.float64], n_drawn: int, start: float) -> NDArray[np.intp]:
    """Draw positions in proportion to weights, each as often as expected, up to one more or less.

    Parameters
    ----------
    start : float
        A random number from 0 to 1.
    """
    reached = np.cumsum(weights)
    places = (start + np.arange(n_drawn)) / n_drawn * reached[-1]
    return np.asarray(np.minimum(np.searchsorted(reached, places, side="right"), len(weights) - 1))


def weigh_rows(votes: GrowingForest, options: ForestOptions) -> NDArray[np.float64]:
    """Weight of each row for the next tree: the smaller the margin by which the forest is correct, the larger."""
    # In a large forest a few hard rows would take all the weight.
    unit = options.strength * min(1.0, COUNTED_TREES / votes.n_trees)

    def doubt(margins: Counts) -> NDArray[np.float64]:
        return np.asarray(1 / (1 + np.exp(np.minimum(unit * margins, LARGEST_EXPONENT))))

    return options.focus * doubt(votes.worst_margins) + (1 - options.focus) * doubt(votes.own_margins)


# Trees that are grown at the same time for the same forest; more of them differ too little.
LARGEST_BATCH = 4


def split_into_batches(numbers: Sequence[int], is_reweighted: bool) -> list[Sequence[int]]:
    """Tree numbers in batches: small ones first, so that a usable forest exists early."""
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
        Rows to train on, increasing.
    numbers : sequence of int
        Numbers of the trees; the random draws of a tree depend on its number.
    grow : function
        Does the tasks of a batch and returns the trees in their order; fewer if it was stopped.
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


# Each candidate was the best one on some of the paper's sets, by validation on parts of the training splits.
CANDIDATES: tuple[dict[str, Any], ...] = (
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 1.0, "strength": 0.2},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.5, "focus": 1.0, "strength": 0.5},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 0.5, "strength": 0.1},
    {"blends": (0.1,), "training_epsilon_factor": 1.0, "robust_weight": 0.1, "focus": 0.1, "strength": 0.2},
    {"blends": (0.02,), "training_epsilon_factor": 1.15, "robust_weight": 0.1, "focus": 0.5, "strength": 0.1},
    {"blends": (0.0,), "training_epsilon_factor": 1.0, "robust_weight": 0.0, "focus": 0.1, "strength": 0.5},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "method": "independent"},
)
# The same for few samples: reweighted trees, which are better than independent ones on most sets.
CANDIDATES_IF_FEW: tuple[dict[str, Any], ...] = (
    {"training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 1.0, "strength": 0.2, "method": "reweighted"},
)
# Many samples are split once into so many to grow on and so many to test on, which is cheap; more trees or samples
# would not separate the candidates better. Few samples are split repeatedly.
GROWN_SAMPLES = 2400
TESTED_SAMPLES = 10000
# Trees of the forest of a trial; an odd number, because votes of two classes must not tie.
TRIAL_TREES = 9
# A single tree is taken if it is ahead of the best forest by so many standard errors, which is nearly always if it is
# better: a forest must not be clearly worse. The forest of a trial is smaller than the one to come.
SINGLE_ERRORS = 0.5


def list_candidates(options: ForestOptions, n_samples: int, factors: Sequence[float] = FACTORS) -> list[dict[str, Any]]:
    """The candidates to choose among, all with the method of the options if it is fixed; of equal ones, one.

    A training-epsilon factor that is not among `factors` becomes 1.
    """
    kept: dict[ForestOptions, dict[str, Any]] = {}
    for usual in CANDIDATES_IF_FEW if n_samples <= FEW_SAMPLES else CANDIDATES:
        is_allowed = usual["training_epsilon_factor"] in factors
        candidate = usual if is_allowed else {**usual, "training_epsilon_factor": 1.0}
        if options.method != "auto":
            candidate = {**candidate, "method": options.method}
        found = options.with_candidate(candidate)
        if not found.is_reweighted:
            found = found.with_candidate({"strength": 0.0, "focus": 0.0})
        kept.setdefault(found, candidate)
    return list(kept.values())


def list_tuned_candidates(options: ForestOptions, tuned: dict[str, float]) -> list[dict[str, Any]]:
    """The candidates that follow from the tuning of a single tree: a forest of trees like it, and the tree.

    Trees of the forest are independent, unless the method of the options is fixed.

    Parameters
    ----------
    tuned : dict
        What tuning has chosen for a single tree.
    """
    found: list[dict[str, Any]] = [{**tuned, "method": "independent" if options.method == "auto" else options.method}]
    # A job that grows a part of the trees does not know what the others choose.
    if options.method == "auto" and options.numbers is None and options.n_trees > 1:
        found.append({**tuned, "method": SINGLE})
    return found


def plan_tuning_splits(learned: Dataset, rows: NDArray[np.intp], seed: int, kind: str) -> CrossValidation:
    """Pairs of rows to grow on and rows to test on, all among the given ones.

    Parameters
    ----------
    learned : Dataset
        The samples of the given rows.
    kind : str
        One of `metasilvae.datasets.splitting.SPLITS`.
    """
    if len(rows) <= FEW_SAMPLES:
        # The first ones of those on which a single tree is tuned.
        planned = plan_cross_validation(learned, seed, kind)
        return replace(planned, pairs=[(rows[kept], rows[held]) for kept, held in planned.pairs[: planned.n_first]])
    chosen = choose_kind(learned, kind)
    rng = np.random.default_rng([seed, 4])
    if chosen == "random":
        drawn = rng.permutation(rows)[: GROWN_SAMPLES + TESTED_SAMPLES]
        pairs = [(np.sort(drawn[:GROWN_SAMPLES]), np.sort(drawn[GROWN_SAMPLES:]))]
        return CrossValidation(pairs, 1, chosen, len(drawn))
    folds = split_into_blocks(learned.y, FOLDS_IF_MANY)
    pairs = [
        (
            np.sort(rng.permutation(rows[folds != fold])[:GROWN_SAMPLES]),
            np.sort(rng.permutation(rows[folds == fold])[:TESTED_SAMPLES]),
        )
        for fold in range(FOLDS_IF_MANY)
    ]
    return CrossValidation(pairs, len(pairs), chosen, len(np.unique(np.concatenate([*map(np.concatenate, pairs)]))))


def choose_method(candidates: Sequence[dict[str, Any]], scores: NDArray[np.float64]) -> int:
    """Number of the candidate to train with: the best forest, unless the single tree is ahead of it.

    Parameters
    ----------
    scores : float64 array, shape (n_candidates, n_splits)
        The first row alone, if there was no time for the others.
    """
    n_forests = sum(candidate.get("method") != SINGLE for candidate in candidates)
    forest = choose_candidate(scores[:n_forests])
    if len(scores) <= n_forests:
        return forest
    gain, error = compare(scores[[n_forests]] - scores[forest])
    # Equal scores are those of trees that are much the same.
    return n_forests if gain[0] >= SINGLE_ERRORS * error[0] else forest


def tune_tree(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions,
    rows: NDArray[np.intp],
    group: TrainerGroup | None = None,
) -> tuple[dict[str, float], float]:
    """What tuning chooses for a single tree, and its leaf penalty for all rows; a task like `grow_tree`."""
    watched = group or TrainerGroup()
    tuning = TreeTuning(dataset.subset(rows), perturbation, options)
    while trials := tuning.race.plan():
        for trial in trials:
            scores = tuning.try_candidates(trial, watched)
            if watched.is_stopped:
                return dict(USUAL), USUAL["leaf_penalty"]
            tuning.race.record(trial, scores)
    return tuning.winner, tuning.candidate["leaf_penalty"]


def score_candidate(
    dataset: Dataset,
    perturbation: Perturbation,
    options: ForestOptions,
    kept: NDArray[np.intp],
    held: NDArray[np.intp],
    group: TrainerGroup | None = None,
) -> float:
    """Lower bound of the fitness of a small forest on the rows left out; a task like `grow_tree`."""
    watched = group or TrainerGroup()
    if options.is_single:
        chosen = options.tree
        quick = QuickTrees(
            dataset.subset(kept), dataset.subset(held), perturbation, chosen, chosen.training_epsilon_factor
        )
        with watched.watching(quick):
            (score,) = quick.score([(chosen.robust_weight, chosen.leaf_penalty)])
        return math.nan if watched.is_stopped else score
    judged = GrowingForest(dataset.subset(held), perturbation)
    numbers = range(min(options.n_trees, TRIAL_TREES))
    growth = grow_forest(
        dataset, perturbation, options, kept, numbers,
        lambda tasks: (grow_tree(dataset, perturbation, task, watched) for task in tasks), lambda: math.inf,
    )  # fmt: skip
    for tree, _ in growth:
        if watched.is_stopped:
            return math.nan
        judged.add(tree)
    return options.tree.fitness.value(*judged.certainty.fractions)


# Calls a function with the data set, the perturbation and the given arguments on some worker.
Submit = Callable[..., "futures.Future[Any]"]
# Fraction of the time limit that tuning may take.
TUNING_FRACTION = 0.3


class ForestTrainer(BaseTrainer):
    """Training of a forest; see `metasilvae.training.protocol.Trainer` for the contract.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    perturbation : Perturbation
        The perturbation that the forest should withstand.
    options : ForestOptions
    jobs : int or None
        Threads; None means all available cores.
    submit : function or None
        Runs tasks elsewhere than on threads of this process: ``submit(function, *arguments)`` calls
        ``function(dataset, perturbation, *arguments)`` on a worker and returns a future. A stop cancels the futures.

    Attributes
    ----------
    candidate : dict or None
        The candidate that tuning chose.
    """

    norms = SHARED_NORMS
    title = "a forest"

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: ForestOptions,
        jobs: int | None = 1,
        submit: Submit | None = None,
    ) -> None:
        super().__init__(dataset, perturbation, options.tree, jobs)
        options.features_per_tree(dataset.n_features)
        self.candidate: dict[str, Any] | None = None
        self.forest_options = options.for_samples(len(self._rows))
        self._numbers = range(options.n_trees) if options.numbers is None else options.numbers
        self._submit = submit
        self._group = TrainerGroup()
        self._pending: list[futures.Future[Any]] = []
        self._trees: list[Model] = []
        # The trees that no stop has cut short; a resumed run knows them from its start.
        self._whole: list[Model] = []
        # The tree that is the model until the first one of the forest is grown.
        self._initial: list[Model] = []
        self._is_initial_whole = False
        is_tuned = options.tree.tune and options.tree.greedy
        factors = list_factors(self.learned, perturbation) if is_tuned else FACTORS
        self._candidates = list_candidates(self.forest_options, len(self._rows), factors) if is_tuned else []
        # What tuning has chosen for a single tree, with its leaf penalty for all rows; it gives further candidates.
        self._tuned: tuple[dict[str, float], float] | None = None
        self._validation = CrossValidation([], 1, "random", 0)
        if self._candidates:
            self._validation = plan_tuning_splits(self.learned, self._rows, options.tree.seed, options.tree.split)
        self._splits = self._validation.pairs
        self._scores: list[float] = []

    def observe(self, observer: Observer) -> NoReturn:
        raise RequestError("an archive holds the trees of one run for a single tree; leave the number of trees out")

    @property
    def n_steps(self) -> int:
        # The initial tree and the tuning of a single tree come before the trials.
        return (2 if self._candidates else 0) + self._n_trials + len(self._numbers)

    @property
    def _n_trials(self) -> int:
        n_missing = len(list_tuned_candidates(self.forest_options, USUAL)) if self._tuned is None else 0
        return (len(self._candidates) + n_missing) * len(self._splits) if self._candidates else 0

    @property
    def model(self) -> Model:
        return join_trees(self._kept_trees())

    @property
    def held_out_fitness(self) -> float | None:
        """Lower bound of the fitness on the held-out rows, if there are any."""
        if self.held_out is None:
            return None
        judged = GrowingForest(self.held_out, self.perturbation, self._jobs)
        for tree in self._kept_trees():
            judged.add(tree)
        return self.options.fitness.value(*judged.certainty.fractions)

    @property
    def tuning(self) -> dict[str, Any] | None:
        if self.candidate is None or not 0 < len(self._scores) == self._n_trials:
            return None
        scores = np.reshape(self._scores, (len(self._candidates), -1))
        mean, error = compare(scores)
        position = self._candidates.index(self.candidate)
        compared = [
            {**candidate, "score": round(float(mean[place]), 6), "error": round(float(error[place]), 6)}
            for place, candidate in enumerate(self._candidates)
        ]
        chosen = {**self.candidate}
        if "leaf_penalty" in chosen:
            chosen["leaf_penalty"] = self.options.leaf_penalty
        return {
            "chosen": chosen, "score": compared[position]["score"], "error": compared[position]["error"],
            "splits": len(self._splits), "split": self._validation.kind, "rows": self._validation.n_rows,
            "finalists": compared,
        }  # fmt: skip

    @property
    def state(self) -> dict[str, Any]:
        return {
            "initial": pack_models(self._initial if self._is_initial_whole else []),
            "scores": np.array(self._scores, dtype=np.float64),
            "tuned": None if self._tuned is None else {**self._tuned[0], "final_penalty": self._tuned[1]},
            "candidate": self._candidates.index(self.candidate) if self.candidate in self._candidates else None,
            "trees": pack_models(self._whole),
            "steps": self._n_reported,
            "seconds": self.seconds,
        }

    def resume(self, document: dict[str, Any]) -> None:
        self._initial = unpack_models(take(document, "initial", dict), self.dataset)[:1]
        self._is_initial_whole = bool(self._initial)
        if document.get("tuned") is not None:
            tuned = take(document, "tuned", dict)
            self._add_tuned({name: take(tuned, name, float) for name in USUAL}, take(tuned, "final_penalty", float))
        scores = take_array(document, "scores", "<f8")
        self._scores = scores.tolist()
        self._whole = unpack_models(take(document, "trees", dict), self.dataset)
        if len(scores) > self._n_trials or not np.isfinite(scores).all() or len(self._whole) > len(self._numbers):
            raise damaged("there are more trees or trials than there should be")
        if document.get("candidate") is not None:
            position = take(document, "candidate", int)
            if position >= len(self._candidates):
                raise damaged("there is no such candidate")
            self._apply(self._candidates[position])
        self._n_reported = take(document, "steps", int)
        self._clock.resume(take(document, "seconds", float))

    # Parts of the run

    def _steps(self) -> Iterator[Progress]:
        pool = futures.ThreadPoolExecutor(self._jobs)
        if self._submit is None:
            self._submit = lambda function, *arguments: pool.submit(
                function, self.dataset, self.perturbation, *arguments, group=self._group
            )
        try:
            if self._candidates and self.candidate is None:
                yield from self._tune()
            if not self._is_over():
                yield from self._grow()
        finally:
            self._group.stop()
            pool.shutdown(cancel_futures=True)

    def _tune(self) -> Iterator[Progress]:
        """Grow an initial tree, for a user who stops early; then try every candidate on every split and choose.

        The tuning of a single tree comes first, because some candidates follow from it.
        """
        votes = GrowingForest(self.dataset, self.perturbation, self._jobs)
        known = list(self._initial)
        for tree in known or self._do([(grow_tree, self._plan_first())]):
            self._is_initial_whole = self.stop_reason is None
            self._initial = [tree]
            votes.add(tree)
            if not known:
                self._n_reported += self._is_initial_whole
                yield self._report("initial tree", 0, self._initial, votes)
        for tuned in self._do([(tune_tree, self.options, self._rows)] if self._tuned is None else [], TUNING_FRACTION):
            if not self._group.is_stopped:
                self._add_tuned(*tuned)
                self._n_reported += 1
                yield self._report("tuning", 0, self._initial, votes)
        work = [
            (score_candidate, self.forest_options.with_candidate(candidate), *split)
            for candidate in self._candidates
            for split in self._splits
        ]
        n_known = len(self._scores)
        is_whole, n_cut = self._tuned is not None, 0
        for step, score in enumerate(self._do(work[n_known:], TUNING_FRACTION), n_known + 1):
            # A trial that was cut short has no score, and those after it may be missing.
            is_whole = is_whole and math.isfinite(score) and not self._group.is_stopped
            if is_whole:
                self._scores.append(score)
            self._n_reported += is_whole
            n_cut += not is_whole
            yield self._report("tuning", step, self._initial, votes)
        self._group = TrainerGroup()
        if not self._is_over():
            self._n_reported += n_cut
            is_complete = 0 < len(self._scores) == self._n_trials
            shape = (len(self._candidates), -1) if is_complete else (1, -1)
            scores = np.reshape(self._scores if is_complete else [0.0], shape)
            self._apply(self._candidates[choose_method(self._candidates, scores)])

    def _add_tuned(self, tuned: dict[str, float], penalty: float) -> None:
        self._tuned = tuned, penalty
        self._candidates += list_tuned_candidates(self.forest_options, tuned)

    def _apply(self, candidate: dict[str, Any]) -> None:
        self.candidate = dict(candidate)
        changes: dict[str, Any] = {}
        if self._tuned is not None and candidate in list_tuned_candidates(self.forest_options, self._tuned[0]):
            changes["leaf_penalty"] = self._tuned[1]
            if self._tuned[1] >= len(self._rows):
                changes |= SINGLE_LEAF
        self.forest_options = self.forest_options.with_candidate({**candidate, **changes})
        self.options = self.forest_options.tree
        if self.forest_options.is_single:
            self._numbers = self._numbers[:1]

    def _grow(self) -> Iterator[Progress]:
        growth = grow_forest(
            self.dataset, self.perturbation, self.forest_options, self._rows, self._numbers,
            self._grow_batch, lambda: self._clock.seconds_left, self._jobs,
        )  # fmt: skip
        n_known = len(self._whole)
        for step, (tree, votes) in enumerate(growth):
            self._trees.append(tree)
            progress = self._report("tree", step, self._trees, votes, self.options.training_epsilon_factor)
            if step >= n_known:
                yield progress if step else replace(progress, tuning=self.tuning)
            if progress.fitness >= self.options.target:
                self._end(StopReason.TARGET)

    def _grow_batch(self, tasks: list[TreeTask]) -> Iterator[Model]:
        n_before = len(self._trees)
        known = self._whole[n_before : n_before + len(tasks)]
        yield from known
        for tree in self._do([(grow_tree, task) for task in tasks[len(known) :]]):
            if self.stop_reason is None:
                self._whole.append(tree)
                self._n_reported += 1
            # A tree that was stopped before its first split has no useful vote.
            if self.stop_reason is None or tree.n_leaves > 1:
                yield tree

    def _plan_first(self) -> TreeTask:
        limit = self._clock.seconds_left
        return plan_tree(self.forest_options, self._numbers[0], self._rows, None, self.dataset.n_features, limit)

    def _kept_trees(self) -> list[Model]:
        if self._trees or self._initial:
            return self._trees or self._initial
        stopped = TrainerGroup()
        stopped.stop()
        return [grow_tree(self.dataset, self.perturbation, self._plan_first(), stopped)]

    def _do(self, work: Sequence[tuple[Any, ...]], fraction_of_time: float = 1.0) -> Iterator[Any]:
        """Results in order; after a stop, or that fraction of the time limit, only those that were under way."""
        if self._is_over():
            return
        assert self._submit is not None
        hurry = self._time_out if fraction_of_time == 1 else self._stop_work
        self._pending = [self._submit(*each) for each in work]
        for task in self._pending:
            try:
                result = wait_for(task, self._clock.deadline(fraction_of_time), hurry)
            except futures.CancelledError:
                continue
            yield result

    def _stop_work(self) -> None:
        for task in self._pending:
            task.cancel()
        self._group.stop()

    def _report(
        self, phase: str, step: int, trees: Sequence[Model], votes: GrowingForest, factor: float = 1.0
    ) -> Progress:
        fractions = votes.certainty.fractions
        fitness = self.options.fitness.value(*fractions)
        n_leaves = sum(tree.n_leaves for tree in trees)
        return Progress(phase, step, self.seconds, fitness, *fractions, n_leaves, len(trees), fitness, fitness, factor)
