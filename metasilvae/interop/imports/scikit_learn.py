"""Imports of fitted classifiers of scikit-learn.

Trees and forests round x to float32 and go left if and only if it is <= the float64 threshold; the rounding is folded
into the threshold. HistGradientBoosting compares in float64, and splits categories by sets; it takes unknown categories
for missing ones. Splits of single trees by categories (scikit-learn 1.10) are refused. Attributes of estimators, trees
and nodes that are not listed here are refused, unless they are switched off.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, list_some
from metasilvae.extras import load_library
from metasilvae.interop.imports.builder import (
    LARGEST_COUNT,
    Nodes,
    build_model,
    place_scores,
    spread_scores,
    start_trees,
)
from metasilvae.interop.imports.categories import (
    CategoryColumn,
    CategorySplit,
    encode_categories,
    restore_cells,
    unknown_cell,
)
from metasilvae.interop.imports.imported import (
    FLOAT64_ROUNDING,
    Imported,
    ImportOptions,
    LibraryPredictor,
    choose_labels,
    name_classes,
    position_of_labels,
    refuse_unknown,
)
from metasilvae.interop.thresholds import fold_at_most
from metasilvae.model import LeafKind

EXTRA = "sklearn"
TREES = ("DecisionTreeClassifier", "ExtraTreeClassifier")
FORESTS = ("RandomForestClassifier", "ExtraTreesClassifier")
BOOSTED = ("GradientBoostingClassifier", "HistGradientBoostingClassifier")
# Parameters shape the fit; what they led to is in the fitted attributes. `init` and `learning_rate` are read.
KNOWN_PARAMETERS = {
    "alpha", "bootstrap", "categorical_features", "ccp_alpha", "class_weight", "criterion", "early_stopping",
    "estimator_params", "init", "interaction_cst", "l2_regularization", "learning_rate", "loss", "max_bins",
    "max_depth", "max_features", "max_iter", "max_leaf_nodes", "max_samples", "min_impurity_decrease",
    "min_impurity_split", "min_samples_leaf", "min_samples_split", "min_weight_fraction_leaf", "monotonic_cst",
    "n_estimators", "n_iter_no_change", "n_jobs", "oob_score", "presort", "random_state", "scoring", "splitter",
    "subsample", "tol", "validation_fraction", "verbose", "warm_start",
}  # fmt: skip
# Fitted attributes that are read, that repeat others, or that describe the fit.
KNOWN_ATTRIBUTES = {
    "_baseline_prediction", "_bin_mapper", "_feature_subsample_rng", "_in_fit", "_label_encoder", "_loss",
    "_n_features", "_n_samples", "_n_samples_bootstrap", "_predictors", "_random_seed", "_raw_predict",
    "_rng", "_sample_weight", "_scorer", "_use_validation_data", "base_estimator", "base_estimator_", "classes_",
    "do_early_stopping_", "estimator", "estimator_", "estimators_", "feature_names_in_", "init_", "is_categorical_",
    "loss_", "max_features_", "n_classes_", "n_estimators_", "n_features_", "n_features_in_", "n_outputs_",
    "n_trees_per_iteration_", "oob_decision_function_", "oob_improvement_", "oob_score_", "oob_scores_",
    "train_score_", "tree_", "_is_categorical_remapped", "_preprocessor", "validation_score_", "_sklearn_version",
    "_repr_html_inner",
}  # fmt: skip
KNOWN_TREE_STATE = {"max_depth", "node_count", "nodes", "values"}
KNOWN_NODE_FIELDS = {
    "left_child", "right_child", "feature", "threshold", "impurity", "n_node_samples", "weighted_n_node_samples",
    "missing_go_to_left",
}  # fmt: skip
KNOWN_HISTOGRAM_FIELDS = {
    "value", "count", "feature_idx", "num_threshold", "missing_go_to_left", "left", "right", "gain", "depth", "is_leaf",
    "bin_threshold", "is_categorical", "bitset_idx",
}  # fmt: skip


def import_estimator(estimator: Any, options: ImportOptions | None = None, source: str = "<memory>") -> Imported:
    """Import a fitted classifier.

    Parameters
    ----------
    estimator : object
        One of scikit-learn's `TREES`, `FORESTS` or `BOOSTED`.
    """
    options = options or ImportOptions()
    kind = type(estimator).__name__
    is_own = type(estimator).__module__.partition(".")[0] == "sklearn"
    if kind not in (*TREES, *FORESTS, *BOOSTED) or not is_own:
        kind = kind if kind not in (*TREES, *FORESTS, *BOOSTED) else f"{type(estimator).__module__}.{kind}"
        hint = "import its last step" if hasattr(estimator, "steps") else "regressors and other models have no labels"
        known = ", ".join((*TREES, *FORESTS, *BOOSTED))
        raise ModelError(f"{source}: a {kind} cannot be imported ({hint}); known are {known}")
    if not hasattr(estimator, "classes_"):
        raise ModelError(f"{source}: the {kind} is not fitted; call fit first")
    if getattr(estimator, "n_outputs_", 1) != 1:
        raise ModelError(f"{source}: the {kind} has {estimator.n_outputs_} outputs; only one is supported")
    labels = choose_labels(name_classes(estimator.classes_), options.labels, source)
    _check_attributes(estimator, source)
    n_features = int(estimator.n_features_in_)
    names = options.name_features(getattr(estimator, "feature_names_in_", None), n_features, source)
    if kind in BOOSTED:
        options.refuse_counts(source, f"a {kind}")
        return _import_boosted(estimator, labels, names, source)
    notes: tuple[str, ...] = ()
    for number, tree in enumerate(estimator.estimators_ if kind in FORESTS else ()):
        _check_attributes(tree, f"{source}: tree {number}")
    trees = [estimator.tree_] if kind in TREES else [tree.tree_ for tree in estimator.estimators_]
    takes_missing = all(map(_takes_missing, estimator.estimators_ if kind in FORESTS else [estimator]))
    counts = None if options.leaves == "scores" else [_recover_counts(tree) for tree in trees]
    if counts is None or any(count is None for count in counts):
        if options.leaves == "counts":
            raise ModelError(
                f"{source}: the leaves of the {kind} hold weighted fractions that are not whole numbers of samples; "
                "use --leaves scores"
            )
        # Each tree adds its fractions, the same float64 numbers as in the library; the mean has the same largest label.
        nodes = [_tree_nodes(tree, _fractions(tree), source, takes_missing) for tree in trees]
        leaf_kind, voting = LeafKind.SCORES, "softargmax"
        notes = ("leaves hold the weighted fractions of the classes as scores, without rounding",)
    else:
        nodes = [
            _tree_nodes(tree, n, source, takes_missing) for tree, n in zip(trees, counts, strict=True) if n is not None
        ]
        leaf_kind, voting = LeafKind.COUNTS, "average"
    model = build_model(nodes, leaf_kind, n_features, labels, kind in FORESTS, source)

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        mean = np.asarray(estimator.predict_proba(X), dtype=np.float64)
        return mean * len(trees) if leaf_kind is LeafKind.SCORES else mean

    return Imported.of(
        model,
        voting,
        f"{kind} of scikit-learn",
        names,
        lambda: _load_predictor(estimator, score),
        EXTRA,
        notes=notes,
    )


def _takes_missing(tree: Any) -> bool:
    """Whether a decision tree predicts rows with missing values; scikit-learn before 1.3 has no side for them."""
    supports = getattr(tree, "_support_missing_values", None)
    nodes = tree.tree_.__getstate__()["nodes"]
    return supports is not None and "missing_go_to_left" in nodes.dtype.names and bool(supports(np.zeros((1, 1))))


def _check_attributes(estimator: Any, source: str) -> None:
    """Refuse categories, and everything about an estimator that is not known."""
    kind = type(estimator).__name__
    is_categorical = getattr(estimator, "is_categorical_", None)
    if is_categorical is not None and np.any(is_categorical) and kind != "HistGradientBoostingClassifier":
        raise ModelError(
            f"{source}: the {kind} has categorical features, and a split by categories cannot be imported; encode them "
            "as numbers and fit again"
        )
    refuse_unknown(vars(estimator), KNOWN_PARAMETERS | KNOWN_ATTRIBUTES, f"{source}: the {kind}")


def _check_nodes(nodes: np.ndarray, is_leaf: NDArray[np.bool_], known: set[str], source: str) -> None:
    fields = nodes.dtype.names or ()
    refuse_unknown({field: nodes[field][~is_leaf] for field in fields}, known, f"{source}: a node")


def _tree_nodes(tree: Any, values: np.ndarray, source: str, takes_missing: bool = False) -> Nodes:
    is_leaf = tree.children_left == -1
    state = tree.__getstate__()
    if isinstance(state, dict) and "nodes" in state:
        refuse_unknown(state, KNOWN_TREE_STATE, f"{source}: a tree")
        _check_nodes(state["nodes"], is_leaf, KNOWN_NODE_FIELDS, source)
    # scikit-learn 1.10 marks splits by categories so; splits between missing values and others are at +inf.
    if np.isneginf(tree.threshold[~is_leaf]).any():
        raise ModelError(
            f"{source}: a split has the threshold -inf; a split by categories cannot be imported; encode them as "
            "numbers and fit again"
        )
    return Nodes(
        np.where(is_leaf, -1, tree.feature).astype(np.int64),
        fold_at_most(tree.threshold),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
        values,
        state["nodes"]["missing_go_to_left"].astype(np.bool_) if takes_missing else None,
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


def _import_boosted(estimator: Any, labels: Sequence[str], names: Sequence[str] | None, source: str) -> Imported:
    """Each tree adds to the score of one label."""
    kind = type(estimator).__name__
    is_float32 = kind == "GradientBoostingClassifier"
    cells = {} if is_float32 else _find_cells(estimator, source)
    if is_float32:
        base = _base_scores(estimator, source)
        stages = [
            [_regression_nodes(tree, float(estimator.learning_rate), source) for tree in stage]
            for stage in estimator.estimators_
        ]
    else:
        base = np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(-1)
        order = _feature_order(estimator)
        stages = [[_histogram_nodes(tree, order, source) for tree in stage] for stage in estimator._predictors]
    if max(2, len(base)) != len(labels):
        raise ModelError(f"{source}: the {kind} has {len(base)} scores for {len(labels)} labels")
    trees = start_trees(base)
    for stage in stages:
        for column, (nodes, values) in enumerate(stage):
            sides, missing_left, categories = nodes[:4], nodes[4], nodes[5]
            trees.append(Nodes(*sides, place_scores(values, column, len(base)), missing_left, categories))
    n_features, encoding = int(estimator.n_features_in_), None
    if cells:
        columns = {feature: _category_column(own, source) for feature, own in cells.items()}
        trees, encoding = encode_categories(trees, n_features, names, columns, source)
        n_features = encoding.n_features
    model = build_model(trees, LeafKind.SCORES, n_features, labels, True, source)
    known = {feature: [*own, unknown_cell(own)] for feature, own in cells.items()}

    def restore(X: NDArray[np.float64]) -> np.ndarray:
        return restore_cells(X, known) if known else X

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return spread_scores(estimator.decision_function(restore(X)))

    return Imported.of(
        model,
        "softargmax",
        f"{kind} of scikit-learn",
        names,
        lambda: _load_predictor(estimator, score, is_float32, restore),
        EXTRA,
        encoding=encoding,
    )


def _find_cells(estimator: Any, source: str) -> dict[int, list[Any]]:
    """The categories of each feature that has some, in the order of their codes."""
    is_categorical = getattr(estimator, "is_categorical_", None)
    if is_categorical is None or not np.any(is_categorical):
        return {}
    preprocessor = getattr(estimator, "_preprocessor", None)
    if preprocessor is None:
        raise ModelError(
            f"{source}: the {type(estimator).__name__} has categories, but not as scikit-learn 1.4 and later store "
            "them; fit it again with such a version"
        )
    encoder = preprocessor.named_transformers_["encoder"]
    # A missing category is the last one, if it is one at all.
    listed = [[cell for cell in cells.tolist() if cell is not None and cell == cell] for cells in encoder.categories_]
    return dict(zip(np.flatnonzero(is_categorical).tolist(), listed, strict=True))


def _category_column(cells: list[Any], source: str) -> CategoryColumn:
    names = tuple(name_classes(cells))
    if len(set(names)) < len(names):
        raise ModelError(f"{source}: two categories of a feature are written alike ({list_some(names)}); rename one")
    return CategoryColumn(tuple(range(len(names))), names)


def _feature_order(estimator: Any) -> NDArray[np.int64]:
    """The feature that each column of the trees is: categories come first."""
    n_features = int(estimator.n_features_in_)
    is_categorical = getattr(estimator, "is_categorical_", None)
    if is_categorical is None:
        return np.arange(n_features)
    flags = np.asarray(is_categorical, dtype=np.bool_)
    return np.concatenate([np.flatnonzero(flags), np.flatnonzero(~flags)])


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


# Features, thresholds, children, sides of missing values and sets of categories; and the values of nodes.
_Sides = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, NDArray[np.bool_] | None, dict[int, CategorySplit] | None
]  # fmt: skip
_Half = tuple[_Sides, NDArray[np.float64]]


def _regression_nodes(regressor: Any, learning_rate: float, source: str) -> _Half:
    _check_attributes(regressor, source)
    tree = regressor.tree_
    nodes = _tree_nodes(tree, tree.value, source)
    return (nodes.feature, nodes.threshold, nodes.left, nodes.right, None, None), learning_rate * tree.value[:, 0, 0]


def _histogram_nodes(tree: Any, order: NDArray[np.int64], source: str) -> _Half:
    nodes = tree.nodes
    is_leaf = nodes["is_leaf"].astype(bool)
    _check_nodes(nodes, is_leaf, KNOWN_HISTOGRAM_FIELDS, source)
    feature = np.where(is_leaf, -1, order[np.where(is_leaf, 0, nodes["feature_idx"])]).astype(np.int64)
    children = (nodes["left"].astype(np.int64), nodes["right"].astype(np.int64))
    thresholds, missing_left = nodes["num_threshold"].astype(np.float64), nodes["missing_go_to_left"].astype(np.bool_)
    categories = {}
    for node in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf).tolist():
        words = np.asarray(tree.raw_left_cat_bitsets[int(nodes["bitset_idx"][node])]).astype("<u4")
        codes = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
        # Unknown categories are taken for missing ones.
        goes_left = bool(missing_left[node])
        categories[node] = CategorySplit(frozenset(codes), True, goes_left, goes_left)
        thresholds[node] = 0.0
    return (feature, thresholds, *children, missing_left, categories), nodes["value"].astype(np.float64)


def _load_predictor(
    estimator: Any,
    score: Any,
    is_float32: bool = True,
    restore: Callable[[NDArray[np.float64]], np.ndarray] | None = None,
) -> LibraryPredictor:
    sklearn = load_library("sklearn", EXTRA, "comparing with scikit-learn")
    own = estimator.predict if restore is None else lambda X: estimator.predict(restore(X))
    prediction = position_of_labels(own, estimator.classes_)

    def quiet_score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return np.asarray(score(X), dtype=np.float64)

    return LibraryPredictor(
        f"scikit-learn {sklearn.__version__}", prediction, quiet_score, FLOAT64_ROUNDING, is_float32
    )
