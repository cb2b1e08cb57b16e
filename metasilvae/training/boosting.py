"""Robust boosting: trees whose scores add up, each grown for the loss that the ones before it leave.

Every sample counts twice in the loss: by the scores of the sample itself, and by the worst scores that its box allows
tree by tree: the lowest one of its own label in every tree, the highest one of each other label. Their sums bound the
margin at the worst point of the box from below (Andriushchenko and Hein, NeurIPS 2019), so a sample whose bound is
positive is certified. Each round adds one tree for two classes, and one tree for each of more classes; all of them
share a logistic loss over the scores of all labels. metasilvae.training.boosted_trees grows the trees. After the last
round the leaves of all trees are fitted again, for the loss of the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.images import ImageSize
from metasilvae.model import LeafKind, Model, join_trees
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.prediction import find_leaves
from metasilvae.training.boosted_trees import (
    BoostedTree,
    Codes,
    Derivatives,
    FloatArray,
    GrowthLimits,
    IntArray,
    Tests,
    choose_thresholds,
    grow_tree,
    one_part,
    pack_trees,
    unpack_trees,
)
from metasilvae.training.boosting_polish import ReachedTree, polish_tree
from metasilvae.training.boosting_scores import Scores, draw_samples, find_derivatives, scale_weights
from metasilvae.training.boosting_tuning import BaseBoostingTrainer, Candidate, Rows, Stopped, find_base
from metasilvae.training.checkpoint.files import damaged, take
from metasilvae.training.first_tree import FirstTree, search_tree
from metasilvae.training.options import FEW_SAMPLES, LARGEST, SEARCHED_FOR, BoostingOptions
from metasilvae.training.protocol import Progress, StopReason
from metasilvae.training.samples import build_tree, find_doubled, give_directions
from metasilvae.training.shifted_rows import N_COPIES, refuse_unshiftable, repeat_weights, shift_rows

# Passes that fit the scores of a first tree that was searched for.
FIRST_FITS = 5
NO_COLUMNS = np.zeros(0, dtype=np.int32)


def code_rows(rows: Rows, tests: Tests, size: ImageSize | None, jobs: int | None) -> Codes:
    """Codes of samples; if they are images to be shifted, of all of them and then of each kind of copies."""
    if size is None:
        return tests.code(rows.dataset, rows.boxes, jobs)
    parts = (tests.code(*each, jobs) for each in shift_rows(rows.dataset, rows.boxes, size))
    return Codes.joined(parts, N_COPIES * rows.dataset.n_samples)


@dataclass(frozen=True)
class CodedRows:
    """Thresholds, and the codes of samples to learn from and of samples to test on, if there are any.

    Attributes
    ----------
    factor : float
        The boxes of the samples to learn from are multiplied by it.
    first : BoostedTree or None
        Splits of the first round, without scores.
    """

    factor: float
    tests: Tests
    learned: Codes
    tested: Codes | None
    first: BoostedTree | None = None

    @classmethod
    def of(
        cls, learned: Rows, tested: Rows | None, options: BoostingOptions, jobs: int | None,
        first: FirstTree | None = None,
    ) -> CodedRows:  # fmt: skip
        factor = options.tree.training_epsilon_factor
        enlarged = learned.enlarged(factor)
        thresholds = choose_thresholds(learned.dataset.X, enlarged.boxes, options.thresholds, options.tree.seed, jobs)
        doubled = find_doubled(learned.dataset, enlarged.boxes)
        if first is not None:
            thresholds = first.add_thresholds(thresholds, doubled, options.thresholds)
        tests = Tests.of(thresholds, doubled)
        return cls(
            factor,
            tests,
            code_rows(enlarged, tests, options.image_size, jobs),
            None if tested is None else tests.code(tested.dataset, tested.boxes, jobs),
            None if first is None else first.coded(tests),
        )


class Booster:
    """The rounds of a boosted model, without clock and checkpoints.

    Parameters
    ----------
    learned, tested : Dataset
        Samples to learn from; samples to test on, or None.
    coded : CodedRows
        Their codes.
    options : BoostingOptions
    pool : Executor or None
        Threads for the trees of a round, or for the features of a single one.
    jobs : int
        Number of these threads.
    """

    def __init__(
        self,
        learned: Dataset,
        tested: Dataset | None,
        coded: CodedRows,
        options: BoostingOptions,
        pool: futures.Executor | None = None,
        jobs: int = 1,
    ) -> None:
        self._options = options
        self._coded = coded
        self._pool, self._jobs = pool, jobs
        self.base = find_base(learned.y, learned.n_labels, learned.weights)
        # Shifted images follow the samples that they are copies of.
        n_copies = coded.learned.n_samples // learned.n_samples
        weights = repeat_weights(learned.weights, n_copies)
        self.learned = Scores(coded.learned, np.tile(learned.y, n_copies), self.base, weights)
        self.tested: Scores | None = None
        if tested is not None and coded.tested is not None:
            self.tested = Scores(coded.tested, tested.y, self.base, tested.weights)
        self.rounds: list[list[BoostedTree]] = []
        tree = options.tree
        _, self._divisor = scale_weights(weights)
        self._limits = GrowthLimits(tree.max_depth, tree.min_samples_leaf, options.score_penalty / self._divisor)
        # Features without thresholds cannot be tested.
        self._features = np.flatnonzero(coded.learned.n_thresholds).astype(np.int32)

    def grow_round(self, is_stopped: Callable[[], bool] = lambda: False) -> list[BoostedTree]:
        """The trees of the next round; its random draws depend on the seed and on its number alone."""
        if not self.rounds and self._coded.first is not None:
            return self._fit_first(self._coded.first, is_stopped)
        losses = find_derivatives(self.learned, self._options.loss_weights, self._options.tolerance)
        grow = partial(self._grow, number=len(self.rounds), losses=losses, is_stopped=is_stopped)
        columns = range(len(losses))
        if self._pool is None or len(losses) == 1:
            return [grow(column) for column in columns]
        return list(self._pool.map(grow, columns))

    def _grow(
        self, column: int, number: int, losses: Sequence[Derivatives], is_stopped: Callable[[], bool]
    ) -> BoostedTree:
        options, scores = self._options, self.learned
        rng = np.random.default_rng(np.random.SeedSequence(options.tree.seed, spawn_key=(number, column)))
        n_samples, whole = len(scores.y), losses[column]
        fraction = options.rows_per_tree(n_samples)
        codes, loss, is_positive = self._coded.learned, whole, self._is_positive(column)
        limits = self._limits
        if fraction < 1:
            rows, loss, divisor = draw_samples(whole, fraction, rng)
            limits = replace(limits, penalty=limits.penalty / divisor)
            codes, loss, is_positive = codes.take(rows), loss.take(rows), is_positive[rows]
        n_drawn = min(len(self._features), options.features_per_level(len(self._features)))

        def draw_features(level: int) -> IntArray:
            return np.sort(rng.permutation(self._features)[:n_drawn])

        divide = self._divide if len(losses) == 1 else one_part
        rows = np.arange(codes.n_samples, dtype=np.int32)
        tree = grow_tree(codes, loss, is_positive, rows, draw_features, limits, divide, is_stopped)
        if not is_stopped():
            tree = polish_tree(tree, self._coded.learned, whole, self._is_positive(column), self._limits.penalty)
        return tree.scaled(options.learning_rate)

    def _fit_first(self, splits: BoostedTree, is_stopped: Callable[[], bool]) -> list[BoostedTree]:
        """The first round with given splits: the same ones for each label, with scores that are fitted repeatedly."""
        saved = self.save()
        self.add_round([splits] * len(self.base))
        for _ in range(FIRST_FITS):
            if not self.refit(is_stopped):
                break
        trees = self.rounds[0]
        self.restore(saved)
        return trees

    def refit(self, is_stopped: Callable[[], bool] = lambda: False) -> bool:
        """Fit the leaves of all trees again, one round after another; returns whether it came to its end."""
        penalty = self._options.penalty_of_refits / self._divisor
        for number, trees in enumerate(self.rounds):
            if is_stopped():
                return False
            losses = find_derivatives(self.learned, self._options.loss_weights, self._options.tolerance)
            self.rounds[number] = self._over_columns(
                partial(self._refit, trees=trees, losses=losses, penalty=penalty), len(trees)
            )
        return True

    def _refit(
        self, column: int, trees: Sequence[BoostedTree], losses: Sequence[Derivatives], penalty: float
    ) -> BoostedTree:
        """Fit the leaves of a tree again, and exchange its scores; derivatives and scores of other labels stay."""
        tree, codes = trees[column], self._coded.learned
        reached = ReachedTree(tree, codes, self._is_positive(column))
        other = reached.refitted(losses[column], penalty).scaled(1.0)
        for scores in self._all_scores:
            if scores.codes is codes and codes.exact is None:
                scores.change(reached.scores_of(other) - reached.scores_of(tree), column)
            else:
                scores.exchange(tree, other, column)
        return other

    def _is_positive(self, column: int) -> NDArray[np.bool_]:
        """Samples of the label that the trees of a column score."""
        return np.asarray(self.learned.y == (1 if len(self.base) == 1 else column))

    @property
    def _all_scores(self) -> list[Scores]:
        return [scores for scores in (self.learned, self.tested) if scores is not None]

    def _over_columns(self, work: Callable[[int], Any], n_columns: int) -> list[Any]:
        return list((self._pool.map if self._pool is not None else map)(work, range(n_columns)))

    def _divide(self, work: Callable[[int, int], object], n_items: int) -> None:
        n_parts = min(n_items, 2 * self._jobs)
        if self._pool is None or self._jobs == 1 or n_parts < 2:
            work(0, n_items)
            return
        bounds = [n_items * part // n_parts for part in range(n_parts + 1)]
        list(self._pool.map(work, bounds[:-1], bounds[1:]))

    def add_round(self, trees: list[BoostedTree]) -> None:
        """Add the trees of a round to the scores."""
        self.rounds.append(trees)
        for scores in self._all_scores:
            self._over_columns(lambda column, scores=scores: scores.add(trees[column], column), len(trees))  # type: ignore[misc]

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of leaves and of trees; before the first round there is a leaf for each score."""
        trees = [tree for trees in self.rounds for tree in trees]
        return sum(tree.n_leaves for tree in trees) or len(self.base), len(trees)

    def save(self) -> tuple[list[list[BoostedTree]], list[list[FloatArray]]]:
        """What `restore` takes back."""
        return list(self.rounds), [[part.copy() for part in scores.sums] for scores in self._all_scores]

    def restore(self, saved: tuple[list[list[BoostedTree]], list[list[FloatArray]]]) -> None:
        self.rounds = saved[0]
        for scores, sums in zip(self._all_scores, saved[1], strict=True):
            scores.own, scores.lowest, scores.highest = sums


def make_model(
    rounds: Sequence[Sequence[BoostedTree]], base: FloatArray, tests: Tests | None, dataset: Dataset
) -> Model:
    """The forest of all trees; the first round holds the base scores too."""
    single = np.array([-1], dtype=np.int32)
    blank = [BoostedTree(single, single, single, single, np.zeros(1)) for _ in base]
    n_features, labels = dataset.n_features, dataset.labels
    models = []
    for number, trees in enumerate(rounds or [blank]):
        for column, tree in enumerate(trees):
            columns, directions, value = (tests or Tests.of([], NO_COLUMNS)).read(tree)
            values = np.zeros((len(value), len(labels)))
            values[:, 1 if len(base) == 1 else column] = value + (base[column] if number == 0 else 0.0)
            model = build_tree(columns, values, n_features, labels, LeafKind.SCORES, directions)
            if directions is not None:
                leaves = find_leaves(model, dataset.X)[:, 0]
                model = give_directions(model, np.bincount(leaves, minlength=model.n_leaves))
            models.append(model)
    return join_trees(models)


# Candidates of tuning. The first one is the best one on average, and each of the next three was the best one on some of
# the paper's sets, by validation on parts of the training splits. The last two are for noisy labels,
# and for labels that depend on features together. Score penalties are multiples of that of the options.
CANDIDATES: tuple[Candidate, ...] = (
    {"max_depth": 8, "robust_weight": 0.25, "tolerance": 0.5, "score_penalty": 1.0},
    {"max_depth": 8, "robust_weight": 0.1, "tolerance": 1.0, "score_penalty": 1.0},
    {"max_depth": 8, "robust_weight": 0.0, "tolerance": 1.0, "score_penalty": 1.0},
    {"max_depth": 8, "robust_weight": 0.5, "tolerance": 0.0, "score_penalty": 1.0},
    {"max_depth": 6, "robust_weight": 0.25, "tolerance": 0.5, "score_penalty": 20.0},
    {"max_depth": 8, "robust_weight": 0.25, "tolerance": 0.5, "score_penalty": 1.0, "first_tree": SEARCHED_FOR},
)
# The same for few samples, by cross-validation on the sets of scripts/bench_generalization.py and others.
CANDIDATES_IF_FEW: tuple[Candidate, ...] = (
    {"max_depth": 4, "robust_weight": 0.12, "tolerance": 0.0, "score_penalty": 1.0},
    {"max_depth": 2, "robust_weight": 0.45, "tolerance": 0.0, "score_penalty": 1.0},
    {"max_depth": 6, "robust_weight": 0.12, "tolerance": 0.0, "score_penalty": 10.0},
    {"max_depth": 2, "robust_weight": 1.0, "tolerance": 0.0, "score_penalty": 1.0},
    {"max_depth": 4, "robust_weight": 0.35, "tolerance": 1.0, "score_penalty": 1.0},
    {"max_depth": 4, "robust_weight": 0.12, "tolerance": 0.0, "score_penalty": 1.0, "first_tree": SEARCHED_FOR},
)
# Rounds of a trial.
TRIAL_ROUNDS = 60
# What fitting the leaves again gains on the paper's sets, whose many rows leave nothing to overfit.
REFIT_GAIN = 0.004
# Rounds of the first candidate before tuning, for users who stop early. They are kept if tuning chooses it.
EARLY_ROUNDS = 5


def list_candidates(options: BoostingOptions, n_rows: int) -> tuple[Candidate, ...]:
    """The candidates for so many rows; of those that the weights make equal, the first one."""
    found: dict[tuple[Any, ...], Candidate] = {}
    for usual in CANDIDATES_IF_FEW if n_rows <= FEW_SAMPLES else CANDIDATES:
        candidate = {**usual, "score_penalty": min(usual["score_penalty"] * options.score_penalty, LARGEST)}
        weights = options.with_candidate(candidate).loss_weights
        found.setdefault((weights, *(usual[name] for name in usual if name != "robust_weight")), candidate)
    return tuple(found.values())


def follow_candidate(
    learned: Dataset,
    tested: Dataset,
    coded: CodedRows,
    options: BoostingOptions,
    n_rounds: int,
    refits: bool,
    is_stopped: Stopped,
) -> FloatArray:
    """Lower bound of the fitness on the samples to test on, after each round; NaN if it was stopped.

    If asked for, the fitness after fitting the leaves again in one pass follows.
    """
    booster = Booster(learned, tested, coded, options)
    fitness = options.tree.fitness
    curve = np.full(n_rounds + refits, np.nan)
    for number in range(len(curve)):
        if number == n_rounds:
            booster.refit(is_stopped)
        else:
            booster.add_round(booster.grow_round(is_stopped))
        if is_stopped():
            break
        assert booster.tested is not None
        curve[number] = fitness.value(*booster.tested.fractions)
    return curve


class BoostingTrainer(BaseBoostingTrainer):
    """Training of a boosted model; see `BaseBoostingTrainer` for its parameters.

    Without held-out rows the model consists of all rounds so far; with them, of the rounds up to the best fitness on
    these rows. Before the first round it is a single leaf with the class frequencies. After the last round the leaves
    of the trees that the model consists of are fitted again, as long as held-out rows do not lose by it. While
    candidates are tried, it consists of a few rounds of the first one.
    """

    def __init__(
        self, dataset: Dataset, perturbation: Perturbation, options: BoostingOptions, jobs: int | None = 1
    ) -> None:
        super().__init__(dataset, perturbation, options, jobs)
        if options.image_size is not None:
            refuse_unshiftable(self.dataset, self._learned.boxes, options.image_size)
        self._booster: Booster | None = None
        self._coded: CodedRows | None = None
        # Codes of splits with a training-epsilon factor, as long as candidates are tried.
        self._coded_splits: dict[tuple[int, float], CodedRows] = {}
        self._first: FirstTree | None = None
        self._known: list[list[BoostedTree]] = []
        # Rounds of the first candidate from before tuning.
        self._early: list[list[BoostedTree]] = []
        # Passes after the last round. From the first one on, the model consists of all rounds.
        self._n_refits = options.refits_for(len(self._rows))
        self._n_refitted = 0
        self._has_lost_patience = False

    @property
    def n_steps(self) -> int:
        return super().n_steps + self._n_refits

    @property
    def tuning(self) -> dict[str, Any] | None:
        found = super().tuning
        if found is not None and self._tries_refits:
            found["chosen"]["refits"] = self._n_refits
        return found

    @property
    def _n_kept(self) -> int:
        """Rounds of the best model so far."""
        if self._n_refitted:
            assert self._booster is not None
            return len(self._booster.rounds)
        if self._held is not None:
            return int(np.argmax(self._held_fitness)) if self._held_fitness else 0
        if not self._fitness or self._fitness[-1] < self._fitness[0]:
            return 0
        return len(self._fitness) - 1

    @property
    def model(self) -> Model:
        if self._booster is None or self._coded is None:
            rows = self._learned.dataset
            return make_model([], find_base(rows.y, rows.n_labels, rows.weights), None, self.dataset)
        return make_model(self._booster.rounds[: self._n_kept], self._booster.base, self._coded.tests, self.dataset)

    @property
    def held_out_fitness(self) -> float | None:
        """Lower bound of the fitness on the held-out rows, if there are any."""
        if self._held is None:
            return None
        if not self._held_fitness:
            self._make_booster()
        return self._held_fitness[-1 if self._n_refitted else self._n_kept]

    @property
    def state(self) -> dict[str, Any]:
        rounds = self._known if self._booster is None else self._booster.rounds
        if self._needs_first_tree:
            rounds = []
        return {
            **super().state,
            "refits": self._n_refitted,
            "patience": self._has_lost_patience,
            "first": None if self._first is None else self._first.state,
            "trees": pack_trees([tree for trees in rounds for tree in trees]),
        }

    def resume(self, document: dict[str, Any]) -> None:
        super().resume(document)
        trees = unpack_trees(take(document, "trees", dict))
        n_columns = 1 if self.dataset.n_labels == 2 else self.dataset.n_labels
        if len(trees) % n_columns or len(trees) > n_columns * self._n_rounds:
            raise damaged("there are more trees than there should be")
        self._known = [trees[start : start + n_columns] for start in range(0, len(trees), n_columns)]
        self._choose_refits()
        if document.get("first") is not None:
            self._first = FirstTree.read(take(document, "first", dict), self.dataset.n_features)
        self._n_refitted = take(document, "refits", int)
        if self._n_refitted > self._n_refits:
            raise damaged("the leaves were fitted too often")
        self._has_lost_patience = take(document, "patience", bool)

    # Parts of the run

    def _list_candidates(self) -> tuple[Candidate, ...]:
        return list_candidates(self.boosting_options, len(self._rows))

    @property
    def _tries_refits(self) -> bool:
        """Whether tuning decides if leaves are fitted again."""
        options = self.boosting_options
        return options.refits is None and options.refits_for(len(self._rows)) > 0

    @property
    def _n_trial_rounds(self) -> int:
        return min(TRIAL_ROUNDS, self.boosting_options.n_rounds)

    @property
    def _n_followed(self) -> int:
        return self._n_trial_rounds + self._tries_refits

    @property
    def _round_curves(self) -> FloatArray:
        return self._curves[:, :, : self._n_trial_rounds]

    def _choose(self) -> None:
        super()._choose()
        self._choose_refits()

    def _choose_refits(self) -> None:
        """Fit no leaves again if the trials of the chosen candidate let expect a loss by it, as with noisy labels."""
        if self.candidate is None or not self._tries_refits or self._plan_trials():
            return
        curves = self._curves[self._candidates.index(self.candidate)]
        gain = float((curves[:, -1] - curves[:, -2]).mean())
        # Overfitting shrinks as rows are added, and there are more of them than in the trials.
        fraction = len(self._splits[0][0]) / len(self._rows)
        if REFIT_GAIN - (REFIT_GAIN - gain) * fraction < 0:
            self._n_refits = 0

    def _rounds_for_all_rows(self, n_rounds: int) -> int:
        if self._n_tuning_rows == len(self._rows):
            return n_rounds
        # A part of the rows overfits earlier than all of them.
        return math.ceil(n_rounds * len(self._rows) / len(self._splits[0][0]))

    def _plan_trial(self, options: BoostingOptions, split: int) -> Callable[[Stopped], FloatArray]:
        learned, tested = (self._learned.subset(rows) for rows in self._splits[split])
        if options.first_tree == SEARCHED_FOR:
            return partial(self._follow_searched, learned, tested, options)
        key = split, options.tree.training_epsilon_factor
        if key not in self._coded_splits:
            self._coded_splits[key] = CodedRows.of(learned, tested, options, self._jobs)
        coded = self._coded_splits[key]
        return partial(
            follow_candidate, learned.dataset, tested.dataset, coded, options, self._n_trial_rounds, self._tries_refits
        )

    @property
    def _needs_first_tree(self) -> bool:
        """Whether a tree has to be searched for before the first round."""
        return self.boosting_options.first_tree == SEARCHED_FOR and self._first is None

    def _start_tuning(self, pool: futures.Executor) -> Booster:
        booster = self._replay(self._known, pool, self.boosting_options.with_candidate(self._candidates[0]))
        n_known, self._known = len(self._known), []
        for _ in range(n_known, min(EARLY_ROUNDS, self._n_rounds)):
            trees = booster.grow_round(self._is_over)
            if self._is_over():
                break
            booster.add_round(trees)
            self._note(booster)
        return booster

    def _follow_searched(
        self, learned: Rows, tested: Rows, options: BoostingOptions, is_stopped: Stopped
    ) -> FloatArray:
        """The curve of a candidate whose first tree is searched for."""
        first = search_tree(learned.dataset, self.perturbation, options, is_stopped, is_trial=True)
        if first is None:
            return np.full(self._n_followed, np.nan)
        coded = CodedRows.of(learned, tested, options, 1, first)
        return follow_candidate(
            learned.dataset, tested.dataset, coded, options, self._n_trial_rounds, self._tries_refits, is_stopped
        )

    def _forget_booster(self) -> None:
        if self._booster is not None and self.candidate == self._candidates[0]:
            self._early = self._booster.rounds
        self._coded_splits = {}
        # Until the first tree is found, the model is still that of the first candidate.
        if not self._needs_first_tree:
            self._booster = None

    def _make_booster(self, pool: futures.Executor | None = None, options: BoostingOptions | None = None) -> Booster:
        """A model without rounds, and its fitness; without options, by those of the run."""
        options = options or self.boosting_options
        first = self._first if options.first_tree == SEARCHED_FOR else None
        is_known = self._coded is not None and (self._coded.first is None) == (first is None)
        if self._coded is None or not is_known or options.tree.training_epsilon_factor != self._coded.factor:
            self._coded = CodedRows.of(self._learned, self._held, options, self._jobs, first)
        tested = None if self._held is None else self._held.dataset
        self._booster = Booster(self._learned.dataset, tested, self._coded, options, pool, self._jobs)
        self._fitness, self._held_fitness = [], []
        self._note(self._booster)
        return self._booster

    def _boost(self, pool: futures.Executor) -> Iterator[Progress]:
        if self._needs_first_tree:
            self._first = search_tree(self._learned.dataset, self.perturbation, self.boosting_options, self._is_over)
            if self._first is None:
                return
        booster = self._replay(self._known, pool)
        n_known, self._known = len(self._known), []
        for step in range(n_known, 0 if self._n_refitted else self._n_rounds):
            if self._is_finished():
                break
            trees = self._early[step] if step < len(self._early) else booster.grow_round(self._is_over)
            if self.stop_reason is not None:
                return
            booster.add_round(trees)
            self._note(booster)
            self._n_reported += 1
            yield self._report("round", step, booster)
        # Passes that fit the leaves again do not look at the target; neither does a run that goes on between them.
        if self._n_refitted or not self._is_finished() or self._has_lost_patience:
            yield from self._refit(pool)
        if self._has_lost_patience:
            self._end(StopReason.PATIENCE)

    def _is_finished(self) -> bool:
        """Whether no other round follows, apart from their number; all but lost patience ends the run too."""
        if self._is_over():
            return True
        if self._fitness[-1] >= self.options.target:
            self._end(StopReason.TARGET)
            return True
        patience = self.options.patience
        if patience and self._held is not None and len(self._held_fitness) - 1 - self._n_kept >= patience:
            self._has_lost_patience = True
        return self._has_lost_patience

    def _replay(
        self, rounds: Sequence[list[BoostedTree]], pool: futures.Executor, options: BoostingOptions | None = None
    ) -> Booster:
        """A model with given rounds, and its fitness after each of them."""
        booster = self._make_booster(pool, options)
        for trees in rounds:
            self._check_fits(trees)
            booster.add_round(trees)
            self._note(booster)
        return booster

    def _refit(self, pool: futures.Executor) -> Iterator[Progress]:
        """Fit the leaves of the model again, as long as held-out rows do not lose by it."""
        whole, fitness, held_fitness = self._booster, self._fitness, self._held_fitness
        assert whole is not None
        if not self._n_kept or self._n_refitted == self._n_refits:
            return
        booster = whole if self._n_kept == len(whole.rounds) else self._replay(whole.rounds[: self._n_kept], pool)
        for step in range(self._n_refitted, self._n_refits):
            saved, known = booster.save(), (self._fitness, self._held_fitness)
            self._fitness, self._held_fitness = list(self._fitness), list(self._held_fitness)
            is_complete = not self._is_over() and booster.refit(self._is_over)
            if is_complete:
                self._note(booster)
            if not is_complete or (self._held is not None and self._held_fitness[-1] < self._held_fitness[-2]):
                booster.restore(saved)
                self._fitness, self._held_fitness = known
                break
            self._n_refitted += 1
            self._n_reported += 1
            yield self._report("refit", step, booster)
        if not self._n_refitted:
            self._booster, self._fitness, self._held_fitness = whole, fitness, held_fitness

    def _check_fits(self, trees: Sequence[BoostedTree]) -> None:
        assert self._coded is not None
        n_thresholds = self._coded.learned.n_thresholds
        for tree in trees:
            inner = tree.feature >= 0
            features = tree.feature[inner]
            if (features >= len(n_thresholds)).any() or (tree.code[inner] >= n_thresholds[features]).any():
                raise damaged("a test is not one of these features")
