"""Trials of tuning: quick trees on parts of the rows, and the race of candidates that their scores decide.

A candidate is a combination of training-epsilon factor, robust weight and leaf penalty. Trees are grown once for each
split of the rows and each factor; all candidates with this factor prune and improve copies of them. Candidates are
dropped as soon as they are behind, and the last ones are tried on all splits. Each of the three options is then chosen
by scores that are averaged over candidates.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import MANY_SAMPLES, CrossValidation
from metasilvae.perturbations.boxes import Enlarged, Perturbation
from metasilvae.training.evolution import make_objective
from metasilvae.training.interactions import Interaction
from metasilvae.training.options import TrainingOptions
from metasilvae.training.population import list_interactions, plan_sizes, plan_starts
from metasilvae.training.protocol import TrainerGroup
from metasilvae.training.samples import as_model, draw_places, make_samples
from metasilvae.training.ties import settle_ties
from metasilvae.verification.metrics import evaluate

Scores = NDArray[np.float64]
# Fraction of the time limit that tuning may take.
TUNING_FRACTION = 0.3
# Values that candidates combine.
FACTORS = (1.0, 1.15)
ROBUST_WEIGHTS = (0.0, 0.2)
LEAF_PENALTIES = (0.5, 1.0, 2.0, 4.0, 8.0)
# With many samples, larger penalties can be told apart. A single leaf is always a candidate.
MORE_PENALTIES = (16.0,)
# A larger factor is not tried if it closes gaps between values of a feature that the perturbation respects, and this
# fraction of the rows lies at such gaps.
MOST_CLOSED = 0.1
# Rows that are looked at for this, at most.
GAP_ROWS = 4000
# How many steps of the leaf penalty around the best one are tried on all splits.
NEIGHBOURS = 1
# By how many standard errors a robust weight of 0, or a larger factor, must be better than the usual value.
WEIGHT_ERRORS = 1.0
FACTOR_ERRORS = 0.5
# By how many standard errors a single leaf must be better than a tree. Where samples are many, it may be a little
# worse; where they are few, scores of a tree have large errors, and a tree that is given up wrongly costs most.
LEAF_ERRORS_IF_MANY = -0.5
LEAF_ERRORS_IF_FEW = 0.5
# A gain over the first candidate of a forest is clear if it exceeds so many standard errors.
CLEAR_ERRORS = 2.0
# A chosen penalty from here on grows with the square root of the rows, because it is due to noise.
NOISE_PENALTY = 8.0
# Criteria by which the trees of a trial are grown.
TRIAL_BLENDS = (0.3, 0.1, 0.0, 1.0)
# Where trials take long, so many of them are used: the best ones on a split, with many samples on a part of it.
BLENDS_IF_MANY = 2
PART = 0.5
# Splits of the trees of a trial, if there are enough samples.
TRIAL_SPLITS = 128
# Passes of local search over the best tree of each candidate; with many samples, of each robust weight.
TRIAL_PASSES = 1


@dataclass(frozen=True)
class Trial:
    """Candidates to try on one split, by their numbers; they have the same training-epsilon factor."""

    split: int
    candidates: tuple[int, ...]


class CandidateRace(Protocol):
    """Candidates, their scores so far, and which trials come next; that depends on the scores alone.

    Attributes
    ----------
    scores : float64 array, shape (n_candidates, n_splits)
        Fitness on the samples left out; NaN where a candidate was not tried.
    """

    scores: Scores

    @property
    def n_most_trials(self) -> int:
        """Number of trials, at most."""

    def plan(self) -> list[Trial]:
        """The trials that come next, all independent of each other; none if the race is over."""

    def record(self, trial: Trial, scores: list[float]) -> None:
        """Note the scores of the candidates of a trial."""


class Selection(Protocol):
    """A choice of options for one tree before it is trained: tuning, or the quick choice.

    What is computed while the group is stopped is not to be used.
    """

    @property
    def validation(self) -> CrossValidation:
        """The splits of the samples."""

    @property
    def race(self) -> CandidateRace:
        """The candidates on these splits."""

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """Features that trees begin with."""

    @property
    def candidate(self) -> dict[str, Any]:
        """The values to train with, by fields of the options, once the race is over."""

    def prepare(self, group: TrainerGroup) -> None:
        """Work before the first trial."""

    def try_candidates(self, trial: Trial, group: TrainerGroup) -> list[float]:
        """The scores of a trial."""

    def list_blends(self, group: TrainerGroup) -> tuple[float, ...]:
        """Criteria of growth to train with."""

    def describe(self, group: TrainerGroup) -> dict[str, Any] | None:
        """What was chosen and by which scores, as JSON has it; None if nothing was."""


class QuickTrees:
    """Scores of candidates with one training-epsilon factor on one split.

    Parameters
    ----------
    learned, held_out : Dataset
        Rows to grow on, and rows to score by.
    perturbation : Perturbation
        The perturbation to score with; trees are trained with it times the factor.
    options : TrainingOptions
        Options of the run that is tuned.
    factor : float
        The training-epsilon factor.
    has_many : bool
        Whether the run has many samples, so that trials must be cheap.
    blends : tuple of float
        Criteria by which trees are grown.
    interact : bool
        Whether to look for features that tell something only together. It need not be tried on parts of the rows if
        there are none among all rows.
    """

    def __init__(
        self,
        learned: Dataset,
        held_out: Dataset,
        perturbation: Perturbation,
        options: TrainingOptions,
        factor: float,
        has_many: bool = False,
        blends: tuple[float, ...] = TRIAL_BLENDS,
        interact: bool = True,
    ) -> None:
        self._learned = learned
        self._held_out = held_out
        self._perturbation = perturbation
        self._has_many = has_many
        self._interact = interact
        self._options = replace(options, training_epsilon_factor=factor, blends=blends)
        self._objectives: list[Any] = []
        self._is_stopped = False

    def stop(self) -> None:
        """End the work under way; the scores are not to be used then."""
        self._is_stopped = True
        for objective in list(self._objectives):
            objective.stop()

    def score(self, candidates: Sequence[tuple[float, float]]) -> list[float]:
        """Fitness on the held-out rows for pairs of robust weight and leaf penalty."""
        boxes = Enlarged(self._perturbation, self._options.training_epsilon_factor).boxes(self._learned)
        samples = make_samples(self._learned, boxes)
        workspace = kernel.Workspace(samples)
        grown = self._grow(samples, workspace)
        found: dict[tuple[float, float], float] = {}
        known: dict[bytes, float] = {}
        for weight in dict.fromkeys(weight for weight, _ in candidates):
            trees = [kernel.Individual(samples).become(tree) for tree in grown]
            improved: list[Any] = []
            # Pruning for a larger penalty starts from what is left for a smaller one.
            for penalty in sorted(penalty for other, penalty in candidates if other == weight):
                objective = self._make_objective(weight, penalty, samples)
                for tree in (*trees, *improved):
                    tree.trim(objective, workspace)
                best = find_best(trees, objective)
                # With many samples local search takes long: what it finds for the smallest penalty has to do.
                if not self._has_many or not improved:
                    better = kernel.Individual(samples).become(best)
                    for _ in range(TRIAL_PASSES):
                        better.improve_locally(objective, workspace)
                    improved = [better]
                chosen = max((*improved, best), key=lambda tree: tree.fitness(objective))
                found[weight, penalty] = self._judge(chosen, known)
        return [found[candidate] for candidate in candidates]

    def _grow(self, samples: Any, workspace: Any) -> list[Any]:
        """One tree for each criterion, at least as large as those of an initial population."""
        objective = self._make_objective(0.0, 0.0, samples)
        largest = max(size for _, size in plan_sizes(samples.n_samples, self._options))
        # Trees of a search grow beyond their initial size, and small penalties must show what that costs.
        largest = min(max(largest, TRIAL_SPLITS), samples.n_samples // self._options.min_samples_leaf)
        largest = min(largest, self._options.max_leaves - 1)
        trees = []
        for impurity, blend in self._options.growth_criteria:
            tree = kernel.Individual(samples).become_leaf(workspace)
            if largest > 0:
                tree.grow(0, objective, workspace, by_score=False, reach=blend, impurity=impurity, n_splits=largest)
            trees.append(tree)
        interactions = list_interactions(self._learned, self._options) if self._interact else ()
        starts = plan_starts(interactions, samples, objective, self._options)
        return [*trees, *(start(workspace) for start in starts)]

    def _make_objective(self, weight: float, penalty: float, samples: Any) -> Any:
        options = replace(self._options, robust_weight=weight, leaf_penalty=penalty)
        objective = make_objective(options, self._learned, samples)
        self._objectives.append(objective)
        if self._is_stopped:
            objective.stop()
        return objective

    def _judge(self, tree: Any, known: dict[bytes, float]) -> float:
        model = settle_ties(as_model(tree, self._learned), self._learned)
        key = model.nodes.tobytes() + model.leaf_values.tobytes()
        if key not in known:
            evaluation = evaluate(model, self._held_out, [self._perturbation], jobs=1)[0]
            known[key] = evaluation.phi(self._options.fitness)
        return known[key]


def find_best(trees: Sequence[Any], objective: Any) -> Any:
    """The tree with the best score; of equal ones, the smallest."""
    return max(trees, key=lambda tree: (tree.fitness(objective), -tree.n_leaves))


def choose_blends(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions,
    known: Sequence[float] = TRIAL_BLENDS,
    share: float = PART,
    group: TrainerGroup | None = None,
) -> tuple[float, ...]:
    """The criteria of growth for trials that take long: those of the best trees on a share of the samples.

    Which criteria suit a data set hardly depends on the samples that are drawn, so that not every trial has to grow
    trees by all of them. If the group is stopped, the criteria are not to be used.
    """
    part = dataset
    if share < 1:
        order = np.random.default_rng([options.seed, 12]).permutation(dataset.n_samples)
        part = dataset.subset(np.sort(order[: math.ceil(share * dataset.n_samples)]))
    samples = make_samples(part, Enlarged(perturbation, 1.0).boxes(part))
    workspace = kernel.Workspace(samples)
    plain = make_objective(replace(options, robust_weight=0.0, leaf_penalty=0.0), part, samples)
    aims = [
        make_objective(replace(options, robust_weight=weight, leaf_penalty=LEAF_PENALTIES[0]), part, samples)
        for weight in list_robust_weights(options)
    ]
    scores = []
    with contextlib.ExitStack() as stack:
        for objective in (plain, *aims):
            stack.enter_context((group or TrainerGroup()).watching(objective))
        for blend in known:
            growth = kernel.GreedyGrowth(samples, plain, workspace, reach=blend, impurity=options.impurity)
            growth.extend(TRIAL_SPLITS, workspace)
            tree = growth.take(TRIAL_SPLITS, workspace)
            trimmed = [kernel.Individual(samples).become(tree) for _ in aims]
            for each, aim in zip(trimmed, aims, strict=True):
                each.trim(aim, workspace)
            scores.append(sum(each.fitness(aim) for each, aim in zip(trimmed, aims, strict=True)))
    best = np.argsort(-np.array(scores), kind="stable")[:BLENDS_IF_MANY]
    return tuple(known[place] for place in sorted(best))


def list_factors(dataset: Dataset, perturbation: Perturbation) -> list[float]:
    """The training-epsilon factors to try.

    Where a feature has few, evenly spaced values and boxes are just smaller than the steps, larger boxes would make
    rows unstable that are stable; see `MOST_CLOSED`.
    """
    boxes = Enlarged(perturbation, 1.0).boxes(dataset)
    radius_down, radius_up = boxes.arrays[2:4]
    if boxes.limit is not None:
        if boxes.limit.norm == "l0":
            return list(FACTORS[:1])
        with np.errstate(over="ignore"):
            largest = boxes.limit.epsilon / boxes.limit.costs
        radius_down, radius_up = np.minimum(radius_down, largest), np.minimum(radius_up, largest)
    X = dataset.X[draw_places(dataset.n_samples, GAP_ROWS)]
    allowed = np.array(FACTORS)
    with np.errstate(over="ignore"):
        widths = radius_down + radius_up
        for feature, width in enumerate(widths):
            values, counts = np.unique(X[~np.isnan(X[:, feature]), feature], return_counts=True)
            gaps = np.diff(values)
            at_gap = np.minimum(counts[1:], counts[:-1]) / len(X)
            is_closed = (gaps > width) & (gaps <= allowed[:, None] * width)
            allowed = allowed[is_closed @ at_gap < MOST_CLOSED]
    return [float(factor) for factor in allowed]


def list_robust_weights(options: TrainingOptions) -> list[float]:
    """The robust weights to try; they differ only if accuracy has a weight."""
    return list(ROBUST_WEIGHTS if options.fitness.weights[0] > 0 else ROBUST_WEIGHTS[:1])


@dataclass(frozen=True)
class Choice:
    """Positions of the chosen values of the three options."""

    factor: int
    weight: int
    penalty: int


class Race:
    """The candidates, their scores so far, and which trials come next.

    All candidates are tried on the first splits. Those with leaf penalties next to the best one, and the single leaf,
    are tried on the other splits, with larger factors only if these are ahead. What comes next depends on the scores
    alone, so that a race can be stored and continued between two trials.

    Parameters
    ----------
    factors : sequence of float
        Training-epsilon factors, 1 first.
    robust_weights : sequence of float
        Increasing.
    n_samples : int
        Number of samples of the run that is tuned. A leaf penalty of this size, which leaves a single leaf, is a
        candidate.
    n_splits, n_first : int
        Number of splits, and of those on which all candidates are tried.

    Attributes
    ----------
    candidates : list of dict
        Values of the three options for each candidate.
    scores : float64 array, shape (n_candidates, n_splits)
        Fitness on the samples left out; NaN where a candidate was not tried.
    """

    def __init__(
        self, factors: Sequence[float], robust_weights: Sequence[float], n_samples: int, n_splits: int, n_first: int
    ) -> None:
        self._has_many = n_samples > MANY_SAMPLES
        more = MORE_PENALTIES if self._has_many else ()
        penalties = (*LEAF_PENALTIES, *more, float(max(n_samples, 2 * LEAF_PENALTIES[-1])))
        self.candidates: list[dict[str, float]] = [
            {"training_epsilon_factor": factor, "robust_weight": weight, "leaf_penalty": penalty}
            for factor in factors
            for weight in robust_weights
            for penalty in penalties
        ]
        self._shape = len(factors), len(robust_weights), len(penalties)
        self.scores: Scores = np.full((len(self.candidates), n_splits), np.nan)
        self._n_first = n_first

    @property
    def n_most_trials(self) -> int:
        """Number of trials, at most."""
        return self._shape[0] * int(self.scores.shape[1])

    def plan(self) -> list[Trial]:
        """The trials that come next, all independent of each other; none if the race is over."""
        n_splits = self.scores.shape[1]
        if not n_splits:
            return []
        missing = self._list_missing(range(len(self.candidates)), range(self._n_first))
        return missing or self._list_missing(self._list_finalists(), range(n_splits))

    def record(self, trial: Trial, scores: list[float]) -> None:
        self.scores[list(trial.candidates), trial.split] = scores

    @property
    def choice(self) -> int:
        """The number of the candidate to train with, by the finalists' scores on all splits.

        The best of many candidates is mostly the luckiest one, so that it is not simply taken. Each of the three
        options has an effect of its own, which is measured with a smaller error by scores that are averaged over the
        others.
        """
        axes = self._shortlist()
        scores = self.scores[self._list_finalists()].reshape(*map(len, axes), -1)
        found = choose_values(scores, LEAF_ERRORS_IF_MANY if self._has_many else LEAF_ERRORS_IF_FEW)
        places = axes[0][found.factor], axes[1][found.weight], axes[2][found.penalty]
        return int(np.ravel_multi_index(places, self._shape))

    def describe(self) -> list[dict[str, Any]]:
        """Each finalist with its mean score, the standard error of that, and its mean difference from the choice."""
        finalists = self._list_finalists()
        scores = self.scores[finalists]
        mean, error = compare(scores)
        behind, behind_error = compare(scores - self.scores[self.choice])
        columns = {"score": mean, "error": error, "difference": behind, "difference_error": behind_error}
        return [
            {**self.candidates[number], "splits": scores.shape[1]}
            | {name: round(float(column[place]), 6) for name, column in columns.items()}
            for place, number in enumerate(finalists)
        ]

    def describe_choice(self) -> dict[str, Any]:
        """Mean score of the choice, its standard error and the number of splits."""
        mean, error = compare(self.scores[[self.choice]])
        return {"score": round(float(mean[0]), 6), "error": round(float(error[0]), 6), "splits": self.scores.shape[1]}

    def _shortlist(self) -> tuple[list[int], list[int], list[int]]:
        """Positions of the values that are tried on all splits.

        By the first splits: the penalties next to the best one, all weights, and the factors that are not behind. The
        single leaf takes no time.
        """
        n_factors, n_weights, n_penalties = self._shape
        scores = self.scores[:, : self._n_first].reshape(*self._shape, -1)
        # Many samples need not be tried again where a single leaf is ahead; of few, the first splits say little.
        found = choose_values(scores, LEAF_ERRORS_IF_MANY if self._has_many else None)
        leaf = n_penalties - 1
        penalties = list(range(max(0, found.penalty - NEIGHBOURS), min(leaf, found.penalty + NEIGHBOURS + 1)))
        penalties.append(leaf)
        means = scores[:, found.weight, penalties].mean(axis=(1, 2))
        factors = [factor for factor in range(n_factors) if factor == 0 or means[factor] > means[0]]
        return factors, list(range(n_weights)), penalties

    def _list_finalists(self) -> list[int]:
        return [int(np.ravel_multi_index(places, self._shape)) for places in product(*self._shortlist())]

    def _list_missing(self, numbers: Sequence[int], splits: Sequence[int]) -> list[Trial]:
        trials = []
        for split in splits:
            for factor in range(self._shape[0]):
                missing = [
                    number
                    for number in numbers
                    if np.unravel_index(number, self._shape)[0] == factor and np.isnan(self.scores[number, split])
                ]
                if missing:
                    trials.append(Trial(split, tuple(missing)))
        return trials


def choose_values(scores: Scores, leaf_errors: float | None) -> Choice:
    """Choose factor, robust weight and leaf penalty one by one, from scores by these three and split.

    The last weight and the first factor are the usual values. The last penalty leaves a single leaf.

    Parameters
    ----------
    leaf_errors : float or None
        By how many standard errors the single leaf must be better than the best other penalty; None: it is left out.
    """
    by_weight = scores.mean(axis=0)
    best = [_find_best(each[:-1]) for each in by_weight]
    usual = scores.shape[1] - 1
    gains = np.array([each[penalty] for each, penalty in zip(by_weight, best, strict=True)])
    weight = _choose_if_better(gains, usual, WEIGHT_ERRORS)
    penalty = best[weight]
    if leaf_errors is not None:
        gain, error = compare(by_weight[weight, -1:] - by_weight[weight, penalty])
        if gain[0] >= leaf_errors * error[0]:
            penalty = scores.shape[2] - 1
    near = slice(max(0, penalty - 1), penalty + 2)
    factor = _choose_if_better(scores[:, weight, near].mean(axis=1), 0, FACTOR_ERRORS)
    return Choice(factor, weight, penalty)


def _find_best(scores: Scores) -> int:
    """Position of the best mean of the rows; of equal ones, the last."""
    means = scores.mean(axis=1)
    return len(means) - 1 - int(np.argmax(means[::-1]))


def _choose_if_better(scores: Scores, usual: int, n_errors: float) -> int:
    """Position of the row that is ahead of the usual one by most, if by more than so many standard errors."""
    mean, error = compare(scores - scores[usual])
    gains = np.where(mean > n_errors * error, mean, 0.0)
    return int(np.argmax(gains)) if gains.any() else usual


def choose_candidate(scores: Scores, n_errors: float = CLEAR_ERRORS) -> int:
    """Number of the candidate of a forest, from the fitness of each candidate (rows) on each split (columns).

    Another candidate than the first is chosen only if its gain exceeds so many standard errors.
    """
    mean, error = compare(scores - scores[0])
    return int(np.argmax(np.where(mean > n_errors * error, mean, 0.0)))


def describe_cut_tuning(chosen: dict[str, Any], n_splits: int, split: str, n_rows: int) -> dict[str, Any]:
    """What is known of a tuning that its part of the time limit has ended, in the form of a complete one."""
    return {
        "chosen": dict(chosen), "score": None, "error": None, "splits": n_splits, "split": split, "rows": n_rows,
        "finalists": [], "is_cut": True,
    }  # fmt: skip


def compare(gains: Scores) -> tuple[Scores, Scores]:
    """Mean and standard error of the gains of each candidate (rows) over the splits (columns)."""
    n_splits = gains.shape[1]
    error = gains.std(axis=1, ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.zeros(len(gains))
    return gains.mean(axis=1), error
