"""Imports of fitted classifiers of scikit-learn.

Trees and forests round x to float32 and go left if and only if it is <= the float64 threshold; the rounding is folded
into the threshold. HistGradientBoosting compares in float64. The side for missing values is ignored, because data sets
have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError
from metasilvae.extras import load_library
from metasilvae.interop.imports.builder import (
    LARGEST_COUNT,
    Nodes,
    build_model,
    place_scores,
    spread_scores,
    start_trees,
)
from metasilvae.interop.imports.imported import (
    FLOAT64_ROUNDING,
    Imported,
    ImportOptions,
    LibraryPredictor,
    choose_labels,
    name_classes,
)
from metasilvae.interop.thresholds import fold_at_most
from metasilvae.model import LeafKind

EXTRA = "sklearn"
TREES = ("DecisionTreeClassifier", "ExtraTreeClassifier")
FORESTS = ("RandomForestClassifier", "ExtraTreesClassifier")
BOOSTED = ("GradientBoostingClassifier", "HistGradientBoostingClassifier")


def import_estimator(estimator: Any, options: ImportOptions | None = None, source: str = "<memory>") -> Imported:
    """Import a fitted classifier.

    Parameters
    ----------
    estimator : object
        One of scikit-learn's `TREES`, `FORESTS` or `BOOSTED`.
    """
    options = options or ImportOptions()
    kind = type(estimator).__name__
    if kind not in (*TREES, *FORESTS, *BOOSTED):
        hint = "import its last step" if hasattr(estimator, "steps") else "regressors and other models have no labels"
        known = ", ".join((*TREES, *FORESTS, *BOOSTED))
        raise ModelError(f"{source}: a {kind} cannot be imported ({hint}); known are {known}")
    if not hasattr(estimator, "classes_"):
        raise ModelError(f"{source}: the {kind} is not fitted; call fit first")
    if getattr(estimator, "n_outputs_", 1) != 1:
        raise ModelError(f"{source}: the {kind} has {estimator.n_outputs_} outputs; only one is supported")
    labels = choose_labels(name_classes(estimator.classes_), options.labels, source)
    if kind in BOOSTED:
        options.refuse_counts(source, f"a {kind}")
        return _import_boosted(estimator, labels, source)
    trees = [estimator.tree_] if kind in TREES else [tree.tree_ for tree in estimator.estimators_]
    counts = None if options.leaves == "scores" else [_recover_counts(tree) for tree in trees]
    if counts is None or any(count is None for count in counts):
        if options.leaves == "counts":
            raise ModelError(
                f"{source}: the leaves of the {kind} hold weighted fractions that are not whole numbers of samples; "
                "use --leaves scores"
            )
        # Each tree adds its fraction, as in the library; the mean has the same largest label.
        nodes = [_tree_nodes(tree, _fractions(tree) / len(trees)) for tree in trees]
        leaf_kind, voting = LeafKind.SCORES, "softargmax"
    else:
        nodes = [_tree_nodes(tree, count) for tree, count in zip(trees, counts, strict=True) if count is not None]
        leaf_kind, voting = LeafKind.COUNTS, "average"
    model = build_model(nodes, leaf_kind, int(estimator.n_features_in_), labels, kind in FORESTS, source)
    return Imported(
        model, voting, f"{kind} of scikit-learn", lambda: _load_predictor(estimator, estimator.predict_proba), EXTRA
    )


def _tree_nodes(tree: Any, values: np.ndarray) -> Nodes:
    is_leaf = tree.children_left == -1
    return Nodes(
        np.where(is_leaf, -1, tree.feature).astype(np.int64),
        fold_at_most(tree.threshold),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
        values,
    )


def _fractions(tree: Any) -> NDArray[np.float64]:
    """Fraction of each class in each node; before scikit-learn 1.3 nodes hold counts."""
    values: NDArray[np.float64] = tree.value[:, 0, :]
    is_counted = np.array_equal(values.sum(axis=1), tree.weighted_n_node_samples)
    return values / values.sum(axis=1, keepdims=True) if is_counted else values


def _recover_counts(tree: Any) -> NDArray[np.int64] | None:
    """Whole numbers of samples whose fractions equal those of the nodes, bit for bit; None if there are none."""
    totals: NDArray[np.float64] = tree.weighted_n_node_samples
    values: NDArray[np.float64] = tree.value[:, 0, :]
    is_leaf = tree.children_left == -1
    counts = values if np.array_equal(values.sum(axis=1), totals) else np.rint(values * totals[:, None])
    if totals.max() > LARGEST_COUNT or counts.min() < 0:
        return None
    is_same = (counts == np.rint(counts)) & (counts / totals[:, None] == _fractions(tree))
    is_whole = (counts.sum(axis=1) == totals) & is_same.all(axis=1)
    return counts.astype(np.int64) if is_whole[is_leaf].all() else None


def _import_boosted(estimator: Any, labels: Sequence[str], source: str) -> Imported:
    """Each tree adds to the score of one label."""
    kind = type(estimator).__name__
    is_float32 = kind == "GradientBoostingClassifier"
    if is_float32:
        base = _base_scores(estimator, source)
        stages = [
            [_regression_nodes(tree.tree_, float(estimator.learning_rate)) for tree in stage]
            for stage in estimator.estimators_
        ]
    else:
        base = np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(-1)
        stages = [[_histogram_nodes(tree, source) for tree in stage] for stage in estimator._predictors]
    if max(2, len(base)) != len(labels):
        raise ModelError(f"{source}: the {kind} has {len(base)} scores for {len(labels)} labels")
    trees = start_trees(base)
    for stage in stages:
        for column, (nodes, values) in enumerate(stage):
            trees.append(Nodes(*nodes, place_scores(values, column, len(base))))
    model = build_model(trees, LeafKind.SCORES, int(estimator.n_features_in_), labels, True, source)

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return spread_scores(estimator.decision_function(X))

    return Imported(
        model, "softargmax", f"{kind} of scikit-learn", lambda: _load_predictor(estimator, score, is_float32), EXTRA
    )


def _base_scores(estimator: Any, source: str) -> NDArray[np.float64]:
    """The start of every sum."""
    init = estimator.init_
    if not isinstance(init, str) and type(init).__name__ != "DummyClassifier":
        raise ModelError(
            f"{source}: the boosting starts from a {type(init).__name__}, whose scores differ from row to row; "
            "only a constant start can be imported"
        )
    if not isinstance(init, str) and init.strategy not in ("prior", "most_frequent", "constant"):
        raise ModelError(f"{source}: the boosting starts from random scores (strategy {init.strategy!r})")
    raw = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_), dtype=np.float32))
    return np.asarray(raw, dtype=np.float64).reshape(-1)


_Half = tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], NDArray[np.float64]]


def _regression_nodes(tree: Any, learning_rate: float) -> _Half:
    nodes = _tree_nodes(tree, tree.value)
    return (nodes.feature, nodes.threshold, nodes.left, nodes.right), learning_rate * tree.value[:, 0, 0]


def _histogram_nodes(tree: Any, source: str) -> _Half:
    nodes = tree.nodes
    is_leaf = nodes["is_leaf"].astype(bool)
    if nodes["is_categorical"][~is_leaf].any():
        raise ModelError(f"{source}: a split by categories cannot be imported; encode them as numbers and fit again")
    feature = np.where(is_leaf, -1, nodes["feature_idx"]).astype(np.int64)
    children = (nodes["left"].astype(np.int64), nodes["right"].astype(np.int64))
    return (feature, nodes["num_threshold"].astype(np.float64), *children), nodes["value"].astype(np.float64)


def _load_predictor(estimator: Any, score: Any, is_float32: bool = True) -> LibraryPredictor:
    sklearn = load_library("sklearn", EXTRA, "comparing with scikit-learn")
    position = {label: number for number, label in enumerate(estimator.classes_.tolist())}

    def prediction(X: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.array([position[label] for label in estimator.predict(X).tolist()], dtype=np.int64)

    return LibraryPredictor(f"scikit-learn {sklearn.__version__}", prediction, score, FLOAT64_ROUNDING, is_float32)
