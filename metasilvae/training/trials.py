"""Trials of tuning: quick trees on parts of the rows, and the race of candidates that their scores decide.

A candidate is a combination of training-epsilon factor, robust weight and leaf penalty. Trees are grown once for each
split of the rows and each factor; all candidates with this factor prune and improve copies of them. Candidates are
dropped as soon as they are behind, and the last ones are tried on all splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import MANY_SAMPLES
from metasilvae.perturbations.boxes import Enlarged, Perturbation
from metasilvae.training.evolution import make_objective
from metasilvae.training.options import TrainingOptions
from metasilvae.training.population import plan_sizes
from metasilvae.training.samples import as_model, make_samples
from metasilvae.verification.metrics import evaluate

Scores = NDArray[np.float64]
# Values that candidates combine.
FACTORS = (1.0, 1.15)
ROBUST_WEIGHTS = (0.0, 0.2)
LEAF_PENALTIES = (0.5, 1.0, 2.0, 4.0, 8.0)
# With many samples, larger penalties can be told apart, and a single leaf is a candidate too.
MORE_PENALTIES = (16.0,)
# A larger factor is not tried if it closes gaps between values of a feature that the perturbation respects, and this
# fraction of the rows lies at such gaps.
MOST_CLOSED = 0.1
# Rows that are looked at for this, about.
GAP_ROWS = 4000
# Candidates that are tried with other factors, and those that are tried on all splits.
N_LEADERS = 2
N_FINALISTS = 6
# Of the candidates that are behind the best one by no more than so many standard errors, the most regularized is taken.
# With many samples the scores are less noisy, and so is the choice.
ERRORS = 1.0
ERRORS_IF_MANY = 0.5
# A gain over the first candidate of a forest is clear if it exceeds so many standard errors.
CLEAR_ERRORS = 2.0
# A chosen penalty from here on grows with the square root of the rows, because it is due to noise.
NOISE_PENALTY = 2.0
# Criteria by which the trees of a trial are grown.
TRIAL_BLENDS = (0.3, 0.1, 0.0, 1.0)
# Splits of these trees, if there are enough samples.
TRIAL_SPLITS = 128
# Passes of local search over the best tree of each candidate.
TRIAL_PASSES = 1


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
    """

    def __init__(
        self,
        learned: Dataset,
        held_out: Dataset,
        perturbation: Perturbation,
        options: TrainingOptions,
        factor: float,
    ) -> None:
        self._learned = learned
        self._held_out = held_out
        self._perturbation = perturbation
        changes: dict[str, Any] = {"blends": TRIAL_BLENDS, "loss_blends": ()}
        self._options = replace(options, training_epsilon_factor=factor, **changes)
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
            # Pruning for a larger penalty starts from what is left for a smaller one.
            for penalty in sorted(penalty for other, penalty in candidates if other == weight):
                objective = self._make_objective(weight, penalty, samples)
                for tree in trees:
                    tree.trim(objective, workspace)
                best = max(trees, key=lambda tree: (tree.fitness(objective), -tree.n_leaves))
                better = kernel.Individual(samples).become(best)
                for _ in range(TRIAL_PASSES):
                    better.improve_locally(objective, workspace)
                chosen = max((better, best), key=lambda tree: tree.fitness(objective))
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
        return trees

    def _make_objective(self, weight: float, penalty: float, samples: Any) -> Any:
        options = replace(self._options, robust_weight=weight, leaf_penalty=penalty)
        objective = make_objective(options, self._learned, samples)
        self._objectives.append(objective)
        if self._is_stopped:
            objective.stop()
        return objective

    def _judge(self, tree: Any, known: dict[bytes, float]) -> float:
        model = as_model(tree, self._learned)
        key = model.nodes.tobytes() + model.leaf_values.tobytes()
        if key not in known:
            evaluation = evaluate(model, self._held_out, [self._perturbation], jobs=1)[0]
            known[key] = evaluation.phi(self._options.fitness)
        return known[key]


def list_factors(dataset: Dataset, perturbation: Perturbation) -> list[float]:
    """The training-epsilon factors to try.

    Where a feature has few, evenly spaced values and boxes are just smaller than the steps, larger boxes would make
    rows unstable that are stable; see `MOST_CLOSED`.
    """
    radius_down, radius_up = Enlarged(perturbation, 1.0).boxes(dataset).arrays[2:4]
    X = dataset.X[:: max(1, dataset.n_samples // GAP_ROWS)]
    allowed = np.array(FACTORS)
    for feature in range(dataset.n_features):
        values, counts = np.unique(X[~np.isnan(X[:, feature]), feature], return_counts=True)
        gaps = np.diff(values)
        at_gap = np.minimum(counts[1:], counts[:-1]) / len(X)
        width = radius_down[feature] + radius_up[feature]
        is_closed = (gaps > width) & (gaps <= allowed[:, None] * width)
        allowed = allowed[is_closed @ at_gap < MOST_CLOSED]
    return [float(factor) for factor in allowed]


def list_robust_weights(options: TrainingOptions) -> list[float]:
    """The robust weights to try; they differ only if accuracy has a weight."""
    return list(ROBUST_WEIGHTS if options.fitness.weights[0] > 0 else ROBUST_WEIGHTS[:1])


@dataclass(frozen=True)
class Trial:
    """Candidates to try on one split, by their numbers; they have the same training-epsilon factor."""

    split: int
    candidates: tuple[int, ...]


class Race:
    """The candidates, their scores so far, and which trials come next.

    All candidates with the factor 1 are tried on the first splits. The best of them are tried there with other
    factors. The best of all are tried on the other splits. What comes next depends on the scores alone, so that a race
    can be stored and continued between two trials.

    Parameters
    ----------
    factors : sequence of float
        Training-epsilon factors, 1 first.
    robust_weights : sequence of float
    n_samples : int
        Number of samples of the run that is tuned. If they are many, a leaf penalty of this size, which leaves a
        single leaf, is a candidate.
    n_splits, n_first : int
        Number of splits, and of those on which all candidates are tried.

    Attributes
    ----------
    candidates : list of dict
        Values of the three options for each candidate. The preferred ones come last: factor 1, and then those that
        regularize more.
    scores : float64 array, shape (n_candidates, n_splits)
        Fitness on the samples left out; NaN where a candidate was not tried.
    """

    def __init__(
        self, factors: Sequence[float], robust_weights: Sequence[float], n_samples: int, n_splits: int, n_first: int
    ) -> None:
        has_many = n_samples > MANY_SAMPLES
        penalties = (*LEAF_PENALTIES, *MORE_PENALTIES) if has_many else LEAF_PENALTIES
        self.candidates: list[dict[str, float]] = [
            {"training_epsilon_factor": factor, "robust_weight": weight, "leaf_penalty": penalty}
            for factor in sorted(factors, reverse=True)
            for penalty in penalties
            for weight in robust_weights
        ]
        self._errors = ERRORS_IF_MANY if has_many else ERRORS
        if has_many:
            self.candidates.append({**self.candidates[-1], "leaf_penalty": float(n_samples)})
        self.scores: Scores = np.full((len(self.candidates), n_splits), np.nan)
        self._n_first = n_first
        self._plain = [number for number, each in enumerate(self.candidates) if each["training_epsilon_factor"] == 1]

    @property
    def n_most_trials(self) -> int:
        """Number of trials, at most."""
        n_factors = len({each["training_epsilon_factor"] for each in self.candidates})
        return n_factors * int(self.scores.shape[1])

    def plan(self) -> list[Trial]:
        """The trials that come next, all independent of each other; none if the race is over."""
        first = range(self._n_first)
        if not self.scores.shape[1]:
            return []
        return (
            self._list_missing(self._plain, first)
            or self._list_missing(self._with_other_factors(), first)
            or self._list_missing(self._list_finalists(), range(self.scores.shape[1]))
        )

    def record(self, trial: Trial, scores: Sequence[float]) -> None:
        self.scores[list(trial.candidates), trial.split] = scores

    @property
    def choice(self) -> int:
        """The number of the candidate to train with, by the finalists' scores on all splits.

        The best of several is mostly the luckiest one. Of those that are not clearly behind it, the preferred one is
        taken.
        """
        finalists = self._list_finalists()
        scores = self.scores[finalists]
        best = int(np.argmax(scores.mean(axis=1)))
        behind, error = compare(scores[best] - scores)
        close = [number for place, number in enumerate(finalists) if behind[place] <= self._errors * error[place]]
        return int(max([finalists[best], *close]))

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

    def _with_other_factors(self) -> list[int]:
        return [
            number
            for number, each in enumerate(self.candidates)
            for leader in self._rank(self._plain)[:N_LEADERS]
            if {**each, "training_epsilon_factor": 1.0} == self.candidates[leader]
        ]

    def _list_finalists(self) -> list[int]:
        return sorted(self._rank(self._with_other_factors() + self._plain)[:N_FINALISTS])

    def _rank(self, numbers: Sequence[int]) -> list[int]:
        """Without doubles, best first by the first splits; of equal ones, the more regularized first."""
        means = self.scores[:, : self._n_first].mean(axis=1)
        return sorted(set(numbers), key=lambda number: (-means[number], -number))

    def _list_missing(self, numbers: Sequence[int], splits: Sequence[int]) -> list[Trial]:
        factors = dict.fromkeys(self.candidates[number]["training_epsilon_factor"] for number in numbers)
        trials = []
        for split in splits:
            for factor in factors:
                missing = [
                    number
                    for number in dict.fromkeys(numbers)
                    if self.candidates[number]["training_epsilon_factor"] == factor
                    and np.isnan(self.scores[number, split])
                ]
                if missing:
                    trials.append(Trial(split, tuple(missing)))
        return trials


def choose_candidate(scores: Scores) -> int:
    """Number of the candidate of a forest, from the fitness of each candidate (rows) on each split (columns).

    Another candidate than the first is chosen only if its gain is clear.
    """
    mean, error = compare(scores - scores[0])
    return int(np.argmax(np.where(mean > CLEAR_ERRORS * error, mean, 0.0)))


def compare(gains: Scores) -> tuple[Scores, Scores]:
    """Mean and standard error of the gains of each candidate (rows) over the splits (columns)."""
    n_splits = gains.shape[1]
    error = gains.std(axis=1, ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.zeros(len(gains))
    return gains.mean(axis=1), error
