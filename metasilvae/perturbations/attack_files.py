"""Attack files: TOML with the allowed changes per column (threat model).

This module reads the rules and checks each of them; metasilvae.perturbations.attack applies them to the columns of a
data set. docs/attack.md describes the format.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from metasilvae.errors import MetasilvaeWarning, PerturbationError, at_line, list_some, shorten
from metasilvae.io.memory import TABLE_EXPANSION
from metasilvae.io.storage import display_name, read_source
from metasilvae.notebook import describe

SECTIONS = ("default", "columns", "one-hot")
MOVES = ("radius", "up", "down", "immutable", "values", "any", "swap")
LIMITS = ("min", "max", "integer", "range")
FLAGS = ("immutable", "integer", "any")
# Moves that leave nothing to inherit.
COMPLETE_MOVES = frozenset({"immutable", "values", "any", "swap"})
DEFAULT_KEYS = ("radius", "up", "down", "immutable", "missing", "cost", *LIMITS)
# What may become of a value besides: it stays, or an attacker may drop it.
MISSING = {"stays": False, "may appear": True}
GROUP_KEYS = ("columns", "cost")
LONGEST_KEY = 100  # in messages
_ADVICE = "`metasilvae attack template DATA` writes a file to start from"
# A key with a value; a parser would take most of the time for files with a line for each of a million columns.
_SIMPLE_LINE = re.compile(r'\s*(?:([A-Za-z0-9_-]+)|"([^"\\]*)")\s*=', re.ASCII)
PER_CENT = re.compile(r"(\d{1,9}(?:\.\d{0,15})?|\.\d{1,15})\s*%(?:\s+of\s+(range|value))?", re.ASCII)
RANGE, VALUE = "range", "value"


@dataclass(frozen=True)
class Percentage:
    """A fraction of the range of a column, or of the value itself.

    Attributes
    ----------
    of : str
        ``range`` or ``value``.
    """

    fraction: Fraction
    of: str = RANGE


Radius = float | Percentage


@dataclass(frozen=True)
class Rule:
    """Allowed changes of the values of a column.

    Attributes
    ----------
    place : str
        Where the rule is written, for messages.
    down, up : float or Percentage
        How far a value may decrease and increase.
    minimum, maximum : float
        Limits of the perturbed value.
    reference : pair of float or None
        The range that percentages refer to; None for the range in the data.
    is_whole : bool
        The column takes whole numbers only.
    values : tuple of float or None
        All values that the column can take, increasing; None for any.
    is_free : bool
        A category may become any other one.
    swaps : tuple of tuple of str or None
        Categories that may become each other, in each tuple; all others stay.
    is_immutable : bool
        The rule says that values stay, whatever the type of the column.
    may_be_dropped : bool
        A value may become missing; a missing value stays missing in any case.
    cost : float
        By how much a change is multiplied in a distance in the norms l0, l1 and l2.
    words : tuple of str or None
        Categories that a region consists of; attacks have none.
    """

    place: str
    down: Radius = 0.0
    up: Radius = 0.0
    minimum: float = -math.inf
    maximum: float = math.inf
    reference: tuple[float, float] | None = None
    is_whole: bool = False
    values: tuple[float, ...] | None = None
    may_be_dropped: bool = False
    is_free: bool = False
    swaps: tuple[tuple[str, ...], ...] | None = None
    is_immutable: bool = False
    cost: float = 1.0
    words: tuple[str, ...] | None = None

    @property
    def is_for_categories(self) -> bool:
        return self.is_free or self.swaps is not None


@dataclass(frozen=True)
class Group:
    """Columns of which exactly one is 1; a perturbation may choose another one."""

    place: str
    columns: tuple[str, ...]
    cost: float = 1.0


@dataclass(frozen=True)
class AttackRules:
    """The content of an attack file; columns are named as in the file, by names or patterns."""

    source: str
    default: Rule
    columns: Mapping[str, Rule]
    groups: tuple[Group, ...]

    def __repr__(self) -> str:
        facts = [f"columns {list_some(list(self.columns))}"] if self.columns else []
        return describe(f"AttackRules {self.source}", facts)


def read_attack(source: str) -> AttackRules:
    """Read an attack file, - for standard input."""
    return parse_attack(read_source(source, TABLE_EXPANSION), display_name(source))


def _parse_float(name: str, text: str) -> float:
    """A number; only the word inf stands for an infinite one."""
    value = float(text)
    if math.isinf(value) and "inf" not in text:
        raise PerturbationError(
            f"{name}: {shorten(text)} is too large for a 64-bit floating point number; inf allows any value"
        )
    return value


def parse_attack(content: bytes, name: str) -> AttackRules:
    """The rules in the content of an attack file."""
    try:
        text = content.decode("utf-8-sig")
        return _Reader(name, text).read(tomllib.loads(text, parse_float=partial(_parse_float, name)))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PerturbationError(at_line(name, line, "is not UTF-8 text; an attack file is TOML in UTF-8")) from None
    except RecursionError:
        raise PerturbationError(f"{name}: is nested too deeply; {_ADVICE}") from None
    except ValueError as error:  # of the grammar, or of a number of thousands of digits
        raise PerturbationError(f"{name}: is not TOML: {' '.join(str(error).split())}; {_ADVICE}") from None


class _Reader:
    """Checks a document and knows where its parts are written."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._lines = _index_lines(text)
        self._is_warned = False

    def read(self, document: dict[str, Any]) -> AttackRules:
        self._check_keys(document, SECTIONS, ())
        default = self._table(document.get("default", {}), ("default",))
        self._check_keys(default, DEFAULT_KEYS, ("default",))
        columns = self._table(document.get("columns", {}), ("columns",))
        rules = {
            column: self._rule(self._table(table, ("columns", column)), default, ("columns", column))
            for column, table in columns.items()
        }
        groups = document.get("one-hot", [])
        if not isinstance(groups, list):
            raise self._fault(("one-hot",), "expected a list of groups; write [[one-hot]] and columns = [..] below it")
        return AttackRules(
            self._name,
            self._rule({}, default, ("default",)),
            rules,
            tuple(self._group(group, number) for number, group in enumerate(groups, 1)),
        )

    def _group(self, group: object, number: int) -> Group:
        path = ("one-hot",)
        if not isinstance(group, dict):
            raise self._fault(path, "expected a list of groups; write [[one-hot]] and columns = [..] below it", number)
        self._check_keys(group, GROUP_KEYS, path)
        columns = group.get("columns")
        if not isinstance(columns, list) or len(columns) < 2:
            raise self._fault(path, "a group needs columns = [..] with two columns or more", number)
        for column in columns:
            if isinstance(column, bool) or not isinstance(column, str | int):
                raise self._fault(path, f"{column!r} is not the name or the number of a column", number)
        if len(set(columns)) < len(columns):
            raise self._fault(path, "a column is named twice", number)
        return Group(self._place(path, number), tuple(map(str, columns)), self._cost(group.get("cost", 1.0), path))

    def _rule(self, own: dict[str, Any], default: dict[str, Any], path: tuple[str, ...]) -> Rule:
        self._check_keys(own, (*MOVES, *LIMITS, "missing", "cost"), path)
        own, default = dict(own), dict(default)
        cost = self._cost(default.pop("cost", 1.0), ("default", "cost"))
        if "cost" in own:
            cost = self._cost(own.pop("cost"), (*path, "cost"))
        inherited = default.pop("missing", "stays")
        # A column that is immutable by itself stays as it is unless it says otherwise.
        missing = own.pop("missing", "stays" if own.get("immutable") is True else inherited)
        if not isinstance(missing, str) or missing not in MISSING:
            known = " or ".join(f'"{word}"' for word in MISSING)
            raise self._fault((*path, "missing"), f"{shorten(str(missing))} is unknown; write {known}")
        return replace(self._moves(own, default, path), may_be_dropped=MISSING[missing], cost=cost)

    def _cost(self, value: object, path: tuple[str, ...]) -> float:
        cost = self._check_number(value, path)
        if not 0 < cost < math.inf:
            raise self._fault(
                path, f"{cost:g} is not a cost; expected a number above 0, and immutable = true for columns that stay"
            )
        return cost

    def _moves(self, own: dict[str, Any], default: dict[str, Any], path: tuple[str, ...]) -> Rule:
        table = _without_false_flags({**_inherited(_without_false_flags(own), default), **own})
        if "immutable" in table:
            self._check_flag(table, "immutable", path)
            self._exclude(table, "immutable", (*MOVES, *LIMITS), path)
            return Rule(self._place(path), is_immutable=True)
        if "any" in table:
            self._check_flag(table, "any", path)
            self._exclude(table, "any", (*MOVES, *LIMITS), path)
            return Rule(self._place(path), is_free=True)
        if "swap" in table:
            self._exclude(table, "swap", (*MOVES, *LIMITS), path)
            return Rule(self._place(path), swaps=self._swaps(table["swap"], (*path, "swap")))
        if "values" in table:
            return self._listed(table, path)
        self._check_flag(table, "integer", path)
        both = self._radius(table, "radius", None, path)
        if both is not None and "up" in table and "down" in table:
            raise self._fault((*path, "radius"), "has no effect beside up and down; leave it out")
        down = self._radius(table, "down", 0.0 if both is None else both, path)
        up = self._radius(table, "up", 0.0 if both is None else both, path)
        assert down is not None
        assert up is not None
        minimum = self._number(table, "min", -math.inf, path)
        maximum = self._number(table, "max", math.inf, path)
        if minimum > maximum:
            raise self._fault((*path, "min"), f"{minimum:g} is above max = {maximum:g}; exchange them")
        is_whole = "integer" in table
        if is_whole and math.isfinite(minimum) and math.isfinite(maximum) and math.ceil(minimum) > math.floor(maximum):
            raise self._fault((*path, "integer"), f"no whole number lies from {minimum:g} to {maximum:g}")
        return Rule(self._place(path), down, up, minimum, maximum, self._range(table, path), is_whole)

    def _listed(self, table: dict[str, Any], path: tuple[str, ...]) -> Rule:
        self._exclude(table, "values", ("radius", "immutable", *LIMITS), path)
        values = table["values"]
        if not isinstance(values, list) or not values:
            raise self._fault((*path, "values"), "expected a list of numbers such as [0, 1, 2]")
        if all(isinstance(value, str) for value in values):
            self._exclude(table, "values", (*MOVES, *LIMITS), path)
            if len(set(values)) < len(values):
                raise self._fault((*path, "values"), "a value is listed twice")
            return Rule(self._place(path), words=tuple(values))
        numbers = sorted(self._check_number(value, (*path, "values")) for value in values)
        if not all(map(math.isfinite, numbers)):
            raise self._fault((*path, "values"), "values must be finite")
        if len(set(numbers)) < len(numbers):
            raise self._fault((*path, "values"), "a value is listed twice")
        radii = [self._radius(table, key, math.inf, path) for key in ("down", "up")]
        for key, radius in zip(("down", "up"), radii, strict=True):
            if radius not in (0.0, math.inf):
                raise self._fault((*path, key), "beside values, 0 forbids this direction; leave it out otherwise")
        down, up = (radius for radius in radii if isinstance(radius, float))
        return Rule(self._place(path), down, up, numbers[0], numbers[-1], values=tuple(numbers))

    def _swaps(self, lists: object, path: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Lists of categories that may become each other."""
        expected = 'expected lists of categories that may become each other, such as [["a", "b"]]'
        if not isinstance(lists, list) or not lists:
            raise self._fault(path, expected)
        seen: set[str] = set()
        for each in lists:
            if not isinstance(each, list) or len(each) < 2 or not all(isinstance(text, str) for text in each):
                raise self._fault(path, expected)
            for text in each:
                if text in seen:
                    raise self._fault(
                        path, f"{shorten(text)} is listed twice; put all that may become it into one list"
                    )
                seen.add(text)
        return tuple(map(tuple, lists))

    def _radius(self, table: dict[str, Any], key: str, missing: Radius | None, path: tuple[str, ...]) -> Radius | None:
        if key not in table:
            return missing
        value = table[key]
        if isinstance(value, str):
            found = PER_CENT.fullmatch(value.strip())
            if found is None:
                raise self._fault(
                    (*path, key),
                    f'{shorten(value)} is not a radius; write a number, "5% of range" or "5% of value"',
                )
            fraction = Fraction(found[1]) / 100
            if found[2] is None:
                self._warn_of_bare_percentage(value, (*path, key))
            if found[2] == VALUE and fraction > 1:
                raise self._fault((*path, key), f"{shorten(value)} is more than the value; give at most 100% of value")
            return Percentage(fraction, found[2] or RANGE)
        number = self._check_number(value, (*path, key))
        if number < 0:
            raise self._fault((*path, key), f"{number:g} is negative; a radius is a distance, 0 or more")
        return number

    def _warn_of_bare_percentage(self, value: str, path: tuple[str, ...]) -> None:
        if not self._is_warned:
            self._is_warned = True
            text = " ".join(value.split())
            warnings.warn(
                f'{self._place(path)}: {shorten(value)} is read as "{text} of range"; write that, or "{text} of '
                'value" for a fraction of the value of each row; a percentage alone will be an error',
                MetasilvaeWarning,
                stacklevel=2,
            )

    def _range(self, table: dict[str, Any], path: tuple[str, ...]) -> tuple[float, float] | None:
        if "range" not in table:
            return None
        ends = table["range"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise self._fault((*path, "range"), "expected the two ends that percentages refer to, such as [0, 10]")
        low, high = (self._check_number(end, (*path, "range")) for end in ends)
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise self._fault((*path, "range"), f"[{low:g}, {high:g}] is not a range; give the smaller end first")
        return low, high

    def _number(self, table: dict[str, Any], key: str, missing: float, path: tuple[str, ...]) -> float:
        return self._check_number(table[key], (*path, key)) if key in table else missing

    def _check_number(self, value: object, path: tuple[str, ...]) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._fault(path, f"{shorten(str(value))} is not a number")
        try:
            number = float(value)
        except OverflowError:
            raise self._fault(path, "the number is too large") from None
        if math.isnan(number):
            raise self._fault(path, f"{shorten(str(value))} is not a number")
        return number

    def _check_flag(self, table: dict[str, Any], key: str, path: tuple[str, ...]) -> None:
        if key in table and table[key] is not True:
            raise self._fault((*path, key), f"{shorten(str(table[key]))} is neither true nor false")

    def _exclude(self, table: dict[str, Any], key: str, others: Iterable[str], path: tuple[str, ...]) -> None:
        for other in others:
            if other != key and other in table:
                raise self._fault((*path, other), f"excludes {key}; leave one of them out")

    def _table(self, value: object, path: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._fault(path, f"expected a table such as {{ radius = 0.1 }}, found {shorten(str(value))}")
        return value

    def _check_keys(self, table: dict[str, Any], known: Iterable[str], path: tuple[str, ...]) -> None:
        known = list(known)
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                raise self._fault((*path, key), f"unknown key; {hint}")

    # Places

    def _fault(self, path: tuple[str, ...], found: str, number: int = 1) -> PerturbationError:
        return PerturbationError(f"{self._place(path, number)}: {found}")

    def _place(self, path: tuple[str, ...], number: int = 1) -> str:
        """File, line if it is known, and the key; `number` distinguishes the groups."""
        keys = (key if len(key) <= LONGEST_KEY else key[:LONGEST_KEY] + "..." for key in path)
        what = ".".join(keys) + (f" {number}" if path[:1] == ("one-hot",) else "")
        lines = self._lines.get(path) or self._lines.get(path[:2], [])  # a rule may be one line with all its keys
        if not lines:
            return f"{self._name}: {what}"
        return at_line(self._name, lines[min(number, len(lines)) - 1], what)


def _without_false_flags(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without flags that are false, which have no effect."""
    return {key: value for key, value in table.items() if key not in FLAGS or value is not False}


def _inherited(own: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that apply to a column: the moves unless it has its own, and the limits unless it needs none."""
    moves = own.keys() & set(MOVES)
    if moves & COMPLETE_MOVES:
        return {}
    return {key: value for key, value in default.items() if key not in MOVES or not moves}


def _index_lines(text: str) -> dict[tuple[str, ...], list[int]]:
    """The lines on which each key is written, as far as single lines show it."""
    lines: dict[tuple[str, ...], list[int]] = {}
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        simple = _SIMPLE_LINE.match(line) if header else None
        if simple is not None:
            lines.setdefault((*header, simple[1] or simple[2] or ""), []).append(number)
            continue
        is_header = line.lstrip().startswith("[")
        try:
            found = tomllib.loads(line)
        except ValueError:
            try:
                found = tomllib.loads(line.partition("=")[0] + "= 0")  # the value continues on the next line
            except ValueError:
                continue
        paths = list(_paths(found))
        if is_header:
            header = paths[-1]
            lines.setdefault(header, []).append(number)
            continue
        for path in paths:
            lines.setdefault(header + path, []).append(number)
    return lines


def _paths(value: object) -> Iterator[tuple[str, ...]]:
    """The keys of a document, outer ones first."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (key,)
            yield from ((key, *path) for path in _paths(inner))
