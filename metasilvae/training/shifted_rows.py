"""Copies of training rows that are images shifted by a pixel, with their boxes.

Only rows to learn from are copied. Rows that are held out or tested on are others, so none of them is a copy of a row
that is learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from metasilvae._core.verification import reach
from metasilvae.dataset import Dataset, RowWeights
from metasilvae.datasets.images import DIRECTIONS, ImageSize
from metasilvae.errors import DataError, RequestError
from metasilvae.perturbations.boxes import Boxes

# Each image as it is, and its shifts.
N_COPIES = 1 + len(DIRECTIONS)


def shift_rows(dataset: Dataset, boxes: Boxes, size: ImageSize) -> Iterator[tuple[Dataset, Boxes]]:
    """The rows with their boxes, then the same for each direction; a copy is gone when the next one is asked for."""
    yield dataset, boxes
    for X in size.shifts(dataset.X):
        moved = replace(boxes, low_center=X, high_center=X)
        empty = reach.find_empty_box(*moved.arrays)
        if empty is not None:
            row, feature = empty
            raise DataError(
                f"{dataset.source}: row {dataset.number_of(row)}, shifted by a pixel, has {X[row, feature]:g} in "
                f"{dataset.feature_name(feature)}, where the perturbation allows values from "
                f"{boxes.minimum[feature]:g} to {boxes.maximum[feature]:g}; leave out 'image-shifts'"
            )
        yield replace(dataset, X=X, row_numbers=None, line_of_row=None, ids=()), moved


def repeat_weights(weights: RowWeights | None, n_copies: int) -> RowWeights | None:
    """The weights of rows and of their copies."""
    return None if weights is None else replace(weights, numbers=np.tile(weights.numbers, n_copies))


def refuse_unshiftable(dataset: Dataset, boxes: Boxes, size: ImageSize) -> None:
    """Refuse rows that are no images, and boxes that a shifted row does not have."""
    size.check(dataset)
    n_whole = len(boxes.domains.whole)
    is_whole = not boxes.domains.listed and n_whole in (0, dataset.n_features)
    is_ball = boxes.low_center is boxes.high_center and boxes.droppable is None and not boxes.groups.n_groups
    if not (is_ball and is_whole):
        raise RequestError(
            "a shifted image has no box of its own if boxes differ from row to row, or if columns are in groups, "
            "take listed values or may become missing; leave out 'image-shifts'"
        )
