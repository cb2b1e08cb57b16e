"""Training on missing values: what trainers report is what the verifier finds, and every command takes the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from metasilvae.api import evaluate, make_dataset, predict, run_training, train, verify
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError
from metasilvae.formats.silva_models import format_model, parse_model
from metasilvae.interop.exports.documents import write_text
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, Model, join_trees
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.prediction import find_leaves
from metasilvae.training.boosting import BoostingTrainer
from metasilvae.training.forest_votes import bound
from metasilvae.training.large import LargeTreeTrainer
from metasilvae.training.options import Options, boosting_options_for, forest_options_for, options_for
from metasilvae.training.protocol import finish
from metasilvae.training.runs import make_trainer
from metasilvae.training.samples import LARGEST
from metasilvae.verification.shards import Shard
from metasilvae.verification.verdicts import Stability

pytestmark = pytest.mark.usefixtures("_short_tuning")
SHORT: dict[str, Any] = {"generations": 4, "population": 6, "initial_population": 6, "elitism": 2}


def holed(seed: int = 0, n: int = 120, informative: bool = True) -> Dataset:
    """Three columns; the label depends on the first one, and on whether the second one is missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).round(2)
    X[rng.random((n, 3)) < [0.1, 0.4, 0.0]] = np.nan
    wide = np.where(np.isnan(X[:, 0]), 1.0, X[:, 0]) > 0
    y = wide ^ (np.isnan(X[:, 1]) & informative)
    y ^= rng.random(n) < 0.05
    return make_dataset(X, np.where(y, "yes", "no"))


def attack_on(dataset: Dataset, rules: str) -> Perturbation:
    return fit_attack(parse_attack(rules.encode(), "attack.toml"), dataset)


MAY_APPEAR = '[default]\nradius = 0.05\n[columns]\n"x[0]" = { radius = 0.05, missing = "may appear" }\n'
RELATIVE = '[default]\nradius = "5% of value"\n'
EVERYTHING = '[default]\nradius = 0.1\n[columns]\n"x[1]" = { radius = inf }\n'


def counts_of(model: Model, dataset: Dataset, perturbation: Perturbation) -> tuple[int, int, int]:
    counts = verify(model, dataset, perturbation, jobs=1).counts
    assert counts.no_info == 0
    return counts.correct, counts.stable, counts.robust


@pytest.mark.parametrize(
    "options",
    [
        options_for("default", **SHORT),
        options_for("default", **SHORT, tune=False, validation=0.3),
        options_for("default", **SHORT, tune=False, allowed_features=2),
        options_for("fast"),
        options_for("paper", generations=8),
        options_for("cart"),
    ],
    ids=["tuned", "held out", "some features", "fast", "paper", "cart"],
)
@pytest.mark.parametrize("rules", [None, MAY_APPEAR, RELATIVE, EVERYTHING], ids=["ball", "drop", "relative", "any"])
def test_trees_report_what_the_verifier_finds(options: Options, rules: str | None) -> None:
    dataset = holed()
    perturbation = Ball(0.05) if rules is None else attack_on(dataset, rules)
    trainer = make_trainer(dataset, perturbation, options, 1)
    *_, last = trainer.run()
    model = trainer.model
    assert model.takes_missing.all()
    assert (model.leaf_values.sum(axis=1) > 0).all()
    if trainer.held_out is None and last.training_epsilon_factor == 1.0:
        fractions = last.accuracy, last.stability, last.robust_accuracy
        assert tuple(count / dataset.n_samples for count in counts_of(model, dataset, perturbation)) == fractions
    again = parse_model(format_model(model).encode(), "again")
    assert again.nodes.tobytes() == model.nodes.tobytes()
    same = make_trainer(dataset, perturbation, options, 2)
    assert format_model(finish(same)) == format_model(model)


def test_missing_is_learned_where_it_tells_the_label() -> None:
    dataset = holed(1, 400)
    model = train(dataset, 0.01, preset="fast", jobs=1)
    assert evaluate(model, dataset, jobs=1)[0].accuracy > 0.93
    is_test = (model.nodes["feature"] == 1) & (model.nodes["threshold"] == LARGEST)
    assert is_test.any()
    assert (model.nodes["leaf"][is_test] == MISSING_RIGHT).all()
    text = write_text(model)
    assert "x[1] has a value\n" in text
    assert "x[1] is missing\n" in text
    assert "e+308" not in text


def test_a_missing_value_that_stays_missing_is_a_stable_test() -> None:
    """The second column may take any value, so that only a test whether it is missing is stable."""
    dataset = holed(2, 400)
    model = train(
        dataset, attack_on(dataset, EVERYTHING), preset="fast", jobs=1, weights={"accuracy": 0.5, "stability": 0.5}
    )
    on_second = model.nodes[model.nodes["feature"] == 1]
    assert len(on_second) > 0
    assert (on_second["threshold"] == LARGEST).all()


def test_dropping_is_worse_than_staying() -> None:
    dataset = holed(3, 300)
    model = train(dataset, attack_on(dataset, MAY_APPEAR), preset="fast", jobs=1)
    stays = counts_of(model, dataset, Ball(0.05))
    drops = counts_of(model, dataset, attack_on(dataset, MAY_APPEAR))
    assert drops[1] < stays[1]


def test_columns_without_missing_values_send_them_to_the_larger_side() -> None:
    rng = np.random.default_rng(4)
    X = np.stack([rng.normal(size=200), rng.normal(size=200)], axis=1)
    y = X[:, 1] > 0.8
    X[:5, 0] = np.nan
    model = train(make_dataset(X, y.astype(int)), 0.01, preset="fast", jobs=1)
    split = model.nodes[0]
    assert split["feature"] == 1
    assert split["leaf"] == MISSING_LEFT
    table = predict(model, [[0.0, np.nan]])
    assert [model.labels[label] for label in table.sets[table.ids[0]]] == ["0"]


def test_without_missing_values_a_model_has_no_directions() -> None:
    dataset = make_dataset(np.nan_to_num(holed().X), holed().y)
    assert not train(dataset, 0.1, preset="fast", jobs=1).has_directions


@pytest.mark.parametrize("rules", [None, MAY_APPEAR], ids=["ball", "drop"])
@pytest.mark.parametrize("growth", ["robust", "independent"])
def test_forests(rules: str | None, growth: str) -> None:
    dataset = holed(5, 80)
    perturbation = Ball(0.05) if rules is None else attack_on(dataset, rules)
    options = forest_options_for("fast", 5, *([] if growth == "robust" else [growth]), tune=False)
    trainer = make_trainer(dataset, perturbation, options, 1)
    *_, last = trainer.run()
    assert trainer.model.takes_missing.all()
    proven = bound(trainer.model, dataset, perturbation)
    exact = verify(trainer.model, dataset, perturbation, jobs=1)
    is_proven = proven.stability == Stability.STABLE
    assert is_proven.any()
    assert (exact.stability[is_proven] == Stability.STABLE).all()
    assert last.stability <= exact.counts.stable / dataset.n_samples + 1e-12


def test_a_forest_with_trees_that_saw_no_missing_value_takes_them() -> None:
    dataset = holed(6, 150)
    options = forest_options_for("fast", 6, tune=False, allowed_features=1)
    assert finish(make_trainer(dataset, Ball(0.05), options, 1)).takes_missing.all()


def test_very_many_rows() -> None:
    dataset = holed(7, 600)
    options = options_for("default", **SHORT, tune=False)
    trainer = LargeTreeTrainer(dataset, Ball(0.05), options, 1, sample_size=200)
    *_, last = trainer.run()
    fractions = last.accuracy, last.stability, last.robust_accuracy
    assert tuple(count / dataset.n_samples for count in counts_of(trainer.model, dataset, Ball(0.05))) == fractions


def test_trees_to_start_from() -> None:
    dataset = holed(8)
    start = train(dataset, 0.05, preset="fast", jobs=1)
    without = start.without_directions
    for forest in (start, without, join_trees([start, start])):
        options = options_for("fast", generations=0, polish=0)
        model = finish(make_trainer(dataset, Ball(0.05), options, 1, start=forest))
        assert counts_of(model, dataset, Ball(0.05))[0] > 0
        if forest is not without:
            assert counts_of(model, dataset, Ball(0.05)) == counts_of(start, dataset, Ball(0.05))


def test_runs_with_archive_shards_and_test_rows(tmp_path: Any) -> None:
    dataset, test = holed(9), holed(10)
    out = run_training(
        dataset, 0.05, str(tmp_path / "m.silva"), options_for("default", **SHORT, tune=False), test=test,
        pareto=str(tmp_path / "archive"), jobs=1,
    )  # fmt: skip
    assert out.archive
    assert all(model.takes_missing.all() for _, model in out.archive)
    parts = [
        run_training(
            dataset, 0.05, options=forest_options_for("fast", 4, "independent"), shard=Shard(number, 2), jobs=1
        ).model
        for number in (1, 2)
    ]
    assert verify(join_trees(parts), test, Ball(0.05), jobs=1).counts.size == test.n_samples


def test_values_near_the_largest_number_are_refused_beside_missing_ones() -> None:
    X: NDArray[np.float64] = np.array([[1e308], [np.nan], [1.0], [2.0]])
    with pytest.raises(DataError, match=r"row 0: x\[0\] = 1e\+308, and other values of this column are"):
        train(make_dataset(X, ["a", "b", "a", "b"]), 0.1, preset="fast", jobs=1)


def test_estimators() -> None:
    sklearn = pytest.importorskip("metasilvae.sklearn")
    dataset = holed(11, 200)
    tree = sklearn.MetaSilvaeClassifier(epsilon=0.05, preset="fast", random_state=0).fit(dataset.X, dataset.y)
    assert tree.score(dataset.X, dataset.y) > 0.9
    assert 0 < tree.certify(dataset.X).mean() <= 1
    whole = sklearn.MetaSilvaeClassifier(epsilon=0.05, preset="fast").fit(np.nan_to_num(dataset.X), dataset.y)
    with pytest.raises(ValueError, match=r"is missing, and .* takes none"):
        whole.predict(dataset.X)


# Boosting


def reachable_points(model: Model, dataset: Dataset, perturbation: Perturbation, row: int) -> NDArray[np.float64]:
    """Points of the box of a row that stand for all others: ends, thresholds and their neighbours, missing values."""
    boxes = perturbation.boxes(dataset)
    # Values are finite.
    lower, upper = (end.clip(-1e300, 1e300) for end in boxes.bounds(row))
    choices = []
    for feature in range(dataset.n_features):
        tested = model.nodes["threshold"][model.nodes["feature"] == feature]
        tested = tested[tested < LARGEST]
        points = np.array([lower[feature], upper[feature], *tested, *np.nextafter(tested, np.inf)])
        points = np.unique(points[(lower[feature] <= points) & (points <= upper[feature])])
        if np.isnan(lower[feature]) or (boxes.droppable is not None and boxes.droppable[row, feature]):
            points = np.append(points, np.nan)
        choices.append(points)
    return np.stack([part.ravel() for part in np.meshgrid(*choices)], axis=1)


@pytest.mark.parametrize("rules", [None, MAY_APPEAR, EVERYTHING], ids=["ball", "drop", "any"])
@pytest.mark.parametrize("seed", range(3))
def test_certified_margins_of_boosting_are_the_worst_over_reachable_leaves(rules: str | None, seed: int) -> None:
    dataset = holed(20 + seed, 60)
    perturbation = Ball(0.2) if rules is None else attack_on(dataset, rules)
    options = boosting_options_for("fast", 3, max_depth=4, min_samples_leaf=1, seed=seed)
    trainer = make_trainer(dataset, perturbation, options, 1)
    model = finish(trainer)
    assert isinstance(trainer, BoostingTrainer)
    assert trainer._booster is not None
    scores, base = trainer._booster.learned, trainer._booster.base[0]
    lowest, highest = np.full((2, dataset.n_samples), base)
    own = predict_scores(model, dataset.X)
    for number in range(model.n_trees):
        tree = model.tree(number)
        for row in range(dataset.n_samples):
            found = predict_scores(tree, reachable_points(tree, dataset, perturbation, row))
            lowest[row] += found.min() - (base if number == 0 else 0.0)
            highest[row] += found.max() - (base if number == 0 else 0.0)
    np.testing.assert_array_equal(scores.own[0], own)
    np.testing.assert_array_equal(scores.lowest[0], lowest)
    np.testing.assert_array_equal(scores.highest[0], highest)
    assert model.takes_missing.all()


def predict_scores(model: Model, X: NDArray[np.float64]) -> NDArray[np.float64]:
    leaves = find_leaves(model, np.ascontiguousarray(X))
    return np.asarray(model.leaf_values[leaves, 1].sum(axis=1))


@pytest.mark.parametrize("rules", [None, MAY_APPEAR], ids=["ball", "drop"])
def test_boosted_models(rules: str | None) -> None:
    dataset = holed(30, 200)
    perturbation = Ball(0.05) if rules is None else attack_on(dataset, rules)
    options = boosting_options_for("default", 10)
    trainer = make_trainer(dataset, perturbation, options, 1)
    *_, last = trainer.run()
    exact = verify(trainer.model, dataset, perturbation, jobs=1)
    assert last.accuracy == exact.counts.correct / dataset.n_samples
    assert last.stability <= exact.counts.stable / dataset.n_samples
    assert last.accuracy > (0.85 if rules is None else 0.6)
    again = make_trainer(dataset, perturbation, options, 2)
    assert format_model(finish(again)) == format_model(trainer.model)


@pytest.mark.parametrize("n_most", [1, 7, 40])
@pytest.mark.parametrize("has_missing", [False, True])
def test_ends_of_boxes_do_not_depend_on_the_parts_they_are_found_in(
    monkeypatch: pytest.MonkeyPatch, n_most: int, has_missing: bool
) -> None:
    rng = np.random.default_rng(n_most)
    X = rng.random((60, 5))
    X[:, 1], X[:, 2] = 0.5, rng.integers(0, 3, 60)
    if has_missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    dataset = make_dataset(X, rng.integers(0, 2, 60))
    models = []
    for limit in (None, n_most):
        if limit is not None:
            monkeypatch.setattr("metasilvae._core.training.evolution.MOST_VALUES_AT_ONCE", limit)
        models.append(format_model(train(dataset, Ball(0.07), preset="fast", jobs=1)))
    assert models[0] == models[1]
    assert models[0].count("\n") > 3
