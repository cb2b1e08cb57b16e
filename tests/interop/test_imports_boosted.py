"""``import`` from XGBoost, LightGBM and CatBoost: equal answers, or a refusal."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.boosted_models import CATBOOST, LIGHTGBM, xgboost_document
from support.command import run, write

from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.silva_models import read_model, same_model
from metasilvae.interop.imports import ImportOptions, compare_with_library, import_file, import_object
from metasilvae.interop.imports.documents import load_ubjson
from metasilvae.interop.imports.lightgbm import TINY
from metasilvae.model import Model
from metasilvae.prediction import predict


def make_data(n_labels: int = 3, n_rows: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n_rows, 5)), 1)
    y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int) + (X[:, 2] > 0.7) * (n_labels > 2)
    return X, np.where(rng.random(n_rows) < 0.1, rng.integers(n_labels, size=n_rows), y)


def import_text(tmp_path: Path, content: str | bytes, kind: str | None = None, **options: Any) -> Any:
    return import_file(write(tmp_path, "model", content), kind, ImportOptions(**options), check=False)


def predictions(model: Model, X: np.ndarray) -> list[set[str]]:
    found = predict(model, np.ascontiguousarray(X))
    return [{model.labels[label] for label in found.sets[number]} for number in found.ids]


# XGBoost


def train_xgboost(n_labels: int = 3, rounds: int = 5, **parameters: Any) -> Any:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    X, y = make_data(n_labels)
    objective = {"objective": "binary:logistic"} if n_labels == 2 else {"objective": "multi:softprob", "num_class": 3}
    settings = {"max_depth": 3, "nthread": 1, "seed": 1, "verbosity": 0, **objective, **parameters}
    return xgboost.train(settings, xgboost.DMatrix(X, label=y, nthread=1), rounds)


@pytest.mark.parametrize("form", ["json", "ubj"])
@pytest.mark.parametrize(
    ("n_labels", "parameters"),
    [
        (2, {}),
        (2, {"base_score": 0.9}),
        (2, {"objective": "binary:hinge"}),
        (2, {"objective": "multi:softprob", "num_class": 2}),
        (2, {"booster": "dart", "rate_drop": 0.5}),
        (2, {"num_parallel_tree": 3, "subsample": 0.5}),
        (3, {}),
        (3, {"objective": "multi:softmax"}),
        (3, {"base_score": 0.3}),
        (3, {"booster": "dart", "rate_drop": 0.5}),
    ],
)
def test_xgboost(n_labels: int, parameters: dict[str, Any], form: str, tmp_path: Path) -> None:
    booster = train_xgboost(n_labels, **parameters)
    imported = import_text(tmp_path, bytes(booster.save_raw(form)))
    comparison = compare_with_library(imported, make_data(n_labels)[0])
    assert comparison.library.startswith("XGBoost ")
    assert comparison.n_rounded == 0
    splits = imported.model.n_nodes - imported.model.n_leaves
    assert comparison.n_thresholds == 8 * splits > 0


def test_xgboost_rounds_to_float32_and_compares_strictly(tmp_path: Path) -> None:
    booster = train_xgboost(2, rounds=1, max_depth=1)
    model = import_text(tmp_path, bytes(booster.save_raw("json"))).model
    (split,) = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"][0][
        "split_conditions"
    ][:1]
    (k,) = model.nodes["threshold"][model.nodes["feature"] >= 0]
    assert np.float32(k) < np.float32(split)
    assert np.float32(np.nextafter(k, np.inf)) == np.float32(split)


def test_xgboost_stops_where_its_classifier_does(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    pytest.importorskip("sklearn")
    X, y = make_data(3)
    fitted = xgboost.XGBClassifier(n_estimators=60, max_depth=5, learning_rate=1, early_stopping_rounds=3, n_jobs=1)
    fitted.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])], verbose=False)
    assert fitted.best_iteration + 1 < len(fitted.get_booster().get_dump()) // 3
    with pytest.warns(MetasilvaeWarning, match="only these are imported, as XGBClassifier uses them"):
        imported = import_object(fitted)
    compare_with_library(imported, X)
    found = predictions(imported.model, X)
    assert all(str(label) in labels for label, labels in zip(fitted.predict(X), found, strict=True))


def test_xgboost_refusals(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'reg:squarederror' is not one of a classifier"):
        import_text(tmp_path, bytes(train_xgboost(2, objective="reg:squarederror").save_raw("json")))
    with pytest.raises(ModelError, match="the booster 'gblinear' is not made of trees"):
        import_text(tmp_path, bytes(train_xgboost(2, booster="gblinear").save_raw("json")))
    content = bytes(train_xgboost(2).save_raw("json"))
    with pytest.raises(ModelError, match="hold scores, not counts"):
        import_text(tmp_path, content, leaves="counts")
    with pytest.raises(ModelError, match="1 names were given"):
        import_text(tmp_path, content, labels=("a",))
    document = json.loads(content)
    document["learner"]["gradient_booster"]["model"]["trees"][0]["split_type"][0] = 1
    with pytest.raises(ModelError, match="its lists of splits by categories do not fit"):
        import_text(tmp_path, json.dumps(document))


@pytest.fixture
def no_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("xgboost", "lightgbm", "catboost"):
        monkeypatch.setitem(sys.modules, library, None)


@pytest.mark.usefixtures("no_judges")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left_children": [0, -1, -1]}, "node 0 is reached in two ways"),
        ({"left_children": [2, -1, -1]}, "node 2 is reached in two ways"),
        ({"left_children": [7, -1, -1]}, "leads to node 7, but the tree has 3 nodes"),
        ({"left_children": [-2, -1, -1]}, "leads to node -2"),
        ({"left_children": [1.5, -1, -1]}, "left_children holds something that is not a whole number"),
        ({"left_children": ["1", -1, -1]}, "left_children holds something that is not a number"),
        ({"left_children": 1}, "left_children is '1', a list was expected"),
        ({"left_children": [1, -1]}, "have different lengths"),
        ({"split_indices": [1, 0, 0]}, "tests feature 1, but the model has 1 features"),
        ({"split_indices": [-1, 0, 0]}, "negative number"),
        ({"split_conditions": [float("nan"), 1, 1]}, "the threshold of node 0 is not a number"),
        ({"split_conditions": [1, float("inf"), 1]}, "score of a leaf is not a finite number"),
        ({"split_conditions": [1, 10**400, 1]}, "a number that is too large"),
        ({"tree_param": {"size_leaf_vector": "3"}}, "several scores in a leaf"),
        ({"left_children": [2, -1, -1], "right_children": [1, -1, -1]}, "children of node 0 are nodes 2 and 1"),
    ],
)
def test_broken_trees_of_xgboost(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        import_text(tmp_path, xgboost_document(**changes))


@pytest.mark.usefixtures("no_judges")
def test_an_infinite_threshold_leaves_one_side(tmp_path: Path) -> None:
    model = import_text(tmp_path, xgboost_document(split_conditions=[float("inf"), -1.0, 1.0])).model
    # Everything that is rounded to a finite number is below infinity.
    assert predictions(model, np.array([[1e38], [-1e38]])) == [{"0"}, {"0"}]


@pytest.mark.usefixtures("no_judges")
def test_a_chain_of_any_depth(tmp_path: Path) -> None:
    n = 30_000
    children: dict[str, list[float]]
    children = {"left_children": [], "right_children": [], "split_indices": [], "split_conditions": []}
    for i in range(n):
        children["left_children"] += [2 * i + 1, -1]
        children["right_children"] += [2 * i + 2, -1]
        children["split_indices"] += [0, 0]
        children["split_conditions"] += [float(i), -1.0]
    for key, value in (("left_children", -1), ("right_children", -1), ("split_indices", 0), ("split_conditions", 1.0)):
        children[key].append(value)
    model = import_text(tmp_path, xgboost_document(**children)).model
    assert model.max_depth == n
    assert predictions(model, np.array([[n - 0.5], [n + 1.0]])) == [{"1"}, {"1"}]
    assert predictions(model, np.array([[3.5]])) == [{"0"}]


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_command_without_the_library(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(train_xgboost(3).save_raw(form))
    path, output = write(tmp_path, f"model.{form}", content), tmp_path / "model.silva"
    assert "compared  2" in run("import", path, output).stdout
    first = read_model(str(output))
    monkeypatch.setitem(sys.modules, "xgboost", None)
    result = run("import", path, output)
    assert "not compared with its library, which is not installed; pip install 'metasilvae[xgboost]'" in result.stderr
    assert "compared  no" in result.stdout
    assert same_model(read_model(str(output)), first)
    assert run("import", path, output, "--no-compare").stderr == ""


def test_ubjson_and_json_say_the_same() -> None:
    booster = train_xgboost(3)
    from_binary = load_ubjson(bytes(booster.save_raw("ubj")), "x").values
    from_text = json.loads(booster.save_raw("json"))

    def as_float32(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: as_float32(item) for key, item in value.items()}
        if isinstance(value, list):
            return [as_float32(item) for item in value]
        return float(np.float32(value)) if isinstance(value, float) else value

    assert as_float32(from_text) == from_binary


# LightGBM


def train_lightgbm(
    n_labels: int = 3, rounds: int = 5, X: np.ndarray | None = None, categories: Any = "auto", **parameters: Any
) -> Any:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)")
    own, y = make_data(n_labels)
    X = own if X is None else X
    objective = {"objective": "binary"} if n_labels == 2 else {"objective": "multiclass", "num_class": 3}
    settings = {"num_leaves": 6, "min_data_in_leaf": 3, "num_threads": 1, "seed": 1, "verbose": -1, **objective}
    return lightgbm.train({**settings, **parameters}, lightgbm.Dataset(X, y, categorical_feature=categories), rounds)


@pytest.mark.parametrize(
    ("n_labels", "parameters"),
    [
        (2, {}),
        (2, {"sigmoid": 3.0}),
        (2, {"boosting": "dart", "drop_rate": 0.5}),
        (2, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
        (2, {"objective": "multiclass", "num_class": 2}),
        (3, {}),
        (3, {"objective": "multiclassova"}),
        (3, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
        (3, {"boosting": "goss"}),
    ],
)
def test_lightgbm(n_labels: int, parameters: dict[str, Any], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        booster = train_lightgbm(n_labels, **parameters)
    imported = import_text(tmp_path, booster.model_to_string())
    comparison = compare_with_library(imported, make_data(n_labels)[0])
    assert comparison.library.startswith("LightGBM ")
    assert comparison.n_rounded == 0
    assert comparison.n_thresholds > 0


def test_lightgbm_takes_tiny_numbers_for_zero(tmp_path: Path) -> None:
    """Thresholds at 0 are where it shows."""
    X, _ = make_data(2)
    booster = train_lightgbm(2, X=np.where(X > 0, X, 0))
    imported = import_text(tmp_path, booster.model_to_string())
    thresholds = imported.model.nodes["threshold"][imported.model.nodes["feature"] >= 0]
    assert (thresholds == TINY).any()
    tiny = np.array([TINY, -TINY, np.nextafter(TINY, 1), np.nextafter(-TINY, -1), 1e-40, -1e-40, 0.0, 1e-300])
    rows = np.repeat(tiny[:, None], 5, axis=1)
    compare_with_library(imported, rows)


@pytest.mark.parametrize("threshold", [-1.0, -TINY, -1e-40, 0.0, 1e-40, TINY, 1.0])
@pytest.mark.parametrize(("kind", "goes_left"), [(6, True), (4, False)])
def test_lightgbm_with_zero_as_missing(threshold: float, kind: int, goes_left: bool, tmp_path: Path) -> None:
    """Imported where 0 takes the side of its neighbours, else refused; never wrong."""
    text = train_lightgbm(2, 1, num_leaves=2, zero_as_missing=True).model_to_string()
    text = re.sub(r"(?m)^threshold=.*$", f"threshold={threshold!r}", text)
    text = re.sub(r"(?m)^decision_type=.*$", f"decision_type={kind}", text)
    rows = [0.0, 1e-40, -1e-40, TINY, -TINY, np.nextafter(TINY, 1), np.nextafter(-TINY, -1), 1e-30, -1e-30, 2, -2]
    if abs(threshold) > TINY and goes_left != (threshold > 0):
        with pytest.raises(ModelError, match="zero_as_missing"):
            import_text(tmp_path, text)
    else:
        compare_with_library(import_text(tmp_path, text), np.repeat(np.array(rows)[:, None], 5, axis=1))


def test_lightgbm_refusals(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'regression' is not one of a classifier"):
        import_text(tmp_path, train_lightgbm(2, objective="regression").model_to_string())
    with pytest.raises(ModelError, match="linear trees cannot be imported"):
        import_text(tmp_path, train_lightgbm(2, linear_tree=True).model_to_string())
    X, y = make_data(3)
    X[:, 0] = y
    text = train_lightgbm(3, X=X, categories=[0], min_data_per_group=1, cat_smooth=1).model_to_string()
    with pytest.raises(ModelError, match="the sets of categories do not fit their words"):
        import_text(tmp_path, re.sub(r"cat_boundaries=0 1", "cat_boundaries=0 2", text))
    with pytest.raises(ModelError, match=r"the sets of categories do not fit their words|num_cat= is missing"):
        import_text(tmp_path, re.sub(r"cat_threshold=\d+", "cat_threshold=1 1 1 1 1 1", text))


@pytest.mark.usefixtures("no_judges")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("end of trees", "", "the line 'end of trees' is missing"),
        ("left_child=-1 -2", "left_child=-1 0", "node 0 is reached in two ways"),
        ("left_child=-1 -2", "left_child=-1 -9", ":8|leads to node 10, but the tree has 5 nodes"),
        ("left_child=-1 -2", "left_child=-1", ":14: left_child has 1 numbers, 2 were expected"),
        ("left_child=-1 -2", "left_child=-1 x", ":14: left_child holds something that is not a number"),
        ("left_child=-1 -2", "left_child=-1 1e30", ":14: left_child holds something that is no whole number"),
        ("left_child=-1 -2\n", "", ":8: left_child= is missing below this line"),
        ("num_leaves=3", "num_leaves=999999999", "announces 999999999 leaves, but holds fewer"),
        ("num_leaves=3", "num_leaves=0", "announces 0 leaves"),
        ("num_leaves=3", "num_leaves=-3", ":9: num_leaves is '-3', a whole number was expected"),
        ("threshold=0.5 1.5", "threshold=0.5 nan", ":12: threshold holds something that is not a number"),
        ("leaf_value=-1 0.25 1", "leaf_value=-1 inf 1", "score of a leaf is not a finite number"),
        ("split_feature=0 0", "split_feature=0 7", "tests feature 7, but the model has 1 features"),
        ("split_feature=0 0", "split_feature=0 -1", "negative number"),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=0", "0 trees per round do not fit"),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=4", "4 trees per round do not fit"),
        ("objective=binary sigmoid:1\n", "", "'none' is not one of a classifier"),
        ("max_feature_idx=0", "max_feature_idx=99999999", "1 to 16777216 are supported"),
        ("is_linear=0", "is_linear=1", ":8: linear trees cannot be imported"),
    ],
)
def test_broken_files_of_lightgbm(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert predictions(import_text(tmp_path, LIGHTGBM).model, np.array([[0.5], [0.6], [2.0]])) == [{"0"}, {"1"}, {"1"}]
    with pytest.raises(ModelError, match=message):
        import_text(tmp_path, LIGHTGBM.replace(old, new))


# CatBoost


def train_catboost(n_labels: int = 3, rounds: int = 5, **parameters: Any) -> Any:
    catboost = pytest.importorskip("catboost", reason="CatBoost is not installed (extra: catboost)")
    X, y = make_data(n_labels)
    settings = {"depth": 3, "thread_count": 1, "random_seed": 1, "verbose": 0, "allow_writing_files": False}
    return catboost.CatBoostClassifier(iterations=rounds, **{**settings, **parameters}).fit(X, y)


def catboost_text(fitted: Any, tmp_path: Path) -> str:
    fitted.save_model(str(tmp_path / "model.json"), format="json")
    return (tmp_path / "model.json").read_text()


@pytest.mark.parametrize(
    ("n_labels", "parameters"),
    [
        (2, {}),
        (2, {"boost_from_average": True}),
        (2, {"nan_mode": "Max"}),
        (3, {}),
        (3, {"loss_function": "MultiClassOneVsAll"}),
    ],
)
def test_catboost(n_labels: int, parameters: dict[str, Any], tmp_path: Path) -> None:
    imported = import_text(tmp_path, catboost_text(train_catboost(n_labels, **parameters), tmp_path))
    comparison = compare_with_library(imported, make_data(n_labels)[0])
    assert comparison.library.startswith("CatBoost ")
    assert comparison.n_rounded == 0
    assert comparison.n_thresholds > 0


def test_catboost_with_a_scale(tmp_path: Path) -> None:
    fitted = train_catboost(2)
    fitted.set_scale_and_bias(0.75, -0.125)
    imported = import_text(tmp_path, catboost_text(fitted, tmp_path))
    compare_with_library(imported, make_data(2)[0])


def test_catboost_refusals(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost", reason="CatBoost is not installed (extra: catboost)")
    with pytest.raises(ModelError, match="only symmetric trees can be imported"):
        import_text(tmp_path, catboost_text(train_catboost(2, grow_policy="Depthwise"), tmp_path))
    X, y = make_data(2)
    settings = {"iterations": 2, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    with pytest.raises(ModelError, match="'RMSE' is not one of a classifier"):
        import_text(tmp_path, catboost_text(catboost.CatBoostRegressor(**settings).fit(X, y), tmp_path))
    rows = [[str(label), *row.tolist()] for label, row in zip(y, X, strict=True)]
    categorical = catboost.CatBoostClassifier(**settings).fit(rows, y, cat_features=[0])
    with pytest.raises(ModelError, match="does not name the categories of the splits"):
        import_text(tmp_path, catboost_text(categorical, tmp_path))


@pytest.mark.usefixtures("no_judges")
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("oblivious_trees.0.leaf_values", [1, 2, 3], "has 3 leaf values, 2 were expected"),
        ("oblivious_trees.0.splits", [CATBOOST["oblivious_trees"][0]["splits"][0]] * 40, "40 levels deep"),
        ("oblivious_trees.0.splits.0.float_feature_index", 3, "tests feature 3, but the model has 1"),
        ("oblivious_trees.0.splits.0.border", "x", "border holds something that is not a number"),
        ("oblivious_trees.0.splits.0.border", float("nan"), "is not a number"),
        ("oblivious_trees.0.splits.0.split_type", "OneHotFeature", "cat_feature_index is missing"),
        ("oblivious_trees.0.splits.0.split_type", "OnlineCtr", "a split of type 'OnlineCtr'"),
        ("oblivious_trees", [], "the model has no trees"),
        ("oblivious_trees", {}, "oblivious_trees is an object, a list was expected"),
        ("model_info.class_params.class_names", ["a", "b", "c"], "3 class names do not fit the loss Logloss"),
        ("model_info.class_params.class_names", ["a", None], "class names do not fit"),
        ("model_info.params.loss_function.type", "RMSE", "'RMSE' is not one of a classifier"),
        ("scale_and_bias", [0, [0]], "is not a scale above 0"),
        ("scale_and_bias", [1, [0, 0]], "is not a scale above 0"),
        ("scale_and_bias", [], "is not a scale above 0"),
        ("features_info.float_features", [], "has no features"),
        ("features_info.float_features.0.flat_feature_index", 2**40, "1 to 16777216 are supported"),
    ],
)
def test_broken_files_of_catboost(path: str, value: Any, message: str, tmp_path: Path) -> None:
    document = json.loads(json.dumps(CATBOOST))
    model = import_text(tmp_path, json.dumps(document)).model
    assert predictions(model, np.array([[9.0, 1.5], [0.0, 1.6]])) == [{"no"}, {"yes"}]
    *parents, last = path.split(".")
    place: Any = document
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    with pytest.raises(ModelError, match=message):
        import_text(tmp_path, json.dumps(document))


# Objects in memory


@pytest.mark.parametrize("train", [train_xgboost, train_lightgbm, train_catboost])
def test_objects(train: Callable[..., Any]) -> None:
    imported = import_object(train(3))
    compare_with_library(imported, make_data(3)[0])


def test_classifiers_keep_their_class_names() -> None:
    pytest.importorskip("sklearn")
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)")
    X, y = make_data(2)
    fitted = lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(X, np.array(["no", "yes"])[y])
    imported = import_object(fitted)
    assert imported.model.labels == ("no", "yes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fitted.predict(X)
    assert [{label} for label in found] == predictions(imported.model, X)
