"""The estimators keep scikit-learn's promises, and are what the command line makes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import run

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import MinMaxScaler  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import metasilvae  # noqa: E402
from metasilvae import (  # noqa: E402
    Ball,
    Budget,
    MetaSilvaeClassifier,
    RobustBoostingClassifier,
    RobustForestClassifier,
    read_dataset,
)
from metasilvae.cli.training_parameters import training_options  # noqa: E402
from metasilvae.errors import ModelError  # noqa: E402
from metasilvae.formats.silva_models import read_model, same_model  # noqa: E402
from metasilvae.interop.imports import import_object  # noqa: E402
from metasilvae.perturbations.norms import NormBall  # noqa: E402
from metasilvae.sklearn import OPTIONS, fitness_scorer, robust_accuracy_scorer, stability_scorer  # noqa: E402
from metasilvae.training.options import PUBLIC_NAMES  # noqa: E402

TREE = MetaSilvaeClassifier(preset="fast")
FOREST = RobustForestClassifier(3, preset="fast")
BOOSTED = RobustBoostingClassifier(10, preset="fast")
TRAIN, TEST = read_dataset("builtin:iris/train"), read_dataset("builtin:iris/test")


def arrays(dataset: metasilvae.Dataset) -> tuple[np.ndarray, np.ndarray]:
    return dataset.X, np.array(dataset.labels)[dataset.y]


def is_largest(shares: np.ndarray) -> np.ndarray:
    return np.asarray(shares == shares.max(axis=1, keepdims=True))


X, y = arrays(TRAIN)
X_TEST, Y_TEST = arrays(TEST)


# A row of weight k counts as k rows in the objective, but as one row of the minimum per leaf and among drawn rows.
UNEQUAL = {"check_sample_weight_equivalence_on_dense_data": "min_samples_leaf counts rows, whatever they weigh"}


@parametrize_with_checks([TREE, FOREST, BOOSTED], expected_failed_checks=lambda estimator: UNEQUAL)
def test_promises_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


class TestParameters:
    @pytest.mark.parametrize("estimator", [TREE, FOREST, BOOSTED], ids=["tree", "forest", "boosted"])
    def test_they_are_those_of_the_command_line(self, estimator: Any) -> None:
        other_names = {
            "n_jobs": "jobs", "random_state": "seed", "weights": "weight", "method": "forest-method",
            "n_estimators": "boost" if estimator is BOOSTED else "trees",
            **{name: PUBLIC_NAMES.get(option, option) for name, option in OPTIONS.items() if name != "method"},
        }  # fmt: skip
        known = {"--jobs", "--perturbation", "--verbose"}

        @training_options
        def command() -> None: ...

        for option in command.__click_params__:  # type: ignore[attr-defined]
            known |= {name for name in option.opts if name.startswith("--")}
        # An option of data: --categorical. Trees to start from are an argument.
        for name in set(estimator.get_params()) - {"options", "categorical_features", "warm_start"}:
            assert f"--{other_names.get(name, name).replace('_', '-')}" in known

    def test_the_model_is_that_of_the_command_line(self, tmp_path: Path) -> None:
        run("train", "builtin:iris/train", tmp_path / "a.silva", "--epsilon", "0.2", "--seed", "3", "--max-leaves", "4")
        model = MetaSilvaeClassifier(0.2, random_state=3, max_leaf_nodes=4).fit(X, y)
        model.save(tmp_path / "b.silva")
        one, other = (read_model(str(tmp_path / name)) for name in ("a.silva", "b.silva"))
        assert same_model(one, other)
        # Arrays have no names; all else is the same.
        assert other.description == replace(one.description, feature_names=None, label_name=None)

    @pytest.mark.parametrize("preset", ["fast", "default"])
    def test_so_is_the_forest(self, tmp_path: Path, preset: str) -> None:
        words = ["--epsilon", "0.2", "--seed", "3", "--trees", "3", "--preset", preset, "--row-sample", "0.5"]
        run("train", "builtin:iris/train", tmp_path / "a.silva", *words)
        forest = RobustForestClassifier(3, 0.2, random_state=3, preset=preset, max_samples=0.5).fit(X, y)
        assert same_model(forest.model_, read_model(str(tmp_path / "a.silva")))

    def test_so_is_the_boosted_model(self, tmp_path: Path) -> None:
        words = ["--epsilon", "0.2", "--seed", "3", "--boost", "6", "--no-tune", "--learning-rate", "0.3"]
        run("train", "builtin:iris/train", tmp_path / "a.silva", *words)
        boosted = RobustBoostingClassifier(6, 0.2, random_state=3, tune=False, learning_rate=0.3).fit(X, y)
        assert same_model(boosted.model_, read_model(str(tmp_path / "a.silva")))
        probabilities = boosted.predict_proba(X)
        assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(X)))
        assert (boosted.classes_[probabilities.argmax(axis=1)] == boosted.predict(X)).mean() == 1

    def test_so_is_the_boosted_model_for_a_norm(self, tmp_path: Path) -> None:
        words = ["--norm", "l1", "--epsilon", "0.3", "--boost", "4", "--no-tune"]
        run("train", "builtin:iris/train", tmp_path / "a.silva", *words)
        boosted = RobustBoostingClassifier(4, 0.3, norm="l1", tune=False).fit(X, y)
        assert same_model(boosted.model_, read_model(str(tmp_path / "a.silva")))
        assert isinstance(boosted.perturbation_, NormBall)
        stable, radii = boosted.certify(X[:20]), boosted.radius(X[:20])
        assert (stable == (radii >= 0.3)).all()
        # A number is another limit in the same norm.
        assert (boosted.certify(X[:20], epsilon=0.1) == (radii >= 0.1)).all()
        assert (boosted.radius(X[:20], norm="l1") == radii).all()
        assert (boosted.radius(X[:20], norm="linf") <= radii).all()
        assert boosted.robust_score_ <= boosted.robust_score(X, y)
        given = RobustBoostingClassifier(4, perturbation=NormBall("l1", 0.3), tune=False).fit(X, y)
        assert same_model(given.model_, boosted.model_)
        assert (given.certify(X[:20], epsilon=0.1) == (radii >= 0.1)).all()

    def test_every_parameter_has_an_effect(self) -> None:
        changes: dict[str, Any] = {
            "epsilon": 0.3, "norm": "l1", "perturbation": Ball(0.3), "preset": "cart", "weights": {"robustness": 1.0},
            "max_depth": 1, "max_leaf_nodes": 2, "min_samples_leaf": 45, "leaf_penalty": 50.0,
            "training_epsilon_factor": 5.0, "robust_weight": 1.0, "tune": True, "max_iter": 1, "n_iter_no_change": 1,
            "time_limit": 1.0, "validation_fraction": 0.5,
            "options": {"population": 5}, "random_state": 8,
        }  # fmt: skip
        # The last one is tested with other weights (tests/training/test_weights.py).
        others = {"n_jobs", "categorical_features", "verbose", "warm_start", "class_weight"}
        assert set(changes) | others == set(TREE.get_params())
        usual = TREE._choose_options(), TREE._perturbation()
        for name, value in changes.items():
            changed = clone(TREE).set_params(**{name: value})
            assert (changed._choose_options(), changed._perturbation()) != usual, name

    def test_random_state(self) -> None:
        tree = MetaSilvaeClassifier(random_state=np.random.RandomState(1))
        first, second = tree._seed(), tree._seed()
        assert first != second
        assert MetaSilvaeClassifier(random_state=np.random.RandomState(1))._seed() == first
        assert MetaSilvaeClassifier(random_state=np.int64(7))._seed() == 7
        assert len({MetaSilvaeClassifier(random_state=None)._seed() for _ in range(5)}) > 1

    @pytest.mark.parametrize("estimator", [TREE, FOREST, BOOSTED], ids=["tree", "forest", "boosted"])
    def test_the_number_of_threads_has_none(self, estimator: Any) -> None:
        one, two = (clone(estimator).set_params(n_jobs=n_jobs).fit(X, y) for n_jobs in (None, 2))
        assert same_model(one.model_, two.model_)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"epsilon": -1.0}, "epsilon is -1"),
            ({"norm": "l3"}, "norm 'l3'"),
            ({"preset": "worst"}, "preset 'worst'"),
            ({"options": {"no_such": 1}}, "no such option: no_such"),
            ({"max_leaf_nodes": 0}, "max_leaf_nodes is 0"),
        ],
    )
    def test_wrong_values(self, change: dict[str, Any], message: str) -> None:
        for estimator in (TREE, FOREST):
            with pytest.raises(ValueError, match=message):
                clone(estimator).set_params(**change).fit(X, y)


class TestAnswers:
    @pytest.mark.parametrize("estimator", [TREE, FOREST, BOOSTED], ids=["tree", "forest", "boosted"])
    def test_certificates_are_verdicts(self, estimator: Any) -> None:
        fitted = clone(estimator).fit(X, y)
        for epsilon in (0.0, 0.1, 0.5, 2.0):
            outcome = metasilvae.verify(fitted.model_, TEST, epsilon)
            assert np.array_equal(fitted.certify(X_TEST, epsilon), outcome.stability == 1)
            figures = fitted.robust_metrics(X_TEST, Y_TEST, epsilon)
            counts = outcome.counts
            assert figures == (float(counts.accuracy), float(counts.stability), float(counts.robust_accuracy))
            assert fitted.robust_score(X_TEST, Y_TEST, epsilon) == figures[2]

    @pytest.mark.parametrize("estimator", [TREE, FOREST, BOOSTED], ids=["tree", "forest", "boosted"])
    def test_witnesses(self, estimator: Any) -> None:
        fitted = clone(estimator).fit(X, y)
        stable, points = fitted.certify(X_TEST, 0.5, witnesses=True)
        assert 0 < stable.sum() < len(stable)
        assert np.array_equal(stable, fitted.certify(X_TEST, 0.5))
        assert np.isnan(points[stable]).all()
        assert (points[~stable] >= (X_TEST - 0.5)[~stable]).all()
        assert (points[~stable] <= (X_TEST + 0.5)[~stable]).all()
        # Of tied classes the first one is predicted, so that only the probabilities tell a tie from its first class.
        before, after = fitted.predict_proba(X_TEST[~stable]), fitted.predict_proba(points[~stable])
        assert not (is_largest(before) == is_largest(after)).all(axis=1).any()

    @pytest.mark.parametrize("estimator", [TREE, FOREST, BOOSTED], ids=["tree", "forest", "boosted"])
    def test_radius(self, estimator: Any) -> None:
        fitted = clone(estimator).fit(X, y)
        radii = fitted.radius(X_TEST)
        assert np.array_equal(radii, metasilvae.find_radii(fitted.model_, TEST).lower)
        for row in range(0, len(X_TEST), 7):
            assert fitted.certify(X_TEST[row : row + 1], radii[row])
            assert not fitted.certify(X_TEST[row : row + 1], np.nextafter(radii[row], np.inf))

    def test_limits(self) -> None:
        forest = RobustForestClassifier(15, preset="fast", random_state=1).fit(X, y)
        few = Budget(steps=1)
        exact, quick = forest.certify(X_TEST, 0.4), forest.certify(X_TEST, 0.4, budget=few)
        assert not (quick & ~exact).any()
        assert (forest.radius(X_TEST, budget=few) <= forest.radius(X_TEST)).all()
        scores = [robust_accuracy_scorer(0.4, budget)(forest, X_TEST, Y_TEST) for budget in (few, None)]
        assert scores == [forest.robust_score(X_TEST, Y_TEST, 0.4, budget=budget) for budget in (few, None)]
        assert scores[0] <= scores[1]

    def test_the_limits_of_a_perturbation_stay(self) -> None:
        tree = MetaSilvaeClassifier(perturbation=Ball(0.1, 0.0, 8.0), preset="fast").fit(X, y)
        assert tree._perturbation(0.5) == Ball(0.5, 0.0, 8.0)
        assert tree._perturbation(Ball(0.5)) == Ball(0.5)
        with pytest.raises(ValueError, match="epsilon is -1"):
            tree.certify(X, -1.0)

    def test_score_in_training(self) -> None:
        tree = clone(TREE).fit(X, y)
        assert tree.robust_score_ == tree.robust_score(X, y)
        forest = clone(FOREST).fit(X, y)
        assert 0 < forest.robust_score_ <= forest.score(X, y)

    def test_unknown_labels_are_wrong(self) -> None:
        tree = clone(TREE).fit(X, y)
        assert tree.robust_metrics(X_TEST, np.full(len(X_TEST), "rose"))[0] == 0
        with pytest.raises(ValueError, match="y has the shape"):
            tree.robust_score(X_TEST, Y_TEST[:3])

    def test_probabilities(self) -> None:
        for estimator in (TREE, FOREST):
            fitted = clone(estimator).fit(X, y)
            shares = fitted.predict_proba(X_TEST)
            assert np.allclose(shares.sum(axis=1), 1)
            assert np.array_equal(fitted.classes_[shares.argmax(axis=1)], fitted.predict(X_TEST))

    def test_ties(self) -> None:
        tree = clone(TREE).fit([[0.0], [0.0], [0.0], [0.0]], ["b", "c", "a", "c"])
        assert tree.predict([[0.0]]) == ["c"]
        tree = clone(TREE).fit([[0.0]] * 4, ["b", "a", "a", "b"])
        assert tree.predict([[1.0]]) == ["a"]
        assert tree.predict_proba([[1.0]]).tolist() == [[0.5, 0.5]]
        assert tree.robust_metrics([[0.0]], ["a"]) == (0.0, 1.0, 0.0)

    def test_labels_that_no_file_can_hold(self, tmp_path: Path) -> None:
        odd = np.where(y == "setosa", "Iris, the bristly", y)
        tree = clone(TREE).fit(X, odd)
        assert tree.predict(X[:1]) == odd[:1]
        tree.save(tmp_path / "tree.silva")
        assert read_model(str(tmp_path / "tree.silva")).labels == ("class-0", "class-1", "class-2")

    def test_not_fitted(self, tmp_path: Path) -> None:
        for call in (
            lambda tree: tree.certify(X),
            lambda tree: tree.radius(X),
            lambda tree: tree.robust_score(X, y),
            lambda tree: tree.save(tmp_path / "tree.silva"),
        ):
            with pytest.raises(NotFittedError):
                call(clone(TREE))


class TestInspection:
    @pytest.mark.parametrize("estimator", [TREE, FOREST, BOOSTED], ids=["tree", "forest", "boosted"])
    def test_leaves(self, estimator: Any) -> None:
        fitted = clone(estimator).fit(X, y)
        model = fitted.model_
        leaves = fitted.apply(X_TEST)
        assert leaves.shape == ((len(X_TEST), model.n_trees) if model.is_forest else (len(X_TEST),))
        for column, root in zip(leaves.reshape(len(X_TEST), -1).T, model.roots, strict=True):
            nodes = column + root
            assert (model.nodes["feature"][nodes] < 0).all()
        assert fitted.get_n_leaves() == model.n_leaves
        assert fitted.get_depth() == model.max_depth
        # Rows in the same leaves have the same probabilities.
        _, groups = np.unique(leaves.reshape(len(X_TEST), -1), axis=0, return_inverse=True)
        for group in set(groups.reshape(-1).tolist()):
            assert len(np.unique(fitted.predict_proba(X_TEST)[groups.reshape(-1) == group], axis=0)) == 1

    def test_leaves_are_counted_as_scikit_learn_does(self) -> None:
        theirs = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
        ours = clone(TREE).fit(X, y)
        ours.model_ = import_object(theirs).model
        assert np.array_equal(ours.apply(X_TEST), theirs.apply(X_TEST))
        assert (ours.get_depth(), ours.get_n_leaves()) == (theirs.get_depth(), theirs.get_n_leaves())

    def test_importances_belong_to_columns(self) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"noise": X[:, 1] * 0, "kind": y, "length": X[:, 2]})
        fitted = clone(TREE).fit(frame, y)
        assert fitted.feature_importances_.shape == (3,)
        assert fitted.feature_importances_.sum() == pytest.approx(1)
        assert fitted.feature_importances_[0] == 0

    def test_verbose(self, capsys: pytest.CaptureFixture[str]) -> None:
        clone(TREE).fit(X, y)
        assert capsys.readouterr().out == ""
        clone(TREE).set_params(verbose=1).fit(X, y)
        few = capsys.readouterr().out.splitlines()
        clone(TREE).set_params(verbose=2).fit(X, y)
        all_steps = capsys.readouterr().out.splitlines()
        assert 1 <= len(few) < len(all_steps)
        assert all(line.startswith("[MetaSilvaeClassifier] ") and "robust accuracy" in line for line in all_steps)

    def test_warm_start(self) -> None:
        long = clone(TREE).fit(X, y)
        short = clone(TREE).set_params(max_iter=1, n_iter_no_change=1, random_state=5, warm_start=True)
        short.model_ = long.model_
        order = np.argsort(y, kind="stable")[::-1]
        warm = short.fit(X[order], y[order])
        cold = clone(short).set_params(warm_start=False).fit(X[order], y[order])
        phi = [0.9 * accuracy + 0.1 * stability for accuracy, stability, _ in
               (each.robust_metrics(X, y) for each in (warm, cold, long))]  # fmt: skip
        assert phi[0] >= phi[2] - 0.02
        assert phi[0] >= phi[1]
        with pytest.raises(ValueError, match="warm_start needs the classes"):
            warm.fit(X[:100], np.where(y == "setosa", "other", y)[:100])
        with pytest.raises(ValueError, match="warm_start needs the classes"):
            warm.fit(X[:, :2], y)


class TestSelection:
    def test_pickle(self) -> None:
        for estimator in (TREE, FOREST):
            fitted = clone(estimator).fit(X, y)
            again = pickle.loads(pickle.dumps(fitted))
            assert same_model(again.model_, fitted.model_)
            assert np.array_equal(again.predict(X_TEST), fitted.predict(X_TEST))

    def test_scorers(self) -> None:
        tree = clone(TREE).fit(X, y)
        accuracy, stability, robust_accuracy = tree.robust_metrics(X_TEST, Y_TEST, 0.3)
        assert robust_accuracy_scorer(0.3)(tree, X_TEST, Y_TEST) == robust_accuracy
        assert stability_scorer(0.3)(tree, X_TEST, Y_TEST) == stability
        assert fitness_scorer(0.3)(tree, X_TEST, Y_TEST) == pytest.approx(0.9 * accuracy + 0.1 * stability)
        assert robust_accuracy_scorer()(tree, X_TEST, Y_TEST) == tree.robust_score(X_TEST, Y_TEST)
        assert pickle.loads(pickle.dumps(robust_accuracy_scorer(0.3))) == robust_accuracy_scorer(0.3)

    def test_cross_validation(self) -> None:
        scores = cross_val_score(TREE, X, y, cv=3, scoring=robust_accuracy_scorer(0.1))
        assert (scores > 0.5).all()
        assert (scores <= cross_val_score(TREE, X, y, cv=3)).all()

    def test_pipeline(self) -> None:
        pipeline = make_pipeline(MinMaxScaler(), MetaSilvaeClassifier(0.05, preset="fast")).fit(X, y)
        assert pipeline.score(X_TEST, Y_TEST) > 0.8
        scaled = pipeline[:-1].transform(X_TEST)
        assert robust_accuracy_scorer()(pipeline, X_TEST, Y_TEST) == pipeline[-1].robust_score(scaled, Y_TEST)
        alone = make_pipeline(TREE).fit(X, y)
        assert stability_scorer(0.1)(alone, X_TEST, Y_TEST) == alone[-1].robust_metrics(X_TEST, Y_TEST, 0.1)[1]

    def test_grid_search(self) -> None:
        pipeline = make_pipeline(MinMaxScaler(), TREE)
        grid = {"metasilvaeclassifier__max_leaf_nodes": [1, 4], "metasilvaeclassifier__epsilon": [0.02]}
        search = GridSearchCV(pipeline, grid, cv=3, scoring=robust_accuracy_scorer(0.02)).fit(X, y)
        assert search.best_params_["metasilvaeclassifier__max_leaf_nodes"] == 4
        assert robust_accuracy_scorer(0.02)(search, X_TEST, Y_TEST) > 0.5

    def test_other_estimators(self) -> None:
        other = DecisionTreeClassifier(max_leaf_nodes=4, random_state=0).fit(X, y)
        assert fitness_scorer(0.1, 1.0, 0.0)(other, X_TEST, Y_TEST) == other.score(X_TEST, Y_TEST)
        model = import_object(other).model
        counts = metasilvae.verify(model, TEST, 0.1).counts
        assert robust_accuracy_scorer(0.1)(other, X_TEST, Y_TEST) == counts.robust / counts.size
        assert 0 < counts.robust < counts.size
        with pytest.raises(TypeError, match="no epsilon of training"):
            robust_accuracy_scorer()(other, X, y)
        with pytest.raises(ModelError, match="a GaussianNB cannot be imported"):
            robust_accuracy_scorer(0.1)(GaussianNB().fit(X, y), X, y)

    def test_forests_of_other_libraries(self) -> None:
        other = RandomForestClassifier(3, max_depth=3, random_state=0).fit(X, y)
        accuracy, robust_accuracy = (
            scorer(other, X_TEST, Y_TEST) for scorer in (fitness_scorer(0.1, 1.0, 0.0), robust_accuracy_scorer(0.1))
        )
        assert 0 < robust_accuracy < accuracy <= other.score(X_TEST, Y_TEST)

    def test_labels_of_other_estimators(self) -> None:
        for labels in (TRAIN.y.astype(float), TRAIN.y.astype(bool), TRAIN.y, y):
            other = DecisionTreeClassifier(random_state=0).fit(X, labels)
            assert fitness_scorer(0.1, 1.0, 0.0)(other, X, labels) == 1.0

    def test_names_of_features(self) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(X, columns=list("abcd"))
        tree = clone(TREE).fit(frame, y)
        assert tree.feature_names_in_.tolist() == list("abcd")
        with pytest.raises(ValueError, match="feature names should match"):
            tree.certify(frame[list("dcba")])


@pytest.mark.parametrize("change", [{"leaf_penalty": -1.0}, {"options": {"no_such": 1}}, {"perturbation": "wrong"}])
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(change: dict[str, object]) -> None:
    X = np.random.default_rng(0).random((80, 2))
    y = (X[:, 0] > 0.5).astype(int)
    estimator = MetaSilvaeClassifier(epsilon=0.01, preset="fast").fit(X, y)
    before, predicted = dict(vars(estimator)), estimator.predict(X)
    estimator.set_params(**change)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        estimator.fit(np.column_stack([X, X]), np.where(y == 1, "no", "yes"))
    assert (estimator.predict(X) == predicted).all()
    assert {**vars(estimator), **dict.fromkeys(change)} == {**before, **dict.fromkeys(change)}
    fresh = MetaSilvaeClassifier(epsilon=0.01, preset="fast", **change)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        fresh.fit(X, y)
    assert not [name for name in vars(fresh) if name.endswith("_")]


def test_messages_about_two_options_name_parameters() -> None:
    X = np.random.default_rng(0).random((40, 2))
    estimator = MetaSilvaeClassifier(epsilon=0.01, tune=True, leaf_penalty=2.0)
    with pytest.raises(ValueError, match="exclude each other"):
        estimator.fit(X, X[:, 0] > 0.5)
