"""``import`` of XGBoost's dumps: the predictions of the model that was dumped, or a refusal."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.boosted_models import DUMP, JSON_DUMP
from support.command import run, write

from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.silva_models import read_model
from metasilvae.interop.imports import ImportOptions, import_file, import_object
from metasilvae.interop.imports.imported import Imported, NeedsOptions
from metasilvae.prediction import predict

NAMES = ["alpha", "be ta", "gamma=1,yes", "delta", "eps"]


def make_data(n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_labels)
    X = rng.normal(size=(150, 5))
    return X, (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int) + (X[:, 2] > 0.7) * (n_labels > 2)


def train(n_labels: int, names: list[str] | None = None, **parameters: Any) -> Any:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    X, y = make_data(n_labels)
    objective = {"objective": "binary:logistic"} if n_labels == 2 else {"objective": "multi:softprob", "num_class": 3}
    settings = {"max_depth": 4, "nthread": 1, "seed": 1, "verbosity": 0, **objective, **parameters}
    return xgboost.train(settings, xgboost.DMatrix(X, label=y, nthread=1, feature_names=names), 5)


def base_score(booster: Any) -> tuple[float, ...]:
    text = json.loads(booster.save_raw("json"))["learner"]["learner_model_param"]["base_score"]
    return tuple(float(word) for word in text.strip("[]").split(","))


def import_dump(tmp_path: Path, content: str, n_labels: int = 2, **options: Any) -> Imported:
    given = {"labels": tuple("abc"[:n_labels]), "base_score": (0.5,), **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetasilvaeWarning)
        return import_file(write(tmp_path, "dump", content), None, ImportOptions(**given))


@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("with_stats", [False, True])
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_a_dump_is_the_model(n_labels: int, form: str, with_stats: bool, names: Any, tmp_path: Path) -> None:
    """Nodes, thresholds and scores are those of the model file, bit for bit."""
    booster = train(n_labels, names)
    path = str(tmp_path / "dump.out")
    booster.dump_model(path, with_stats=with_stats, dump_format=form)
    options = ImportOptions(
        tuple("abc"[:n_labels]), base_score=base_score(booster), feature_names=names and tuple(names)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetasilvaeWarning)
        dumped = import_file(path, None, options)
    expected = import_object(booster).model
    np.testing.assert_array_equal(dumped.model.leaf_values, expected.leaf_values)
    for field in ("feature", "threshold", "left", "right", "leaf"):
        np.testing.assert_array_equal(dumped.model.nodes[field], expected.nodes[field])
    assert dumped.model.description.feature_names == (names and tuple(names))
    assert dumped.model.description.voting == "softargmax"
    assert dumped.comparison is None


def test_9_digits_determine_every_float32() -> None:
    """What the documentation says about the numbers of a dump."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    assert all(np.float32(f"{number:.9g}") == number for number in numbers)


def test_features_are_those_that_are_tested(tmp_path: Path) -> None:
    booster = train(2, NAMES)
    imported = import_dump(tmp_path, "".join(booster.get_dump()), base_score=base_score(booster))
    used = imported.model.description.feature_names
    assert used is not None
    assert set(used) <= set(NAMES)
    X, _ = make_data(2)
    columns = np.ascontiguousarray(X[:, [NAMES.index(name) for name in used]])
    found = predict(imported.model, columns)
    import xgboost

    theirs = booster.predict(xgboost.DMatrix(X, feature_names=NAMES)) > 0.5
    assert [found.sets[number] for number in found.ids] == [(int(label),) for label in theirs]
    assert any("data need column names" in note for note in imported.notes)


def test_the_number_of_features(tmp_path: Path) -> None:
    assert import_dump(tmp_path, DUMP).model.n_features == 2
    assert import_dump(tmp_path, DUMP, n_features=7).model.n_features == 7
    named = import_dump(tmp_path, DUMP, feature_names=("x", "y", "z")).model
    assert (named.n_features, named.description.feature_names) == (3, ("x", "y", "z"))
    with pytest.raises(ModelError, match="tests feature 1, but the model has 1 features"):
        import_dump(tmp_path, DUMP, n_features=1)
    text = DUMP.replace("f0", "age").replace("f1", "size")
    with pytest.raises(ModelError, match="--feature-names lacks size, which the trees test"):
        import_dump(tmp_path, text, feature_names=("age", "weight"))


def test_what_a_dump_lacks_is_asked_for(tmp_path: Path) -> None:
    for content in (DUMP, JSON_DUMP):
        path = write(tmp_path, "dump", content)
        with pytest.raises(NeedsOptions, match="neither the base score nor the labels"):
            import_file(path)
        result = run("verify", path, write(tmp_path, "d.csv", "a,1,2\nb,2,3\n"), "--epsilon", "0.1", code=1)
        assert f"metasilvae import {path} model.silva --base-score 0.5 --labels A,B" in result.stderr
    with pytest.raises(ModelError, match="at least 2 labels"):
        import_dump(tmp_path, DUMP, labels=("a",))
    with pytest.raises(ModelError, match="1 trees are not a multiple of 3 labels"):
        import_dump(tmp_path, DUMP, 3)
    with pytest.raises(ModelError, match="--base-score is not a probability"):
        import_dump(tmp_path, DUMP, base_score=(2.0,))
    with pytest.raises(ModelError, match="--base-score is not 1 finite numbers"):
        import_dump(tmp_path, DUMP, base_score=(0.5, 0.5))


def test_command(tmp_path: Path) -> None:
    path, output = write(tmp_path, "dump.txt", DUMP), tmp_path / "model.silva"
    result = run("import", path, output, "--base-score", "0.25", "--labels", "no,yes", "--features", "3")
    assert "not compared with its library, which cannot read dumps" in result.stderr
    assert "note      a dump does not hold everything; assumed are the objective binary:logistic" in result.stdout
    model = read_model(str(output))
    assert (model.labels, model.n_features, model.n_trees) == (("no", "yes"), 3, 2)
    told = run("import", path, output, "--base-score", "x", "--labels", "no,yes", code=2).stderr
    assert "'x' is not a number" in told


def test_few_digits_cause_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "dump", re.sub(r"(\d\.\d{3})\d+", r"\1", DUMP))
    with pytest.warns(MetasilvaeWarning, match="no number of the dump has more than 6 digits"):
        import_file(path, None, ImportOptions(("a", "b"), base_score=(0.5,)), check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_file(write(tmp_path, "dump", DUMP), None, ImportOptions(("a", "b"), base_score=(0.5,)), check=False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[f1<-1] ", "[f1:{1,2}] ", ":3: .*splits by categories or indicators"),
        ("[f1<-1] yes=3,no=4,missing=4", "[f1] yes=3,no=4", ":3: .*splits by categories or indicators"),
        ("3:leaf=0.378065437", "3:leaf=[0.3", ":4: '\\[0.3' is not a number"),
        ("3:leaf=0.378065437", "3:leaf=nan", "score of a leaf is not a finite number"),
        ("f1<-1", "f1<nan", "threshold of node 1 is not a number"),
        ("3:leaf", "4:leaf", ":5: two nodes of a tree have the number 4"),
        ("yes=3", "yes=9", "leads to node -2"),
        ("yes=3", "yes=0", "node 0 is reached in two ways"),
        ("0:[f0", "5:[f0", ":2: a tree begins with node 5"),
        ("booster[0]", "booster[1]", r":1: found 'booster\[1\]:', booster\[0\] was expected"),
        ("gain=27.4031754", "fame=2", ":3: .* is neither a leaf nor a test"),
    ],
)
def test_broken_text(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in DUMP
    with pytest.raises(ModelError, match=message):
        import_dump(tmp_path, DUMP.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"split_condition": -1', '"split_condition": [0]', "splits by categories"),
        ('"split_condition": -1, ', "", "has no split_condition; splits by categories or indicators"),
        ('"leaf": 0.378065437', '"leaf": [0.1, 0.2]', "several scores in a leaf"),
        ('"leaf": 0.378065437', '"leaf": 1' + "0" * 400, "too large"),
        ('"nodeid": 3', '"nodeid": 4', "two nodes of a tree have the number 4"),
        ('"nodeid": 3,', '"nodeid": 3, "weight": 2,', "'weight', which this version of metasilvae does not know"),
        ('"split": "f1"', '"split": null', "a name was expected"),
        ("]}\n]", "]}\n", ":10: this is not a JSON document"),
    ],
)
def test_broken_json(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in JSON_DUMP
    with pytest.raises(ModelError, match=message):
        import_dump(tmp_path, JSON_DUMP.replace(old, new))
