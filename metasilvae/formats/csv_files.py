"""CSV data: a label and values per line, with or without silva's ``# rows columns`` line and column names."""

from __future__ import annotations

import warnings
from typing import IO

import numpy as np

from metasilvae._core.parsing import csv_rows, number_text
from metasilvae.dataset import NO_LABEL, Dataset
from metasilvae.errors import DataError, MetasilvaeWarning, at_line, shorten
from metasilvae.formats.chunks import (
    BATCH_ROWS,
    FIRST_BYTES,
    GrowingArray,
    LabelCodes,
    Problems,
    TextChunks,
    check_size,
    decode_text,
)
from metasilvae.formats.csv_layout import (
    Announcement,
    Layout,
    describe_row,
    find_layout,
    is_header,
    split_cells,
)
from metasilvae.memory import allowed_memory

_LABEL_COLUMN_NAMES = ("label", "class", "target")


def read_csv(
    chunks: TextChunks, problems: Problems, label_column: str, header: bool | None, n_features: int | None
) -> Dataset:
    """Read the rest of a CSV file."""
    layout = find_layout(chunks, label_column, header)
    if n_features is not None and n_features != layout.n_features:
        raise DataError(
            at_line(
                chunks.source,
                layout.width_line,
                f"{layout.n_features} features{' (and the label)' * layout.has_labels} found, "
                f"{n_features} were asked for",
            )
        )
    dataset = _read_rows(chunks, problems, layout)
    problems.finish()
    if dataset.n_samples == 0:
        raise DataError(
            at_line(
                chunks.source,
                layout.width_line,
                "column names, but no rows follow; the first row may have been taken for names, then say --no-header",
            )
        )
    check_announcement(dataset, layout.announcement)
    return dataset


def _read_rows(chunks: TextChunks, problems: Problems, layout: Layout) -> Dataset:
    width = layout.n_features
    X = GrowingArray(np.float64, (width,), _first_capacity(layout))
    y = GrowingArray(np.int32)
    line_of_row = GrowingArray(np.int64)
    spans = np.empty((BATCH_ROWS, 2), np.int64)
    labels = LabelCodes(problems, decode_label)
    while True:
        start, line, n_rows, status = csv_rows.parse_rows(
            chunks.buffer,
            chunks.start,
            chunks.stop,
            chunks.at_end,
            ord(layout.delimiter),
            layout.roles,
            chunks.line,
            X.rest(BATCH_ROWS),
            spans,
            line_of_row.room(BATCH_ROWS),
        )
        chunks.advance(start, line)
        if layout.has_labels:
            labels.encode(chunks.buffer, spans[:n_rows], line_of_row.room(n_rows), y.room(n_rows))
        else:
            y.room(n_rows)[:] = NO_LABEL
        for column in (X, y, line_of_row):
            column.take(n_rows)
        if status == csv_rows.MALFORMED:
            peeked = chunks.peek_line()
            problems.report(chunks.line, describe_row(peeked[0] if peeked else b"", layout))
            chunks.skip_line()
        elif status == csv_rows.FULL:
            # Grow only when a further row is known to follow: an announced number of rows is usually exact.
            check_size(chunks.source, X.n_rows + 1, width)
            X.room(1)
        elif chunks.at_end:
            break
        else:
            chunks.refill()
    return Dataset(X.finish(), y.finish(), labels.labels, layout.feature_names, chunks.source, line_of_row.finish())


def _first_capacity(layout: Layout) -> int:
    """Rows to make room for: as many as announced, if that is believable."""
    announced = layout.announcement.n_rows if layout.announcement else 0
    row_bytes = 8 * layout.n_features
    believable = allowed_memory() // row_bytes
    return max(announced if announced <= believable else 0, min(BATCH_ROWS, FIRST_BYTES // row_bytes), 1)


def decode_label(text: bytes) -> str:
    """A label as it stands in the file, without its quotes."""
    label = decode_text(text)
    if label.startswith('"'):
        label = label[1:-1].replace('""', '"')
    if not label.strip():
        raise ValueError("the label is missing; fill it in or delete the row")
    return label


def check_announcement(dataset: Dataset, announcement: Announcement | None) -> None:
    """Warn if a ``#`` line announces other counts than there are."""
    if announcement is None:
        return
    wrong = []
    if announcement.n_rows != dataset.n_samples:
        wrong.append(f"{announcement.n_rows} rows, {dataset.n_samples} follow")
    if announcement.n_features != dataset.n_features:
        label = " and the label" if dataset.has_labels else ""
        wrong.append(f"{announcement.n_features} features, the rows have {dataset.n_features}{label}")
    if wrong:
        place = at_line(dataset.source, announcement.line, "the # line announces " + "; and ".join(wrong))
        warnings.warn(f"{place}; the rows are trusted", MetasilvaeWarning, stacklevel=2)


def quote_cell(text: str) -> str:
    """A label or name as a CSV cell that reads back as the same text; a ValueError says why there is none."""
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError(f"{shorten(text)} holds a line break or NUL byte; rename it")
    if text != text.strip() or text.startswith("#") or any(mark in text for mark in '",;|\t'):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_csv(dataset: Dataset, stream: IO[bytes]) -> None:
    """Write the ``# rows columns`` line, column names if there are any, and the rows."""
    stream.write(f"# {dataset.n_samples} {dataset.n_features}\n".encode())
    if dataset.feature_names:
        label_name = next(
            (name for name in _LABEL_COLUMN_NAMES if name not in dataset.feature_names),
            _LABEL_COLUMN_NAMES[0],
        )
        line = ",".join(map(quote_cell, (label_name, *dataset.feature_names)))
        if not is_header(split_cells(line, ","), 0):
            warnings.warn(
                "the column names look like numbers; say --header when you read the file again",
                MetasilvaeWarning,
                stacklevel=2,
            )
        stream.write(line.encode() + b"\n")
    labels = [quote_cell(label).encode() for label in dataset.labels]
    row_bytes = max(map(len, labels), default=0) + 1 + dataset.n_features * number_text.LONGEST_CELL
    n_rows = max(1, (1 << 20) // row_bytes)
    text = bytearray(n_rows * row_bytes)
    for first in range(0, dataset.n_samples, n_rows):
        rows = slice(first, first + n_rows)
        length = number_text.write_csv_rows(dataset.X[rows], dataset.y[rows], labels, text)
        stream.write(memoryview(text)[:length])
