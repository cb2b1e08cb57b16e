"""What the estimators for scikit-learn have in common: everything but their parameters."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae.api import as_perturbation, train
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.forest_verification import Limits
from metasilvae.formats.silva_faults import label_problem
from metasilvae.formats.silva_models import write_model
from metasilvae.imports.naming import name_classes
from metasilvae.model import Model
from metasilvae.outcome import Outcome, Stability
from metasilvae.perturbation import Ball, Perturbation
from metasilvae.prediction import find_leaves, predict
from metasilvae.radius import find_radii
from metasilvae.seed_study import judge
from metasilvae.verification import Question, ask, find_witnesses, verify

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
        answers = predict(self.model_, values, jobs=effective_n_jobs(self.n_jobs))
        firsts = [min(self._class_of_label[label] for label in label_set) for label_set in answers.sets]
        return np.asarray(self.classes_[np.array(firsts, dtype=np.intp)[answers.ids]])

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
        limits: Limits | None = None,
        witnesses: Literal[False] = False,
    ) -> NDArray[np.bool_]: ...

    @overload
    def certify(
        self,
        X: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        limits: Limits | None = None,
        witnesses: Literal[True],
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]: ...

    def certify(
        self,
        X: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        limits: Limits | None = None,
        witnesses: bool = False,
    ) -> NDArray[np.bool_] | tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """For each sample, whether it is proved that no perturbation changes the answer.

        Parameters
        ----------
        epsilon : float, Perturbation or None
            Another radius, or another perturbation, than that of training.
        limits : Limits or None
            What a forest may spend on one sample; one that is not decided by then is not proved.
        witnesses : bool
            Show too how the others can be changed.

        Returns
        -------
        is_stable : bool array, shape (n_samples,)
        points : float64 array, shape (n_samples, n_features); only with `witnesses`
            For an unstable sample a perturbed one with another answer, else NaN.
        """
        question, outcome = self._decide(X, epsilon, limits)
        is_stable = np.asarray(outcome.stability == Stability.STABLE)
        if not witnesses:
            return is_stable
        points = np.full(question.dataset.X.shape, np.nan)
        for witness in find_witnesses(question, outcome, effective_n_jobs(self.n_jobs)):
            points[witness.row] = witness.point
        return is_stable, points

    def radius(self, X: ArrayLike, *, limits: Limits | None = None) -> NDArray[np.float64]:
        """For each sample the largest radius at which no perturbation changes the answer, infinite if none does.

        Samples stay in the range that the perturbation of training is cut to, if it is.

        Parameters
        ----------
        limits : Limits or None
            What a forest may spend on one sample; then the radius is the largest that was proved.
        """
        return find_radii(self._ask(X, 1.0), effective_n_jobs(self.n_jobs), limits=limits).lower

    def robust_score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        limits: Limits | None = None,
    ) -> float:
        """Share of samples that are classified rightly, and provably so under every perturbation."""
        return self.shares(X, y, epsilon, limits=limits)[2]

    def shares(
        self,
        X: ArrayLike,
        y: ArrayLike,
        epsilon: float | Perturbation | None = None,
        *,
        limits: Limits | None = None,
    ) -> tuple[float, float, float]:
        """Shares of samples that are right, provably stable, and both; tied classes do not count as right."""
        question, outcome = self._decide(X, epsilon, limits)
        targets = np.asarray(y)
        if targets.shape != (question.dataset.n_samples,):
            raise ValueError(f"X holds {question.dataset.n_samples} samples, y has the shape {targets.shape}")
        only = outcome.answers.only_label[outcome.answers.ids]
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
        self, X: ArrayLike, epsilon: float | Perturbation | None, limits: Limits | None
    ) -> tuple[Question, Outcome]:
        question = self._ask(X, epsilon)
        return question, verify(question, effective_n_jobs(self.n_jobs), limits=limits)

    def _ask(self, X: ArrayLike, epsilon: float | Perturbation | None) -> Question:
        """A question about samples whose labels do not matter."""
        values = self._check(X)
        dataset = Dataset(values, np.zeros(len(values), dtype=np.int32), self.model_.labels, source="X")
        return ask(self.model_, dataset, self._perturbation(epsilon))

    def _choose_options(self) -> Any:
        raise NotImplementedError

    def _shared_choices(self) -> dict[str, Any]:
        """Parameters that trees and forests have in common, by the names of the options."""
        names = (
            "max_depth", "max_leaves", "min_samples_leaf", "leaf_cost", "radius_factor", "caution", "rehearse",
            "time_limit", "validation",
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
