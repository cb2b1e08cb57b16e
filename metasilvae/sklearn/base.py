"""What the estimators have in common: samples of scikit-learn as data sets, training, prediction and certificates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from metasilvae.analysis.importance import add_by_column, find_importances
from metasilvae.api import as_perturbation, encode_frame, name_series, train
from metasilvae.dataset import Dataset
from metasilvae.encoding import Encoding
from metasilvae.errors import DataError, ModelError, PerturbationError, RequestError
from metasilvae.formats.frames import find_kinds, is_frame, read_array
from metasilvae.formats.silva_models import label_problem, write_model
from metasilvae.formats.tables import DEFAULT_TABLE, read_typed, with_specs
from metasilvae.formats.text import Problems
from metasilvae.interop.imports.imported import name_classes
from metasilvae.model import Model, PredictionTable
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.perturbations.norms import LINF, NormBall, allowed_changes
from metasilvae.prediction import check_missing, find_leaves, predict, predict_proba
from metasilvae.training.options import PUBLIC_NAMES
from metasilvae.training.protocol import Progress
from metasilvae.training.results import judge
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import find_radii
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.verification.verifier import find_witnesses, verify

MOST_SEEDS = 2**31 - 1
# Options of training by the names of their parameters, which are those of scikit-learn where it has one.
OPTIONS = {
    "max_depth": "max_depth",
    "max_leaf_nodes": "max_leaves",
    "min_samples_leaf": "min_samples_leaf",
    "leaf_penalty": "leaf_penalty",
    "training_epsilon_factor": "training_epsilon_factor",
    "robust_weight": "robust_weight",
    "tune": "tune",
    "max_iter": "generations",
    "n_iter_no_change": "patience",
    "time_limit": "time_limit",
    "validation_fraction": "validation",
    "method": "method",
    "max_samples": "row_sample",
    "subsample": "row_sample",
    "max_features": "feature_sample",
    "learning_rate": "learning_rate",
}
# What may be perturbed; None means what the model was trained for.
Allowed = float | Perturbation | AttackRules | None


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose predictions can be certified; subclasses define the parameters."""

    epsilon: float
    norm: str
    perturbation: Perturbation | AttackRules | None
    preset: str
    weights: dict[str, float] | None
    options: dict[str, Any] | None
    n_jobs: int | None
    random_state: Any
    verbose: int
    categorical_features: Any
    class_weight: Any

    model_: Model
    perturbation_: Perturbation
    categorical_names_: list[str]
    classes_: np.ndarray
    robust_score_: float
    n_iter_: int
    feature_importances_: NDArray[np.float64]
    n_features_in_: int
    feature_names_in_: np.ndarray

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> RobustClassifier:
        """Train the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Labels of at least two classes.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the samples in the objective; those of weight 0 are left out.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        before = dict(self.__dict__)
        try:
            self._fit(X, y, sample_weight)
        except BaseException:
            # The former model does not belong to classes and columns of samples that it was not trained on.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        categorical = self._find_categorical(X)
        if categorical is None:
            values, targets = validate_data(self, X, y, dtype=np.float64, order="C", ensure_all_finite="allow-nan")
        else:
            validate_data(self, X, skip_check_array=True)
            targets = column_or_1d(y)
        check_classification_targets(targets)
        self.classes_, first, codes = np.unique(targets, return_index=True, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs samples of at least two classes, but y has one class")
        # Labels in order of first appearance, as in a data file: then the model is the one of the command line.
        self._class_of_label = np.argsort(first)
        label_of_class = np.argsort(self._class_of_label).astype(np.int32)
        labels = _name_labels(self.classes_[self._class_of_label])
        names = tuple(map(str, self.feature_names_in_)) if hasattr(self, "feature_names_in_") else None
        coded = label_of_class[codes.reshape(-1)]
        try:
            if categorical is None:
                dataset = Dataset(values, coded, labels, names, "X", label_name=name_series(y))
            else:
                encoded = self._encode(X, None, categorical)
                check_consistent_length(encoded.X, targets)
                dataset = replace(encoded, y=coded, labels=labels, label_name=name_series(y))
            perturbation = self._perturbation(dataset=dataset)
            self.perturbation_ = perturbation
            jobs = effective_n_jobs(self.n_jobs)
            report = _Reporter(type(self).__name__, self.verbose)
            self.model_ = train(
                dataset, perturbation, self._choose_options(), start=self._find_start(dataset), report=report,
                class_weight=self._name_class_weight(labels), sample_weight=sample_weight, jobs=jobs,
            )  # fmt: skip
        except (RequestError, DataError, PerturbationError) as error:
            raise ValueError(self._in_own_words(str(error))) from None
        self.n_iter_ = max(report.n_iterations, 1)
        of_features = find_importances(self.model_, dataset.X, jobs)
        self.feature_importances_ = add_by_column(of_features, self.model_.encoding)
        self.robust_score_ = float(judge(self.model_, dataset, perturbation, jobs).robust_accuracy or 0.0)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the class of each sample; of tied classes the first one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        values = self._check(X)
        predictions = predict(self.model_, values, jobs=effective_n_jobs(self.n_jobs))
        firsts = [min(self._class_of_label[label] for label in label_set) for label_set in predictions.sets]
        return np.asarray(self.classes_[np.array(firsts, dtype=np.intp)[predictions.ids]])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict class probabilities.

        Those of a tree are the class fractions in its leaf, those of a forest the fractions of its votes, and those of
        a boosted model the soft maximum of its scores, as those of ``metasilvae predict --proba``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            Columns are in the order of `classes_`.
        """
        values = self._check(X)
        of_labels = predict_proba(self.model_, values, jobs=effective_n_jobs(self.n_jobs))
        fractions = np.empty_like(of_labels)
        fractions[:, self._class_of_label] = of_labels
        return fractions

    def apply(self, X: ArrayLike) -> NDArray[np.intp]:
        """Find the leaf of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        leaves : ndarray of shape (n_samples,), or (n_samples, n_trees) for a forest and a boosted model
            Number of the leaf among the nodes of its tree, which are counted from 0 at the root, each before those
            below it, the left branch first.
        """
        values = self._check(X)
        leaves = find_leaves(self.model_, values, effective_n_jobs(self.n_jobs))
        nodes = self.model_.leaf_nodes[leaves] - self.model_.roots
        return np.asarray(nodes if self.model_.is_forest else nodes[:, 0], dtype=np.intp)

    def get_depth(self) -> int:
        """Depth of the tree: the largest number of splits above a leaf; of a forest, of its deepest tree."""
        check_is_fitted(self)
        return self.model_.max_depth

    def get_n_leaves(self) -> int:
        """Number of leaves, of a forest in all its trees."""
        check_is_fitted(self)
        return self.model_.n_leaves

    @overload
    def certify(
        self,
        X: ArrayLike,
        epsilon: Allowed = None,
        *,
        budget: Budget | None = None,
        witnesses: Literal[False] = False,
    ) -> NDArray[np.bool_]: ...

    @overload
    def certify(
        self,
        X: ArrayLike,
        epsilon: Allowed = None,
        *,
        budget: Budget | None = None,
        witnesses: Literal[True],
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]: ...

    def certify(
        self,
        X: ArrayLike,
        epsilon: Allowed = None,
        *,
        budget: Budget | None = None,
        witnesses: bool = False,
    ) -> NDArray[np.bool_] | tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Prove for each sample that no allowed perturbation changes its prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        epsilon : float, Perturbation or None, default=None
            The perturbation to certify. None means that of training.
        budget : Budget or None, default=None
            Limit of the search for each sample of a forest; samples that are not decided within it are not
            certified. Set it if certification takes too long.
        witnesses : bool, default=False
            Whether to return adversarial examples too.

        Returns
        -------
        is_stable : ndarray of shape (n_samples,), dtype=bool
        points : ndarray of shape (n_samples, n_features)
            Only with `witnesses`: for each unstable sample an adversarial example, for other samples NaN. If the
            model was trained on a table with categories, its cells as objects, without the ignored columns.
        """
        query, outcome = self._decide(X, epsilon, budget)
        is_stable = np.asarray(outcome.stability == Stability.STABLE)
        if not witnesses:
            return is_stable
        encoding = self.model_.encoding
        if encoding is None:
            points = np.full(query.dataset.X.shape, np.nan)
        else:
            points = np.full((len(is_stable), len(encoding.columns)), np.nan, dtype=object)
        for witness in find_witnesses(query, outcome, effective_n_jobs(self.n_jobs)):
            points[witness.row] = witness.point if encoding is None else encoding.decode(witness.point)
        return is_stable, points

    def radius(self, X: ArrayLike, *, norm: str | None = None, budget: Budget | None = None) -> NDArray[np.float64]:
        """Compute the certified radius of each sample: the largest one that cannot change its prediction.

        Perturbed samples stay in the range of the perturbation of training, if it has one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        norm : {"linf", "l1", "l2", "l0"} or None, default=None
            Norm of the distances. None is that of training, or multiples of the radii of a general perturbation; in
            the norms l1, l2 and l0, such a perturbation says what may change at all.
        budget : Budget or None, default=None
            Limit of the search for each sample of a forest; with it, radii may be lower bounds.

        Returns
        -------
        radii : ndarray of shape (n_samples,)
            Infinite where no perturbation changes the prediction.
        """
        allowed: Allowed = 1.0
        trained = self._perturbation()
        within = None if self.perturbation is None else allowed_changes(trained)
        if norm == LINF and isinstance(trained, NormBall):
            allowed = within or Ball(1.0)
        elif norm is not None and norm != LINF:
            try:
                allowed = NormBall(norm, within=within)
            except RequestError as error:
                raise ValueError(str(error)) from None
        return find_radii(self._make_query(X, allowed), effective_n_jobs(self.n_jobs), budget=budget).lower

    def robust_score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        epsilon: Allowed = None,
        *,
        budget: Budget | None = None,
    ) -> float:
        """Certified robust accuracy: the fraction of samples that are classified correctly and are stable.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        epsilon : float, Perturbation or None, default=None
            The perturbation to certify. None means that of training.
        budget : Budget or None, default=None
            Limit of the search for each sample of a forest; undecided samples count as unstable.
        """
        return self.robust_metrics(X, y, epsilon, budget=budget)[2]

    def robust_metrics(
        self,
        X: ArrayLike,
        y: ArrayLike,
        epsilon: Allowed = None,
        *,
        budget: Budget | None = None,
    ) -> tuple[float, float, float]:
        """Accuracy, stability and robust accuracy; tied classes do not count as correct.

        Parameters are those of `robust_score`.
        """
        _, outcome = self._decide(X, epsilon, budget)
        is_correct = self._are_correct(outcome.predictions, y)
        is_stable = outcome.stability == Stability.STABLE
        return float(is_correct.mean()), float(is_stable.mean()), float((is_correct & is_stable).mean())

    def _are_correct(self, predictions: PredictionTable, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether each prediction is the class of y and no other."""
        targets = np.asarray(y)
        if targets.shape != predictions.ids.shape:
            raise ValueError(f"X has {len(predictions.ids)} samples, y has the shape {targets.shape}")
        only = predictions.only_label[predictions.ids]
        return np.asarray((only >= 0) & (self.classes_[self._class_of_label[only]] == targets))

    def save(self, path: str | Path) -> None:
        """Write the model in silva's text format, as ``metasilvae train`` does."""
        check_is_fitted(self)
        write_model(self.model_, str(path))

    def _name_class_weight(self, labels: tuple[str, ...]) -> Any:
        """The parameter `class_weight` by the names of labels in the model."""
        if not isinstance(self.class_weight, Mapping):
            return self.class_weight
        named = dict(zip(self.classes_[self._class_of_label].tolist(), labels, strict=True))
        unknown = [label for label in self.class_weight if label not in named]
        if unknown:
            raise ValueError(f"class_weight has a weight for {unknown[0]!r}, which is not among the classes of y")
        return {named[label]: weight for label, weight in self.class_weight.items()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _keep(self, parameters: dict[str, Any]) -> None:
        """Store the parameters of `__init__` unchanged, as scikit-learn requires."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def _check(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        return self._check_rows(X).X

    def _check_rows(self, X: ArrayLike) -> Dataset:
        """Samples without labels, with the features of the model."""
        if self.model_.encoding is None:
            values: NDArray[np.float64] = validate_data(
                self, X, dtype=np.float64, order="C", reset=False, ensure_all_finite="allow-nan"
            )
            rows = Dataset(values, np.zeros(len(values), dtype=np.int32), self.model_.labels, source="X")
            try:
                check_missing(self.model_, rows)
            except ModelError as error:
                raise ValueError(str(error)) from None
            return rows
        validate_data(self, X, skip_check_array=True, reset=False)
        try:
            dataset = self._encode(X, self.model_.encoding, self.categorical_names_)
        except DataError as error:
            raise ValueError(str(error)) from None
        return replace(dataset, y=np.zeros(dataset.n_samples, dtype=np.int32), labels=self.model_.labels)

    def _find_categorical(self, X: ArrayLike) -> list[str] | None:
        """Names of columns that are categories by the parameter; None if all columns are numbers."""
        wanted = self.categorical_features
        if wanted is None or (isinstance(wanted, str) and wanted == "from_dtype"):
            is_typed = wanted is not None and is_frame(X) and find_kinds(X)
            self.categorical_names_ = []
            return [] if is_typed else None
        if isinstance(wanted, str):
            raise ValueError(f"categorical_features is {wanted!r}; expected 'from_dtype', None or a list of columns")
        columns = (
            [str(name) for name in getattr(X, "columns", ())]
            if is_frame(X)
            else [f"x[{place}]" for place in range(np.asarray(X).shape[1])]
        )
        chosen = np.asarray(wanted)
        if chosen.dtype == bool and len(chosen) == len(columns):
            chosen = np.flatnonzero(chosen)
        names = []
        for each in chosen.tolist():
            if isinstance(each, str) and each in columns:
                names.append(each)
            elif isinstance(each, int) and 0 <= each < len(columns):
                names.append(str(columns[each]))
            else:
                raise ValueError(f"categorical_features has {each!r}, which is no column of X")
        self.categorical_names_ = names
        return names or None

    def _encode(self, X: Any, encoding: Encoding | None, categorical: list[str]) -> Dataset:
        """Samples without labels; columns of a DataFrame or an array as features."""
        if is_frame(X):
            return encode_frame(X, "X", encoding=encoding, categorical=categorical)
        values = np.asarray(X)
        places = [int(name[2:-1]) for name in categorical]
        table, specs = read_array(values, "X", places)
        return read_typed(table, with_specs(DEFAULT_TABLE, specs), Problems("X"), encoding, "the training data")

    def _perturbation(self, epsilon: Allowed = None, dataset: Dataset | None = None) -> Perturbation:
        """The perturbation of training, or another one; a number changes only the radius of a ball."""
        if epsilon is None:
            return self._withstood(dataset)
        try:
            if isinstance(epsilon, Real) and (self.norm != LINF or isinstance(self.perturbation, Ball | NormBall)):
                return replace(self._withstood(None), epsilon=float(epsilon))  # type: ignore[type-var]
            return as_perturbation(epsilon, dataset)
        except (RequestError, PerturbationError) as error:
            raise ValueError(str(error)) from None

    def _withstood(self, dataset: Dataset | None) -> Perturbation:
        """The perturbation of training; rules are bound to a data set, or were bound to that of training."""
        own = self.perturbation
        if isinstance(own, AttackRules) and dataset is None and hasattr(self, "model_"):
            return self.perturbation_
        if self.norm == LINF:
            return as_perturbation(self.epsilon if own is None else own, dataset)
        return NormBall(self.norm, self.epsilon, None if own is None else as_perturbation(own, dataset))

    def _decide(self, X: ArrayLike, epsilon: Allowed, budget: Budget | None) -> tuple[VerificationQuery, Outcome]:
        query = self._make_query(X, epsilon)
        return query, verify(query, effective_n_jobs(self.n_jobs), budget=budget)

    def _make_query(self, X: ArrayLike, epsilon: Allowed) -> VerificationQuery:
        """A verification query for samples without labels."""
        check_is_fitted(self)
        dataset = self._check_rows(X)
        allowed = self._perturbation(epsilon, dataset if isinstance(epsilon, AttackRules) else None)
        return make_query(self.model_, dataset, allowed)

    def _choose_options(self) -> Any:
        raise NotImplementedError

    def _shared_choices(self) -> dict[str, Any]:
        """Parameters that several estimators have, by the names of the options."""
        choices = {name: getattr(self, parameter) for parameter, name in OPTIONS.items() if hasattr(self, parameter)}
        return {**choices, "preset": self.preset, "weights": self.weights, "seed": self._seed(), **(self.options or {})}

    def _in_own_words(self, message: str) -> str:
        """A message about an option of training, with the name of the parameter."""
        for parameter, option in OPTIONS.items():
            public = PUBLIC_NAMES.get(option, option).replace("_", "-")
            if hasattr(self, parameter):
                message = re.sub(rf"^{public} is ", f"{parameter} is ", message).replace(
                    f"'{public}'", f"'{parameter}'"
                )
        return message

    def _find_start(self, dataset: Dataset) -> Model | None:
        """The tree of the previous fit, if `warm_start` asks for it."""
        if not getattr(self, "warm_start", False) or not hasattr(self, "model_"):
            return None
        before = self.model_
        features = [(each.n_features, each.names.names) for each in (before, dataset)]
        if set(before.labels) != set(dataset.labels) or features[0] != features[1]:
            raise ValueError("warm_start needs the classes and the features of the previous fit; set it to False")
        order = [before.labels.index(label) for label in dataset.labels]
        return replace(before, labels=dataset.labels, leaf_values=np.ascontiguousarray(before.leaf_values[:, order]))

    def _seed(self) -> int:
        """An integer is the seed itself, as on the command line; otherwise one is drawn."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(MOST_SEEDS))


class _Reporter:
    """Counts iterations, and prints the progress of training: a line a second, or all if `verbose` is above 1."""

    def __init__(self, name: str, verbose: int) -> None:
        self._name, self._verbose = name, verbose
        self._pause = 0.0 if verbose > 1 else 1.0
        self._phase, self._next = "", 0.0
        self.n_iterations = 0

    def __call__(self, progress: Progress) -> None:
        self.n_iterations += progress.phase in ("generation", "tree", "round")
        if not self._verbose or (progress.phase == self._phase and progress.seconds < self._next):
            return
        self._phase, self._next = progress.phase, progress.seconds + self._pause
        print(
            f"[{self._name}] {progress.phase} {progress.step}: accuracy {progress.accuracy:.4f}, stability "
            f"{progress.stability:.4f}, robust accuracy {progress.robust_accuracy:.4f}, {progress.leaves} leaves, "
            f"{progress.seconds:.1f} s"
        )


def _name_labels(classes: np.ndarray) -> tuple[str, ...]:
    """Names of the classes, or numbers if silva's format does not allow the names."""
    names = tuple(name_classes(classes))
    if len(set(names)) < len(names) or any(map(label_problem, names)):
        return tuple(f"class-{number}" for number in range(len(names)))
    return names
