"""Size and shape of a model, in the metrics of silva's tree-info, and agreement between models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import LeafKind, Model
from metasilvae.verification.metrics import classify


@dataclass(frozen=True)
class Spread:
    """Distribution of a quantity over the leaves.

    As in the C program, quartiles are elements of the sorted values, at positions n // 4, n // 2 and 3 n // 4, and the
    variance is that of a population.
    """

    minimum: float
    first_quartile: float
    median: float
    mean: float
    third_quartile: float
    maximum: float
    variance: float

    @classmethod
    def of(cls, values: NDArray[np.float64] | NDArray[np.int32]) -> Spread:
        ordered = np.sort(values).astype(np.float64)
        n = len(ordered)
        return cls(
            minimum=float(ordered[0]),
            first_quartile=float(ordered[n // 4]),
            median=float(ordered[n // 2]),
            mean=float(ordered.mean()),
            third_quartile=float(ordered[3 * n // 4]),
            maximum=float(ordered[-1]),
            variance=float(ordered.var()),
        )


@dataclass(frozen=True)
class ModelSummary:
    """Size and shape of a model.

    Attributes
    ----------
    heights : Spread
        Number of splits above each leaf.
    samples, entropy : Spread or None
        Number of samples in each leaf, and entropy of their labels with the number of labels as base; None for
        boosted leaves, which hold scores.
    feature_frequencies : int64 array, shape (n_features,)
        Number of splits on each feature.
    n_unreachable : int
        Leaves that no sample can reach, because the tests above them contradict each other.
    """

    model: Model
    n_leaves: int
    heights: Spread
    samples: Spread | None
    entropy: Spread | None
    feature_frequencies: NDArray[np.int64]
    n_unreachable: int


def summarize_model(model: Model) -> ModelSummary:
    """Summarize all trees of a model."""
    features = model.nodes["feature"]
    is_leaf = features < 0
    samples = entropy = None
    if model.leaf_kind is LeafKind.COUNTS:
        counts = model.leaf_values[model.nodes["leaf"][is_leaf]].astype(np.float64)
        totals = counts.sum(axis=1)
        samples, entropy = Spread.of(totals), Spread.of(label_entropy(counts, totals))
    return ModelSummary(
        model=model,
        n_leaves=int(is_leaf.sum()),
        heights=Spread.of(model.depths[is_leaf]),
        samples=samples,
        entropy=entropy,
        feature_frequencies=np.bincount(features[~is_leaf], minlength=model.n_features),
        n_unreachable=int(is_leaf.sum() - (model.without_contradictions.nodes["feature"] < 0).sum()),
    )


def label_entropy(counts: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy of each row of counts, divided by its largest possible value."""
    n_labels = counts.shape[1]
    if n_labels == 1:
        return np.zeros(len(counts))
    fractions = counts / totals[:, np.newaxis]
    logarithms = np.log(fractions, out=np.zeros_like(fractions), where=fractions > 0)
    # Dividing first gives exactly 1 for most uniform rows; adding 0.0 turns the -0.0 of pure rows into 0.0.
    entropies: NDArray[np.float64] = -(fractions * (logarithms / np.log(n_labels))).sum(axis=1) + 0.0
    return entropies


def count_equal_predictions(
    models: Sequence[Model], dataset: Dataset, *, voting: str | None = None, jobs: int | None = None
) -> NDArray[np.int64]:
    """Number of rows with the same prediction for each pair of models, shape (n_models, n_models).

    Labels are compared by name, because models may order them differently.
    """
    number_of: dict[frozenset[str], int] = {}
    predictions = np.empty((len(models), dataset.n_samples), dtype=np.int32)
    for row, model in zip(predictions, models, strict=True):
        table = classify(model, dataset, voting=voting, jobs=jobs)
        named = [frozenset(model.labels[label] for label in labels) for labels in table.sets]
        common = np.array([number_of.setdefault(labels, len(number_of)) for labels in named], dtype=np.int32)
        row[:] = common[table.ids]
    equal = np.empty((len(models), len(models)), dtype=np.int64)
    for first in range(len(models)):
        equal[first] = (predictions == predictions[first]).sum(axis=1)
    return equal
