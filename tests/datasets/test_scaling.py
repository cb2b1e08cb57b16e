"""Scaling to [0, 1], saved and applied again."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metasilvae.dataset import Dataset
from metasilvae.datasets.scaling import Scale
from metasilvae.errors import DataError


def dataset_of(X, names: tuple[str, ...] | None = None) -> Dataset:
    values = np.array(X, np.float64)
    return Dataset(values, np.zeros(len(values), np.int32), ("a",), names, "here.csv")


def test_plain() -> None:
    train = dataset_of([[0, 5, -1], [10, 5, 1]])
    scale = Scale.fit(train)
    assert scale.apply(train).X.tolist() == [[0, 0, 0], [1, 0, 1]]
    assert scale.apply(dataset_of([[5, 6, 3]])).X.tolist() == [[0.5, 0, 2]]
    assert train.X.tolist() == [[0, 5, -1], [10, 5, 1]]


@settings(max_examples=500, deadline=None)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_the_fitted_set_fills_the_unit_range(X) -> None:
    scaled = Scale.fit(dataset_of(X)).apply(dataset_of(X)).X
    assert (scaled >= 0).all()
    assert (scaled <= 1).all()
    varies = X.min(axis=0) < X.max(axis=0)
    assert (scaled.max(axis=0) == varies).all()
    assert (scaled.min(axis=0) == 0).all()


def test_saved_scales_are_exact(tmp_path: Path) -> None:
    scale = Scale.fit(dataset_of([[0.1, 1e-300], [1 / 3, 1e300]], ("u", "v")))
    path = str(tmp_path / "scale.json")
    scale.save(path)
    loaded = Scale.load(path)
    assert loaded.minimum.tolist() == scale.minimum.tolist()
    assert loaded.maximum.tolist() == scale.maximum.tolist()
    assert loaded.feature_names == ("u", "v")


def test_misfits() -> None:
    scale = Scale.fit(dataset_of([[0, 1], [1, 2]], ("u", "v")))
    with pytest.raises(DataError, match=r"here\.csv: 3 features found, the scale has 2"):
        scale.apply(dataset_of([[1, 2, 3]]))
    with pytest.raises(DataError, match=r"here\.csv: its columns are not those of the scale; they differ in 'u', 'w'"):
        scale.apply(dataset_of([[1, 2]], ("v", "w")))
    with pytest.raises(DataError, match="they differ in 'w'"):
        scale.apply(dataset_of([[1, 2, 3]], ("u", "v", "w")))
    with pytest.raises(DataError, match="too far outside the scale"):
        Scale.fit(dataset_of([[0], [1e-300]])).apply(dataset_of([[1e300]]))


def test_columns_are_matched_by_name() -> None:
    scale = Scale.fit(dataset_of([[0, 10], [1, 20]], ("u", "v")))
    scaled = scale.apply(dataset_of([[15, 0.25]], ("v", "u")))
    assert scaled.X.tolist() == [[0.5, 0.25]]
    assert scaled.feature_names == ("v", "u")
    assert scale.apply(dataset_of([[0.25, 15]])).X.tolist() == [[0.25, 0.5]]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100000,
        "{}",
        json.dumps({"scale": "minmax"}),
        json.dumps({"scale": "minmax", "minimum": [1], "maximum": [1, 2]}),
        json.dumps({"scale": "minmax", "minimum": [2], "maximum": [1]}),
        json.dumps({"scale": "minmax", "minimum": ["x"], "maximum": [1]}),
        json.dumps({"scale": "minmax", "minimum": 1, "maximum": [1]}),
        json.dumps({"scale": "minmax", "minimum": [float("nan")], "maximum": [1]}),
        json.dumps({"scale": "minmax", "minimum": [], "maximum": []}),
        json.dumps({"scale": "minmax", "minimum": [0], "maximum": [1], "feature_names": ["a", "b"]}),
        json.dumps({"scale": "minmax", "minimum": [0], "maximum": [1], "feature_names": [1]}),
        json.dumps({"scale": "standard", "minimum": [0], "maximum": [1]}),
    ],
)
def test_broken_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "scale.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"scale\.json: not a scale file"):
        Scale.load(str(path))
