"""Commands that take a model of another library directly, and what its import leaves in the model."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.boosted_models import CATBOOST, LIGHTGBM
from support.command import run, write

from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.silva_models import read_model, same_model
from metasilvae.interop.imports import ImportOptions, compare_with_library, import_file, import_object
from metasilvae.interop.imports.comparison import RANDOM_ROWS
from metasilvae.interop.models import load_model
from metasilvae.model import NO_DESCRIPTION, LeafKind
from metasilvae.prediction import predict

ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed (extra: sklearn)")


def make_data(n_rows: int = 200, n_labels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_labels)
    X = np.round(rng.normal(size=(n_rows, 5)), 1)
    y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int) + (X[:, 2] > 0.7) * (n_labels > 2)
    return X, np.where(rng.random(n_rows) < 0.1, rng.integers(n_labels, size=n_rows), y)


def write_rows(tmp_path: Path, X: np.ndarray, y: np.ndarray) -> str:
    rows = zip(y.tolist(), X.tolist(), strict=True)
    return write(tmp_path, "rows.csv", "".join(f"{label},{','.join(map(repr, row))}\n" for label, row in rows))


KINDS = ("xgboost", "packed", "lightgbm", "catboost", "skops", "onnx")


def make_file(kind: str, tmp_path: Path) -> str:
    """A small file of a format that needs no option."""
    X, y = make_data(n_labels=2)
    path = str(tmp_path / f"model.{kind}")
    if kind in ("xgboost", "packed"):
        xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
        fitted = xgboost.XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1).fit(X, y)
        content = bytes(fitted.get_booster().save_raw("json" if kind == "xgboost" else "ubj"))
        Path(path).write_bytes(content if kind == "xgboost" else gzip.compress(content))
    elif kind == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)")
        lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1).fit(X, y).booster_.save_model(path)
    elif kind == "catboost":
        catboost = pytest.importorskip("catboost", reason="CatBoost is not installed (extra: catboost)")
        fitted = catboost.CatBoostClassifier(iterations=3, depth=2, verbose=False, allow_writing_files=False).fit(X, y)
        fitted.save_model(path, format="json")
    else:
        fitted = ensemble.RandomForestClassifier(3, max_depth=2, random_state=0).fit(X, y)
        if kind == "skops":
            pytest.importorskip("skops.io", reason="skops is not installed (extra: sklearn)").dump(fitted, path)
        else:
            convert = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed").to_onnx
            options = {"zipmap": False}
            Path(path).write_bytes(convert(fitted, X[:1].astype(np.float32), options=options).SerializeToString())
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_loaded_as_the_import_writes_it(kind: str, tmp_path: Path) -> None:
    path = make_file(kind, tmp_path)
    with pytest.warns(MetasilvaeWarning, match=r"imported \(.*, compared with .* rows\)"):
        direct = load_model(path)
    imported = import_file(path)
    assert same_model(direct, imported.model)
    assert direct.description == imported.model.description
    provenance = direct.description.provenance
    assert provenance == {
        "imported_from": imported.origin,
        "file": Path(path).name,
        "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_commands_take_it(kind: str, tmp_path: Path) -> None:
    model, converted = make_file(kind, tmp_path), tmp_path / "converted.silva"
    run("import", model, converted)
    data = write_rows(tmp_path, *make_data(30, 2))
    for command in (
        ["verify", "{}", data, "--epsilon", "0.1"],
        ["evaluate", "{}", data, "--epsilon", "0.1"],
        ["predict", "{}", data],
        ["explain", "{}", data, "--epsilon", "0.1"],
        ["info", "{}"],
        ["export", "{}", "--to", "text"],
        ["similarity", "{}", converted, data],
        ["diff", "{}", converted],
    ):
        told = run(*(model if word == "{}" else word for word in command))
        same = run(*(converted if word == "{}" else word for word in command))
        assert f"{model}: imported (" in told.stderr
        if command[0] in ("predict", "export", "similarity"):
            assert told.stdout == same.stdout
    page = tmp_path / "page.html"
    run("report", model, data, "--epsilon", "0.1", "--output", page)
    assert page.stat().st_size > 1000


def test_from_standard_input(tmp_path: Path) -> None:
    content = Path(make_file("xgboost", tmp_path)).read_bytes()
    data = write_rows(tmp_path, *make_data(30, 2))
    assert run("predict", "-", data, stdin=content).stdout == run("predict", tmp_path / "model.xgboost", data).stdout


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (self.path,)


def test_a_pickle_is_refused_with_the_command_to_type(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    trap = Malicious()
    trap.path = str(canary)
    path = write(tmp_path, "my model.pkl", pickle.dumps(trap))
    for command in (["info", path], ["predict", path, write(tmp_path, "d.csv", "0,0\n1,1\n")]):
        told = run(*command, code=1).stderr
        assert "loading one can run any program hidden in it" in told
        assert f"metasilvae import '{path}' model.silva --trust" in told
    assert not canary.exists()


def test_a_damaged_model_of_silva_keeps_its_message(tmp_path: Path) -> None:
    told = run("info", write(tmp_path, "x.silva", "klassifier-tree 1 2 a b LEAF 1 1"), code=1).stderr
    assert "x.silva:1: " in told
    assert "classifier-decision-tree" in told


# Forests of weighted samples


@pytest.mark.parametrize("weight", ["balanced", "balanced_subsample", {0: 0.1, 1: 1 / 3, 2: 1e-3}])
@pytest.mark.parametrize("name", ["RandomForestClassifier", "ExtraTreesClassifier"])
def test_weighted_forests_hold_the_fractions_of_the_library(name: str, weight: Any) -> None:
    X, y = make_data(400)
    fitted = getattr(ensemble, name)(10, class_weight=weight, max_depth=5, random_state=0).fit(X, y)
    imported = import_object(fitted, data=X)
    if imported.model.leaf_kind is LeafKind.COUNTS:
        # scikit-learn 1.9 draws samples by their weights, so that leaves count whole samples.
        assert name == "RandomForestClassifier"
        return
    assert imported.notes == ("leaves hold the weighted fractions of the classes as scores, without rounding",)
    fractions = np.concatenate([tree.tree_.value[:, 0, :] for tree in fitted.estimators_])
    known = {row.tobytes() for row in fractions}
    assert all(row.tobytes() in known for row in imported.model.leaf_values)
    found = predict(imported.model, X)
    assert [found.sets[number] for number in found.ids] == [(label,) for label in fitted.predict(X).tolist()]


def test_forests_predict_as_the_library_without_any_option(tmp_path: Path) -> None:
    X, y = make_data(1000)
    fitted = ensemble.RandomForestClassifier(7, max_depth=3, random_state=0).fit(X, y)
    imported = import_object(fitted)
    theirs = fitted.predict(X).tolist()
    ours = predict(imported.model, X)
    by_vote = predict(replace(imported.model, description=NO_DESCRIPTION), X, "max")
    assert all(label in ours.sets[number] for label, number in zip(theirs, ours.ids, strict=True))
    assert not all(label in by_vote.sets[number] for label, number in zip(theirs, by_vote.ids, strict=True))


# Splits by categories, as scikit-learn 1.10 stores them


class Changed:
    """A tree of scikit-learn with some attributes of a newer version."""

    def __init__(self, tree: Any, **changes: Any) -> None:
        self._tree = tree
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        return self._changes[name] if name in self._changes else getattr(self._tree, name)

    def __getstate__(self) -> Any:
        return self._changes.get("state") or self._tree.__getstate__()


def test_categories_of_newer_versions_are_refused() -> None:
    tree = pytest.importorskip("sklearn.tree")
    X, y = make_data()
    fitted = tree.DecisionTreeClassifier(max_depth=3).fit(X, y)
    own = fitted.tree_
    fitted.is_categorical_ = np.zeros(5, dtype=bool)
    import_object(fitted)
    fitted.is_categorical_ = np.array([False, True, False, False, False])
    with pytest.raises(ModelError, match="has categorical features"):
        import_object(fitted)
    del fitted.is_categorical_
    threshold = own.threshold.copy()
    threshold[0] = -np.inf
    fitted.tree_ = Changed(own, threshold=threshold)
    with pytest.raises(ModelError, match="a split has the threshold -inf; a split by categories cannot be imported"):
        import_object(fitted)
    nodes = own.__getstate__()["nodes"]
    fields = [(name, nodes.dtype[name]) for name in nodes.dtype.names]
    wider = np.zeros(len(nodes), dtype=[*fields, ("is_categorical", "u1")])
    for name in nodes.dtype.names:
        wider[name] = nodes[name]
    fitted.tree_ = Changed(own, state={**own.__getstate__(), "nodes": wider})
    import_object(fitted, check=False)
    wider["is_categorical"][0] = 1
    with pytest.raises(ModelError, match="a node has 'is_categorical', which this version"):
        import_object(fitted, check=False)
    fitted.tree_ = Changed(own, state={**own.__getstate__(), "category_bitsets": np.ones(3)})
    with pytest.raises(ModelError, match="a tree has 'category_bitsets', which this version"):
        import_object(fitted, check=False)


# Keys of documents


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all objects of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return [
        *([path] if isinstance(value, dict) else []),
        *(p for key, item in items for p in places(item, (*path, key))),
    ]


def change(document: Any, path: tuple[Any, ...], value: Any) -> str:
    changed = json.loads(json.dumps(document))
    target = changed
    for key in path:
        target = target[key]
    target["new_thing"] = value
    return json.dumps(changed)


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_every_object_of_a_file_of_xgboost_refuses_unknown_keys(booster: str, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    X, y = make_data()
    fitted = xgboost.XGBClassifier(n_estimators=2, max_depth=2, booster=booster, n_jobs=1).fit(X, y)
    document = json.loads(fitted.get_booster().save_raw("json"))
    paths = [path for path in places(document) if path[-1:] != ("cats",)]
    assert len(paths) >= 9
    for path in paths:
        content = change(document, path, [1])
        # Attributes are notes of users; statistics of the objective are not used for predictions.
        if path[-1:] in (("attributes",), ("softmax_multiclass_param",), ("reg_loss_param",)):
            import_file(write(tmp_path, "m.json", content), check=False)
        else:
            with pytest.raises(ModelError, match="'new_thing', which this version of metasilvae does not know"):
                import_file(write(tmp_path, "m.json", content), check=False)
        import_file(write(tmp_path, "m.json", change(document, path, [])), check=False)


def test_every_object_of_a_file_of_catboost_refuses_unknown_keys(tmp_path: Path) -> None:
    for path in places(CATBOOST):
        content = change(CATBOOST, path, [1])
        # The settings of training are not used for predictions.
        if "params" in path:
            import_file(write(tmp_path, "m.json", content), check=False)
        else:
            with pytest.raises(ModelError, match="'new_thing', which this version of metasilvae does not know"):
                import_file(write(tmp_path, "m.json", content), check=False)


@pytest.mark.parametrize("line", ["version=v4", "num_cat=0"])
def test_a_file_of_lightgbm_refuses_unknown_keys(line: str, tmp_path: Path) -> None:
    path = write(tmp_path, "m.txt", LIGHTGBM.replace(line, f"{line}\nnew_thing=1"))
    with pytest.raises(ModelError, match="'new_thing', which this version of metasilvae does not know"):
        import_file(path, check=False)


# Names


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_names_in_files_of_xgboost(form: str, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = make_data()
    names = ("a", "b c", "x,y", "ü", '"')
    fitted = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(pandas.DataFrame(X, columns=list(names)), y)
    path = str(tmp_path / f"model.{form}")
    fitted.save_model(path)
    for imported in (import_file(path, data=X), import_object(fitted, data=X), import_object(fitted.get_booster())):
        assert imported.comparison is not None
        assert imported.model.description.feature_names == names
    assert 'features  a, b c, x,y, ü, "\n' in run("import", path, tmp_path / "out.silva").stdout
    renamed = run("import", path, tmp_path / "out.silva", "--feature-names", "p,q,r,s,t").stdout
    assert "features  p, q, r, s, t\n" in renamed
    told = run("import", path, tmp_path / "out.silva", "--feature-names", "p,q", code=1).stderr
    assert "2 names were given with --feature-names, the model has 5 features" in told


# The budget of the comparison


def test_large_models_are_compared_in_part(tmp_path: Path) -> None:
    X, y = make_data(600)
    fitted = ensemble.RandomForestClassifier(20, random_state=0).fit(X, y)
    imported = import_object(fitted, check=False)
    n_splits = imported.model.n_nodes - imported.model.n_leaves
    part = compare_with_library(imported, X, max_rows=400)
    assert part is not None
    assert (part.n_splits, part.n_thresholds, part.n_random, part.n_data) == (50, 400, RANDOM_ROWS, 600)
    whole = compare_with_library(imported, max_rows=8 * n_splits)
    assert whole is not None
    assert whole.n_splits == n_splits
    path = write(tmp_path, "forest.pickle", pickle.dumps(fitted))
    told = run("import", path, tmp_path / "f.silva", "--trust", "--max-rows", "400").stdout
    assert f"400 beside 50 of {n_splits} thresholds (chosen at random; --max-rows compares more)" in told


def test_a_wrong_import_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import_object` and scorers compare without being asked."""
    from metasilvae.interop.imports import scikit_learn
    from metasilvae.sklearn import robust_accuracy_scorer

    X, y = make_data()
    fitted = ensemble.RandomForestClassifier(3, random_state=0).fit(X, y)
    right = scikit_learn.fold_at_most
    monkeypatch.setattr(scikit_learn, "fold_at_most", lambda thresholds: np.nextafter(right(thresholds), -np.inf))
    import_object(fitted, check=False)
    with pytest.raises(ModelError, match="the import differs from its source"):
        import_object(fitted)
    with pytest.raises(ModelError, match="the import differs from its source"):
        robust_accuracy_scorer(0.1)(fitted, X, y)


def test_scorers_take_columns_as_the_estimator_does() -> None:
    """By position; the estimator itself refuses other columns, and LightGBM has changed the names."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)")
    from metasilvae.sklearn import stability_scorer

    X, y = make_data()
    table = pandas.DataFrame(X, columns=["a", "b c", "c", "d", "e"])
    score = stability_scorer(0.1)
    for estimator in (
        lightgbm.LGBMClassifier(n_estimators=2, verbose=-1),
        ensemble.RandomForestClassifier(3, random_state=0),
    ):
        assert score(estimator.fit(table, y), table, y) == score(estimator, X, y)
    with pytest.raises(ValueError, match="feature names"):
        score(estimator, table[table.columns[::-1]], y)


def test_names_that_cannot_be_told_apart_are_left_out() -> None:
    fitted = ensemble.RandomForestClassifier(2, random_state=0).fit(*make_data())
    for names, note in ((("a", "a", "b", "c", "d"), "two features"), (("\ud800", "a", "b", "c", "d"), "not Unicode")):
        imported = import_object(fitted, ImportOptions(feature_names=names))
        assert imported.model.description.feature_names is None
        assert note in imported.notes[0]


def test_a_plain_import_names_the_voting_that_it_leaves_out(tmp_path: Path) -> None:
    path = write(
        tmp_path, "f.pickle", pickle.dumps(ensemble.RandomForestClassifier(3, random_state=0).fit(*make_data()))
    )
    output = tmp_path / "f.silva"
    assert "voting    average, part of the model\n" in run("import", path, output, "--trust").stdout
    assert read_model(str(output)).description.voting == "average"
    told = run("import", path, output, "--trust", "--plain").stdout
    assert "voting    average; other commands need --voting average\n" in told
    assert read_model(str(output)).description == NO_DESCRIPTION
