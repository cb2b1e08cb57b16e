"""``import`` from scikit-learn: equal answers, or a refusal."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import run, write

from metasilvae.errors import ModelError
from metasilvae.formats.silva_models import read_model, same_model
from metasilvae.interop.imports import ImportOptions, compare_with_library, comparison, import_estimator, import_object
from metasilvae.interop.imports.comparison import rows_beside_thresholds
from metasilvae.model import LeafKind
from metasilvae.prediction import predict

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: sklearn)")

from sklearn.datasets import make_classification  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier  # noqa: E402

SIX = [
    DecisionTreeClassifier(random_state=0),
    ExtraTreeClassifier(random_state=0),
    RandomForestClassifier(7, random_state=0),
    ExtraTreesClassifier(7, random_state=0),
    GradientBoostingClassifier(n_estimators=6, random_state=0),
    HistGradientBoostingClassifier(max_iter=6, random_state=0),
]


def make_data(n_labels: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(150, 5, n_informative=4, n_redundant=0, n_classes=n_labels, random_state=seed)
    # Few digits: thresholds fall onto values, and counts tie.
    return np.round(X, 1), y


def fit(estimator: Any, n_labels: int = 3, **options: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = make_data(n_labels)
    return sklearn.base.clone(estimator).fit(X, y, **options), X, y


def predictions(model: Any, X: np.ndarray, voting: str) -> list[set[str]]:
    found = predict(model, np.ascontiguousarray(X), voting)
    return [{model.labels[label] for label in found.sets[number]} for number in found.ids]


@pytest.mark.parametrize("n_labels", [2, 3, 4])
@pytest.mark.parametrize("estimator", SIX, ids=lambda estimator: type(estimator).__name__)
def test_the_predictions_are_equal(estimator: Any, n_labels: int) -> None:
    fitted, X, _ = fit(estimator, n_labels)
    imported = import_estimator(fitted)
    comparison = compare_with_library(imported, X)
    assert comparison.n_data == len(X)
    per_split = 4 if isinstance(estimator, HistGradientBoostingClassifier) else 8
    assert comparison.n_thresholds == per_split * (imported.model.n_nodes - imported.model.n_leaves)
    assert comparison.n_rounded <= 3
    # The same once more, without the comparison's code.
    sets = predictions(imported.model, X, imported.voting)
    assert sum(str(label) in found for label, found in zip(fitted.predict(X), sets, strict=True)) >= len(X) - 1


def test_no_float64_number_is_classified_differently() -> None:
    """x is rounded to float32 by the library; the thresholds know it."""
    X = np.array([[0.1], [0.3]])
    fitted = DecisionTreeClassifier().fit(X, [0, 1])
    model = import_estimator(fitted).model
    (threshold,) = model.nodes["threshold"][model.nodes["feature"] >= 0]
    own = fitted.tree_.threshold[0]
    assert threshold != own
    between = np.linspace(min(own, threshold), max(own, threshold), 50)
    rows = np.concatenate([between, [np.nextafter(threshold, 1), np.nextafter(threshold, 0)]])[:, None]
    found = [str(label) for label in fitted.predict(rows)]
    assert predictions(model, rows, "average") == [{label} for label in found]


@pytest.mark.parametrize("estimator", SIX[:4], ids=lambda estimator: type(estimator).__name__)
def test_leaves_hold_counts_whose_shares_are_the_librarys(estimator: Any) -> None:
    fitted, _, y = fit(estimator)
    model = import_estimator(fitted).model
    assert model.leaf_kind is LeafKind.COUNTS
    assert model.leaf_values.sum() == len(y) * model.n_trees
    scores = import_estimator(fitted, ImportOptions(leaves="scores"))
    assert scores.model.leaf_kind is LeafKind.SCORES
    assert scores.voting == "softargmax"
    compare_with_library(scores)


def test_weighted_samples_become_scores() -> None:
    fitted, X, _ = fit(DecisionTreeClassifier(max_depth=3, class_weight={0: 0.3, 1: 1.7, 2: 1.1}))
    imported = import_estimator(fitted)
    assert imported.model.leaf_kind is LeafKind.SCORES
    compare_with_library(imported, X)
    with pytest.raises(ModelError, match="not whole numbers of samples; use --leaves scores"):
        import_estimator(fitted, ImportOptions(leaves="counts"))


@pytest.mark.parametrize("init", ["zero", None])
def test_boosting_starts_from_its_base_scores(init: Any) -> None:
    fitted, X, _ = fit(GradientBoostingClassifier(n_estimators=3, init=init, random_state=0))
    compare_with_library(import_estimator(fitted), X)


def test_missing_values_in_training_do_not_matter() -> None:
    X, y = make_data()
    X[::7, 0] = np.nan
    for estimator in (DecisionTreeClassifier(max_depth=4), HistGradientBoostingClassifier(max_iter=3)):
        comparison = compare_with_library(import_estimator(estimator.fit(X, y)))
        assert comparison.n_rounded == 0


def test_labels() -> None:
    X, y = make_data(2)
    names = import_estimator(DecisionTreeClassifier(max_depth=1).fit(X, np.array(["no", "yes"])[y]))
    assert names.model.labels == ("no", "yes")
    compare_with_library(names)
    whole = import_estimator(DecisionTreeClassifier(max_depth=1).fit(X, y + 1.0)).model
    assert whole.labels == ("1", "2")
    fitted = DecisionTreeClassifier(max_depth=1).fit(X, np.array(["a b", "c,d"])[y])
    with pytest.raises(ModelError, match=r"'a b' contains a blank.*name the labels with --labels"):
        import_estimator(fitted)
    assert import_estimator(fitted, ImportOptions(labels=("ab", "cd"))).model.labels == ("ab", "cd")
    with pytest.raises(ModelError, match="1 names were given with --labels, the model has 2 labels"):
        import_estimator(fitted, ImportOptions(labels=("ab",)))


def test_what_cannot_be_represented_is_refused() -> None:
    X, y = make_data()
    with pytest.raises(ModelError, match="a DecisionTreeRegressor cannot be imported"):
        import_estimator(DecisionTreeRegressor().fit(X, y))
    with pytest.raises(ModelError, match="a Pipeline cannot be imported \\(import its last step\\)"):
        import_estimator(make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(X, y))
    with pytest.raises(ModelError, match="is not fitted"):
        import_estimator(DecisionTreeClassifier())
    with pytest.raises(ModelError, match="has 2 outputs"):
        import_estimator(DecisionTreeClassifier().fit(X, np.column_stack([y, y])))
    with pytest.raises(ModelError, match="starts from a LogisticRegression"):
        import_estimator(GradientBoostingClassifier(n_estimators=2, init=LogisticRegression()).fit(X, y > 0))
    with pytest.raises(ModelError, match="a dict cannot be imported"):
        import_object({})


def test_the_comparison_finds_every_changed_threshold() -> None:
    """A judge that would find nothing proves nothing: move one threshold of one tree by one float64."""
    fitted, X, _ = fit(RandomForestClassifier(3, max_depth=3, random_state=1))
    imported = import_estimator(fitted)
    nodes, values = imported.model.nodes, imported.model.leaf_values
    leaves = nodes["leaf"]
    splits = np.flatnonzero((nodes["feature"] >= 0) & (leaves[nodes["left"]] >= 0) & (leaves[nodes["right"]] >= 0))
    splits = [n for n in splits if (values[leaves[nodes["left"][n]]] != values[leaves[nodes["right"][n]]]).any()]
    assert len(splits) > 5
    for node in splits:
        for direction in (-np.inf, np.inf):
            before = imported.model.nodes["threshold"][node]
            imported.model.nodes["threshold"][node] = np.nextafter(before, direction)
            with pytest.raises(ModelError, match="the import differs from its source: for a row beside a threshold"):
                compare_with_library(imported)
            imported.model.nodes["threshold"][node] = before
    compare_with_library(imported)
    imported.model.leaf_values[0] += 1
    with pytest.raises(ModelError, match="differs from its source"):
        compare_with_library(imported, X)


def test_rows_beside_thresholds_reach_their_splits() -> None:
    model = import_estimator(fit(DecisionTreeClassifier(random_state=0))[0]).model.feasible
    splits = np.repeat(np.flatnonzero(model.nodes["feature"] >= 0), 2)
    (rows,) = rows_beside_thresholds(model, np.random.default_rng(0))
    for row, split in zip(rows, splits, strict=False):
        node = 0
        passed = []
        while model.nodes["feature"][node] >= 0:
            passed.append(node)
            goes_left = row[model.nodes["feature"][node]] <= model.nodes["threshold"][node]
            node = model.nodes["left" if goes_left else "right"][node]
        assert split in passed


def test_of_very_deep_trees_some_thresholds_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator, _, _ = fit(DecisionTreeClassifier(random_state=0))
    imported = import_estimator(estimator)
    n_splits = imported.model.n_nodes - imported.model.n_leaves
    monkeypatch.setattr(comparison, "_USUAL_DEPTH", 0)
    monkeypatch.setattr(comparison, "_MOST_STEPS", 8 * 20)
    some = compare_with_library(imported)
    assert some is not None
    assert 0 < some.n_splits < some.n_all_splits == n_splits
    assert some.n_thresholds == 8 * some.n_splits
    path = write(tmp_path, "tree.pickle", pickle.dumps(estimator))
    result = run("import", path, tmp_path / "tree.silva", "--trust")
    assert f"beside {some.n_splits} of {n_splits} thresholds" in result.stdout


# Files


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[str, Any]:
    joblib = pytest.importorskip("joblib")
    fitted, _, _ = fit(RandomForestClassifier(3, random_state=0))
    path = str(tmp_path / "forest.joblib")
    joblib.dump(fitted, path, compress=3)
    return path, fitted


def test_command(saved: tuple[str, Any], tmp_path: Path) -> None:
    path, fitted = saved
    output = tmp_path / "forest.silva"
    X, y = make_data()
    data = write(
        tmp_path,
        "d.csv",
        "".join(f"{label},{','.join(map(repr, row.tolist()))}\n" for label, row in zip(y, X, strict=True)),
    )
    told = run("import", path, output, "--trust", "--check", data).stdout
    assert "RandomForestClassifier of scikit-learn" in told
    assert "voting    average, part of the model\n" in told
    assert "150 of data, 2000 random, " in told
    assert same_model(read_model(str(output)), import_estimator(fitted).model)
    predicted = run("predict", output, data, "--voting", "average").stdout.split()
    for ours, label in zip(predicted, fitted.predict(X), strict=True):
        assert str(label) in ours.split(",")


def test_a_pickle_is_never_loaded_silently(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    trap = Malicious()
    trap.path = str(canary)
    path = write(tmp_path, "model.pkl", pickle.dumps(trap))
    told = run("import", path, tmp_path / "out.silva", code=1).stderr
    assert "loading one can run any program hidden in it" in told
    assert "--trust" in told
    run("import", path, tmp_path / "out.silva", "--from", "joblib", code=1)
    assert not canary.exists()
    # With --trust it does what it is made for: the warning is true.
    run("import", path, tmp_path / "out.silva", "--trust", code=1)
    assert canary.exists()


@pytest.mark.parametrize("estimator", SIX, ids=lambda estimator: type(estimator).__name__)
def test_skops_needs_no_trust(estimator: Any, tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io", reason="skops is not installed (extra: sklearn)")
    fitted, _, _ = fit(estimator)
    path = str(tmp_path / "model.skops")
    skops.dump(fitted, path)
    output = tmp_path / "model.silva"
    assert "compared  " in run("import", path, output).stdout
    assert same_model(read_model(str(output)), import_estimator(fitted).model)


def test_skops_with_other_types_is_refused(tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io", reason="skops is not installed (extra: sklearn)")
    path = str(tmp_path / "model.skops")
    skops.dump(Path("x"), path)
    told = run("import", path, tmp_path / "out.silva", code=1).stderr
    assert "contains types that skops does not trust" in told


def test_a_damaged_file_is_one_line(saved: tuple[str, Any], tmp_path: Path) -> None:
    content = Path(saved[0]).read_bytes()
    for place in range(0, len(content), len(content) // 20):
        broken = write(tmp_path, "broken.joblib", content[:place] + b"\x00" + content[place + 1 :][:-3])
        told = run("import", broken, tmp_path / "out.silva", "--trust", "--from", "joblib", code=1).stderr
        assert told.splitlines()[-1].startswith("error: "), told


def test_output_to_a_pipe_is_a_model_only(saved: tuple[str, Any]) -> None:
    result = run("import", saved[0], "-", "--trust", "--no-compare")
    assert result.stdout.startswith("classifier-forest 3\n")
    assert "compared  no" in result.stderr


def test_from_standard_input(saved: tuple[str, Any], tmp_path: Path) -> None:
    run("import", "-", tmp_path / "out.silva", "--trust", stdin=Path(saved[0]).read_bytes())


def test_without_the_library(saved: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    told = run("import", saved[0], tmp_path / "out.silva", "--trust", code=1).stderr
    assert "reading a joblib file needs joblib, which is not installed" in told
    assert told.endswith("pip install 'metasilvae[sklearn]'\n")


def test_data_that_the_library_refuses(saved: tuple[str, Any], tmp_path: Path) -> None:
    large = write(tmp_path, "large.csv", "0,1,2,3,4,1e300\n")
    told = run("import", saved[0], tmp_path / "out.silva", "--trust", "--check", large, code=1).stderr
    assert "refuses a row of the data" in told
    narrow = write(tmp_path, "narrow.csv", "0,1,2\n")
    assert "features" in run("import", saved[0], tmp_path / "out.silva", "--trust", "--check", narrow, code=1).stderr
    assert not (tmp_path / "out.silva").exists()
