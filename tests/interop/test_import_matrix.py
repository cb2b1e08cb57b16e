"""Every public parameter of every estimator: imported right, with the library as judge, or refused.

A table lists all parameters of each class with values to try. A parameter that no table has fails, so that one of a new
version of a library cannot pass unseen.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from metasilvae.api import predict
from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.interop.imports import Imported, import_object

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
NAMES = ("a", "b", "c", "d", "e")


@dataclass(frozen=True)
class Refused:
    """A value with which the import is refused, with this message, for these numbers of labels."""

    value: Any
    message: str
    n_labels: tuple[int, ...] = (2, 3)


@dataclass(frozen=True)
class Only:
    """A value that is tried with some numbers of labels only."""

    value: Any
    n_labels: tuple[int, ...]


@dataclass(frozen=True)
class Untried:
    """Why no value is tried."""

    reason: str


def make_data(n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_labels)
    X = np.round(rng.normal(size=(160, 5)), 1)
    y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int) + (X[:, 2] > 0.7) * (n_labels > 2)
    return X, np.where(rng.random(160) < 0.1, rng.integers(n_labels, size=160), y)


def check(fitted: Any, X: np.ndarray) -> Imported:
    """The import predicts as the object does, for the rows of the comparison and for rows of our own."""
    imported = import_object(fitted, data=X)
    assert imported.comparison is not None
    rng = np.random.default_rng(7)
    rows = np.concatenate([X, np.round(rng.normal(scale=2, size=(300, X.shape[1])), 1)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = [str(label) for label in np.asarray(fitted.predict(rows)).reshape(-1).tolist()]
    found = predict(imported.model, rows, imported.model.description.voting)
    labels = imported.model.labels
    for label, number in zip(theirs, found.ids, strict=True):
        assert label in {labels[position] for position in found.sets[number]}
    return imported


TREE: dict[str, list[Any]] = {
    "ccp_alpha": [0.01],
    "class_weight": ["balanced", {0: 0.3, 1: 1.7}],
    "criterion": ["entropy", "log_loss"],
    "max_depth": [3],
    "max_features": [2],
    "max_leaf_nodes": [5],
    "min_impurity_decrease": [0.01],
    "min_samples_leaf": [4],
    "min_samples_split": [10],
    "min_weight_fraction_leaf": [0.05],
    "monotonic_cst": [Only([1, 0, 0, 0, 0], (2,))],
    "random_state": [3],
    "splitter": ["random", "best"],
}
FOREST: dict[str, list[Any]] = {
    **{name: values for name, values in TREE.items() if name != "splitter"},
    "class_weight": ["balanced", "balanced_subsample", {0: 0.3, 1: 1.7}],
    "bootstrap": [True, False],
    "max_samples": [40],
    "n_estimators": [4],
    "n_jobs": [1],
    "oob_score": [True],
    "verbose": [0],
    "warm_start": [True],
}
SKLEARN: dict[str, dict[str, list[Any]]] = {
    "DecisionTreeClassifier": TREE,
    "ExtraTreeClassifier": TREE,
    "RandomForestClassifier": FOREST,
    "ExtraTreesClassifier": FOREST,
    "GradientBoostingClassifier": {
        "ccp_alpha": [0.01],
        "criterion": ["squared_error"],
        "init": ["zero"],
        "learning_rate": [0.5],
        "loss": ["log_loss", Only("exponential", (2,))],
        "max_depth": [2, None],
        "max_features": [2],
        "max_leaf_nodes": [4],
        "min_impurity_decrease": [0.01],
        "min_samples_leaf": [4],
        "min_samples_split": [10],
        "min_weight_fraction_leaf": [0.05],
        "n_estimators": [4],
        "n_iter_no_change": [2],
        "random_state": [3],
        "subsample": [0.5],
        "tol": [0.01],
        "validation_fraction": [0.3],
        "verbose": [0],
        "warm_start": [True],
    },
    "HistGradientBoostingClassifier": {
        "categorical_features": [None, [0]],
        "class_weight": ["balanced"],
        "early_stopping": [True],
        "interaction_cst": ["pairwise"],
        "l2_regularization": [1.0],
        "learning_rate": [0.5],
        "loss": ["log_loss"],
        "max_bins": [16],
        "max_depth": [2],
        "max_features": [0.5],
        "max_iter": [4],
        "max_leaf_nodes": [4],
        "min_samples_leaf": [4],
        "monotonic_cst": [Only([1, 0, 0, 0, 0], (2,))],
        "n_iter_no_change": [2],
        "random_state": [3],
        "scoring": ["accuracy"],
        "tol": [0.01],
        "validation_fraction": [0.3],
        "verbose": [0],
        "warm_start": [True],
    },
}
XGBOOST: dict[str, list[Any]] = {
    "base_score": [0.3],
    "booster": ["dart", Refused("gblinear", "not made of trees")],
    "callbacks": [[]],
    "colsample_bylevel": [0.5],
    "colsample_bynode": [0.5],
    "colsample_bytree": [0.5],
    "device": ["cpu"],
    "early_stopping_rounds": [Untried("needs other rows; test_early_stopping tries it")],
    "enable_categorical": [True],
    "eval_metric": [Only("logloss", (2,)), Only("mlogloss", (3,))],
    "feature_types": [["q"] * 5],
    "feature_weights": [np.array([1.0, 2.0, 1.0, 1.0, 1.0])],
    "gamma": [0.5],
    "grow_policy": ["lossguide"],
    "importance_type": ["weight"],
    "interaction_constraints": ["[[0, 1], [2, 3, 4]]"],
    "learning_rate": [0.7],
    "max_bin": [8],
    "max_cat_threshold": [4],
    "max_cat_to_onehot": [2],
    "max_delta_step": [1.0],
    "max_depth": [2],
    "max_leaves": [3],
    "min_child_weight": [3],
    "missing": [Untried("depends on the splits; test_missing tries it")],
    "monotone_constraints": [(1, 0, 0, 0, 0)],
    "multi_strategy": ["one_output_per_tree", Refused("multi_output_tree", "several scores in a leaf", (3,))],
    "n_estimators": [4],
    "n_jobs": [1],
    "num_parallel_tree": [3],
    "objective": [
        Only("binary:hinge", (2,)),
        Only("multi:softmax", (3,)),
        Only("multi:softprob", (3,)),
        Refused("binary:logitraw", "not one of a classifier", (2,)),
    ],
    "random_state": [3],
    "reg_alpha": [0.5],
    "reg_lambda": [3.0],
    "sampling_method": ["uniform"],
    "scale_pos_weight": [Only(3.0, (2,))],
    "subsample": [0.5],
    "tree_method": ["exact", "approx"],
    "validate_parameters": [True],
    "verbosity": [0],
}
LIGHTGBM: dict[str, list[Any]] = {
    "boosting_type": ["dart", "rf"],
    "class_weight": ["balanced"],
    "colsample_bytree": [0.5],
    "importance_type": ["gain"],
    "learning_rate": [0.5],
    "max_depth": [2],
    "min_child_samples": [4],
    "min_child_weight": [0.1],
    "min_split_gain": [0.1],
    "n_estimators": [4],
    "n_jobs": [1],
    "num_leaves": [4],
    "objective": [Only("binary", (2,)), Only("multiclass", (3,)), Only("multiclassova", (3,))],
    "random_state": [3],
    "reg_alpha": [0.5],
    "reg_lambda": [3.0],
    "subsample": [0.5],
    "subsample_for_bin": [100],
    "subsample_freq": [1],
    # Parameters that LGBMClassifier takes beside those of its signature.
    "linear_tree": [Refused(True, "linear trees cannot be imported")],
    "zero_as_missing": [Untried("depends on the splits; test_imports_boosted.py tries it")],
    "use_missing": [False],
    "boost_from_average": [False],
    "sigmoid": [2.0],
    "monotone_constraints": [[1, 0, 0, 0, 0]],
    "extra_trees": [True],
    "path_smooth": [2.0],
    "is_unbalance": [Only(True, (2,))],
    "pred_early_stop": [Refused(True, "which changes its predictions")],
    "start_iteration_predict": [Refused(2, "which changes its predictions")],
    "num_iteration_predict": [Refused(2, "which changes its predictions")],
}
NEEDS_GPU, NEEDS_CATEGORIES, NEEDS_TEXTS = "needs a graphics card", "for categories only", "for texts only"
IS_ALIAS, WRITES_FILES = "another name of a parameter in this table", "names or writes files of the training run"
CATBOOST: dict[str, list[Any]] = {
    "iterations": [4],
    "learning_rate": [0.5],
    "depth": [2],
    "l2_leaf_reg": [1.0],
    "model_size_reg": [1.0],
    "rsm": [0.5],
    "loss_function": [
        Only("Logloss", (2,)),
        Only("MultiClass", (3,)),
        Only("MultiClassOneVsAll", (3,)),
        Refused("CrossEntropy", "not one of a classifier", (2,)),
    ],
    "border_count": [16],
    "feature_border_type": ["Uniform"],
    "per_float_feature_quantization": [["0:border_count=64"]],
    "input_borders": [Untried(WRITES_FILES)],
    "output_borders": [Untried(WRITES_FILES)],
    "fold_permutation_block": [2],
    "od_pval": [Untried("needs other rows; test_early_stopping tries it")],
    "od_wait": [Untried("needs other rows; test_early_stopping tries it")],
    "od_type": [Untried("needs other rows; test_early_stopping tries it")],
    "nan_mode": ["Max", "Forbidden"],
    "counter_calc_method": [Untried(NEEDS_CATEGORIES)],
    "leaf_estimation_iterations": [3],
    "leaf_estimation_method": ["Gradient"],
    "thread_count": [1],
    "random_seed": [3],
    "use_best_model": [Untried("needs other rows; test_early_stopping tries it")],
    "best_model_min_trees": [Untried("needs other rows; test_early_stopping tries it")],
    "verbose": [False],
    "silent": [Untried(IS_ALIAS)],
    "logging_level": [Untried("excludes verbose, which is set")],
    "metric_period": [2],
    "ctr_leaf_count_limit": [Untried(NEEDS_CATEGORIES)],
    "store_all_simple_ctr": [Untried(NEEDS_CATEGORIES)],
    "max_ctr_complexity": [Untried(NEEDS_CATEGORIES)],
    "has_time": [True],
    "allow_const_label": [True],
    "target_border": [Refused(0.5, "0 class names do not fit", (2,))],
    "classes_count": [Refused(3, "0 class names do not fit", (3,))],
    "class_weights": [Only([1.0, 3.0], (2,)), Only([1.0, 3.0, 0.5], (3,))],
    "auto_class_weights": ["Balanced"],
    "class_names": [Only([0, 1], (2,)), Only([1, 0, 2], (3,))],
    "one_hot_max_size": [Untried("test_import_categories.py tries it")],
    "random_strength": [0.0],
    "random_score_type": ["Gumbel"],
    "name": ["x"],
    "ignored_features": [[4], [0]],
    "train_dir": [Untried(WRITES_FILES)],
    "custom_loss": [["Accuracy"]],
    "custom_metric": [["Accuracy"]],
    "eval_metric": ["Accuracy"],
    "bagging_temperature": [Untried("needs bootstrap_type Bayesian, which is tried")],
    "save_snapshot": [Untried(WRITES_FILES)],
    "snapshot_file": [Untried(WRITES_FILES)],
    "snapshot_interval": [Untried(WRITES_FILES)],
    "fold_len_multiplier": [1.5],
    "used_ram_limit": ["1gb"],
    "gpu_ram_part": [Untried(NEEDS_GPU)],
    "pinned_memory_size": [Untried(NEEDS_GPU)],
    "allow_writing_files": [False],
    "final_ctr_computation_mode": [Untried(NEEDS_CATEGORIES)],
    "approx_on_full_history": [False],
    "boosting_type": ["Ordered", "Plain"],
    "simple_ctr": [Untried(NEEDS_CATEGORIES)],
    "combinations_ctr": [Untried(NEEDS_CATEGORIES)],
    "per_feature_ctr": [Untried(NEEDS_CATEGORIES)],
    "ctr_description": [Untried(NEEDS_CATEGORIES)],
    "ctr_target_border_count": [Untried(NEEDS_CATEGORIES)],
    "task_type": ["CPU"],
    "device_config": [Untried(NEEDS_GPU)],
    "devices": [Untried(NEEDS_GPU)],
    "bootstrap_type": ["Bayesian", "No"],
    "subsample": [0.5],
    "mvs_reg": [0.5],
    "sampling_unit": ["Object"],
    "sampling_frequency": ["PerTreeLevel"],
    "dev_score_calc_obj_block_size": [1000],
    "dev_efb_max_buckets": [16],
    "sparse_features_conflict_fraction": [0.1],
    "max_depth": [Untried(IS_ALIAS)],
    "n_estimators": [Untried(IS_ALIAS)],
    "num_boost_round": [Untried(IS_ALIAS)],
    "num_trees": [Untried(IS_ALIAS)],
    "colsample_bylevel": [Untried(IS_ALIAS)],
    "random_state": [Untried(IS_ALIAS)],
    "reg_lambda": [Untried(IS_ALIAS)],
    "objective": [Untried(IS_ALIAS)],
    "eta": [Untried(IS_ALIAS)],
    "max_bin": [Untried(IS_ALIAS)],
    "scale_pos_weight": [Only(3.0, (2,))],
    "gpu_cat_features_storage": [Untried(NEEDS_GPU)],
    "data_partition": [Untried(NEEDS_GPU)],
    "metadata": [{"made by": "test"}],
    "early_stopping_rounds": [Untried("needs other rows; test_early_stopping tries it")],
    "cat_features": [Untried("test_categories_of_catboost tries it")],
    "grow_policy": [Refused("Depthwise", "only symmetric trees"), Refused("Lossguide", "only symmetric trees")],
    "min_data_in_leaf": [Untried("needs another grow_policy, which is refused")],
    "min_child_samples": [Untried(IS_ALIAS)],
    "max_leaves": [Untried("needs another grow_policy, which is refused")],
    "num_leaves": [Untried(IS_ALIAS)],
    "score_function": ["L2"],
    "leaf_estimation_backtracking": ["No"],
    "ctr_history_unit": [Untried(NEEDS_CATEGORIES)],
    "monotone_constraints": [Only([1, 0, 0, 0, 0], (2,))],
    "feature_weights": [[1.0, 2.0, 1.0, 1.0, 1.0]],
    "penalties_coefficient": [2.0],
    "first_feature_use_penalties": [[1.0, 0.0, 0.0, 0.0, 0.0]],
    "per_object_feature_penalties": [[0.1, 0.0, 0.0, 0.0, 0.0]],
    "model_shrink_rate": [0.1],
    "model_shrink_mode": ["Constant"],
    "langevin": [True],
    "diffusion_temperature": [Untried("needs langevin, which is tried")],
    "posterior_sampling": [Untried("needs langevin and many rows")],
    "boost_from_average": [Untried("for regressors only")],
    "text_features": [Untried(NEEDS_TEXTS)],
    "tokenizers": [Untried(NEEDS_TEXTS)],
    "dictionaries": [Untried(NEEDS_TEXTS)],
    "feature_calcers": [Untried(NEEDS_TEXTS)],
    "text_processing": [Untried(NEEDS_TEXTS)],
    "embedding_features": [Untried("for embeddings only, which are refused")],
    "callback": [Untried(NEEDS_TEXTS)],
    "eval_fraction": [0.3],
    "fixed_binary_splits": [Untried(NEEDS_GPU)],
}
TABLES: dict[str, dict[str, list[Any]]] = {
    **SKLEARN,
    "XGBClassifier": XGBOOST,
    "XGBRFClassifier": {**XGBOOST, "callbacks": [Untried("not for forests")], "tree_method": ["approx", "hist"]},
    "LGBMClassifier": LIGHTGBM,
    "CatBoostClassifier": CATBOOST,
}
ALWAYS: dict[str, dict[str, Any]] = {
    "DecisionTreeClassifier": {"random_state": 0},
    "ExtraTreeClassifier": {"random_state": 0},
    "RandomForestClassifier": {"n_estimators": 5, "random_state": 0, "bootstrap": True},
    "ExtraTreesClassifier": {"n_estimators": 5, "random_state": 0, "bootstrap": True},
    "GradientBoostingClassifier": {"n_estimators": 4, "random_state": 0},
    "HistGradientBoostingClassifier": {"max_iter": 4, "min_samples_leaf": 5, "random_state": 0},
    "XGBClassifier": {"n_estimators": 4, "n_jobs": 1, "verbosity": 0, "max_depth": 4},
    "XGBRFClassifier": {"n_estimators": 4, "n_jobs": 1, "verbosity": 0, "max_depth": 4},
    "LGBMClassifier": {"n_estimators": 5, "n_jobs": 1, "verbose": -1, "min_child_samples": 5},
    "CatBoostClassifier": {
        "iterations": 4, "depth": 3, "verbose": False, "allow_writing_files": False, "thread_count": 1,
    },
}  # fmt: skip
# What a value needs beside it.
TOGETHER: dict[tuple[str, str], dict[str, Any]] = {
    ("LGBMClassifier", "boosting_type"): {"subsample": 0.5, "subsample_freq": 1},
    ("LGBMClassifier", "pred_early_stop"): {"pred_early_stop_freq": 1, "pred_early_stop_margin": 0.1},
    ("XGBClassifier", "booster"): {"verbosity": 0},
    ("XGBClassifier", "max_leaves"): {"grow_policy": "lossguide", "tree_method": "hist"},
    ("XGBClassifier", "multi_strategy"): {"tree_method": "hist"},
    ("CatBoostClassifier", "boosting_type"): {"iterations": 3},
    ("CatBoostClassifier", "subsample"): {"bootstrap_type": "Bernoulli"},
    ("CatBoostClassifier", "mvs_reg"): {"bootstrap_type": "MVS"},
    ("CatBoostClassifier", "feature_weights"): {"score_function": "Cosine"},
}


def find_class(name: str) -> Any:
    if name.startswith("XGB"):
        return getattr(pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)"), name)
    if name.startswith("LGBM"):
        return getattr(pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)"), name)
    if name.startswith("Cat"):
        return getattr(pytest.importorskip("catboost", reason="CatBoost is not installed (extra: catboost)"), name)
    from sklearn import ensemble, tree

    return getattr(tree if "TreeClassifier" in name else ensemble, name)


def is_known(name: str, parameter: str) -> bool:
    """Older versions of a library do not have every parameter; they are taken as `**kwargs` or not at all."""
    names = set(inspect.signature(find_class(name).__init__).parameters)
    return parameter in names or bool(names & {"kwargs"})


CASES = [
    pytest.param(name, parameter, case, n_labels, id=f"{name}-{parameter}-{number}-{n_labels}")
    for name, table in TABLES.items()
    for parameter, cases in table.items()
    for number, case in enumerate(cases)
    if not isinstance(case, Untried)
    for n_labels in (getattr(case, "n_labels", (2, 3)))
]


@pytest.mark.parametrize("name", TABLES)
def test_every_parameter_is_in_the_table(name: str) -> None:
    parameters = set(find_class(name)().get_params()) if not name.startswith("Cat") else set(
        inspect.signature(find_class(name).__init__).parameters
    ) - {"self"}  # fmt: skip
    assert parameters - set(TABLES[name]) == set()


@pytest.mark.parametrize(("name", "parameter", "case", "n_labels"), CASES)
def test_a_parameter(name: str, parameter: str, case: Any, n_labels: int) -> None:
    if not is_known(name, parameter):
        pytest.skip(f"this version has no {parameter}")
    X, y = make_data(n_labels)
    value = case.value if isinstance(case, Refused | Only) else case
    settings = {**ALWAYS[name], **TOGETHER.get((name, parameter), {}), parameter: value}
    if name.startswith("XGBRF"):
        settings.pop("learning_rate", None)
    if isinstance(value, dict) and 2 not in value and parameter == "class_weight" and n_labels == 3:
        settings[parameter] = {**value, 2: 0.9}
    if parameter == "categorical_features" and value == [0]:
        X[:, 0] = y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = find_class(name)(**settings).fit(X, y)
    if isinstance(case, Refused):
        with pytest.raises(ModelError, match=case.message):
            import_object(fitted)
    else:
        check(fitted, X)


@pytest.mark.parametrize("name", TABLES)
def test_names_of_columns_come_along(name: str) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = make_data(3)
    fitted = find_class(name)(**ALWAYS[name]).fit(pandas.DataFrame(X, columns=list(NAMES)), y)
    imported = check(fitted, X)
    assert imported.model.description.feature_names == NAMES
    assert import_object(find_class(name)(**ALWAYS[name]).fit(X, y)).model.description.feature_names is None


@pytest.mark.parametrize("name", TABLES)
def test_the_voting_is_part_of_the_model(name: str) -> None:
    X, y = make_data(3)
    imported = import_object(find_class(name)(**ALWAYS[name]).fit(X, y))
    expected = (
        None if "TreeClassifier" in name else "average" if "TreesC" in name or "ForestC" in name else "softargmax"
    )
    assert imported.model.description.voting == expected
    assert imported.model.description.provenance == {"imported_from": imported.origin}


# XGBoost: numbers that stand for missing values


@pytest.mark.parametrize("name", ["XGBClassifier", "XGBRFClassifier"])
def test_missing(name: str) -> None:
    """Imported where the number takes the side of its neighbours, else refused; seldom both would be suspicious."""
    X, y = make_data(2)
    outcomes = []
    for missing in (0.0, 0.1, -0.3, 1.0, 9.0, -9.0, float(np.float32(2.5)), 0.3):
        for depth in (1, 2):
            settings = {**ALWAYS[name], "missing": missing, "max_depth": depth, "n_estimators": 1}
            fitted = find_class(name)(**settings).fit(X, y)
            try:
                check(fitted, X)
            except ModelError as error:
                assert "for a missing value" in str(error)  # noqa: PT017
                outcomes.append(False)
            else:
                outcomes.append(True)
    assert set(outcomes) == {True, False}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("place", [-2, -1, 0, 1, 2])
def test_missing_beside_a_threshold(place: int, side: int) -> None:
    """A number next to a threshold can change its side by a move of the threshold, and no other one can."""
    X, y = make_data(2)
    fitted = find_class("XGBClassifier")(n_estimators=1, max_depth=1, n_jobs=1).fit(X, y)
    booster = fitted.get_booster()
    import json

    document = json.loads(booster.save_raw("json"))
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["default_left"][0] = side
    booster.load_model(bytearray(json.dumps(document).encode()))
    missing = np.float32(tree["split_conditions"][0])
    for _ in range(abs(place)):
        missing = np.nextafter(missing, np.float32(np.inf * place))
    fitted.missing = float(missing)
    goes_left = place < 0
    if goes_left != bool(side) and place not in (-1, 0):
        with pytest.raises(ModelError, match="for a missing value"):
            import_object(fitted)
    else:
        imported = import_object(fitted)
        rows = np.repeat(np.array([missing, np.nextafter(missing, 9), np.nextafter(missing, -9)])[:, None], 5, axis=1)
        rows = np.concatenate([rows, rows.astype(np.float64) + 1e-9])
        found = predict(imported.model, rows.astype(np.float64))
        theirs = fitted.predict(rows).tolist()
        assert [found.sets[number] for number in found.ids] == [(label,) for label in theirs]


@pytest.mark.parametrize("missing", [np.inf, -np.inf, 1e300])
def test_an_infinite_missing_value_is_refused(missing: float) -> None:
    X, y = make_data(2)
    fitted = find_class("XGBClassifier")(n_estimators=1, n_jobs=1).fit(X, y)
    fitted.missing = missing
    with pytest.raises(ModelError, match="is no finite float32 number"):
        import_object(fitted)


# Early stopping


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("name", ["XGBClassifier", "LGBMClassifier", "CatBoostClassifier"])
def test_early_stopping(name: str, n_labels: int) -> None:
    X, y = make_data(n_labels)
    new = {"eval_set": [(X[90:], y[90:])]}
    settings: dict[str, Any] = {**ALWAYS[name], "learning_rate": 1.0}
    if name.startswith("XGB"):
        fitted = find_class(name)(**{**settings, "n_estimators": 60, "early_stopping_rounds": 3})
        fitted.fit(X[:90], y[:90], **new, verbose=False)
        assert fitted.best_iteration + 1 < fitted.get_booster().num_boosted_rounds()
        with pytest.warns(MetasilvaeWarning, match="early stopping found the best round"):
            check(fitted, X)
        # Booster.predict uses all rounds, and so does its import.
        booster = import_object(fitted.get_booster())
        assert booster.model.n_trees > import_quietly(fitted).model.n_trees
    elif name.startswith("LGBM"):
        import lightgbm

        fitted = find_class(name)(**{**settings, "n_estimators": 60})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted.fit(X[:90], y[:90], **new, callbacks=[lightgbm.early_stopping(3, verbose=False)])
        assert fitted.best_iteration_ < 60
        check(fitted, X)
        import_object(fitted.booster_)
    else:
        fitted = find_class(name)(
            **{
                **settings,
                "iterations": 80,
                "early_stopping_rounds": 5,
                "use_best_model": True,
                "best_model_min_trees": 2,
            }
        )
        fitted.fit(X[:90], y[:90], **new)
        assert fitted.tree_count_ < 80
        check(fitted, X)


def import_quietly(fitted: Any) -> Imported:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_object(fitted)


# CatBoost: what is set after training


def test_categories_of_catboost() -> None:
    X, y = make_data(2)
    table = X.astype(object)
    table[:, 0] = [f"k{label}" for label in y]
    fitted = find_class("CatBoostClassifier")(**ALWAYS["CatBoostClassifier"], cat_features=[0]).fit(table, y)
    # Categories of more values than one_hot_max_size become statistics.
    with pytest.raises(ModelError, match=r"does not name the categories of the splits|only numbers and one-hot splits"):
        import_object(fitted)


def test_catboost_with_another_threshold_of_probability() -> None:
    X, y = make_data(2)
    fitted = find_class("CatBoostClassifier")(**ALWAYS["CatBoostClassifier"]).fit(X, y)
    check(fitted, X)
    fitted.set_probability_threshold(0.3)
    with pytest.raises(ModelError, match=r"from a probability of 0\.3 on"):
        import_object(fitted)


def test_catboost_with_scale_and_bias() -> None:
    X, y = make_data(2)
    fitted = find_class("CatBoostClassifier")(**ALWAYS["CatBoostClassifier"]).fit(X, y)
    fitted.set_scale_and_bias(2.0, 0.25)
    check(fitted, X)


# What no version knows


@pytest.mark.parametrize("name", [name for name in TABLES if not name.startswith("Cat")])
def test_an_unknown_attribute_is_refused(name: str) -> None:
    X, y = make_data(2)
    fitted = find_class(name)(**ALWAYS[name]).fit(X, y)
    fitted.new_thing_ = None
    import_object(fitted)
    fitted.new_thing_ = [1]
    with pytest.raises(ModelError, match="'new_thing_', which this version of metasilvae does not know"):
        import_object(fitted)


@pytest.mark.parametrize("name", SKLEARN)
def test_predictions_that_are_not_those_of_the_class_are_refused(name: str) -> None:
    X, y = make_data(2)
    fitted = find_class(name)(**ALWAYS[name]).fit(X, y)
    fitted.predict = lambda X: np.zeros(len(X), dtype=int)
    with pytest.raises(ModelError, match="'predict', which this version"):
        import_object(fitted)
    kind = type(name, (find_class(name),), {})
    with pytest.raises(ModelError, match="cannot be imported"):
        import_object(kind(**ALWAYS[name]).fit(X, y))


# Kinds of classes


@pytest.mark.parametrize(
    ("classes", "labels"),
    [((False, True), ("False", "True")), (("no", "yes"), ("no", "yes")), ((7, 3), ("3", "7"))],
    ids=["bool", "text", "number"],
)
@pytest.mark.parametrize("name", [name for name in TABLES if not name.startswith("XGB")])
def test_classes_of_any_kind(name: str, classes: tuple[Any, Any], labels: tuple[str, str]) -> None:
    X, y = make_data(2)
    fitted = find_class(name)(**ALWAYS[name]).fit(X, np.array(classes)[y])
    assert check(fitted, X).model.labels == labels


@pytest.mark.parametrize("name", ["XGBClassifier", "LGBMClassifier", "HistGradientBoostingClassifier"])
def test_one_class_is_refused(name: str) -> None:
    X, _ = make_data(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = find_class(name)(**ALWAYS[name]).fit(X, np.zeros(len(X), dtype=int))
    with pytest.raises(ModelError, match=r"2 classes, but 1 are named|1 scores for 1 labels"):
        import_object(fitted)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_zero_as_missing(n_labels: int) -> None:
    """Imported where 0 takes the side of its neighbours in all splits, else refused."""
    X, y = make_data(n_labels)
    outcomes = set()
    for shift in (0.0, 3.0, -3.0):
        for leaves in (2, 8):
            settings = {**ALWAYS["LGBMClassifier"], "num_leaves": leaves, "zero_as_missing": True}
            rows = X + shift * (X != 0)
            fitted = find_class("LGBMClassifier")(**settings).fit(rows, y)
            try:
                check(fitted, rows)
            except ModelError as error:
                assert "zero_as_missing" in str(error)  # noqa: PT017
                outcomes.add(False)
            else:
                outcomes.add(True)
    assert outcomes == {True, False}


@pytest.mark.parametrize("base_score", [0.1, [0.2, -1.5, 3.0]])
def test_base_scores_of_xgboost(base_score: Any) -> None:
    X, y = make_data(3)
    fitted = find_class("XGBClassifier")(**ALWAYS["XGBClassifier"], base_score=base_score)
    try:
        fitted.fit(X, y)
    except Exception:
        pytest.skip("this version takes no list of base scores")
    imported = check(fitted, X)
    first = imported.model.leaf_values[0]
    np.testing.assert_array_equal(first, np.broadcast_to(np.float32(base_score), 3).astype(np.float64))
