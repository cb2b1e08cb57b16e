"""CSV data: a label and values per line, with or without silva's ``# rows columns`` line and column names.

The layout (delimiter, header, columns) is detected from a few lines in plain Python. The compiled reader reads the
rows; for a row that it cannot read, Python code describes the problem.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.parsing import csv_rows, number_text
from metasilvae._core.parsing.lines import next_line
from metasilvae._core.parsing.number_text import parse_number
from metasilvae.dataset import NO_LABEL, Dataset
from metasilvae.encoding import Column, Encoding
from metasilvae.errors import DataError, MetasilvaeWarning, RequestError, at_line, shorten
from metasilvae.formats.silva_models import label_problem
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
from metasilvae.io.memory import allowed_memory

DELIMITERS = ",;\t|"
SAMPLED_LINES = 20
SAMPLED_BYTES = 1 << 20
SAMPLED_LENGTH = 1 << 16
NO_LABELS = "none"
NO_COLUMN = -1
NOTE_MARK = "#"
# Header of the label column in files that are written; the first one that no feature has.
_LABEL_COLUMN_NAMES = ("label", "class", "target")
# Usual names of the label column.
LABEL_NAMES = frozenset({"label", "labels", "class", "classes", "target"})
_BLANKS = " \t"
_ANNOUNCEMENT = re.compile(r"#\s*(?:([01])\s+)?(\d{1,18})\s+(\d{1,18})\s*", re.ASCII)
_MISSING = frozenset({"?", "na", "n/a", "nan", "+nan", "-nan", "null", "none", "nil", "-", "."})
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_MISSING_VALUE_ADVICE = "fill in a value or delete the row"


class TextFound(Exception):
    """A table of numbers has a cell with text, a missing value or a line break: it has to be read as a table."""


@dataclass(frozen=True)
class Announcement:
    """The counts in a ``# rows columns`` line."""

    line: int
    n_rows: int
    n_features: int


@dataclass(frozen=True)
class Layout:
    """How to read the rows of a CSV file.

    A column whose name starts with ``#`` is a note and is ignored, unless it is the label.

    Attributes
    ----------
    label_column : int
        Position of the label, `NO_COLUMN` if there is none.
    names : tuple of str or None
        Names of all columns, the label's included.
    width_line : int
        Line that fixes the number of columns: the header, or the first row.
    """

    delimiter: str
    n_columns: int
    label_column: int
    names: tuple[str, ...] | None
    announcement: Announcement | None
    width_line: int

    @cached_property
    def roles(self) -> NDArray[np.uint8]:
        """Role of each column: `csv_rows.VALUE`, `LABEL` or `NOTE`."""
        roles = np.full(self.n_columns, csv_rows.VALUE, dtype=np.uint8)
        for column, name in enumerate(self.names or ()):
            if name.startswith(NOTE_MARK):
                roles[column] = csv_rows.NOTE
        if self.has_labels:
            roles[self.label_column] = csv_rows.LABEL
        return roles

    @property
    def has_labels(self) -> bool:
        return self.label_column != NO_COLUMN

    @property
    def n_features(self) -> int:
        return int((self.roles == csv_rows.VALUE).sum())

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        if self.names is None:
            return None
        names = [name for name, role in zip(self.names, self.roles, strict=True) if role == csv_rows.VALUE]
        return tuple(name or f"x[{feature}]" for feature, name in enumerate(names))

    @property
    def label_name(self) -> str | None:
        return (self.names[self.label_column] or None) if self.names is not None and self.has_labels else None

    def column_name(self, column: int) -> str:
        """``column 3 (alcohol)``; columns count from 1."""
        name = self.names[column] if self.names else ""
        return f"column {column + 1} ({name})" if name else f"column {column + 1}"


def is_number(cell: str) -> bool:
    return parse_number(cell.encode(errors="replace")) is not None


def parse_announcement(line: str, number: int) -> Announcement | None:
    """Counts of a ``# rows columns`` or ``# format rows columns`` line, None for any other comment."""
    match = _ANNOUNCEMENT.fullmatch(line.strip())
    return Announcement(number, int(match[2]), int(match[3])) if match else None


def split_cells(line: str, delimiter: str) -> list[str]:
    """Cells of a line without surrounding blanks and quotes; a ValueError says what is wrong with the quotes."""
    blanks = _BLANKS.replace(delimiter, "")
    skip_blanks = re.compile(f"[{blanks}]*").match
    cells: list[str] = []
    position = 0
    while True:
        position = skip_blanks(line, position).end()  # type: ignore[union-attr]
        if line.startswith('"', position):
            match = _QUOTED.match(line, position)
            if match is None:
                raise ValueError(
                    f"column {len(cells) + 1}: the quote is not closed on this line; close it, or remove a line break "
                    "inside the quotes"
                )
            cells.append(match[1].replace('""', '"'))
            end = skip_blanks(line, match.end()).end()  # type: ignore[union-attr]
            if end < len(line) and line[end] != delimiter:
                raise ValueError(
                    f"column {len(cells)}: text follows the closing quote; write a quote inside quotes twice"
                )
        else:
            end = line.find(delimiter, position)
            end = len(line) if end < 0 else end
            cells.append(line[position:end].rstrip(_BLANKS))
        if end == len(line):
            return cells
        position = end + 1


def detect_delimiter(lines: Sequence[str]) -> str:
    """The delimiter that makes the most numbers; among equals the one that occurs most in the first line.

    Of very long lines the beginnings count.
    """
    lines = [line[:SAMPLED_LENGTH] for line in lines]

    def score(delimiter: str) -> tuple[int, int]:
        n_numbers = 0
        for line in lines:
            try:
                cells = split_cells(line, delimiter)
            except ValueError:
                continue
            if len(cells) > 1:
                n_numbers += sum(is_number(cell.replace(",", ".")) for cell in cells)
        return n_numbers, lines[0].count(delimiter)

    return max(DELIMITERS, key=score)


def is_header(cells: Sequence[str], label_column: int) -> bool:
    """Whether no cell except the label is a number, and at least one could be a name."""
    others = [cell for column, cell in enumerate(cells) if column != label_column]
    return not any(map(is_number, others)) and any(
        cell and cell.lower() not in _MISSING and not _INFINITE.fullmatch(cell) and not _DECIMAL_COMMA.fullmatch(cell)
        for cell in others
    )


def find_layout(chunks: TextChunks, label_column: str, header: bool | None) -> Layout:
    """Read the top of a file up to its first row."""
    if not label_column or (label_column.isdecimal() and int(label_column) == 0):
        raise RequestError(f"label column {label_column!r}: expected first, last, a column name or a number from 1")
    named = label_column not in ("first", "last", NO_LABELS) and not label_column.isdecimal()
    if named and header is False:
        raise RequestError(f"the label column {label_column!r} is a name, but --no-header says there are no names")
    forced = header is not None
    announcement = _read_announcement(chunks)
    _skip_comments(chunks)
    sample = _sample_lines(chunks)
    if not sample:
        raise DataError(f"{chunks.source}: no rows; the file is empty or holds comments only")
    delimiter = detect_delimiter(sample)
    number = chunks.line
    try:
        cells = split_cells(sample[0], delimiter)
    except ValueError as error:
        raise DataError(at_line(chunks.source, number, str(error))) from None
    if len(cells) < 2 and label_column != NO_LABELS:
        raise DataError(at_line(chunks.source, number, _describe_single_column(sample[0])))
    if named:
        position = _locate_by_name(chunks.source, label_column, cells, number)
        header = True
    else:
        position = _locate_by_number(chunks.source, label_column, len(cells), number)
        header = is_header(cells, position) if header is None else header
    if header:
        chunks.skip_line()
    layout = Layout(delimiter, len(cells), position, tuple(cells) if header else None, announcement, number)
    if not forced:
        _warn_of_mark(chunks.source, layout, sample[0])
        _warn_of_names(chunks.source, layout, label_column, cells)
    if header and label_column == "first":
        _refuse_note_as_label(chunks.source, number, cells[0])
    if layout.n_features == 0:
        raise DataError(at_line(chunks.source, number, "no column holds values; names that start with # mark notes"))
    return layout


def peek_names(chunks: TextChunks) -> list[str]:
    """The cells of the first line that is no comment, without moving on; empty if they cannot be told apart."""
    start, line = chunks.start, chunks.line
    try:
        _skip_comments(chunks)
        sample = _sample_lines(chunks)
        return split_cells(sample[0], detect_delimiter(sample)) if sample else []
    except (ValueError, DataError):
        return []
    finally:
        chunks.advance(start, line)


def _warn_of_mark(source: str, layout: Layout, line: str) -> None:
    """Warn if the first line of the table could be meant as a comment."""
    if line.lstrip(_BLANKS).startswith(NOTE_MARK):
        what, other = ("a row", "--header") if layout.names is None else ("column names", "--no-header")
        message = (
            f"line {layout.width_line} starts with # and has as many cells as the rows, so it is read as {what}; "
            f"{other} changes that; delete it if it is a comment"
        )
        warnings.warn(f"{source}: {message}", MetasilvaeWarning, stacklevel=2)


def _warn_of_names(source: str, layout: Layout, label_column: str, cells: Sequence[str]) -> None:
    """Warn if column names contradict the chosen label column or header."""
    telling = [column for column, cell in enumerate(cells) if cell.lower() in LABEL_NAMES]
    message = None
    if layout.names is None:
        if telling:
            message = f"the first row contains {cells[telling[0]]!r}, like column names; --header reads it as names"
    elif label_column == "first" and telling and layout.label_column not in telling:
        name = cells[telling[0]]
        message = (
            f"labels are read from the first column, {cells[0]!r}, but there is a column {name!r}; "
            f"--label-column {name} reads that one"
        )
    if message:
        warnings.warn(f"{source}: {message}", MetasilvaeWarning, stacklevel=2)


def _skip_blank_lines(chunks: TextChunks) -> bytes | None:
    """The next line that is not blank, which is not skipped; None at the end of the text."""
    while (peeked := chunks.peek_line()) and not peeked[0].strip():
        chunks.skip_line()
    return peeked[0].strip() if peeked else None


def _read_announcement(chunks: TextChunks) -> Announcement | None:
    """Skip the first line if it is silva's ``# rows columns``."""
    first = _skip_blank_lines(chunks)
    announcement = None
    if first and first.startswith(NOTE_MARK.encode()):
        announcement = parse_announcement(first.decode(errors="replace"), chunks.line)
    if announcement:
        chunks.skip_line()
        _skip_blank_lines(chunks)
    return announcement


def _skip_comments(chunks: TextChunks) -> None:
    """Skip lines that start with ``#``, with a warning; one with as many cells as the rows belongs to the table."""
    mark = NOTE_MARK.encode()
    first = _skip_blank_lines(chunks)
    if first is None or not first.startswith(mark):
        return
    lines = _look_ahead(chunks)
    rows = [line for line in lines if not line.startswith(NOTE_MARK)] or lines[-1:]
    delimiter = detect_delimiter(rows) if rows else ","
    n_columns = _count_cells(rows[0], delimiter) if rows else 0
    first_line, last_line = chunks.line, 0
    while (text := _skip_blank_lines(chunks)) and text.startswith(mark):
        if n_columns > 1 and _count_cells(text.decode(errors="replace"), delimiter) == n_columns:
            break
        last_line = chunks.line
        chunks.skip_line()
    if last_line and text:
        is_one = first_line == last_line
        place = f"line {first_line} starts" if is_one else f"lines {first_line} to {last_line} start"
        message = f"{place} with #, and the rows have another number of cells: ignored as comments"
        warnings.warn(f"{chunks.source}: {message}", MetasilvaeWarning, stacklevel=2)


def _look_ahead(chunks: TextChunks) -> list[str]:
    """Lines that are not blank, from the current one on: those that start with ``#``, and a few after them."""
    lines: list[str] = []
    n_rows = 0
    offset = 0
    while n_rows < SAMPLED_LINES and offset < SAMPLED_BYTES:
        start = chunks.start + offset
        end, next_start = next_line(chunks.buffer, start, chunks.stop, chunks.at_end)
        if end < 0:
            if chunks.at_end or chunks.stop - start > chunks.longest_line:
                break
            chunks.read_on()
            continue
        line = bytes(chunks.buffer[start:end]).decode(errors="replace").strip()
        if line:
            lines.append(line)
            n_rows += not line.startswith(NOTE_MARK)
        offset = next_start - chunks.start
    return lines


def _count_cells(line: str, delimiter: str) -> int:
    try:
        return len(split_cells(line, delimiter))
    except ValueError:  # a quote that is not closed
        return 0


def _refuse_note_as_label(source: str, line: int, name: str) -> None:
    """A first column that is called ``#id`` is a comment, not the labels; one that is called ``# label`` is not."""
    if name.startswith(NOTE_MARK) and name.lstrip(NOTE_MARK + _BLANKS).lower() not in LABEL_NAMES:
        problem = f"the first column is called {shorten(name)}, and names that start with # mark comments"
        advice = "--label-column NAME names the column of the labels; --label-column 1 takes the first one nevertheless"
        raise DataError(at_line(source, line, f"{problem}; {advice}"))


def _sample_lines(chunks: TextChunks) -> list[str]:
    """The current line and a few after it, without moving on; blank lines are left out."""
    peeked = chunks.peek_line()
    if peeked is None:
        return []
    try:
        lines = [decode_text(peeked[0])]
    except ValueError as error:
        raise DataError(at_line(chunks.source, chunks.line, str(error))) from None
    head = bytes(chunks.buffer[peeked[1] : min(peeked[1] + SAMPLED_BYTES, chunks.stop)])
    further = [line.decode(errors="replace") for line in head.splitlines()[:SAMPLED_LINES]]
    return lines + [line for line in further if line.strip()]


def _describe_single_column(line: str) -> str:
    advice = "separate label and values by , ; tab or |"
    if len(line.split()) > 1:
        advice = "it seems to be separated by blanks; " + advice
    return f"{shorten(line.strip())} is a single column, a label and at least one value were expected; {advice}"


def _locate_by_number(source: str, label_column: str, n_columns: int, line: int) -> int:
    if label_column == "first":
        return 0
    if label_column == "last":
        return n_columns - 1
    if label_column == NO_LABELS:
        return NO_COLUMN
    if int(label_column) > n_columns:
        raise DataError(
            at_line(source, line, f"label column {label_column} was requested, but there are {n_columns} columns")
        )
    return int(label_column) - 1


def _locate_by_name(source: str, name: str, cells: Sequence[str], line: int) -> int:
    if name not in cells:
        near = difflib.get_close_matches(name, cells, 1)
        advice = f"did you mean {near[0]!r}?" if near else "give a name of the header row, or first, last or a number"
        raise DataError(at_line(source, line, f"no column is called {name!r} in the first row; {advice}"))
    if cells.count(name) > 1:
        problem = f"{cells.count(name)} columns are called {name!r}; give the number of the column instead"
        raise DataError(at_line(source, line, problem))
    return cells.index(name)


def describe_cell(cell: str) -> str | None:
    """Why a cell is not a number, None if it is one."""
    if is_number(cell):
        return None
    if not cell:
        return f"the cell is empty, a number was expected; {_MISSING_VALUE_ADVICE}"
    if cell.lower() in _MISSING:
        return f"{shorten(cell)} stands for a missing value, a number was expected; {_MISSING_VALUE_ADVICE}"
    if _INFINITE.fullmatch(cell):
        return f"{shorten(cell)} is infinite, a finite number was expected; replace it or delete the row"
    if _DECIMAL.fullmatch(cell):
        return f"{shorten(cell)} is too large for a 64-bit floating point number; rescale the column"
    if _DECIMAL_COMMA.fullmatch(cell):
        return f"{shorten(cell)} is not a number; write a decimal point instead of the comma"
    return (
        f"{shorten(cell)} is not a number; encode categories as numbers, or name the label's column by --label-column"
    )


def describe_row(line: bytes, layout: Layout) -> str:
    """The problem of a row that the compiled reader refused."""
    try:
        cells = split_cells(decode_text(line), layout.delimiter)
    except ValueError as error:
        return str(error)
    if len(cells) != layout.n_columns:
        what = "header" if layout.names else "first row"
        advice = "add or remove cells, or quote a cell that holds the delimiter"
        if cells[0].startswith("#"):
            advice = "comments are allowed only at the top of the file"
        elif len(cells) == layout.n_columns + 1 and not cells[-1]:
            advice = "the line ends with an extra delimiter"
        return (
            f"{len(cells)} column{'s' * (len(cells) != 1)} found, {layout.n_columns} expected as in the {what} "
            f"(line {layout.width_line}); {advice}"
        )
    for column, cell in enumerate(cells):
        if layout.roles[column] == csv_rows.NOTE:
            continue
        if column == layout.label_column:
            if not cell.strip():
                return f"{layout.column_name(column)}: the label is missing; fill it in or delete the row"
            continue
        problem = describe_cell(cell.strip(_BLANKS))
        if problem:
            return f"{layout.column_name(column)}: {problem}"
    return "the row cannot be read"


def needs_table(line: bytes, layout: Layout) -> bool:
    """Whether a row that the compiled reader refused is well-formed but holds texts, or continues on the next line."""
    try:
        cells = split_cells(decode_text(line), layout.delimiter)
    except ValueError as error:
        return "not closed" in str(error)
    if len(cells) != layout.n_columns:
        return False
    for column, cell in enumerate(cells):
        if column == layout.label_column and not cell.strip():
            return False
        if layout.roles[column] == csv_rows.VALUE and not is_number(cell.strip(_BLANKS)):
            odd = (_INFINITE, _DECIMAL, _DECIMAL_COMMA)
            return not any(kind.fullmatch(cell.strip(_BLANKS)) for kind in odd)
    return False


def read_csv(
    chunks: TextChunks, problems: Problems, label_column: str, header: bool | None, n_features: int | None
) -> Dataset:
    """Read the rest of a CSV file of numbers; `TextFound` if it is a table with other cells."""
    layout = find_layout(chunks, label_column, header)
    if n_features is not None and n_features != layout.n_features:
        found = f"{layout.n_features} features{' (and the label)' * layout.has_labels} found"
        raise DataError(at_line(chunks.source, layout.width_line, f"{found}, {n_features} were requested"))
    dataset = _read_rows(chunks, problems, layout)
    problems.finish()
    if dataset.n_samples == 0:
        problem = "column names, but no rows follow; if the first row holds values, use --no-header"
        raise DataError(at_line(chunks.source, layout.width_line, problem))
    check_announcement(dataset.source, layout.announcement, dataset.n_samples, dataset.n_features, dataset.has_labels)
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
            chunks.buffer, chunks.start, chunks.stop, chunks.at_end, ord(layout.delimiter), layout.roles, chunks.line,
            X.rest(BATCH_ROWS), spans, line_of_row.reserve(BATCH_ROWS),
        )  # fmt: skip
        chunks.advance(start, line)
        if layout.has_labels:
            labels.encode(chunks.buffer, spans[:n_rows], line_of_row.reserve(n_rows), y.reserve(n_rows))
        else:
            y.reserve(n_rows)[:] = NO_LABEL
        for column in (X, y, line_of_row):
            column.take(n_rows)
        if status == csv_rows.MALFORMED:
            peeked = chunks.peek_line()
            if peeked and not problems.found and needs_table(peeked[0], layout):
                raise TextFound
            problems.report(chunks.line, describe_row(peeked[0] if peeked else b"", layout))
            chunks.skip_line()
        elif status == csv_rows.FULL:
            # Grow only if another row follows: an announced number of rows is usually exact.
            check_size(chunks.source, X.n_rows + 1, width)
            X.reserve(1)
        elif chunks.at_end:
            break
        else:
            chunks.refill()
    return Dataset(
        X.finish(), y.finish(), labels.labels, layout.feature_names, chunks.source, line_of_row.finish(),
        label_name=layout.label_name,
    )  # fmt: skip


def _first_capacity(layout: Layout) -> int:
    """Rows to allocate first: the announced number, if it fits into memory."""
    announced = layout.announcement.n_rows if layout.announcement else 0
    row_bytes = 8 * layout.n_features
    is_plausible = announced <= allowed_memory() // row_bytes
    return max(announced if is_plausible else 0, min(BATCH_ROWS, FIRST_BYTES // row_bytes), 1)


def decode_label(text: bytes) -> str:
    """A label in the file, without its quotes."""
    label = decode_text(text)
    if label.startswith('"'):
        label = label[1:-1].replace('""', '"')
    if not label.strip():
        raise ValueError("the label is missing; fill it in or delete the row")
    return label


def check_announcement(
    source: str, announcement: Announcement | None, n_rows: int, n_features: int, has_labels: bool
) -> None:
    """Warn if a ``#`` line announces wrong counts."""
    if announcement is None:
        return
    wrong = []
    if announcement.n_rows != n_rows:
        wrong.append(f"{announcement.n_rows} rows, {n_rows} follow")
    if announcement.n_features != n_features:
        label = " and the label" if has_labels else ""
        wrong.append(f"{announcement.n_features} features, the rows have {n_features}{label}")
    if wrong:
        place = at_line(source, announcement.line, "the # line announces " + "; and ".join(wrong))
        warnings.warn(f"{place}; the line is ignored", MetasilvaeWarning, stacklevel=2)


def quote_cell(text: str) -> str:
    """A label or name as a CSV cell that reads back as the same text; a ValueError if that is impossible."""
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError(f"{shorten(text)} contains a line break or NUL byte; rename it")
    if text != text.strip() or text.startswith("#") or any(mark in text for mark in '",;|\t'):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_raw_csv(dataset: Dataset, stream: IO[bytes]) -> None:
    """Write the columns of the table that a data set was made of: label, columns, then those that are no features."""
    encoding = dataset.encoding
    if encoding is None:
        raise ValueError("the data set was not made of a table")
    names = [column.name for column in encoding.columns]
    others = [name for name, _ in dataset.ids if name not in names]
    unused = [name for name in _LABEL_COLUMN_NAMES if name not in (*names, *others)]
    label_name = dataset.label_name or (unused or _LABEL_COLUMN_NAMES)[0]
    head = [*([label_name] if dataset.has_labels else []), *names, *others]
    for name in head:
        if "\n" in name or "\r" in name:
            raise ValueError(f"the name {shorten(name)} contains a line break; rename the column")
    stream.write((",".join(map(quote_text, head)) + "\n").encode())
    cells_of = dict(dataset.ids)
    for row in range(dataset.n_samples):
        label = [dataset.labels[dataset.y[row]]] if dataset.has_labels else []
        cells = [
            *label,
            *(c if isinstance(c, str) else repr(c).removesuffix(".0") for c in encoding.decode(dataset.X[row])),
            *(cells_of[name][row] for name in others),
        ]
        stream.write((",".join(map(quote_text, cells)) + "\n").encode())


def _write_with_gaps(dataset: Dataset, stream: IO[bytes]) -> None:
    """Write numbers with missing values as a table."""
    names = dataset.names.names
    columns = Encoding(tuple(map(Column, names)))
    write_raw_csv(replace(dataset, encoding=columns), stream)


def quote_text(text: str) -> str:
    """A cell of a table, which may contain line breaks, in quotes if it needs them."""
    if text != text.strip() or text.startswith("#") or any(mark in text for mark in '",;|\t\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_csv(dataset: Dataset, stream: IO[bytes]) -> None:
    """Write the ``# rows columns`` line, column names if there are any, and the rows."""
    if dataset.encoding is not None:
        write_raw_csv(dataset, stream)
        return
    if dataset.has_missing:
        _write_with_gaps(dataset, stream)
        return
    stream.write(f"# {dataset.n_samples} {dataset.n_features}\n".encode())
    if dataset.feature_names:
        unused = [name for name in _LABEL_COLUMN_NAMES if name not in dataset.feature_names]
        label_name = unused[0] if unused else _LABEL_COLUMN_NAMES[0]
        line = ",".join(map(quote_cell, (label_name, *dataset.feature_names)))
        if not is_header(split_cells(line, ","), 0):
            warnings.warn(
                "the column names look like numbers; use --header when you read the file",
                MetasilvaeWarning,
                stacklevel=2,
            )
        stream.write(line.encode() + b"\n")
    _write_rows(dataset, [quote_cell(label).encode() for label in dataset.labels], stream)


def write_silva(dataset: Dataset, stream: IO[bytes]) -> None:
    """Write the ``# rows columns`` line and the rows as silva reads them: without column names and quotes."""
    for label in dataset.labels:
        problem = label_problem(label) or ("starts with #" if label.startswith(NOTE_MARK) else None)
        if problem is None and quote_cell(label) != label:
            problem = "needs quotes, which silva does not know"
        if problem:
            raise ValueError(f"the label {shorten(label)} {problem}; rename it")
    stream.write(f"# {dataset.n_samples} {dataset.n_features}\n".encode())
    _write_rows(dataset, [label.encode() for label in dataset.labels], stream)


def _write_rows(dataset: Dataset, labels: list[bytes], stream: IO[bytes]) -> None:
    row_bytes = max(map(len, labels), default=0) + 1 + dataset.n_features * number_text.LONGEST_CELL
    n_rows = max(1, (1 << 20) // row_bytes)
    text = bytearray(n_rows * row_bytes)
    for first in range(0, dataset.n_samples, n_rows):
        rows = slice(first, first + n_rows)
        length = number_text.write_csv_rows(dataset.X[rows], dataset.y[rows], labels, text)
        stream.write(memoryview(text)[:length])
