"""Figures of a model against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import classify as classify_slowly
from support.oracles import make_model, models, points

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.metrics import classify, confusion, evaluate


def data_of(model: Model, X: list[list[float]], labels: list[str]) -> Dataset:
    names = tuple(dict.fromkeys(labels))
    y = np.array([names.index(label) for label in labels], dtype=np.int32)
    return Dataset(np.array(X, dtype=np.float64).reshape(len(X), model.n_features), y, names, source="data.csv")


@settings(max_examples=200)
@given(st.data())
def test_accuracy_counts_sole_correct_predictions(data: st.DataObject) -> None:
    tree = data.draw(models(max_trees=1))
    X = data.draw(st.lists(points(tree), min_size=1, max_size=6))
    labels = data.draw(st.lists(st.sampled_from(tree.labels), min_size=len(X), max_size=len(X)))
    dataset = data_of(tree, X, labels)
    n_correct = sum(classify_slowly(tree, x) == (tree.labels.index(label),) for x, label in zip(X, labels, strict=True))
    alone, *perturbed = [*evaluate(tree, dataset), *evaluate(tree, dataset, [Ball(0), Ball(1)])]
    assert [each.n_correct for each in (alone, *perturbed)] == [n_correct] * 3
    assert alone.accuracy == n_correct / len(X)
    assert alone.counts is alone.stability is alone.robust_accuracy is alone.stability_efficiency is None
    assert perturbed[0].stability == 1.0
    assert perturbed[0].robust_accuracy == alone.accuracy
    assert perturbed[1].stability_efficiency == perturbed[1].stability / tree.n_leaves
    table = confusion(tree, dataset, classify(tree, dataset))
    assert sum(table.values()) == len(X)
    assert sum(rows for (label, prediction), rows in table.items() if label == prediction) == n_correct


def test_efficiency() -> None:
    tree = make_model([(0, 0.5, [1, 0], [0, 1])], 1)
    (found,) = evaluate(tree, data_of(tree, [[0.0], [1.0]], ["a", "a"]), [Ball(0.6)])
    assert (found.accuracy, found.stability, found.robust_accuracy) == (0.5, 0.0, 0.0)
    assert (found.accuracy_efficiency, found.stability_efficiency) == (0.25, 0.0)


def test_confusion_names_ties_and_unknown_labels() -> None:
    tree = make_model([(0, 0.5, [1, 1], [0, 1])], 1)
    dataset = data_of(tree, [[0.0], [0.0], [1.0], [1.0]], ["a", "x", "b", "a"])
    table = confusion(tree, dataset, classify(tree, dataset))
    assert table == {("a", "a,b"): 1, ("a", "b"): 1, ("x", "a,b"): 1, ("b", "b"): 1}
    with pytest.warns(MetasilvaeWarning, match="1 rows of data.csv have labels"):
        (found,) = evaluate(tree, dataset)
    assert found.n_correct == 1


def test_data_of_another_width() -> None:
    tree = make_model([(1, 0.5, [1, 0], [0, 1])], 2)
    dataset = Dataset(np.zeros((1, 1)), np.zeros(1, dtype=np.int32), ("a",), source="data.csv")
    with pytest.raises(ModelError, match="has 1 features, <memory> expects 2"):
        evaluate(tree, dataset)
