"""Data sets in all formats: recognized by content for reading, chosen by file name for writing."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO, BinaryIO, cast

from metasilvae.dataset import Dataset
from metasilvae.encoding import Column, Encoding
from metasilvae.errors import DataError, MetasilvaeWarning, RequestError, at_line
from metasilvae.formats.binary_files import looks_like_binary, read_binary, write_binary
from metasilvae.formats.csv_files import (
    NO_LABELS,
    TextFound,
    check_announcement,
    find_layout,
    peek_names,
    read_csv,
    write_csv,
    write_silva,
)
from metasilvae.formats.csv_tables import check_labels, read_table
from metasilvae.formats.frames import PARQUET_START, read_parquet
from metasilvae.formats.libsvm_files import looks_like_libsvm, read_libsvm, write_libsvm
from metasilvae.formats.silva_models import FOREST_WORD, TREE_WORD
from metasilvae.formats.tables import DEFAULT_TABLE, RawTable, TableOptions, read_typed
from metasilvae.formats.text import CHUNK_BYTES, NUL_BYTE, Problems, TextChunks, check_size
from metasilvae.io import storage

WRITERS: dict[str, Callable[[Dataset, IO[bytes]], None]] = {
    "csv": write_csv,
    "silva": write_silva,
    "libsvm": write_libsvm,
    "binary": write_binary,
}
FORMAT_OF_SUFFIX = {
    ".csv": "csv",
    ".txt": "csv",
    ".data": "csv",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".bin": "binary",
    ".binary": "binary",
}
READ_FORMATS = ("csv", "libsvm", "binary", "parquet")
INPUT_FORMATS = ("auto", *READ_FORMATS)
_SAMPLED_BYTES = 1 << 16
_OTHER_ENCODINGS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_UTF8_MARK = b"\xef\xbb\xbf"


def read_dataset(
    source: str,
    *,
    input_format: str = "auto",
    label_column: str = "first",
    header: bool | None = None,
    n_features: int | None = None,
    libsvm_width: int | None = None,
    needs_labels: bool = True,
    columns: TableOptions = DEFAULT_TABLE,
    encoding: Encoding | None = None,
    label_name: str | None = None,
    model_names: Sequence[str] | None = None,
    maker: str = "",
) -> Dataset:
    """Read a data set from a path, ``-`` (standard input), ``builtin:NAME/SPLIT`` or ``cache:NAME/SPLIT``.

    Parameters
    ----------
    input_format : ``auto`` (by content), ``csv``, ``libsvm``, ``binary`` or ``parquet``
    label_column : ``first``, ``last``, a column name, a column number from 1, or ``none``; CSV only
    header : whether CSV data starts with column names; None detects it
    n_features : width that the data must have; LIBSVM rows are filled up with zeros to it
    libsvm_width : width of LIBSVM data when `n_features` is not given, usually that of a model
    needs_labels : refuse the label column ``none``
    columns : types of columns, missing values and rare categories; CSV only
    encoding : how columns become features, usually that of a model; None finds it out from the rows
    label_name : name of the label column where `label_column` is ``first`` and there is such a column
    model_names : names of the features of a model without an encoding, whose columns are numbers
    maker : name of the model that the data are for, for messages; texts are refused if it has no encoding

    Raises
    ------
    DataError
        The file cannot be read; the message names file, line and column.
    RequestError
        The arguments contradict each other.
    """
    if needs_labels:
        check_label_column(label_column)
    problems = Problems(storage.display_name(source))
    reading = _Reading(
        input_format, label_column, header, n_features, libsvm_width, columns, encoding, label_name, model_names, maker
    )
    return _read(source, problems, reading, needs_labels)


def read_raw_table(
    source: str,
    problems: Problems,
    *,
    input_format: str = "auto",
    label_column: str = "first",
    header: bool | None = None,
    n_features: int | None = None,
    columns: TableOptions = DEFAULT_TABLE,
) -> RawTable:
    """Read the columns of CSV data as they are, without types; options as in `read_dataset`."""
    reading = _Reading(input_format, label_column, header, n_features, None, columns)
    if input_format not in ("auto", "csv", "parquet"):
        raise RequestError("columns have types in CSV and Parquet data only")
    with storage.open_source(source) as stream:
        chunks = TextChunks(stream, problems.source)
        if _choose_reader(chunks, reading) == "parquet":
            return _read_parquet(chunks, reading, True)
        if _choose_reader(chunks, reading) != "csv":
            raise RequestError(f"{chunks.source}: columns have types in CSV and Parquet data only")
        _check_encoding(chunks)
        return _read_raw(chunks, problems, reading, True)


@dataclass(frozen=True)
class _Reading:
    """The arguments of `read_dataset`."""

    input_format: str
    label_column: str
    header: bool | None
    n_features: int | None
    libsvm_width: int | None = None
    table: TableOptions = DEFAULT_TABLE
    encoding: Encoding | None = None
    label_name: str | None = None
    model_names: Sequence[str] | None = None
    maker: str = ""

    @property
    def wants_table(self) -> bool:
        return self.encoding is not None or not self.table.are_default


class _Rereadable:
    """A stream that can be read from its start a second time; what has been read is kept in a temporary file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._spool = tempfile.SpooledTemporaryFile(max_size=CHUNK_BYTES)
        self._is_again = False

    def readinto(self, view: memoryview) -> int:
        if self._is_again:
            kept = self._spool.read(len(view))
            view[: len(kept)] = kept
            if kept:
                return len(kept)
        n_read: int = self._stream.readinto(view)  # type: ignore[attr-defined]
        if n_read and not self._is_again:
            self._spool.write(view[:n_read])
        return n_read

    def restart(self) -> None:
        self._spool.seek(0)
        self._is_again = True

    def close(self) -> None:
        self._spool.close()


def find_problems(
    source: str,
    *,
    limit: int = 10,
    input_format: str = "auto",
    label_column: str = "first",
    header: bool | None = None,
    n_features: int | None = None,
    columns: TableOptions = DEFAULT_TABLE,
) -> tuple[Dataset | None, list[str], list[str]]:
    """Read a data set and collect problems instead of stopping at the first one.

    Returns
    -------
    dataset : the data set, None if the file has problems
    problems : errors, at most `limit`
    oddities : warnings, for instance about wrong counts
    """
    check_label_column(label_column)
    problems = Problems(storage.display_name(source), limit)
    dataset = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MetasilvaeWarning)
        try:
            reading = _Reading(input_format, label_column, header, n_features, None, columns)
            dataset = _read(source, problems, reading, True)
        except DataError as error:
            if not problems.found:
                problems.found.append(str(error))
    oddities = [str(warning.message) for warning in caught if issubclass(warning.category, MetasilvaeWarning)]
    return dataset, problems.found, oddities


def check_label_column(label_column: str) -> None:
    """Refuse ``none`` where labels are needed."""
    if label_column == NO_LABELS:
        raise RequestError("--label-column none is only for predict; all other commands need labels")


def _read(source: str, problems: Problems, reading: _Reading, needs_labels: bool) -> Dataset:
    if reading.input_format not in INPUT_FORMATS:
        raise RequestError(f"input format {reading.input_format!r}: expected {', '.join(INPUT_FORMATS)}")
    is_file = source.startswith((storage.BUILTIN_PREFIX, storage.CACHE_PREFIX)) or os.path.isfile(source)
    with storage.open_source(source) as stream:
        again = None if is_file else _Rereadable(stream)
        try:
            return _read_stream(cast(BinaryIO, again or stream), problems, reading, needs_labels)
        except TextFound:
            if again is not None:
                again.restart()
                return _read_as_table(cast(BinaryIO, again), problems, reading, needs_labels)
        finally:
            if again is not None:
                again.close()
    with storage.open_source(source) as stream:
        return _read_as_table(stream, problems, reading, needs_labels)


def _read_stream(stream: BinaryIO, problems: Problems, reading: _Reading, needs_labels: bool) -> Dataset:
    chunks = TextChunks(stream, problems.source)
    input_format = _choose_reader(chunks, reading)
    if input_format == "parquet":
        return _finish_table(_read_parquet(chunks, reading, needs_labels), problems, reading)
    if input_format == "binary":
        return read_binary(chunks, problems, reading.n_features)
    _check_encoding(chunks)
    if input_format == "libsvm":
        return read_libsvm(chunks, problems, reading.n_features, reading.libsvm_width)
    if reading.wants_table:
        return _finish_table(_read_raw(chunks, problems, reading, needs_labels), problems, reading)
    return read_csv(chunks, problems, reading.label_column, reading.header, reading.n_features)


def _choose_reader(chunks: TextChunks, reading: _Reading) -> str:
    """The format of a file; refuses what is no data, and options that the format does not have."""
    if chunks.stop == 0:
        raise DataError(f"{chunks.source}: the file is empty")
    if (bytes(chunks.buffer[:40]).split() or [b""])[0].decode(errors="replace") in (TREE_WORD, FOREST_WORD):
        raise DataError(
            f"{chunks.source}: this is a model, not a data set; where both are needed, MODEL comes before DATA"
        )
    input_format = detect_format(chunks) if reading.input_format == "auto" else reading.input_format
    if input_format == "parquet":
        return input_format
    if input_format != "csv" and (reading.label_column != "first" or reading.header):
        raise RequestError(f"{chunks.source}: label column and header are for CSV data, this is read as {input_format}")
    if input_format != "csv" and not reading.table.are_default:
        raise RequestError(f"{chunks.source}: types of columns are for CSV data, this is read as {input_format}")
    return input_format


def _read_parquet(chunks: TextChunks, reading: _Reading, needs_labels: bool) -> RawTable:
    content = bytearray(chunks.buffer[chunks.start : chunks.stop])
    while not chunks.at_end:
        check_size(chunks.source, 1, len(content) // 8)
        chunks.advance(chunks.stop, chunks.line)
        chunks.refill()
        content += chunks.buffer[chunks.start : chunks.stop]
    known = reading.table.label or reading.label_name
    return read_parquet(bytes(content), chunks.source, reading.label_column, known, needs_labels)


def _read_as_table(stream: BinaryIO, problems: Problems, reading: _Reading, needs_labels: bool) -> Dataset:
    chunks = TextChunks(stream, problems.source)
    _check_encoding(chunks)
    with warnings.catch_warnings():  # they were given already
        warnings.simplefilter("ignore", MetasilvaeWarning)
        table = _read_raw(chunks, problems, reading, needs_labels)
    return _finish_table(table, problems, reading)


def _read_raw(chunks: TextChunks, problems: Problems, reading: _Reading, needs_labels: bool) -> RawTable:
    label_column, header = _choose_label(chunks, reading, needs_labels), reading.header
    layout = find_layout(chunks, label_column, header)
    table = read_table(chunks, problems, layout, reading.table)
    if not table.n_rows:
        problems.finish()
        problem = "column names, but no rows follow; if the first row holds values, use --no-header"
        raise DataError(at_line(chunks.source, layout.width_line, problem))
    check_labels(table, label_column)
    check_announcement(chunks.source, layout.announcement, table.n_rows, len(table.columns), layout.has_labels)
    return table


def _choose_label(chunks: TextChunks, reading: _Reading, needs_labels: bool) -> str:
    """The label column: the requested one, or that of the schema or of the model."""
    known = reading.table.label or reading.label_name
    if reading.label_column != "first" or known is None or reading.header is False:
        return reading.label_column
    names = peek_names(chunks)
    if known in names:
        return known
    return "first" if needs_labels else NO_LABELS


def _finish_table(table: RawTable, problems: Problems, reading: _Reading) -> Dataset:
    encoding = reading.encoding
    if encoding is None and reading.maker:
        names = reading.model_names
        is_named = names is not None and table.has_names and set(names) <= set(table.names)
        features = [name for name in table.names if not reading.table.keeps_texts(name)]
        encoding = Encoding(tuple(map(Column, names if is_named and names is not None else features)))
    dataset = read_typed(table, reading.table, problems, encoding, reading.maker)
    problems.finish()
    if reading.n_features is not None and reading.n_features != len(table.columns):
        raise DataError(
            f"{table.source}: {len(table.columns)} columns of values found, {reading.n_features} were requested"
        )
    return dataset


def detect_format(chunks: TextChunks) -> str:
    """Recognize a format by the first bytes."""
    head = bytes(chunks.buffer[: min(chunks.stop, _SAMPLED_BYTES)])
    if head.startswith(PARQUET_START):
        return "parquet"
    if looks_like_binary(head):
        return "binary"
    lines = [line.decode(errors="replace") for line in head.removeprefix(_UTF8_MARK).splitlines()]
    return "libsvm" if looks_like_libsvm(lines) else "csv"


def _check_encoding(chunks: TextChunks) -> None:
    """Skip the byte order mark of UTF-8 and refuse other encodings and binary data."""
    head = bytes(chunks.buffer[: min(chunks.stop, _SAMPLED_BYTES)])
    for mark, encoding in _OTHER_ENCODINGS.items():
        if head.startswith(mark):
            raise DataError(f"{chunks.source}: {encoding} text; save the file with UTF-8 encoding")
    nul = head.find(0)
    if nul >= 0:
        line = len(head[: nul + 1].splitlines())
        raise DataError(at_line(chunks.source, line, NUL_BYTE))
    if head.startswith(_UTF8_MARK):
        chunks.advance(len(_UTF8_MARK), 1)


def split_suffixes(path: str) -> tuple[str, str, str]:
    """Stem, suffix of the format and suffix of the compression; both suffixes may be empty."""
    packed = storage.strip_compression(path)
    suffix = PurePath(packed).suffix
    if suffix.lower() not in FORMAT_OF_SUFFIX:
        suffix = ""
    return packed.removesuffix(suffix), suffix, path[len(packed) :]


def choose_format(path: str, output_format: str | None = None) -> str:
    """Format of an output: the requested one, or that of the suffix."""
    if output_format is not None:
        if output_format not in WRITERS:
            raise RequestError(f"output format {output_format!r}: expected {', '.join(WRITERS)}")
        return output_format
    suffix = split_suffixes(path)[1]
    if not suffix:
        raise RequestError(
            f"{path}: the suffix does not determine the format; use {', '.join(FORMAT_OF_SUFFIX)}, or --to FORMAT"
        )
    return FORMAT_OF_SUFFIX[suffix.lower()]


def write_dataset(dataset: Dataset, path: str, output_format: str | None = None) -> None:
    """Write a data set; values read back exactly.

    Parameters
    ----------
    path : name of the file, ``-`` for standard output; the suffixes .gz, .bz2 and .xz compress
    output_format : ``csv``, ``silva`` (CSV without column names), ``libsvm`` or ``binary``; None chooses by the name
    """
    output_format = choose_format(path, output_format)
    if dataset.has_missing and output_format != "csv":
        raise DataError(f"{dataset.source}: has missing values, which {output_format} does not have; write CSV")
    with storage.open_output(path) as stream:
        try:
            WRITERS[output_format](dataset, stream)
        except ValueError as error:
            raise DataError(f"{dataset.source}: cannot be written as {output_format}: {error}") from None
