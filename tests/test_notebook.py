"""What consoles and notebooks show of an object is short and escaped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.oracles import data_of, make_model

import metasilvae
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.budget import Budget
from metasilvae.verification.verdicts import Stability

TREE = metasilvae.read_model("builtin:iris/tree.silva")
ROWS = metasilvae.read_dataset("builtin:iris/test")


def test_data_and_models() -> None:
    assert repr(ROWS) == "<Dataset builtin:iris/test: 30 rows, 4 features, labels setosa, versicolor, virginica>"
    assert repr(TREE) == (
        "<Model builtin:iris/tree.silva: tree, 4 leaves, depth 3, 4 features, labels setosa, versicolor, virginica>"
    )
    birds = metasilvae.read_dataset("builtin:penguins/test")
    for words in ("<th>rows</th><td>69</td>", "<th>columns</th><td>7</td>", "<th>features</th><td>11</td>"):
        assert words in birds._repr_html_()
    X = ROWS.X.copy()
    X[0, 0] = np.nan
    assert "<th>missing values</th><td>1</td>" in replace(ROWS, X=X)._repr_html_()
    assert "<th>features</th><td>2 tested of 4</td>" in TREE._repr_html_()
    assert "voting" not in TREE._repr_html_()


def test_results() -> None:
    outcome = metasilvae.verify(TREE, ROWS, 0.1)
    assert repr(outcome) == "<Outcome: 30 rows, accuracy 96.67 %, stability 90.00 %, robust accuracy 90.00 %>"
    assert "<th>FRAGILE</th><td>2</td>" in outcome._repr_html_()
    assert "NO-INFO" not in outcome._repr_html_()
    stability = outcome.stability.copy()
    stability[:3] = Stability.UNKNOWN
    undecided = replace(outcome, stability=stability)
    assert repr(undecided).endswith("undecided 3>")
    assert "<th>NO-INFO</th><td>3</td>" in undecided._repr_html_()
    (evaluation,) = metasilvae.evaluate(TREE, ROWS, [0.1])
    assert repr(evaluation) == (
        "<Evaluation of builtin:iris/tree.silva on builtin:iris/test under l_inf 0.1: accuracy 96.67 %, "
        "stability 90.00 %, robust accuracy 90.00 %>"
    )
    assert "<td>96.67 %</td>" in evaluation._repr_html_()
    (alone,) = metasilvae.evaluate(TREE, ROWS)
    assert repr(alone).endswith("builtin:iris/test: accuracy 96.67 %>")
    assert repr(evaluation.per_class) == "<ClassReport: 3 classes, balanced accuracy 96.67 %, ROC AUC 97.50 %>"
    table = evaluation.per_class._repr_html_()
    assert table.count("<tr>") == 4
    assert "<th>robust accuracy</th>" in table
    assert "robust accuracy" not in alone.per_class._repr_html_()
    radii = metasilvae.find_radii(TREE, ROWS)
    assert repr(radii) == "<Radii: 30 rows, minimum 0.05, median 0.55, maximum 1.35>"
    assert "<th>median</th><td>0.55</td>" in radii._repr_html_()


def test_bounds_are_told() -> None:
    forest = make_model([(0, 0.5, [1, 0], [0, 1]), (1, 0.5, [1, 0], [0, 1]), (0, 0.25, [1, 0], [0, 1])], 2)
    found = metasilvae.find_radii(forest, data_of([[0.1, 0.9]], ["a"]), budget=Budget(steps=1))
    assert ("lower bounds 1" in repr(found)) == bool(found.lower[0] < found.upper[0])


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\nb", "x" * 300])
def test_names_are_escaped(name: str) -> None:
    dataset = replace(data_of([[0.0]], ["a"]), labels=(name,), source=name)
    model = replace(make_model([[1, 0]], 1, [name, "b"]), source=name)
    (evaluation,) = metasilvae.evaluate(model, dataset, [Ball(1)])
    for each in (dataset, model, evaluation, evaluation.per_class):
        assert "\n" not in repr(each)
        assert "<script" not in each._repr_html_()
        assert "\n" not in each._repr_html_()
