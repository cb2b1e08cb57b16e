"""Images as rows: the size of an image, and copies that are shifted by a pixel.

A shifted image shows the same thing, so a model may learn from it too. Pixels that enter at a border repeat the border.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError

FloatArray = NDArray[np.float64]
# Axis of an image in an array of images, and direction: right, left, down, up.
DIRECTIONS = ((2, 1), (2, -1), (1, 1), (1, -1))
_SIZE = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})(?:x([1-9][0-9]{0,2}))?")


@dataclass(frozen=True)
class ImageSize:
    """Size of images whose pixels are the columns of a table, row of pixels by row of pixels.

    Attributes
    ----------
    height, width : int
    n_channels : int
        Numbers of each pixel, which are neighbours in the table.
    """

    height: int
    width: int
    n_channels: int = 1

    @classmethod
    def parse(cls, text: str) -> ImageSize:
        """Read ``28x28`` or ``32x32x3``: height, width and, if there are several, numbers of each pixel."""
        found = _SIZE.fullmatch(text)
        if found is None:
            raise RequestError(
                f"{text!r} is no size of images; give height and width, such as 28x28, or 32x32x3 in colour"
            )
        return cls(*(int(part) for part in found.groups() if part is not None))

    def __str__(self) -> str:
        return f"{self.height}x{self.width}" + (f"x{self.n_channels}" if self.n_channels > 1 else "")

    @property
    def n_columns(self) -> int:
        return self.height * self.width * self.n_channels

    def check(self, dataset: Dataset) -> None:
        """Refuse a data set whose rows cannot be such images."""
        if dataset.n_features != self.n_columns:
            raise DataError(
                f"{dataset.source}: has {dataset.n_features} features, and an image of {self} has {self.n_columns}; "
                "give height and width of the images"
            )
        if dataset.indicators is not None and dataset.indicators.any():
            name = dataset.feature_name(int(np.argmax(dataset.indicators)))
            raise DataError(f"{dataset.source}: {name} stands for a category, which is no pixel of an image")
        if dataset.has_missing:
            raise DataError(f"{dataset.source}: has missing values; images with missing pixels cannot be shifted")

    def shifts(self, X: FloatArray) -> Iterator[FloatArray]:
        """All images shifted by one pixel to the right, then to the left, down and up."""
        images = X.reshape(len(X), self.height, self.width, self.n_channels)
        for axis, step in DIRECTIONS:
            places = np.arange(images.shape[axis]) - step
            shifted = np.take(images, places.clip(0, images.shape[axis] - 1), axis=axis)
            yield np.ascontiguousarray(shifted.reshape(X.shape))
