"""Exact predictions of a model in the plane of two features, the others being fixed, as rectangles.

A rectangle excludes its lower and includes its upper bounds, as `x <= threshold` divides samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import RequestError
from metasilvae.model import MISSING_LEFT, LabelSet, Model
from metasilvae.prediction import predict

# Cells between the thresholds of a forest.
MOST_CELLS = 2_000_000
CELLS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Plane:
    """Part of the plane of two features.

    Attributes
    ----------
    features : the feature to the right, and the one upwards
    point : float64 array, shape (n_features,)
        Values of the other features.
    lower, upper : bounds of the part, for each of the two features
    row : int or None
        The row that has these values; None if they are typical ones.
    """

    features: tuple[int, int]
    point: NDArray[np.float64]
    lower: tuple[float, float]
    upper: tuple[float, float]
    row: int | None = None

    def contains(self, X: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which samples have values of both features that lie in this part."""
        values = X[:, list(self.features)]
        return np.asarray(((values >= self.lower) & (values <= self.upper)).all(axis=1))


@dataclass(frozen=True)
class Rectangle:
    lower: tuple[float, float]
    upper: tuple[float, float]
    prediction: LabelSet

    def holds(self, x: float, y: float) -> bool:
        return self.lower[0] < x <= self.upper[0] and self.lower[1] < y <= self.upper[1]


def slice_model(model: Model, plane: Plane, voting: str | None = None) -> list[Rectangle]:
    """Rectangles without common samples that cover the plane."""
    return list(_slice_tree(model, plane)) if model.n_trees == 1 else _slice_forest(model, plane, voting)


def _slice_tree(tree: Model, plane: Plane) -> Iterator[Rectangle]:
    """One rectangle for each leaf that the plane intersects."""
    nodes, predictions = tree.nodes, tree.leaf_predictions
    waiting = [(int(tree.roots[0]), plane.lower, plane.upper)]
    while waiting:
        node, lower, upper = waiting.pop()
        threshold, feature, left, right, leaf = nodes[node].item()
        if feature < 0:
            yield Rectangle(lower, upper, predictions.sets[predictions.ids[leaf]])
        elif feature not in plane.features:
            value = plane.point[feature]
            goes_left = leaf == MISSING_LEFT if np.isnan(value) else value <= threshold
            waiting.append((left if goes_left else right, lower, upper))
        else:
            axis = plane.features.index(feature)
            if threshold < upper[axis]:
                waiting.append((right, _with(lower, axis, max(lower[axis], threshold)), upper))
            if threshold > lower[axis]:
                waiting.append((left, lower, _with(upper, axis, min(upper[axis], threshold))))


def _with(bounds: tuple[float, float], axis: int, value: float) -> tuple[float, float]:
    return (value, bounds[1]) if axis == 0 else (bounds[0], value)


def _slice_forest(forest: Model, plane: Plane, voting: str | None) -> list[Rectangle]:
    """The cells between all thresholds; neighbours with the same prediction are joined."""
    edges = [_edges(forest, plane, axis) for axis in (0, 1)]
    columns, rows = (len(each) - 1 for each in edges)
    if columns * rows > MOST_CELLS:
        raise RequestError(
            f"{forest.source}: its thresholds divide the plane into {columns} x {rows} cells, at most {MOST_CELLS} are "
            "drawn; draw one of its trees, or a smaller forest"
        )
    ids = np.empty((rows, columns), dtype=np.int64)
    numbers: dict[LabelSet, int] = {}
    per_batch = max(1, CELLS_AT_ONCE // columns)
    for start in range(0, rows, per_batch):
        heights = edges[1][start + 1 : start + per_batch + 1]
        X = np.tile(plane.point, (len(heights) * columns, 1))
        X[:, plane.features[0]] = np.tile(edges[0][1:], len(heights))
        X[:, plane.features[1]] = np.repeat(heights, columns)
        found = predict(forest, X, voting)
        renumbered = np.array([numbers.setdefault(each, len(numbers)) for each in found.sets])
        ids[start : start + len(heights)] = renumbered[found.ids].reshape(len(heights), columns)
    return list(_join_cells(ids, edges[0].tolist(), edges[1].tolist(), list(numbers)))


def _edges(forest: Model, plane: Plane, axis: int) -> NDArray[np.float64]:
    tests = forest.nodes["threshold"][forest.nodes["feature"] == plane.features[axis]]
    inner = tests[(tests > plane.lower[axis]) & (tests < plane.upper[axis])]
    return np.unique([plane.lower[axis], *inner, plane.upper[axis]])


def _join_cells(
    ids: NDArray[np.int64], x: list[float], y: list[float], predictions: list[LabelSet]
) -> Iterator[Rectangle]:
    """Runs of equal cells of a row; equal runs above each other are one rectangle."""
    below: dict[tuple[int, int, int], int] = {}
    for row, line in enumerate(ids):
        starts = np.concatenate([[0], np.flatnonzero(np.diff(line)) + 1])
        runs = zip(starts.tolist(), [*starts[1:].tolist(), len(line)], line[starts].tolist(), strict=True)
        here = {run: below.get(run, row) for run in runs}
        for (start, stop, prediction), first in below.items():
            if (start, stop, prediction) not in here:
                yield Rectangle((x[start], y[first]), (x[stop], y[row]), predictions[prediction])
        below = here
    for (start, stop, prediction), first in below.items():
        yield Rectangle((x[start], y[first]), (x[stop], y[-1]), predictions[prediction])
