"""Stratified splits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_dataset, split_rows
from metasilvae.errors import DataError, RequestError


@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_parts_are_disjoint_ordered_and_stratified(codes: list[int], share: float, seed: int) -> None:
    y = np.array(codes, np.int32)
    train, test = split_rows(y, share, seed)
    assert sorted([*train, *test]) == list(range(len(y)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    for code in set(codes):
        count, in_test = codes.count(code), int((y[test] == code).sum())
        assert in_test < count
        assert abs(in_test - count * share) < 1 or in_test == count - 1
    again = split_rows(y, share, seed)
    assert again[0].tolist() == train.tolist()


def test_size_of_the_test_part() -> None:
    y = np.repeat(np.arange(7, dtype=np.int32), 9)
    assert len(split_rows(y, 0.2, 1)[1]) == round(63 * 0.2)


def test_a_known_split() -> None:
    """Splits made once must come out the same for ever."""
    _, test = split_rows(np.arange(20, dtype=np.int32) % 2, 0.3, 1)
    assert test.tolist() == [2, 9, 16, 17, 18, 19]


def test_seeds_differ() -> None:
    y = np.zeros(100, np.int32)
    assert split_rows(y, 0.5, 1)[1].tolist() != split_rows(y, 0.5, 2)[1].tolist()


def test_misuse() -> None:
    dataset = Dataset(np.ones((2, 1)), np.array([0, 1], np.int32), ("a", "b"), source="here.csv")
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(RequestError, match="expected a number between 0 and 1"):
            split_dataset(dataset, share, 1)
    with pytest.raises(DataError, match=r"here.csv: 2 rows are too few to put 0.2 of them into a test part"):
        split_dataset(dataset, 0.2, 1)


def test_classes_of_one_row_each() -> None:
    dataset = Dataset(np.ones((50, 1)), np.arange(50, dtype=np.int32), tuple(map(str, range(50))), source="here.csv")
    with pytest.raises(DataError, match=r"here.csv: each of its 50 rows is the only one of its class"):
        split_dataset(dataset, 0.2, 1)
