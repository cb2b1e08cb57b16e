"""Tables with texts, booleans and missing values: columns are read as they are, then typed, then encoded as features.

Reading keeps the distinct texts of each column. The type of a column follows from all of its cells, or from options and
schema; `metasilvae.encoding.Encoding` holds the result, and `encode_table` makes a data set of it. Tables of numbers
are read by metasilvae.formats.csv_files alone.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.dataset import Dataset
from metasilvae.encoding import BOOLEAN, CATEGORY, MISSING_TOKENS, NUMBER, Column, Encoding
from metasilvae.errors import DataError, MetasilvaeWarning, RequestError, list_some, shorten
from metasilvae.formats.text import Problems, check_size

IGNORED = "ignored"
COLUMN_KINDS = (NUMBER, CATEGORY, BOOLEAN, IGNORED)
UNKNOWN_CHOICES = ("error", "other")
# Words for 0 and 1. Single letters are booleans only if both of them occur.
BOOLEAN_WORDS = (("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
# More categories than this are refused; distinct texts of a column are told apart up to the other limit.
MOST_CATEGORIES = 1000
# From this number of rows on, a text that is different in every row is an identifier.
LEAST_ROWS_OF_ID = 20
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(:\d{2}.*)?",
    re.ASCII,
)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnSpec:
    """What a schema or an option says about a column; None leaves it to the rows.

    Attributes
    ----------
    kind : str or None
        One of `COLUMN_KINDS`.
    categories : tuple of str or None
        All categories, or the texts for 0 and 1 of a boolean.
    has_other, has_missing : bool or None
    """

    kind: str | None = None
    categories: tuple[str, ...] | None = None
    has_other: bool | None = None
    has_missing: bool | None = None


@dataclass(frozen=True)
class TableOptions:
    """How to read the columns of a table.

    Attributes
    ----------
    columns : mapping from str to ColumnSpec
        Of a schema, by the names of the columns.
    label : str or None
        Label column of a schema.
    categorical, ignored, ids : tuples of str
        Names or patterns (``note_*``) of columns that are categories, that are no features, and that are no features
        but shown in results.
    missing : tuple of str
        Cells that hold no value.
    min_category_count : int
        Categories of fewer rows become the category "other".
    unknown : str
        What becomes of categories that are not known: ``error`` or ``other``.
    """

    columns: Mapping[str, ColumnSpec] = field(default_factory=dict)
    label: str | None = None
    categorical: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    missing: tuple[str, ...] = MISSING_TOKENS
    min_category_count: int = 1
    unknown: str = "error"

    @property
    def are_default(self) -> bool:
        """Whether nothing is said about a column, so that a table of numbers can be read as one."""
        return not (self.columns or self.categorical or self.ignored or self.ids) and self.missing == MISSING_TOKENS

    def keeps_texts(self, name: str) -> bool:
        """Whether the cells of a column are needed as they are written."""
        return any(_matches(name, patterns) for patterns in (self.ignored, self.ids)) or (
            name in self.columns and self.columns[name].kind == IGNORED
        )

    def spec(self, name: str) -> ColumnSpec:
        """What options and schema say about a column; options come first."""
        spec = self.columns.get(name, ColumnSpec())
        if _matches(name, (*self.ignored, *self.ids)):
            return ColumnSpec(IGNORED)
        if _matches(name, self.categorical) and spec.kind != CATEGORY:
            return ColumnSpec(CATEGORY)
        return spec

    def check_names(self, names: Sequence[str], source: str) -> None:
        """Refuse names and patterns that no column has, and contradictions."""
        for option, patterns in (("--categorical", self.categorical), ("--ignore", self.ignored), ("--id", self.ids)):
            for pattern in patterns:
                if not any(_matches(name, (pattern,)) for name in names):
                    raise DataError(f"{source}: no column is called {pattern} ({option}); columns: {list_some(names)}")
        for name in names:
            if _matches(name, self.categorical) and _matches(name, (*self.ignored, *self.ids)):
                raise RequestError(f"column {name} is both categorical and ignored; name it once")
        for name in self.columns:
            if name not in names:
                raise DataError(f"{source}: has no column {name}, which the schema describes; columns: "
                                f"{list_some(names)}")  # fmt: skip


DEFAULT_TABLE = TableOptions()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


# Raw columns


@dataclass(frozen=True)
class RawColumn:
    """The cells of a column.

    Attributes
    ----------
    name : str
    place : str
        Name for messages, such as ``column 3 (age)``.
    codes : int32 array, shape (n_rows,)
        Position of each cell in `texts`; -1 for a number of which only the value is known.
    texts : tuple of str
        The distinct cells in order of first appearance.
    values : float64 array, shape (n_rows,)
        The cells as numbers, NaN for other cells.
    """

    name: str
    place: str
    codes: NDArray[np.int32]
    texts: tuple[str, ...]
    values: NDArray[np.float64]

    @property
    def quoted(self) -> str:
        """The name as an argument of a command."""
        return shlex.quote(self.name)

    @cached_property
    def text_values(self) -> NDArray[np.float64]:
        """The distinct cells as numbers, NaN for other texts."""
        found = (parse_number(text.strip().encode(errors="replace")) for text in self.texts)
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each text occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))

    def missing_texts(self, tokens: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts stand for a missing value."""
        known = {token.strip().lower() for token in tokens}
        return np.array([text.strip().lower() in known for text in self.texts], dtype=np.bool_)

    def numbers(self, tokens: Sequence[str]) -> NDArray[np.float64]:
        """The cells as numbers, NaN for missing values and texts."""
        values = self.values.copy()
        if self.texts:
            coded = self.codes >= 0
            by_text = np.where(self.missing_texts(tokens), np.nan, self.text_values)
            values[coded] = by_text[self.codes[coded]]
        for token in tokens:
            number = parse_number(token.strip().encode(errors="replace"))
            if number is not None:
                values[values == number] = np.nan
        return values

    def first_row(self, code: int) -> int:
        return int(np.argmax(self.codes == code))

    def cells(self) -> NDArray[np.object_]:
        """All cells as texts."""
        if (self.codes >= 0).all():
            return np.array([*self.texts, ""], dtype=object)[self.codes]
        words = [repr(value).removesuffix(".0") for value in self.values.tolist()]
        return np.array(
            [self.texts[code] if code >= 0 else word for code, word in zip(self.codes.tolist(), words, strict=True)],
            dtype=object,
        )


@dataclass(frozen=True)
class RawTable:
    """Columns as they were read, without the label and without notes.

    Attributes
    ----------
    has_names : bool
        Whether the table has column names; else columns are called ``x[0]``.
    y, labels, label_name, line_of_row, source : as in `Dataset`
    """

    columns: tuple[RawColumn, ...]
    has_names: bool
    y: NDArray[np.int32]
    labels: tuple[str, ...]
    label_name: str | None
    line_of_row: NDArray[np.int64] | None
    source: str

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def line(self, row: int) -> int:
        """Line of a row in its file, or its number from 1."""
        return row + 1 if self.line_of_row is None else int(self.line_of_row[row])


# Types

# Why a column whose cells are all empty is no feature.
NO_VALUES = "no cell has a value"


@dataclass(frozen=True)
class TypedColumn:
    """A column with its type.

    Attributes
    ----------
    column : Column or None
        None for a column that is no feature.
    reason : str
        Why it is no feature; empty if options say so.
    """

    raw: RawColumn
    column: Column | None
    reason: str = ""

    @property
    def kind(self) -> str:
        return IGNORED if self.column is None else self.column.kind


class _Refused(Exception):
    """A column that has no type; the row of the first problem and its description."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row


def type_columns(table: RawTable, options: TableOptions, problems: Problems) -> list[TypedColumn]:
    """The type of each column; one problem is reported for each column that has none."""
    options.check_names(table.names, table.source)
    typed = []
    for raw in table.columns:
        try:
            typed.append(_type_column(raw, options))
        except _Refused as refused:
            problems.report(table.line(refused.row), f"{raw.place}: {refused}")
    if not problems.found and all(each.column is None for each in typed):
        reasons = {each.reason for each in typed}
        what = f"{reasons.pop()} in any column" if reasons == {NO_VALUES} else "every column is ignored"
        raise DataError(f"{table.source}: {what}; a table needs at least one feature")
    return typed


def _type_column(raw: RawColumn, options: TableOptions) -> TypedColumn:
    spec, is_missing = options.spec(raw.name), raw.missing_texts(options.missing)
    kind = spec.kind
    if kind == IGNORED:
        return TypedColumn(raw, None)
    is_number = ~np.isnan(raw.text_values) & ~is_missing
    is_text = ~is_number & ~is_missing
    if kind is None:
        kind = _detect_kind(raw, is_number, is_text)
    if kind is None:
        reason = NO_VALUES
        if is_text.any():
            reason = f"{int(is_text.sum())} different texts in as many rows are an identifier"
        return TypedColumn(raw, None, reason)
    if kind == NUMBER:
        _check_numbers(raw, is_text, is_number, is_alone=spec.kind == NUMBER)
        return TypedColumn(raw, Column(raw.name))
    texts = [text for text, is_out in zip(raw.texts, is_missing, strict=True) if not is_out]
    if kind == BOOLEAN:
        pair = spec.categories or _find_pair(texts)
        if pair is None:
            found = list_some(list(map(shorten, texts)))
            advice = 'give them in the schema, values = ["no", "yes"], or read the column as a category'
            raise _Refused(0, f"{found} are not two words for false and true; {advice}")
        return TypedColumn(raw, Column(raw.name, BOOLEAN, pair))
    return TypedColumn(raw, _make_category(raw, spec, options, is_missing))


def _detect_kind(raw: RawColumn, is_number: NDArray[np.bool_], is_text: NDArray[np.bool_]) -> str | None:
    """The type by the rules of docs/formats.md; None for a column that cannot be a feature."""
    has_numbers = bool(is_number.any() or (raw.codes < 0).any())
    if not is_text.any():
        return NUMBER if has_numbers else None
    if has_numbers:
        return NUMBER  # and a problem: some cells are no numbers
    texts = [text for text, is_one in zip(raw.texts, is_text, strict=True) if is_one]
    if _find_pair(texts) is not None:
        return BOOLEAN
    n_texts, n_cells = len(texts), int(raw.counts[is_text].sum())
    first = raw.first_row(int(np.argmax(is_text)))
    if sum(_DATE.fullmatch(text.strip()) is not None for text in texts) >= 0.9 * n_texts:
        raise _Refused(
            first,
            f"{shorten(texts[0])} is a date or time; replace it by numbers, such as days since a date, or ignore the "
            f"column (--ignore {raw.quoted})",
        )
    if n_texts == n_cells >= LEAST_ROWS_OF_ID:
        return None
    if n_texts > max(LEAST_ROWS_OF_ID, n_cells / 2):
        raise _Refused(
            first,
            f"{n_texts} different texts in {n_cells} rows, such as {shorten(texts[0])}, are free text or identifiers; "
            f"ignore the column (--ignore {raw.quoted}), or use it as a category (--categorical {raw.quoted})",
        )
    return CATEGORY


def _find_pair(texts: Sequence[str]) -> tuple[str, str] | None:
    """The texts for 0 and 1 if all texts are words for false and true."""
    found = {text.strip().lower() for text in texts}
    for pair in BOOLEAN_WORDS:
        if found <= set(pair) and (len(pair[0]) > 1 or len(found) == 2) and found:
            by_word = {text.strip().lower(): text.strip() for text in reversed(texts)}
            sample = next(iter(by_word.values()))
            change = str.upper if sample.isupper() else str.title if sample.istitle() else str.lower
            return by_word.get(pair[0], change(pair[0])), by_word.get(pair[1], change(pair[1]))
    return None


def describe_text(text: str) -> str:
    """Why a text is no number."""
    if _INFINITE.fullmatch(text.strip()):
        return f"{shorten(text)} is infinite, a finite number was expected; replace it or delete the row"
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text.strip(), re.ASCII):
        return f"{shorten(text)} is too large for a 64-bit floating point number; rescale the column"
    if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", text.strip(), re.ASCII):
        return f"{shorten(text)} is not a number; write a decimal point instead of the comma"
    return f"{shorten(text)} is not a number"


def _check_numbers(
    raw: RawColumn, is_text: NDArray[np.bool_], is_number: NDArray[np.bool_], is_alone: bool = False
) -> None:
    """Refuse texts among numbers."""
    bad = np.flatnonzero(is_text)
    if not len(bad):
        return
    n_bad = int(raw.counts[bad].sum())
    n_numbers = int(raw.counts[is_number].sum() + (raw.codes < 0).sum())
    found = describe_text(raw.texts[bad[0]])
    if ";" not in found:
        others = f", but {n_numbers} other cell{' is' if n_numbers == 1 else 's are'}" if n_numbers else ""
        more = "" if n_bad == 1 else f" ({n_bad} such cells)"
        advice = (
            "correct it" if is_alone else f"correct it, or read the column as a category (--categorical {raw.quoted})"
        )
        found += f"{others}{more}; {advice}"
    raise _Refused(raw.first_row(int(bad[0])), found)


def _make_category(raw: RawColumn, spec: ColumnSpec, options: TableOptions, is_missing: NDArray[np.bool_]) -> Column:
    has_other = options.unknown == "other" if spec.has_other is None else spec.has_other
    has_missing = bool(raw.counts[is_missing].sum()) if spec.has_missing is None else spec.has_missing
    if spec.categories is not None:
        return Column(raw.name, CATEGORY, spec.categories, has_other, has_missing)
    if (raw.codes < 0).any():
        raise _Refused(0, _too_many(raw, f"more than {MOST_CATEGORIES}"))
    is_rare = raw.counts < options.min_category_count
    kept = sorted(raw.texts[code] for code in np.flatnonzero(~is_missing & ~is_rare))
    has_other = has_other or (options.min_category_count > 1 and bool((is_rare & ~is_missing).any()))
    if len(kept) > MOST_CATEGORIES:
        raise _Refused(0, _too_many(raw, str(len(kept))))
    if not kept and not has_other and not has_missing:
        raise _Refused(0, f"no cell has a value; ignore the column (--ignore {raw.quoted})")
    return Column(raw.name, CATEGORY, tuple(kept), has_other, has_missing)


def _too_many(raw: RawColumn, n: str) -> str:
    return (
        f"{n} different categories, at most {MOST_CATEGORIES} are possible; join rare ones (--min-category-count N), "
        f"or ignore the column (--ignore {raw.quoted})"
    )


def make_encoding(typed: Sequence[TypedColumn], options: TableOptions, source: str) -> Encoding:
    """The encoding of columns with types."""
    columns = tuple(each.column for each in typed if each.column is not None)
    ignored = tuple(each.raw.name for each in typed if each.column is None)
    encoding = Encoding(columns, ignored, options.missing)
    names = [each.raw.name for each in typed]
    if not encoding.is_trivial and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{source}: two columns are called {twice}; give each a name of its own")
    for each in typed:
        if each.column is None and each.reason:
            warnings.warn(
                f"{source}: {each.raw.place} is ignored: {each.reason}; --ignore {each.raw.quoted} accepts that, "
                f"--categorical {each.raw.quoted} does not",
                MetasilvaeWarning,
                stacklevel=2,
            )
    return encoding


# Encoding


def encode_table(
    table: RawTable, encoding: Encoding, problems: Problems, ids: Sequence[str] = (), maker: str = "the training data"
) -> Dataset:
    """The data set of a table; cells that the encoding does not know are problems, one for each column.

    Parameters
    ----------
    ids : sequence of str
        Further columns to show in results, beside those that the encoding ignores.
    maker : str
        Where the encoding comes from, for messages.
    """
    by_name = {column.name: column for column in table.columns}
    if len(by_name) < len(table.columns) and not encoding.is_trivial:
        twice = next(name for name in table.names if table.names.count(name) > 1)
        raise DataError(f"{table.source}: two columns are called {twice}; give each a name of its own")
    is_positional = len(by_name) < len(table.columns) or _is_positional(table, encoding)
    missing = [column.name for column in encoding.columns if column.name not in by_name]
    if missing and not is_positional:
        names = "" if table.has_names else "; the table has no column names"
        raise DataError(f"{table.source}: has no column {list_some(missing)}, which {maker} has{names}")
    check_size(table.source, table.n_rows, encoding.n_features)
    X = np.zeros((table.n_rows, encoding.n_features))
    for place, column in enumerate(encoding.columns):
        raw = table.columns[place] if is_positional else by_name[column.name]
        features = slice(encoding.starts[place], encoding.starts[place + 1])
        try:
            _FILL[column.kind](raw, column, encoding.missing, X[:, features], maker)
        except _Refused as refused:
            problems.report(table.line(refused.row), f"{raw.place}: {refused}")
    problems.finish()
    shown = [*(name for name in encoding.ignored if name in by_name), *ids]
    wanted = [name for name in table.names if any(_matches(name, (pattern,)) for pattern in shown)]
    is_plain = encoding.is_trivial
    used = {column.name for column in encoding.columns}
    feature_names = encoding.feature_names if table.has_names or not is_plain else None
    return Dataset(
        X,
        table.y,
        table.labels,
        feature_names,
        table.source,
        table.line_of_row,
        label_name=table.label_name,
        encoding=None if is_plain else encoding,
        indicators=encoding.is_indicator if encoding.is_indicator.any() else None,
        ids=tuple((name, by_name[name].cells()) for name in wanted),
        omitted_names=()
        if is_positional
        else tuple(name for name in table.names if name not in used and name not in encoding.ignored),
    )


def _is_positional(table: RawTable, encoding: Encoding) -> bool:
    """Whether columns are matched by position: there are as many, and those of the encoding have no names."""
    names = [column.name for column in encoding.columns]
    is_nameless = names == [f"x[{place}]" for place in range(len(names))]
    return is_nameless and len(table.columns) == len(names)


def _fill_numbers(raw: RawColumn, column: Column, missing: Sequence[str], X: NDArray[np.float64], maker: str) -> None:
    is_missing = raw.missing_texts(missing)
    is_number = ~np.isnan(raw.text_values)
    _check_numbers(raw, ~is_number & ~is_missing, is_number & ~is_missing, is_alone=True)
    X[:, 0] = raw.numbers(missing)


def _fill_booleans(raw: RawColumn, column: Column, missing: Sequence[str], X: NDArray[np.float64], maker: str) -> None:
    no, yes = (text.strip().lower() for text in column.categories)
    by_text = {no: 0.0, yes: 1.0}
    is_missing = raw.missing_texts(missing)
    values = np.full(len(raw.texts) + 1, np.nan)
    for code, text in enumerate(raw.texts):
        if not is_missing[code]:
            found = by_text.get(text.strip().lower())
            if found is None:
                raise _unknown(raw, code, column, maker, len(column.categories))
            values[code] = found
    _refuse_numbers(raw, column, maker)
    X[:, 0] = values[raw.codes]


def _fill_categories(
    raw: RawColumn, column: Column, missing: Sequence[str], X: NDArray[np.float64], maker: str
) -> None:
    if column.sets is not None:
        places = _find_categories(raw, column, missing, maker)
        X[:, :-1] = column.table[places]
        X[:, -1] = places
        return
    members = {text: number for number, text in enumerate(column.categories)}
    is_missing = raw.missing_texts(missing)
    other = len(members) if column.has_other else None
    of_missing = len(members) + column.has_other if column.has_missing else other
    member = np.empty(len(raw.texts) + 1, dtype=np.int64)
    for code, text in enumerate(raw.texts):
        found = of_missing if is_missing[code] else members.get(text, other)
        if found is None:
            raise _unknown(raw, code, column, maker, len(members))
        member[code] = found
    if (raw.codes < 0).any():
        if other is None:
            _refuse_numbers(raw, column, maker)
        member[-1] = other or 0
    X[np.arange(len(raw.codes)), member[raw.codes]] = 1.0


def _find_categories(raw: RawColumn, column: Column, missing: Sequence[str], maker: str) -> NDArray[np.int64]:
    """The place of each cell among the values of a column that splits divide into sets."""
    by_text = {text: place for place, text in enumerate(column.categories)}
    other = len(by_text) if column.has_other else None
    of_missing = len(by_text) + column.has_other if column.has_missing else None
    is_missing = raw.missing_texts(missing)
    found = np.empty(len(raw.texts) + 1, dtype=np.int64)
    for code, (text, number) in enumerate(zip(raw.texts, raw.text_values.tolist(), strict=True)):
        place = None
        if is_missing[code] and (of_missing is not None or text not in by_text):
            place = of_missing
        elif number == number:
            _check_category(column, number, raw.first_row(code), maker)
            place = by_text.get(text.strip()) if not column.is_numbered else None
            place = column.place_of_number(number) if place is None else place
            place = other if place is None else place
        elif column.is_numbered:
            raise _Refused(raw.first_row(code), f"{describe_text(text)}; {maker} has numbers for categories")
        else:
            place = by_text.get(text, other)
        if place is None:
            raise _unknown(raw, code, column, maker, len(by_text))
        found[code] = place
    places = found[raw.codes]
    rows = np.flatnonzero(raw.codes < 0)
    numbers, inverse = np.unique(raw.values[rows], return_inverse=True)
    blanks = [parse_number(token.strip().encode(errors="replace")) for token in missing]
    of_number = np.empty(len(numbers), dtype=np.int64)
    for item, number in enumerate(numbers.tolist()):
        if number != number or number in blanks:
            place = of_missing
        else:
            _check_category(column, number, int(rows[np.argmax(inverse.reshape(-1) == item)]), maker)
            place = column.place_of_number(number)
            place = other if place is None else place
        if place is None:
            row = int(rows[np.argmax(inverse.reshape(-1) == item)])
            what = "the value is missing, which" if number != number else f"{number:g}"
            raise _Refused(row, f"{what} is not among the categories of {maker}")
        of_number[item] = place
    places[rows] = of_number[inverse.reshape(-1)]
    return places


def _check_category(column: Column, number: float, row: int, maker: str) -> None:
    """Refuse fractions where categories are numbers; libraries round them in their own ways."""
    if column.is_numbered and not number.is_integer():
        raise _Refused(row, f"{number!r} is not a whole number; {maker} has whole numbers for categories")


def _unknown(raw: RawColumn, code: int, column: Column, maker: str, n: int) -> _Refused:
    text = "the cell is empty" if not raw.texts[code].strip() else f"{shorten(raw.texts[code])}"
    known = list_some([shorten(each) for each in column.categories])
    is_one = "is" if text.startswith(("'", '"')) else "which is"
    return _Refused(
        raw.first_row(code),
        f"{text} {is_one} not among the {n} categories of {maker} ({known}); correct it, or train with "
        "--unknown other, which gives unknown categories a place",
    )


def _refuse_numbers(raw: RawColumn, column: Column, maker: str) -> None:
    numbers = np.flatnonzero(raw.codes < 0)
    if len(numbers):
        row = int(numbers[0])
        raise _Refused(row, f"{raw.values[row]:g} is not among the categories of {maker}")


_FILL = {NUMBER: _fill_numbers, BOOLEAN: _fill_booleans, CATEGORY: _fill_categories}


def read_typed(
    table: RawTable, options: TableOptions, problems: Problems, encoding: Encoding | None, maker: str
) -> Dataset:
    """The data set of a table, by a known encoding or by the types of its columns."""
    if encoding is None:
        typed = type_columns(table, options, problems)
        problems.finish()
        encoding = make_encoding(typed, options, table.source)
    else:
        options.check_names(table.names, table.source)
        known = {*(column.name for column in encoding.columns), *encoding.ignored}
        extra = [name for name in table.names if name not in known and not _matches(name, options.ids)]
        if extra and not _is_positional(table, encoding):
            warnings.warn(
                f"{table.source}: ignores {list_some(extra)}, which {maker} does not know",
                MetasilvaeWarning,
                stacklevel=2,
            )
    return encode_table(table, encoding, problems, options.ids, maker)


# Columns of other sources


def column_of_texts(name: str, cells: Sequence[str | None], place: str | None = None, missing: str = "") -> RawColumn:
    """A column of texts; None is a missing cell."""
    codes_of: dict[str, int] = {}
    codes = np.array([codes_of.setdefault(missing if c is None else c, len(codes_of)) for c in cells], dtype=np.int32)
    return RawColumn(name, place or name, codes, tuple(codes_of), np.full(len(codes), np.nan))


def column_of_numbers(name: str, values: NDArray[Any], place: str | None = None) -> RawColumn:
    """A column of numbers; NaN is a missing cell."""
    numbers = np.array(values, dtype=np.float64)
    return RawColumn(name, place or name, np.full(len(numbers), -1, dtype=np.int32), (), numbers)


def with_specs(options: TableOptions, specs: Mapping[str, ColumnSpec]) -> TableOptions:
    """The options with types of columns that are known in advance; what they say themselves comes first."""
    return replace(options, columns={**specs, **options.columns})


def list_kinds(typed: Iterable[TypedColumn]) -> Iterator[tuple[str, str]]:
    """Name and type of each column."""
    return ((each.raw.name, each.kind) for each in typed)
