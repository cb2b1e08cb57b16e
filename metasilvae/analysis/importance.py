"""How much each feature contributes to the predictions of a model, by the decrease of impurity at its splits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metasilvae.encoding import Encoding
from metasilvae.model import LeafKind, Model
from metasilvae.prediction import find_leaves

ROUNDING = 1e-12


def find_importances(model: Model, X: NDArray[np.float64] | None = None, jobs: int | None = 1) -> NDArray[np.float64]:
    """Importance of each feature; they sum to 1, or are all 0 if the model has no split that matters.

    For trees with class counts this is scikit-learn's mean decrease of the Gini impurity: each split decreases the
    impurity of the training samples in its leaves; the decreases are added by feature, divided by their sum, and
    averaged over the trees. For scores it is the decrease of the variance of the scores that the tree adds to the
    samples `X`, added over all trees.

    Parameters
    ----------
    X : float64 array, shape (n_samples, n_features), or None
        Samples that weight the leaves of a model with scores; None weights all leaves alike.
    """
    inner = np.flatnonzero(model.nodes["feature"] >= 0)
    impurity = _count_impurities(model) if model.leaf_kind is LeafKind.COUNTS else _score_variances(model, X, jobs)
    left, right = (impurity[model.nodes[side][inner]] for side in ("left", "right"))
    decrease = impurity[inner] - left - right
    # What rounding leaves of nothing.
    decrease[decrease <= ROUNDING * impurity[inner]] = 0.0
    features = model.nodes["feature"][inner]
    if model.leaf_kind is LeafKind.COUNTS:
        tree_of_split = np.searchsorted(model.roots, inner, side="right") - 1
        totals = np.bincount(tree_of_split, decrease, minlength=model.n_trees)[tree_of_split]
        decrease = np.divide(decrease, totals, out=np.zeros_like(decrease), where=totals > 0)
    found = np.bincount(features, decrease, minlength=model.n_features)
    total = found.sum()
    return np.asarray(found / total if total > 0 else np.zeros(model.n_features))


def add_by_column(importances: NDArray[np.float64], encoding: Encoding | None) -> NDArray[np.float64]:
    """The importance of each column of a table: the sum over its features."""
    if encoding is None:
        return importances
    return np.add.reduceat(importances, encoding.starts[:-1])


def _count_impurities(model: Model) -> NDArray[np.float64]:
    """Gini impurity of each node, times the number of its samples."""
    counts = _add_to_parents(model, model.leaf_values.astype(np.float64))
    totals = counts.sum(axis=1)
    return np.asarray(totals - _divide((counts**2).sum(axis=1), totals))


def _score_variances(model: Model, X: NDArray[np.float64] | None, jobs: int | None) -> NDArray[np.float64]:
    """Sum of squared deviations of the scores of the samples in each node."""
    weights = np.ones(model.n_leaves)
    if X is not None:
        weights = np.bincount(find_leaves(model, X, jobs).reshape(-1), minlength=model.n_leaves).astype(np.float64)
    # The unit makes no difference; in this one nothing overflows.
    largest = np.abs(model.leaf_values).max(initial=0.0)
    scores = model.leaf_values / largest if largest > 0 else model.leaf_values
    # A number that is added to the scores of all labels changes no prediction.
    scores = scores - scores.mean(axis=1, keepdims=True)
    terms = np.column_stack([weights, weights[:, None] * scores, weights * (scores**2).sum(axis=1)])
    sums = _add_to_parents(model, terms)
    return np.asarray(sums[:, -1] - _divide((sums[:, 1:-1] ** 2).sum(axis=1), sums[:, 0]))


def _divide(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _add_to_parents(model: Model, of_leaves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over the leaves below each node, level by level from the bottom."""
    sums = np.zeros((model.n_nodes, of_leaves.shape[1]))
    is_leaf = model.nodes["feature"] < 0
    sums[is_leaf] = of_leaves[model.nodes["leaf"][is_leaf]]
    order = np.argsort(model.depths, kind="stable")
    starts = np.searchsorted(model.depths[order], np.arange(1, model.max_depth + 1))
    for level in reversed(np.split(order, starts)[1:]):
        np.add.at(sums, model.parents[level], sums[level])
    return sums
