"""The data sets that ship with the project are what their descriptions say."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from metasilvae.datasets.builtin import BuiltinDataset, list_builtin_datasets
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model, parse_model, read_model
from metasilvae.io.storage import builtin_folder
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify

SHIPPED = list_builtin_datasets()


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: f"{shipped.name}-{shipped.split}")
def test_facts_of_the_index(shipped: BuiltinDataset) -> None:
    path = builtin_folder() / shipped.name / f"{shipped.split}.csv.gz"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == shipped.sha256
    assert f"sha256 `{shipped.sha256}`" in (builtin_folder() / "README.md").read_text()
    dataset = read_dataset(shipped.source)
    assert (dataset.n_samples, dataset.n_features, dataset.n_labels) == (
        shipped.rows,
        shipped.features,
        shipped.classes,
    )
    assert dataset.feature_names is not None
    assert not any(" " in label or "," in label for label in dataset.labels)
    assert shipped.epsilon > 0


def test_every_file_is_listed() -> None:
    files = {f"builtin:{path.parent.name}/{path.stem.split('.')[0]}" for path in builtin_folder().glob("*/*.csv.gz")}
    assert files == {shipped.source for shipped in SHIPPED}
    assert {shipped.name for shipped in SHIPPED} == {"circle", "iris", "wine", "breast-cancer", "digits", "penguins"}


@pytest.mark.parametrize(("split", "n_samples"), [("train", 100), ("test", 1000)])
def test_circle(split: str, n_samples: int) -> None:
    dataset = read_dataset(f"builtin:circle/{split}")
    assert dataset.X.shape == (n_samples, 2)
    assert ((dataset.X >= 0) & (dataset.X <= 1)).all()
    is_in = np.array(dataset.labels)[dataset.y] == "in"
    assert np.array_equal(is_in, dataset.X[:, 0] ** 2 + dataset.X[:, 1] ** 2 < 0.5)
    assert set(dataset.labels) == {"in", "out"}
    assert dataset.feature_names == ("x1", "x2")


def test_iris_labels_and_stratification() -> None:
    for split, count in (("train", 40), ("test", 10)):
        dataset = read_dataset(f"builtin:iris/{split}")
        assert dataset.labels == ("setosa", "versicolor", "virginica")
        assert np.bincount(dataset.y).tolist() == [count] * 3


def test_train_and_test_points_of_circle_differ() -> None:
    train, test = (read_dataset(f"builtin:circle/{split}").X.tolist() for split in ("train", "test"))
    assert not set(map(tuple, train)) & set(map(tuple, test))


def test_the_shipped_model_is_what_its_script_makes() -> None:
    script = Path(__file__).parents[2] / "scripts" / "make_demo_model.py"
    spec = importlib.util.spec_from_file_location("make_demo_model", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = parse_model(module.make_tree(read_dataset("builtin:iris/train")).encode())
    assert (builtin_folder() / "iris" / "tree.silva").read_text() == format_model(made)


def test_the_shipped_model_is_good_and_not_robust() -> None:
    tree, dataset = read_model("builtin:iris/tree.silva"), read_dataset("builtin:iris/test")
    counts = verify(make_query(tree, dataset, Ball(0.1))).counts
    assert (counts.correct, counts.stable, counts.robust) == (29, 27, 27)
