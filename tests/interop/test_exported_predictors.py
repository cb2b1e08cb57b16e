"""``export`` to source code, ONNX and scikit-learn: what is written is run and answers as the model does."""

from __future__ import annotations

import ctypes
import io
import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import run
from support.oracles import make_model, models, points, random_model, with_directions

from metasilvae.errors import ModelError
from metasilvae.formats.silva_models import write_model
from metasilvae.interop.exports import EXPORTERS, PREDICTOR_EXPORTERS
from metasilvae.interop.exports.leaves import whole_weights
from metasilvae.interop.imports import compare_with_library, import_estimator, import_file
from metasilvae.interop.imports.comparison import rows_beside_thresholds
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, LeafKind, Model
from metasilvae.prediction import predict
from metasilvae.voting import VOTINGS

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def predictions(model: Model, X: np.ndarray, voting: str) -> list[list[str]]:
    found = predict(model, np.ascontiguousarray(X, dtype=np.float64), voting)
    return [[model.labels[label] for label in found.sets[number]] for number in found.ids]


def votings_of(model: Model) -> list[str]:
    return [name for name, scheme in VOTINGS.items() if scheme.leaf_kind is model.leaf_kind]


def score_model(rng: random.Random, n_labels: int, digits: int | None = None) -> Model:
    """A forest of scores; few digits make ties."""
    forest = random_model(rng, 4, 8, 3)
    scores = np.array([[rng.gauss(0, 1) for _ in range(n_labels)] for _ in range(forest.n_leaves)])
    scores = scores if digits is None else np.round(scores, digits)
    labels = tuple(f"l{i}" for i in range(n_labels))
    return Model(forest.nodes, forest.roots, scores, LeafKind.SCORES, 3, labels, True)


def sample_models() -> list[Model]:
    rng = random.Random(7)
    found = [random_model(rng, n_trees, 12, 3) for n_trees in (1, 2, 5, 9)]
    found += [score_model(rng, 2), score_model(rng, 2, 1), score_model(rng, 3), score_model(rng, 4, 0)]
    return found


def rows_for(model: Model, seed: int = 0) -> np.ndarray:
    """Rows on both sides of every threshold, and random ones."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 3, (50, model.n_features)), np.zeros((1, model.n_features))]
    return np.concatenate([*rows, *rows_beside_thresholds(model, rng)])


SAMPLES = sample_models()
CASES = [(model, voting) for model in SAMPLES for voting in votings_of(model)]
IDS = [f"{model.n_trees} trees, {model.n_labels} labels, {voting}" for model, voting in CASES]


# Whole weights


@given(models())
@settings(max_examples=60)
def test_whole_weights_add_up_to_the_same_predictions(model: Model) -> None:
    rows = np.clip(rows_for(model), -1e300, 1e300)
    for voting in votings_of(model):
        module = run_python(PREDICTOR_EXPORTERS["python"](model, None, voting))
        assert [module["predict"](row) for row in rows.tolist()] == predictions(model, rows, voting)


def test_weights_that_are_too_long_are_refused() -> None:
    model = make_model([[5e-324, 1e308], [1.0, 2.0]], kind=LeafKind.SCORES)
    assert whole_weights(model, "softargmax")[1] == [2**1074, 2**1075]
    primes = [p for p in range(2, 6000) if all(p % q for q in range(2, int(p**0.5) + 1))]
    wide = make_model([[1, p - 1] for p in primes])
    with pytest.raises(ModelError, match="more than 4096 bits; export it as ONNX, or with --voting max"):
        whole_weights(wide, "average")
    assert whole_weights(wide, "max")[5] == [0, 1]


# Python


def run_python(source: str | bytes) -> dict[str, Any]:
    module: dict[str, Any] = {"__name__": "exported"}
    exec(compile(source, "exported.py", "exec"), module)
    return module


@given(st.data())
@settings(max_examples=60)
def test_python_source(data: st.DataObject) -> None:
    model = data.draw(models(simple_labels=False))
    voting = data.draw(st.sampled_from(votings_of(model)))
    row = data.draw(points(model))
    module = run_python(PREDICTOR_EXPORTERS["python"](model, None, voting))
    assert module["predict"](row) == predictions(model, np.array([row]), voting)[0]
    assert module["LABELS"] == list(model.labels)


def test_python_source_as_a_program(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(str(PREDICTOR_EXPORTERS["python"](SAMPLES[2], ["a", "b'", "c\n"], "average")))
    rows = rows_for(SAMPLES[2])[:40]
    text = "\n".join(",".join(map(repr, row)) for row in rows.tolist())
    found = subprocess.run([sys.executable, path], input=text, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [",".join(labels) for labels in predictions(SAMPLES[2], rows, "average")]
    refusals = {
        "1": "1 numbers, expected 3",
        "1,x,2": "could not convert string to float: 'x'",
        "1,nan,2": "nan is not a finite number",
        "1,2,-inf": "-inf is not a finite number",
        "1,,2,3": "could not convert string to float: ''",
        "1 2,3": "could not convert string to float: '1 2'",
        "1_0,2,3": "'1_0,2,3' holds an underscore",
    }
    for line, message in refusals.items():
        refused = subprocess.run(
            [sys.executable, path], input=f"\n{line}\n", capture_output=True, text=True, check=False
        )
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"line 2: {message}")


# C


def compile_c(source: str | bytes, folder: Path) -> Any:
    assert isinstance(source, str)
    (folder / "model.c").write_text(source)
    command = [COMPILER, "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "model.c", "-o", "model.so"], cwd=folder, check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "model.so"))


def ask_c(library: Any, model: Model, X: np.ndarray) -> list[list[str]]:
    names = (ctypes.c_char_p * model.n_labels).in_dll(library, "model_labels")
    labels = [name.decode() for name in names]
    found = []
    for row in np.ascontiguousarray(X):
        marks = (ctypes.c_ubyte * model.n_labels)()
        n_predictions = library.model_predict(row.ctypes.data_as(ctypes.c_void_p), marks)
        found.append([label for label, mark in zip(labels, marks, strict=True) if mark])
        assert n_predictions == len(found[-1])
    return found


needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


@needs_compiler
@pytest.mark.parametrize(("model", "voting"), CASES, ids=IDS)
def test_c_source(model: Model, voting: str, tmp_path: Path) -> None:
    library = compile_c(PREDICTOR_EXPORTERS["c"](model, None, voting), tmp_path)
    X = rows_for(model)
    assert ask_c(library, model, X) == predictions(model, X, voting)


@needs_compiler
def test_c_source_with_long_weights(tmp_path: Path) -> None:
    """Scores of both signs that differ in the last bit of the smallest number only."""
    leaves = [[1e300, -1e-300], [-1e300, 1e-300], [5e-324, 0.0], [0.0, 1e-320], [-5e-324, 0.0]]
    trees = [(0, float(i), leaves[i], leaves[(i + 1) % 5]) for i in range(5)]
    model = make_model(trees, 1, ("x", "y"), LeafKind.SCORES)
    library = compile_c(PREDICTOR_EXPORTERS["c"](model, None, "softargmax"), tmp_path)
    X = np.arange(-1, 6, 0.5)[:, None]
    assert ask_c(library, model, X) == predictions(model, X, "softargmax")


@needs_compiler
def test_exported_functions_refuse_what_is_not_finite(tmp_path: Path) -> None:
    model = make_model([(0, 0.5, [1, 0], [0, 1])], 2)
    library = compile_c(PREDICTOR_EXPORTERS["c"](model, None, "max"), tmp_path)
    module = run_python(PREDICTOR_EXPORTERS["python"](model, None, "max"))
    for row in ([math.nan, 0.0], [0.0, math.inf], [-math.inf, 0.0]):
        assert ask_c(library, model, np.array([row])) == [[]]
        with pytest.raises(ValueError, match="is not a finite number"):
            module["predict"](row)
    with pytest.raises(ValueError, match="1 numbers, expected 2"):
        module["predict"]([0.0])


@needs_compiler
def test_c_source_as_a_program(tmp_path: Path) -> None:
    model = make_model([(1, 0.1, [3, 1], (0, -2.5, [1, 1], [0, 4]))], 2, ('q"uo\\te??/', "ümläut"))
    source = PREDICTOR_EXPORTERS["c"](model, ["*/ evil", "b"], "max")
    assert isinstance(source, str)
    (tmp_path / "model.c").write_text(source)
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-DMODEL_MAIN"]
    subprocess.run([COMPILER, *flags, "model.c", "-o", "model"], cwd=tmp_path, check=True)
    rows = rows_for(model)
    text = "\n".join(",".join(map(repr, row)) for row in rows.tolist()) + "\n"
    found = subprocess.run([tmp_path / "model"], input=text.encode(), capture_output=True, check=True)
    assert found.stdout.decode().split("\n")[:-1] == [",".join(labels) for labels in predictions(model, rows, "max")]
    spaced = text.replace(",", " \t ").replace("\n", "\r\n \n").encode()
    assert subprocess.run([tmp_path / "model"], input=spaced, capture_output=True, check=True).stdout == found.stdout
    unended = subprocess.run([tmp_path / "model"], input=text.rstrip().encode(), capture_output=True, check=True)
    assert unended.stdout == found.stdout
    refusals = {
        "3,x": "'x' is not a finite number",
        "3": "1 numbers, expected 2",
        "3,4,5": "3 numbers, expected 2",
        "3,": "'' is not a finite number",
        ",3": "'' is not a finite number",
        "3,,4": "'' is not a finite number",
        "3 4,5": "'3 4' is not a finite number",
        "nan,4": "'nan' is not a finite number",
        "3,-inf": "'-inf' is not a finite number",
        "3,1e999": "'1e999' is not a finite number",
        "0x10 4": "'0x10' is not a finite number",
        "3 4y": "'4y' is not a finite number",
        "9" * 5000: "is not a finite number",
    }
    for line, message in refusals.items():
        refused = subprocess.run(
            [tmp_path / "model"], input=f"1,2\n{line}\n6,7\n".encode(), capture_output=True, check=False
        )
        assert refused.returncode == 1
        assert refused.stderr.decode().startswith("line 2: ")
        assert refused.stderr.decode().endswith(f"{message}\n")


# ONNX


def ask_onnx(content: str | bytes, X: np.ndarray) -> list[str]:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra: onnx)")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    found: list[str] = session.run(["label"], {"X": X})[0].tolist()
    return found


@pytest.mark.parametrize("target", ["onnx", "onnx-double"])
@pytest.mark.parametrize(("model", "voting"), CASES, ids=IDS)
def test_onnx(model: Model, voting: str, target: str) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    content = PREDICTOR_EXPORTERS[target](model, None, voting)
    X = np.clip(rows_for(model), -3e38, 3e38) if target == "onnx" else rows_for(model)
    # With float inputs a row is a float32 row.
    asked = X.astype(np.float32 if target == "onnx" else np.float64)
    found = ask_onnx(content, asked)
    expected = predictions(model, asked, voting)
    n_wrong = sum(label not in labels for label, labels in zip(found, expected, strict=True))
    if voting == "max" or model.n_trees == 1:
        assert n_wrong == 0
    else:
        # Sums are rounded: where our sums tie exactly, theirs may prefer a label that is none of the tied ones.
        assert n_wrong <= len(X) // 100


@pytest.mark.parametrize("target", ["onnx", "onnx-double"])
def test_onnx_where_one_of_two_labels_never_wins(target: str) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    X = np.array([[0.0], [2.0]], dtype=np.float32 if target == "onnx" else np.float64)
    for first, second in (([0.0, 0.001], [0.0, 1e-6]), ([0.0, 0.0], [0.0, 0.25]), ([0.5, 0.0], [0.25, 0.0])):
        model = make_model([(0, 1.0, first, second), [0.0, 0.0]], 1, ("no", "yes"), LeafKind.SCORES)
        found = ask_onnx(PREDICTOR_EXPORTERS[target](model, None, "softargmax"), X)
        for label, expected in zip(found, predictions(model, X, "softargmax"), strict=True):
            assert label in expected


@pytest.mark.parametrize("target", ["onnx", "onnx-double"])
def test_onnx_comes_back(target: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    for model in SAMPLES[4:]:
        content = PREDICTOR_EXPORTERS[target](model, None, "softargmax")
        assert isinstance(content, bytes)
        (tmp_path / "model.onnx").write_bytes(content)
        imported = import_file(str(tmp_path / "model.onnx"))
        assert imported.model.labels == model.labels
        assert imported.model.n_nodes == model.n_nodes
        compare_with_library(imported)


def test_onnx_refusals() -> None:
    pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    with pytest.raises(ModelError, match="needs two labels"):
        PREDICTOR_EXPORTERS["onnx"](make_model([[1]], 1, ("a",)), None, "max")
    huge = make_model([[1e300, 0.0, 0.0], [1.0, 0.0, 0.0]], 1, ("a", "b", "c"), LeafKind.SCORES)
    with pytest.raises(ModelError, match="too large for ONNX"):
        PREDICTOR_EXPORTERS["onnx"](huge, None, "softargmax")


# scikit-learn


def load_joblib(content: str | bytes) -> Any:
    joblib = pytest.importorskip("joblib", reason="joblib is not installed (extra: sklearn)")
    assert isinstance(content, bytes)
    return joblib.load(io.BytesIO(content))


@pytest.mark.parametrize(("model", "voting"), CASES, ids=IDS)
def test_scikit_learn(model: Model, voting: str) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
    fitted = load_joblib(PREDICTOR_EXPORTERS["joblib"](model, None, voting))
    X = np.clip(rows_for(model), -3e38, 3e38).astype(np.float32)
    expected = predictions(model, X, voting)
    with np.errstate(over="ignore", invalid="ignore"):
        found = fitted.predict(X).tolist()
    n_wrong = sum(label not in labels for label, labels in zip(found, expected, strict=True))
    assert n_wrong == 0 if voting == "max" or model.n_trees == 1 else n_wrong <= len(X) // 100
    kind = "RandomForestClassifier" if model.is_forest else "DecisionTreeClassifier"
    assert type(fitted).__name__ == (kind if model.leaf_kind is LeafKind.COUNTS else "GradientBoostingClassifier")


def test_scikit_learn_comes_back() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
    for model in SAMPLES[:4]:
        fitted = load_joblib(PREDICTOR_EXPORTERS["joblib"](model, None, "average"))
        imported = import_estimator(fitted)
        compare_with_library(imported)
        X = np.clip(rows_for(model), -3e38, 3e38).astype(np.float32)
        assert predictions(imported.model, X, "average") == predictions(model, X, "average")
    for model in SAMPLES[4:]:
        imported = import_estimator(load_joblib(PREDICTOR_EXPORTERS["joblib"](model, None, "softargmax")))
        compare_with_library(imported)
        if model.n_labels > 2:
            X = np.clip(rows_for(model), -3e38, 3e38).astype(np.float32)
            assert predictions(imported.model, X, "softargmax") == predictions(model, X, "softargmax")


def test_scikit_learn_keeps_counts() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
    for model in SAMPLES[:4]:
        imported = import_estimator(load_joblib(PREDICTOR_EXPORTERS["joblib"](model, None, "average")))
        # Counts come back as they were, labels were in order already.
        assert imported.model.leaf_values[imported.model.leaf_nodes.argsort()].tolist() == (
            model.leaf_values[model.leaf_nodes.argsort()].tolist()
        )


def test_scikit_learn_labels_and_names() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
    whole = make_model([(0, 0.5, [3, 0, 1], [0, 2, 1])], 1, ("10", "-3", "2"))
    fitted = load_joblib(PREDICTOR_EXPORTERS["joblib"](whole, ["size"], "max"))
    assert fitted.classes_.tolist() == [-3, 2, 10]
    assert fitted.feature_names_in_.tolist() == ["size"]
    del fitted.feature_names_in_
    assert fitted.predict([[0.0], [1.0]]).tolist() == [10, -3]
    words = make_model([(0, 0.5, [3, 0], [0, 2])], 1, ("z", "01"))
    assert load_joblib(PREDICTOR_EXPORTERS["joblib"](words, None, "max")).classes_.tolist() == ["01", "z"]


def test_scikit_learn_refusals() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
    with pytest.raises(ModelError, match="a GradientBoostingClassifier needs two labels"):
        PREDICTOR_EXPORTERS["joblib"](make_model([[0.5]], 1, ("a",), LeafKind.SCORES), None, "softargmax")
    close = make_model([[2**53, 2**53 - 1, 2**53 - 1]], 1, ("a", "b", "c"))
    with pytest.raises(ModelError, match="too large for fractions"):
        PREDICTOR_EXPORTERS["joblib"](close, None, "max")


def test_skops(tmp_path: Path) -> None:
    pytest.importorskip("skops", reason="skops is not installed (extra: sklearn)")
    for model, voting in ((SAMPLES[0], "max"), (SAMPLES[2], "average"), (SAMPLES[6], "softargmax")):
        content = PREDICTOR_EXPORTERS["skops"](model, None, voting)
        assert isinstance(content, bytes)
        (tmp_path / "model.skops").write_bytes(content)
        compare_with_library(import_file(str(tmp_path / "model.skops")))


# The command


@pytest.mark.parametrize("target", ["c", "python"])
def test_command(target: str, tmp_path: Path) -> None:
    path = str(tmp_path / "m.silva")
    write_model(SAMPLES[2], path)
    assert run("export", path, "--to", target).stdout == PREDICTOR_EXPORTERS[target](SAMPLES[2], None, "max")
    written = run("export", path, "--to", target, "--voting", "average").stdout
    assert written == PREDICTOR_EXPORTERS[target](SAMPLES[2], None, "average")
    assert "does not fit" in run("export", path, "--to", target, "--voting", "softargmax", code=2).stderr


def test_command_refuses_a_voting_without_effect(tmp_path: Path) -> None:
    path = str(tmp_path / "m.silva")
    write_model(SAMPLES[0], path)
    assert "--voting has no effect on dot" in run("export", path, "--to", "dot", "--voting", "max", code=2).stderr


@pytest.mark.parametrize(
    ("target", "library", "extra"),
    [("onnx", "onnx", "onnx"), ("joblib", "joblib", "sklearn"), ("skops", "skops.io", "sklearn")],
)
def test_command_without_the_library(
    target: str, library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "m.silva")
    write_model(SAMPLES[0], path)
    monkeypatch.setitem(sys.modules, library, None)
    told = run("export", path, "--to", target, "--output", tmp_path / "out", code=1).stderr
    assert told.startswith("error: writing a")
    assert told.endswith(f"pip install 'metasilvae[{extra}]'\n")
    assert not (tmp_path / "out").exists()


def test_binary_output(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    path, output = str(tmp_path / "m.silva"), tmp_path / "m.onnx"
    write_model(SAMPLES[0], path)
    run("export", path, "--to", "onnx", "--output", output)
    assert output.read_bytes() == PREDICTOR_EXPORTERS["onnx"](SAMPLES[0], None, "max")


# Missing values


def models_with_directions() -> list[Model]:
    rng = random.Random(12)
    found = [random_model(rng, n_trees, 12, 3) for n_trees in (1, 2, 5)]
    found += [score_model(rng, 2), score_model(rng, 3)]
    return [with_directions(model, rng) for model in found]


def rows_with_missing(model: Model) -> np.ndarray:
    X = rows_for(model)
    rng = np.random.default_rng(5)
    X[rng.random(X.shape) < 0.4] = math.nan
    return X


DIRECTED = models_with_directions()
DIRECTED_CASES = [(model, voting) for model in DIRECTED for voting in votings_of(model)]
DIRECTED_IDS = [f"{number} {voting}" for number, (_, voting) in enumerate(DIRECTED_CASES)]


@pytest.mark.parametrize(("model", "voting"), DIRECTED_CASES, ids=DIRECTED_IDS)
def test_python_source_with_missing_values(model: Model, voting: str) -> None:
    X = rows_with_missing(model)
    module = run_python(PREDICTOR_EXPORTERS["python"](model, None, voting))
    assert [module["predict"](row) for row in X.tolist()] == predictions(model, X, voting)
    with pytest.raises(ValueError, match="inf is not a finite number"):
        module["predict"]([math.inf] * model.n_features)


@needs_compiler
@pytest.mark.parametrize(("model", "voting"), DIRECTED_CASES, ids=DIRECTED_IDS)
def test_c_source_with_missing_values(model: Model, voting: str, tmp_path: Path) -> None:
    X = rows_with_missing(model)
    library = compile_c(PREDICTOR_EXPORTERS["c"](model, None, voting), tmp_path)
    assert ask_c(library, model, X) == predictions(model, X, voting)


@pytest.mark.parametrize("target", ["onnx", "onnx-double"])
@pytest.mark.parametrize(("model", "voting"), DIRECTED_CASES, ids=DIRECTED_IDS)
def test_onnx_with_missing_values(model: Model, voting: str, target: str) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    X = np.clip(rows_with_missing(model), -3e38, 3e38)
    X = X if target == "onnx-double" else X.astype(np.float32)
    found = ask_onnx(PREDICTOR_EXPORTERS[target](model, None, voting), X)
    expected = predictions(model, X.astype(np.float64), voting)
    n_wrong = sum(label not in labels for label, labels in zip(found, expected, strict=True))
    assert n_wrong == 0 if voting == "max" or model.n_trees == 1 else n_wrong <= len(X) // 100


@pytest.mark.parametrize(("model", "voting"), [case for case in DIRECTED_CASES if case[1] != "softargmax"])
def test_scikit_learn_with_missing_values(model: Model, voting: str) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
    fitted: Any = load_joblib(PREDICTOR_EXPORTERS["joblib"](model, None, voting))
    X = np.clip(rows_with_missing(model), -3e38, 3e38).astype(np.float32)
    expected = predictions(model, X, voting)
    n_wrong = sum(label not in labels for label, labels in zip(fitted.predict(X).tolist(), expected, strict=True))
    assert n_wrong == 0 if voting == "max" or model.n_trees == 1 else n_wrong <= len(X) // 100


def test_what_cannot_take_missing_values_is_refused() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")
    with pytest.raises(ModelError, match="takes missing values, a GradientBoostingClassifier does not"):
        PREDICTOR_EXPORTERS["joblib"](DIRECTED[-1], None, "softargmax")
    partly = make_model([(0, 1.0, [1, 0], (1, 1.0, [0, 1], [1, 0]))])
    partly.nodes["leaf"][0] = MISSING_LEFT
    for target in PREDICTOR_EXPORTERS:
        with pytest.raises(ModelError, match="has directions for missing values, but not for feature 1"):
            PREDICTOR_EXPORTERS[target](partly, None, "max")


def test_documents_with_missing_values() -> None:
    model = make_model([(0, 1.0, [1, 0], (1, 1.0, [0, 1], [1, 0]))])
    model.nodes["leaf"][[0, 2]] = MISSING_LEFT, MISSING_RIGHT
    nodes = json.loads(EXPORTERS["json"](model, None))["trees"][0]
    assert [node.get("missing") for node in nodes] == ["left", None, "right", None, None]
    text = EXPORTERS["text"](model, ["a", "b"])
    assert "a <= 1 or missing\n" in text
    assert "b > 1 or missing\n" in text
    dot = EXPORTERS["dot"](model, None)
    assert 'n0 -> n1 [label="yes or missing"];' in dot
    assert 'n2 -> n4 [label="no or missing"];' in dot
