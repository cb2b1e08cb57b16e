"""Binary data: silva's format 1, and the IDX format of MNIST's images and labels.

silva's format is a line ``# 1 rows columns``, then for each row a 32-byte label and native float64 values.
"""

from __future__ import annotations

import math
import re
from typing import IO

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, at_line, shorten
from metasilvae.formats.csv_files import Announcement, check_announcement
from metasilvae.formats.text import (
    BATCH_ROWS,
    CHUNK_BYTES,
    LONGEST_LINE,
    GrowingArray,
    LabelCodes,
    Problems,
    TextChunks,
    check_size,
)
from metasilvae.io import storage

LABEL_BYTES = 32
# Start of an IDX file: two zero bytes and the type of the values (8: unsigned bytes). The number of dimensions and the
# length of each follow.
_IDX_OF_BYTES = b"\0\0\x08"
_HEADER = re.compile(rb"#[ \t]*1[ \t]+(\d{1,18})[ \t]+(\d{1,18})[ \t]*\r?\n")


def looks_like_binary(head: bytes | bytearray) -> bool:
    """Whether the header line announces binary rows and is followed by a padded label or nothing."""
    match = _HEADER.match(head)
    if match is None:
        return False
    label = head[match.end() : match.end() + LABEL_BYTES]
    return not label or 0 in label


def read_binary(chunks: TextChunks, problems: Problems, n_features: int | None) -> Dataset:
    """Read the rest of a binary file; problems are located by row, counted from 1."""
    source = chunks.source
    # Without the line feed after the text.
    header = _HEADER.match(chunks.buffer[: min(chunks.stop, 256)])
    if header is None:
        raise DataError(at_line(source, 1, "no header line of binary data found, expected: # 1 ROWS FEATURES"))
    announcement = Announcement(1, int(header[1]), int(header[2]))
    width = announcement.n_features
    if width == 0:
        raise DataError(at_line(source, 1, "0 features are announced; the file holds labels only"))
    if n_features is not None and n_features != width:
        raise DataError(at_line(source, 1, f"{width} features are announced, {n_features} were requested"))
    check_size(source, 1, width)
    row_bytes = LABEL_BYTES + 8 * width
    if row_bytes > LONGEST_LINE:
        most = (LONGEST_LINE - LABEL_BYTES) // 8
        raise DataError(at_line(source, 1, f"{width} features are announced, at most {most} are supported"))
    # A row is no line: nothing of it is taken apart.
    chunks.longest_line = row_bytes
    record = np.dtype([("label", np.uint8, (LABEL_BYTES,)), ("values", np.float64, (width,))])
    chunks.advance(header.end(), 2)
    X = GrowingArray(np.float64, (width,), max(1, min(announcement.n_rows, CHUNK_BYTES // row_bytes + 1)))
    y = GrowingArray(np.int32)
    row_problems = _RowProblems(problems)
    labels = LabelCodes(row_problems, _decode_label)
    while True:
        n_rows = min((chunks.stop - chunks.start) // row_bytes, BATCH_ROWS)
        if n_rows == 0:
            if chunks.at_end:
                break
            chunks.refill()
            continue
        block = np.frombuffer(chunks.buffer, record, n_rows, chunks.start)
        rows = np.arange(X.n_rows + 1, X.n_rows + n_rows + 1)
        _check_values(row_problems, rows, block["values"])
        check_size(source, X.n_rows + n_rows, width)
        X.reserve(n_rows)[:] = block["values"]
        spans = np.empty((n_rows, 2), np.int64)
        spans[:, 0] = chunks.start + row_bytes * np.arange(n_rows)
        spans[:, 1] = spans[:, 0] + LABEL_BYTES
        del block
        labels.encode(chunks.buffer, spans, rows, y.reserve(n_rows))
        X.take(n_rows)
        y.take(n_rows)
        chunks.advance(chunks.start + n_rows * row_bytes, 2)
    if chunks.start < chunks.stop:
        row_problems.report(
            X.n_rows + 1,
            f"the file ends in the middle of the row: {chunks.stop - chunks.start} of {row_bytes} bytes; "
            "it is cut short, or the announced number of features is wrong",
        )
    problems.finish()
    if X.n_rows == 0:
        raise DataError(f"{source}: no rows follow the header line")
    dataset = Dataset(X.finish(), y.finish(), labels.labels, None, source, None)
    check_announcement(dataset.source, announcement, dataset.n_samples, dataset.n_features, dataset.has_labels)
    return dataset


class _RowProblems(Problems):
    """Locates problems by row, because binary data has no lines."""

    def __init__(self, problems: Problems) -> None:
        super().__init__(problems.source, problems.limit)
        self.found = problems.found

    def report(self, line: int, problem: str) -> None:
        self.found.append(f"{self.source}: row {line}: {problem}")
        if len(self.found) >= self.limit:
            raise DataError(self.found[0])


def _check_values(problems: Problems, rows: np.ndarray, values: np.ndarray) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    for row in np.flatnonzero(~finite.all(axis=1)):
        feature = int(np.argmin(finite[row]))
        problems.report(
            int(rows[row]),
            f"value {feature + 1} is {float(values[row, feature])!r}, a finite number was expected; "
            "the data or the announced number of features is wrong",
        )


def _decode_label(field: bytes) -> str:
    label, _, padding = field.partition(b"\0")
    if padding.strip(b"\0"):
        raise ValueError("the label continues after its end; the announced number of features is probably wrong")
    if len(label) == LABEL_BYTES:
        raise ValueError("the label fills 32 bytes; at most 31 and a NUL byte are allowed")
    if not label.strip():
        raise ValueError("the label is empty; every row needs one")
    try:
        return label.decode()
    except UnicodeDecodeError:
        raise ValueError("the label is not UTF-8 text; the announced number of features is probably wrong") from None


def write_binary(dataset: Dataset, stream: IO[bytes]) -> None:
    """Write the header line and the rows."""
    labels = np.zeros((dataset.n_labels, LABEL_BYTES), np.uint8)
    for position, label in enumerate(dataset.labels):
        text = label.encode()
        if len(text) >= LABEL_BYTES:
            raise ValueError(f"the label {shorten(label)} is longer than {LABEL_BYTES - 1} bytes; shorten it")
        if 0 in text:
            raise ValueError(f"the label {shorten(label)} contains a NUL byte; rename it")
        labels[position, : len(text)] = np.frombuffer(text, np.uint8)
    stream.write(f"# 1 {dataset.n_samples} {dataset.n_features}\n".encode())
    record = np.dtype([("label", np.uint8, (LABEL_BYTES,)), ("values", np.float64, (dataset.n_features,))])
    n_rows = max(1, CHUNK_BYTES // record.itemsize)
    for first in range(0, dataset.n_samples, n_rows):
        rows = slice(first, first + n_rows)
        block = np.empty(len(dataset.y[rows]), record)
        block["label"] = labels[dataset.y[rows]]
        block["values"] = dataset.X[rows]
        stream.write(block.tobytes())


def read_idx(source: str, n_dimensions: int) -> NDArray[np.uint8]:
    """An array of bytes with the given number of dimensions."""
    content = storage.read_source(source)
    begin = 4 + 4 * n_dimensions
    if content[:4] != _IDX_OF_BYTES + bytes([n_dimensions]) or len(content) < begin:
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
