"""Features that tell something only together, and trees that begin with splits by them.

Greedy growth takes the best split at each node. Where labels depend on two or three features together and on none of
them by itself, as on a chessboard, no first split gains anything, and growth begins by chance. A search finds such
splits sometimes. Here they are looked for directly: each feature is divided at its quartiles into two sides that
alternate, and the product of the sides of two or three features is compared with the labels. If labels depend on such
a product clearly, and much more than on the features alone, trees are also grown from all cells of these features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import interactions as kernel
from metasilvae.dataset import Dataset
from metasilvae.training.samples import draw_places

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
Words = NDArray[np.uint64]
# Rows that are looked at, at most; fewer than the least say nothing.
MOST_ROWS = 3000
FEWEST_ROWS = 40
# Multiplications for the products of two or of three features, at most. Otherwise the thresholds are medians only; if
# that is not enough, such products are left out.
MOST_WORK = 2e8
# The probability that features without any effect are found.
FALSE_ALARMS = 0.01
# The statistic of a product must exceed those of its parts by this factor. Otherwise greedy growth finds the splits.
CLEAR_RATIO = 4.0
# It must also exceed this fraction of the largest one of any feature, which growth would begin with.
LEAST_SHARE = 2 / 3


@dataclass(frozen=True)
class Interaction:
    """Features whose sides tell something together.

    Attributes
    ----------
    features : tuple of int
        Increasing.
    thresholds : tuple of tuples of float
        Where the sides of each feature change, increasing.
    """

    features: tuple[int, ...]
    thresholds: tuple[tuple[float, ...], ...]

    @property
    def n_cells(self) -> int:
        """Number of leaves of the tree that divides all features at all thresholds."""
        return math.prod(len(each) + 1 for each in self.thresholds)

    def among(self, features: IntArray) -> Interaction | None:
        """The same interaction by positions in some features (increasing); None if one of its own is not there."""
        if not np.isin(self.features, features).all():
            return None
        return replace(self, features=tuple(np.searchsorted(features, self.features).tolist()))

    def nodes(self) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
        """Feature (-1 in a leaf), threshold, left and right of the nodes of that tree, in pre-order."""
        found: list[list[float]] = []

        def divide(place: int, low: int, high: int) -> int:
            """Append the subtree for thresholds low to high-1 of the feature at a place, and for those after it."""
            if place == len(self.features):
                found.append([-1, 0.0, -1, -1])
                return len(found) - 1
            if low == high:
                after = place + 1
                return divide(after, 0, len(self.thresholds[after]) if after < len(self.features) else 0)
            middle = (low + high) // 2
            found.append([self.features[place], self.thresholds[place][middle], -1, -1])
            node = len(found) - 1
            found[node][2:] = divide(place, low, middle), divide(place, middle + 1, high)
            return node

        divide(0, 0, len(self.thresholds[0]))
        feature, threshold, left, right = np.array(found).T
        return (
            feature.astype(np.int32), np.ascontiguousarray(threshold), left.astype(np.int32), right.astype(np.int32)
        )  # fmt: skip


@dataclass(frozen=True)
class Signs:
    """Columns of signs, packed in bits.

    Attributes
    ----------
    negative, present : uint64 arrays, shape (n_columns, n_words)
        Which signs are negative; which are there, because the value is not missing.
    """

    negative: Words
    present: Words

    @classmethod
    def of(cls, is_negative: NDArray[np.bool_], is_present: NDArray[np.bool_]) -> Signs:
        """From arrays of shape (n_columns, n_rows)."""
        return cls(pack_bits(is_negative), pack_bits(is_present))

    def take(self, numbers: Sequence[int] | slice) -> Signs:
        return Signs(self.negative[numbers], self.present[numbers])

    def times(self, number: int, others: Signs) -> Signs:
        """Products of one of the columns with others."""
        return Signs(others.negative ^ self.negative[number], others.present & self.present[number])


def pack_bits(flags: NDArray[np.bool_]) -> Words:
    """Flags in words of 64 bits, along the last axis."""
    n_missing = -flags.shape[-1] % 64
    padded = np.concatenate([flags, np.zeros((*flags.shape[:-1], n_missing), dtype=np.bool_)], axis=-1)
    return np.ascontiguousarray(np.packbits(padded, axis=-1)).view(np.uint64)


@dataclass(frozen=True)
class Sides:
    """Two sides of features that alternate at thresholds, in up to three ways for each feature.

    Attributes
    ----------
    signs : Signs
        One side is negative, the other one positive; there is no sign where the value is missing.
    feature : intp array, shape (n_sides,)
        Increasing.
    thresholds : list of tuples of float
    """

    signs: Signs
    feature: NDArray[np.intp]
    thresholds: list[tuple[float, ...]]

    @classmethod
    def of(cls, X: FloatArray) -> Sides:
        """Sides that change at the median, at the two other quartiles, or at all three."""
        negative: list[NDArray[np.bool_]] = []
        places: list[tuple[int, tuple[float, ...]]] = []
        for feature, column in enumerate(X.T):
            low, middle, high = find_quartiles(column)
            for ways in ((middle,), (low, high), (low, middle, high)):
                thresholds = tuple(each for each in ways if each is not None)
                # Features with few values have fewer thresholds.
                if len(set(thresholds)) < len(ways):
                    continue
                side = np.zeros(len(column), dtype=np.bool_)
                for threshold in thresholds:
                    side ^= column <= threshold
                negative.append(side)
                places.append((feature, thresholds))
        feature_of = np.array([each for each, _ in places], dtype=np.intp)
        is_negative = np.stack(negative) if negative else np.empty((0, len(X)), dtype=np.bool_)
        signs = Signs.of(is_negative, ~np.isnan(X.T[feature_of]))
        return cls(signs, feature_of, [each for _, each in places])

    @property
    def n_sides(self) -> int:
        return len(self.feature)

    def take(self, numbers: Sequence[int]) -> Sides:
        return Sides(self.signs.take(numbers), self.feature[numbers], [self.thresholds[number] for number in numbers])

    def within(self, may_take: Callable[[int], bool]) -> Sides | None:
        """All sides, or those at medians, or None: the first of them whose number is accepted."""
        if may_take(self.n_sides):
            return self
        medians = self.take([number for number, each in enumerate(self.thresholds) if len(each) == 1])
        return medians if may_take(medians.n_sides) else None

    def join(self, *numbers: int) -> Interaction:
        return Interaction(
            tuple(int(self.feature[number]) for number in numbers), tuple(self.thresholds[number] for number in numbers)
        )


def find_quartiles(column: FloatArray) -> list[float | None]:
    """Thresholds between values of a column, as near to its quartiles as possible; None if there is one value only."""
    values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    if len(values) < 2:
        return [None, None, None]
    below = np.cumsum(counts)[:-1] / counts.sum()
    places = [int(np.argmin(np.abs(below - share))) for share in (0.25, 0.5, 0.75)]
    middles = values[:-1] / 2 + values[1:] / 2
    # Values may have no number between them.
    return [float(middles[each] if middles[each] < values[each + 1] else values[each]) for each in places]


class LabelCounts:
    """How strongly labels depend on products of sides: Pearson's chi-squared statistic of two sides and all labels."""

    def __init__(self, y: NDArray[np.int32]) -> None:
        counts = np.bincount(y)
        labels = np.flatnonzero(counts)
        shares = counts[labels] / len(y)
        self.n_rows, self.n_labels = len(y), len(labels)
        if len(labels) == 2:
            # One label tells what the other one does.
            labels, self._scales, self._shares = labels[:1], [1 / shares[0] + 1 / shares[1]], shares[:1]
        else:
            self._scales, self._shares = (1 / shares).tolist(), shares
        self._all = pack_bits(np.ones(len(y), dtype=np.bool_))
        self._members = [pack_bits(y == label) for label in labels]

    @property
    def n_counted(self) -> int:
        """Number of sums for each product."""
        return len(self._members) + 1

    def measure(self, left: Signs, right: Signs) -> FloatArray:
        """The statistic of the product of each column on the left with each one on the right."""
        n_rows = self.n_rows
        mean = self._sum(left, right, self._all) / n_rows
        found = np.zeros(mean.shape)
        for member, share, scale in zip(self._members, self._shares, self._scales, strict=True):
            covariance = self._sum(left, right, member) / n_rows - share * mean
            found += scale * covariance**2
        # A product that is nearly constant tells nothing.
        variance = 1 - mean**2
        return np.where(variance > 1 / n_rows, n_rows * found / np.maximum(variance, 1 / n_rows), 0.0)

    def measure_alone(self, signs: Signs) -> FloatArray:
        """The statistic of each column."""
        always = Signs(np.zeros_like(self._all)[None], self._all[None])
        return np.asarray(self.measure(always, signs)[0])

    def _sum(self, left: Signs, right: Signs, members: Words) -> NDArray[np.int64]:
        sums = np.empty((len(left.negative), len(right.negative)), dtype=np.int64)
        kernel.sum_products(left.negative, left.present, right.negative, right.present, members, sums)
        return sums


def find_limit(n_labels: int, n_tests: int) -> float:
    """What the largest of so many statistics hardly ever exceeds if labels do not depend on the features.

    A bound of the tail of the chi-squared distribution (Laurent and Massart, Annals of Statistics 2000, lemma 1).
    """
    freedom, rarity = n_labels - 1, math.log(max(1, n_tests) / FALSE_ALARMS)
    return freedom + 2 * math.sqrt(freedom * rarity) + 2 * rarity


def find_interactions(dataset: Dataset) -> tuple[Interaction, ...]:
    """The pair and the triple of features that tell most together, if they tell much less alone.

    Parameters
    ----------
    dataset : Dataset
        Some of its rows are looked at; their weights are not.
    """
    X, y = dataset.X, dataset.y
    if len(y) > MOST_ROWS:
        rows = draw_places(len(y), MOST_ROWS)
        X, y = X[rows], y[rows]
    if len(y) < FEWEST_ROWS or (y == y[0]).all():
        return ()
    labels = LabelCounts(y)

    def is_affordable(n_sides: int, order: int) -> bool:
        return len(y) * labels.n_counted * math.comb(n_sides, order) <= MOST_WORK

    # Where features are too many for their medians, neither time nor memory is spent on them.
    if not is_affordable(dataset.n_features, 2):
        return ()
    every = Sides.of(X)

    def take(order: int) -> Sides | None:
        return every.within(lambda n_sides: is_affordable(n_sides, order))

    # The largest statistic of each feature alone, whatever its sides.
    alone = np.zeros(dataset.n_features)
    np.maximum.at(alone, every.feature, labels.measure_alone(every.signs))
    found = []
    if (sides := take(2)) is not None:
        pair, of_pairs = find_pair(sides, labels, alone)
        found.append(pair)
        if (sides := take(3)) is not None:
            found.append(find_triple(sides, labels, alone, of_pairs))
    return tuple(each for each in found if each is not None)


def find_pair(sides: Sides, labels: LabelCounts, alone: FloatArray) -> tuple[Interaction | None, FloatArray]:
    """The pair that is found, and the largest statistic of each pair of features."""
    statistic = labels.measure(sides.signs, sides.signs)
    rows, columns = np.meshgrid(sides.feature, sides.feature, indexing="ij")
    statistic[rows >= columns] = 0.0
    limit = max(find_limit(labels.n_labels, math.comb(sides.n_sides, 2)), LEAST_SHARE * float(alone.max()))
    place, _ = find_clear(statistic, np.maximum(alone[rows], alone[columns]), limit)
    largest = np.zeros((len(alone), len(alone)))
    np.maximum.at(largest, (rows, columns), statistic)
    return None if place is None else sides.join(*place), np.maximum(largest, largest.T)


def find_triple(sides: Sides, labels: LabelCounts, alone: FloatArray, of_pairs: FloatArray) -> Interaction | None:
    limit = max(find_limit(labels.n_labels, math.comb(sides.n_sides, 3)), LEAST_SHARE * float(alone.max()))
    best: tuple[int, ...] | None = None
    for first in range(sides.n_sides):
        start = int(np.searchsorted(sides.feature, sides.feature[first], side="right"))
        others = sides.signs.take(slice(start, None))
        statistic = labels.measure(sides.signs.times(first, others), others)
        rows, columns = np.meshgrid(sides.feature[start:], sides.feature[start:], indexing="ij")
        statistic[rows >= columns] = 0.0
        own = np.maximum(alone, of_pairs[sides.feature[first]])
        of_parts = np.maximum.reduce([own[rows], own[columns], of_pairs[rows, columns]])
        place, value = find_clear(statistic, np.maximum(of_parts, alone[sides.feature[first]]), limit)
        if place is not None:
            best, limit = (first, start + place[0], start + place[1]), value
    return None if best is None else sides.join(*best)


def find_clear(statistic: FloatArray, of_parts: FloatArray, limit: float) -> tuple[tuple[int, int] | None, float]:
    """Place and value of the largest statistic above the limit that is clearly above that of its parts."""
    clear = np.where(statistic > CLEAR_RATIO * of_parts, statistic, 0.0)
    if not clear.size or clear.max() <= limit:
        return None, limit
    row, column = np.unravel_index(np.argmax(clear), clear.shape)
    return (int(row), int(column)), float(clear.max())
