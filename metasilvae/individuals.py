"""Trees in training and finished models, each turned into the other."""

from __future__ import annotations

import numpy as np

from metasilvae._core.training import evolution
from metasilvae.dataset import Dataset
from metasilvae.model import NODE_DTYPE, LeafKind, Model
from metasilvae.prediction import find_leaves


def as_model(tree: evolution.Individual, dataset: Dataset) -> Model:
    """The model of a tree in training; its leaves hold the class counts of the samples it was trained on."""
    feature, threshold, left, right, counts = tree.nodes()
    nodes = np.zeros(len(feature), dtype=NODE_DTYPE)
    for name, column in zip(("feature", "threshold", "left", "right"), (feature, threshold, left, right), strict=True):
        nodes[name] = column
    is_leaf = feature < 0
    nodes["leaf"] = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
    roots = np.zeros(1, dtype=np.int32)
    return Model(nodes, roots, counts[is_leaf], LeafKind.COUNTS, dataset.n_features, dataset.labels)


def as_individual(
    model: Model, samples: evolution.TrainingSet, objective: evolution.Objective, bench: evolution.Workspace
) -> evolution.Individual:
    """A tree in training with the tests of a model of one tree, as far as the samples and the limits allow them."""
    feature, threshold, left, right = (
        np.ascontiguousarray(model.nodes[name]) for name in ("feature", "threshold", "left", "right")
    )
    return evolution.Individual(samples).take_nodes(feature, threshold, left, right, objective, bench)


def count_again(model: Model, dataset: Dataset) -> Model:
    """The same tests with the class counts of other samples, which must reach every leaf."""
    leaves = find_leaves(model, dataset.X)[:, 0].astype(np.int64)
    n_counts = model.n_leaves * model.n_labels
    counts = np.bincount(leaves * model.n_labels + dataset.y, minlength=n_counts).reshape(-1, model.n_labels)
    return Model(model.nodes, model.roots, counts.astype(np.int64), LeafKind.COUNTS, model.n_features, model.labels)
