"""Importances of features against the definition and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import leaf_of, make_model, models, nest, points

from metasilvae.analysis.importance import add_by_column, find_importances
from metasilvae.encoding import CATEGORY, Column, Encoding
from metasilvae.interop.imports import import_object
from metasilvae.model import LeafKind, Model


def gini(counts: np.ndarray) -> float:
    return float(counts.sum() - (counts**2).sum() / counts.sum()) if counts.sum() else 0.0


def define(model: Model) -> np.ndarray:
    """Decreases of the Gini impurity, tree by tree, of nested trees."""
    found = np.zeros(model.n_features)
    for position in range(model.n_trees):
        of_tree = np.zeros(model.n_features)

        def visit(part: object, of_tree: np.ndarray = of_tree) -> np.ndarray:
            if isinstance(part, list):
                return np.array(part, dtype=np.float64)
            feature, _, left, right = part  # type: ignore[misc]
            below = visit(left), visit(right)
            of_tree[feature] += gini(below[0] + below[1]) - gini(below[0]) - gini(below[1])
            return np.asarray(below[0] + below[1])

        visit(nest(model, position))
        if of_tree.sum() > 1e-12:
            found += of_tree / of_tree.sum()
    return found / found.sum() if found.sum() else found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_counts(data: st.DataObject) -> None:
    leaf = st.lists(st.integers(0, 4), min_size=2, max_size=2).filter(any)
    split = st.tuples(st.integers(0, 2), st.integers(0, 3), leaf, leaf)
    tree = st.one_of(leaf, split, st.tuples(st.integers(0, 2), st.integers(0, 3), split, leaf))
    model = make_model(data.draw(st.lists(tree, min_size=1, max_size=3)), 3)
    assert find_importances(model) == pytest.approx(define(model), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_model(data: st.DataObject) -> None:
    model = data.draw(models(max_trees=3, max_splits=5))
    X = np.array(data.draw(st.lists(points(model), min_size=1, max_size=5)), dtype=np.float64)
    with np.errstate(over="ignore"):
        found = find_importances(model, X)
    assert found.shape == (model.n_features,)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1) or found.sum() == 0
    untested = np.setdiff1d(np.arange(model.n_features), model.tested_features)
    assert (found[untested] == 0).all()


def test_scores_by_hand() -> None:
    """The first tree gives half of the rows 2 and the others 0; the second adds 1 to one row of four."""
    trees = [(0, 0.5, [0.0, 2.0], [0.0, 0.0]), (1, 0.5, [0.0, 0.0], [0.0, 1.0])]
    model = make_model(trees, 2, kind=LeafKind.SCORES)
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert [leaf_of(model, row, 1) for row in X.tolist()] == [2, 3, 2, 2]
    # Sums of squared deviations: of 2, 2, 0, 0 they are 4, of 0, 1, 0, 0 they are 3/4.
    assert find_importances(model, X) == pytest.approx([4 / 4.75, 0.75 / 4.75])


def test_scikit_learn_agrees() -> None:
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)).astype(np.float32).astype(np.float64)
    y = (X[:, 0] + 0.3 * X[:, 1] + 0.2 * rng.normal(size=120) > 0).astype(int)
    for estimator in (DecisionTreeClassifier(max_depth=4, random_state=1), RandomForestClassifier(5, random_state=1)):
        estimator.fit(X, y)
        found = find_importances(import_object(estimator).model)
        assert found == pytest.approx(estimator.feature_importances_, abs=1e-9)


def test_columns_of_a_table() -> None:
    encoding = Encoding((Column("a"), Column("b", CATEGORY, ("x", "y", "z")), Column("c")))
    assert add_by_column(np.array([0.1, 0.2, 0.3, 0.1, 0.3]), encoding) == pytest.approx([0.1, 0.6, 0.3])
    assert add_by_column(np.array([0.5, 0.5]), None).tolist() == [0.5, 0.5]
