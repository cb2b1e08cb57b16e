"""An attack (threat model): allowed changes per column, fitted to the columns of a data set.

One attack serves training, verification and evaluation: percentages are turned into distances once, with the data that
the attack is fitted to, and these distances apply to every other data set.
"""

from __future__ import annotations

import difflib
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.encoding import BOOLEAN, CATEGORY, NUMBER, Column, Encoding
from metasilvae.errors import MetasilvaeWarning, PerturbationError, list_some, shorten
from metasilvae.perturbations.attack_files import RANGE, VALUE, AttackRules, Percentage, Radius, Rule, read_attack
from metasilvae.perturbations.boxes import Boxes
from metasilvae.perturbations.domains import FeatureDomains
from metasilvae.perturbations.groups import Group, TableGroups, pack_options

FloatArray = NDArray[np.float64]
_NUMBERED = re.compile(r"x\[(\d{1,9})\]|(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class Attack:
    """A perturbation with rules of its own for each column.

    Attributes
    ----------
    source : str
        Name of the file, for reports.
    radius_down, radius_up, minimum, maximum : float64 arrays, shape (n_features,)
    domains : FeatureDomains
    groups : TableGroups
        Any member of a one-hot group may become the one that is 1.
    places : tuple of str
        Where the rule of each feature is written, for messages.
    relative_down, relative_up : tuples of Fraction or None
        Radii of features as fractions of the value of a sample, instead of `radius_down` and `radius_up`; None if no
        feature has them.
    swaps : mapping from tuple of int to tuple of int
        For one-hot groups of which not every member may become every other one: a number for each member; members with
        equal numbers may become each other.
    moves : mapping from int to bool array, shape (n_options, n_options)
        For groups with codes, by their number: which options may become which other ones.
    feature_names : tuple of str or None
        Names of the features; data with names are matched to them.
    droppable : bool array, shape (n_features,), or None
        Columns whose values may become missing; None if there are none.
    costs : float64 array, shape (n_features,), or None
        Costs of changes, for distances in the norms l0, l1 and l2; None if all are 1.
    """

    source: str
    radius_down: FloatArray
    radius_up: FloatArray
    minimum: FloatArray
    maximum: FloatArray
    domains: FeatureDomains
    groups: TableGroups
    places: tuple[str, ...]
    relative_down: tuple[Fraction, ...] | None = None
    relative_up: tuple[Fraction, ...] | None = None
    swaps: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    droppable: NDArray[np.bool_] | None = None
    moves: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    costs: FloatArray | None = None

    @property
    def n_features(self) -> int:
        return len(self.radius_down)

    @property
    def is_idle(self) -> bool:
        """Whether no value can change."""
        is_relative = any(any(each) for each in (self.relative_down, self.relative_up) if each is not None)
        can_swap = any(len(set(numbers)) < len(numbers) for numbers in self.swaps.values())
        return not (self.reach.any() or is_relative or can_swap) and self.droppable is None

    @property
    def has_common_radii(self) -> bool:
        """Whether the radii are the same for all samples."""
        return self.relative_down is None and self.relative_up is None and not self.swaps

    def times(self, factor: float) -> Attack:
        """The same attack with all radii multiplied; relative ones stay at most 1. 0 times infinity is 0."""

        def multiply(radius: FloatArray) -> FloatArray:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.where(factor == 0, 0.0, factor * radius)

        def multiply_each(relative: tuple[Fraction, ...] | None) -> tuple[Fraction, ...] | None:
            return None if relative is None else tuple(min(each * Fraction(factor), Fraction(1)) for each in relative)

        return replace(
            self,
            radius_down=multiply(self.radius_down),
            radius_up=multiply(self.radius_up),
            relative_down=multiply_each(self.relative_down),
            relative_up=multiply_each(self.relative_up),
            swaps={group: tuple(range(len(group))) for group in self.swaps} if factor == 0 else self.swaps,
        )

    @property
    def reach(self) -> FloatArray:
        """How far each column can go down and up, shape (2, n_features): whole numbers by whole numbers."""
        reach, whole = np.stack([self.radius_down, self.radius_up]), sorted(self.domains.whole)
        reach[:, whole] = np.floor(reach[:, whole])
        return reach

    def boxes(self, dataset: Dataset) -> Boxes:
        own, names = self.feature_names, dataset.feature_names
        if own is not None and names is not None and own != names:
            return self._follow(names, dataset.source).boxes(dataset)
        if dataset.n_features != self.n_features:
            raise PerturbationError(
                f"{dataset.source} has {dataset.n_features} features, {self.source} was made to fit {self.n_features}; "
                "check that they belong together"
            )
        self._check_rows(dataset)
        radii_and_limits = (self.radius_down, self.radius_up, self.minimum, self.maximum)
        low = high = dataset.X
        if not self.has_common_radii:
            low, high = self._centers(dataset.X)
        droppable = None
        if self.droppable is not None:
            droppable = np.broadcast_to(self.droppable.astype(np.uint8), dataset.X.shape)
        allowed = self._allow_options(dataset.X) if self.moves else None
        return Boxes(low, high, *radii_and_limits, self.groups, self.domains, droppable, allowed, self.costs)

    def _allow_options(self, X: FloatArray) -> NDArray[np.uint64]:
        """The options of groups that each sample may take."""
        n_words = self.groups.n_words
        allowed = np.full((len(X), self.groups.n_groups, n_words), ~np.uint64(0), dtype=np.uint64)
        for number, may_become in self.moves.items():
            options = self.groups.groups[number].find_options(X)
            allowed[:, number] = pack_options(may_become, n_words)[options]
        return allowed

    def _centers(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The ends of boxes in features whose radii depend on the sample, and the values of the other features."""
        low, high = X.copy(), X.copy()
        for ends, relative, sign in ((low, self.relative_down, -1.0), (high, self.relative_up, 1.0)):
            for feature, fraction in enumerate(relative or ()):
                if fraction:
                    values, places = np.unique(X[:, feature], return_inverse=True)
                    is_whole = feature in self.domains.whole
                    radii = np.array([_take_fraction(fraction, value, is_whole) for value in values.tolist()])
                    ends[:, feature] += sign * (np.floor(radii) if is_whole else radii)[places]
        for group, numbers in self.swaps.items():
            members, classes = np.array(group), np.array(numbers)
            of_row = classes[np.argmax(X[:, members], axis=1)]
            can_move = (classes[None, :] == of_row[:, None]) & (np.bincount(classes)[of_row] > 1)[:, None]
            low[:, members] = np.where(can_move, 0.0, X[:, members])
            high[:, members] = np.where(can_move, 1.0, X[:, members])
        return low, high

    def for_features(self, features: NDArray[np.int32]) -> Attack:
        """Members of an incomplete group become free columns, each 0 or 1; the omitted ones can compensate for them."""
        new = {old: position for position, old in enumerate(features.tolist())}
        radius_down, radius_up = self.radius_down.copy(), self.radius_up.copy()
        swaps = {}
        kept = [number for number, group in enumerate(self.groups.groups) if new.keys() >= set(group.features)]
        for group, numbers in self.swaps.items():
            if new.keys() >= set(group):
                swaps[tuple(new[f] for f in group)] = numbers
            else:
                movable = [f for f, number in zip(group, numbers, strict=True) if numbers.count(number) > 1]
                radius_down[movable] = radius_up[movable] = np.inf

        def take(relative: tuple[Fraction, ...] | None) -> tuple[Fraction, ...] | None:
            return None if relative is None else tuple(relative[old] for old in new)

        return Attack(
            self.source,
            radius_down[features],
            radius_up[features],
            self.minimum[features],
            self.maximum[features],
            self.domains.renumber(new),
            TableGroups(tuple(self.groups.groups[number].renumber(new) for number in kept)),
            tuple(self.places[old] for old in new),
            take(self.relative_down),
            take(self.relative_up),
            swaps,
            None if self.feature_names is None else tuple(self.feature_names[old] for old in new),
            self.droppable[features] if self.droppable is not None and self.droppable[features].any() else None,
            {kept.index(number): move for number, move in self.moves.items() if number in kept},
            None if self.costs is None else self.costs[features],
        )

    def _follow(self, names: tuple[str, ...], source: str) -> Attack:
        """The attack for columns in another order."""
        assert self.feature_names is not None
        place = {name: feature for feature, name in enumerate(self.feature_names)}
        unknown = [name for name in names if name not in place]
        if unknown or len(set(names)) < len(names) or len(place) < len(self.feature_names):
            listed = list_some([shorten(name) for name in unknown or names])
            raise PerturbationError(
                f"{source}: {self.source} was fitted to other columns, without {listed}; fit it to these data"
            )
        kept = [place[name] for name in names]
        for group in self.groups.lists:
            if 0 < len(set(group) - set(kept)) < len(group):
                omitted = next(self.feature_names[feature] for feature in group if feature not in kept)
                raise PerturbationError(
                    f"{source}: lacks {shorten(omitted)}, a member of a one-hot group ({self.places[group[0]]}); a "
                    "group needs all of its columns"
                )
        return self.for_features(np.array(kept, dtype=np.int32))

    def describe(self) -> str:
        return f"attack {self.source}"

    def _check_rows(self, dataset: Dataset) -> None:
        """Refuse samples that violate the rules themselves."""
        X = dataset.X
        for group in self.groups.groups:
            bad = group.find_options(X) < 0
            if bad.any():
                row = int(np.argmax(bad))
                names = ", ".join(dataset.feature_name(f) for f in group.members)
                problem = f"of {names} not exactly one is 1 and the others 0"
                if not group.is_one_hot:
                    problem = f"the features of {dataset.feature_name(group.code)} are those of no category"
                raise PerturbationError(
                    f"{dataset.source}: row {dataset.number_of(row)}: {problem} ({self.places[group.features[0]]}); "
                    "correct the row or the group"
                )
        for feature in self.domains.features:
            kind = "a whole number" if feature in self.domains.whole else "among the listed values"
            is_bad = ~self.domains.holds(feature, X[:, feature]) & ~np.isnan(X[:, feature])
            self._refuse(dataset, feature, is_bad, f"is not {kind}")
        for feature in np.flatnonzero(np.isfinite(self.minimum) | np.isfinite(self.maximum)).tolist():
            low, high = self.minimum[feature], self.maximum[feature]
            is_out = (X[:, feature] < low) | (X[:, feature] > high)
            self._refuse(dataset, feature, is_out, f"is outside the limits {low:g} to {high:g}")

    def _refuse(self, dataset: Dataset, feature: int, is_bad: NDArray[np.bool_], complaint: str) -> None:
        if is_bad.any():
            row = int(np.argmax(is_bad))
            raise PerturbationError(
                f"{dataset.source}: row {dataset.number_of(row)}, {dataset.feature_name(feature)} = "
                f"{float(dataset.X[row, feature])!r} {complaint} ({self.places[feature]}); change the rule so that it "
                "allows the values of the data"
            )


def load_attack(source: str, dataset: Dataset) -> Attack:
    """Read an attack file and apply it to the columns of a data set."""
    return fit_attack(read_attack(source), dataset)


def list_categories(rules: AttackRules, dataset: Dataset) -> dict[int, NDArray[np.bool_]]:
    """For columns of categories or booleans whose values a file lists, which of their values these are."""
    columns = ColumnFinder(dataset)
    found = {}
    for place, rule in enumerate(columns.assign(rules)):
        column = columns.encoding.columns[place]
        if rule.words is not None and column.kind != NUMBER:
            values = _values_of(column)
            for text in rule.words:
                _check_value(column, rule, text, values)
            found[place] = np.isin(np.arange(len(values)), [values.index(text) for text in rule.words])
    return found


def fit_attack(rules: AttackRules, dataset: Dataset, *, is_region: bool = False) -> Attack:
    """Apply rules to the columns of a data set.

    Columns are those of the table, before categories were encoded. Percentages of the range refer to the range that a
    rule names, or else to the range of the column in this data set.

    Parameters
    ----------
    is_region : bool
        Whether the rules describe a region, which may list categories (`list_categories`).
    """
    columns = ColumnFinder(dataset)
    by_column = columns.assign(rules)
    members = [[columns.find(column, group.place) for column in group.columns] for group in rules.groups]
    encoding = columns.encoding
    by_feature: list[Rule] = [rules.default] * dataset.n_features
    groups: list[Group] = []
    moves: dict[int, NDArray[np.bool_]] = {}
    swaps: dict[tuple[int, ...], tuple[int, ...]] = {}
    for place, rule in enumerate(by_column):
        features, column = list(encoding.features_of(place)), encoding.columns[place]
        if rule.words is not None:
            if column.kind == NUMBER:
                raise PerturbationError(f"{rule.place}: {column.name} is a number; list numbers, such as [0, 1, 2]")
            if not is_region:
                raise PerturbationError(
                    f"{rule.place}: {column.name} is a {column.kind}, whose values describe a region for `prove`; in "
                    "an attack write any = true, swap = [[..]] or immutable = true"
                )
            rule = replace(rule, is_immutable=True)
        if column.kind == NUMBER:
            if rule.is_for_categories:
                raise PerturbationError(f"{rule.place}: {column.name} is a number; radius = inf allows any value")
            by_feature[features[0]] = rule
            continue
        numbers = _number_categories(column, rule, is_default=rule is rules.default)
        if column.sets is not None:
            may_become = np.equal.outer(numbers, numbers)
            if rule.may_be_dropped and rule is not rules.default:
                if not column.has_missing:
                    raise PerturbationError(f"{rule.place}: {column.name} has no missing values in the model")
                may_become[:, -1] = True
            is_moving = int(may_become.sum()) > len(numbers)
            for feature in features:
                largest = 1.0 if feature < features[-1] else len(column.values) - 1.0
                radius = math.inf if is_moving else 0.0
                by_feature[feature] = Rule(rule.place, radius, radius, 0.0, largest, cost=rule.cost)
            if is_moving:
                moves[len(groups)] = may_become
                groups.append(Group(tuple(features[:-1]), column.table, features[-1]))
            continue
        is_one = len(set(numbers)) == 1 and len(numbers) > 1
        moving = Rule(rule.place, math.inf, math.inf, 0.0, 1.0, values=(0.0, 1.0) if column.kind == BOOLEAN else None)
        if column.kind == CATEGORY and rule.may_be_dropped and rule is not rules.default:
            raise PerturbationError(f"{rule.place}: {column.name} is a category, which cannot become missing")
        resting = Rule(rule.place, minimum=0.0, maximum=1.0)
        is_dropped = column.kind == BOOLEAN and rule.may_be_dropped
        for feature in features:
            by_feature[feature] = replace(moving if is_one else resting, may_be_dropped=is_dropped, cost=rule.cost)
        if column.kind == CATEGORY and len(set(numbers)) < len(numbers):
            groups.append(Group.one_hot(features))
            if not is_one:
                swaps[tuple(features)] = tuple(numbers)
    for group, places in zip(rules.groups, members, strict=True):
        features = [encoding.starts[place] for place in places]
        for place, feature in zip(places, features, strict=True):
            if encoding.columns[place].kind != NUMBER:
                raise PerturbationError(
                    f"{group.place}: {encoding.columns[place].name} is a {encoding.columns[place].kind}; write "
                    "any = true or swap for it"
                )
            by_feature[feature] = Rule(group.place, math.inf, math.inf, 0.0, 1.0, cost=group.cost)
        groups.append(Group.one_hot(features))
    _warn_of_missing_ranges(rules, by_feature, dataset)
    ends = [_resolve(rule, dataset.X[:, feature]) for feature, rule in enumerate(by_feature)]
    down, up, minimum, maximum = (np.array(column, dtype=np.float64) for column in zip(*ends, strict=True))
    domains = FeatureDomains(
        frozenset(feature for feature, rule in enumerate(by_feature) if rule.is_whole),
        {feature: rule.values for feature, rule in enumerate(by_feature) if rule.values is not None},
    )
    relative = [tuple(_relative(getattr(rule, side)) for rule in by_feature) for side in ("down", "up")]
    relative_down, relative_up = (each if any(each) else None for each in relative)
    droppable = np.array([rule.may_be_dropped for rule in by_feature])
    costs = np.array([rule.cost for rule in by_feature])
    written = tuple(rule.place for rule in by_feature)
    return Attack(
        rules.source, down, up, minimum, maximum, domains, TableGroups(tuple(groups)), written, relative_down,
        relative_up, swaps, dataset.feature_names, droppable if droppable.any() else None, moves,
        costs if (costs != 1).any() else None,
    )  # fmt: skip


def _relative(radius: Radius) -> Fraction:
    """A radius as a fraction of the value, 0 for other radii."""
    return radius.fraction if isinstance(radius, Percentage) and radius.of == VALUE else Fraction(0)


def _values_of(column: Column) -> list[str]:
    return list(column.values if column.kind == CATEGORY else column.categories)


def _check_value(column: Column, rule: Rule, text: str, values: list[str]) -> None:
    if text not in values:
        near = difflib.get_close_matches(text, values, 1)
        hint = f"did you mean {near[0]}?" if near else f"its values are {list_some(values)}"
        raise PerturbationError(f"{rule.place}: {column.name} has no value {shorten(text)}; {hint}")


def _number_categories(column: Column, rule: Rule, is_default: bool) -> list[int]:
    """A number for each category or value of a boolean; those with equal numbers may become each other.

    A missing value stays missing.
    """
    values = _values_of(column)
    numbers = list(range(len(values)))
    is_only_dropped = rule.may_be_dropped and not rule.is_for_categories and rule.down == rule.up == 0
    if is_default or rule.is_immutable or (is_only_dropped and column.sets is not None):
        return numbers
    if not rule.is_for_categories:
        raise PerturbationError(
            f"{rule.place}: {column.name} is a {column.kind}; write any = true, swap = [[..]] or immutable = true"
        )
    if rule.is_free:
        return [0 if value != column.missing_name or not column.has_missing else 1 for value in values]
    for together in rule.swaps or ():
        for text in together:
            known = [value for value in values if not column.has_missing or value != column.missing_name]
            _check_value(column, rule, text, known)
            numbers[values.index(text)] = values.index(together[0])
    return [sorted(set(numbers)).index(number) for number in numbers]


def _resolve(rule: Rule, column: FloatArray) -> tuple[float, float, float, float]:
    """Radii and limits as numbers; limits of whole numbers are whole, so that boxes end on some."""
    down, up = (_resolve_radius(radius, rule, column) for radius in (rule.down, rule.up))
    minimum, maximum = rule.minimum, rule.maximum
    if rule.is_whole:
        minimum, maximum = float(np.ceil(minimum)), float(np.floor(maximum))
    return down, up, minimum, maximum


def _resolve_radius(radius: Radius, rule: Rule, column: FloatArray) -> float:
    if not isinstance(radius, Percentage):
        return radius
    if radius.of == VALUE:
        return 0.0
    return _distance(radius, rule.reference or _range_of(column), rule.is_whole)


def _range_of(column: FloatArray) -> tuple[float, float]:
    known = column[~np.isnan(column)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)


def _take_fraction(fraction: Fraction, value: float, is_whole: bool) -> float:
    """A fraction of the size of a value, as the nearest number, or the one below for whole numbers."""
    if math.isnan(value):
        return value
    exact = fraction * abs(Fraction(value))
    nearest = float(exact)
    return math.nextafter(nearest, 0.0) if is_whole and nearest > exact else nearest


def _distance(radius: Percentage, ends: tuple[float, float], is_whole: bool) -> float:
    """A fraction of the range between two ends."""
    exact = radius.fraction * (Fraction(ends[1]) - Fraction(ends[0]))
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    # A number that is rounded up could reach one whole number too many.
    return math.nextafter(nearest, 0.0) if is_whole and nearest > exact else nearest


def _warn_of_missing_ranges(rules: AttackRules, by_feature: Sequence[Rule], dataset: Dataset) -> None:
    """Warn that percentages of the range in the data differ between training and test rows."""
    missing = [
        feature
        for feature, rule in enumerate(by_feature)
        if rule.reference is None
        and any(isinstance(radius, Percentage) and radius.of == RANGE for radius in (rule.down, rule.up))
    ]
    if missing:
        first = missing[0]
        low, high = _range_of(dataset.X[:, first])
        names = list_some([dataset.feature_name(feature) for feature in missing])
        warnings.warn(
            f"{rules.source}: percentages refer to the range in {dataset.source} for {names}; to mean the same "
            f"with other rows, write the range, range = [{low!r}, {high!r}] for "
            f"{dataset.feature_name(first)}",
            MetasilvaeWarning,
            stacklevel=3,
        )


class ColumnFinder:
    """Finds the columns of a table by name, pattern or number; each has one rule."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.encoding = dataset.encoding or Encoding(tuple(map(Column, dataset.names.names)))
        self._names = [column.name for column in self.encoding.columns]
        self._has_names = dataset.feature_names is not None
        self._taken: dict[int, str] = {}
        self._named: dict[str, list[int]] = {}
        for place, name in enumerate(self._names if self._has_names else ()):
            self._named.setdefault(name, []).append(place)

    def assign(self, rules: AttackRules) -> list[Rule]:
        """The rule of each column: one by its name, else one by a pattern, else the default."""
        found = [rules.default] * len(self._names)
        by_pattern: dict[int, tuple[str, Rule]] = {}
        for key, rule in rules.columns.items():
            if key in self._dataset.omitted_names and key not in self._named:
                continue  # the model does not have the column, so that its values have no effect
            if key in self._named or not _is_pattern(key):
                found[self.find(key, rule.place)] = rule
                continue
            matched = [place for place, name in enumerate(self._names) if fnmatchcase(name, key)]
            if not matched:
                raise PerturbationError(
                    f"{rule.place}: no column of {self._dataset.source} matches {key}; its columns are {self._listed()}"
                )
            for place in matched:
                if place in by_pattern:
                    raise PerturbationError(
                        f"{rule.place}: {self._names[place]} matches {by_pattern[place][0]} and {key}; give it a rule "
                        "of its own"
                    )
                by_pattern[place] = key, rule
        for place, (_, rule) in by_pattern.items():
            if place not in self._taken:
                found[place] = rule
                self._taken[place] = rule.place
        return found

    def find(self, column: str, where: str) -> int:
        """The place of a column, which must not have a rule yet; `where` is the place of its rule."""
        place = self._look_up(column, where)
        if place in self._taken:
            raise PerturbationError(
                f"{where}: column {column} already has a rule ({self._taken[place]}); leave one of them out"
            )
        self._taken[place] = where
        return place

    def _look_up(self, column: str, where: str) -> int:
        dataset, names = self._dataset, self._names
        found = self._named.get(column, [])
        if len(found) > 1:
            raise PerturbationError(
                f"{where}: {dataset.source} has {len(found)} columns {column}; name one by its number, for instance "
                f"x[{found[0]}]"
            )
        if found:
            return found[0]
        numbered = _NUMBERED.fullmatch(column)
        if numbered is not None:
            number = int(numbered[1] or numbered[2])
            if number < len(names):
                return number
            hint = f"numbers go from 0 to {len(names) - 1}"
        else:
            near = difflib.get_close_matches(column, names, 1) if self._has_names else []
            hint = f"did you mean {near[0]}?" if near else f"its columns are {self._listed()}"
        raise PerturbationError(f"{where}: {dataset.source} has no column {column}; {hint}")

    def _listed(self) -> str:
        if not self._has_names:
            return f"not named; give numbers from 0 to {len(self._names) - 1}"
        return list_some(self._names)


def _is_pattern(key: str) -> bool:
    return ("*" in key or "?" in key) or ("[" in key and _NUMBERED.fullmatch(key) is None)
