"""Dividing work among the jobs of an array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metasilvae.errors import RequestError
from metasilvae.verification.shards import Shard


@given(st.integers(0, 300), st.integers(1, 60))
def test_every_item_and_every_row_belongs_to_one_shard(extra: int, count: int) -> None:
    n = count + extra
    shards = [Shard(number, count) for number in range(1, count + 1)]
    assert [item for shard in shards for item in shard.take_items(range(n))] == list(range(n))
    rows = [shard.take_rows(n) for shard in shards]
    assert sorted(np.concatenate(rows).tolist()) == list(range(n))
    for parts in (rows, [shard.take_items(range(n)) for shard in shards]):
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_notation() -> None:
    assert Shard.parse(" 3/50 ") == Shard(3, 50)
    assert str(Shard(3, 50)) == "3/50"
    assert Shard(1, 1).take_items("abc") == "abc"


@pytest.mark.parametrize("text", ["", "3", "3/", "/3", "a/b", "-1/3", "1.5/3", "1/3/5", "1 / 3"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(RequestError, match=r"is not understood; write I/N, for example 3/50"):
        Shard.parse(text)


@pytest.mark.parametrize("text", ["0/3", "4/3", "0/0"])
def test_shards_that_do_not_exist(text: str) -> None:
    with pytest.raises(RequestError, match=r"there is no shard .*; shards are counted from 1 to N"):
        Shard.parse(text)


def test_more_shards_than_work() -> None:
    with pytest.raises(RequestError, match=r"^4 rows cannot be divided into 5 shards; use at most 4$"):
        Shard(1, 5).take_rows(4)
    with pytest.raises(RequestError, match=r"^2 seeds cannot be divided into 3 shards; use at most 2$"):
        Shard(3, 3).take_items((7, 8), "seeds")
