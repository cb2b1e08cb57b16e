"""Displays show the curves that the commands print."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import MinMaxScaler  # noqa: E402

import metasilvae  # noqa: E402
from metasilvae import Ball, Budget, MetaSilvaeClassifier, RobustnessCurveDisplay  # noqa: E402

TRAIN, TEST = (metasilvae.read_dataset(f"builtin:iris/{part}") for part in ("train", "test"))
Y, Y_TEST = (np.array(part.labels)[part.y] for part in (TRAIN, TEST))
TREE = MetaSilvaeClassifier(preset="fast").fit(TRAIN.X, Y)


@pytest.fixture(autouse=True)
def closes_figures():  # type: ignore[no-untyped-def]
    yield
    pyplot.close("all")


def test_the_curve_is_that_of_the_model() -> None:
    shown = RobustnessCurveDisplay.from_estimator(TREE, TEST.X, Y_TEST)
    for epsilon, stable, robust in zip(shown.epsilon, shown.stability, shown.robust_accuracy, strict=True):
        if np.isfinite(epsilon):
            assert TREE.robust_metrics(TEST.X, Y_TEST, epsilon)[1:] == (stable, robust)
    assert len(shown.lines_) == 2
    assert shown.ax_.get_xlabel() == "epsilon"
    assert shown.figure_ is shown.ax_.figure
    texts = [text.get_text() for text in shown.ax_.get_legend().get_texts()]
    assert texts == ["MetaSilvaeClassifier: stability", "MetaSilvaeClassifier: robust accuracy"]


def test_known_predictions_and_radii_give_the_same() -> None:
    one = RobustnessCurveDisplay.from_estimator(TREE, TEST.X, Y_TEST)
    other = RobustnessCurveDisplay.from_predictions(Y_TEST, TREE.predict(TEST.X), TREE.radius(TEST.X), name="tree")
    assert np.array_equal(one.epsilon, other.epsilon)
    assert np.array_equal(one.robust_accuracy, other.robust_accuracy)
    assert other.estimator_name == "tree"


def test_several_in_one_picture() -> None:
    forest = make_pipeline(MinMaxScaler(), RandomForestClassifier(3, max_depth=2, random_state=0)).fit(TRAIN.X, Y)
    shown = RobustnessCurveDisplay.from_estimator(TREE, TEST.X, Y_TEST, metric="robust accuracy", name="ours")
    again = RobustnessCurveDisplay.from_estimator(
        forest, TEST.X, Y_TEST, ax=shown.ax_, metric="robust accuracy", budget=Budget(seconds=5), linewidth=3
    )
    assert again.ax_ is shown.ax_
    assert len(again.ax_.get_legend().get_texts()) == 2
    assert again.lines_[0].get_linewidth() == 3
    assert again.lines_[0].get_edgecolor() != shown.lines_[0].get_edgecolor()
    scaled = metasilvae.make_dataset(forest[0].transform(TEST.X), Y_TEST)
    wanted = metasilvae.find_radii(metasilvae.import_object(forest[-1]).model, scaled)
    assert again.epsilon.tolist() == sorted(set(wanted.lower.tolist()))


def test_multiples_of_a_perturbation() -> None:
    shown = RobustnessCurveDisplay.from_estimator(TREE, TEST.X, Y_TEST, perturbation=Ball(0.1, 0, 8))
    assert shown.ax_.get_xlabel() == "multiple of the attack's radii"


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="metric is 'speed'"):
        RobustnessCurveDisplay.from_estimator(TREE, TEST.X, Y_TEST, metric="speed")
    with pytest.raises(ValueError, match="one value for each sample"):
        RobustnessCurveDisplay.from_predictions(["a"], ["a", "b"], [1.0])
    with pytest.raises(ValueError, match="negative or NaN"):
        RobustnessCurveDisplay.from_predictions(["a"], ["a"], [-1.0])
    with pytest.raises(ValueError, match="y has the shape"):
        RobustnessCurveDisplay.from_estimator(TREE, TEST.X, Y_TEST[:2])
