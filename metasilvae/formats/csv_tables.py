"""CSV tables with texts, quoted cells and missing values (RFC 4180), read into raw columns.

A record may span several lines, because quoted cells may contain line breaks. The layout (delimiter, header, label
column) is that of metasilvae.formats.csv_files; the types of the columns are left to metasilvae.formats.tables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.parsing import csv_rows, table_cells
from metasilvae._core.parsing.number_text import parse_number
from metasilvae.dataset import NO_LABEL
from metasilvae.errors import DataError, at_line, shorten
from metasilvae.formats.csv_files import Layout, decode_label, split_cells
from metasilvae.formats.tables import RawColumn, RawTable, TableOptions
from metasilvae.formats.text import BATCH_ROWS, GrowingArray, LabelCodes, Problems, TextChunks, check_size, decode_text

# Distinct numbers of a column whose texts are kept, in case that it is a category.
MOST_NUMBER_TEXTS = 4096
_BATCH_CELLS = 1 << 16
# Labels that are numbers and more than this are probably values.
_MOST_NUMERIC_LABELS = 50


class _ColumnReader:
    """Collects the cells of one column."""

    def __init__(self, name: str, place: str, keeps_texts: bool, problems: Problems) -> None:
        self._name, self._place = name, place
        self._keeps_texts = keeps_texts
        self._problems = problems
        self._codes = GrowingArray(np.int32)
        self._values = GrowingArray(np.float64)
        self._codes_of_bytes: dict[bytes, int] = {}
        self._codes_of_text: dict[str, int] = {}
        self._n_number_texts = 0

    def take(self, chunks: TextChunks, spans: NDArray[np.int64], lines: NDArray[np.int64]) -> None:
        def add(cell: bytes, row: int) -> int:
            try:
                text = decode_text(cell)
            except ValueError as error:
                self._problems.report(int(lines[row]), f"{self._place}: {error}")
                return 0
            if text.startswith('"'):
                text = text[1:-1].replace('""', '"')
            code = self._codes_of_text.setdefault(text, len(self._codes_of_text))
            self._codes_of_bytes[cell] = code
            self._n_number_texts += parse_number(text.strip().encode()) is not None
            return code

        n_rows = len(spans)
        is_full = self._n_number_texts > MOST_NUMBER_TEXTS and not self._keeps_texts
        table_cells.encode_cells(
            chunks.buffer, spans, self._codes_of_bytes, add, is_full, self._codes.reserve(n_rows),
            self._values.reserve(n_rows),
        )  # fmt: skip
        self._codes.take(n_rows)
        self._values.take(n_rows)

    def finish(self) -> RawColumn:
        return RawColumn(
            self._name, self._place, self._codes.finish(), tuple(self._codes_of_text), self._values.finish()
        )


def read_table(chunks: TextChunks, problems: Problems, layout: Layout, options: TableOptions) -> RawTable:
    """Read the rest of a CSV file as raw columns."""
    names = layout.names
    kept = np.flatnonzero(layout.roles == csv_rows.VALUE).tolist()
    readers = {
        column: _ColumnReader(name, layout.column_name(column), options.keeps_texts(name), problems)
        for number, column in enumerate(kept)
        for name in [(names[column] if names else "") or f"x[{number}]"]
    }
    y, line_of_row = GrowingArray(np.int32), GrowingArray(np.int64)
    labels = LabelCodes(problems, decode_label)
    n_batch = max(1, min(BATCH_ROWS, _BATCH_CELLS // layout.n_columns))
    spans = np.empty((n_batch, layout.n_columns, 2), dtype=np.int64)
    while True:
        start, line, n_rows, status, end = table_cells.split_records(
            chunks.buffer, chunks.start, chunks.stop, chunks.at_end, ord(layout.delimiter), chunks.line, spans,
            line_of_row.reserve(n_batch),
        )  # fmt: skip
        lines = line_of_row.reserve(n_rows)
        if n_rows:
            check_size(chunks.source, y.n_rows + n_rows, 2 * len(readers))
            for column, reader in readers.items():
                reader.take(chunks, spans[:n_rows, column], lines)
            if layout.has_labels:
                of_label = np.ascontiguousarray(spans[:n_rows, layout.label_column])
                labels.encode(chunks.buffer, of_label, lines, y.reserve(n_rows))
            else:
                y.reserve(n_rows)[:] = NO_LABEL
            y.take(n_rows)
            line_of_row.take(n_rows)
        chunks.advance(start, line)
        if status == table_cells.MALFORMED:
            record = bytes(chunks.buffer[start:end])
            # With the byte at which it was refused, which may follow a closing quote.
            problems.report(line, describe_record(bytes(chunks.buffer[start : end + 1]).rstrip(b"\r\n"), layout))
            chunks.advance(end, line + record.count(b"\n"))
            chunks.skip_line()
        elif status == table_cells.USED_UP:
            if chunks.at_end:
                break
            chunks.refill()
    columns = tuple(reader.finish() for reader in readers.values())
    return RawTable(
        columns, names is not None, y.finish(), labels.labels, layout.label_name, line_of_row.finish(), chunks.source
    )


def describe_record(record: bytes, layout: Layout) -> str:
    """The problem of a record that was refused."""
    try:
        text = decode_text(record)
    except ValueError as error:
        return str(error)
    try:
        cells = split_cells(text, layout.delimiter)
    except ValueError as error:
        if "not closed" in str(error):
            column = str(error).partition(":")[0]
            return f"{column}: the quote that opens here is never closed; close it, or write a quote twice"
        return str(error)
    what = "header" if layout.names else "first row"
    advice = "add or remove cells, or quote a cell that holds the delimiter"
    if len(cells) == layout.n_columns:
        return f"column {len(cells)}: text follows the closing quote; write a quote inside quotes twice"
    if len(cells) == layout.n_columns + 1 and not cells[-1]:
        advice = "the line ends with an extra delimiter"
    return (
        f"{len(cells)} column{'s' * (len(cells) != 1)} found, {layout.n_columns} expected as in the {what} "
        f"(line {layout.width_line}); {advice}"
    )


def check_labels(table: RawTable, label_column: str) -> None:
    """Refuse numbers in the first column as labels of a table with other types, unless they were asked for."""
    if label_column != "first" or not table.labels:
        return
    values = [parse_number(label.encode(errors="replace")) for label in table.labels]
    if any(value is None for value in values):
        return
    is_fraction = [not float(value or 0.0).is_integer() for value in values]
    if any(is_fraction) or len(values) > _MOST_NUMERIC_LABELS:
        first = shorten(table.labels[is_fraction.index(True) if any(is_fraction) else 0])
        name = f" ({table.label_name})" if table.label_name else ""
        raise DataError(
            at_line(
                table.source,
                table.line(0),
                f"labels are read from the first column{name}, which holds {len(values)} numbers such as {first}; "
                "name the label's column by --label-column, or confirm it by --label-column 1",
            )
        )
