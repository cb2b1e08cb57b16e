"""Tuning of a forest: small forests and a single tree on parts of the rows choose how the forest is trained.

The candidates are those of `CANDIDATES`, a forest of trees that are regularized as tuning does it for a single tree,
and that single tree. If the tree is ahead on the rows left out, it is the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import (
    FOLDS_IF_MANY,
    CrossValidation,
    choose_kind,
    plan_cross_validation,
    split_into_blocks,
    split_into_folds,
)
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.forest_growth import grow_forest, grow_tree
from metasilvae.training.forest_votes import GrowingForest
from metasilvae.training.options import FEW_SAMPLES, SINGLE, ForestOptions, TrainingOptions
from metasilvae.training.protocol import TrainerGroup
from metasilvae.training.trials import (
    CLEAR_ERRORS,
    FACTORS,
    QuickTrees,
    Scores,
    choose_candidate,
    compare,
    list_factors,
)
from metasilvae.training.tuning import USUAL, TreeTuning

# Each candidate was the best one on some sets, by validation on parts of the training splits.
CANDIDATES: tuple[dict[str, Any], ...] = (
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 1.0, "strength": 0.2},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.5, "focus": 1.0, "strength": 0.5},
    {"blends": (0.1,), "training_epsilon_factor": 1.0, "robust_weight": 0.1, "focus": 0.1, "strength": 0.2},
    {"blends": (0.0,), "training_epsilon_factor": 1.0, "robust_weight": 0.0, "focus": 0.1, "strength": 0.5},
    {"blends": (0.3,), "training_epsilon_factor": 1.15, "robust_weight": 0.2, "method": "independent"},
)
# The same for few samples: reweighted trees, which are better than independent ones on most sets. The second kind is
# better where there are many classes, and worse where labels are noisy.
CANDIDATES_IF_FEW: tuple[dict[str, Any], ...] = (
    {"training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 1.0, "strength": 0.2, "method": "reweighted"},
    {"training_epsilon_factor": 1.15, "robust_weight": 0.2, "focus": 0.5, "strength": 0.5, "method": "reweighted"},
)
# Of many samples, the trees of a split are grown on this fraction, but on so many at least and at most, and tested on
# so many. Accurate trees gain more by samples than robust ones, so that too few of them would favour the latter.
GROWN_FRACTION = 1 / 8
GROWN_SAMPLES = 2000, 6000
TESTED_SAMPLES = 4000
# Number of random splits of many samples; blocks cover all samples.
SPLITS_IF_MANY = 3
# Number of splits on which all candidates are tried; the leading ones are tried on the others, too.
FIRST_SPLITS = 1
# A forest of another kind than the first is chosen if its gain exceeds so many standard errors. With many samples there
# are fewer splits, but more rows to test on.
CLEAR_ERRORS_IF_MANY = 1.0
# After so many splits the race ends if all differences exceed so many standard errors.
FEWEST_SPLITS = 3
OBVIOUS_ERRORS = 3.0
# Number of splits that compare a forest that is not tuned with a tree.
PLAIN_SPLITS = 3
# The first candidate, the best one and the single tree.
MOST_FINALISTS = 3
# Trees of the forest of a trial; an odd number, because votes of two classes must not tie. If nothing but a forest and
# a tree are compared, votes of many classes get more trees, as they need them.
TRIAL_TREES = 9
MORE_TRIAL_TREES = 15
MANY_LABELS = 5
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
    if may_be_single(options):
        found.append({**tuned, "method": SINGLE})
    return found


def may_be_single(options: ForestOptions) -> bool:
    """Whether the result may be a single tree. A job that grows a part of the trees must not decide that."""
    return options.single is not None and options.numbers is None and options.n_trees > 1


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
        pairs = [(rows[kept], rows[held]) for kept, held in planned.pairs[: planned.n_first]]
        return replace(planned, pairs=pairs, n_first=min(FIRST_SPLITS, len(pairs)))
    chosen = choose_kind(learned, kind)
    rng = np.random.default_rng([seed, 4])
    y = learned.y
    n_grown = int(np.clip(GROWN_FRACTION * len(rows), *GROWN_SAMPLES))
    n_folds = SPLITS_IF_MANY if chosen == "random" else FOLDS_IF_MANY
    folds = split_into_folds(y, n_folds, rng) if chosen == "random" else split_into_blocks(y, n_folds)
    pairs = [
        (
            np.sort(rng.permutation(rows[folds != fold])[:n_grown]),
            np.sort(rng.permutation(rows[folds == fold])[:TESTED_SAMPLES]),
        )
        for fold in range(n_folds)
    ]
    n_rows = len(np.unique(np.concatenate([*map(np.concatenate, pairs)])))
    return CrossValidation(pairs, FIRST_SPLITS, chosen, n_rows)


def plan_race(
    learned: Dataset, perturbation: Perturbation, options: ForestOptions, rows: NDArray[np.intp]
) -> ForestRace | None:
    """The race that tunes a forest, without the candidates that follow from the tuning of a tree.

    A forest that is not tuned may be compared with a single tree. None if nothing is to be decided.

    Parameters
    ----------
    learned : Dataset
        The samples of the given rows.
    """
    tree = options.tree
    if tree.tune and tree.greedy:
        candidates = list_candidates(options, len(rows), list_factors(learned, perturbation))
        n_errors = CLEAR_ERRORS if len(rows) <= FEW_SAMPLES else CLEAR_ERRORS_IF_MANY
        return ForestRace(candidates, plan_tuning_splits(learned, rows, tree.seed, tree.split), n_errors)
    if may_be_single(options):
        planned = plan_tuning_splits(learned, rows, tree.seed, tree.split)
        pairs = planned.pairs[:PLAIN_SPLITS]
        candidates = [{"method": "reweighted"}, {"method": SINGLE}]
        return ForestRace(candidates, replace(planned, pairs=pairs, n_first=len(pairs)))
    return None


class ForestRace:
    """The candidates, their scores so far, and which trials come next.

    All candidates are tried on the first splits. The first one, the forest that is best there as long as it is ahead of
    the first one, and the single tree are tried on the others, until the choice is clear. What comes next depends on
    the scores alone, so that a race can be stored and continued between two trials.

    Parameters
    ----------
    candidates : list of dict
    validation : CrossValidation
    n_errors : float
        By how many standard errors another forest must be better than the first one.

    Attributes
    ----------
    scores : float64 array, shape (n_candidates, n_splits)
        Lower bounds of the fitness on the samples left out; NaN where a candidate was not tried.
    """

    def __init__(
        self, candidates: Sequence[dict[str, Any]], validation: CrossValidation, n_errors: float = CLEAR_ERRORS
    ) -> None:
        self.candidates: list[dict[str, Any]] = []
        self.validation = validation
        self._n_errors = n_errors
        self._n_known = 0
        self.scores: Scores = np.empty((0, len(validation.pairs)))
        self.add(candidates)

    def add(self, candidates: Sequence[dict[str, Any]], known: Sequence[float] = ()) -> None:
        """Add candidates that were not tried yet; scores of the last one that are known need no trials.

        They are those on the first splits, or on more splits than there are.
        """
        self.candidates += candidates
        n_known = min(len(known), self.scores.shape[1])
        self.scores = np.vstack([self.scores, np.full((len(candidates), self.scores.shape[1]), np.nan)])
        if n_known:
            self.scores[-1, :n_known] = known[:n_known]
            self._n_known += n_known

    @property
    def n_tried(self) -> int:
        """Number of trials so far."""
        return int(np.isfinite(self.scores).sum()) - self._n_known

    def count_trials(self, n_to_come: int = 0) -> int:
        """Number of trials, as far as it is known at most; `n_to_come` candidates will be added."""
        n_all, n_splits = len(self.candidates) + n_to_come, len(self.validation.pairs)
        n_first = self.validation.n_first
        if n_to_come or self._list_missing(range(n_all), range(n_first)):
            return n_all * n_first + min(n_all, MOST_FINALISTS) * (n_splits - n_first)
        trials = self.plan()
        if not trials:
            return self.n_tried
        latest = max(split for _, split in trials)
        to_come = self._list_missing(self._list_finalists(latest), range(latest + 1, n_splits))
        return self.n_tried + len(trials) + len(to_come)

    def plan(self) -> list[tuple[int, int]]:
        """The trials that come next, as numbers of candidate and split; none if the race is over."""
        if not self.scores.size:
            return []
        trials = self._list_missing(range(len(self.candidates)), range(self.validation.n_first))
        for split in range(self.validation.n_first, self.scores.shape[1]):
            finalists = [] if trials else self._list_finalists(split)
            if trials or self._is_clear(finalists, split):
                break
            trials = self._list_missing(finalists, [split])
        return trials

    @property
    def choice(self) -> int:
        """Number of the candidate to train with, by the splits on which all finalists were tried; without any, 0."""
        n_splits = self.validation.n_first
        if not self.scores.size or self._list_missing(range(len(self.candidates)), range(n_splits)):
            return 0
        finalists = self._list_finalists(n_splits)
        while n_splits < self.scores.shape[1] and not self._list_missing(finalists, [n_splits]):
            n_splits += 1
            finalists = self._list_finalists(n_splits)
        candidates = [self.candidates[each] for each in finalists]
        return finalists[choose_method(candidates, self.scores[finalists, :n_splits], self._n_errors)]

    def _list_finalists(self, n_splits: int) -> list[int]:
        """Numbers of the candidates that are in the race after so many splits."""
        n_forests, n_first = count_forests(self.candidates), self.validation.n_first
        best = int(np.argmax(self.scores[:n_forests, :n_first].mean(axis=1)))
        gains = self.scores[best] - self.scores[0]
        is_ahead = all(gains[:tried].mean() > 0 for tried in range(n_first, n_splits + 1))
        return [0, *([best] if is_ahead else []), *range(n_forests, len(self.candidates))]

    def _is_clear(self, finalists: list[int], n_splits: int) -> bool:
        """Whether more splits than these would hardly change the choice among the finalists."""
        n_forests = count_forests([self.candidates[each] for each in finalists])
        scores = self.scores[finalists, :n_splits]
        gains = scores[1:] - scores[0]
        if n_forests == 2:
            gains[1:] -= gains[0]
        mean, error = compare(gains)
        return not len(gains) or (n_splits >= FEWEST_SPLITS and bool((np.abs(mean) > OBVIOUS_ERRORS * error).all()))

    def describe(self) -> list[dict[str, Any]]:
        """Each candidate with its mean score, the standard error of that, and the number of splits."""
        found = []
        for candidate, scores in zip(self.candidates, self.scores, strict=True):
            known = scores[np.isfinite(scores)]
            mean, error = compare(known[None])
            facts = {"score": round(float(mean[0]), 6), "error": round(float(error[0]), 6), "splits": len(known)}
            found.append({**candidate, **facts})
        return found

    def _list_missing(self, numbers: Sequence[int], splits: Sequence[int]) -> list[tuple[int, int]]:
        return [(number, split) for number in numbers for split in splits if np.isnan(self.scores[number, split])]


def count_forests(candidates: Sequence[dict[str, Any]]) -> int:
    """Number of candidates that are forests; the single tree is the last one."""
    return sum(candidate.get("method") != SINGLE for candidate in candidates)


def choose_method(candidates: Sequence[dict[str, Any]], scores: Scores, n_errors: float = CLEAR_ERRORS) -> int:
    """Number of the candidate to train with: the best forest, unless the single tree is ahead of it.

    Parameters
    ----------
    scores : float64 array, shape (n_candidates, n_splits)
    n_errors : float
        By how many standard errors another forest must be better than the first one.
    """
    n_forests = count_forests(candidates)
    forest = choose_candidate(scores[:n_forests], n_errors)
    if len(candidates) == n_forests:
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
) -> tuple[dict[str, float], float, list[float]]:
    """What tuning chooses for a single tree; a task like `grow_tree`.

    Its leaf penalty for all rows comes with it and, of few rows, its scores on all its splits; the first of them are
    those on which forests are tried.
    """
    watched = group or TrainerGroup()
    tuning = TreeTuning(dataset.subset(rows), perturbation, options)
    while trials := tuning.race.plan():
        for trial in trials:
            scores = tuning.try_candidates(trial, watched)
            if watched.is_stopped:
                return dict(USUAL), USUAL["leaf_penalty"], []
            tuning.race.record(trial, scores)
    known: list[float] = []
    if len(rows) <= FEW_SAMPLES and tuning.validation.pairs:
        known = tuning.race.scores[tuning.race.choice].tolist()
    return tuning.winner, tuning.candidate["leaf_penalty"], known


def score_candidate(
    dataset: Dataset,
    perturbation: Perturbation,
    options: ForestOptions,
    kept: NDArray[np.intp],
    held: NDArray[np.intp],
    interact: bool = True,
    group: TrainerGroup | None = None,
) -> float:
    """Lower bound of the fitness of a small forest on the rows left out; a task like `grow_tree`.

    Parameters
    ----------
    interact : bool
        Whether to look for features that tell something only together.
    """
    watched = group or TrainerGroup()
    if options.is_single and options.tree.generations:
        # A search would take long. It mostly says the same, but not where columns tell something only together.
        chosen = options.tree
        quick = QuickTrees(
            dataset.subset(kept), dataset.subset(held), perturbation, chosen, chosen.training_epsilon_factor,
            interact=interact,
        )  # fmt: skip
        with watched.watching(quick):
            (score,) = quick.score([(chosen.robust_weight, chosen.leaf_penalty)])
        return math.nan if watched.is_stopped else score
    if dataset.n_labels < MANY_LABELS:
        # A search takes most of the time and hardly changes the choice. Small forests of many classes need it.
        options = replace(options, tree=replace(options.tree, generations=0))
    judged = GrowingForest(dataset.subset(held), perturbation)
    n_trees = TRIAL_TREES if options.tree.tune or dataset.n_labels < MANY_LABELS else MORE_TRIAL_TREES
    numbers = range(1 if options.is_single else min(options.n_trees, n_trees))
    growth = grow_forest(
        dataset, perturbation, options, kept, numbers,
        lambda tasks: (grow_tree(dataset, perturbation, task, watched) for task in tasks), lambda: math.inf,
        interact=interact,
    )  # fmt: skip
    for tree, _ in growth:
        if watched.is_stopped:
            return math.nan
        judged.add(tree)
    return options.tree.fitness.value(*judged.certainty.fractions)
