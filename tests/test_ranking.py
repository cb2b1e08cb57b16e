import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metasilvae._core.breeding import rank_values
from metasilvae._core.ranking import rank_whole_numbers

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


@pytest.mark.parametrize("column", [[0.0, 0.5], [0.0, 8.0], [-1e308, 1e308], [1e308, -1e308, 3.0]])
def test_other_columns_are_left_to_a_sort(column: list[float]) -> None:
    assert rank_whole_numbers(np.array(column), np.empty(8, np.int32), np.empty(len(column), np.int32)) is None


def test_narrow_range_is_counted() -> None:
    room, ranks = np.empty(8, np.int32), np.empty(4, np.int32)
    assert rank_whole_numbers(np.array([5.0, -2.0, 5.0, 0.0]), room, ranks) == (-2.0, 8)
    assert ranks.tolist() == [2, 0, 2, 1]
    assert room.tolist() == [1, 0, 1, 0, 0, 0, 0, 1]
