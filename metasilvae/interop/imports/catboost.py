"""Imports of CatBoost's JSON files of symmetric (oblivious) trees over numbers and one-hot categories.

x is rounded to float32; a split is true if and only if it is above the float32 border. All nodes of one level of a tree
have the same split, and split number i is bit i of the leaf's number. A one-hot split is true for one category, which
the file knows by a hash of its text. Keys that are not listed here are refused, because they might change predictions.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, shorten
from metasilvae.extras import find_library
from metasilvae.interop.imports.builder import Nodes, build_model, spread_scores, start_trees
from metasilvae.interop.imports.categories import (
    CategoryColumn,
    CategorySplit,
    encode_categories,
    restore_cells,
    unknown_cell,
)
from metasilvae.interop.imports.documents import Document, as_numbers, load_json
from metasilvae.interop.imports.imported import (
    FLOAT64_ROUNDING,
    Imported,
    ImportOptions,
    LibraryPredictor,
    choose_labels,
    name_classes,
    position_of_labels,
    refuse_file,
)
from metasilvae.interop.thresholds import fold_at_most
from metasilvae.model import LeafKind

EXTRA = "catboost"
BINARY = ("Logloss",)
MULTI = ("MultiClass", "MultiClassOneVsAll")
DEEPEST = 16  # CatBoost's own limit
# Whether a missing value goes left: as the smallest number, the largest one, or as it compares (not above a border).
NAN_TREATMENTS = {"AsFalse": True, "AsTrue": False, "AsIs": True}
CLASSIFIERS = ("CatBoostClassifier", "CatBoost")
# Categories are known by 32 bits of a hash of their text, with or without a sign.
_HASHES = 1 << 32
# Keys of each object of a file. Those that are not read hold statistics and settings of training, or features and
# statistics of categories and texts, which are refused elsewhere.
KNOWN_KEYS = {
    "document": {"features_info", "model_info", "oblivious_trees", "scale_and_bias", "ctr_data"},
    "model": {
        "binclass_probability_threshold", "catboost_version_info", "class_params", "model_guid", "output_options",
        "params", "train_finish_time", "training", "ignored_features",
    },
    "classes": {"class_label_type", "class_names", "class_to_label", "classes_count"},
    "features": {
        "float_features", "categorical_features", "text_features", "embedding_features", "ctrs", "cat_features_hash",
    },
    "feature": {
        "borders", "feature_id", "feature_index", "feature_name", "flat_feature_index", "has_nans",
        "nan_value_treatment", "values",
    },
    "tree": {"leaf_values", "leaf_weights", "splits"},
    "split": {"border", "cat_feature_index", "float_feature_index", "split_index", "split_type", "value"},
}  # fmt: skip


def read_catboost(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a classifier from JSON; CatBoost is needed only for the comparison."""
    document = load_json(content, name)
    if "oblivious_trees" not in document:
        if "trees" in document:
            raise ModelError(f"{name}: only symmetric trees can be imported; train with grow_policy='SymmetricTree'")
        document.take("oblivious_trees")
    options.refuse_counts(name)
    info = document.object("model_info")
    document.expect_only(KNOWN_KEYS["document"])
    # Notes of users (the parameter metadata) stand beside the keys of CatBoost.
    parameters = info.object("params")
    notes = parameters.object("metadata").values if "metadata" in parameters else {}
    info.expect_only(KNOWN_KEYS["model"].union(notes))
    threshold = info.values.get("binclass_probability_threshold", 0.5)
    if threshold != 0.5:
        raise ModelError(
            f"{name}: the model predicts the second label from a probability of {threshold} on "
            "(set_probability_threshold); only 0.5 can be imported"
        )
    loss = parameters.object("loss_function").text("type")
    if loss not in (*BINARY, *MULTI):
        raise ModelError(
            f"{name}: the loss {shorten(loss)} is not one of a classifier ({', '.join((*BINARY, *MULTI))})"
        )
    info.object("class_params").expect_only(KNOWN_KEYS["classes"])
    classes = info.object("class_params").list("class_names")
    n_columns = 1 if loss in BINARY else len(classes)
    if len(classes) != max(2, n_columns) or not all(type(label) in (bool, int, float, str) for label in classes):
        raise ModelError(f"{name}: {len(classes)} class names do not fit the loss {loss}")
    labels = choose_labels(name_classes(classes), options.labels, name)
    columns, categories, own_names = _feature_columns(document.object("features_info"))
    missing_left = _missing_sides(document.object("features_info"))
    scale, bias = _scale_and_bias(document, n_columns)
    trees = [*start_trees(bias)]
    oblivious = document.objects("oblivious_trees")
    flat = np.array([category.place for category in categories], dtype=np.int64)
    trees += [_tree_nodes(tree, columns, missing_left, flat, scale, n_columns) for tree in oblivious]
    n_features = int(max(columns.max(initial=-1), flat.max(initial=-1))) + 1
    names = options.name_features(own_names, n_features, name)
    encoding, cells = None, _list_cells(categories)
    if categories:
        known = {category.place: category.column for category in categories}
        trees, encoding = encode_categories(trees, n_features, names, known, name)
        n_features = encoding.n_features
    model = build_model(trees, LeafKind.SCORES, n_features, labels, True, name)
    origin = f"CatBoost, {loss}, {len(oblivious)} trees"
    load = lambda: _load_predictor(content, name, cells)  # noqa: E731
    return Imported.of(model, "softargmax", origin, names, load, EXTRA, encoding=encoding)


@dataclass(frozen=True)
class _Category:
    """A feature that is a category: its place among all features, and its categories, whose codes are hashes."""

    place: int
    column: CategoryColumn


def _list_cells(categories: Sequence[_Category]) -> dict[int, list[object]]:
    """The categories of each feature that has some, and a text that is none of them."""
    return {each.place: [*(each.column.names or ()), unknown_cell(each.column.names or ("",))] for each in categories}


def import_catboost(fitted: Any, options: ImportOptions, name: str) -> Imported:
    """Import a fitted classifier from memory; it predicts for the comparison itself."""
    kind = type(fitted).__name__
    if kind not in CLASSIFIERS:
        raise ModelError(f"{name}: a {kind} cannot be imported; known is CatBoostClassifier")
    # CatBoost writes JSON to files only.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        fitted.save_model(str(path), format="json")
        content = path.read_bytes()
    imported = read_catboost(content, name, options)
    _, categories, _ = _feature_columns(load_json(content, name).object("features_info"))
    is_classifier, cells = kind == "CatBoostClassifier", _list_cells(categories)
    return replace(imported, load_predictor=lambda: _wrap_model(fitted, is_classifier, cells))


def _feature_columns(features: Document) -> tuple[NDArray[np.int64], list[_Category], list[str] | None]:
    """Column of each number that splits can test, the categories, and the names of all columns if each has one."""
    for kind in ("text_features", "embedding_features"):
        if kind in features and features.list(kind):
            raise ModelError(f"{features.name}: the model has {kind}; only numbers and categories can be imported")
    features.expect_only(KNOWN_KEYS["features"])
    items = features.objects("float_features") if "float_features" in features else []
    categories = features.objects("categorical_features") if "categorical_features" in features else []
    for item in (*items, *categories):
        item.expect_only(KNOWN_KEYS["feature"])
    found = [item.integer("flat_feature_index") for item in items]
    of_categories = [item.integer("flat_feature_index") for item in categories]
    places = [*found, *of_categories]
    if not places or min(places) < 0 or len(set(places)) < len(places):
        raise ModelError(f"{features.name}: the model has no features, or one with a negative number or one twice")
    names = {
        column: str(item.values.get("feature_id") or "")
        for column, item in zip(places, (*items, *categories), strict=True)
    }
    is_named = all(names.values()) and len(names) == max(places) + 1
    # CatBoost numbers the features of data without names.
    is_numbered = all(name == str(column) for column, name in names.items())
    in_order = [names[column] for column in range(len(names))] if is_named and not is_numbered else None
    texts = _category_names(features)
    listed = [
        _Category(place, _category_column(item, texts, categories))
        for place, item in zip(of_categories, categories, strict=True)
    ]
    return np.array(found, dtype=np.int64), listed, in_order


def _category_names(features: Document) -> dict[int, str]:
    """The text of each hash, as far as the file tells."""
    found = {}
    for item in features.objects("cat_features_hash") if "cat_features_hash" in features else ():
        found[item.integer("hash") % _HASHES] = item.text("value")
    return found


def _category_column(item: Document, texts: dict[int, str], categories: Sequence[Document]) -> CategoryColumn:
    """The categories that splits of a feature ask for, and if it is the only one all others."""
    codes = [code % _HASHES for code in item.integers("values").tolist()] if "values" in item else []
    unnamed = [code for code in codes if code not in texts]
    if unnamed:
        raise ModelError(
            f"{item.name}: {item.place}: the file does not name the categories of the splits, only their hashes; save "
            "it with the training data, save_model(..., format='json', pool=Pool(X, y, cat_features=...))"
        )
    if len(categories) == 1:
        codes = list(texts)
    codes.sort(key=lambda code: texts[code])
    return CategoryColumn(tuple(codes), tuple(texts[code] for code in codes), has_missing=False)


def _missing_sides(features: Document) -> NDArray[np.bool_]:
    """For each number that splits can test whether missing values go left: below all borders, or not above any."""
    sides = []
    for item in features.objects("float_features") if "float_features" in features else ():
        treatment = item.values.get("nan_value_treatment", "AsIs")
        if treatment not in NAN_TREATMENTS:
            raise ModelError(
                f"{features.name}: {item.where('nan_value_treatment')} is {shorten(str(treatment))}; known are "
                f"{', '.join(NAN_TREATMENTS)}"
            )
        sides.append(NAN_TREATMENTS[treatment])
    return np.array(sides, dtype=np.bool_)


def _scale_and_bias(document: Document, n_columns: int) -> tuple[float, NDArray[np.float64]]:
    """The factor of all sums, and the bias that is added then."""
    if "scale_and_bias" not in document:
        return 1.0, np.zeros(n_columns)
    items = document.list("scale_and_bias")
    where = f"{document.name}: scale_and_bias"
    bias = items[1] if len(items) == 2 else None
    numbers = as_numbers([items[0], *(bias if isinstance(bias, list) else [bias])] if items else [], where)
    if len(numbers) not in (2, n_columns + 1) or not np.isfinite(numbers).all() or numbers[0] <= 0:
        raise ModelError(f"{where} is not a scale above 0 and {n_columns} finite numbers")
    return float(numbers[0]), np.broadcast_to(numbers[1:], (n_columns,))


def _tree_nodes(
    tree: Document,
    columns: NDArray[np.int64],
    missing_left: NDArray[np.bool_],
    category_columns: NDArray[np.int64],
    scale: float,
    n_columns: int,
) -> Nodes:
    """A full binary tree; node n has the children 2n + 1 and 2n + 2, and the last split is at the root."""
    where = f"{tree.name}: {tree.place}"
    tree.expect_only(KNOWN_KEYS["tree"])
    splits = [] if tree.values.get("splits") is None else tree.objects("splits")
    depth = len(splits)
    values = tree.numbers("leaf_values")
    if depth > DEEPEST:
        raise ModelError(f"{where} is {depth} levels deep; CatBoost makes at most {DEEPEST}")
    n_leaves = 1 << depth
    if len(values) != n_leaves * n_columns:
        raise ModelError(f"{where} has {len(values)} leaf values, {n_leaves * n_columns} were expected")
    n_splits = n_leaves - 1
    features, thresholds = np.full(n_splits + n_leaves, -1), np.zeros(n_splits + n_leaves)
    goes_left = np.zeros(n_splits + n_leaves, dtype=np.bool_)
    categories: dict[int, CategorySplit] = {}
    for level, split in enumerate(reversed(splits)):
        kind = split.values.get("split_type", "FloatFeature")
        level_nodes = slice((1 << level) - 1, (2 << level) - 1)
        if kind in ("FloatFeature", "OneHotFeature"):
            split.expect_only(KNOWN_KEYS["split"])
        if kind == "OneHotFeature":
            number = split.integer("cat_feature_index")
            if not 0 <= number < len(category_columns):
                raise ModelError(f"{where} tests category {number}, but the model has {len(category_columns)}")
            features[level_nodes] = category_columns[number]
            # The category of the split goes right, and all others go left.
            one = CategorySplit(frozenset([split.integer("value") % _HASHES]), False, True, True)
            categories |= dict.fromkeys(range(level_nodes.start, level_nodes.stop), one)
            continue
        if kind != "FloatFeature":
            raise ModelError(
                f"{where} has a split of type {shorten(str(kind))}; only numbers and one-hot splits of categories can "
                "be imported, train again with a larger one_hot_max_size"
            )
        number = split.integer("float_feature_index")
        if not 0 <= number < len(columns):
            raise ModelError(f"{where} tests feature {number}, but the model has {len(columns)}")
        border = as_numbers([split.take("border")], f"{where}.border")
        with np.errstate(over="ignore"):
            rounded = border.astype(np.float32).astype(np.float64)
        features[level_nodes], thresholds[level_nodes] = columns[number], fold_at_most(rounded)[0]
        goes_left[level_nodes] = missing_left[number]
    left = 2 * np.arange(n_splits + n_leaves) + 1
    scores = np.zeros((n_splits + n_leaves, max(2, n_columns)))
    # A single score is that of the second label.
    scores[n_splits:, -n_columns:] = (scale * values).reshape(n_leaves, n_columns)
    return Nodes(features, thresholds, left, left + 1, scores, goes_left, categories)


def _load_predictor(content: bytes, name: str, cells: Mapping[int, Sequence[object]]) -> LibraryPredictor | None:
    catboost = find_library("catboost")
    if catboost is None:
        return None
    model = catboost.CatBoost()
    # CatBoost reads JSON from files only.
    handle, path = tempfile.mkstemp(suffix=".json")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        model.load_model(path, format="json")
    except catboost.CatBoostError as error:
        raise refuse_file(name, "CatBoost", error) from None
    finally:
        os.unlink(path)

    return _wrap_model(model, False, cells)


def _wrap_model(model: Any, is_classifier: bool, cells: Mapping[int, Sequence[object]]) -> LibraryPredictor:
    """Predictions of a model of CatBoost; a classifier predicts its classes itself."""

    def restore(X: NDArray[np.float64]) -> np.ndarray:
        return restore_cells(X, cells) if cells else X

    def choose(X: NDArray[np.float64]) -> NDArray[np.int64]:
        chance = np.asarray(model.predict(restore(X), prediction_type="Probability", thread_count=1))
        # With two labels CatBoost takes the second one iff its chance is above one half.
        return np.asarray(chance.argmax(axis=1), dtype=np.int64)

    def score(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return spread_scores(model.predict(restore(X), prediction_type="RawFormulaVal", thread_count=1))

    version = find_library("catboost").__version__  # type: ignore[union-attr]  # the model has it
    prediction: Callable[[NDArray[np.float64]], NDArray[np.int64]] = choose
    if is_classifier:
        prediction = position_of_labels(lambda X: model.predict(restore(X)), model.classes_)
    return LibraryPredictor(f"CatBoost {version}", prediction, score, FLOAT64_ROUNDING)
