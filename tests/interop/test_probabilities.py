"""Probabilities of imported models against those of their libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn.ensemble import (  # noqa: E402
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.metrics import roc_auc_score  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402

import metasilvae  # noqa: E402

RNG = np.random.default_rng(5)
X = RNG.normal(size=(150, 3)).astype(np.float32).astype(np.float64)


def labels(n_classes: int) -> np.ndarray:
    return np.argsort(np.argsort(X[:, 0] + 0.5 * RNG.normal(size=len(X)))) * n_classes // len(X)


def estimators() -> list[Any]:
    found: list[Any] = [
        DecisionTreeClassifier(max_depth=3, random_state=0),
        DecisionTreeClassifier(max_depth=3, class_weight={0: 0.3}, random_state=0),
        RandomForestClassifier(5, random_state=0),
        ExtraTreesClassifier(5, class_weight="balanced", max_depth=4, random_state=0),
        GradientBoostingClassifier(n_estimators=5, random_state=0),
        HistGradientBoostingClassifier(max_iter=5, random_state=0),
    ]
    for package, name, words in (
        ("xgboost", "XGBClassifier", {"n_estimators": 5}),
        ("lightgbm", "LGBMClassifier", {"n_estimators": 5, "verbose": -1}),
        ("catboost", "CatBoostClassifier", {"iterations": 5, "verbose": False, "allow_writing_files": False}),
    ):
        try:
            found.append(getattr(__import__(package), name)(**words))
        except ImportError:
            continue
    return found


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("estimator", estimators(), ids=lambda estimator: type(estimator).__name__)
def test_they_are_those_of_the_library(estimator: Any, n_classes: int) -> None:
    y = labels(n_classes)
    estimator.fit(X, y)
    expected = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    model = metasilvae.import_object(estimator).model
    found = metasilvae.predict_proba(model, X)
    assert found == pytest.approx(expected, abs=1e-5)
    (evaluation,) = metasilvae.evaluate(model, metasilvae.make_dataset(X, y))
    rounded = expected.round(5)
    for place, each in enumerate(evaluation.per_class.classes):
        score = roc_auc_score(y == int(each.label), rounded[:, place])
        assert float(each.roc_auc or 0) == pytest.approx(score, abs=2e-3)
