"""Reading images and labels in the IDX format, as MNIST and its successors come."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metasilvae import storage
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError

# Two zero bytes, the type of the values (8: unsigned bytes), then the number of dimensions and the length of each.
_BYTES = b"\0\0\x08"


def read_idx(source: str, n_dimensions: int) -> NDArray[np.uint8]:
    """An array of bytes with the given number of dimensions."""
    content = storage.read_source(source)
    begin = 4 + 4 * n_dimensions
    if content[:4] != _BYTES + bytes([n_dimensions]) or len(content) < begin:
        raise DataError(f"{source}: not an IDX file of bytes in {n_dimensions} dimensions")
    shape = [int(length) for length in np.frombuffer(content, ">u4", n_dimensions, 4)]
    if len(content) - begin != math.prod(shape):
        raise DataError(f"{source}: announces {math.prod(shape)} values and has {len(content) - begin}")
    if 0 in shape:  # the other lengths may be too large even for an empty array
        raise DataError(f"{source}: holds no values")
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def read_images(images: str, labels: str, name: str) -> Dataset:
    """Images as rows of pixels, with their labels."""
    pixels, numbers = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(numbers):
        raise DataError(f"{images} holds {len(pixels)} images, {labels} holds {len(numbers)} labels")
    found, first, codes = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    y = np.argsort(order)[codes].astype(np.int32)
    X = pixels.reshape(len(pixels), -1).astype(np.float64)
    return Dataset(X, y, tuple(str(label) for label in found[order]), source=name)
