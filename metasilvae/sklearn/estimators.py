"""The estimators: a tree, a forest and a boosted model."""

from __future__ import annotations

from typing import Any

from metasilvae.api import choose_options
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.sklearn.base import RobustClassifier


class MetaSilvaeClassifier(RobustClassifier):
    """A robust decision tree, as trained by ``metasilvae train``.

    Parameters
    ----------
    epsilon : float, default=0.1
        Maximum change of each feature that the tree is trained to withstand, in the units of the features.
    norm : {"linf", "l1", "l2", "l0"}, default="linf"
        What `epsilon` limits: the change of each feature, or the total change. Trainers refuse norms that they do not
        know.
    perturbation : Perturbation, AttackRules or None, default=None
        A general perturbation instead of `epsilon`, for instance ``Ball(30, 0, 255)``. The rules of `read_attack` are
        bound to the names of columns when the model is fitted, so that they fit in cross-validation and pipelines.
        With a `norm` of the total change, it says what may change at all.
    preset : {"default", "fast", "best", "paper", "cart"}, default="default"
        Set of defaults for the parameters that are None. Use "fast" for quick experiments, "best" for final models.
    weights : dict or None, default=None
        Weights of the metrics in the objective. None means ``{"accuracy": 0.9, "stability": 0.1}``. Increase
        ``"robust_accuracy"`` or ``"stability"`` if stability matters more than accuracy.
    max_depth : int or None, default=None
        Maximum depth of a tree. Set it for models that people read.
    max_leaf_nodes : int or None, default=None
        Maximum number of leaves of a tree.
    min_samples_leaf : int or None, default=None
        Minimum number of samples per leaf. Increase it for noisy data.
    leaf_penalty : float or None, default=None
        Complexity penalty per leaf, in samples. Increase it for smaller trees. Setting it disables tuning.
    training_epsilon_factor : float or None, default=None
        Factor by which epsilon is multiplied in training. Above 1, stability generalizes better. Setting it disables
        tuning.
    robust_weight : float or None, default=None
        Fraction of the accuracy weight that moves to robust accuracy in training. Setting it disables tuning.
    tune : bool or None, default=None
        Whether to tune the three parameters above by cross-validation on subsamples. Set it to False to save time.
    max_iter : int or None, default=None
        Maximum number of generations of the genetic search.
    n_iter_no_change : int or None, default=None
        Number of generations without improvement after which the search stops. Increase both for a longer search.
    time_limit : float or None, default=None
        Maximum training time in seconds. With a limit, the model depends on the machine.
    validation_fraction : float or None, default=None
        Fraction of the samples that is held out to select the final model.
    options : dict or None, default=None
        Further fields of `TrainingOptions`, such as ``{"population": 64}``.
    n_jobs : int or None, default=None
        Number of threads; the model does not depend on it.
    random_state : int, RandomState instance or None, default=0
        Random seed. An integer gives the same model as ``--seed`` of the command line.
    verbose : int, default=0
        1 prints the progress once a second, 2 every step.
    warm_start : bool, default=False
        Whether the search starts from the tree of the previous `fit`, for instance to go on with new samples.
    categorical_features : "from_dtype", list of columns or None, default="from_dtype"
        Columns that are categories, by name, position or mask. "from_dtype" takes columns of a DataFrame with
        categories, texts or booleans. None reads all columns as numbers.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes in the objective, in accuracy and stability alike. "balanced" gives all classes the same
        total weight.

    Attributes
    ----------
    model_ : Model
        The trained model.
    classes_ : ndarray of shape (n_classes,)
        The classes.
    robust_score_ : float
        Robust accuracy on the training samples.
    n_iter_ : int
        Number of generations of the genetic search, at least 1; of trees of a forest, of rounds of boosting.
    feature_importances_ : ndarray of shape (n_features_in_,)
        Importance of each column; they sum to 1. For a tree and a forest this is the mean decrease of the Gini
        impurity, as in scikit-learn; for a boosted model the decrease of the variance of its scores. Both favour
        columns with many different values, and say nothing about stability: ``metasilvae explain`` does.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`, if all are strings.
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        *,
        norm: str = "linf",
        perturbation: Perturbation | AttackRules | None = None,
        preset: str = "default",
        weights: dict[str, float] | None = None,
        max_depth: int | None = None,
        max_leaf_nodes: int | None = None,
        min_samples_leaf: int | None = None,
        leaf_penalty: float | None = None,
        training_epsilon_factor: float | None = None,
        robust_weight: float | None = None,
        tune: bool | None = None,
        max_iter: int | None = None,
        n_iter_no_change: int | None = None,
        time_limit: float | None = None,
        validation_fraction: float | None = None,
        options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        warm_start: bool = False,
        categorical_features: Any = "from_dtype",
        class_weight: Any = None,
    ) -> None:
        self._keep(locals())

    def _choose_options(self) -> Any:
        return choose_options(**self._shared_choices())


class RobustForestClassifier(RobustClassifier):
    """A robust forest, as trained by ``metasilvae train --trees``; its trees are trained for their joint vote.

    Parameters that are not listed are those of `MetaSilvaeClassifier`; limits of size apply to each tree.

    Parameters
    ----------
    n_estimators : int, default=50
        Number of trees. More trees are more accurate, but slower to verify. With an odd number, votes of two classes
        cannot tie. If a single tree is better in cross-validation, it is the model.
    epsilon : float, default=0.1
        Maximum change of each feature that the forest is trained to withstand, in the units of the features.
    method : {"auto", "reweighted", "independent"} or None, default=None
        How trees are trained. With "reweighted", each tree focuses on samples that the forest so far gets wrong or
        unstable. "auto" selects the method by cross-validation.
    max_samples : float or None, default=None
        Fraction of the samples drawn for each tree. Decrease it for more diverse trees.

    Attributes
    ----------
    model_, classes_, n_iter_, feature_importances_, n_features_in_, feature_names_in_
        As for `MetaSilvaeClassifier`.
    robust_score_ : float
        A lower bound of the robust accuracy on the training samples.
    """

    def __init__(
        self,
        n_estimators: int = 50,
        epsilon: float = 0.1,
        *,
        method: str | None = None,
        max_samples: float | None = None,
        norm: str = "linf",
        perturbation: Perturbation | AttackRules | None = None,
        preset: str = "default",
        weights: dict[str, float] | None = None,
        max_depth: int | None = None,
        max_leaf_nodes: int | None = None,
        min_samples_leaf: int | None = None,
        leaf_penalty: float | None = None,
        training_epsilon_factor: float | None = None,
        robust_weight: float | None = None,
        tune: bool | None = None,
        time_limit: float | None = None,
        validation_fraction: float | None = None,
        options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        categorical_features: Any = "from_dtype",
        class_weight: Any = None,
    ) -> None:
        self._keep(locals())

    def _choose_options(self) -> Any:
        return choose_options(trees=self.n_estimators, **self._shared_choices())


class RobustBoostingClassifier(RobustClassifier):
    """A robust boosted model, as trained by ``metasilvae train --boost``.

    Each tree is grown for a loss that counts every sample at itself and at the worst point of its box. Parameters that
    are not listed are those of `MetaSilvaeClassifier`.

    Parameters
    ----------
    n_estimators : int, default=100
        Maximum number of rounds. Each adds one tree, or one tree for each of more than two classes. Tuning may choose
        fewer rounds.
    epsilon : float, default=0.1
        Maximum change of each feature that the model is trained to withstand, in the units of the features.
    learning_rate : float or None, default=None
        Factor of the scores of each tree. A lower rate generalizes better and needs more rounds.
    subsample : float or None, default=None
        Fraction of the samples drawn for each tree to grow on, those that the loss depends on most.
    max_features : float or None, default=None
        Fraction of the features drawn for each level of a tree. Decrease it to save time on data with many features.
    max_depth : int or None, default=None
        Maximum depth of a tree. Setting it disables tuning.
    n_iter_no_change : int or None, default=None
        With `validation_fraction`: number of rounds without improvement on the held-out samples after which training
        stops.

    Attributes
    ----------
    model_, classes_, n_iter_, feature_importances_, n_features_in_, feature_names_in_
        As for `MetaSilvaeClassifier`.
    robust_score_ : float
        A lower bound of the robust accuracy on the training samples.
    """

    def __init__(
        self,
        n_estimators: int = 100,
        epsilon: float = 0.1,
        *,
        learning_rate: float | None = None,
        subsample: float | None = None,
        max_features: float | None = None,
        norm: str = "linf",
        perturbation: Perturbation | AttackRules | None = None,
        preset: str = "default",
        weights: dict[str, float] | None = None,
        max_depth: int | None = None,
        min_samples_leaf: int | None = None,
        training_epsilon_factor: float | None = None,
        robust_weight: float | None = None,
        tune: bool | None = None,
        n_iter_no_change: int | None = None,
        time_limit: float | None = None,
        validation_fraction: float | None = None,
        options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        categorical_features: Any = "from_dtype",
        class_weight: Any = None,
    ) -> None:
        self._keep(locals())

    def _choose_options(self) -> Any:
        return choose_options(boost=self.n_estimators, **self._shared_choices())
