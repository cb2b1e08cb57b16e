"""Table groups: features that take one of several listed joint values together, such as the columns of a category.

The joint values are the options of a group. A one-hot group has an option for each of its features, in which this
feature is 1 and the others are 0. The features that a category becomes in a model with splits by sets of categories
(`metasilvae.encoding`) are such a group, too: each category is an option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import RequestError

# Members, starts, codes, numbers of options and sets of options, in the order in which kernels take them.
GroupArrays = tuple[
    NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint64]
]  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Features that take one of several joint values.

    Attributes
    ----------
    members : tuple of int
    table : bool array, shape (n_options, n_members)
        The value of each member in each option.
    code : int
        A further feature whose value is the number of the option; -1 if there is none.
    """

    members: tuple[int, ...]
    table: NDArray[np.bool_]
    code: int = -1

    @property
    def features(self) -> tuple[int, ...]:
        return self.members if self.code < 0 else (*self.members, self.code)

    @property
    def is_one_hot(self) -> bool:
        return self.code < 0

    @classmethod
    def one_hot(cls, members: Sequence[int]) -> Group:
        return cls(tuple(members), np.eye(len(members), dtype=np.bool_))

    def renumber(self, new: Mapping[int, int]) -> Group:
        """The same group with other numbers of features."""
        return Group(tuple(new[f] for f in self.members), self.table, new[self.code] if self.code >= 0 else -1)

    def find_options(self, X: NDArray[np.float64]) -> NDArray[np.intp]:
        """The option that each sample takes, -1 for one that takes none."""
        own = X[:, self.members]
        if self.is_one_hot:
            option = np.argmax(own, axis=1) if len(self.members) else np.zeros(len(X), dtype=np.intp)
        else:
            code = X[:, self.code]
            with np.errstate(invalid="ignore"):
                is_known = (code >= 0) & (code < len(self.table)) & (code == np.floor(code))
            option = np.where(is_known, code, -1).astype(np.intp)
        is_taken = (option >= 0) & (self.table[option] == own).all(axis=1)
        return np.where(is_taken, option, -1)


@dataclass(frozen=True)
class TableGroups:
    """All groups of a perturbation; no feature is in two of them.

    Attributes
    ----------
    groups : tuple of Group
    """

    groups: tuple[Group, ...] = field(default=())

    @property
    def n_groups(self) -> int:
        return len(self.groups)

    @property
    def members(self) -> NDArray[np.int32]:
        """Features of the first group, then of the second, and so on, without codes."""
        return np.array([f for group in self.groups for f in group.members], dtype=np.int32)

    @property
    def starts(self) -> NDArray[np.int32]:
        """Where each group begins in `members`, and the end."""
        return np.cumsum([0, *(len(group.members) for group in self.groups)]).astype(np.int32)

    @property
    def n_words(self) -> int:
        """Words of a set of options."""
        return max(((len(group.table) + 63) // 64 for group in self.groups), default=0)

    @property
    def arrays(self) -> GroupArrays:
        """The groups in the form that kernels take."""
        codes = np.array([group.code for group in self.groups], dtype=np.int32)
        n_options = np.array([len(group.table) for group in self.groups], dtype=np.int32)
        ones = [pack_options(group.table.T, self.n_words) for group in self.groups]
        words = np.concatenate(ones) if ones else np.zeros((0, 0), dtype=np.uint64)
        return self.members, self.starts, codes, n_options, np.ascontiguousarray(words)

    @property
    def lists(self) -> list[list[int]]:
        """The features of each group, without codes."""
        return [list(group.members) for group in self.groups]

    @property
    def feature_lists(self) -> list[list[int]]:
        """The same with codes."""
        return [list(group.features) for group in self.groups]

    @property
    def parts(self) -> tuple[NDArray[np.generic], ...]:
        """What tells groups apart, as arrays; one-hot groups without their tables."""
        tables = [np.packbits(group.table) for group in self.groups if not group.is_one_hot]
        codes = [np.array([group.code for group in self.groups])] if tables else []
        return (self.members, self.starts, *codes, *tables)

    @classmethod
    def of_lists(cls, groups: Sequence[Sequence[int]]) -> TableGroups:
        """One-hot groups."""
        return cls(tuple(map(Group.one_hot, groups)))

    @classmethod
    def of_tiers(cls, tiers: Sequence[int], n_features: int) -> TableGroups:
        """One-hot groups from the number of each feature's group, 0 for a feature in none."""
        if len(tiers) != n_features:
            raise RequestError(
                f"{len(tiers)} tiers were given for {n_features} features; give one number for each feature, 0 for none"
            )
        if min(tiers, default=0) < 0:
            raise RequestError(f"tier {min(tiers)}: a tier is 0 (no group) or the number of a group")
        numbers = sorted(set(tiers) - {0})
        return cls.of_lists([[f for f, tier in enumerate(tiers) if tier == number] for number in numbers])


def pack_options(is_in: NDArray[np.bool_], n_words: int) -> NDArray[np.uint64]:
    """Sets of options as bits of words, from a table of shape (n_sets, n_options)."""
    packed = np.zeros((len(is_in), 8 * n_words), dtype=np.uint8)
    octets = np.packbits(is_in, axis=1, bitorder="little")
    packed[:, : octets.shape[1]] = octets
    return packed.view("<u8").astype(np.uint64).reshape(len(is_in), n_words)
