"""Costs of changes: how far a row must move to pass a threshold, and exact distances.

Thresholds divide the values of a feature into cells; all values of a cell go the same way in every tree. The nearest
possible value of a cell is next to the threshold that bounds it, so each cell has one cost. Kernels get costs as
float64 numbers that do not exceed the exact ones; what is reported rests on exact fractions.

In the norms l1 and l0 the cost of a change is its part of the distance, in l2 its part of the squared distance. In the
maximum norm the cost of a cell is the smallest radius at which the box of the row reaches it, the float64 number of
metasilvae.verification.radius, or 0 where the box is given.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.verification import radius as kernel
from metasilvae.perturbations.boxes import NormLimit
from metasilvae.verification.query import VerificationQuery

FloatArray = NDArray[np.float64]
LARGEST = float(np.finfo(np.float64).max)
# Costs below this are taken as 0: next to it the rounding of a product is no longer a fraction of it.
_SMALLEST = 1e-280
# A cost is computed in at most four roundings.
_SAFE = 1.0 - 2.0**-50


def exact_power(norm: str, distance: Fraction) -> Fraction:
    """A distance as a cost."""
    return distance * distance if norm == "l2" else distance


def as_distance(norm: str, cost: Fraction) -> float:
    """The distance of a cost, as the nearest float64 number or the one next to it."""
    if norm != "l2":
        return _as_float(cost)
    # The root of a whole number with at least 128 bits, so that rounding is far beyond those of float64.
    half = max(128 - (cost.numerator.bit_length() - cost.denominator.bit_length()) // 2, 0)
    root = math.isqrt((cost.numerator << 2 * half) // cost.denominator)
    return _as_float(Fraction(root, 1 << half))


def largest_below(norm: str, cost: Fraction | float) -> float:
    """The largest epsilon below a cost, a whole number for l0: the certified radius of a row whose nearest adversarial
    example has this cost."""
    if cost == math.inf:
        return math.inf
    cost = Fraction(cost)
    if norm == "l0":
        return float(max(math.ceil(cost) - 1, 0))
    found = min(as_distance(norm, cost), LARGEST)
    while exact_power(norm, Fraction(found)) < cost and found < LARGEST:
        found = math.nextafter(found, math.inf)
    while exact_power(norm, Fraction(found)) >= cost and found > 0:
        found = math.nextafter(found, 0.0)
    return found


def _as_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def exact_cost(limit: NormLimit, groups: list[list[int]], sample: FloatArray, point: FloatArray) -> Fraction:
    """The cost of a point; values that are missing in both do not differ."""
    is_changed = (sample != point) & ~(np.isnan(sample) & np.isnan(point))
    changed = set(np.flatnonzero(is_changed).tolist())
    total = Fraction(0)
    for group in groups:
        if changed & set(group):
            cost = Fraction(float(limit.costs[group].max()))
            total += exact_power(limit.norm, cost)
            changed -= set(group)
    for f in sorted(changed):
        size = Fraction(1) if limit.norm == "l0" else abs(Fraction(float(point[f])) - Fraction(float(sample[f])))
        total += exact_power(limit.norm, Fraction(float(limit.costs[f])) * size)
    return total


class CellCosts:
    """Costs of the cells of one row at a time; each thread needs its own.

    Parameters
    ----------
    thresholds, starts : as in `metasilvae.verification.forest.ForestTables`
    has_fixed_boxes : bool
        In the maximum norm: whether the boxes are those of the query; otherwise their radii are what is searched.

    Attributes
    ----------
    costs : float64 array, shape (n_cells,)
        By cell; the cells of feature f begin at starts[f] + f. Infinite for cells that are not allowed.
    home : int32 array, shape (n_features,)
        The cell of the row, -1 for a missing value.
    is_free : uint8 array, shape (n_groups,)
        Whether a member of the group may be 1 that no threshold tells from 0.
    is_table : uint8 array, shape (n_groups,)
        Whether a group is not one-hot: its options have costs, those of its members only bound them.
    option_costs : float64 array, shape (n_options,)
        By option of the first group, then of the second one, and so on; infinite for options that are not allowed.
    zero_cells, one_cells : int32 arrays, shape (n_features,)
        The cells of the values 0 and 1.
    """

    def __init__(
        self, query: VerificationQuery, thresholds: FloatArray, starts: NDArray[np.int32], has_fixed_boxes: bool
    ) -> None:
        self._query, self._limit, self._has_fixed_boxes = query, query.boxes.limit, has_fixed_boxes
        n_features = query.dataset.n_features
        self._thresholds, self._starts = thresholds, starts
        self._features = np.repeat(np.arange(n_features, dtype=np.int32), np.diff(starts))
        self._right_starts = np.nextafter(thresholds, np.inf)
        for f in query.boxes.domains.features:
            own = slice(starts[f], starts[f + 1])
            self._right_starts[own] = query.boxes.domains.above(f, thresholds[own])
        self._cell_starts = (starts[:-1] + np.arange(n_features)).astype(np.int32)
        n_cells = len(thresholds) + n_features
        self.costs, self._values = np.zeros(n_cells), np.zeros(n_cells)
        self.home = np.zeros(n_features, dtype=np.int32)
        self._groups, self._features_of_groups = query.groups.lists, query.groups.feature_lists
        self.is_free = np.zeros(len(self._groups), dtype=np.uint8)
        self.is_table = np.array([not group.is_one_hot for group in query.groups.groups], dtype=np.uint8)
        self._option_starts = np.cumsum([0, *(len(group.table) for group in query.groups.groups)])
        self.option_costs = np.zeros(self._option_starts[-1])
        self.zero_cells, self.one_cells = (self._count_below(np.full(n_features, value)) for value in (0.0, 1.0))
        # For each group the members that may be 1 and that no threshold tells from 0, the nearest one first.
        self._unseen: list[list[int]] = [[] for _ in self._groups]
        self._row = -1
        self._member_radii: FloatArray = np.zeros(n_features)

    @property
    def norm(self) -> str:
        return "linf" if self._limit is None else self._limit.norm

    def _count_below(self, point: FloatArray) -> NDArray[np.int32]:
        """The cell of each value: the number of thresholds of its feature below it."""
        is_below = self._thresholds < point[self._features]
        counts = np.zeros(len(self._thresholds) + 1, dtype=np.int32)
        np.cumsum(is_below, out=counts[1:])
        return counts[self._starts[1:]] - counts[self._starts[:-1]]

    def set_row(self, row: int) -> None:
        """Compute the costs of one row."""
        self._row, query = row, self._query
        sample, features = query.dataset.X[row], self._features
        lower, upper = query.boxes.bounds(row)
        lower, upper = np.maximum(lower, -LARGEST), np.minimum(upper, LARGEST)
        of_row = sample[features]
        goes_right = of_row <= self._thresholds
        values = np.where(goes_right, self._right_starts, self._thresholds)
        cells = np.arange(len(values)) + features + goes_right
        if self._limit is None and not self._has_fixed_boxes:
            costs = np.empty(len(values))
            kernel.fill_critical_radii(self._thresholds, features, query.dataset.X, *query.boxes.scale, row, costs)
            self._set_member_radii(row)
        else:
            is_allowed = (lower[features] <= values) & (values <= upper[features])
            with np.errstate(over="ignore", invalid="ignore"):
                sizes = np.abs(values - of_row)
            costs = np.where(is_allowed, self._bound_costs(sizes, features), np.inf)
        self.costs[:], self._values[:] = 0.0, 0.0
        self._values[self._cell_starts + self._starts_of_home(sample)] = sample
        self.costs[cells], self._values[cells] = costs, values
        for number, group in enumerate(self._groups):
            if self.is_table[number]:
                self._set_table(number, lower, upper)
            else:
                self._set_group(number, group, sample, lower, upper)

    def _starts_of_home(self, sample: FloatArray) -> NDArray[np.int32]:
        cells = self._count_below(sample)
        self.home[:] = np.where(np.isnan(sample), -1, cells)
        return np.where(np.isnan(sample), 0, cells).astype(np.int32)

    def _bound_costs(self, sizes: FloatArray, features: NDArray[np.int32]) -> FloatArray:
        """Costs of changes of these sizes that do not exceed the exact ones."""
        limit = self._limit
        if limit is None:
            return np.zeros(len(sizes))
        if limit.norm == "l0":
            return limit.costs[features]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            costs = np.minimum(sizes, LARGEST) * limit.costs[features]
            if limit.norm == "l2":
                costs = np.minimum(costs, LARGEST)
                costs *= costs
        return np.where(costs < _SMALLEST, 0.0, np.minimum(costs, LARGEST) * _SAFE)

    def _set_member_radii(self, row: int) -> None:
        members = self._query.groups.members
        radii = np.empty(len(members))
        kernel.fill_member_radii(members, self._query.dataset.X, *self._query.boxes.scale[:4], row, radii)
        self._member_radii[members] = radii

    def _set_group(
        self, number: int, group: list[int], sample: FloatArray, lower: FloatArray, upper: FloatArray
    ) -> None:
        """Costs of the members of a group: those of becoming 0 and of becoming 1 add up to that of the change."""
        active = next(f for f in group if sample[f] == 1.0)
        is_seen = {f: bool(self.zero_cells[f] < self.one_cells[f]) for f in group}
        self.is_free[number] = False
        free: list[int] = []
        for f in group:
            first = self._cell_starts[f]
            self.costs[first : first + self._starts[f + 1] - self._starts[f] + 1] = np.inf
            zero = first + self.zero_cells[f]
            self.home[f] = self.zero_cells[f] + (is_seen[f] and f == active)
            costs = self._member_costs(f, group, active, is_seen[active], lower, upper)
            if is_seen[f]:
                self.costs[zero : zero + 2] = costs
                self._values[zero : zero + 2] = 0.0, 1.0
            else:
                self.costs[zero] = 0.0
                self._values[zero] = sample[f]
                if costs[1] < np.inf:
                    free.append(f)
        self.is_free[number] = bool(free)
        self._unseen[number] = sorted(free, key=lambda f: (f != active, self._member_radii[f], f))

    def _member_costs(
        self, f: int, group: list[int], active: int, is_active_seen: bool, lower: FloatArray, upper: FloatArray
    ) -> tuple[float, float]:
        """Costs of the values 0 and 1 of a member."""
        if self._limit is None and not self._has_fixed_boxes:
            other = float(self._member_radii[f])
            return (other, 0.0) if f == active else (0.0, other)
        cost = 0.0
        if self._limit is not None:
            dearest = group[int(self._limit.costs[group].argmax())]
            cost = float(self._bound_costs(np.ones(1), np.array([dearest], dtype=np.int32))[0])
            if is_active_seen:
                # Half for the member that is 1 no more, half for the one that becomes 1.
                cost /= 2
        can_be = [lower[f] <= value <= upper[f] for value in (0.0, 1.0)]
        # Another member can be 1 only if the active one can be 0.
        can_be[1] &= f == active or lower[active] <= 0.0
        costs = (cost, 0.0) if f == active else (0.0, cost)
        zero, one = (each if allowed else np.inf for each, allowed in zip(costs, can_be, strict=True))
        return zero, one

    def _set_table(self, number: int, lower: FloatArray, upper: FloatArray) -> None:
        """Costs of the options of a group, all the same but for the present one, and of its members."""
        group, row = self._query.groups.groups[number], self._row
        members = np.array(group.members, dtype=np.int32)
        home = int(group.find_options(self._query.dataset.X[row : row + 1])[0])
        is_open = self._query.boxes.admits(row, number, lower, upper)
        cost = 0.0
        if self._limit is not None:
            features = np.array(group.features, dtype=np.int32)
            cost = float(self._bound_costs(np.ones(len(features)), features).max())
        elif not self._has_fixed_boxes:
            cost = float(self._member_radii[members].max(initial=0.0))
        costs = np.where(is_open, cost, np.inf)
        costs[home] = 0.0
        self.option_costs[self._option_starts[number] : self._option_starts[number + 1]] = costs
        table = group.table[np.isfinite(costs)]
        is_seen = self.zero_cells[members] < self.one_cells[members]
        # Members that an option changes share its cost; in the maximum norm each of them has it.
        n_changed = int((table != group.table[home])[:, is_seen].sum(axis=1).max(initial=1))
        part = cost if self._limit is None else cost / max(n_changed, 1) * _SAFE
        for place, f in enumerate(group.members):
            first = self._cell_starts[f]
            self.costs[first : first + self._starts[f + 1] - self._starts[f] + 1] = np.inf
            zero, value = first + self.zero_cells[f], int(group.table[home, place])
            self.home[f] = self.zero_cells[f] + (is_seen[place] and value)
            self.costs[zero], self._values[zero] = 0.0, float(value)
            if is_seen[place]:
                both = [part if (table[:, place] == bit).any() else np.inf for bit in (False, True)]
                both[value] = 0.0
                self.costs[zero : zero + 2] = both
                self._values[zero : zero + 2] = 0.0, 1.0

    def _find_option(self, number: int, cells: NDArray[np.int32]) -> int:
        """The cheapest option of a table group in the given cells, of several the first one."""
        group = self._query.groups.groups[number]
        seen = [place for place, f in enumerate(group.members) if self.zero_cells[f] < self.one_cells[f]]
        members = np.array(group.members, dtype=np.int32)[seen]
        fits = (group.table[:, seen] == (cells[members] > self.zero_cells[members])).all(axis=1)
        costs = self.option_costs[self._option_starts[number] : self._option_starts[number + 1]]
        return int(np.argmin(np.where(fits, costs, np.inf)))

    @property
    def cost_range(self) -> tuple[float, float]:
        """The smallest cost of a change, infinite if none is allowed, and a number that no cost exceeds."""
        costs = np.where(np.isinf(self.costs), 0.0, self.costs)
        by_feature = np.maximum.reduceat(costs, self._cell_starts)
        with np.errstate(over="ignore"):
            largest = by_feature.max() if self._limit is None else 1.5 * by_feature.sum()
        return float(costs[costs > 0].min(initial=math.inf)), float(largest)

    def point(self, cells: NDArray[np.int32]) -> FloatArray:
        """The nearest possible point in the given cells."""
        sample = self._query.dataset.X[self._row]
        # Missing values and features without thresholds stay.
        is_kept = np.isnan(sample) | (np.diff(self._starts) == 0)
        point: FloatArray = np.where(is_kept, sample, self._values[self._cell_starts + np.maximum(cells, 0)])
        for number, group in enumerate(self._groups):
            if self.is_table[number]:
                option, table = self._find_option(number, cells), self._query.groups.groups[number]
                point[group] = table.table[option]
                point[table.code] = option
                continue
            seen = [f for f in group if self.zero_cells[f] < self.one_cells[f]]
            ones = [f for f in seen if cells[f] > self.zero_cells[f]] or self._unseen[number][:1]
            point[group] = 0.0
            point[ones] = 1.0
        return point

    def exact(self, cells: NDArray[np.int32]) -> Fraction:
        """The exact cost of the nearest possible point in the given cells."""
        sample = self._query.dataset.X[self._row]
        point = self.point(cells)
        if self._limit is not None:
            return exact_cost(self._limit, self._features_of_groups, sample, point)
        if self._has_fixed_boxes:
            return Fraction(0)
        is_moved = (point != sample) & ~np.isnan(sample)
        costs = self.costs[self._cell_starts + np.maximum(cells, 0)]
        members = self._query.groups.members
        costs[members] = self._member_radii[members]
        return Fraction(float(costs[is_moved].max(initial=0.0)))
