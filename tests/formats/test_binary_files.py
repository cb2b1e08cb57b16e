"""Reading and writing silva's binary data."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, MetasilvaeWarning
from metasilvae.formats import binary_files, text
from metasilvae.formats.datasets import read_dataset, write_dataset


def pack(header: str, *rows: tuple) -> bytes:
    packed = (struct.pack(f"32s{len(values)}d", label, *values) for label, *values in rows)
    return header.encode() + b"\n" + b"".join(packed)


def test_plain(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(pack("# 1 3 2", (b"a", 1, 2.5), (b"b", -3, 0.1), (b"a", 5e-324, 7)))
    dataset = read_dataset(str(path))
    assert dataset.labels == ("a", "b")
    assert dataset.y.tolist() == [0, 1, 0]
    assert dataset.X.tolist() == [[1, 2.5], [-3, 0.1], [5e-324, 7]]
    assert dataset.line_of_row is None
    assert read_dataset(str(path), n_features=2).n_features == 2
    with pytest.raises(DataError, match="2 features are announced, 3 were requested"):
        read_dataset(str(path), n_features=3)


def test_wrong_number_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(pack("# 1 9 1", (b"a", 1), (b"b", 2)))
    with pytest.warns(MetasilvaeWarning, match="data:1: the # line announces 9 rows, 2 follow"):
        assert read_dataset(str(path)).n_samples == 2


def test_text_that_announces_itself_as_binary_is_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"# 1 2 1\na,1\nb,2\n")
    assert read_dataset(str(path)).X.tolist() == [[1], [2]]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("abü ", min_size=1, max_size=8).filter(str.strip), st.floats(-1e300, 1e300)), min_size=1
    ),
    st.integers(1, 200),
    st.integers(1, 3),
)
def test_round_trip_in_any_chunks(tmp_path_factory, rows: list[tuple[str, float]], chunk: int, batch: int) -> None:
    labels = tuple(dict.fromkeys(label for label, _ in rows))
    y = np.array([labels.index(label) for label, _ in rows], np.int32)
    X = np.array([[value, -value] for _, value in rows])
    path = str(tmp_path_factory.mktemp("binary") / "data.bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "CHUNK_BYTES", chunk + 20)
        patch.setattr(binary_files, "CHUNK_BYTES", chunk)
        patch.setattr(binary_files, "BATCH_ROWS", batch)
        write_dataset(Dataset(X, y, labels), path)
        dataset = read_dataset(path, input_format="binary")
    assert dataset.X.tobytes() == X.tobytes()
    assert dataset.labels == labels
    assert dataset.y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("label", "reason"), [("x" * 32, "is longer than 31 bytes"), ("ü" * 16, "is longer"), ("a\0", "NUL")]
)
def test_labels_that_do_not_fit(tmp_path: Path, label: str, reason: str) -> None:
    dataset = Dataset(np.ones((1, 1)), np.zeros(1, np.int32), (label,))
    with pytest.raises(DataError, match=reason):
        write_dataset(dataset, str(tmp_path / "data.bin"))
    assert list(tmp_path.iterdir()) == []


def test_a_single_feature(tmp_path: Path) -> None:
    path = str(tmp_path / "data.bin")
    dataset = Dataset(np.array([[1.5], [-2.0]]), np.array([0, 1], dtype=np.int32), ("a", "b"))
    write_dataset(dataset, path)
    again = read_dataset(path)
    assert again.X.tolist() == [[1.5], [-2.0]]
    assert again.labels == ("a", "b")
