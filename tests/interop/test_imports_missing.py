"""Models of other libraries on rows with missing values: the import agrees with the library."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.formats.silva_models import format_model, parse_model, same_model
from metasilvae.interop.imports import ImportOptions, compare_with_library
from metasilvae.interop.imports.builder import Nodes, build_model
from metasilvae.interop.imports.catboost import import_catboost
from metasilvae.interop.imports.imported import Imported
from metasilvae.interop.imports.lightgbm import import_lightgbm
from metasilvae.interop.imports.scikit_learn import import_estimator
from metasilvae.interop.imports.xgboost import import_xgboost
from metasilvae.interop.imports.xgboost_dumps import read_xgboost_dump
from metasilvae.model import MISSING_RIGHT, LeafKind
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import predict
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import find_witnesses, verify

N_FEATURES = 4


def table(n_rows: int, seed: int, is_missing: bool, n_labels: int = 2) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows whose labels depend on values and on which values are missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    X[rng.random(n_rows) < 0.2, 2] = 0.0
    y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0.5)
    if is_missing:
        missing = rng.random(X.shape) < 0.25
        y = np.where(missing[:, 2], y + 1, y)
        X[missing] = math.nan
    return X, y % n_labels


def rows_with_missing(n_rows: int = 1000) -> NDArray[np.float64]:
    rng = np.random.default_rng(99)
    X = rng.normal(size=(n_rows, N_FEATURES)).astype(np.float32).astype(np.float64)
    X[rng.random(X.shape) < 0.1] = 0.0
    X[rng.random(X.shape) < rng.random((n_rows, 1))] = math.nan
    return X


def fit_xgboost(**parameters: Any) -> Callable[[Any, Any], Imported]:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    model = xgboost.XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1, **parameters)
    return lambda X, y: import_xgboost(model.fit(X, y), ImportOptions(), "xgboost")


def fit_lightgbm(**parameters: Any) -> Callable[[Any, Any], Imported]:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)")
    settings = {"n_estimators": 8, "num_leaves": 9, "min_child_samples": 3, "n_jobs": 1, "verbose": -1}
    model = lightgbm.LGBMClassifier(**settings, **parameters)
    return lambda X, y: import_lightgbm(model.fit(X, y), ImportOptions(), "lightgbm")


def fit_catboost(**parameters: Any) -> Callable[[Any, Any], Imported]:
    catboost = pytest.importorskip("catboost", reason="CatBoost is not installed (extra: catboost)")
    settings = {"iterations": 8, "depth": 4, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    model = catboost.CatBoostClassifier(**settings, **parameters)
    return lambda X, y: import_catboost(model.fit(X, y), ImportOptions(), "catboost")


def fit_sklearn(module: str, name: str, **parameters: Any) -> Callable[[Any, Any], Imported]:
    library = pytest.importorskip(module, reason="scikit-learn is not installed (extra: sklearn)")
    model = getattr(library, name)(random_state=0, **parameters)
    return lambda X, y: import_estimator(model.fit(X, y))


FITS: dict[str, Callable[[], Callable[[Any, Any], Imported]]] = {
    "xgboost": fit_xgboost,
    "xgboost hist": lambda: fit_xgboost(tree_method="hist"),
    "xgboost dart": lambda: fit_xgboost(booster="dart", rate_drop=0.3),
    "lightgbm": fit_lightgbm,
    "lightgbm without missing values": lambda: fit_lightgbm(use_missing=False),
    "lightgbm forest": lambda: fit_lightgbm(boosting_type="rf", subsample=0.7, subsample_freq=1),
    "catboost min": lambda: fit_catboost(nan_mode="Min"),
    "catboost max": lambda: fit_catboost(nan_mode="Max"),
    "tree": lambda: fit_sklearn("sklearn.tree", "DecisionTreeClassifier", max_depth=6),
    "forest": lambda: fit_sklearn("sklearn.ensemble", "RandomForestClassifier", n_estimators=7, max_depth=6),
    "histogram boosting": lambda: fit_sklearn("sklearn.ensemble", "HistGradientBoostingClassifier", max_iter=8),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "whole"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_rows_with_missing_values_agree_with_the_library(name: str, is_missing: bool, n_labels: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imported = FITS[name]()(*table(400, 1, is_missing, n_labels))
        assert imported.model.has_directions
        assert imported.model.takes_missing.all()
        found = compare_with_library(imported, rows_with_missing())
    assert found is not None
    assert found.n_data == 1000
    assert found.n_random == 2000
    assert same_model(parse_model(format_model(imported.model).encode()), imported.model)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "tree", "histogram boosting"])
def test_verdicts_on_rows_with_missing_values(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FITS[name]()(*table(400, 1, True)).model
    X = rows_with_missing(60)
    dataset = Dataset(X, np.zeros(len(X), dtype=np.int32), (model.labels[0],))
    query = make_query(model, dataset, Ball(0.2))
    outcome = verify(query, jobs=1)
    assert len(list(find_witnesses(query, outcome))) > 0


def test_a_model_that_takes_no_missing_values_has_no_directions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fit_sklearn("sklearn.ensemble", "GradientBoostingClassifier", n_estimators=3)
        assert not fit(*table(200, 1, False)).model.has_directions


@pytest.mark.parametrize("form", ["text", "json"])
def test_dumps_of_xgboost(form: str) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    X, y = table(400, 1, True)
    fitted = xgboost.XGBClassifier(n_estimators=5, max_depth=4, n_jobs=1, base_score=0.5).fit(X, y)
    dump = fitted.get_booster().get_dump(dump_format=form)
    content = ("[" + ",".join(dump) + "]" if form == "json" else "".join(dump)).encode()
    options = ImportOptions(labels=("0", "1"), base_score=(0.5,), n_features=N_FEATURES)
    imported = read_xgboost_dump(content, "dump", options)
    rows = rows_with_missing()
    table_ = predict(imported.model, rows, "softargmax")
    ours = [table_.sets[number] for number in table_.ids]
    assert all(label in found for label, found in zip(fitted.predict(rows).tolist(), ours, strict=True))


def test_splits_between_values_and_missing_values() -> None:
    """Infinite thresholds of libraries: all values on one side, missing values on the other."""
    values = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    places = np.array([1, -1, -1]), np.array([2, -1, -1])
    for threshold, is_left in ((np.inf, False), (-np.inf, True)):
        nodes = Nodes(
            np.array([0, -1, -1]), np.array([threshold, 0, 0]), *places, values, np.array([is_left, False, False])
        )
        model = build_model([nodes], LeafKind.SCORES, 1, ["a", "b"], False, "m")
        assert model.nodes["leaf"][0] == MISSING_RIGHT
        found = predict(model, np.array([[1e308], [-1e308], [math.nan]]))
        predictions = [found.sets[number] for number in found.ids]
        assert predictions == ([(0,), (0,), (1,)] if threshold > 0 else [(1,), (1,), (0,)])
    same = Nodes(np.array([0, -1, -1]), np.array([np.inf, 0, 0]), *places, values, np.array([True, False, False]))
    assert build_model([same], LeafKind.SCORES, 1, ["a", "b"], False, "m").n_leaves == 1
