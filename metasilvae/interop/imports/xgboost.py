"""Imports of XGBoost's JSON and UBJ files, and of its fitted objects.

x is rounded to float32 and goes left if and only if it is below the float32 threshold. Leaf values are float32 numbers;
XGBoost adds them in float32, metasilvae adds them exactly. A number that an estimator takes for a missing value
(`missing`) follows the default direction of each split; this is imported if a threshold can express it, and refused
otherwise. Keys that are not listed here are refused, because they might change predictions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import MetasilvaeWarning, ModelError, shorten
from metasilvae.extras import find_library
from metasilvae.interop.imports.builder import Nodes, build_model, place_scores, spread_scores, start_trees
from metasilvae.interop.imports.categories import CategoryColumn, CategorySplit, encode_categories
from metasilvae.interop.imports.documents import Document, as_numbers, load_json, load_ubjson
from metasilvae.interop.imports.imported import (
    FLOAT32_ROUNDING,
    Imported,
    ImportOptions,
    LibraryPredictor,
    choose_labels,
    name_classes,
    number_classes,
    position_of_labels,
    refuse_file,
    refuse_unknown,
)
from metasilvae.interop.thresholds import fold_below, next_float32
from metasilvae.model import LeafKind

EXTRA = "xgboost"
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
# Whether the base score is a probability, whose logit is the start of sums.
BINARY = {"binary:logistic": True, "binary:hinge": False}
MULTI = ("multi:softprob", "multi:softmax")
# Keys of each object of a file; some are of older versions. Those that are not read hold statistics of training, sizes
# that follow from the lists.
KNOWN_KEYS = {
    "document": {"learner", "version"},
    "learner": {
        "attributes", "feature_names", "feature_types", "gradient_booster", "learner_model_param", "objective",
    },
    "parameters": {"base_score", "boost_from_average", "num_class", "num_feature", "num_target"},
    "objective": {"name", "reg_loss_param", "softmax_multiclass_param"},
    "booster": {"name", "model", "gbtree", "weight_drop"},
    "model": {"cats", "gbtree_model_param", "iteration_indptr", "tree_info", "trees"},
    "model parameters": {"num_parallel_tree", "num_trees", "size_leaf_vector"},
    "tree": {
        "base_weights", "categories", "categories_nodes", "categories_segments", "categories_sizes", "default_left",
        "id", "leaf_child_counts", "left_children", "loss_changes", "parents", "right_children", "split_conditions",
        "split_indices", "split_type", "sum_hessian", "tree_param",
    },
    "tree parameters": {"num_deleted", "num_feature", "num_nodes", "size_leaf_vector"},
}  # fmt: skip
# Attributes of estimators beside their parameters. Parameters are not read from the estimator, except `missing`: the
# file of its booster says what they led to.
KNOWN_ATTRIBUTES = {"_Booster", "n_classes_", "evals_result_", "kwargs", "_estimator_type"}
KNOWN_PARAMETERS = {
    "base_score", "booster", "callbacks", "colsample_bylevel", "colsample_bynode", "colsample_bytree", "device",
    "early_stopping_rounds", "enable_categorical", "eval_metric", "feature_types", "feature_weights", "gamma",
    "gpu_id", "grow_policy", "importance_type", "interaction_constraints", "learning_rate", "max_bin",
    "max_cat_threshold", "max_cat_to_onehot", "max_delta_step", "max_depth", "max_leaves", "min_child_weight",
    "missing", "monotone_constraints", "multi_strategy", "n_estimators", "n_jobs", "num_parallel_tree", "objective",
    "predictor", "random_state", "reg_alpha", "reg_lambda", "sampling_method", "scale_pos_weight", "subsample",
    "tree_method", "use_label_encoder", "validate_parameters", "verbosity",
}  # fmt: skip
CLASSIFIERS = ("XGBClassifier", "XGBRFClassifier")


def read_xgboost(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a classifier from JSON or UBJ; XGBoost is needed only for the comparison."""
    is_json = content[:1] != b"{" or content[1:2].isspace() or content[1:2] in (b'"', b"}")
    return _import_document(load_json(content, name) if is_json else load_ubjson(content, name), content, options)


def import_xgboost(fitted: Any, options: ImportOptions, name: str) -> Imported:
    """Import a fitted classifier or a booster from memory; it predicts for the comparison itself."""
    is_booster = not hasattr(fitted, "get_booster")
    booster = fitted if is_booster else fitted.get_booster()
    content = bytes(booster.save_raw("ubj"))
    document = load_ubjson(content, name)
    if is_booster:
        return _import_document(document, content, options, is_booster=True)
    kind = type(fitted).__name__
    if kind not in CLASSIFIERS:
        raise ModelError(f"{name}: a {kind} cannot be imported; known are {', '.join(CLASSIFIERS)} and Booster")
    refuse_unknown(vars(fitted), KNOWN_ATTRIBUTES | KNOWN_PARAMETERS, f"{name}: the {kind}")
    classes = name_classes(fitted.classes_)
    missing = _check_missing(fitted.missing, name)
    imported = _import_document(document, content, options, classes, missing)
    return replace(imported, load_predictor=lambda: _wrap_estimator(fitted, missing))


def _check_missing(missing: Any, name: str) -> float | None:
    """The number that stands for a missing value; None if it is NaN, as usual."""
    value = math.nan if missing is None else float(missing)
    if math.isnan(value):
        return None
    rounded = float(np.float32(value)) if abs(value) < LARGEST_FLOAT32 else math.inf
    if math.isinf(rounded):
        raise ModelError(f"{name}: missing={missing!r} is no finite float32 number; such an estimator is not imported")
    return rounded


def _import_document(
    document: Document,
    content: bytes,
    options: ImportOptions,
    classes: Sequence[str] | None = None,
    missing: float | None = None,
    is_booster: bool = False,
) -> Imported:
    name = document.name
    document.expect_only(KNOWN_KEYS["document"])
    learner = document.object("learner")
    learner.expect_only(KNOWN_KEYS["learner"])
    learner.object("objective").expect_only(KNOWN_KEYS["objective"])
    objective = learner.object("objective").text("name")
    parameters = learner.object("learner_model_param")
    parameters.expect_only(KNOWN_KEYS["parameters"])
    if objective not in BINARY and objective not in MULTI:
        known = ", ".join((*BINARY, *MULTI))
        raise ModelError(f"{name}: the objective {shorten(objective)} is not one of a classifier ({known})")
    if "num_target" in parameters and parameters.integer("num_target") > 1:
        raise ModelError(f"{name}: the model has several outputs; only one is supported")
    options.refuse_counts(name)
    n_columns = 1 if objective in BINARY else parameters.integer("num_class")
    if objective in MULTI and not 2 <= n_columns <= len(content):
        raise ModelError(f"{name}: the model has {n_columns} classes; at least 2 are needed")
    labels = choose_labels(number_classes(n_columns, classes, name), options.labels, name)
    n_features = parameters.integer("num_feature")
    names, types = _feature_names(learner), _feature_types(learner)
    gbtree, weights = _find_trees(learner, name)
    trees = gbtree.objects("trees")
    columns = gbtree.integers("tree_info")
    n_used = len(trees) if is_booster else _count_used(learner, gbtree, len(trees), n_columns)
    if len(columns) != len(trees) or (weights is not None and len(weights) != len(trees)):
        raise ModelError(f"{name}: {len(trees)} trees, but {len(columns)} classes of them are given; is it damaged?")
    if columns.size and not (columns.min() >= 0 and columns.max() < n_columns):
        raise ModelError(f"{name}: a tree belongs to a class that does not exist")
    nodes = start_trees(_base_scores(parameters, objective, n_columns))
    for number, tree in enumerate(trees[:n_used]):
        weight = 1.0 if weights is None else float(np.float32(weights[number]))
        nodes.append(_tree_nodes(tree, weight, int(columns[number]), n_columns, missing))
    chosen = options.name_features(names, n_features, name)
    encoding = None
    categories = _find_categories(types, nodes, gbtree, n_features)
    if categories:
        if missing is not None:
            raise ModelError(
                f"{name}: the estimator has categories and takes {missing:g} for a missing value; train again with "
                "missing=nan"
            )
        nodes, encoding = encode_categories(nodes, n_features, chosen, categories, name)
        n_features = encoding.n_features
    model = build_model(nodes, LeafKind.SCORES, n_features, labels, True, name)
    _check_neighbours(trees[:n_used])
    n_rounds = _count_rounds(gbtree, n_used, n_columns) if n_used < len(trees) else 0
    return Imported.of(
        model,
        "softargmax",
        f"XGBoost, {objective}, {n_used} trees",
        chosen,
        lambda: _load_predictor(content, name, objective, n_rounds, names, types if encoding is not None else None),
        EXTRA,
        encoding=encoding,
    )


def _feature_names(learner: Document) -> list[str] | None:
    """Names of the features, if the model was trained with names."""
    names = learner.list("feature_names") if "feature_names" in learner else []
    if not all(isinstance(item, str) for item in names):
        raise ModelError(f"{learner.name}: {learner.where('feature_names')} holds something that is not a text")
    return names or None


def _feature_types(learner: Document) -> list[str] | None:
    """Types of the features, if the model has them; c is a category."""
    types = learner.list("feature_types") if "feature_types" in learner else []
    if not all(isinstance(item, str) for item in types):
        raise ModelError(f"{learner.name}: {learner.where('feature_types')} holds something that is not a text")
    return types or None


def _find_categories(
    types: list[str] | None, trees: Sequence[Nodes], gbtree: Document, n_features: int
) -> dict[int, CategoryColumn]:
    """The features that are categories: by their type, and those that are split so; with names if there are any."""
    split = {int(tree.feature[node]) for tree in trees for node in tree.categories or ()}
    for tree in trees:
        for node, feature in enumerate(tree.feature.tolist()):
            if feature in split and node not in (tree.categories or {}):
                raise ModelError(f"{gbtree.name}: a feature is split as a number and as a category; is it damaged?")
    told = {feature for feature, kind in enumerate(types or ()) if kind == "c" and feature < n_features}
    if not split | told:
        return {}
    listed = gbtree.object("cats").objects("enc") if "cats" in gbtree else []
    found = {feature: CategoryColumn() for feature in sorted(split | told)}
    for feature, names in enumerate(map(_name_categories, listed)):
        if names and feature in found and len(set(names)) == len(names):
            found[feature] = CategoryColumn(tuple(range(len(names))), names)
    return found


def _name_categories(encoded: Document) -> tuple[str, ...]:
    """Names of the categories of a feature: texts, one behind the other, or numbers."""
    if "offsets" not in encoded:
        return tuple(name_classes(encoded.list("values")))
    offsets, octets = encoded.integers("offsets"), encoded.integers("values")
    is_right = (np.diff(offsets) >= 0).all() and ((octets >= -128) & (octets < 256)).all()
    if not is_right or (len(offsets) and (offsets[0] != 0 or offsets[-1] != len(octets))):
        raise ModelError(f"{encoded.name}: {encoded.place}: the names of categories do not fit; is the file damaged?")
    text = (octets % 256).astype(np.uint8).tobytes()
    return tuple(text[start:stop].decode("utf-8", "replace") for start, stop in pairwise(offsets.tolist()))


def _find_trees(learner: Document, name: str) -> tuple[Document, NDArray[np.float64] | None]:
    """The trees, and DART's factor for each of them."""
    booster = learner.object("gradient_booster")
    kind = booster.text("name")
    if kind not in ("gbtree", "dart"):
        raise ModelError(f"{name}: the booster {shorten(kind)} is not made of trees; gbtree and dart can be imported")
    booster.expect_only(KNOWN_KEYS["booster"])
    weights = booster.numbers("weight_drop") if kind == "dart" else None
    gbtree = booster.object("gbtree") if kind == "dart" else booster
    gbtree.expect_only(KNOWN_KEYS["booster"])
    model = gbtree.object("model")
    model.expect_only(KNOWN_KEYS["model"])
    if "gbtree_model_param" in model:
        model.object("gbtree_model_param").expect_only(KNOWN_KEYS["model parameters"])
    return model, weights


def _count_used(learner: Document, gbtree: Document, n_trees: int, n_columns: int) -> int:
    """Number of trees that the classifier uses: those up to the best round, if early stopping found one."""
    attributes = learner.object("attributes") if "attributes" in learner else None
    if attributes is None or "best_iteration" not in attributes:
        return n_trees
    n_rounds = attributes.integer("best_iteration") + 1
    if "iteration_indptr" in gbtree:
        starts = gbtree.integers("iteration_indptr")
        n_used = int(starts[n_rounds]) if 0 < n_rounds < len(starts) else n_trees
    else:
        n_used = n_rounds * n_columns * gbtree.object("gbtree_model_param").integer("num_parallel_tree")
    if not 0 < n_used < n_trees:
        return n_trees
    warnings.warn(
        f"{learner.name}: early stopping found the best round after {n_used} of {n_trees} trees; only these are "
        "imported, as XGBClassifier uses them (Booster.predict uses all)",
        MetasilvaeWarning,
        stacklevel=3,
    )
    return n_used


def _base_scores(parameters: Document, objective: str, n_columns: int) -> NDArray[np.float64]:
    """The start of every sum, from the text of the file."""
    found = parameters.take("base_score")
    texts = found.strip().removeprefix("[").removesuffix("]").split(",") if isinstance(found, str) else []
    try:
        scores = as_numbers([float(text) for text in texts], "")
    except ValueError:
        scores = np.array([])
    return check_base_scores(scores, objective, n_columns, f"{parameters.name}: the base score {shorten(str(found))}")


def check_base_scores(numbers: NDArray[np.float64], objective: str, n_columns: int, where: str) -> NDArray[np.float64]:
    """The start of every sum, as XGBoost computes it in float32."""
    with np.errstate(over="ignore"):
        scores = np.asarray(numbers, dtype=np.float64).astype(np.float32)
    if len(scores) not in (1, n_columns) or not np.isfinite(scores).all():
        raise ModelError(f"{where} is not {n_columns} finite numbers")
    if BINARY.get(objective):
        if not 0 < scores[0] < 1:
            raise ModelError(f"{where} is not a probability between 0 and 1")
        odds = np.float32(1) / scores[0] - np.float32(1)
        scores = np.array([-math.log(odds)], dtype=np.float32)
    return np.broadcast_to(scores.astype(np.float64), (n_columns,))


def _tree_nodes(tree: Document, weight: float, column: int, n_columns: int, missing: float | None = None) -> Nodes:
    tree_parameters = tree.object("tree_param") if "tree_param" in tree else None
    if tree_parameters is not None and tree_parameters.take("size_leaf_vector") not in ("0", "1", 0, 1):
        raise ModelError(f"{tree.name}: trees with several scores in a leaf (multi_output_tree) cannot be imported")
    tree.expect_only(KNOWN_KEYS["tree"])
    if tree_parameters is not None:
        tree_parameters.expect_only(KNOWN_KEYS["tree parameters"])
    left, right = tree.integers("left_children"), tree.integers("right_children")
    conditions = tree.numbers("split_conditions")
    feature = tree.integers("split_indices")
    if not len(left) == len(right) == len(feature) == len(conditions):
        raise ModelError(f"{tree.name}: the lists of {tree.place} have different lengths; is the file damaged?")
    is_leaf = left == -1
    missing_left = tree.integers("default_left") != 0 if "default_left" in tree else None
    categories = _category_splits(tree, is_leaf, missing_left)
    with np.errstate(over="ignore"):
        numbers = conditions.astype(np.float32)
    if (feature < 0).any():
        raise ModelError(f"{tree.name}: {tree.place} tests a feature with a negative number")
    splits = numbers[~is_leaf]
    if missing is not None:
        splits = _send_missing(splits, tree.integers("default_left")[~is_leaf] != 0, np.float32(missing), tree.name)
    threshold = np.zeros(len(left))
    threshold[~is_leaf] = fold_below(splits)
    # A product of two float32 numbers is exact in float64.
    values = np.where(is_leaf, numbers.astype(np.float64) * weight, 0.0)
    scores = place_scores(values, column, n_columns)
    return Nodes(np.where(is_leaf, -1, feature), threshold, left, right, scores, missing_left, categories)


def _category_splits(
    tree: Document, is_leaf: NDArray[np.bool_], missing_left: NDArray[np.bool_] | None
) -> dict[int, CategorySplit]:
    """Sets of categories that go right; all others go left, unknown ones and negative numbers too."""
    kinds = tree.integers("split_type") if "split_type" in tree else np.zeros(0, dtype=np.int64)
    if not kinds.any():
        return {}
    nodes, starts = tree.integers("categories_nodes"), tree.integers("categories_segments")
    sizes, codes = tree.integers("categories_sizes"), tree.integers("categories")
    where = f"{tree.name}: {tree.place}"
    wanted = np.flatnonzero((kinds == 1) & ~is_leaf) if len(kinds) == len(is_leaf) else np.zeros(0, dtype=np.int64)
    if not np.isin(kinds, (0, 1)).all() or not len(wanted) or sorted(nodes.tolist()) != wanted.tolist():
        raise ModelError(f"{where}: its lists of splits by categories do not fit; is the file damaged?")
    if not len(nodes) == len(starts) == len(sizes) or (starts < 0).any() or (sizes < 0).any() or (codes < 0).any():
        raise ModelError(f"{where}: its sets of categories do not fit; is the file damaged?")
    if missing_left is None or (starts + sizes > len(codes)).any():
        raise ModelError(f"{where}: its sets of categories do not fit; is the file damaged?")
    return {
        node: CategorySplit(frozenset(codes[start : start + size].tolist()), False, True, bool(missing_left[node]))
        for node, start, size in zip(nodes.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    }


def _send_missing(
    thresholds: NDArray[np.float32], goes_left: NDArray[np.bool_], missing: np.float32, name: str
) -> NDArray[np.float32]:
    """Thresholds of ``x < t`` that send the number `missing` to the default side, where there are any."""
    is_moved = goes_left != (missing < thresholds)
    above = next_float32(np.full_like(thresholds, missing), np.inf)
    is_hole = is_moved & np.where(goes_left, thresholds != missing, thresholds != above)
    if is_hole.any():
        raise ModelError(
            f"{name}: the estimator takes {missing:g} for a missing value (missing={missing:g}) and sends it to "
            "another side than its neighbours, which no threshold can express; train again with missing=nan"
        )
    return np.where(is_moved, np.where(goes_left, above, missing), thresholds).astype(np.float32)


def _check_neighbours(trees: Sequence[Document]) -> None:
    """Refuse trees whose right children are not the nodes after the left ones, as XGBoost writes them.

    XGBoost relies on this: version 3.2 predicts wrongly or crashes otherwise, from the seventh level on.
    """
    for tree in trees:
        left, right = tree.integers("left_children"), tree.integers("right_children")
        is_apart = (left != -1) & (right != left + 1)
        if is_apart.any():
            node = int(np.argmax(is_apart))
            raise ModelError(
                f"{tree.name}: {tree.place}: the children of node {node} are nodes {left[node]} and {right[node]}, but "
                "XGBoost needs the right one to be the node after the left one; is the file damaged?"
            )


def _count_rounds(gbtree: Document, n_used: int, n_columns: int) -> int:
    starts = gbtree.integers("iteration_indptr").tolist() if "iteration_indptr" in gbtree else []
    per_round = n_columns * gbtree.object("gbtree_model_param").integer("num_parallel_tree")
    return starts.index(n_used) if n_used in starts else n_used // max(1, per_round)


def _load_predictor(
    content: bytes,
    name: str,
    objective: str,
    n_rounds: int,
    feature_names: list[str] | None,
    feature_types: list[str] | None,
) -> LibraryPredictor | None:
    """The library with the same file; of all rounds, or of the first ones."""
    xgboost = find_library("xgboost")
    if xgboost is None:
        return None
    try:
        booster = xgboost.Booster({"nthread": 1, "verbosity": 0}, model_file=bytearray(content))
    except xgboost.core.XGBoostError as error:
        raise refuse_file(name, "XGBoost", error) from None

    def predict(X: NDArray[np.float64], is_margin: bool) -> Any:
        options = {} if feature_types is None else {"feature_types": feature_types, "enable_categorical": True}
        data = xgboost.DMatrix(X, nthread=1, feature_names=feature_names, **options)
        return booster.predict(data, output_margin=is_margin, iteration_range=(0, n_rounds))

    def prediction(X: NDArray[np.float64]) -> NDArray[np.int64]:
        found = predict(X, False)
        if found.ndim == 2:
            return np.asarray(found.argmax(axis=1), dtype=np.int64)
        return np.asarray(found > 0.5 if objective in BINARY else found, dtype=np.int64)

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return spread_scores(predict(X, True))

    return LibraryPredictor(f"XGBoost {xgboost.__version__}", prediction, score, FLOAT32_ROUNDING)


def _wrap_estimator(fitted: Any, missing: float | None) -> LibraryPredictor:
    """The estimator itself, with everything that its predict does to data."""
    version = find_library("xgboost").__version__  # type: ignore[union-attr]  # the estimator has it
    prediction = position_of_labels(fitted.predict, fitted.classes_)

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return spread_scores(fitted.predict(X, output_margin=True))

    special = 0.0 if missing is None else missing
    return LibraryPredictor(f"XGBoost {version}", prediction, score, FLOAT32_ROUNDING, special=special)
