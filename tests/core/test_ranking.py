import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metasilvae._core.common.values import find_narrow, rank_values

WHOLE = st.integers(-50, 50).map(float)
VALUES = st.one_of(WHOLE, st.floats(-3, 3), st.just(-0.0), st.sampled_from([1e300, -1e300, 2.0**53, 1e-9]))


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(VALUES, min_size=n, max_size=n), min_size=1, max_size=40)))
def test_ranks_are_those_of_a_sort(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    codes, values, starts = rank_values(matrix)
    for column, ranks in enumerate(codes):
        own = values[starts[column] : starts[column + 1]]
        assert own.tolist() == sorted(set(matrix[:, column].tolist()))
        assert own[ranks].tolist() == matrix[:, column].tolist()
        assert not np.signbit(own[own == 0]).any()


@pytest.mark.parametrize(
    ("column", "is_narrow"),
    [
        ([5.0, -2.0, 5.0, 0.0], True),
        ([0.0, 0.5], False),
        ([0.0, 8.0], False),
        ([-1e308, 1e308], False),
        ([1e308, -1e308, 3.0], False),
    ],
)
def test_whole_numbers_in_a_narrow_range_are_counted(column: list[float], is_narrow: bool) -> None:
    narrow = np.empty(1, np.uint8)
    find_narrow(np.array([column]), 8, narrow)
    assert narrow.tolist() == [is_narrow]


@pytest.mark.parametrize("n_columns", [1, 16, 17, 5000])
def test_columns_of_different_kinds_side_by_side(n_columns: int) -> None:
    rng = np.random.default_rng(n_columns)
    matrix = np.where(rng.random(n_columns) < 0.5, rng.integers(-3, 3, (20, n_columns)), rng.random((20, n_columns)))
    codes, values, starts = rank_values(matrix)
    for column, ranks in enumerate(codes):
        distinct, inverse = np.unique(matrix[:, column], return_inverse=True)
        assert values[starts[column] : starts[column + 1]].tolist() == distinct.tolist()
        assert ranks.tolist() == inverse.tolist()


def test_no_rows() -> None:
    codes, values, starts = rank_values(np.empty((0, 2)))
    assert codes.shape == (2, 0)
    assert len(values) == 0
    assert starts.tolist() == [0, 0, 0]
