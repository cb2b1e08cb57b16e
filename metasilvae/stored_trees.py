"""Trees as tables of numbers, for checkpoints: of all trees the tests in pre-order, one tree after another.

Where the children of a node are follows from that order, so that no table can describe anything but trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution
from metasilvae.dataset import Dataset
from metasilvae.formats.checkpoint_files import damaged, take_array
from metasilvae.model import NODE_DTYPE, LeafKind, Model

IntArray = NDArray[np.int32]
# The largest count that stays exact in all that is computed of it.
LARGEST_COUNT = 2**53


# Trees in training


def pack_individuals(trees: Sequence[evolution.Individual]) -> dict[str, Any]:
    tests = [tree.tests() for tree in trees]
    return {
        **_pack_tests([feature for feature, _, _ in tests], [threshold for _, threshold, _ in tests]),
        "tie_words": np.array([len(ties) for _, _, ties in tests], dtype=np.int32),
        "ties": _join([ties for _, _, ties in tests], np.uint64),
    }


def unpack_individuals(
    document: Any, samples: evolution.TrainingSet, objective: evolution.Objective, bench: evolution.Workspace
) -> list[evolution.Individual]:
    """The same trees, with all that they answer for the samples."""
    n_words = (samples.n_labels + 63) // 64
    tie_words = take_array(document, "tie_words", "<i4")
    ties = _split(take_array(document, "ties", "<u8"), tie_words, "ties")
    trees = []
    for (feature, threshold, left, right), tied in zip(_unpack_tests(document, samples.n_features), ties, strict=False):
        if len(tied) % n_words:
            raise damaged("tied answers are for another number of labels")
        tree = evolution.Individual(samples).take_nodes(feature, threshold, left, right, objective, bench, tied)
        if tree.n_nodes != len(feature):
            raise damaged("a tree does not fit the rows")
        trees.append(tree)
    if len(trees) != len(take_array(document, "sizes", "<i4")):
        raise damaged("tied answers are missing")
    return trees


# Finished models


def pack_models(models: Sequence[Model]) -> dict[str, Any]:
    """Models of one tree each, with class counts in their leaves."""
    return {
        **_pack_tests([model.nodes["feature"] for model in models], [model.nodes["threshold"] for model in models]),
        "counts": _join([_leaf_counts(model).ravel() for model in models], np.int64),
    }


def unpack_models(document: Any, dataset: Dataset) -> list[Model]:
    """The same models, for the features and labels of a data set."""
    tests = list(_unpack_tests(document, dataset.n_features))
    counts = take_array(document, "counts", "<i8")
    n_leaves = np.array([np.count_nonzero(feature < 0) for feature, *_ in tests], dtype=np.int32)
    parts = _split(counts, n_leaves * dataset.n_labels, "counts")
    _check_counts(counts.reshape(-1, dataset.n_labels))
    models = []
    for (feature, threshold, left, right), values in zip(tests, parts, strict=True):
        nodes = np.zeros(len(feature), dtype=NODE_DTYPE)
        columns = {"feature": feature, "threshold": threshold, "left": left, "right": right}
        for name, column in columns.items():
            nodes[name] = column
        is_leaf = feature < 0
        nodes["leaf"] = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
        table = values.reshape(-1, dataset.n_labels).copy()
        roots = np.zeros(1, dtype=np.int32)
        models.append(Model(nodes, roots, table, LeafKind.COUNTS, dataset.n_features, dataset.labels))
    return models


def _check_counts(table: np.ndarray) -> None:
    """The counts of leaves must be such as a model file can hold."""
    if table.size and not 0 <= table.min() <= table.max() <= LARGEST_COUNT:
        raise damaged("a class count is negative or too large")
    if not table.any(axis=1).all():
        raise damaged("all counts of a leaf are zero")


def _leaf_counts(model: Model) -> np.ndarray:
    assert model.n_trees == 1
    assert model.leaf_kind is LeafKind.COUNTS
    return np.asarray(model.leaf_values[model.nodes["leaf"][model.nodes["feature"] < 0]])


# Tests


def _pack_tests(features: list[np.ndarray], thresholds: list[np.ndarray]) -> dict[str, Any]:
    return {
        "sizes": np.array([len(feature) for feature in features], dtype=np.int32),
        "feature": _join(features, np.int32),
        "threshold": _join(thresholds, np.float64),
    }


def _join(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=dtype), *(np.asarray(part, dtype=dtype) for part in parts)])


def _split(values: np.ndarray, sizes: np.ndarray, what: str) -> list[np.ndarray]:
    ends = np.cumsum(sizes, dtype=np.int64)
    if (len(sizes) and sizes.min() < 0) or len(values) != (ends[-1] if len(ends) else 0):
        raise damaged(f"the number of {what} is wrong")
    return np.split(values, ends[:-1]) if len(ends) else []


def _unpack_tests(document: Any, n_features: int) -> Iterator[tuple[IntArray, NDArray[np.float64], IntArray, IntArray]]:
    """Feature, threshold, left and right of the nodes of each tree."""
    sizes = take_array(document, "sizes", "<i4")
    features = _split(take_array(document, "feature", "<i4"), sizes, "nodes")
    thresholds = _split(take_array(document, "threshold", "<f8"), sizes, "thresholds")
    for feature, threshold in zip(features, thresholds, strict=True):
        if len(feature) == 0 or feature.min() < -1 or feature.max() >= n_features or not np.isfinite(threshold).all():
            raise damaged("a test is not one of these features")
        yield feature, threshold, *_find_children(feature)


def _find_children(feature: IntArray) -> tuple[IntArray, IntArray]:
    left, right = np.full((2, len(feature)), -1, dtype=np.int32)
    # Subtrees that wait for their parent, the next one last.
    waiting: list[int] = []
    for node in range(len(feature) - 1, -1, -1):
        if feature[node] >= 0:
            if len(waiting) < 2:
                raise damaged("a tree is not complete")
            left[node], right[node] = waiting.pop(), waiting.pop()
        waiting.append(node)
    if waiting != [0]:
        raise damaged("a tree is not complete")
    return left, right
