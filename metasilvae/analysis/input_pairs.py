"""Pairs of inputs that share some features, and the search for a pair that satisfies linear constraints on its scores.

The two inputs are searched as one input with more features (verification/pair_search.pyx): those of the first input,
and once more those that the second one has by itself. A tree becomes a tree of pairs of leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import pair_search
from metasilvae.analysis.difference import LARGEST
from metasilvae.analysis.spaces import InputSpace
from metasilvae.model import Model
from metasilvae.perturbations.groups import TableGroups
from metasilvae.prediction import find_leaves
from metasilvae.verification.budget import RemainingBudget
from metasilvae.voting import VOTINGS, Scores

FloatArray = NDArray[np.float64]
# Pairs of leaves of a tree, as a multiple of its leaves, up to which the tree is joined with its copy: the bound is
# tighter then. A tree with more of them takes part twice, once for each input.
MAX_PAIRS_PER_LEAF = 200
MIN_PAIRS = 20_000


@dataclass(frozen=True)
class Constraint:
    """A weighted sum of the scores of labels at the first and the second input that is at least, or above, a number."""

    first: Mapping[int, int]
    second: Mapping[int, int]
    least: Fraction = Fraction(0)
    is_strict: bool = False

    @property
    def size(self) -> int:
        return sum(map(abs, (*self.first.values(), *self.second.values())))

    def accepts(self, first: Sequence[Fraction], second: Sequence[Fraction]) -> bool:
        """Whether it holds for the exact scores of all labels at both inputs."""
        total = sum((weight * first[label] for label, weight in self.first.items()), Fraction(0))
        total += sum((weight * second[label] for label, weight in self.second.items()), Fraction(0))
        return total > self.least if self.is_strict else total >= self.least


def lead(ahead: int, behind: int) -> dict[int, int]:
    """Weights of the lead of one label over another."""
    return {ahead: 1, behind: -1}


# The two inputs of a question.


@dataclass(frozen=True)
class JointInputs:
    """Two inputs of a space that share all features but some; the second input has copies of these.

    Attributes
    ----------
    own : list of int
        Features that the second input has by itself; their copies follow the features of the first input.
    rising, falling : lists of int
        Those that are at least, or at most, as large in the second input; not missing.
    """

    space: InputSpace
    own: list[int]
    rising: list[int]
    falling: list[int]

    @property
    def copies(self) -> NDArray[np.int32]:
        """The joint number of each feature of the second input."""
        n_features = len(self.space.lower)
        copies = np.arange(n_features, dtype=np.int32)
        copies[self.own] = n_features + np.arange(len(self.own))
        return copies

    @property
    def box(self) -> tuple[FloatArray, FloatArray, NDArray[np.uint8]]:
        """Bounds, and whether values may be missing, by joint feature."""
        joint = [*range(len(self.space.lower)), *self.own]
        may_be_missing = self.space.may_be_missing.copy()
        may_be_missing[[*self.rising, *self.falling]] = False
        return self.space.lower[joint], self.space.upper[joint], may_be_missing[joint].astype(np.uint8)

    @property
    def orders(self) -> NDArray[np.int32]:
        """Pairs of joint features of which the first one is at most the second one."""
        pairs = [(f, self.copies[f]) for f in self.rising] + [(self.copies[f], f) for f in self.falling]
        return np.array(pairs, dtype=np.int32).reshape(-1, 2)

    @cached_property
    def _own_groups(self) -> list[int]:
        """Numbers of the groups of which the second input has a copy."""
        own = set(self.own)
        return [number for number, group in enumerate(self.space.groups.groups) if own & set(group.features)]

    @cached_property
    def groups(self) -> TableGroups:
        """Groups of joint features: those of the space, then copies."""
        groups = self.space.groups.groups
        new = dict(enumerate(self.copies.tolist()))
        return TableGroups((*groups, *(groups[number].renumber(new) for number in self._own_groups)))

    @property
    def tables(self) -> tuple[NDArray[Any], ...]:
        """The groups and their allowed options, in the form that kernels take."""
        allowed = self.space.allowed
        if allowed is None:
            return *self.groups.arrays, np.zeros((0, 0, 0), dtype=np.uint64)
        numbers = [*range(self.space.groups.n_groups), *self._own_groups]
        return *self.groups.arrays, np.ascontiguousarray(allowed[:, numbers])

    def choose(self, box: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Two inputs inside bounds of joint features, shape (2, n_joint), that a search has found."""
        lower, upper = box
        point = np.array([choose_number(*ends) for ends in zip(lower.tolist(), upper.tolist(), strict=True)])
        copies, space = self.copies, self.space
        for feature in space.domains.features:
            for joint in {feature, int(copies[feature])}:
                if not np.isnan(point[joint]):
                    value = space.domains.up_to(feature, point[joint : joint + 1])[0]
                    point[joint] = value if value >= lower[joint] else upper[joint]
        numbers = [*range(space.groups.n_groups), *self._own_groups]
        for number, group in zip(numbers, self.groups.groups, strict=True):
            members = list(group.members)
            fits = ((lower[members] <= group.table) & (group.table <= upper[members])).all(axis=1)
            if group.code >= 0:
                options = np.arange(len(group.table))
                fits &= (lower[group.code] <= options) & (options <= upper[group.code])
            option = int(np.argmax(fits & space.list_options(number)))
            point[members] = group.table[option]
            if group.code >= 0:
                point[group.code] = option
        for one, other in self.orders.tolist():
            point[other] = max(point[one], point[other])
        return point[: len(copies)].copy(), point[copies].copy()


def choose_number(lower: float, upper: float) -> float:
    """A number of few digits between two bounds, well inside; NaN bounds stand for a missing value."""
    if math.isnan(lower):
        return lower
    if lower > -LARGEST and upper < LARGEST:
        inside = 0.5 * lower + 0.5 * upper
    elif lower > -LARGEST:
        inside = min(lower + max(1.0, abs(lower)), upper)
    elif upper < LARGEST:
        inside = max(upper - max(1.0, abs(upper)), lower)
    else:
        inside = 0.0
    for digits in range(1, 17):
        shorter = float(f"{inside:.{digits}g}")
        if lower <= shorter <= upper:
            return shorter
    return min(max(inside, lower), upper)


@dataclass(frozen=True)
class JointForest:
    """The trees of a model for two inputs at once.

    Attributes
    ----------
    pairs : int32 array, shape (n_leaves, 2)
        For each leaf the one of the first and the one of the second input, -1 for none.
    """

    nodes: NDArray[np.void]
    roots: NDArray[np.int32]
    pairs: NDArray[np.int32]
    max_depth: int

    @classmethod
    def join(cls, model: Model, inputs: JointInputs) -> JointForest:
        copies, box = inputs.copies, inputs.box
        parts: list[tuple[NDArray[np.void], NDArray[np.int32]]] = []
        for position, (start, stop) in enumerate(model.tree_bounds):
            n_leaves = (stop - start + 1) // 2
            limit = max(MIN_PAIRS, MAX_PAIRS_PER_LEAF * n_leaves)
            nodes, pairs = pair_search.join_copies(model.nodes, int(model.roots[position]), copies, *box, limit)
            if nodes is not None and pairs is not None:
                parts.append((nodes, pairs))
            else:
                parts += _separate(model, position, copies)
        nodes = np.concatenate([part[0] for part in parts])
        pairs = np.concatenate([part[1] for part in parts])
        is_split = nodes["feature"] >= 0
        sizes = [len(part[0]) for part in parts]
        roots = np.cumsum([0, *sizes[:-1]])
        first_node = np.repeat(roots, sizes)
        first_leaf = np.repeat(np.cumsum([0, *(len(part[1]) for part in parts[:-1])]), sizes)
        nodes["left"] = np.where(is_split, nodes["left"] + first_node, -1)
        nodes["right"] = np.where(is_split, nodes["right"] + first_node, -1)
        nodes["leaf"] = np.where(is_split, nodes["leaf"], nodes["leaf"] + first_leaf)
        # A path has at most the tests of two paths.
        return cls(nodes, roots.astype(np.int32), pairs, 2 * model.max_depth)

    def value(self, constraint: Constraint, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """What each leaf adds to the sum of a constraint."""
        # The last row is that of no leaf.
        extended = np.concatenate([units, np.zeros((1, units.shape[1]), dtype=np.int64)])
        total = np.zeros(len(self.pairs), dtype=np.int64)
        for column, weights in enumerate((constraint.first, constraint.second)):
            for label, weight in weights.items():
                total += weight * extended[self.pairs[:, column], label]
        return total


def _separate(
    model: Model, position: int, copies: NDArray[np.int32]
) -> Iterator[tuple[NDArray[np.void], NDArray[np.int32]]]:
    """A tree once for each input."""
    start, stop = model.tree_bounds[position]
    for column in range(2):
        nodes = model.nodes[start:stop].copy()
        is_split = nodes["feature"] >= 0
        nodes["left"][is_split] -= start
        nodes["right"][is_split] -= start
        leaves = nodes["leaf"][~is_split]
        nodes["leaf"][~is_split] = np.arange(len(leaves))
        pairs = np.full((len(leaves), 2), -1, dtype=np.int32)
        pairs[:, column] = leaves
        if column == 1:
            nodes["feature"][is_split] = copies[nodes["feature"][is_split]]
        yield nodes, pairs


# Searches.


class PairFinder:
    """Searches for pairs of inputs; the budget is for all searches together."""

    def __init__(self, model: Model, voting: str, inputs: JointInputs, remaining: RemainingBudget) -> None:
        self._searched = inputs.space.restrict(model)
        self._inputs = inputs
        self._remaining = remaining
        self._forest = JointForest.join(self._searched, inputs)
        self._scores: Scores = VOTINGS[voting].score(self._searched)

    @property
    def n_steps(self) -> int:
        return self._remaining.steps

    def find(
        self, constraints: Sequence[Constraint], on_fraction: Callable[[float], object]
    ) -> tuple[tuple[FloatArray, FloatArray] | None, str | None]:
        """Two inputs that satisfy all constraints, or else the reason if the search ended without a decision."""
        forest, scores, inputs = self._forest, self._scores, self._inputs
        values = np.stack([forest.value(each, scores.units) for each in constraints], axis=1)
        least = np.array([self._least(each) for each in constraints], dtype=np.int64)
        search = pair_search.PairSearch(
            forest.nodes, forest.roots, forest.max_depth, np.ascontiguousarray(values), least, scores.error == 0,
            *inputs.box, inputs.orders, *inputs.tables,
        )  # fmt: skip
        while True:
            status, reason = self._remaining.run(search, lambda: on_fraction(search.done))
            if status in (SearchStatus.FOUND, SearchStatus.CANDIDATE):
                first, second = inputs.choose(search.box)
                exact = find_exact_scores(self._searched, np.stack([first, second]), scores)
                if all(each.accepts(*exact) for each in constraints):
                    return (first, second), None
                assert status == SearchStatus.CANDIDATE
                reason = self._remaining.reason()
            if status == SearchStatus.ABSENT or reason is not None:
                return None, reason

    def _least(self, constraint: Constraint) -> int:
        """The smallest whole sum that may satisfy a constraint."""
        exact = constraint.least * self._scores.scale
        if self._scores.error:
            least = math.floor(exact) - self._scores.error * self._searched.n_trees * constraint.size
        else:
            least = math.floor(exact) + 1 if constraint.is_strict else math.ceil(exact)
        # No sum is that large; a margin may be.
        return max(min(least, 2**62), -(2**62))


def find_exact_scores(model: Model, X: FloatArray, scores: Scores) -> list[list[Fraction]]:
    """The exact score of each label for each row: votes, sums of fractions or sums of scores."""
    return [
        [sum((scores.exact(leaf, label) for leaf in leaves), Fraction(0)) for label in range(model.n_labels)]
        for leaves in find_leaves(model, X).tolist()
    ]
