"""Reading and writing LIBSVM data."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.formats import libsvm_files, text
from metasilvae.formats.datasets import read_dataset, write_dataset


@pytest.fixture
def read(tmp_path: Path):
    def read_text(content: str, **options) -> Dataset:
        path = tmp_path / "data.libsvm"
        path.write_bytes(content.encode())
        return read_dataset(str(path), **options)

    return read_text


def test_indices_from_one(read) -> None:
    dataset = read("+1 1:0.5 3:2\n-1 2:1e3 # a comment\n\n# only a comment\n+1\n\t-1\t3:4 \r\n")
    assert dataset.labels == ("+1", "-1")
    assert dataset.y.tolist() == [0, 1, 0, 1]
    assert dataset.X.tolist() == [[0.5, 0, 2], [0, 1000, 0], [0, 0, 0], [0, 0, 4]]
    assert dataset.line_of_row.tolist() == [1, 2, 5, 6]
    assert dataset.feature_names is None


def test_indices_from_zero(read) -> None:
    assert read("a 1:1 2:2\nb 0:5\n").X.tolist() == [[0, 1, 2], [5, 0, 0]]


def test_rows_with_a_label_only_come_first(read) -> None:
    assert read("a\nb\na 2:1\n").X.tolist() == [[0, 0], [0, 0], [0, 1]]


def test_lone_carriage_returns_and_marks(read) -> None:
    assert read("\ufeffa 1:1\rb 2:2").X.tolist() == [[1, 0], [0, 2]]


def test_width(read) -> None:
    content = "a 1:1 2:2\nb 3:1\n"
    assert read(content, n_features=5).X.shape == (2, 5)
    assert read(content, libsvm_width=4).X.shape == (2, 4)
    assert read(content, n_features=5, libsvm_width=2).X.shape == (2, 5)
    message = r"data.libsvm:2: index 3 is beyond --features 2; indices count from 1 and end at 2"
    with pytest.raises(DataError, match=message):
        read(content, n_features=2)
    with pytest.raises(
        DataError, match=r"data.libsvm:2: index 3 is beyond the model's 2 features; indices count from 1"
    ):
        read(content, libsvm_width=2)
    message = r"data.libsvm:1: index 3 is beyond --features 3; indices count from 0 \(line 2 has index 0\) and end at 2"
    with pytest.raises(DataError, match=message):
        read("a 3:1\nb 0:1\n", n_features=3)
    assert read("a\nb\n", n_features=2, input_format="libsvm").X.tolist() == [[0, 0], [0, 0]]


def test_csv_options_are_refused(read) -> None:
    with pytest.raises(RequestError, match="label column and header are for CSV data, this is read as libsvm"):
        read("a 1:1\n", label_column="last")
    with pytest.raises(RequestError, match="for CSV data"):
        read("a 1:1\n", header=True)


values = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 0.0, 0.0, -0.0, 1.0])


@st.composite
def dense_sets(draw: st.DrawFn) -> Dataset:
    width = draw(st.integers(1, 5))
    rows = draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=8))
    names = draw(st.lists(st.sampled_from(["a", "+1", "größe", "3.5"]), min_size=len(rows), max_size=len(rows)))
    labels = tuple(dict.fromkeys(names))
    return Dataset(np.array(rows), np.array([labels.index(name) for name in names], np.int32), labels)


@settings(max_examples=500, deadline=None)
@given(dense_sets(), st.sampled_from([0, 1]), st.integers(1, 40), st.integers(1, 3))
def test_round_trip_in_any_chunks(tmp_path_factory, dataset: Dataset, base: int, chunk: int, batch: int) -> None:
    """Zeros are left out, yet width, index base and the sign of zero come back."""
    path = tmp_path_factory.mktemp("libsvm") / "data.libsvm"
    with path.open("wb") as stream:
        libsvm_files.write_libsvm(dataset, stream, base)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "CHUNK_BYTES", chunk)
        patch.setattr(libsvm_files, "BATCH_ROWS", batch)
        found = read_dataset(str(path), input_format="libsvm")
    assert found.X.tobytes() == dataset.X.tobytes()
    assert [found.labels[code] for code in found.y] == [dataset.labels[code] for code in dataset.y]


def test_written_form(tmp_path: Path) -> None:
    path = tmp_path / "data.svm"
    X = np.array([[0, 0.5, 0], [2, 0, 0]])
    write_dataset(Dataset(X, np.array([0, 1], np.int32), ("a", "b")), str(path))
    assert path.read_text() == "a 2:0.5 3:0\nb 1:2\n"


@pytest.mark.parametrize("label", ["a b", "a:b", "a,b", "#a"])
def test_labels_that_do_not_fit(tmp_path: Path, label: str) -> None:
    dataset = Dataset(np.ones((1, 1)), np.zeros(1, np.int32), (label,), source="here.csv")
    with pytest.raises(DataError, match=r"here.csv: cannot be written as libsvm: the label .* contains a blank, colon"):
        write_dataset(dataset, str(tmp_path / "data.svm"))


def test_sizes_beyond_the_memory(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASILVAE_MEMORY", "1500K")
    with pytest.raises(
        DataError,
        match=r"2 rows of 100000 features need 1.5 MiB of memory, 1.5 MiB are allowed \(set by METASILVAE_MEMORY\)",
    ):
        read("a 100000:1\nb 1:1\n")
    assert read("a 90000:1\nb 1:1\n").n_features == 90000
