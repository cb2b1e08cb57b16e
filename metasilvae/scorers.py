"""Scorers for scikit-learn's model selection: what a model is worth under perturbations.

    cross_val_score(MetaSilvaeClassifier(epsilon=0.1), X, y, scoring=robust_accuracy_scorer(0.1))

In a pipeline the perturbation is one of the values that reach the classifier. Trees of scikit-learn and other libraries
that `metasilvae.imports` can import are scored too, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from metasilvae.api import make_dataset, verify
from metasilvae.fitness import Fitness, fitness_from_weights
from metasilvae.forest_verification import Limits
from metasilvae.imports import import_object
from metasilvae.perturbation import Perturbation

STABILITY, ROBUSTNESS = Fitness(stable=1.0), Fitness(robust=1.0)


@dataclass(frozen=True)
class RobustScorer:
    """A weighted sum of the shares of samples that are right, provably stable, and both.

    Attributes
    ----------
    fitness : Fitness
    epsilon : float, Perturbation or None
        None means the one of training, for estimators of metasilvae.
    limits : Limits or None
        What may be spent on one sample of a forest; one that is not decided by then counts as unstable.
    """

    fitness: Fitness
    epsilon: float | Perturbation | None = None
    limits: Limits | None = None

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
        from metasilvae.robust_classifier import RobustClassifier

        while hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        if hasattr(estimator, "steps"):
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            return self(estimator[-1], X, y)
        if isinstance(estimator, RobustClassifier):
            return self.fitness.value(*estimator.shares(X, y, self.epsilon, limits=self.limits))
        if self.epsilon is None:
            raise TypeError(f"{type(estimator).__name__} was trained for no epsilon; give the scorer one")
        imported = import_object(estimator)
        outcome = verify(
            imported.model, make_dataset(X, y), self.epsilon, voting=imported.voting, jobs=1, limits=self.limits
        )
        tally = outcome.tally
        return self.fitness.value(float(tally.accuracy), float(tally.stability), float(tally.robustness))


def robust_accuracy_scorer(epsilon: float | Perturbation | None = None, limits: Limits | None = None) -> RobustScorer:
    """Share of samples that are classified rightly and stably."""
    return RobustScorer(ROBUSTNESS, epsilon, limits)


def stability_scorer(epsilon: float | Perturbation | None = None, limits: Limits | None = None) -> RobustScorer:
    """Share of samples whose answer no perturbation changes, right or wrong."""
    return RobustScorer(STABILITY, epsilon, limits)


def fitness_scorer(
    epsilon: float | Perturbation | None = None,
    accuracy: float = 0.9,
    stability: float = 0.1,
    robustness: float = 0.0,
    limits: Limits | None = None,
) -> RobustScorer:
    """A weighted sum of accuracy, stability and robustness; as it stands, what the paper trains for."""
    weights = {"accuracy": accuracy, "stability": stability, "robustness": robustness}
    return RobustScorer(fitness_from_weights(weights), epsilon, limits)
