"""Whether a model and a data set belong together."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.model import Model


def check_width(model: Model, dataset: Dataset) -> None:
    """Refuse data without a feature that the model tests, or with more features than the model knows."""
    if dataset.n_features == model.n_features:
        return
    widest = int(model.tested_features.max(initial=-1))
    if dataset.n_features > model.n_features or widest >= dataset.n_features:
        raise ModelError(
            f"{dataset.source} has {dataset.n_features} features, {model.source} expects {model.n_features}; "
            "check that they belong together and that --label-column is right"
        )
    warnings.warn(
        f"{model.source} declares {model.n_features} features, {dataset.source} has {dataset.n_features}; "
        "every feature that the model tests is there",
        MetasilvaeWarning,
        stacklevel=2,
    )


def match_labels(model: Model, dataset: Dataset) -> NDArray[np.int32]:
    """True label of each sample as a position in the model's labels, -1 where the model does not know it."""
    position = {label: number for number, label in enumerate(model.labels)}
    translation = np.array([position.get(label, -1) for label in dataset.labels], dtype=np.int32)
    if dataset.n_labels and (translation < 0).all():
        raise ModelError(
            f"no label of {dataset.source} ({_listed(dataset.labels)}) is known to {model.source} "
            f"({_listed(model.labels)}); check that they belong together and that --label-column is right"
        )
    true_labels = translation[dataset.y]
    if (true_labels < 0).any():
        unknown = [label for label, number in zip(dataset.labels, translation, strict=True) if number < 0]
        warnings.warn(
            f"{int((true_labels < 0).sum())} rows of {dataset.source} have labels that {model.source} does not know "
            f"({_listed(unknown)}); they count as wrong",
            MetasilvaeWarning,
            stacklevel=2,
        )
    return true_labels


def _listed(labels: tuple[str, ...] | list[str], most: int = 5) -> str:
    return ", ".join(labels[:most]) + (", ..." if len(labels) > most else "")
