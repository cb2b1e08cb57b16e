"""Imports of LightGBM's text files.

x is compared in float64 and goes left if and only if it is <= the threshold, but all numbers between -1e-35 and 1e-35
count as 0, which is folded into thresholds near 0. With zero_as_missing these numbers have a side of their own; this is
imported if a threshold can express it, and refused otherwise. Splits by categories send the categories of a set to the
left, and all others, unknown and missing ones among them, to the right. Keys that are not listed here are refused,
because they might change predictions.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, at_line, shorten
from metasilvae.extras import find_library
from metasilvae.interop.imports.builder import Nodes, build_model, place_scores, spread_scores
from metasilvae.interop.imports.categories import CategoryColumn, CategorySplit, encode_categories
from metasilvae.interop.imports.imported import (
    FLOAT64_ROUNDING,
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
from metasilvae.interop.thresholds import fold_tiny_values
from metasilvae.model import LeafKind

EXTRA = "lightgbm"
OBJECTIVES = ("binary", "multiclass", "multiclassova")
TINY = float(np.float32(1e-35))
# Keys of the head and of trees. Those that are not read hold statistics of training, sizes that follow from the lists,
# or linear models, which are refused elsewhere.
KNOWN_HEAD = {
    "tree", "version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective",
    "average_output", "feature_names", "monotone_constraints", "feature_infos", "tree_sizes",
}  # fmt: skip
KNOWN_TREE = {
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child",
    "leaf_value", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count", "is_linear",
    "shrinkage", "cat_boundaries", "cat_threshold",
}  # fmt: skip
KNOWN_OBJECTIVE_WORDS = ("sigmoid", "num_class")
# Attributes of estimators beside their parameters. Parameters are not read: the text says what they led to. Those that
# LightGBM uses for predictions are not in the text and are refused.
CLASSIFIERS = ("LGBMClassifier",)
KNOWN_ATTRIBUTES = {
    "_Booster", "_evals_result", "_best_score", "_best_iteration", "_other_params", "_objective", "_class_weight",
    "_class_map", "_fitted_with_feature_names", "_n_features", "_n_features_in", "_classes", "_n_classes", "_le",
    "fitted_", "_feature_names_in", "_estimator_type",
}  # fmt: skip
KNOWN_PARAMETERS = {
    "boosting_type", "class_weight", "colsample_bytree", "importance_type", "learning_rate", "max_depth",
    "min_child_samples", "min_child_weight", "min_split_gain", "n_estimators", "n_jobs", "num_leaves", "objective",
    "random_state", "reg_alpha", "reg_lambda", "silent", "subsample", "subsample_for_bin", "subsample_freq",
}  # fmt: skip
PREDICTION_PARAMETERS = {
    "pred_early_stop", "pred_early_stop_freq", "pred_early_stop_margin", "start_iteration_predict",
    "num_iteration_predict", "predict_raw_score", "is_predict_raw_score", "predict_rawscore", "raw_score",
    "predict_leaf_index", "is_predict_leaf_index", "leaf_index", "predict_contrib", "is_predict_contrib", "contrib",
}  # fmt: skip
_SEEN_CATEGORIES = re.compile(r"-?\d{1,9}(:-?\d{1,9})*", re.ASCII)
_TOLD_CATEGORIES = re.compile(r"^\[categorical_feature: (\d{1,7}(?:,\d{1,7})*)\]$", re.ASCII | re.MULTILINE)
_PANDAS_CATEGORIES = re.compile(r"^pandas_categorical:(.*)$", re.MULTILINE)
_CATEGORICAL, _DEFAULT_LEFT, _MISSING_SHIFT, _NO_MISSING, _ZERO_IS_MISSING = 1, 2, 2, 0, 1


class _Block:
    """Lines ``key=value`` of the head or of one tree."""

    def __init__(self, name: str, line: int) -> None:
        self.name = name
        self.line = line
        self.values: dict[str, tuple[str, int]] = {}

    def add(self, text: str, line: int) -> None:
        key, _, value = text.partition("=")
        self.values[key.strip()] = (value.strip(), line)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str) -> tuple[str, int]:
        if key not in self.values:
            raise ModelError(at_line(self.name, self.line, f"{key}= is missing below this line; is the file complete?"))
        return self.values[key]

    def integer(self, key: str) -> int:
        text, line = self.text(key)
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ModelError(at_line(self.name, line, f"{key} is {shorten(text)}, a whole number was expected"))
        return int(text)

    def numbers(self, key: str, n_numbers: int) -> NDArray[np.float64]:
        text, line = self.text(key)
        words = text.split()
        if len(words) != n_numbers:
            raise ModelError(at_line(self.name, line, f"{key} has {len(words)} numbers, {n_numbers} were expected"))
        try:
            numbers = np.array([float(word) for word in words], dtype=np.float64)
        except ValueError:
            raise ModelError(at_line(self.name, line, f"{key} holds something that is not a number")) from None
        if np.isnan(numbers).any():
            raise ModelError(at_line(self.name, line, f"{key} holds something that is not a number"))
        return numbers

    def integers(self, key: str, n_numbers: int, most: int = 2**31) -> NDArray[np.int64]:
        numbers = self.numbers(key, n_numbers)
        if not ((np.abs(numbers) < most) & (numbers == np.rint(numbers))).all():
            raise ModelError(at_line(self.name, self.text(key)[1], f"{key} holds something that is no whole number"))
        return numbers.astype(np.int64)


def read_lightgbm(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a classifier from the text of save_model; LightGBM is needed only for the comparison."""
    return _import_text(content, name, options, None)


def import_lightgbm(fitted: Any, options: ImportOptions, name: str) -> Imported:
    """Import a fitted classifier or a booster from memory; it predicts for the comparison itself."""
    is_booster = not hasattr(fitted, "booster_")
    content = (fitted if is_booster else fitted.booster_).model_to_string().encode()
    if is_booster:
        return replace(_import_text(content, name, options, None), load_predictor=lambda: _wrap_booster(fitted))
    kind = type(fitted).__name__
    if kind not in CLASSIFIERS:
        raise ModelError(f"{name}: a {kind} cannot be imported; known are {', '.join(CLASSIFIERS)} and Booster")
    others = dict(fitted._other_params)
    for key in PREDICTION_PARAMETERS.intersection(others):
        if others[key] not in (None, False):
            raise ModelError(
                f"{name}: the {kind} has {key}={others[key]!r}, which changes its predictions; such an estimator is "
                "not imported"
            )
    refuse_unknown(vars(fitted), KNOWN_ATTRIBUTES | KNOWN_PARAMETERS | set(others), f"{name}: the {kind}")
    imported = _import_text(content, name, options, name_classes(fitted.classes_))
    return replace(imported, load_predictor=lambda: _wrap_estimator(fitted))


def _import_text(content: bytes, name: str, options: ImportOptions, classes: list[str] | None) -> Imported:
    head, blocks = _split_blocks(content, name)
    refuse_unknown({key: key for key in head.values}, KNOWN_HEAD, f"{name}: the head of the file")
    words = head.text("objective")[0].split() if "objective" in head else ["none"]
    objective = words[0] if words else ""
    if objective not in OBJECTIVES:
        raise ModelError(
            f"{name}: the objective {shorten(objective)} is not one of a classifier ({', '.join(OBJECTIVES)})"
        )
    for word in words[1:]:
        if word.partition(":")[0] not in KNOWN_OBJECTIVE_WORDS:
            raise ModelError(f"{name}: the objective has {shorten(word)}, which this version does not know")
    options.refuse_counts(name)
    n_columns = head.integer("num_tree_per_iteration")
    expected = 1 if objective == "binary" else head.integer("num_class")
    if n_columns != expected or (objective != "binary" and n_columns < 2):
        raise ModelError(f"{name}: {n_columns} trees per round do not fit {objective} with {expected} classes")
    if not blocks or len(blocks) % n_columns:
        raise ModelError(f"{name}: {len(blocks)} trees are not a multiple of {n_columns} per round; is it complete?")
    labels = choose_labels(number_classes(n_columns, classes, name), options.labels, name)
    trees = [_tree_nodes(block, number % n_columns, n_columns) for number, block in enumerate(blocks)]
    n_features = head.integer("max_feature_idx") + 1
    names = options.name_features(_feature_names(head), n_features, name)
    columns, notes = _find_categories(head, trees, content, n_features, name)
    encoding = None
    if columns:
        trees, encoding = encode_categories(trees, n_features, names, columns, name)
        n_features = encoding.n_features
    model = build_model(trees, LeafKind.SCORES, n_features, labels, True, name)
    # Random forests of LightGBM predict by the mean, whose largest label, or sign, is that of the sum.
    origin = f"LightGBM, {objective}, {len(blocks)} trees"
    load = lambda: _load_predictor(content, name)  # noqa: E731
    return Imported.of(model, "softargmax", origin, names, load, EXTRA, notes=notes, encoding=encoding)


def _find_categories(
    head: _Block, trees: list[Nodes], content: bytes, n_features: int, name: str
) -> tuple[dict[int, CategoryColumn], tuple[str, ...]]:
    """The features that are categories: those that LightGBM was told, and those that are split so."""
    split = {int(tree.feature[node]) for tree in trees for node in tree.categories or ()}
    if any(
        feature in split and not (tree.categories and node in tree.categories)
        for tree in trees
        for node, feature in enumerate(tree.feature.tolist())
    ):
        raise ModelError(f"{name}: a feature is split as a number and as a category; is the file damaged?")
    infos = head.text("feature_infos")[0].split() if "feature_infos" in head else []
    seen = {
        feature: tuple(sorted(int(word) for word in info.split(":")))
        for feature, info in enumerate(infos)
        if _SEEN_CATEGORIES.fullmatch(info)
    }
    told, lists = _find_names(content)
    told = [feature for feature in told if feature < n_features]
    if not split and not lists:
        return {}, ()
    columns = {feature: CategoryColumn(seen.get(feature, ())) for feature in sorted({*split, *seen, *told})}
    if len(lists) != len(told):
        return columns, ("the categories have no names in the file and are known by their numbers",) if columns else ()
    named = {feature: _name_categories(texts) for feature, texts in zip(told, lists, strict=True)}
    for feature, texts in named.items():
        if texts is None or max(columns[feature].codes, default=-1) >= len(texts):
            return columns, ("the names of categories in the file do not fit, so their numbers are used",)
    for feature, texts in named.items():
        columns[feature] = CategoryColumn(tuple(range(len(texts or ()))), texts)
    return columns, ()


def _find_names(content: bytes) -> tuple[list[int], list[list[Any]]]:
    """The features that are categories according to the parameters, and the categories that pandas knew."""
    tail = content[content.rfind(b"end of trees") :].decode("utf-8", "replace")
    told = _TOLD_CATEGORIES.search(tail)
    features = [int(word) for word in told[1].split(",")] if told is not None else []
    listed = _PANDAS_CATEGORIES.search(tail)
    try:
        lists = json.loads(listed[1]) if listed is not None else None
    except (ValueError, RecursionError):
        lists = None
    if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
        return features, []
    return features, lists


def _name_categories(categories: list[Any]) -> tuple[str, ...] | None:
    """Categories as they are written in data files; None if two of them are the same there."""
    texts = tuple(name_classes(categories))
    return texts if len(set(texts)) == len(texts) else None


def _feature_names(head: _Block) -> list[str] | None:
    """Names of the features; LightGBM numbers those of data without names."""
    names = head.text("feature_names")[0].split() if "feature_names" in head else []
    return None if names == [f"Column_{number}" for number in range(len(names))] else names


def _split_blocks(content: bytes, name: str) -> tuple[_Block, list[_Block]]:
    head = block = _Block(name, 1)
    blocks: list[_Block] = []
    is_ended = False
    for line, text in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if line == 1 and text.strip() != "tree":
            raise ModelError(at_line(name, 1, f"begins with {shorten(text)}, LightGBM's files begin with tree"))
        if text.startswith("end of trees"):
            is_ended = True
            break
        if text.startswith("Tree="):
            block = _Block(name, line)
            blocks.append(block)
        elif text.strip():
            block.add(text, line)
    if not is_ended:
        raise ModelError(f"{name}: the line 'end of trees' is missing; the file is cut short")
    return head, blocks


def _tree_nodes(block: _Block, column: int, n_columns: int) -> Nodes:
    """Splits come first, then the leaves, which children name by negative numbers from -1 on."""
    where = f"{block.name}:{block.line}"
    if "is_linear" in block and block.integer("is_linear"):
        raise ModelError(f"{where}: linear trees cannot be imported; train again without linear_tree")
    refuse_unknown({key: key for key in block.values}, KNOWN_TREE, f"{where}: the tree")
    n_leaves = block.integer("num_leaves")
    if not 1 <= n_leaves <= len(block.text("leaf_value")[0]):
        raise ModelError(f"{where}: the tree announces {n_leaves} leaves, but holds fewer")
    n_splits = n_leaves - 1
    values = np.concatenate([np.zeros(n_splits), block.numbers("leaf_value", n_leaves)])
    feature, children, threshold = np.full(len(values), -1), np.full((2, len(values)), -1), np.zeros(len(values))
    missing_left = np.zeros(len(values), dtype=np.bool_)
    categories: dict[int, CategorySplit] = {}
    if n_splits:
        kinds = block.integers("decision_type", n_splits)
        feature[:n_splits] = block.integers("split_feature", n_splits)
        if (feature[:n_splits] < 0).any():
            raise ModelError(f"{where}: the tree tests a feature with a negative number")
        thresholds, is_category = block.numbers("threshold", n_splits), (kinds & _CATEGORICAL) != 0
        categories = _category_splits(block, thresholds, is_category, where)
        threshold[:n_splits] = _fold(np.where(is_category, 0.0, thresholds), np.where(is_category, 0, kinds), where)
        # Trees that saw no missing value take it for 0.
        takes_zero = ((kinds >> _MISSING_SHIFT) & 3) == _NO_MISSING
        missing_left[:n_splits] = np.where(takes_zero, threshold[:n_splits] >= 0, (kinds & _DEFAULT_LEFT) != 0)
        for side, key in enumerate(("left_child", "right_child")):
            child = block.integers(key, n_splits)
            children[side, :n_splits] = np.where(child < 0, n_splits + ~child, child)
    scores = place_scores(values, column, n_columns)
    return Nodes(feature, threshold, children[0], children[1], scores, missing_left, categories)


def _category_splits(
    block: _Block, thresholds: NDArray[np.float64], is_category: NDArray[np.bool_], where: str
) -> dict[int, CategorySplit]:
    """Sets of categories, as bits of words; the threshold of a split is the number of its set.

    Categories of the set go left, and all others right: missing ones, unknown ones and negative numbers.
    """
    if not is_category.any():
        return {}
    n_sets = block.integer("num_cat")
    bounds = block.integers("cat_boundaries", n_sets + 1)
    words = block.integers("cat_threshold", len(block.text("cat_threshold")[0].split()), most=2**32)
    if bounds[0] != 0 or (np.diff(bounds) < 0).any() or bounds[-1] != len(words) or (words < 0).any():
        raise ModelError(f"{where}: the sets of categories do not fit their words; is the file damaged?")
    found = {}
    for node in np.flatnonzero(is_category).tolist():
        number = int(thresholds[node]) if np.isfinite(thresholds[node]) else -1
        if not 0 <= number < n_sets or number != thresholds[node]:
            raise ModelError(f"{where}: split {node} asks for set {thresholds[node]:g}, but there are {n_sets}")
        own = words[bounds[number] : bounds[number + 1]].astype("<u4").view(np.uint8)
        codes = np.flatnonzero(np.unpackbits(own, bitorder="little")).tolist()
        found[node] = CategorySplit(frozenset(codes))
    return found


def _fold(thresholds: NDArray[np.float64], kinds: NDArray[np.int64], where: str) -> NDArray[np.float64]:
    folded = fold_tiny_values(thresholds, TINY)
    is_zero_missing = ((kinds >> _MISSING_SHIFT) & 3) == _ZERO_IS_MISSING
    goes_left = (kinds & _DEFAULT_LEFT) != 0
    # Numbers around 0 must be on the side of their neighbours, or else no threshold can express it.
    is_near = is_zero_missing & (np.abs(thresholds) <= TINY)
    folded[is_near & goes_left] = TINY
    folded[is_near & ~goes_left] = math.nextafter(-TINY, -math.inf)
    is_hole = is_zero_missing & ~is_near & (goes_left != (thresholds > 0))
    if is_hole.any():
        raise ModelError(
            f"{where}: the tree sends 0, as a missing value, to another side than its neighbours (zero_as_missing), "
            "which no threshold can express; train again without it"
        )
    return folded


def _load_predictor(content: bytes, name: str) -> LibraryPredictor | None:
    lightgbm = find_library("lightgbm")
    if lightgbm is None:
        return None
    try:
        booster = lightgbm.Booster(model_str=content.decode("utf-8"))
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
        raise refuse_file(name, "LightGBM", error) from None

    return _wrap_booster(booster)


def _wrap_booster(booster: Any) -> LibraryPredictor:
    lightgbm = find_library("lightgbm")

    def prediction(X: NDArray[np.float64]) -> NDArray[np.int64]:
        found = np.asarray(booster.predict(X, num_threads=1))
        return np.asarray(found > 0.5 if found.ndim == 1 else found.argmax(axis=1), dtype=np.int64)

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return spread_scores(np.asarray(booster.predict(X, raw_score=True, num_threads=1)))

    version = lightgbm.__version__  # type: ignore[union-attr]  # the booster has it
    return LibraryPredictor(f"LightGBM {version}", prediction, score, FLOAT64_ROUNDING, is_float32=False)


def _wrap_estimator(fitted: Any) -> LibraryPredictor:
    """The estimator itself, with everything that its predict does to data."""
    prediction = position_of_labels(fitted.predict, fitted.classes_)
    return replace(_wrap_booster(fitted.booster_), prediction=prediction)
