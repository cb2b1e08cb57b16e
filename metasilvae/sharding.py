"""Work divided among the jobs of a batch array: each job knows its number and how many they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import RequestError

T = TypeVar("T")
_SYNTAX = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True)
class Shard:
    """The part `number` of `count`, counted from 1."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise RequestError(f"there is no shard {self.number} of {self.count}; shards are counted from 1 to N")

    @classmethod
    def parse(cls, text: str) -> Shard:
        found = _SYNTAX.fullmatch(text.strip())
        if found is None:
            raise RequestError(f"shard {text!r} is not understood; write I/N, for example 3/50")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def take_items(self, items: Sequence[T]) -> Sequence[T]:
        """This shard's items, next to each other: those of all shards in a row are all items in order."""
        return items[self._start(len(items)) : self._end(len(items))]

    def take_rows(self, n_rows: int) -> NDArray[np.intp]:
        """This shard's rows, one in every `count`: a file in which the hard rows lie together is divided evenly."""
        return np.arange(self.number - 1, n_rows, self.count, dtype=np.intp)

    def _start(self, n_items: int) -> int:
        return (self.number - 1) * n_items // self.count

    def _end(self, n_items: int) -> int:
        return self.number * n_items // self.count
