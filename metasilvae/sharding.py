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

    def take_items(self, items: Sequence[T], what: str = "items") -> Sequence[T]:
        """This shard's items, next to each other: those of all shards in a row are all items in order."""
        self._check(len(items), what)
        return items[(self.number - 1) * len(items) // self.count : self.number * len(items) // self.count]

    def take_rows(self, n_rows: int) -> NDArray[np.intp]:
        """This shard's rows, one in every `count`: a file in which the hard rows lie together is divided evenly."""
        self._check(n_rows, "rows")
        return np.arange(self.number - 1, n_rows, self.count, dtype=np.intp)

    def _check(self, n_items: int, what: str) -> None:
        if self.count > n_items:
            raise RequestError(f"{n_items} {what} cannot be divided into {self.count} shards; use at most {n_items}")
