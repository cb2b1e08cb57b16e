"""Prediction, and the checks that a data set fits a model."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.model import predict as kernel
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError, list_some
from metasilvae.execution.threads import over_rows
from metasilvae.model import Model, PredictionTable
from metasilvae.voting import choose_voting, count_votes


def find_leaves(model: Model, X: NDArray[np.float64], jobs: int | None = 1) -> NDArray[np.int32]:
    """Leaf of each tree that each sample falls into, shape (n_samples, n_trees)."""
    leaves = np.empty((len(X), model.n_trees), dtype=np.int32)
    over_rows(lambda start, stop: kernel.fill_leaves(model.nodes, model.roots, X, start, stop, leaves), len(X), jobs)
    return leaves


def predict(model: Model, X: NDArray[np.float64], voting: str | None = None, jobs: int | None = 1) -> PredictionTable:
    """Prediction of the model for each sample: a set of labels, because votes and counts can tie.

    Parameters
    ----------
    X : float64 array, C-contiguous, shape (n_samples, n_features)
        With every feature that the model tests.
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    jobs : int or None
        Threads; None means all available cores.
    """
    voting = choose_voting(model, voting)
    leaves = find_leaves(model, X, jobs)
    if model.n_trees == 1:
        predictions = model.leaf_predictions
        return PredictionTable(predictions.sets, predictions.ids[leaves[:, 0]])
    return PredictionTable.of_best(count_votes(model, leaves, voting))


def check_width(model: Model, dataset: Dataset) -> None:
    """Refuse data without a feature that the model tests, or with more features than the model declares."""
    dataset.refuse_missing(model.source)
    if dataset.n_features == model.n_features:
        return
    widest = int(model.tested_features.max(initial=-1))
    if dataset.n_features > model.n_features or widest >= dataset.n_features:
        raise ModelError(
            f"{dataset.source} has {dataset.n_features} features, {model.source} expects {model.n_features}; "
            "check that they belong together and that --label-column is correct"
        )
    warnings.warn(
        f"{model.source} declares {model.n_features} features, {dataset.source} has {dataset.n_features}; "
        "the data have every feature that the model tests",
        MetasilvaeWarning,
        stacklevel=2,
    )


def match_labels(model: Model, dataset: Dataset) -> NDArray[np.int32]:
    """True label of each sample as a position in the model's labels, -1 where the model does not know it."""
    position = {label: number for number, label in enumerate(model.labels)}
    translation = np.array([position.get(label, -1) for label in dataset.labels], dtype=np.int32)
    if dataset.n_labels and (translation < 0).all():
        raise ModelError(
            f"no label of {dataset.source} ({list_some(dataset.labels)}) is known to {model.source} "
            f"({list_some(model.labels)}); check that they belong together and that --label-column is correct"
        )
    true_labels = translation[dataset.y]
    if (true_labels < 0).any():
        unknown = [label for label, number in zip(dataset.labels, translation, strict=True) if number < 0]
        warnings.warn(
            f"{int((true_labels < 0).sum())} rows of {dataset.source} have labels that {model.source} does not know "
            f"({list_some(unknown)}); they count as wrong",
            MetasilvaeWarning,
            stacklevel=2,
        )
    return true_labels
