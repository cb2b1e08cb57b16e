"""Imports of XGBoost's JSON and UBJ files.

x is rounded to float32 and goes left if and only if it is below the float32 threshold. Leaf values are float32 numbers;
XGBoost adds them in float32, metasilvae adds them exactly.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import MetasilvaeWarning, ModelError, shorten
from metasilvae.extras import find_library
from metasilvae.interop.imports.builder import Nodes, build_model, place_scores, spread_scores, start_trees
from metasilvae.interop.imports.documents import Document, as_numbers, load_json, load_ubjson
from metasilvae.interop.imports.imported import (
    FLOAT32_ROUNDING,
    Imported,
    ImportOptions,
    LibraryPredictor,
    choose_labels,
    refuse_file,
)
from metasilvae.interop.thresholds import fold_below
from metasilvae.model import LeafKind

EXTRA = "xgboost"
# Whether the base score is a probability, whose logit is the start of sums.
BINARY = {"binary:logistic": True, "binary:hinge": False}
MULTI = ("multi:softprob", "multi:softmax")


def read_xgboost(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a classifier from JSON or UBJ; XGBoost is needed only for the comparison."""
    is_json = content[:1] != b"{" or content[1:2].isspace() or content[1:2] in (b'"', b"}")
    document = load_json(content, name) if is_json else load_ubjson(content, name)
    learner = document.object("learner")
    objective = learner.object("objective").text("name")
    parameters = learner.object("learner_model_param")
    if objective not in BINARY and objective not in MULTI:
        known = ", ".join((*BINARY, *MULTI))
        raise ModelError(f"{name}: the objective {shorten(objective)} is not one of a classifier ({known})")
    options.refuse_counts(name)
    n_columns = 1 if objective in BINARY else parameters.integer("num_class")
    if objective in MULTI and not 2 <= n_columns <= len(content):
        raise ModelError(f"{name}: the model has {n_columns} classes; at least 2 are needed")
    labels = choose_labels([str(number) for number in range(max(2, n_columns))], options.labels, name)
    gbtree, weights = _find_trees(learner, name)
    trees = gbtree.objects("trees")
    columns = gbtree.integers("tree_info")
    n_used = _count_used(learner, gbtree, len(trees), n_columns)
    if len(columns) != len(trees) or (weights is not None and len(weights) != len(trees)):
        raise ModelError(f"{name}: {len(trees)} trees, but {len(columns)} classes of them are given; is it damaged?")
    if columns.size and not (columns.min() >= 0 and columns.max() < n_columns):
        raise ModelError(f"{name}: a tree belongs to a class that does not exist")
    nodes = start_trees(_base_scores(parameters, objective, n_columns))
    for number, tree in enumerate(trees[:n_used]):
        weight = 1.0 if weights is None else float(np.float32(weights[number]))
        nodes.append(_tree_nodes(tree, weight, int(columns[number]), n_columns))
    model = build_model(nodes, LeafKind.SCORES, parameters.integer("num_feature"), labels, True, name)
    _check_neighbours(trees[:n_used])
    n_rounds = _count_rounds(gbtree, n_used, n_columns) if n_used < len(trees) else 0
    return Imported(
        model,
        "softargmax",
        f"XGBoost, {objective}, {n_used} trees",
        lambda: _load_predictor(content, name, objective, n_rounds),
        EXTRA,
    )


def _find_trees(learner: Document, name: str) -> tuple[Document, NDArray[np.float64] | None]:
    """The trees, and DART's factor for each of them."""
    booster = learner.object("gradient_booster")
    kind = booster.text("name")
    if kind == "dart":
        return booster.object("gbtree").object("model"), booster.numbers("weight_drop")
    if kind != "gbtree":
        raise ModelError(f"{name}: the booster {shorten(kind)} is not made of trees; gbtree and dart can be imported")
    return booster.object("model"), None


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
        "imported, as XGBClassifier uses them",
        MetasilvaeWarning,
        stacklevel=3,
    )
    return n_used


def _base_scores(parameters: Document, objective: str, n_columns: int) -> NDArray[np.float64]:
    """The start of every sum, as XGBoost computes it in float32."""
    found = parameters.take("base_score")
    texts = found.strip().removeprefix("[").removesuffix("]").split(",") if isinstance(found, str) else []
    try:
        scores = as_numbers([float(text) for text in texts], "").astype(np.float32)
    except ValueError:
        scores = np.array([], dtype=np.float32)
    if len(scores) not in (1, n_columns) or not np.isfinite(scores).all():
        raise ModelError(f"{parameters.name}: the base score {shorten(str(found))} is not {n_columns} finite numbers")
    if BINARY.get(objective):
        if not 0 < scores[0] < 1:
            raise ModelError(
                f"{parameters.name}: the base score {shorten(str(found))} is not a probability between 0 and 1"
            )
        odds = np.float32(1) / scores[0] - np.float32(1)
        scores = np.array([-math.log(odds)], dtype=np.float32)
    return np.broadcast_to(scores.astype(np.float64), (n_columns,))


def _tree_nodes(tree: Document, weight: float, column: int, n_columns: int) -> Nodes:
    if "tree_param" in tree and tree.object("tree_param").take("size_leaf_vector") not in ("0", "1", 0, 1):
        raise ModelError(f"{tree.name}: trees with several scores in a leaf (multi_output_tree) cannot be imported")
    left, right = tree.integers("left_children"), tree.integers("right_children")
    conditions = tree.numbers("split_conditions")
    feature = tree.integers("split_indices")
    if not len(left) == len(right) == len(feature) == len(conditions):
        raise ModelError(f"{tree.name}: the lists of {tree.place} have different lengths; is the file damaged?")
    is_leaf = left == -1
    if "split_type" in tree and tree.integers("split_type").any():
        raise ModelError(
            f"{tree.name}: a split by categories cannot be imported; encode them as numbers and train again"
        )
    with np.errstate(over="ignore"):
        numbers = conditions.astype(np.float32)
    if (feature < 0).any():
        raise ModelError(f"{tree.name}: {tree.place} tests a feature with a negative number")
    threshold = np.zeros(len(left))
    threshold[~is_leaf] = fold_below(numbers[~is_leaf])
    # A product of two float32 numbers is exact in float64.
    values = np.where(is_leaf, numbers.astype(np.float64) * weight, 0.0)
    return Nodes(np.where(is_leaf, -1, feature), threshold, left, right, place_scores(values, column, n_columns))


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


def _load_predictor(content: bytes, name: str, objective: str, n_rounds: int) -> LibraryPredictor | None:
    """The library with the same file; of all rounds, or of the first ones."""
    xgboost = find_library("xgboost")
    if xgboost is None:
        return None
    try:
        booster = xgboost.Booster({"nthread": 1, "verbosity": 0}, model_file=bytearray(content))
    except xgboost.core.XGBoostError as error:
        raise refuse_file(name, "XGBoost", error) from None

    def predict(X: NDArray[np.float64], is_margin: bool) -> Any:
        return booster.predict(xgboost.DMatrix(X, nthread=1), output_margin=is_margin, iteration_range=(0, n_rounds))

    def prediction(X: NDArray[np.float64]) -> NDArray[np.int64]:
        found = predict(X, False)
        if found.ndim == 2:
            return np.asarray(found.argmax(axis=1), dtype=np.int64)
        return np.asarray(found > 0.5 if objective in BINARY else found, dtype=np.int64)

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return spread_scores(predict(X, True))

    return LibraryPredictor(f"XGBoost {xgboost.__version__}", prediction, score, FLOAT32_ROUNDING)
