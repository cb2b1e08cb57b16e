"""Weights of classes and rows: their scaling, training with them, and what reports say about them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import run

from metasilvae._core.training.evolution import MOST_WEIGHT
from metasilvae.api import evaluate, make_dataset, run_training, train, verify
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.silva_models import read_model
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.boosting_scores import LARGEST_WEIGHT, scale_weights
from metasilvae.training.options import boosting_options_for, forest_options_for, options_for
from metasilvae.training.protocol import finish
from metasilvae.training.runs import make_trainer
from metasilvae.training.weights import parse_class_weight, weigh
from metasilvae.verification.verdicts import Stability

pytestmark = pytest.mark.usefixtures("_short_tuning")
SHORT: dict[str, Any] = {"generations": 4, "population": 6, "initial_population": 6, "elitism": 2}


def imbalanced(seed: int = 0, n: int = 300, share: float = 0.08) -> Dataset:
    """A rare class that overlaps with the other one, so that predicting the other one is nearly best."""
    rng = np.random.default_rng(seed)
    is_rare = rng.random(n) < share
    X = rng.normal(size=(n, 2)) + 1.2 * is_rare[:, None]
    return make_dataset(X.round(2), np.where(is_rare, "yes", "no"))


def recall(model: Any, dataset: Dataset, label: str) -> float:
    outcome = verify(model, dataset, Ball(0.0), jobs=1)
    return float(outcome.is_correct[dataset.y == dataset.labels.index(label)].mean())


# Scaling


def test_balanced_weights_are_exact() -> None:
    dataset = imbalanced()
    weights = weigh(dataset, "balanced").weights
    assert weights is not None
    totals = [int(weights.numbers[dataset.y == label].sum()) for label in range(2)]
    assert totals[0] == totals[1]
    assert weights.total / weights.unit == pytest.approx(dataset.n_samples)
    assert np.gcd.reduce(np.unique(weights.numbers)) == 1


def test_whole_weights_stay_as_they_are() -> None:
    dataset = imbalanced()
    weights = weigh(dataset, {"yes": 5}, np.full(dataset.n_samples, 2)).weights
    assert weights is not None
    assert sorted(set(weights.numbers.tolist())) == [1, 5]
    assert weights.unit == 0.5
    assert weigh(dataset).weights is None


@settings(max_examples=60)
@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=40), st.integers(0, 9))
def test_weights_are_whole_numbers_within_the_limit(numbers: list[float], seed: int) -> None:
    y = np.random.default_rng(seed).integers(0, 2, len(numbers)).astype(np.int32)
    dataset = Dataset(np.zeros((len(y), 1)), y, ("a", "b"))
    found = weigh(dataset, {"a": 1 / 3, "b": 0.25}, numbers).weights
    assert found is not None
    assert found.numbers.min() >= 1
    assert found.total <= MOST_WEIGHT
    wanted = np.array([1 / 3, 0.25])[y] * numbers
    # Rounded by at most a half, or up to 1.
    assert (np.abs(found.numbers - wanted * found.unit) <= np.maximum(0.5, 1 - wanted * found.unit) + 1e-6).all()


@pytest.mark.parametrize("power", [-250, -100, 100, 280])
def test_only_the_ratios_of_weights_matter_for_their_whole_numbers(power: int) -> None:
    dataset = imbalanced()
    numbers = np.random.default_rng(5).random(dataset.n_samples) + 0.01
    usual, shifted = (weigh(dataset, None, each).weights for each in (numbers, np.ldexp(numbers, power)))
    assert usual is not None
    assert shifted is not None
    assert shifted.numbers.tolist() == usual.numbers.tolist()
    assert shifted.unit == np.ldexp(usual.unit, -power)


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-300, 1e300, 1e308, 1.7e308])
@pytest.mark.parametrize("are_equal", [True, False])
def test_weights_at_the_ends_of_numbers_are_refused(size: float, are_equal: bool) -> None:
    dataset = imbalanced()
    factors = np.ones(dataset.n_samples) if are_equal else np.random.default_rng(1).random(dataset.n_samples)
    with pytest.raises(DataError, match=r"weights of rows add up to about 1e-?(29|3\d)\d, expected a sum from 1e-290"):
        weigh(dataset, None, np.maximum(factors * size, 5e-324))


def test_weights_of_very_different_size() -> None:
    dataset = imbalanced()
    numbers = np.full(dataset.n_samples, 1e-300)
    numbers[7] = 3.3e250
    weights = weigh(dataset, None, numbers).weights
    assert weights is not None
    assert weights.numbers[7] > 0.99 * weights.total
    assert weights.total / weights.unit == pytest.approx(3.3e250)


def test_rows_of_weight_zero_are_left_out() -> None:
    dataset = imbalanced()
    sample_weight = np.ones(dataset.n_samples)
    sample_weight[::3] = 0
    kept = weigh(dataset, None, sample_weight)
    assert kept.n_samples == np.count_nonzero(sample_weight)
    whole = train(dataset, 0.1, preset="fast", jobs=1, sample_weight=sample_weight)
    part = train(dataset.subset(np.flatnonzero(sample_weight)), 0.1, preset="fast", jobs=1)
    assert whole.nodes.tobytes() == part.nodes.tobytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "'a': expected LABEL=NUMBER"),
        ("a=0", "'a=0': expected LABEL=NUMBER with a number above 0"),
        ("a=1,a=2", "'a' is given twice"),
        ("a=x", "'a=x': expected LABEL=NUMBER"),
    ],
)
def test_wrong_class_weights(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_class_weight(text)


def test_class_weights_of_unknown_labels_and_bad_sample_weights() -> None:
    dataset = imbalanced()
    with pytest.raises(DataError, match="has no label 'maybe'; its labels are"):
        weigh(dataset, {"maybe": 2})
    with pytest.raises(DataError, match=r"has the shape \(2,\)"):
        weigh(dataset, None, [1, 2])
    with pytest.raises(DataError, match="negative or infinite"):
        weigh(dataset, None, np.full(dataset.n_samples, np.nan))
    with pytest.raises(RequestError, match="expected 'balanced'"):
        weigh(dataset, "equal")


# Training


@pytest.mark.parametrize("seed", range(4))
def test_a_row_of_weight_k_is_k_rows_byte_by_byte(seed: int) -> None:
    dataset = imbalanced(seed, 80, 0.3)
    sample_weight = np.random.default_rng(seed).integers(1, 4, dataset.n_samples)
    repeated = dataset.subset(np.repeat(np.arange(dataset.n_samples), sample_weight))
    options = options_for("default", **SHORT, tune=False, min_samples_leaf=1, seed_leaves=12, seed=seed)
    weighted = train(dataset, 0.1, options, jobs=1, sample_weight=sample_weight)
    plain = train(repeated, 0.1, options, jobs=1)
    assert weighted.n_leaves > 1
    assert weighted.nodes.tobytes() == plain.nodes.tobytes()
    np.testing.assert_array_equal(weighted.leaf_values, plain.leaf_values)


@pytest.mark.parametrize(
    "options",
    [
        options_for("default", **SHORT),
        options_for("fast", validation=0.3),
        options_for("paper", generations=5),
        options_for("cart"),
        forest_options_for("fast", 5),
        boosting_options_for("default", 8),
    ],
    ids=["tuned", "held out", "paper", "cart", "forest", "boosting"],
)
def test_balanced_training_finds_the_rare_class(options: Any) -> None:
    dataset = imbalanced(1, 400)
    outcome = run_training(dataset, 0.05, options=options, class_weight="balanced", jobs=1, test=imbalanced(2, 400))
    (best,) = outcome.kept
    assert recall(outcome.model, dataset, "yes") > 0.5
    for part in (best.training, best.test):
        assert part is not None
        assert part.dataset.weights is not None
        exact = verify(outcome.model, part.dataset, Ball(0.05), jobs=1)
        weights, is_stable = part.dataset.weights, exact.stability == Stability.STABLE
        assert part.accuracy == weights.fraction(exact.is_correct)
        assert part.stability == weights.fraction(is_stable)
        assert part.robust_accuracy == weights.fraction(exact.is_correct & is_stable)
    provenance = outcome.model.description.provenance
    assert provenance is not None
    assert provenance["data"]["weights"]["weights"].startswith("no=")


def test_weights_of_rows_and_classes_multiply() -> None:
    dataset = imbalanced(3, 60)
    both = weigh(dataset, {"yes": 3}, np.full(60, 2.5)).weights
    assert both is not None
    ratio = Fraction(int(both.numbers.max()), int(both.numbers.min()))
    assert ratio == 3


def test_archives_and_trees_to_start_from_are_weighted(tmp_path: Path) -> None:
    dataset = imbalanced(4, 200)
    outcome = run_training(
        dataset, 0.05, options=options_for("default", **SHORT, tune=False), class_weight="balanced", jobs=1,
        pareto=str(tmp_path / "archive"),
    )  # fmt: skip
    for metrics, model in outcome.archive:
        weighted = evaluate(model, weigh(dataset, "balanced"), [0.05], jobs=1)[0]
        assert float(metrics.accuracy) == weighted.accuracy
        assert float(metrics.stability) == weighted.stability


def test_very_unequal_weights_in_boosting_stay_within_32_bits() -> None:
    dataset = imbalanced(5, 400, 0.02)
    weighted = weigh(dataset, {"yes": 1e6})
    scaled, divisor = scale_weights(weighted.weights)
    assert np.max(scaled) <= LARGEST_WEIGHT
    assert divisor >= 1
    model = finish(make_trainer(weighted, Ball(0.05), boosting_options_for("fast", 5), 1))
    assert recall(model, dataset, "yes") == 1.0


# Commands and estimators


def test_commands(tmp_path: Path) -> None:
    dataset = imbalanced(6, 300, 0.05)
    lines = [f"{label},{a},{b}" for (a, b), label in zip(dataset.X, np.array(dataset.labels)[dataset.y], strict=True)]
    data = tmp_path / "rare.csv"
    data.write_text("\n".join(["label,a,b", *lines, ""]))
    check = run("data", "check", data).stdout
    assert "predicting 'no' for every row is correct in 9" in check
    plain = run(
        "train", data, tmp_path / "plain.silva", "--epsilon", "0.3", "--preset", "fast", "--leaf-penalty", "300"
    )
    assert "predicting no for every row scores as well, phi 0.9" in plain.stdout
    assert "--class-weight balanced" in plain.stdout
    words = "--epsilon", "0.05", "--preset", "fast", "--class-weight"
    for weights in ("balanced", "no=1,yes=12.5"):
        report = run("train", data, tmp_path / "weighted.silva", *words, weights).stdout
        assert "phi and all fractions are weighted" in report
        assert "scores as well" not in report
    assert recall(read_model(str(tmp_path / "weighted.silva")), dataset, "yes") > 0.6
    manifest = json.loads((tmp_path / "weighted.silva.manifest.json").read_text())
    assert manifest["data"]["weights"]["weights"] == "no=1, yes=12.5"
    # One leaf in which two labels tie predicts one of them.
    tied = tmp_path / "tied.csv"
    tied.write_text("label,a\nx,1\ny,2\nx,3\ny,4\n")
    report = run("train", tied, tmp_path / "x.silva", "--epsilon", "5", "--preset", "fast").stdout
    assert "predicting x for every row scores as well, phi 0.55" in report
    wrong = run("train", data, tmp_path / "x.silva", *words, "yes", code=2)
    assert "--class-weight: class weight 'yes': expected LABEL=NUMBER" in wrong.stderr
    unknown = run("train", data, tmp_path / "x.silva", *words, "maybe=2", code=1)
    assert "has no label 'maybe'" in unknown.stderr


@pytest.mark.parametrize("name", ["MetaSilvaeClassifier", "RobustForestClassifier", "RobustBoostingClassifier"])
def test_estimators(name: str) -> None:
    estimators = pytest.importorskip("metasilvae.sklearn")
    dataset = imbalanced(7, 300, 0.06)
    y = np.where(dataset.y == dataset.labels.index("yes"), 7, 3)
    size: dict[str, Any] = {
        "RobustForestClassifier": {"n_estimators": 4},
        "RobustBoostingClassifier": {"n_estimators": 5},
    }.get(name, {})
    make = lambda **more: getattr(estimators, name)(epsilon=0.05, preset="fast", **size, **more)  # noqa: E731
    balanced = make(class_weight="balanced").fit(dataset.X, y)
    assert (balanced.predict(dataset.X)[y == 7] == 7).mean() > 0.5
    by_class = make(class_weight={7: 16}).fit(dataset.X, y)
    by_row = make().fit(dataset.X, y, sample_weight=np.where(y == 7, 16.0, 1.0))
    np.testing.assert_array_equal(by_class.predict_proba(dataset.X), by_row.predict_proba(dataset.X))
    with pytest.raises(ValueError, match="class_weight has a weight for 5, which is not among the classes"):
        make(class_weight={5: 2.0}).fit(dataset.X, y)
