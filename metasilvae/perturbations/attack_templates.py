"""Templates of attack files, generated from a data set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.dataset import NO_LABEL, Dataset
from metasilvae.encoding import CATEGORY, NUMBER, Column, Encoding
from metasilvae.errors import DataError, RequestError
from metasilvae.io.toml_text import write_key, write_text
from metasilvae.perturbations.attack_files import PER_CENT, RANGE, VALUE

DEFAULT_NOISE = "5% of range"
# Whole numbers with at most so many values are taken for codes.
MOST_CODES = 12
# Values of a column that a comment shows.
_SHOWN_VALUES = 8
_CELLS_AT_ONCE = 1 << 20
_NUMBER = re.compile(r"x?\[?(\d{1,9})\]?", re.ASCII)


@dataclass(frozen=True)
class ColumnFacts:
    """One column of a data set.

    Attributes
    ----------
    key : str
        Name of the column in TOML, or its number.
    values : float64 array
        Distinct values of a number, increasing.
    texts : tuple of str
        Values of a category or boolean; empty for a number.
    """

    key: str
    values: np.ndarray
    texts: tuple[str, ...] = ()
    n_rows: int = 0

    @property
    def is_binary(self) -> bool:
        return len(self.values) <= 2

    @property
    def is_whole(self) -> bool:
        return bool((np.floor(self.values) == self.values).all())

    def stays(self, noise: Noise) -> bool:
        """Whether noise makes no sense: for categories, codes, and whole numbers that it rounds to themselves."""
        if self.texts or self.is_binary:
            return True
        is_code = len(self.values) <= MOST_CODES and 2 * len(self.values) <= self.n_rows
        return self.is_whole and (is_code or not noise.moves_whole(self.values))

    @property
    def summary(self) -> str:
        if self.texts:
            shown = ", ".join(map(write_text, self.texts[:_SHOWN_VALUES]))
            rest = len(self.texts) - _SHOWN_VALUES
            return f"values {shown}" + (f" and {rest} more" if rest > 0 else "")
        if len(self.values) <= _SHOWN_VALUES:
            return f"values {', '.join(map(_show, self.values))}"
        kind = "whole numbers" if self.is_whole else "numbers"
        return f"{len(self.values)} different {kind} from {_show(self.values[0])} to {_show(self.values[-1])}"

    def swap(self) -> str:
        """The column may take any of its values."""
        return "any = true" if self.texts else f"values = [{', '.join(map(_show, self.values))}]"

    def blur(self, noise: Noise) -> str:
        """The column has noise; whole numbers stay whole."""
        whole = ", integer = true" if self.is_whole else ""
        reference = f", range = [{_show(self.values[0])}, {_show(self.values[-1])}]" if noise.of == RANGE else ""
        return f"radius = {noise.text}{reference}{whole}"


@dataclass(frozen=True)
class Noise:
    """A radius: a number, or a fraction of the range of a column or of the value.

    Attributes
    ----------
    text : str
        The radius in TOML.
    of : str
        ``range``, ``value`` or empty.
    """

    text: str
    size: Fraction
    of: str = ""

    @classmethod
    def parse(cls, text: str) -> Noise:
        found = PER_CENT.fullmatch(text.strip())
        if found is not None:
            of = found[2] or RANGE
            return cls(write_text(f"{found[1]}% of {of}"), Fraction(found[1]) / 100, of)
        number = parse_number(text.encode(errors="replace"))
        if number is None or number < 0:
            raise RequestError(
                f"noise {text!r}: expected a number that is not negative, or a percentage such as '{DEFAULT_NOISE}'"
            )
        return cls(repr(number), Fraction(number))

    def moves_whole(self, values: np.ndarray) -> bool:
        """Whether it changes some of these whole numbers."""
        low, high = Fraction(float(values[0])), Fraction(float(values[-1]))
        unit = high - low if self.of == RANGE else max(abs(low), abs(high)) if self.of == VALUE else 1
        return self.size * unit >= 1


FREEZE = "immutable = true"


def _start(facts: ColumnFacts, is_protected: bool, noise: Noise) -> str:
    if is_protected:
        return facts.swap()
    return FREEZE if facts.stays(noise) else facts.blur(noise)


def _fairness_cat(facts: ColumnFacts, is_protected: bool, noise: Noise) -> str:
    return facts.swap() if is_protected else FREEZE


def _fairness_noise(facts: ColumnFacts, is_protected: bool, noise: Noise) -> str:
    return FREEZE if is_protected or facts.stays(noise) else facts.blur(noise)


# Name: rule for a column, whether it needs protected columns, description.
TEMPLATES: dict[str, tuple[Callable[[ColumnFacts, bool, Noise], str], bool, str]] = {
    "plain": (_start, False, "Numbers have noise; categories and codes stay."),
    "fairness-cat": (_fairness_cat, True, "A protected column may take any of its values; all others are immutable."),
    "fairness-noise": (_fairness_noise, False, "Numbers have noise; protected columns are immutable."),
    "fairness-noise-cat": (_start, True, "A protected column may take any of its values; numbers have noise."),
}

_HEAD = """\
# Allowed changes per column of {source}. {about}
#
#   radius = 0.5          the value may change by 0.5
#   radius = "5% of range"   by 5 percent of range = [low, high]; "5% of value" by 5 percent of itself
#   up = 2, down = 0      the value may only increase
#   min = 0, max = 10     limits of the perturbed value
#   integer = true        the perturbed value is a whole number
#   values = [0, 1, 2]    the value may become any of these
#   any = true            a category may become any other one
#   swap = [["a", "b"]]   a category may become one of the same list
#   immutable = true      the value does not change
#
# `metasilvae attack check FILE DATA` describes what a file allows.

[default]                 # columns that are not named below
immutable = true

[columns]
"""
_GROUPS = """\

# One-hot groups: exactly one of the columns is 1; a perturbation may choose another one.
"""
_NO_GROUPS = """\

# One-hot groups: exactly one of the columns is 1; a perturbation may choose another one. They have no other rule.
# [[one-hot]]
# columns = ["red", "green", "blue"]
"""


def join_rows(datasets: Sequence[Dataset]) -> Dataset:
    """The rows of several data sets with the same columns, without labels."""
    first = datasets[0]
    for other in datasets[1:]:
        if other.n_features != first.n_features or other.feature_names != first.feature_names:
            raise DataError(
                f"{other.source} and {first.source} have different columns; check that they belong together"
            )
    X = np.concatenate([dataset.X for dataset in datasets])
    y = np.full(len(X), NO_LABEL, dtype=np.int32)
    return Dataset(
        X, y, (), first.feature_names, " and ".join(dataset.source for dataset in datasets), encoding=first.encoding,
        indicators=first.indicators,
    )  # fmt: skip


def write_template(
    dataset: Dataset,
    template: str = "plain",
    protected: Sequence[str] = (),
    groups: Sequence[Sequence[str]] = (),
    noise: str = DEFAULT_NOISE,
) -> Iterator[str]:
    """The text of an attack file with a line for each column.

    Parameters
    ----------
    template : str
        One of `TEMPLATES`.
    protected : sequence of str
        Columns, by name or number, that may take any of the values that they take in the data.
    groups : sequence of sequences of str
        Columns of each one-hot group.
    noise : str
        Radius of columns with noise: a number, or a percentage of their range or of the value.
    """
    rule, is_about_protected, about = TEMPLATES[template]
    if is_about_protected and not protected and not groups:
        raise RequestError(
            f"template {template} is about protected columns; name them, or their one-hot columns, for instance "
            f"{dataset.feature_name(0)}"
        )
    radius = Noise.parse(noise)
    encoding = dataset.encoding or Encoding(tuple(map(Column, dataset.names.names)))
    names = _name_columns(dataset, encoding)
    swapped = {_find_column(dataset, encoding, column) for column in protected}
    members = [[_find_column(dataset, encoding, column) for column in group] for group in groups]
    hidden = Counter(place for group in members for place in group)
    twice = [place for place, count in hidden.items() if count > 1 or place in swapped]
    if twice:
        raise RequestError(f"column {encoding.columns[twice[0]].name} is named twice; name each column once")
    yield _HEAD.format(source=dataset.source, about=about)
    distinct = _distinct_values(dataset.X)
    for place, column in enumerate(encoding.columns):
        values, *_ = [next(distinct) for _ in range(column.width)]
        if place not in hidden:
            texts = () if column.kind == NUMBER else column.values if column.kind == CATEGORY else column.categories
            facts = ColumnFacts(write_key(names[place]), values[~np.isnan(values)], texts, dataset.n_samples)
            text = rule(facts, place in swapped, radius)
            comment = "" if text.startswith("values") else f"  # {facts.summary}"
            yield f"{facts.key} = {{ {text} }}{comment}\n"
    yield _GROUPS if members else _NO_GROUPS
    for group in members:
        yield f"[[one-hot]]\ncolumns = [{', '.join(write_text(names[place]) for place in group)}]\n"


def _find_column(dataset: Dataset, encoding: Encoding, column: str) -> int:
    names = [each.name for each in encoding.columns]
    if dataset.feature_names is not None and column in names:
        return names.index(column)
    numbered = _NUMBER.fullmatch(column)
    if numbered is not None and int(numbered[1]) < len(names):
        return int(numbered[1])
    raise RequestError(
        f"{dataset.source} has no column {column}; give a name from `metasilvae data check`, or a number from 0 to "
        f"{len(names) - 1}"
    )


def _distinct_values(X: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The distinct values of each column, increasing; many columns are sorted at once."""
    n_at_once = max(1, _CELLS_AT_ONCE // max(1, len(X)))
    for start in range(0, X.shape[1], n_at_once):
        columns = np.sort(np.ascontiguousarray(X[:, start : start + n_at_once].T), axis=1) + 0.0
        is_new = np.ones(columns.shape, dtype=bool)
        np.not_equal(columns[:, 1:], columns[:, :-1], out=is_new[:, 1:])
        ends = np.cumsum(is_new.sum(axis=1))
        values = columns[is_new]
        for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            yield values[first:end]


def _name_columns(dataset: Dataset, encoding: Encoding) -> list[str]:
    """The name of each column that has one of its own, else its number."""
    names = [column.name for column in encoding.columns]
    if dataset.feature_names is None:
        return [str(place) for place in range(len(names))]
    counts = Counter(names)
    return [name if counts[name] == 1 else f"x[{place}]" for place, name in enumerate(names)]


def _show(value: float) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
