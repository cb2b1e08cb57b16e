"""Labels that tie in a model: one of them is preferred in all of it, because a prediction of several is never correct.

Search counts a leaf that ties as wrong and mostly avoids it. Where rows of different labels are equal, or no split
pays, ties remain. If the same label is preferred in all leaves, a stable row stays stable, and accuracy only rises.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import LeafKind, Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.prediction import predict
from metasilvae.training.boosted_trees import VALUE_UNIT
from metasilvae.training.options import TrainingOptions
from metasilvae.training.samples import build_tree
from metasilvae.verification.metrics import evaluate


def rank_labels(dataset: Dataset) -> NDArray[np.intp]:
    """Labels by the number of their rows, by weight, the most frequent one first; of equal ones, the first."""
    counts = [dataset.count(dataset.y == label) for label in range(dataset.n_labels)]
    return np.argsort(-np.array(counts), kind="stable")


def settle_ties(model: Model, dataset: Dataset) -> Model:
    """The model with one label where several tie: the one that most training rows have.

    In the leaves of a tree its count is raised by one. The votes of several trees may tie all the same, so that forests
    stay as they are, unless they have no splits. In a boosted model scores that tie are moved apart by less than scores
    that differ can be, if any training row has them.
    """
    order = rank_labels(dataset)
    if model.leaf_kind is LeafKind.SCORES:
        return _settle_scores(model, dataset, order)
    if model.n_trees > 1 and model.n_leaves > model.n_trees:
        return model
    values = model.leaf_values
    is_largest = values == values.max(axis=1, keepdims=True)
    tied = np.flatnonzero(is_largest.sum(axis=1) > 1)
    if not len(tied):
        return model
    values = values.copy()
    values[tied, order[is_largest[tied][:, order].argmax(axis=1)]] += 1
    return replace(model, leaf_values=values)


def _settle_scores(model: Model, dataset: Dataset, order: NDArray[np.intp]) -> Model:
    has_splits = model.n_leaves > model.n_trees
    table = predict(model, dataset.X if has_splits else np.zeros((1, model.n_features)))
    sizes = np.array([len(each) for each in table.sets])
    if not (sizes[table.ids] > 1).any():
        return model
    n_labels = len(order)
    step = VALUE_UNIT / 2 ** int(n_labels).bit_length()
    moves = np.empty(n_labels)
    moves[order] = step * np.arange(n_labels - 1, -1, -1)
    values = model.leaf_values.copy()
    # The leaves of the first tree, one of which counts for each row.
    first = model.nodes[: model.roots[1]] if model.n_trees > 1 else model.nodes
    values[first["leaf"][first["feature"] < 0]] += moves
    return replace(model, leaf_values=values)


def prefer_constant(model: Model, dataset: Dataset, perturbation: Perturbation, options: TrainingOptions) -> Model:
    """The tree, or a single leaf if that has a higher fitness on the training rows, less the leaf penalty.

    A search that counts ties as wrong may not know how good a single leaf is.
    """
    if model.n_trees > 1 or model.leaf_kind is not LeafKind.COUNTS or model.n_leaves == 1:
        return model
    counts = np.array([dataset.count(dataset.y == label) for label in range(dataset.n_labels)])
    accuracy = counts.max() / dataset.total_weight
    price = options.price_of_leaf(dataset.weighted_rows)
    constant = options.fitness.value(accuracy, 1.0, accuracy) - price
    if constant <= evaluate(model, dataset, [perturbation], jobs=1)[0].phi(options.fitness) - price * model.n_leaves:
        return model
    leaf = np.array([-1], dtype=np.int32)
    columns = leaf, np.zeros(1), leaf, leaf
    single = build_tree(columns, counts[None].astype(model.leaf_values.dtype), model.n_features, model.labels)
    return settle_ties(replace(model, nodes=single.nodes, roots=single.roots, leaf_values=single.leaf_values), dataset)
