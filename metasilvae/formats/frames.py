"""Tables in memory and in Parquet files: DataFrames of pandas and polars, and tables of Arrow, as raw columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import NO_LABEL, Dataset
from metasilvae.encoding import BOOLEAN, CATEGORY, Encoding
from metasilvae.errors import DataError, RequestError, list_some
from metasilvae.extras import load_library
from metasilvae.formats.csv_files import NO_LABELS
from metasilvae.formats.tables import (
    DEFAULT_TABLE,
    ColumnSpec,
    RawColumn,
    RawTable,
    column_of_numbers,
    column_of_texts,
    read_typed,
)
from metasilvae.formats.text import Problems

PARQUET_START = b"PAR1"


def is_frame(X: object) -> bool:
    """Whether an object is a DataFrame of pandas or polars."""
    return type(X).__name__ == "DataFrame" and type(X).__module__.partition(".")[0] in ("pandas", "polars")


def find_kinds(X: Any) -> dict[str, str]:
    """The types of columns of a DataFrame that follow from their dtypes: categories, texts and booleans."""
    kinds = {}
    for name, series in _series_of(X):
        kind = _kind_of(series)
        if kind is not None:
            kinds[name] = kind
    return kinds


def read_frame(X: Any, source: str, categorical: Iterable[str] = ()) -> tuple[RawTable, dict[str, ColumnSpec]]:
    """The columns of a DataFrame, without labels, and what their dtypes say about their types.

    Parameters
    ----------
    categorical : iterable of str
        Further columns that are categories, whatever their dtypes.
    """
    wanted, columns, specs = set(categorical), [], {}
    for name, series in _series_of(X):
        kind = CATEGORY if name in wanted else _kind_of(series)
        if kind == CATEGORY and (name in wanted or _is_categorical(series)):
            specs[name] = ColumnSpec(CATEGORY)
        if kind is None:
            columns.append(column_of_numbers(name, _numbers_of(series, source, name)))
        else:
            columns.append(column_of_texts(name, _texts_of(series)))
    return _join(columns, source), specs


def read_array(X: NDArray[Any], source: str, categorical: Sequence[int]) -> tuple[RawTable, dict[str, ColumnSpec]]:
    """The columns of an array of numbers, some of which are categories."""
    columns, specs = [], {}
    for place in range(X.shape[1]):
        name, values = f"x[{place}]", X[:, place]
        if place in categorical:
            specs[name] = ColumnSpec(CATEGORY)
            columns.append(column_of_texts(name, [_text_of(value) for value in values.tolist()]))
        else:
            columns.append(column_of_numbers(name, _check_finite(np.asarray(values, np.float64), source, name)))
    return _join(columns, source), specs


def encode_rows(X: Any, source: str, encoding: Encoding, maker: str = "the training data") -> Dataset:
    """Rows of a DataFrame or an array as the features of an encoding, without labels.

    Columns of a DataFrame are found by name, unless their names or those of the encoding are numbers; columns of an
    array stand in the order of the encoding.
    """
    if is_frame(X):
        table, _ = read_frame(X, source)
    else:
        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] != len(encoding.columns):
            raise DataError(f"{source} has the shape {rows.shape}; {maker} has {len(encoding.columns)} columns")
        columns = []
        for column, cells in zip(encoding.columns, rows.T, strict=True):
            if rows.dtype.kind in "biuf":
                values = _check_finite(np.asarray(cells, np.float64), source, column.name)
                columns.append(column_of_numbers(column.name, values))
            else:
                columns.append(column_of_texts(column.name, [_text_of(cell) for cell in cells.tolist()]))
        table = _join(columns, source)
    return read_typed(table, DEFAULT_TABLE, Problems(source), encoding, maker)


def _join(columns: list[RawColumn], source: str) -> RawTable:
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{source}: two columns are called {twice}; give each a name of its own")
    n_rows = len(columns[0].codes) if columns else 0
    return RawTable(tuple(columns), True, np.full(n_rows, NO_LABEL, dtype=np.int32), (), None, None, source)


def _series_of(X: Any) -> list[tuple[str, Any]]:
    names = [str(name) for name in X.columns]
    if hasattr(X, "iloc"):
        return [(name, X.iloc[:, place]) for place, name in enumerate(names)]
    return [(name, X.to_series(place)) for place, name in enumerate(names)]


def _is_categorical(series: Any) -> bool:
    return str(series.dtype).lower().startswith(("category", "categorical", "enum"))


def _kind_of(series: Any) -> str | None:
    """The type that a dtype means; None for numbers."""
    name = str(series.dtype).lower()
    if name in ("bool", "boolean"):
        return BOOLEAN
    if _is_categorical(series) or name in ("object", "str", "string", "utf8") or name.startswith("string"):
        return CATEGORY
    if name.startswith(("datetime", "date", "time", "duration", "period")):
        return CATEGORY  # texts, which are refused as dates
    return None


def _texts_of(series: Any) -> list[str | None]:
    return [_text_of(value) for value in (series.tolist() if hasattr(series, "tolist") else series.to_list())]


def _text_of(value: object) -> str | None:
    """A cell as text, None for a missing one; whole numbers have no point."""
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _numbers_of(series: Any, source: str, name: str) -> NDArray[np.float64]:
    try:
        if hasattr(series, "iloc"):
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = series.cast(float).to_numpy()
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: column {name} has the dtype {series.dtype}, which is no number: {error}") from None
    return _check_finite(np.array(values, dtype=np.float64), source, name)


def _check_finite(values: NDArray[np.float64], source: str, name: str) -> NDArray[np.float64]:
    if np.isinf(values).any():
        raise DataError(f"{source}: row {int(np.argmax(np.isinf(values)))}, {name}: the value is infinite; replace it")
    return values


# Parquet


def read_parquet(
    content: bytes, source: str, label_column: str, label_name: str | None = None, needs_labels: bool = True
) -> RawTable:
    """The columns of a Parquet file; types of Arrow decide between numbers, booleans and texts.

    Parameters
    ----------
    label_name : str or None
        The label column where `label_column` is ``first``, if there is such a column.
    needs_labels : bool
        Whether the first column is the label if there is no such column.
    """
    parquet, arrow = (load_library(name, "parquet", "Parquet") for name in ("pyarrow.parquet", "pyarrow"))
    try:
        table = parquet.read_table(arrow.BufferReader(content))
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise DataError(f"{source}: cannot be read as Parquet: {' '.join(str(error).split())}") from None
    names = [str(name) for name in table.column_names]
    if label_column == "first" and label_name is not None:
        label_column = label_name if label_name in names else "first" if needs_labels else NO_LABELS
    place = _find_label(names, label_column, source)
    columns = [
        _column_of_arrow(arrow, names[each], table.column(each), source) for each in range(len(names)) if each != place
    ]
    if not columns or not table.num_rows:
        raise DataError(f"{source}: has {len(columns)} columns of values and {table.num_rows} rows; both are needed")
    joined = _join(columns, source)
    if place is None:
        return joined
    texts = [_text_of(value) for value in table.column(place).to_pylist()]
    if None in texts:
        raise DataError(f"{source}: row {texts.index(None)}: the label is missing; fill it in or delete the row")
    codes = {text: number for number, text in enumerate(dict.fromkeys(text or "" for text in texts))}
    y = np.array([codes[text or ""] for text in texts], dtype=np.int32)
    return RawTable(joined.columns, True, y, tuple(codes), names[place], None, source)


def _find_label(names: Sequence[str], label_column: str, source: str) -> int | None:
    if label_column == NO_LABELS:
        return None
    if label_column in names:
        return names.index(label_column)
    places = {"first": 0, "last": len(names) - 1}
    place = places.get(label_column, int(label_column) - 1 if label_column.isdecimal() else -1)
    if not 0 <= place < len(names):
        raise DataError(f"{source}: no column is called {label_column!r}; its columns are {list_some(names)}")
    return place


def _column_of_arrow(arrow: Any, name: str, column: Any, source: str) -> RawColumn:
    kinds = arrow.types
    if kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_decimal(column.type):
        numbers = column.cast(arrow.float64()).to_numpy(zero_copy_only=False)
        return column_of_numbers(name, _check_finite(np.array(numbers, dtype=np.float64), source, name))
    if kinds.is_nested(column.type) or kinds.is_binary(column.type):
        raise RequestError(f"{source}: column {name} has the type {column.type}; ignore it when the file is written")
    return column_of_texts(name, [_text_of(value) for value in column.to_pylist()])
