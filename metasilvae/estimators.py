"""The trainers as scikit-learn estimators."""

from __future__ import annotations

from typing import Any

from metasilvae.api import choose_options
from metasilvae.perturbation import Perturbation
from metasilvae.robust_classifier import RobustClassifier


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
    leaf_cost, radius_factor, caution : float or None
        How careful to be. Whoever sets one of them wants no rehearsal.
    rehearse : bool or None
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
        leaf_cost: float | None = None,
        radius_factor: float | None = None,
        caution: float | None = None,
        rehearse: bool | None = None,
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
    perturbation, preset, weights, max_depth, max_leaves, min_samples_leaf, leaf_cost, radius_factor, caution,
    rehearse, time_limit, validation, options, n_jobs, random_state
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
        leaf_cost: float | None = None,
        radius_factor: float | None = None,
        caution: float | None = None,
        rehearse: bool | None = None,
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
