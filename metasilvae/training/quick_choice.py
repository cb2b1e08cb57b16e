"""The quick choice of a run without tuning: with many samples, two of its criteria of growth, perhaps no robust weight.

Where few samples can be stable, a robust weight leaves a few leaves and costs much accuracy. This shows in small trees:
it is dropped if they are clearly better without it on samples that are left out. Which criteria suit a data set shows
in small trees, too.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import plan_cross_validation
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.interactions import Interaction
from metasilvae.training.options import TrainingOptions
from metasilvae.training.population import list_interactions
from metasilvae.training.protocol import TrainerGroup
from metasilvae.training.trials import QuickTrees, Scores, Trial, choose_blends, compare

# Values of the samples that are looked at, unless these would be too few samples, and the gain in fitness that counts.
MOST_VALUES = 2.4e4
CLEAR_GAIN = 0.01


class WeightRace:
    """Robust weights and their scores; all of them are tried on all splits.

    Attributes
    ----------
    scores : float64 array, shape (n_weights, n_splits)
        Fitness on the samples left out; NaN where a weight was not tried.
    """

    def __init__(self, weights: tuple[float, ...], n_splits: int) -> None:
        self.weights = weights
        self.scores: Scores = np.full((len(weights), n_splits), np.nan)

    @property
    def n_most_trials(self) -> int:
        """Number of trials, at most; without weights to try, the choice of criteria counts as one."""
        n_splits = int(self.scores.shape[1])
        return n_splits if self.weights else min(n_splits, 1)

    def plan(self) -> list[Trial]:
        """The trials that come next; none if the race is over."""
        missing = np.flatnonzero(np.isnan(self.scores).any(axis=0))
        return [Trial(int(split), tuple(range(len(self.weights)))) for split in missing]

    def record(self, trial: Trial, scores: list[float]) -> None:
        self.scores[list(trial.candidates), trial.split] = scores


class QuickChoice:
    """What `metasilvae.training.tuning.TreeTuning` is for tuning.

    Parameters
    ----------
    learned : Dataset
        Samples to choose by.
    perturbation : Perturbation
    options : TrainingOptions

    Attributes
    ----------
    validation : CrossValidation
    race : WeightRace
    """

    def __init__(self, learned: Dataset, perturbation: Perturbation, options: TrainingOptions) -> None:
        self._learned = learned
        self._perturbation = perturbation
        self._options = replace(options, pretune=False)
        self._blends: tuple[float, ...] | None = None
        self._lock = threading.Lock()
        planned = plan_cross_validation(learned, options.seed, options.split, MOST_VALUES)
        self.validation = replace(planned, pairs=planned.pairs[: planned.n_first])
        # A weight that is not there, or that nothing is taken from, cannot be dropped.
        has_weight = options.robust_weight > 0 and options.fitness.weights[0] > 0
        self.race = WeightRace((0.0, options.robust_weight) if has_weight else (), len(self.validation.pairs))

    @cached_property
    def interactions(self) -> tuple[Interaction, ...]:
        """Features that trees begin with, by all samples to choose by."""
        return list_interactions(self._learned, self._options)

    def prepare(self, group: TrainerGroup) -> None:
        """Choose the criteria of growth; none are chosen if the group is stopped meanwhile."""
        self.list_blends(group)

    def try_candidates(self, trial: Trial, group: TrainerGroup) -> list[float]:
        """Fitness of quick trees with each weight on the samples left out; not to be used if the group is stopped."""
        kept, held = self.validation.pairs[trial.split]
        trees = QuickTrees(
            self._learned.subset(kept), self._learned.subset(held), self._perturbation, self._options,
            self._options.training_epsilon_factor, has_many=True, blends=self.list_blends(group),
            interact=bool(self.interactions),
        )  # fmt: skip
        with group.watching(trees):
            return trees.score([(weight, self._options.leaf_penalty) for weight in self.race.weights])

    def list_blends(self, group: TrainerGroup) -> tuple[float, ...]:
        """Two criteria of growth; not to be used if the group is stopped."""
        with self._lock:
            if not self.validation.pairs:
                return self._options.blends
            if self._blends is None:
                kept = self._learned.subset(self.validation.pairs[0][0])
                found = choose_blends(kept, self._perturbation, self._options, self._options.blends, group=group)
                if group.is_stopped:
                    return found
                self._blends = found
            return self._blends

    @property
    def candidate(self) -> dict[str, Any]:
        """The robust weight to train with, if several were tried."""
        if not self.race.scores.size:
            return {}
        mean, _ = compare(self.race.scores)
        return {"robust_weight": self.race.weights[0 if mean[0] - mean[1] > CLEAR_GAIN else 1]}

    def describe(self, group: TrainerGroup) -> dict[str, Any] | None:
        """What was chosen and by which scores, as JSON has it; None if nothing was."""
        if not self.validation.pairs:
            return None
        mean, error = compare(self.race.scores) if self.race.weights else (np.zeros(0), np.zeros(0))
        finalists = [
            {"robust_weight": weight, "score": round(float(mean[number]), 6), "error": round(float(error[number]), 6)}
            for number, weight in enumerate(self.race.weights)
        ]
        scores = [each for each in finalists if each["robust_weight"] == self.candidate["robust_weight"]]
        return {
            "chosen": {**self.candidate, "blends": list(self.list_blends(group))},
            "score": scores[0]["score"] if scores else None, "error": scores[0]["error"] if scores else None,
            "splits": len(self.validation.pairs), "split": self.validation.kind, "rows": self.validation.n_rows,
            "finalists": finalists,
        }  # fmt: skip
