"""An attack (threat model): allowed changes per column, fitted to the columns of a data set.

One attack serves training, verification and evaluation: percentages are turned into distances once, with the data that
the attack is fitted to, and these distances apply to every other data set.
"""

from __future__ import annotations

import difflib
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, PerturbationError, list_some, shorten
from metasilvae.perturbations.attack_files import AttackRules, Group, Percentage, Rule, read_attack
from metasilvae.perturbations.boxes import Boxes, OneHotGroups
from metasilvae.perturbations.domains import FeatureDomains

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
    groups : OneHotGroups
        Any member of a group may become the one that is 1.
    places : tuple of str
        Where the rule of each column is written, for messages.
    feature_names : tuple of str or None
        Names of the columns; data with names are matched to them.
    droppable : bool array, shape (n_features,), or None
        Columns whose values may become missing; None if there are none.
    """

    source: str
    radius_down: FloatArray
    radius_up: FloatArray
    minimum: FloatArray
    maximum: FloatArray
    domains: FeatureDomains
    groups: OneHotGroups
    places: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    droppable: NDArray[np.bool_] | None = None

    @property
    def n_features(self) -> int:
        return len(self.radius_down)

    @property
    def is_idle(self) -> bool:
        """Whether no value can change."""
        return not self.reach.any() and self.droppable is None

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
        droppable = None
        if self.droppable is not None:
            droppable = np.broadcast_to(self.droppable.astype(np.uint8), dataset.X.shape)
        return Boxes(dataset.X, dataset.X, *radii_and_limits, self.groups, self.domains, droppable)

    def for_features(self, features: NDArray[np.int32]) -> Attack:
        """Members of an incomplete group become free columns, each 0 or 1; the omitted ones can compensate for them."""
        new = {old: position for position, old in enumerate(features.tolist())}
        return Attack(
            self.source,
            self.radius_down[features],
            self.radius_up[features],
            self.minimum[features],
            self.maximum[features],
            self.domains.renumber(new),
            OneHotGroups.of_lists([[new[f] for f in group] for group in self.groups.lists if new.keys() >= set(group)]),
            tuple(self.places[old] for old in new),
            None if self.feature_names is None else tuple(self.feature_names[old] for old in new),
            self.droppable[features] if self.droppable is not None and self.droppable[features].any() else None,
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
        for group in self.groups.lists:
            members = X[:, group]
            bad = ((members != 0) & (members != 1)).any(axis=1) | (members.sum(axis=1) != 1)
            if bad.any():
                row = int(np.argmax(bad))
                names = ", ".join(dataset.feature_name(f) for f in group)
                raise PerturbationError(
                    f"{dataset.source}: row {dataset.number_of(row)}: of {names} not exactly one is 1 and the others 0 "
                    f"({self.places[group[0]]}); correct the row or the group"
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


def fit_attack(rules: AttackRules, dataset: Dataset) -> Attack:
    """Apply rules to the columns of a data set.

    Percentages refer to the range that a rule names, or else to the range of the column in this data set.
    """
    n = dataset.n_features
    by_feature: list[Rule] = [rules.default] * n
    columns = _Columns(dataset)
    for column, rule in rules.columns.items():
        if column in dataset.omitted_names:
            continue  # the model does not have the column, so that its values have no effect
        feature = columns.find(column, rule.place)
        by_feature[feature] = rule
    members = _find_groups(rules.groups, columns)
    for group, features in zip(rules.groups, members, strict=True):
        for feature in features:
            by_feature[feature] = Rule(group.place, math.inf, math.inf, 0.0, 1.0)
    _warn_of_missing_ranges(rules, by_feature, dataset)
    ends = [_resolve(rule, dataset.X[:, feature]) for feature, rule in enumerate(by_feature)]
    down, up, minimum, maximum = (np.array(column, dtype=np.float64) for column in zip(*ends, strict=True))
    domains = FeatureDomains(
        frozenset(feature for feature, rule in enumerate(by_feature) if rule.is_whole),
        {feature: rule.values for feature, rule in enumerate(by_feature) if rule.values is not None},
    )
    groups = OneHotGroups.of_lists(members)
    droppable = np.array([rule.may_be_dropped for rule in by_feature])
    places = tuple(rule.place for rule in by_feature)
    dropping = droppable if droppable.any() else None
    return Attack(rules.source, down, up, minimum, maximum, domains, groups, places, dataset.feature_names, dropping)


def _range_of(column: FloatArray) -> tuple[float, float]:
    """The range of the values of a column, without missing ones."""
    values = column[~np.isnan(column)]
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)


def _resolve(rule: Rule, column: FloatArray) -> tuple[float, float, float, float]:
    """Radii and limits as numbers; limits of whole numbers are whole, so that boxes end on some."""
    down, up = (
        _distance(radius, rule.reference or _range_of(column), rule.is_whole)
        if isinstance(radius, Percentage)
        else radius
        for radius in (rule.down, rule.up)
    )
    minimum, maximum = rule.minimum, rule.maximum
    if rule.is_whole:
        minimum, maximum = float(np.ceil(minimum)), float(np.floor(maximum))
    return down, up, minimum, maximum


def _distance(radius: Percentage, ends: tuple[float, float], is_whole: bool) -> float:
    """A fraction of the range between two ends."""
    exact = radius.fraction * (Fraction(ends[1]) - Fraction(ends[0]))
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    # A number that is rounded up could reach one whole number too many.
    return math.nextafter(nearest, 0.0) if is_whole and nearest > exact else nearest


def _find_groups(groups: Sequence[Group], columns: _Columns) -> list[list[int]]:
    return [[columns.find(column, group.place) for column in group.columns] for group in groups]


def _warn_of_missing_ranges(rules: AttackRules, by_feature: Sequence[Rule], dataset: Dataset) -> None:
    """Warn that percentages of the range in the data differ between training and test rows."""
    missing = [
        feature
        for feature, rule in enumerate(by_feature)
        if rule.reference is None and any(isinstance(radius, Percentage) for radius in (rule.down, rule.up))
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


class _Columns:
    """Finds columns by name or number, each once."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._taken: dict[int, str] = {}
        self._named: dict[str, list[int]] = {}
        for feature, name in enumerate(dataset.feature_names or ()):
            self._named.setdefault(name, []).append(feature)

    def find(self, column: str, place: str) -> int:
        feature = self._look_up(column, place)
        if feature in self._taken:
            raise PerturbationError(
                f"{place}: column {column} already has a rule ({self._taken[feature]}); leave one of them out"
            )
        self._taken[feature] = place
        return feature

    def _look_up(self, column: str, place: str) -> int:
        dataset = self._dataset
        names = dataset.feature_names or ()
        found = self._named.get(column, [])
        if len(found) > 1:
            raise PerturbationError(
                f"{place}: {dataset.source} has {len(found)} columns {column}; name one by its number, for instance "
                f"x[{found[0]}]"
            )
        if found:
            return found[0]
        numbered = _NUMBERED.fullmatch(column)
        if numbered is not None:
            number = int(numbered[1] or numbered[2])
            if number < dataset.n_features:
                return number
            hint = f"numbers go from 0 to {dataset.n_features - 1}"
        else:
            near = difflib.get_close_matches(column, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"its columns are {self._listed(names)}"
        raise PerturbationError(f"{place}: {dataset.source} has no column {column}; {hint}")

    def _listed(self, names: Sequence[str]) -> str:
        if not names:
            return f"not named; give numbers from 0 to {self._dataset.n_features - 1}"
        return list_some(names)
