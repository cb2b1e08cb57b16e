"""How the columns of a table become features, and the words for features in the language of the table.

Numbers stay as they are. A boolean becomes one feature, 0 or 1. A category becomes a one-hot group: one feature for
each of its values, of which exactly one is 1. Everything that people read names a test of such a feature by the column
and its value (``workclass = State-gov``): `Encoding.describe_test` and `Encoding.describe_changes` have the words.

Models of other libraries split by sets of categories. There a category becomes one feature for each set that some split
asks for, 1 for the categories of the set, and a last feature that holds the position of the category, its code. No
split tests the code; it tells categories apart that are in the same sets. Missing and unknown categories are members of
sets like the others, so that they go wherever the library sends them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import printable

NUMBER, CATEGORY, BOOLEAN = "number", "category", "boolean"
KINDS = (NUMBER, CATEGORY, BOOLEAN)
# Cells that hold no value, unless another list is given; upper and lower case make no difference.
MISSING_TOKENS = ("", "?", "NA", "NaN", "null")
JSON_FORMAT = 1
# With sets of categories, which older versions would take for one-hot groups.
JSON_FORMAT_OF_SETS = 2
_MOST_SHOWN = 8
_LONGEST_NAME = 60
NOT_EQUAL, EQUAL = "!=", "="
# The threshold of a split between values and missing values.
LARGEST_NUMBER = sys.float_info.max


@dataclass(frozen=True)
class Column:
    """A column of a table that a model uses.

    Attributes
    ----------
    name : str
    kind : str
        One of `KINDS`.
    categories : tuple of str
        Values of a category; the texts for 0 and 1 of a boolean.
    has_other : bool
        Whether rare and unknown categories have a feature of their own.
    has_missing : bool
        Whether a missing category has a feature of its own; missing numbers and booleans are NaN.
    sets : tuple of str or None
        Sets of values, each as a text of 0 and 1 with a letter for each of `values`; None for a one-hot group.
    is_numbered : bool
        Whether the categories are whole numbers. Then each cell is a whole number.
    """

    name: str
    kind: str = NUMBER
    categories: tuple[str, ...] = ()
    has_other: bool = False
    has_missing: bool = False
    sets: tuple[str, ...] | None = None
    is_numbered: bool = False

    @property
    def width(self) -> int:
        """Number of features."""
        if self.sets is not None:
            return len(self.sets) + 1
        return len(self.values) if self.kind == CATEGORY else 1

    @cached_property
    def table(self) -> NDArray[np.bool_]:
        """Which values are in which sets, shape (n_values, n_sets)."""
        sets = self.sets or ()
        letters = np.frombuffer("".join(sets).encode("ascii"), dtype=np.uint8)
        return np.ascontiguousarray((letters == ord("1")).reshape(len(sets), len(self.values)).T)

    @cached_property
    def _numbers(self) -> dict[float, int]:
        """Position of each category that is a number, by its value."""
        found: dict[float, int] = {}
        for place, text in enumerate(self.categories):
            try:
                found.setdefault(float(text), place)
            except ValueError:
                continue
        return found

    def place_of_number(self, number: float) -> int | None:
        """Position of the category that is a number, None for one that is no category."""
        return self._numbers.get(number)

    @cached_property
    def other_name(self) -> str:
        """The name of rare and unknown categories, which is not that of a category."""
        return _unused("other", self.categories)

    @cached_property
    def missing_name(self) -> str:
        return _unused("missing", self.categories)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Names of the features of a category, in order."""
        return (*self.categories, *[self.other_name] * self.has_other, *[self.missing_name] * self.has_missing)

    @property
    def feature_names(self) -> list[str]:
        if self.sets is not None:
            return [*map(self._name_set, range(len(self.sets))), self.name]
        return [f"{self.name} = {value}" for value in self.values] if self.kind == CATEGORY else [self.name]

    def _name_set(self, number: int) -> str:
        words = self.describe_set(number, most=len(self.values))[1]
        return words if len(words) <= _LONGEST_NAME else f"{self.name} in set {number + 1}"

    def describe_set(self, number: int, unequal: str = NOT_EQUAL, most: int = _MOST_SHOWN) -> tuple[str, str]:
        """What it says about a row that its value is not in a set, and that it is."""
        assert self.sets is not None
        inside, outside = ([v for v, bit in zip(self.values, self.sets[number], strict=True) if bit == k] for k in "10")
        is_inside = len(inside) <= len(outside)
        listed = inside if is_inside else outside
        if len(listed) == 1:
            words = [f"{self.name} {unequal} {listed[0]}", f"{self.name} {EQUAL} {listed[0]}"]
        else:
            more = f" and {len(listed) - most} more" if len(listed) > most else ""
            braces = f"{{{', '.join(listed[:most])}{more}}}"
            words = [f"{self.name} not in {braces}", f"{self.name} in {braces}"]
        return (words[0], words[1]) if is_inside else (words[1], words[0])

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"name": self.name, "type": self.kind}
        if self.kind == CATEGORY:
            content |= {"categories": list(self.categories), "other": self.has_other, "missing": self.has_missing}
            if self.sets is not None:
                content |= {"sets": list(self.sets), "numbers": self.is_numbered}
        elif self.kind == BOOLEAN:
            content["values"] = list(self.categories)
        return content

    @classmethod
    def from_json(cls, content: object) -> Column:
        if not isinstance(content, Mapping) or not isinstance(content.get("name"), str):
            raise ValueError("a column needs a name")
        name, kind = content["name"], content.get("type")
        if kind not in KINDS:
            raise ValueError(f"column {name!r} has the type {kind!r}; expected {', '.join(KINDS)}")
        if kind == NUMBER:
            return cls(name)
        texts = _texts(content.get("categories" if kind == CATEGORY else "values"), name)
        if kind == BOOLEAN:
            if len(texts) != 2:
                raise ValueError(f"column {name!r}: a boolean has two values")
            return cls(name, kind, texts)
        flags = [content.get(key, False) for key in ("other", "missing")]
        if not all(isinstance(flag, bool) for flag in flags) or not (texts or any(flags)):
            raise ValueError(f"column {name!r}: a category needs categories; other and missing are true or false")
        column = cls(name, kind, texts, *flags)
        if "sets" not in content:
            return column
        sets, is_numbered = _texts(content["sets"], name), content.get("numbers", False)
        if any(len(each) != len(column.values) or set(each) - {"0", "1"} for each in sets):
            raise ValueError(f"column {name!r}: a set has a 0 or a 1 for each of its {len(column.values)} values")
        if not isinstance(is_numbered, bool) or (is_numbered and not all(map(_is_whole, texts))):
            raise ValueError(f"column {name!r}: its categories are not whole numbers")
        return replace(column, sets=sets, is_numbered=is_numbered)


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 17


def _unused(word: str, taken: Sequence[str]) -> str:
    name = f"({word})"
    while name in taken:
        name = f"({name})"
    return name


def _texts(content: object, place: str) -> tuple[str, ...]:
    if not isinstance(content, list | tuple) or not all(isinstance(text, str) for text in content):
        raise ValueError(f"{place!r}: expected a list of texts")
    if len(set(content)) < len(content):
        raise ValueError(f"{place!r}: a text is listed twice")
    return tuple(content)


@dataclass(frozen=True)
class Encoding:
    """The columns of a table in the order of their features.

    Attributes
    ----------
    columns : tuple of Column
    ignored : tuple of str
        Names of columns that are no features.
    missing : tuple of str
        Cells that hold no value.
    """

    columns: tuple[Column, ...]
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = MISSING_TOKENS

    @cached_property
    def starts(self) -> list[int]:
        """The first feature of each column, and the number of features."""
        return [0, *accumulate(column.width for column in self.columns)]

    @property
    def n_features(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def column_of_feature(self) -> list[int]:
        """Position of the column of each feature."""
        return [place for place, column in enumerate(self.columns) for _ in range(column.width)]

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @cached_property
    def is_indicator(self) -> NDArray[np.bool_]:
        """Which features are 0 or 1 because they stand for a category or a boolean."""
        return np.array([self.columns[place].kind != NUMBER for place in self.column_of_feature], dtype=np.bool_)

    @property
    def has_sets(self) -> bool:
        """Whether some category becomes features for sets of categories."""
        return any(column.sets is not None for column in self.columns)

    @property
    def is_trivial(self) -> bool:
        """Whether the columns are the features, and usual cells are missing ones."""
        return not self.ignored and self.missing == MISSING_TOKENS and not self.is_indicator.any()

    def features_of(self, place: int) -> range:
        """The features of the column at a place."""
        return range(self.starts[place], self.starts[place + 1])

    # Words

    def describe_test(
        self, feature: int, threshold: float, shown: str | None = None, signs: tuple[str, str] = ("<=", ">")
    ) -> tuple[str, str]:
        """What it says about a row that ``x <= threshold`` holds, and that it does not.

        Parameters
        ----------
        shown : str or None
            The threshold of a number as text.
        signs : pair of str
            For numbers that are at most and above the threshold; with a special first sign, != is one too.
        """
        column = self.columns[self.column_of_feature[feature]]
        member = feature - self.starts[self.column_of_feature[feature]]
        is_code = column.sets is not None and member == len(column.sets)
        if column.kind == NUMBER or is_code or not 0 <= threshold < 1:
            name = column.feature_names[member]
            text = repr(float(threshold)) if shown is None else shown
            return f"{name} {signs[0]} {text}", f"{name} {signs[1]} {text}"
        if column.kind == BOOLEAN:
            return f"{column.name} = {column.categories[0]}", f"{column.name} = {column.categories[1]}"
        unequal = NOT_EQUAL if signs[0] == "<=" else "\N{NOT EQUAL TO}"
        if column.sets is not None:
            return column.describe_set(member, unequal)
        return f"{column.name} {unequal} {column.values[member]}", f"{column.name} = {column.values[member]}"

    def describe_changes(
        self, before: NDArray[np.float64], after: NDArray[np.float64], features: Iterable[int]
    ) -> list[tuple[str, str | float, str | float]]:
        """For each column that has one of the features: its name, its value before and after."""
        places = dict.fromkeys(self.column_of_feature[feature] for feature in features)
        found = []
        for place in places:
            start, stop = self.starts[place : place + 2]
            old, new = (self._value(place, row[start:stop]) for row in (before, after))
            found.append((self.columns[place].name, old, new))
        return found

    def decode(self, row: NDArray[np.float64]) -> list[str | float]:
        """The cells of a row: numbers, and texts of categories and booleans; a missing cell is empty.

        A column that is not one-hot gives its values, separated by blanks.
        """
        blank = "" if "" in self.missing or not self.missing else self.missing[0]
        cells = []
        for place, column in enumerate(self.columns):
            value = self._value(place, row[self.starts[place] : self.starts[place + 1]])
            is_missing = value != value or (column.has_missing and value == column.missing_name)
            cells.append(blank if is_missing else value)
        return cells

    def _value(self, place: int, values: NDArray[np.float64]) -> str | float:
        column = self.columns[place]
        if column.kind == NUMBER:
            return float(values[0])
        if column.kind == BOOLEAN:
            return column.categories[int(values[0])] if values[0] in (0, 1) else float(values[0])
        if column.sets is not None:
            is_known = 0 <= values[-1] < len(column.values) and values[-1] == np.floor(values[-1])
            return column.values[int(values[-1])] if is_known else float(values[-1])
        ones = np.flatnonzero(values == 1)
        if len(ones) == 1 and values.sum() == 1:
            return column.values[int(ones[0])]
        return " ".join(map(repr, values.tolist()))

    # JSON

    def as_json(self) -> dict[str, Any]:
        """Plain values for a model file."""
        return {
            "format": JSON_FORMAT_OF_SETS if self.has_sets else JSON_FORMAT,
            "columns": [column.as_json() for column in self.columns],
            "ignored": list(self.ignored),
            "missing": list(self.missing),
        }

    @classmethod
    def from_json(cls, content: object) -> Encoding:
        """The encoding of plain values; a ValueError says what is wrong with them."""
        if not isinstance(content, Mapping) or content.get("format") not in (JSON_FORMAT, JSON_FORMAT_OF_SETS):
            raise ValueError(f"expected an encoding of the format {JSON_FORMAT} or {JSON_FORMAT_OF_SETS}")
        columns = content.get("columns")
        if not isinstance(columns, list | tuple) or not columns:
            raise ValueError("columns must be a list")
        found = tuple(map(Column.from_json, columns))
        names = [column.name for column in found]
        if len(set(names)) < len(names):
            raise ValueError("a column is named twice")
        return cls(found, _texts(content.get("ignored", []), "ignored"), _texts(content.get("missing", []), "missing"))


def join_encodings(first: Encoding, second: Encoding) -> Encoding:
    """An encoding with the sets of both; a ValueError says why there is none.

    Categories that one of them does not list are unknown ones for it.
    """
    if [column.name for column in first.columns] != [column.name for column in second.columns]:
        raise ValueError("they have other columns")
    columns = tuple(map(_join_columns, first.columns, second.columns))
    return replace(first, columns=columns)


def _join_columns(first: Column, second: Column) -> Column:
    if first == second:
        return first
    if first.sets is None or second.sets is None or first.is_numbered != second.is_numbered:
        raise ValueError(f"they encode {first.name!r} differently")
    categories = tuple(dict.fromkeys((*first.categories, *second.categories)))
    if not all(column.has_other or set(column.categories) == set(categories) for column in (first, second)):
        raise ValueError(f"{first.name!r} has other categories")
    joined = replace(first, categories=categories, has_missing=first.has_missing and second.has_missing, sets=())
    sets = [each for column in (first, second) for each in widen_sets(column, joined)]
    return replace(joined, sets=tuple(dict.fromkeys(sets)))


def widen_sets(column: Column, joined: Column) -> list[str]:
    """The sets of a column with a letter for each value of a joined one, in their order."""
    own = {value: place for place, value in enumerate(column.categories)}
    n = len(column.categories)
    places = [own.get(value, n) for value in joined.categories]
    places += [n] * joined.has_other + [n + column.has_other] * joined.has_missing
    return ["".join(each[place] for place in places) for each in column.sets or ()]


def _printable_value(value: str | float) -> str | float:
    return printable(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class FeatureNames:
    """Words for the features of a model or a data set, for reports, plots and exports.

    Attributes
    ----------
    names : tuple of str
        A name for each feature, ``x[3]`` for one without.
    encoding : Encoding or None
        If the features were made from columns of a table.
    """

    names: tuple[str, ...]
    encoding: Encoding | None = None

    @classmethod
    def of(cls, names: Sequence[str] | None, n_features: int, encoding: Encoding | None = None) -> FeatureNames:
        known = names or ()
        return cls(tuple(printable(known[f]) if f < len(known) else f"x[{f}]" for f in range(n_features)), encoding)

    def describe_test(
        self, feature: int, threshold: float, shown: str | None = None, signs: tuple[str, str] = ("<=", ">")
    ) -> tuple[str, str]:
        """What it says about a row that ``x <= threshold`` holds, and that it does not."""
        if threshold == LARGEST_NUMBER and self.can_be_missing(feature):
            return f"{self.names[feature]} has a value", f"{self.names[feature]} is missing"
        if self.encoding is not None and feature < self.encoding.n_features:
            holds, fails = self.encoding.describe_test(feature, threshold, shown, signs)
            return printable(holds), printable(fails)
        text = repr(float(threshold)) if shown is None else shown
        return f"{self.names[feature]} {signs[0]} {text}", f"{self.names[feature]} {signs[1]} {text}"

    def is_number(self, feature: int) -> bool:
        """Whether a feature is a number, and no indicator of a category or boolean."""
        return self.encoding is None or not self.encoding.is_indicator[feature]

    def can_be_missing(self, feature: int) -> bool:
        """Whether a value may be missing; a missing category is a value of its own."""
        encoding = self.encoding
        return encoding is None or encoding.columns[encoding.column_of_feature[feature]].kind != CATEGORY

    def describe_changes(
        self, before: NDArray[np.float64], after: NDArray[np.float64], features: Iterable[int]
    ) -> list[tuple[str, str | float, str | float]]:
        """Name, old and new value of each column that has one of the features."""
        if self.encoding is not None:
            changes = self.encoding.describe_changes(before, after, features)
            return [(printable(name), _printable_value(old), _printable_value(new)) for name, old, new in changes]
        return [(self.names[f], float(before[f]), float(after[f])) for f in features]
