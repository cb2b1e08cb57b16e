"""Columns of data and features of models are matched by name, in Python."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracles import data_of, make_model, models

import metasilvae
from metasilvae import api
from metasilvae.analysis.difference import DifferenceStatus, compare_models
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, MetasilvaeWarning, ModelError, PerturbationError
from metasilvae.model import LeafKind, Model, ModelDescription, join_trees, place_features, unify_features
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import align, predict
from metasilvae.voting import choose_voting


def named(model: Model, names: tuple[str, ...], **others: object) -> Model:
    return replace(model, description=ModelDescription(names, **others))  # type: ignore[arg-type]


@st.composite
def models_and_orders(draw: st.DrawFn) -> tuple[Model, Dataset, Dataset]:
    """A model with names, data in its order, and the same data in another order with further columns."""
    model = draw(models(simple_labels=True))
    names = tuple(
        draw(st.lists(st.text(max_size=3), min_size=model.n_features, max_size=model.n_features, unique=True))
    )
    values = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, *model.nodes["threshold"].tolist()])
    rows = draw(
        st.lists(st.lists(values, min_size=model.n_features, max_size=model.n_features), min_size=1, max_size=5)
    )
    usual = replace(data_of(rows, [model.labels[0]] * len(rows)), feature_names=names)
    n_further = draw(st.integers(0, 2))
    further = [f"further {number}" for number in range(n_further)]
    order = draw(st.permutations(range(model.n_features + n_further)))
    X = np.column_stack([usual.X, np.full((len(rows), n_further), 7.0)])[:, order]
    mixed = replace(usual, X=np.ascontiguousarray(X), feature_names=tuple([*names, *further][f] for f in order))
    return named(model, names), usual, mixed


@given(models_and_orders())
def test_another_order_gives_the_same(case: tuple[Model, Dataset, Dataset]) -> None:
    model, usual, mixed = case
    n_further = mixed.n_features - usual.n_features
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        aligned = align(model, mixed)
    assert len(caught) == (n_further > 0)
    assert aligned.X.tobytes() == usual.X.tobytes()
    assert aligned.feature_names == usual.feature_names
    assert align(model, aligned) is aligned
    assert aligned.omitted_names == tuple(name for name in mixed.feature_names or () if name.startswith("further "))
    # The place of each column of the file.
    place = aligned.feature_of_column
    if place is not None:
        for column, feature in enumerate(place.tolist()):
            name = (mixed.feature_names or ())[column]
            assert name in aligned.omitted_names if feature < 0 else usual.feature_names[feature] == name  # type: ignore[index]
    # The model in the order of the data predicts the same.
    names = mixed.feature_names
    assert names is not None
    moved = place_features(model, names)
    assert moved.n_features == mixed.n_features
    one, other = predict(model, usual.X), predict(moved, mixed.X)
    assert (one.sets, one.ids.tolist()) == (other.sets, other.ids.tolist())
    if n_further == 0:
        assert compare_models(model, moved, max_regions=1).result is DifferenceStatus.EQUAL


@given(models_and_orders())
def test_missing_columns_are_refused(case: tuple[Model, Dataset, Dataset]) -> None:
    model, usual, _ = case
    if usual.n_features < 2:
        return
    names = usual.feature_names
    assert names is not None
    fewer = usual.take_features(range(usual.n_features - 1), names[:-1])
    with pytest.raises(ModelError, match=f"lacks 1 of the {len(names)} columns of") as caught:
        align(model, fewer)
    assert "\n" not in str(caught.value)


def test_data_without_names_get_those_of_the_model() -> None:
    model = named(make_model([(1, 0.5, [1, 0], [0, 1])], 2, "ab"), ("u", "v"))
    rows = data_of([[1.0, 0.0]], ["a"])
    assert align(model, rows).feature_names == ("u", "v")
    assert align(model, rows).X is rows.X
    assert align(replace(model, description=ModelDescription()), rows) is rows


def test_reports_escape_names() -> None:
    model = named(make_model([(1, 0.5, [1, 0], [0, 1])], 2, "ab"), ("u\n\x1b[31m", "v"))
    assert align(model, data_of([[1.0, 0.0]], ["a"])).feature_name(0) == "u\\n\\x1b[31m"


# Forests


def test_join_matches_features_and_keeps_what_trees_share() -> None:
    one = named(
        make_model([(0, 0.5, [1, 0], [0, 1])], 2, "ab"), ("u", "v"), provenance={"seed": 1, "data": {"rows": 3}}
    )
    other = named(
        make_model([(1, 0.5, [1, 0], [0, 1])], 2, "ab"), ("v", "u"), provenance={"seed": 2, "data": {"rows": 3}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forest = join_trees([one, other])
    assert forest.description == ModelDescription(("u", "v"), provenance={"data": {"rows": 3}})
    assert forest.nodes["feature"].tolist() == [0, -1, -1, 0, -1, -1]
    with pytest.raises(ModelError, match=r"its features are not those of .*'v', 'w'"):
        join_trees([one, named(other, ("u", "w"))])


def test_join_warns_of_what_it_drops() -> None:
    forest = join_trees([make_model([[1, 0]], 1, "ab"), make_model([[0, 1]], 1, "ab")])
    average = replace(forest, description=ModelDescription(voting="average"))
    tree = make_model([[1, 0]], 1, "ab")
    assert join_trees([average, tree]).description.voting == "average"
    assert join_trees([average, average]).description.voting == "average"
    with pytest.warns(MetasilvaeWarning, match="differ in their voting, which the forest does not have; it votes as"):
        mixed = join_trees([average, forest])
    assert mixed.description.voting is None
    with pytest.warns(MetasilvaeWarning, match="differ in their feature names and label name"):
        bare = join_trees([named(tree, ("u",), label_name="y"), tree])
    assert bare.description == ModelDescription()


def test_unify_uses_all_features() -> None:
    one = named(make_model([(1, 0.5, [1, 0], [0, 1])], 2, "ab"), ("u", "v"))
    other = named(make_model([(0, 0.5, [1, 0], [0, 1])], 1, "ab"), ("w",))
    first, second = unify_features([one, other])
    assert first.description.feature_names == second.description.feature_names == ("u", "v", "w")
    assert (first.tested_features.tolist(), second.tested_features.tolist()) == ([1], [2])


def test_voting() -> None:
    forest = make_model([[1, 0], [0, 1]], 1, "ab", LeafKind.COUNTS)
    average = replace(forest, description=ModelDescription(voting="average"))
    assert choose_voting(average, None) == "average"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_voting(average, "average") == "average"
        assert choose_voting(forest, "average") == "average"
        assert choose_voting(average.tree(0), "max") == "max"
    with pytest.warns(MetasilvaeWarning, match="its trees vote by average; --voting max"):
        assert choose_voting(average, "max") == "max"


# Attacks


def test_an_attack_follows_its_columns() -> None:
    model = named(make_model([(1, 0.5, [1, 0], [0, 1])], 2, "ab"), ("u", "v"))
    rows = replace(data_of([[0.2, 3.0, 0.0]], ["a"]), feature_names=("v", "further", "u"))
    rules = parse_attack(b"[default]\nradius = 0\n[columns.v]\nradius = 0.4\n", "attack.toml")
    attack = fit_attack(rules, rows)
    with pytest.warns(MetasilvaeWarning, match="1 column is ignored"):
        assert api.verify(model, rows, attack).counts.unstable == 1
    with pytest.raises(PerturbationError, match="was fitted to other columns, without 'w'"):
        attack.boxes(replace(rows, feature_names=("v", "further", "w")))
    group = parse_attack(b'[default]\nradius = 0\n[[one-hot]]\ncolumns = ["u", "further"]\n', "attack.toml")
    cut = fit_attack(group, replace(rows, X=np.array([[0.2, 1.0, 0.0]])))
    with pytest.raises(PerturbationError, match="lacks 'further', a member of a one-hot group"):
        cut.boxes(replace(data_of([[0.2, 1.0]], ["a"]), feature_names=("v", "u")))


# DataFrames


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    iris = metasilvae.read_dataset("builtin:iris/train")
    frame = pandas.DataFrame(iris.X, columns=iris.feature_names)
    y = pandas.Series([iris.labels[label] for label in iris.y], name="species")
    dataset = metasilvae.make_dataset(frame, y)
    assert (dataset.feature_names, dataset.label_name) == (iris.feature_names, "species")
    model = metasilvae.train(dataset, 0.1, preset="fast")
    assert (model.description.feature_names, model.description.label_name) == (iris.feature_names, "species")
    usual = metasilvae.predict(model, frame)
    mixed = frame[frame.columns[::-1]]
    assert metasilvae.predict(model, mixed).ids.tolist() == usual.ids.tolist()
    assert metasilvae.predict(model, frame.to_numpy()).ids.tolist() == usual.ids.tolist()
    assert metasilvae.predict(model, mixed.to_numpy()).ids.tolist() != usual.ids.tolist()
    with pytest.warns(MetasilvaeWarning, match="1 column is ignored"):
        metasilvae.predict(model, mixed.assign(id=1.0))
    with pytest.raises(ModelError, match="lacks 1 of the 4 columns"):
        metasilvae.predict(model, frame.drop(columns="petal_width"))
    # Numbers as names of columns are no names, as in scikit-learn.
    assert metasilvae.make_dataset(pandas.DataFrame(iris.X), y).feature_names is None
    outcome = metasilvae.verify(model, metasilvae.make_dataset(mixed, y), Ball(0.1))
    assert outcome.counts == metasilvae.verify(model, dataset, 0.1).counts
    with pytest.raises(DataError, match="X has 4 features, but there are 1 feature_names"):
        metasilvae.make_dataset(iris.X, y, ["u"])


def test_estimators_check_names_as_scikit_learn_does(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    iris = metasilvae.read_dataset("builtin:iris/train")
    frame = pandas.DataFrame(iris.X, columns=iris.feature_names)
    y = pandas.Series([iris.labels[label] for label in iris.y], name="species")
    fitted = metasilvae.MetaSilvaeClassifier(0.1, preset="fast").fit(frame, y)
    assert fitted.model_.description.feature_names == iris.feature_names
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame[frame.columns[::-1]])
    assert fitted.certify(frame).sum() > 0
    # The file has the names, so that every other program matches by name.
    fitted.save(tmp_path / "m.silva")
    read = metasilvae.read_model(str(tmp_path / "m.silva"))
    assert (read.description.feature_names, read.description.label_name) == (iris.feature_names, "species")
    found = metasilvae.predict(read, frame[frame.columns[::-1]])
    assert [read.labels[found.sets[number][0]] for number in found.ids] == fitted.predict(frame).tolist()
