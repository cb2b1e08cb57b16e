"""Data sets in all formats: recognized by content for reading, chosen by file name for writing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import PurePath
from typing import IO

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, MetasilvaeWarning, RequestError, at_line
from metasilvae.formats.binary_files import looks_like_binary, read_binary, write_binary
from metasilvae.formats.csv_files import NO_LABELS, read_csv, write_csv, write_silva
from metasilvae.formats.libsvm_files import looks_like_libsvm, read_libsvm, write_libsvm
from metasilvae.formats.silva_models import FOREST_WORD, TREE_WORD
from metasilvae.formats.text import NUL_BYTE, Problems, TextChunks
from metasilvae.io import storage

READ_FORMATS = ("csv", "libsvm", "binary")
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
) -> Dataset:
    """Read a data set from a path, ``-`` (standard input), ``builtin:NAME/SPLIT`` or ``cache:NAME/SPLIT``.

    Parameters
    ----------
    input_format : ``auto`` (by content), ``csv``, ``libsvm`` or ``binary``
    label_column : ``first``, ``last``, a column name, a column number from 1, or ``none``; CSV only
    header : whether CSV data starts with column names; None detects it
    n_features : width that the data must have; LIBSVM rows are filled up with zeros to it
    libsvm_width : width of LIBSVM data when `n_features` is not given, usually that of a model
    needs_labels : refuse the label column ``none``

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
    return _read(source, problems, input_format, label_column, header, n_features, libsvm_width)


def find_problems(
    source: str,
    *,
    limit: int = 10,
    input_format: str = "auto",
    label_column: str = "first",
    header: bool | None = None,
    n_features: int | None = None,
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
            dataset = _read(source, problems, input_format, label_column, header, n_features, None)
        except DataError as error:
            if not problems.found:
                problems.found.append(str(error))
    oddities = [str(warning.message) for warning in caught if issubclass(warning.category, MetasilvaeWarning)]
    return dataset, problems.found, oddities


def check_label_column(label_column: str) -> None:
    """Refuse ``none`` where labels are needed."""
    if label_column == NO_LABELS:
        raise RequestError("--label-column none is only for predict; all other commands need labels")


def _read(
    source: str,
    problems: Problems,
    input_format: str,
    label_column: str,
    header: bool | None,
    n_features: int | None,
    libsvm_width: int | None,
) -> Dataset:
    if input_format not in ("auto", *READ_FORMATS):
        raise RequestError(f"input format {input_format!r}: expected auto, {', '.join(READ_FORMATS)}")
    with storage.open_source(source) as stream:
        chunks = TextChunks(stream, problems.source)
        if chunks.stop == 0:
            raise DataError(f"{chunks.source}: the file is empty")
        if (bytes(chunks.buffer[:40]).split() or [b""])[0].decode(errors="replace") in (TREE_WORD, FOREST_WORD):
            raise DataError(
                f"{chunks.source}: this is a model, not a data set; where both are needed, MODEL comes before DATA"
            )
        if input_format == "auto":
            input_format = detect_format(chunks)
        if input_format != "csv" and (label_column != "first" or header):
            raise RequestError(
                f"{chunks.source}: label column and header are for CSV data, this is read as {input_format}"
            )
        if input_format == "binary":
            return read_binary(chunks, problems, n_features)
        _check_encoding(chunks)
        if input_format == "libsvm":
            return read_libsvm(chunks, problems, n_features, libsvm_width)
        return read_csv(chunks, problems, label_column, header, n_features)


def detect_format(chunks: TextChunks) -> str:
    """Recognize a format by the first bytes."""
    head = bytes(chunks.buffer[: min(chunks.stop, _SAMPLED_BYTES)])
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
    with storage.open_output(path) as stream:
        try:
            WRITERS[output_format](dataset, stream)
        except ValueError as error:
            raise DataError(f"{dataset.source}: cannot be written as {output_format}: {error}") from None
