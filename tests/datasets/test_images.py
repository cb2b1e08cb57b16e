"""Images as rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from metasilvae.dataset import Dataset
from metasilvae.datasets.images import DIRECTIONS, ImageSize
from metasilvae.errors import DataError, RequestError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("28x28", ImageSize(28, 28)), ("3x5", ImageSize(3, 5)), ("32x16x3", ImageSize(32, 16, 3)),
        ("4x4x1", ImageSize(4, 4)),
    ],
)  # fmt: skip
def test_sizes_are_height_and_width(text: str, size: ImageSize) -> None:
    assert ImageSize.parse(text) == size
    assert ImageSize.parse(str(size)) == size
    assert size.n_columns == np.prod([int(part) for part in text.split("x")])


@pytest.mark.parametrize(
    "text", ["", "28", "28x", "x28", "0x3", "3x0", "2x2x0", "2x2x2x2", "2 x 2", "-2x2", "2.5x2", "axb"]
)
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is no size of images; give height and width"):
        ImageSize.parse(text)


@pytest.mark.parametrize(
    "size", [ImageSize(4, 3), ImageSize(1, 5), ImageSize(3, 1), ImageSize(2, 4, 3), ImageSize(1, 1)]
)
def test_shifts_move_every_pixel_by_one(size: ImageSize) -> None:
    X = np.random.default_rng(1).normal(size=(5, size.n_columns))
    before = X.copy()
    shifted = list(size.shifts(X))
    assert len(shifted) == len(DIRECTIONS)
    # Where a pixel of the shifted image comes from: right, left, down, up; outside is the border.
    sources: list[Callable[[int, int], tuple[int, int]]] = [
        lambda row, column: (row, max(column - 1, 0)),
        lambda row, column: (row, min(column + 1, size.width - 1)),
        lambda row, column: (max(row - 1, 0), column),
        lambda row, column: (min(row + 1, size.height - 1), column),
    ]

    def place(row: int, column: int, channel: int) -> int:
        return (row * size.width + column) * size.n_channels + channel

    for copies, source in zip(shifted, sources, strict=True):
        assert copies.flags.c_contiguous
        for row in range(size.height):
            for column in range(size.width):
                for channel in range(size.n_channels):
                    expected = X[:, place(*source(row, column), channel)]
                    assert (copies[:, place(row, column, channel)] == expected).all()
    assert (before == X).all()


def test_rows_that_are_no_images_are_refused() -> None:
    X, y = np.ones((3, 6)), np.zeros(3, dtype=np.int32)
    ImageSize(2, 3).check(Dataset(X, y, ("a",)))
    with pytest.raises(DataError, match="has 6 features, and an image of 3x3 has 9"):
        ImageSize(3, 3).check(Dataset(X, y, ("a",)))
    indicators = np.array([False, True, False, False, False, False])
    with pytest.raises(DataError, match=r"x\[1\] stands for a category"):
        ImageSize(2, 3).check(Dataset(X, y, ("a",), indicators=indicators))
    X[1, 2] = np.nan
    with pytest.raises(DataError, match="missing"):
        ImageSize(2, 3).check(Dataset(X, y, ("a",)))
