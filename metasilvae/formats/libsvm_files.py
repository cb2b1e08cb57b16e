"""LIBSVM data: ``label index:value ...`` per line, indices from 0 or 1, zeros left out."""

from __future__ import annotations

import re
from typing import IO

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.parsing import libsvm_rows, number_text
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, at_line, shorten
from metasilvae.formats.csv_files import describe_cell
from metasilvae.formats.text import (
    BATCH_ROWS,
    FIRST_BYTES,
    GrowingArray,
    LabelCodes,
    Problems,
    TextChunks,
    check_size,
    decode_text,
)
from metasilvae.io.memory import allowed_memory, describe_allowed, describe_bytes

# Memory of an index and a value; of a label, a number of entries and a number of a line.
ENTRY_BYTES = 12
ROW_BYTES = 20
_ENTRY = re.compile(r"[0-9]+:[^,;|\"]*")


def looks_like_libsvm(lines: list[str]) -> bool:
    """Whether the first line with more than a label has ``index:value`` after the label."""
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        if _ENTRY.fullmatch(words[0]):
            return True
        if len(words) > 1:
            return _ENTRY.fullmatch(words[1]) is not None or words[1].startswith("qid:")
    return False


def read_libsvm(chunks: TextChunks, problems: Problems, n_features: int | None, libsvm_width: int | None) -> Dataset:
    """Read the rest of a LIBSVM file.

    Parameters
    ----------
    n_features : requested width
    libsvm_width : width of the model
    """
    indices = GrowingArray(np.int32)
    values = GrowingArray(np.float64)
    row_sizes = GrowingArray(np.int64)
    y = GrowingArray(np.int32)
    line_of_row = GrowingArray(np.int64)
    spans = np.empty((BATCH_ROWS, 2), np.int64)
    labels = LabelCodes(problems, decode_text)
    while True:
        most_entries = (chunks.stop - chunks.start) // 4 + 1
        start, line, n_rows, n_entries, status = libsvm_rows.parse_lines(
            chunks.buffer, chunks.start, chunks.stop, chunks.at_end, chunks.line, indices.reserve(most_entries),
            values.reserve(most_entries), row_sizes.reserve(BATCH_ROWS), spans, line_of_row.reserve(BATCH_ROWS),
        )  # fmt: skip
        chunks.advance(start, line)
        labels.encode(chunks.buffer, spans[:n_rows], line_of_row.reserve(n_rows), y.reserve(n_rows))
        for column in (row_sizes, y, line_of_row):
            column.take(n_rows)
        for column in (indices, values):
            column.take(n_entries)
        needed = ENTRY_BYTES * indices.n_rows + ROW_BYTES * row_sizes.n_rows
        if needed > FIRST_BYTES and needed > (allowed := allowed_memory()):
            raise DataError(
                at_line(
                    chunks.source, chunks.line,
                    f"the rows up to here take {describe_bytes(needed)} of memory, {describe_allowed(allowed)}",
                )
            )  # fmt: skip
        if status == libsvm_rows.MALFORMED:
            peeked = chunks.peek_line()
            problems.report(chunks.line, describe_line(peeked[0] if peeked else b""))
            chunks.skip_line()
        elif status == libsvm_rows.USED_UP:
            if chunks.at_end:
                break
            chunks.refill()
    problems.finish()
    lines = line_of_row.finish()
    if not len(lines):
        raise DataError(f"{chunks.source}: no rows; the file is empty or holds comments only")
    X = _densify(chunks.source, indices.finish(), values.finish(), row_sizes.finish(), lines, n_features, libsvm_width)
    return Dataset(X, y.finish(), labels.labels, None, chunks.source, lines)


def _densify(
    source: str,
    indices: NDArray[np.int32],
    values: NDArray[np.float64],
    row_sizes: NDArray[np.int64],
    line_of_row: NDArray[np.int64],
    n_features: int | None,
    libsvm_width: int | None,
) -> NDArray[np.float64]:
    base = 0 if len(indices) and indices.min() == 0 else 1
    largest = int(indices.max()) if len(indices) else base - 1
    width = n_features or libsvm_width or largest - base + 1
    if width == 0:
        raise DataError(
            f"{source}: no row has an index:value entry, so the number of features is unknown; give it by --features"
        )
    if largest - base >= width:
        row_ends = np.cumsum(row_sizes)

        def line_of(entry: int) -> int:
            return int(line_of_row[np.searchsorted(row_ends, entry, side="right")])

        whose = f"--features {n_features}" if n_features else f"the model's {libsvm_width} features"
        zero = f" (line {line_of(int(indices.argmin()))} has index 0)" if base == 0 else ""
        entry = int(np.argmax(indices >= width + base))
        problem = f"indices count from {base}{zero} and end at {width + base - 1}"
        raise DataError(at_line(source, line_of(entry), f"index {indices[entry]} is beyond {whose}; {problem}"))
    check_size(source, len(row_sizes), width)
    X = np.zeros((len(row_sizes), width))
    libsvm_rows.scatter(indices, values, row_sizes, base, X)
    return X


def describe_line(line: bytes) -> str:
    """The problem of a line that the compiled reader refused."""
    try:
        words = decode_text(line.partition(b"#")[0]).replace("\t", " ").split(" ")
    except ValueError as error:
        return str(error)
    words = [word for word in words if word]
    if ":" in words[0]:
        return f"the label is missing before {shorten(words[0])}; a line is label index:value ..."
    if "," in words[0]:
        return f"{shorten(words[0])} holds several labels, one was expected; multi-label data is not supported"
    previous = -1
    for word in words[1:]:
        index, colon, value = word.partition(":")
        if index == "qid":
            return f"{shorten(word)}: ranking data is not supported; remove the qid entries"
        if not colon or not (index.isascii() and index.isdecimal()):
            return f"{shorten(word)}: expected index:value with a whole number as index"
        if len(index.lstrip("0")) > 10 or int(index) > libsvm_rows.LARGEST_INDEX:
            most = libsvm_rows.LARGEST_INDEX
            return f"index {shorten(index, 24)[1:-1]} is too large; at most {most} features are supported"
        if int(index) == previous:
            return f"index {previous} occurs twice; each index may occur once per line"
        if int(index) < previous:
            return f"index {int(index)} follows index {previous}; sort the indices of the line in increasing order"
        previous = int(index)
        problem = describe_cell(value)
        if problem:
            return f"index {index}: {problem}"
    return "the line cannot be read"


def check_label(label: str) -> None:
    """Raise a ValueError for a label that LIBSVM text cannot represent."""
    if not label or label.split() != [label] or any(mark in label for mark in ":,#\0"):
        raise ValueError(f"the label {shorten(label)} contains a blank, colon, comma or #; rename it")


def write_libsvm(dataset: Dataset, stream: IO[bytes], index_base: int = 1) -> None:
    """Write the rows without zeros; an explicit zero preserves the width and the index base if necessary."""
    for label in dataset.labels:
        check_label(label)
    labels = [label.encode() for label in dataset.labels]
    always = np.zeros(dataset.n_features, np.uint8)
    always[-1] = not dataset.X[:, -1].any()
    always[0] |= index_base == 0 and not dataset.X[:, 0].any()
    never = np.zeros_like(always)
    row_bytes = max(map(len, labels), default=0) + 1 + dataset.n_features * number_text.LONGEST_ENTRY
    n_rows = max(1, (1 << 20) // row_bytes)
    text = bytearray(n_rows * row_bytes)
    for first in range(0, dataset.n_samples, n_rows):
        rows = slice(first, first + n_rows)
        length = number_text.write_libsvm_rows(
            dataset.X[rows], dataset.y[rows], labels, index_base, never if first else always, text
        )
        stream.write(memoryview(text)[:length])
