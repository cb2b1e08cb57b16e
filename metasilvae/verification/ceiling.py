"""The ceiling: the accuracy and robust accuracy on given rows that no model can exceed.

Two rows with different labels conflict if some point is an allowed perturbation of both. A model has one prediction at
that point, so at most one of the two rows is robust: the robust rows are an independent set of the graph of conflicts.
Conversely, a model that predicts in each box of an independent set the label of its row makes all of them robust, and a
decision tree with enough splits is such a model. So the ceiling of robust accuracy is the size of a maximum independent
set. With two classes the graph is bipartite, and the size is the number of rows minus that of a maximum matching
(König). With more classes, the number of rows minus a minimum *fractional* vertex cover is an upper bound; it is the
linear relaxation of the problem, computed by a maximum matching as well, and is rounded down in each connected
component.

Boxes are closed and are compared in float64, as the verifier builds them. Boxes of whole numbers or listed values end
on possible values, so their common part holds one if it is not empty; one-hot groups are checked on the common part. A
missing value is a value of its own, which only two rows share whose values are missing or may become so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.values import hash_rows
from metasilvae._core.verification import conflicts
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.perturbations.boxes import Boxes, Perturbation

# Beyond these numbers the ceiling is a valid upper bound, but may be above the smallest one.
MOST_CONFLICTS = 1 << 24
MOST_PAIRS = 4 * 10**9
# Features whose bounds are compared first.
N_HEAD = 8
_SAMPLED_PAIRS = 1024
_BUFFERED_PAIRS = 1 << 20
# Pairs that are compared between two chances to interrupt.
_BATCH_PAIRS = 1 << 26


@dataclass(frozen=True)
class Ceiling:
    """What no model can exceed on the rows of a data set.

    Attributes
    ----------
    n_rows : int
    accurate : int
        The largest number of rows that a model can classify correctly; smaller than `n_rows` if equal rows have
        different labels.
    robust : int
        No model has more robust rows.
    reached : int
        Some model has at least so many robust rows.
    n_conflicts : int or None
        Pairs of rows that cannot both be robust; None if they were not all counted.
    n_conflicting : int or None
        Rows that are part of a conflict.
    limit : str
        Why not all conflicts were considered, empty if all were.
    """

    n_rows: int
    accurate: int
    robust: int
    reached: int
    n_conflicts: int | None
    n_conflicting: int | None
    limit: str = ""

    @property
    def accuracy(self) -> float:
        return self.accurate / self.n_rows

    @property
    def robust_accuracy(self) -> float:
        return self.robust / self.n_rows

    @property
    def is_exact(self) -> bool:
        """Whether some model reaches the ceiling of robust accuracy."""
        return self.reached == self.robust

    def share(self, robust_accuracy: Fraction | float) -> float:
        """The part of the ceiling that a robust accuracy has reached."""
        return float(robust_accuracy) / self.robust_accuracy


def find_ceiling(
    dataset: Dataset,
    perturbation: Perturbation,
    *,
    most_pairs: int = MOST_PAIRS,
    most_conflicts: int = MOST_CONFLICTS,
) -> Ceiling:
    """The accuracy and the certified robust accuracy that no model can exceed on labelled rows.

    Parameters
    ----------
    most_pairs : int
        Number of pairs of rows that are compared. If there are more whose boxes overlap in the most selective feature,
        each row is compared with the rows next to it only. That leaves out conflicts, so the result stays a valid upper
        bound.
    most_conflicts : int
        Number of conflicts that are stored. If there are more, a greedy matching takes the place of a maximum one,
        which again gives a valid upper bound.
    """
    return bound_boxes(dataset, perturbation.boxes(dataset), most_pairs=most_pairs, most_conflicts=most_conflicts)


def bound_boxes(
    dataset: Dataset, boxes: Boxes, *, most_pairs: int = MOST_PAIRS, most_conflicts: int = MOST_CONFLICTS
) -> Ceiling:
    """The same for boxes of the rows."""
    if boxes.limit is not None:
        raise RequestError(
            f"the ceiling is known for boxes, not for the norm {boxes.limit.norm}; leave it out, or use --norm linf"
        )
    counts = np.bincount(dataset.y, minlength=1)
    majority = int(counts.max())  # the robust rows of a model that always predicts the most frequent label
    accurate = _count_accurate(dataset)
    sweep = _Sweep(dataset, boxes, most_pairs)
    limit = sweep.limit
    pairs = sweep.collect(most_conflicts)
    if pairs is None:
        limit = limit or f"there are more than {most_conflicts} conflicts"
        robust = min(dataset.n_samples - sweep.match_greedily(), accurate)
        return Ceiling(dataset.n_samples, accurate, robust, majority, None, None, limit)
    graph = _Graph(dataset.n_samples, pairs)
    robust, reached = graph.bound_independent()
    n_classes = int(np.count_nonzero(counts))
    robust = min(robust, accurate)
    if limit or not _are_inside(dataset, boxes):
        reached = majority  # the set may not be independent, or the rows themselves may be conflicts too
    elif n_classes <= 2:
        reached = robust
    n_conflicting: int | None = int(np.count_nonzero(np.diff(graph.starts)))
    n_conflicts: int | None = len(pairs)
    if limit:
        n_conflicts = n_conflicting = None
    return Ceiling(dataset.n_samples, accurate, robust, max(reached, majority), n_conflicts, n_conflicting, limit)


def _count_accurate(dataset: Dataset) -> int:
    """Rows that are correct if each set of equal rows gets its most frequent label."""
    hashes = np.empty(dataset.n_samples, np.uint64)
    hash_rows(dataset.X, hashes)
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    labels_of: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    repeated = np.flatnonzero(counts[inverse.reshape(-1)] > 1)
    for row in repeated.tolist():
        labels_of[(dataset.X[row] + 0.0).tobytes()][int(dataset.y[row])] += 1  # -0 equals 0
    return dataset.n_samples - len(repeated) + sum(max(labels.values()) for labels in labels_of.values())


def _are_inside(dataset: Dataset, boxes: Boxes) -> bool:
    """Whether each row is one of its own allowed perturbations."""
    low_center, high_center, down, up, minimum, maximum = boxes.arrays
    if low_center is dataset.X and high_center is dataset.X:
        lowest, highest = np.fmin.reduce(dataset.X), np.fmax.reduce(dataset.X)
        return not ((lowest < minimum) | (highest > maximum)).any()
    with np.errstate(over="ignore"):
        return not any(
            (dataset.X[row] < np.maximum(low_center[row] - down, minimum)).any()
            or (dataset.X[row] > np.minimum(high_center[row] + up, maximum)).any()
            for row in range(dataset.n_samples)
        )


class _Sweep:
    """Rows in the order of the most selective feature, with the bounds of the most selective features."""

    def __init__(self, dataset: Dataset, boxes: Boxes, most_pairs: int) -> None:
        self.n_rows = dataset.n_samples
        low_center, high_center, *scale = boxes.arrays
        ranking = _rank_features(dataset, boxes)
        head, tail = ranking[:N_HEAD], ranking[N_HEAD:]
        low, high = _bounds(boxes, slice(None), head)
        may_be_missing = np.isnan(low)
        if boxes.droppable is not None:
            may_be_missing |= boxes.droppable[:, head] != 0
        low[may_be_missing], high[may_be_missing] = -np.inf, np.inf
        tail = np.concatenate([head[may_be_missing.any(axis=0)], tail])
        self.order = np.argsort(low[:, 0], kind="stable").astype(np.int32)
        self.low, self.high = np.ascontiguousarray(low[self.order]), np.ascontiguousarray(high[self.order])
        ends = np.searchsorted(self.low[:, 0], self.high[:, 0], side="right")
        self.n_compared: NDArray[np.int64] = ends - np.arange(1, self.n_rows + 1)
        self.window = self.n_rows
        self.limit = ""
        if self.n_compared.sum() > most_pairs:
            self.window = max(1, most_pairs // self.n_rows)
            self.n_compared = np.minimum(self.n_compared, self.window)
            self.limit = f"more than {most_pairs} pairs of rows would have to be compared"
        arguments: tuple[Any, ...] = (
            self.low,
            self.high,
            np.ascontiguousarray(dataset.y[self.order]),
            self.order,
            np.ascontiguousarray(tail),
            low_center,
            high_center,
            *scale,
            *boxes.groups.arrays,
            boxes.options,
            boxes.dropping,
            self.window,
            np.zeros(boxes.groups.n_words + 1, dtype=np.uint64),
        )
        find: Callable[..., tuple[int, int]] = conflicts.find_conflicts
        match: Callable[..., int] = conflicts.match_greedily
        self.find, self.match = partial(find, *arguments), partial(match, *arguments)

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Ranges of places, so that an interrupt is handled between them."""
        done = np.cumsum(self.n_compared)
        start = 0
        while start < self.n_rows:
            before = int(done[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(done, before + _BATCH_PAIRS, side="right")))
            yield start, stop
            start = stop

    def collect(self, most_conflicts: int) -> NDArray[np.int32] | None:
        """All conflicts, shape (n_conflicts, 2); None if there are more than the given number."""
        buffer = np.empty((max(_BUFFERED_PAIRS, self.n_rows), 2), dtype=np.int32)
        found: list[NDArray[np.int32]] = []
        n_found = 0
        for start, stop in self._batches():
            while start < stop:
                start, n_pairs = self.find(start, stop, buffer)
                n_found += n_pairs
                if n_found > most_conflicts:
                    return None
                found.append(buffer[:n_pairs].copy())
        return np.concatenate(found)

    def match_greedily(self) -> int:
        """The size of a maximal matching of the conflicts."""
        is_matched = np.zeros(self.n_rows, dtype=np.uint8)
        return sum(self.match(start, stop, is_matched) for start, stop in self._batches())


def _bounds(
    boxes: Boxes, rows: NDArray[np.intp] | slice, features: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of some features of some boxes."""
    low_center, high_center, down, up, minimum, maximum = boxes.arrays
    with np.errstate(over="ignore"):
        return (
            np.maximum(low_center[rows][:, features] - down[features], minimum[features]),
            np.minimum(high_center[rows][:, features] + up[features], maximum[features]),
        )


def _rank_features(dataset: Dataset, boxes: Boxes) -> NDArray[np.int32]:
    """Features by how many boxes they separate, among sampled pairs of rows that the features before do not separate.

    The result decides about the time only.
    """
    features = np.arange(dataset.n_features, dtype=np.int32)
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, dataset.n_samples, (2, _SAMPLED_PAIRS))
    differ = dataset.y[one] != dataset.y[other]
    if differ.any():
        one, other = one[differ], other[differ]
    low, high = _bounds(boxes, one, features)
    low_other, high_other = _bounds(boxes, other, features)
    separates = (low > high_other) | (low_other > high)
    ranking: list[int] = []
    rest = separates
    for _ in range(min(N_HEAD, dataset.n_features)):
        gains = rest.sum(axis=0)
        gains[ranking] = -1
        best = int(gains.argmax())
        ranking.append(best)
        rest = rest[~rest[:, best]]
    by_total = np.argsort(-separates.sum(axis=0), kind="stable")
    return np.array([*ranking, *(f for f in by_total.tolist() if f not in set(ranking))], dtype=np.int32)


class _Graph:
    """The graph of conflicts."""

    def __init__(self, n_rows: int, pairs: NDArray[np.int32]) -> None:
        self.n_rows = n_rows
        self.starts = np.zeros(n_rows + 1, dtype=np.int64)
        self.neighbours = np.empty(2 * len(pairs), dtype=np.int32)
        conflicts.fill_neighbours(pairs, self.starts, self.neighbours)

    def bound_independent(self) -> tuple[int, int]:
        """An upper bound of the size of an independent set, and the size of one that was found."""
        edges = (self.starts, self.neighbours)
        left, right = np.full((2, self.n_rows), -1, dtype=np.int32)
        distance, queue = np.empty((2, self.n_rows), dtype=np.int32)
        cursor = np.empty(self.n_rows, dtype=np.int64)
        while conflicts.augment(*edges, left, right, distance, queue, cursor):
            pass
        is_reached, cover = np.zeros((2, self.n_rows), dtype=np.uint8)
        conflicts.fill_cover(*edges, left, right, queue, is_reached, cover)
        component = np.full(self.n_rows, -1, dtype=np.int32)
        n_components = conflicts.label_components(*edges, queue, component)
        sizes = np.bincount(component, minlength=n_components)
        doubled = np.bincount(component, weights=cover, minlength=n_components).astype(np.int64)
        bound = int((sizes - (doubled + 1) // 2).sum())
        # Rows of weight 0 are independent, and their neighbours have weight 1; the rest is tried in order of degree.
        degrees = np.diff(self.starts)
        candidates = np.lexsort((degrees, cover))
        is_taken = np.zeros(self.n_rows, dtype=np.uint8)
        conflicts.pick_independent(*edges, candidates[cover[candidates] < 2].astype(np.int64), is_taken)
        return bound, int(is_taken.sum())
