"""Scores and curves of fitted estimators, also of those in pipelines and searches and of other libraries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike

from metasilvae import api
from metasilvae.dataset import Dataset
from metasilvae.interop.imports import check_import, import_object
from metasilvae.interop.imports.comparison import QUICK_ROWS
from metasilvae.model import Model
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.sklearn.base import Allowed, RobustClassifier
from metasilvae.verification.budget import Budget
from metasilvae.verification.curve import Curve
from metasilvae.verification.objective import Fitness, fitness_from_weights
from metasilvae.verification.radius import find_radii


def _find_classifier(estimator: Any, X: ArrayLike) -> tuple[Any, ArrayLike]:
    """The classifier of a search or a pipeline, and the samples that reach it."""
    while hasattr(estimator, "best_estimator_"):
        estimator = estimator.best_estimator_
    if hasattr(estimator, "steps"):
        X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return _find_classifier(estimator[-1], X)
    return estimator, X


def _import_estimator(estimator: Any, X: ArrayLike, y: ArrayLike) -> tuple[Model, Dataset]:
    """A model of another library, and the samples as its data set."""
    if hasattr(X, "columns"):
        # The estimator itself refuses columns that are not its own; as in its predict, their order counts then.
        estimator.predict(X[:1])  # type: ignore[index]
    imported = import_object(estimator, check=False)
    encoding = imported.model.encoding
    dataset = api.make_dataset(np.asarray(X) if encoding is None else X, y, encoding=encoding)
    return check_import(imported, dataset, QUICK_ROWS).model, dataset


def find_curve(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    perturbation: Perturbation | AttackRules | None = None,
    *,
    budget: Budget | None = None,
) -> Curve:
    """Stability and robust accuracy as functions of epsilon, or of the multiple of a perturbation.

    Parameters
    ----------
    estimator : object
        A fitted estimator of metasilvae or of a library that `import_object` accepts, also in a pipeline.
    """
    estimator, X = _find_classifier(estimator, X)
    unit: Allowed = 1.0 if perturbation is None else perturbation
    if isinstance(estimator, RobustClassifier):
        query = estimator._make_query(X, unit)
        found = find_radii(query, effective_n_jobs(estimator.n_jobs), budget=budget)
        return Curve(replace(found, is_correct=estimator._are_correct(found.predictions, y)))
    model, dataset = _import_estimator(estimator, X, y)
    return Curve(api.find_radii(model, dataset, unit, jobs=1, budget=budget))


STABILITY, ROBUST_ACCURACY = Fitness(stable=1.0), Fitness(robust=1.0)


@dataclass(frozen=True)
class RobustScorer:
    """A weighted sum of accuracy, stability and robust accuracy.

    Attributes
    ----------
    fitness : Fitness
        The weights.
    epsilon : float, Perturbation or None, default=None
        The perturbation to certify. None means that of training, for estimators of metasilvae.
    budget : Budget or None, default=None
        Limit of the search for each sample of a forest; undecided samples count as unstable.
    """

    fitness: Fitness
    epsilon: Allowed = None
    budget: Budget | None = None

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
        estimator, X = _find_classifier(estimator, X)
        if isinstance(estimator, RobustClassifier):
            return self.fitness.value(*estimator.robust_metrics(X, y, self.epsilon, budget=self.budget))
        if self.epsilon is None:
            raise TypeError(f"{type(estimator).__name__} has no epsilon of training; give the scorer one")
        model, dataset = _import_estimator(estimator, X, y)
        counts = api.verify(model, dataset, self.epsilon, jobs=1, budget=self.budget).counts
        return self.fitness.value(float(counts.accuracy), float(counts.stability), float(counts.robust_accuracy))


def robust_accuracy_scorer(epsilon: Allowed = None, budget: Budget | None = None) -> RobustScorer:
    """Certified robust accuracy: the fraction of samples that are correct and stable."""
    return RobustScorer(ROBUST_ACCURACY, epsilon, budget)


def stability_scorer(epsilon: Allowed = None, budget: Budget | None = None) -> RobustScorer:
    """Stability: the fraction of samples whose prediction no allowed perturbation changes, correct or not."""
    return RobustScorer(STABILITY, epsilon, budget)


def fitness_scorer(
    epsilon: Allowed = None,
    accuracy: float = 0.9,
    stability: float = 0.1,
    robust_accuracy: float = 0.0,
    budget: Budget | None = None,
) -> RobustScorer:
    """A weighted sum of accuracy, stability and robust accuracy; by default the objective of the paper."""
    weights = {"accuracy": accuracy, "stability": stability, "robust_accuracy": robust_accuracy}
    return RobustScorer(fitness_from_weights(weights), epsilon, budget)
