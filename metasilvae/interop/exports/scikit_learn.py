"""Exports as fitted classifiers of scikit-learn, in joblib or skops files.

A tree of counts becomes a DecisionTreeClassifier, a forest of them a RandomForestClassifier, and scores become a
GradientBoostingClassifier. scikit-learn rounds values to float32 before it compares them with a threshold, so
predictions are equal for all float32 rows. The leaves of a forest hold fractions of counts (voting average) or a vote
for each label of their prediction (voting max). Of tied labels scikit-learn predicts the first one in its own order.
"""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError
from metasilvae.extras import load_library
from metasilvae.interop.exports.leaves import check_directions, vote_weights
from metasilvae.model import MISSING_LEFT, LeafKind, Model

EXTRA = "sklearn"
_NO_CHILD, _NO_FEATURE = -1, -2
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def write_joblib(model: Model, feature_names: Sequence[str] | None, voting: str) -> bytes:
    """A fitted object, as joblib dumps it."""
    joblib = load_library("joblib", EXTRA, "writing a joblib file")
    stream = io.BytesIO()
    joblib.dump(build_estimator(model, feature_names, voting), stream)
    return stream.getvalue()


def write_skops(model: Model, feature_names: Sequence[str] | None, voting: str) -> bytes:
    """A fitted object, as skops dumps it."""
    skops = load_library("skops.io", EXTRA, "writing a skops file")
    content: bytes = skops.dumps(build_estimator(model, feature_names, voting))
    return content


def build_estimator(model: Model, feature_names: Sequence[str] | None, voting: str) -> Any:
    """A fitted classifier with the predictions of the model."""
    check_directions(model)
    classes, order = _order_classes(model.labels)
    build = _build_boosting if model.leaf_kind is LeafKind.SCORES else _build_tree_or_forest
    fitted = build(model, voting, classes, order)
    if feature_names is not None:
        fitted.feature_names_in_ = np.array(feature_names, dtype=object)
    return fitted


def _build_boosting(model: Model, voting: str, classes: np.ndarray, order: NDArray[np.intp]) -> Any:
    """Trees of one score each, as many per round as there are labels; one, of the difference, for two labels.

    A small fit makes an object with everything that this version of scikit-learn expects, then its trees are replaced.
    """
    ensemble = load_library("sklearn.ensemble", EXTRA, "building a scikit-learn object")
    if model.n_labels < 2:
        raise ModelError(f"{model.source}: a GradientBoostingClassifier needs two labels, the model has one")
    if model.has_directions:
        raise ModelError(
            f"{model.source}: takes missing values, a GradientBoostingClassifier does not; export it as c, python or "
            "onnx"
        )
    scores = model.leaf_values[:, order]
    columns = scores[:, 1:] - scores[:, :1] if model.n_labels == 2 else scores
    fitted = ensemble.GradientBoostingClassifier(n_estimators=1, learning_rate=1.0, init="zero", random_state=0)
    fitted.fit(np.zeros((2 * len(classes), model.n_features), dtype=np.float32), np.tile(classes, 2))
    template = fitted.estimators_[0, 0]
    trees = np.empty((model.n_trees, columns.shape[1]), dtype=object)
    for position, column in np.ndindex(*trees.shape):
        tree = trees[position, column] = copy.copy(template)
        tree.tree_ = _build_tree(model, position, columns[:, column : column + 1])
    fitted.estimators_ = trees
    fitted.n_estimators = fitted.n_estimators_ = model.n_trees
    fitted.train_score_ = np.zeros(model.n_trees)
    return fitted


def _build_tree_or_forest(model: Model, voting: str, classes: np.ndarray, order: NDArray[np.intp]) -> Any:
    tree_module = load_library("sklearn.tree", EXTRA, "building a scikit-learn object")
    fractions = _leaf_fractions(model, voting)[:, order]
    trees = []
    for position in range(model.n_trees):
        estimator = tree_module.DecisionTreeClassifier()
        estimator.tree_ = _build_tree(model, position, fractions)
        _mark_fitted(estimator, model, classes)
        trees.append(estimator)
    fitted = trees[0]
    if model.is_forest:
        ensemble = load_library("sklearn.ensemble", EXTRA, "building a scikit-learn object")
        fitted = ensemble.RandomForestClassifier(n_estimators=model.n_trees)
        fitted.estimator_ = tree_module.DecisionTreeClassifier()
        fitted.estimators_ = trees
        for number, tree in enumerate(trees):
            # Trees of a forest predict positions of classes.
            _mark_fitted(tree, model, np.arange(len(classes), dtype=np.float64))
            tree.random_state = number
        _mark_fitted(fitted, model, classes)
    return fitted


def _order_classes(labels: Sequence[str]) -> tuple[np.ndarray, NDArray[np.intp]]:
    """Classes in increasing order, as numbers if all of them are, and the position of each in the model."""
    is_whole = all(_WHOLE_NUMBER.fullmatch(label) for label in labels)
    values = np.array([int(label) for label in labels] if is_whole else list(labels))
    order = np.argsort(values)
    return values[order], order


def _leaf_fractions(model: Model, voting: str) -> NDArray[np.float64]:
    counts = model.leaf_values
    if model.is_forest and voting == "max":
        return vote_weights(model).astype(np.float64)
    fractions: NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True, dtype=np.float64)
    is_best = fractions == fractions.max(axis=1, keepdims=True)
    if not np.array_equal(is_best, vote_weights(model).astype(bool)):
        raise ModelError(f"{model.source}: its counts are too large for fractions in float64; they would tie")
    return fractions


def _build_tree(model: Model, position: int, fractions: NDArray[np.float64]) -> Any:
    """A compiled tree with the given values in its leaves; of scores, each leaf stands for one sample."""
    internal = load_library("sklearn.tree._tree", EXTRA, "building a scikit-learn object")
    start, end = model.tree_bounds[position]
    source = model.nodes[start:end]
    is_leaf = source["feature"] < 0
    values = np.zeros((len(source), fractions.shape[1]))
    samples = np.zeros(len(source))
    values[is_leaf] = fractions[source["leaf"][is_leaf]]
    is_counted = model.leaf_kind is LeafKind.COUNTS
    samples[is_leaf] = model.leaf_values[source["leaf"][is_leaf]].sum(axis=1) if is_counted else 1
    # Children come after their parent; a split holds the totals of its leaves.
    for node in np.flatnonzero(~is_leaf)[::-1].tolist():
        children = [int(source["left"][node]) - start, int(source["right"][node]) - start]
        samples[node] = samples[children].sum()
        values[node] = samples[children] @ values[children] / samples[node]
    nodes = np.zeros(len(source), dtype=internal.NODE_DTYPE)
    nodes["left_child"] = np.where(is_leaf, _NO_CHILD, source["left"] - start)
    nodes["right_child"] = np.where(is_leaf, _NO_CHILD, source["right"] - start)
    nodes["feature"] = np.where(is_leaf, _NO_FEATURE, source["feature"])
    nodes["threshold"] = np.where(is_leaf, float(_NO_FEATURE), source["threshold"])
    if model.has_directions:
        if "missing_go_to_left" not in (nodes.dtype.names or ()):
            raise ModelError(f"{model.source}: takes missing values, which need scikit-learn 1.3 or newer")
        nodes["missing_go_to_left"] = source["leaf"] == MISSING_LEFT
    nodes["impurity"] = 1.0 - (values**2).sum(axis=1) if is_counted else 0.0
    nodes["n_node_samples"] = samples
    nodes["weighted_n_node_samples"] = samples
    tree = internal.Tree(model.n_features, np.array([fractions.shape[1]], dtype=np.intp), 1)
    depth, values = int(model.depths[start:end].max()), values[:, None, :].copy()
    tree.__setstate__({"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": values})
    return tree


def _mark_fitted(estimator: Any, model: Model, classes: np.ndarray) -> None:
    estimator.classes_ = classes
    estimator.n_classes_ = len(classes)
    estimator.n_outputs_ = 1
    estimator.n_features_in_ = model.n_features
