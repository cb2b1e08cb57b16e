"""What the estimators for scikit-learn have in common: everything but their parameters.

The trainers as scikit-learn estimators.

Scorers for scikit-learn's model selection: what a model is worth under perturbations.

    cross_val_score(MetaSilvaeClassifier(epsilon=0.1), X, y, scoring=robust_accuracy_scorer(0.1))

In a pipeline the perturbation is one of the values that reach the classifier. Trees of scikit-learn and other libraries
that `metasilvae.interop.imports` can import are scored too, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae import api
from metasilvae.api import as_perturbation, choose_options, train
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.formats.silva_models import label_problem, write_model
from metasilvae.interop.imports import import_object
from metasilvae.interop.imports.imported import name_classes
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.prediction import find_leaves, predict
from metasilvae.training.results import judge
from metasilvae.verification.budget import Budget
from metasilvae.verification.objective import Fitness, fitness_from_weights
from metasilvae.verification.radius import find_radii
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.verification.verifier import VerificationQuery, find_witnesses, make_query, verify

try:
    from joblib import effective_n_jobs
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"the estimators need scikit-learn 1.6 or newer ({error}); pip install 'metasilvae[sklearn]'"
    ) from None

MOST_SEEDS = 2**31 - 1


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that can prove its answers; subclasses have the parameters and say what options they mean."""

    epsilon: float
    perturbation: Perturbation | None
    preset: str
    weights: dict[str, float] | None
    options: dict[str, Any] | None
    n_jobs: int | None
    random_state: Any

    model_: Model
    classes_: np.ndarray
    robust_score_: float
    n_features_in_: int

    def fit(self, X: ArrayLike, y: ArrayLike) -> RobustClassifier:
        """Train a model that is right on many samples and keeps its answer when they are perturbed.

        Parameters
        ----------
        X : array of numbers, shape (n_samples, n_features)
        y : array, shape (n_samples,)
            Labels of at least two classes.
        """
        values, targets = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(targets)
        self.classes_, first, codes = np.unique(targets, return_index=True, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs samples of several classes, all of these are of one class")
        # Labels in order of first appearance, as in a data file: then the model is the one of the command line.
        self._class_of_label = np.argsort(first)
        label_of_class = np.argsort(self._class_of_label).astype(np.int32)
        labels = _name_labels(self.classes_[self._class_of_label])
        dataset = Dataset(values, label_of_class[codes.reshape(-1)], labels, source="X")
        try:
            perturbation = self._perturbation()
            jobs = effective_n_jobs(self.n_jobs)
            self.model_ = train(dataset, perturbation, self._choose_options(), jobs=jobs)
        except RequestError as error:
            raise ValueError(str(error)) from None
        self.robust_score_ = float(judge(self.model_, dataset, perturbation, jobs).robustness or 0.0)
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The class of each sample; of tied classes the first one."""
        values = self._check(X)
        predictions = predict(self.model_, values, jobs=effective_n_jobs(self.n_jobs))
        firsts = [min(self._class_of_label[label] for label in label_set) for label_set in predictions.sets]
        return np.asarray(self.classes_[np.array(firsts, dtype=np.intp)[predictions.ids]])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Shares of the classes: in the leaf of a tree, or in the votes of a forest; shape (n_samples, n_classes)."""
        values, model = self._check(X), self.model_
        leaves = find_leaves(model, values, effective_n_jobs(self.n_jobs))
        votes = model.leaf_values if model.n_trees == 1 else _votes_of_leaves(model)
        of_labels = np.zeros((len(leaves), model.n_labels))
        for tree in range(model.n_trees):
            of_labels += votes[leaves[:, tree]]
        shares = np.empty_like(of_labels)
        shares[:, self._class_of_label] = of_labels / of_labels.sum(axis=1, keepdims=True)
        return shares

    @overload
    def certify(
        self,
        X: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        budget: Budget | None = None,
        witnesses: Literal[False] = False,
    ) -> NDArray[np.bool_]: ...

    @overload
    def certify(
        self,
        X: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        budget: Budget | None = None,
        witnesses: Literal[True],
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]: ...

    def certify(
        self,
        X: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        budget: Budget | None = None,
        witnesses: bool = False,
    ) -> NDArray[np.bool_] | tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """For each sample, whether it is proved that no perturbation changes the answer.

        Parameters
        ----------
        epsilon : float, Perturbation or None
            Another radius, or another perturbation, than that of training.
        budget : Budget or None
            What a forest may spend on one sample; one that is not decided by then is not proved.
        witnesses : bool
            Show too how the others can be changed.

        Returns
        -------
        is_stable : bool array, shape (n_samples,)
        points : float64 array, shape (n_samples, n_features); only with `witnesses`
            For an unstable sample a perturbed one with another answer, else NaN.
        """
        query, outcome = self._decide(X, epsilon, budget)
        is_stable = np.asarray(outcome.stability == Stability.STABLE)
        if not witnesses:
            return is_stable
        points = np.full(query.dataset.X.shape, np.nan)
        for witness in find_witnesses(query, outcome, effective_n_jobs(self.n_jobs)):
            points[witness.row] = witness.point
        return is_stable, points

    def radius(self, X: ArrayLike, *, budget: Budget | None = None) -> NDArray[np.float64]:
        """For each sample the largest radius at which no perturbation changes the answer, infinite if none does.

        Samples stay in the range that the perturbation of training is cut to, if it is.

        Parameters
        ----------
        budget : Budget or None
            What a forest may spend on one sample; then the radius is the largest that was proved.
        """
        return find_radii(self._ask(X, 1.0), effective_n_jobs(self.n_jobs), budget=budget).lower

    def robust_score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        budget: Budget | None = None,
    ) -> float:
        """Share of samples that are classified rightly, and provably so under every perturbation."""
        return self.shares(X, y, epsilon, budget=budget)[2]

    def shares(
        self,
        X: ArrayLike,
        y: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        budget: Budget | None = None,
    ) -> tuple[float, float, float]:
        """Shares of samples that are right, provably stable, and both; tied classes do not count as right."""
        query, outcome = self._decide(X, epsilon, budget)
        targets = np.asarray(y)
        if targets.shape != (query.dataset.n_samples,):
            raise ValueError(f"X holds {query.dataset.n_samples} samples, y has the shape {targets.shape}")
        only = outcome.predictions.only_label[outcome.predictions.ids]
        is_right = (only >= 0) & (self.classes_[self._class_of_label[only]] == targets)
        is_stable = outcome.stability == Stability.STABLE
        return float(is_right.mean()), float(is_stable.mean()), float((is_right & is_stable).mean())

    def save(self, path: str | Path) -> None:
        """Write the model in silva's text format, as ``metasilvae train`` does."""
        check_is_fitted(self)
        write_model(self.model_, str(path))

    # What the methods share

    def _keep(self, parameters: dict[str, Any]) -> None:
        """Keep the parameters of `__init__` as they are, under their names; scikit-learn looks for them there."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def _check(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        values: NDArray[np.float64] = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return values

    def _perturbation(self, epsilon: float | Perturbation | None = None) -> Perturbation:
        """The one of training, or another one; a number changes only the radius of a ball."""
        trained = as_perturbation(self.epsilon) if self.perturbation is None else self.perturbation
        if epsilon is None:
            return trained
        try:
            if isinstance(trained, Ball) and isinstance(epsilon, Real):
                return replace(trained, epsilon=float(epsilon))
            return as_perturbation(epsilon)
        except RequestError as error:
            raise ValueError(str(error)) from None

    def _decide(
        self, X: ArrayLike, epsilon: float | Perturbation | None, budget: Budget | None
    ) -> tuple[VerificationQuery, Outcome]:
        query = self._ask(X, epsilon)
        return query, verify(query, effective_n_jobs(self.n_jobs), budget=budget)

    def _ask(self, X: ArrayLike, epsilon: float | Perturbation | None) -> VerificationQuery:
        """A question about samples whose labels do not matter."""
        values = self._check(X)
        dataset = Dataset(values, np.zeros(len(values), dtype=np.int32), self.model_.labels, source="X")
        return make_query(self.model_, dataset, self._perturbation(epsilon))

    def _choose_options(self) -> Any:
        raise NotImplementedError

    def _shared_choices(self) -> dict[str, Any]:
        """Parameters that trees and forests have in common, by the names of the options."""
        names = (
            "max_depth", "max_leaves", "min_samples_leaf", "leaf_penalty", "training_epsilon_factor",
            "robust_weight", "tune", "time_limit", "validation",
        )  # fmt: skip
        choices = {name: getattr(self, name) for name in names}
        return {**choices, "preset": self.preset, "weights": self.weights, "seed": self._seed(), **(self.options or {})}

    def _seed(self) -> int:
        """A whole number is the seed itself, as on the command line; else one is drawn."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(MOST_SEEDS))


def _name_labels(classes: np.ndarray) -> tuple[str, ...]:
    """Names of the classes, or numbers where silva's format cannot hold the names."""
    names = tuple(name_classes(classes))
    if len(set(names)) < len(names) or any(map(label_problem, names)):
        return tuple(f"class-{number}" for number in range(len(names)))
    return names


def _votes_of_leaves(model: Model) -> NDArray[np.float64]:
    """One vote of each leaf for each label of its answer."""
    values = model.leaf_values
    return np.asarray(values == values.max(axis=1, keepdims=True), dtype=np.float64)


class MetaSilvaeClassifier(RobustClassifier):
    """A decision tree that is accurate and provably stable, as ``metasilvae train`` makes it.

    Parameters that are None are as the preset has them.

    Parameters
    ----------
    epsilon : float
        What the tree is to withstand: every value moves by at most so much, in the units of the features.
    perturbation : Perturbation or None
        The same in general, instead of `epsilon`; for instance ``Ball(30, 0, 255)``.
    preset : str
        ``default``, ``fast``, ``best``, ``paper`` or ``cart``.
    weights : dict or None
        What the tree is trained for; None means ``{"accuracy": 0.9, "stability": 0.1}``.
    max_depth, max_leaves, min_samples_leaf : int or None
    leaf_penalty, training_epsilon_factor, robust_weight : float or None
        How careful to be. Whoever sets one of them wants no tuning.
    tune : bool or None
        Choose these three by training in small on parts of the samples first.
    max_iteration, patience : int or None
        Generations of the genetic search, and generations without improvement after which it ends.
    time_limit : float or None
        Seconds; the tree then depends on the machine.
    validation : float or None
        Share of the samples that is held out to choose among the best trees.
    options : dict or None
        Further fields of `TrainingOptions`, such as ``{"population": 64}``.
    n_jobs : int or None
        Threads, as scikit-learn has it; the result does not depend on it.
    random_state : int, RandomState or None
        A whole number is the seed of the command line.

    Attributes
    ----------
    model_ : Model
    classes_ : array, shape (n_classes,)
    robust_score_ : float
        Share of the training samples that are classified rightly and stably.
    n_features_in_, feature_names_in_
        As scikit-learn has them.
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        *,
        perturbation: Perturbation | None = None,
        preset: str = "default",
        weights: dict[str, float] | None = None,
        max_depth: int | None = None,
        max_leaves: int | None = None,
        min_samples_leaf: int | None = None,
        leaf_penalty: float | None = None,
        training_epsilon_factor: float | None = None,
        robust_weight: float | None = None,
        tune: bool | None = None,
        max_iteration: int | None = None,
        patience: int | None = None,
        time_limit: float | None = None,
        validation: float | None = None,
        options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self._keep(locals())

    def _choose_options(self) -> Any:
        return choose_options(
            **{"generations": self.max_iteration, "patience": self.patience, **self._shared_choices()}
        )


class RobustForestClassifier(RobustClassifier):
    """A forest whose trees are trained for the votes that they cast together, as ``metasilvae train --trees`` makes it.

    Parameters that are None are as the preset has them.

    Parameters
    ----------
    n_trees : int
    epsilon : float
        What the forest is to withstand: every value moves by at most so much, in the units of the features.
    method : str or None
        ``auto``, ``reweighted`` or ``independent``.
    row_sample : float or None
        Share of the samples drawn for each tree.
    perturbation, preset, weights, max_depth, max_leaves, min_samples_leaf, leaf_penalty, training_epsilon_factor,
    robust_weight, tune, time_limit, validation, options, n_jobs, random_state
        As for `MetaSilvaeClassifier`; limits are those of each tree.

    Attributes
    ----------
    model_ : Model
    classes_ : array, shape (n_classes,)
    robust_score_ : float
        Share of the training samples that are classified rightly and provably stably, or less.
    n_features_in_, feature_names_in_
        As scikit-learn has them.
    """

    def __init__(
        self,
        n_trees: int = 50,
        epsilon: float = 0.1,
        *,
        method: str | None = None,
        row_sample: float | None = None,
        perturbation: Perturbation | None = None,
        preset: str = "default",
        weights: dict[str, float] | None = None,
        max_depth: int | None = None,
        max_leaves: int | None = None,
        min_samples_leaf: int | None = None,
        leaf_penalty: float | None = None,
        training_epsilon_factor: float | None = None,
        robust_weight: float | None = None,
        tune: bool | None = None,
        time_limit: float | None = None,
        validation: float | None = None,
        options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self._keep(locals())

    def _choose_options(self) -> Any:
        return choose_options(
            trees=self.n_trees, **{"method": self.method, "row_sample": self.row_sample, **self._shared_choices()}
        )


STABILITY, ROBUSTNESS = Fitness(stable=1.0), Fitness(robust=1.0)


@dataclass(frozen=True)
class RobustScorer:
    """A weighted sum of the shares of samples that are right, provably stable, and both.

    Attributes
    ----------
    fitness : Fitness
    epsilon : float, Perturbation or None
        None means the one of training, for estimators of metasilvae.
    budget : Budget or None
        What may be spent on one sample of a forest; one that is not decided by then counts as unstable.
    """

    fitness: Fitness
    epsilon: float | Perturbation | None = None
    budget: Budget | None = None

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike) -> float:

        while hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        if hasattr(estimator, "steps"):
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            return self(estimator[-1], X, y)
        if isinstance(estimator, RobustClassifier):
            return self.fitness.value(*estimator.shares(X, y, self.epsilon, budget=self.budget))
        if self.epsilon is None:
            raise TypeError(f"{type(estimator).__name__} was trained for no epsilon; give the scorer one")
        imported = import_object(estimator)
        outcome = api.verify(
            imported.model, api.make_dataset(X, y), self.epsilon, voting=imported.voting, jobs=1, budget=self.budget
        )
        counts = outcome.counts
        return self.fitness.value(float(counts.accuracy), float(counts.stability), float(counts.robustness))


def robust_accuracy_scorer(epsilon: float | Perturbation | None = None, budget: Budget | None = None) -> RobustScorer:
    """Share of samples that are classified rightly and stably."""
    return RobustScorer(ROBUSTNESS, epsilon, budget)


def stability_scorer(epsilon: float | Perturbation | None = None, budget: Budget | None = None) -> RobustScorer:
    """Share of samples whose answer no perturbation changes, right or wrong."""
    return RobustScorer(STABILITY, epsilon, budget)


def fitness_scorer(
    epsilon: float | Perturbation | None = None,
    accuracy: float = 0.9,
    stability: float = 0.1,
    robustness: float = 0.0,
    budget: Budget | None = None,
) -> RobustScorer:
    """A weighted sum of accuracy, stability and robustness; as it stands, what the paper trains for."""
    weights = {"accuracy": accuracy, "stability": stability, "robustness": robustness}
    return RobustScorer(fitness_from_weights(weights), epsilon, budget)
