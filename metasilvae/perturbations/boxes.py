"""Perturbations: the box in which an attacker may move each sample, and the values that its features can take.

Every perturbation gives `Boxes`: centres, radii and limits for each feature, the form that kernels take. In the usual
case, a ball around each sample, it needs no memory of its own. Features of table groups take joint values only, and
some features take whole numbers or listed values only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.parsing.number_text import parse_number
from metasilvae._core.verification import reach
from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError, at_line, shorten
from metasilvae.io.fingerprints import fingerprint
from metasilvae.io.memory import LINE_EXPANSION
from metasilvae.io.storage import display_name, read_source
from metasilvae.perturbations.domains import FeatureDomains
from metasilvae.perturbations.groups import TableGroups

FloatArray = NDArray[np.float64]
# Centers, radii and limits, each below and above.
BoxArrays = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
_INTERVAL = re.compile(rb"\[\s*([^\[\];\s]+)\s*;\s*([^\[\];\s]+)\s*\]")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity)", re.IGNORECASE)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_EXPECTED = "an interval such as [0.1;0.3] was expected"
UNEQUAL_RADII = "training needs a perturbation with the same radii for all samples, such as l_inf"


@dataclass(frozen=True)
class NormLimit:
    """A limit of the total change: the part of each box within epsilon of its sample (metasilvae.perturbations.norms).

    Attributes
    ----------
    norm : str
        ``l0``, ``l1`` or ``l2``.
    epsilon : float
        The largest distance, possibly infinite.
    costs : float64 array, shape (n_features,)
        By how much the change of each feature is multiplied. A one-hot group counts as one feature that changes by 1,
        with the largest cost of its members.
    """

    norm: str
    epsilon: float
    costs: FloatArray


@dataclass(frozen=True)
class Boxes:
    """One box for each sample: low_center - radius_down to high_center + radius_up, cut to minimum and maximum.

    Attributes
    ----------
    low_center, high_center : float64 arrays, C-contiguous, shape (n_samples, n_features)
    radius_down, radius_up, minimum, maximum : float64 arrays, shape (n_features,)
        Radii of features that take whole numbers are rounded down where they are used.
    groups : TableGroups
    domains : FeatureDomains
        Possible values of features. Each box ends on possible values and contains at least one.
    droppable : uint8 array, shape (n_samples, n_features), or None
        Whether each value may become missing; None if none may. A missing value, NaN as a center, stays missing.
    allowed : uint64 array, shape (n_samples, n_groups, n_words), or None
        The options of each group that each sample allows inside its box, as bits of words; None for all options.
    costs : float64 array, shape (n_features,), or None
        Costs of changes as a perturbation gives them, for a limit of the total change; None means 1.
    limit : NormLimit or None
        What the total change may be; None allows the whole box. Kernels that know boxes only must not see such boxes.
    """

    low_center: FloatArray
    high_center: FloatArray
    radius_down: FloatArray
    radius_up: FloatArray
    minimum: FloatArray
    maximum: FloatArray
    groups: TableGroups = field(default_factory=TableGroups)
    domains: FeatureDomains = field(default_factory=FeatureDomains)
    droppable: NDArray[np.uint8] | None = None
    allowed: NDArray[np.uint64] | None = None
    costs: FloatArray | None = None
    limit: NormLimit | None = None

    @property
    def options(self) -> NDArray[np.uint64]:
        """Which options samples allow, in the form that kernels take: no rows if all are allowed."""
        return np.zeros((0, 0, 0), dtype=np.uint64) if self.allowed is None else self.allowed

    def admits(self, row: int, number: int, lower: FloatArray, upper: FloatArray) -> NDArray[np.bool_]:
        """Which options of a group lie between bounds and are allowed for a sample."""
        group = self.groups.groups[number]
        members = list(group.members)
        found = ((lower[members] <= group.table) & (group.table <= upper[members])).all(axis=1)
        options = np.arange(len(group.table))
        if group.code >= 0:
            found &= (lower[group.code] <= options) & (options <= upper[group.code])
        if self.allowed is not None:
            words = self.allowed[row, number][options // 64]
            found &= (words >> (options % 64).astype(np.uint64)) & np.uint64(1) == 1
        return np.asarray(found)

    @property
    def dropping(self) -> NDArray[np.uint8]:
        """Which values may become missing, in the form that kernels take: no rows if none may."""
        return np.zeros((0, len(self.minimum)), dtype=np.uint8) if self.droppable is None else self.droppable

    @property
    def has_endless_radii(self) -> bool:
        """Whether some value can change by any amount, however small the multiple of the radii is."""
        return self.limit is None and bool(np.isinf([self.radius_down, self.radius_up]).any())

    @property
    def arrays(self) -> BoxArrays:
        """The six arrays in the order in which kernels take them."""
        return (
            self.low_center,
            self.high_center,
            self._usable(self.radius_down),
            self._usable(self.radius_up),
            self.minimum,
            self.maximum,
        )

    @property
    def scale(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, NDArray[np.uint8]]:
        """The arrays that define a multiple of the radii, in the order in which kernels take them."""
        is_whole = np.zeros(len(self.radius_down), dtype=np.uint8)
        is_whole[sorted(self.domains.whole)] = 1
        return self.radius_down, self.radius_up, self.minimum, self.maximum, is_whole

    def _usable(self, radius: FloatArray) -> FloatArray:
        if not self.domains.whole:
            return radius
        radius, whole = radius.copy(), sorted(self.domains.whole)
        radius[whole] = np.floor(radius[whole])
        return radius

    def fingerprint(self, dataset: Dataset) -> str:
        """A digest of the boxes of a data set's samples and of what multiples of their radii would be."""
        centers = () if self.low_center is dataset.X else (self.low_center, self.high_center)
        dropping = () if self.droppable is None else (np.ascontiguousarray(self.droppable),)
        allowed = () if self.allowed is None else (self.allowed,)
        limit = () if self.limit is None else (self.limit.costs, (self.limit.norm, repr(self.limit.epsilon)))
        return fingerprint(*self.scale, *centers, *self.groups.parts, *self.domains.parts, *dropping, *allowed, *limit)

    def bounds(self, row: int) -> tuple[FloatArray, FloatArray]:
        """Lower and upper corner of one box."""
        low_center, high_center, down, up, minimum, maximum = self.arrays
        with np.errstate(over="ignore"):
            return np.maximum(low_center[row] - down, minimum), np.minimum(high_center[row] + up, maximum)

    @property
    def all_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper corners of all boxes, shape (n_samples, n_features)."""
        low_center, high_center, down, up, minimum, maximum = self.arrays
        with np.errstate(over="ignore"):
            return np.maximum(low_center - down, minimum), np.minimum(high_center + up, maximum)

    def bounds_times(self, row: int, factor: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper corner of one box with all radii multiplied."""
        return self.with_radii_times(np.full(len(self.minimum), factor)).bounds(row)

    def with_bounds(self, lower: FloatArray, upper: FloatArray, droppable: NDArray[np.uint8] | None = None) -> Boxes:
        """The same kind of boxes with absolute bounds, one pair for each sample."""
        zero, infinite = np.zeros(len(self.minimum)), np.full(len(self.minimum), np.inf)
        return Boxes(
            lower, upper, zero, zero, -infinite, infinite, self.groups, self.domains, droppable, self.allowed,
            limit=self.limit,
        )  # fmt: skip

    def with_radii_times(self, factors: FloatArray) -> Boxes:
        """The same boxes with the radius of each feature multiplied; 0 times infinity is 0, and drops no value."""

        def multiply(radius: FloatArray) -> FloatArray:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.where(factors == 0, 0.0, factors * radius)

        droppable = self.droppable
        if droppable is not None and (factors == 0).any():
            droppable = droppable & (factors != 0)
        return replace(
            self,
            radius_down=multiply(self.radius_down),
            radius_up=multiply(self.radius_up),
            droppable=None if droppable is None else droppable.view(np.uint8),
        )

    def subset(self, rows: NDArray[np.intp]) -> Boxes:
        """The boxes of the given samples."""
        low = np.ascontiguousarray(self.low_center[rows])
        is_one = self.high_center is self.low_center
        return replace(
            self,
            low_center=low,
            high_center=low if is_one else np.ascontiguousarray(self.high_center[rows]),
            droppable=None if self.droppable is None else self.droppable[rows],
            allowed=None if self.allowed is None else self.allowed[rows],
        )


class Perturbation(Protocol):
    """A rule that gives each sample its box."""

    def boxes(self, dataset: Dataset) -> Boxes:
        """Boxes for all samples, none of them empty."""
        ...

    def for_features(self, features: NDArray[np.int32]) -> Perturbation:
        """The same rule for samples that consist of the given features only, in this order."""
        ...

    def describe(self) -> str:
        """The rule in the syntax of the command line."""
        ...


@runtime_checkable
class Multipliable(Protocol):
    """A perturbation whose radii may depend on the sample, and that can be multiplied nevertheless."""

    def times(self, factor: float) -> Perturbation:
        """The same rule with all radii multiplied."""
        ...


def _refuse_empty(boxes: Boxes, dataset: Dataset, which: str) -> None:
    """Refuse limits that leave some sample without a possible value; `which` names the values."""
    empty = reach.find_empty_box(*boxes.arrays)
    if empty is not None:
        row, feature = empty
        raise PerturbationError(
            f"{dataset.source}: row {row}, {dataset.feature_name(feature)} = {dataset.X[row, feature]:g}: no value "
            f"{which} lies in [{boxes.minimum[feature]:g}, {boxes.maximum[feature]:g}]; widen the range"
        )


@dataclass(frozen=True)
class Ball:
    """x[f] +- epsilon in every feature that is a number, clipped to [minimum, maximum]; categories stay."""

    epsilon: float
    minimum: float = -np.inf
    maximum: float = np.inf

    def __post_init__(self) -> None:
        if not (0 <= self.epsilon < np.inf):
            hint = "; an --attack file with radius = inf lets columns take any value" if self.epsilon == np.inf else ""
            raise RequestError(f"epsilon is {self.epsilon:g}; it must be finite and not negative{hint}")
        if not self.minimum <= self.maximum:
            raise RequestError(
                f"the range to cut to, [{self.minimum:g}, {self.maximum:g}], is empty; give the smaller bound first"
            )

    @property
    def is_cut(self) -> bool:
        return self.minimum > -np.inf or self.maximum < np.inf

    def boxes(self, dataset: Dataset) -> Boxes:
        def each(value: float, of_indicators: float) -> FloatArray:
            if dataset.indicators is None:
                return np.full(dataset.n_features, value, dtype=np.float64)
            return np.where(dataset.indicators, of_indicators, value)

        radius = each(self.epsilon, 0.0)
        limits = each(self.minimum, -np.inf), each(self.maximum, np.inf)
        boxes = Boxes(dataset.X, dataset.X, radius, radius, *limits)
        if self.is_cut:
            _refuse_empty(boxes, dataset, f"within {self.epsilon:g} of it")
        return boxes

    def for_features(self, features: NDArray[np.int32]) -> Ball:
        return self

    def describe(self) -> str:
        if self.is_cut:
            return f"l_inf-clip-all {self.epsilon:g} {self.minimum:g} {self.maximum:g}"
        return f"l_inf {self.epsilon:g}"


@dataclass(frozen=True)
class Enlarged:
    """The same perturbation with all radii multiplied and the same limits."""

    perturbation: Perturbation
    factor: float

    def boxes(self, dataset: Dataset) -> Boxes:
        if isinstance(self.perturbation, Multipliable):
            return self.perturbation.times(self.factor).boxes(dataset)
        boxes = self.perturbation.boxes(dataset)
        if boxes.low_center is not boxes.high_center:
            raise RequestError(UNEQUAL_RADII)
        return boxes.with_radii_times(np.full(dataset.n_features, self.factor))

    def for_features(self, features: NDArray[np.int32]) -> Enlarged:
        return Enlarged(self.perturbation.for_features(features), self.factor)

    def describe(self) -> str:
        return f"{self.perturbation.describe()}, radius times {self.factor:g}"


@dataclass(frozen=True)
class Weighted:
    """The same perturbation with the radius of each feature multiplied by its weight; 0 keeps a feature fixed.

    Under a limit of the total change a feature with weight w may change w times as far, which divides its cost by w.
    """

    perturbation: Perturbation
    weights: tuple[float, ...]
    source: str = "<memory>"

    def __post_init__(self) -> None:
        for feature, weight in enumerate(self.weights):
            if not 0 <= weight < np.inf:
                raise PerturbationError(
                    f"{self.source}: the weight of feature {feature} is {weight:g}; it must not be negative"
                )

    def boxes(self, dataset: Dataset) -> Boxes:
        boxes = self.perturbation.boxes(dataset)
        if len(self.weights) != dataset.n_features:
            raise PerturbationError(
                f"{self.source}: has {len(self.weights)} weights, {dataset.source} has {dataset.n_features} features; "
                "give one weight for each feature"
            )
        weights = np.array(self.weights, dtype=np.float64)
        boxes = boxes.with_radii_times(weights)
        if boxes.limit is not None:
            boxes = replace(boxes, limit=replace(boxes.limit, costs=self._divide(boxes.limit, weights, dataset)))
        _refuse_empty(boxes, dataset, f"that {self.describe()} allows")
        return boxes

    def _divide(self, limit: NormLimit, weights: FloatArray, dataset: Dataset) -> FloatArray:
        """The costs of a limit, as float64 numbers; those of fixed features do not matter."""
        with np.errstate(over="ignore", divide="ignore"):
            costs = np.where(weights > 0, limit.costs / weights, limit.costs)
        is_bad = ~np.isfinite(costs) | (costs <= 0)
        if limit.norm == "l0":
            is_bad |= costs != np.floor(costs)
        if is_bad.any():
            feature = int(np.argmax(is_bad))
            wanted = "in the norm l0 it is a whole number" if limit.norm == "l0" else "it must be finite and above 0"
            raise PerturbationError(
                f"{self.source}: the weight of {dataset.feature_name(feature)} is {weights[feature]:g}, so that its "
                f"change costs {costs[feature]:g}; {wanted}"
            )
        return costs

    def for_features(self, features: NDArray[np.int32]) -> Weighted:
        chosen = tuple(self.weights[feature] for feature in features)
        return Weighted(self.perturbation.for_features(features), chosen, self.source)

    def describe(self) -> str:
        return f"{self.perturbation.describe()} --feature-weights {self.source}"


@dataclass(frozen=True)
class BoxFile:
    """One absolute box for each sample, read from a file: ``[lower;upper]`` for each feature of the data file.

    The boxes have the columns of the data file as they stand there, even if the model has another order.
    """

    path: str

    def boxes(self, dataset: Dataset) -> Boxes:
        place = dataset.feature_of_column
        n_columns = dataset.n_features if place is None else len(place)
        lower, upper = read_boxes(self.path, dataset.n_samples, n_columns)
        if place is not None:
            column_of_feature = np.empty(dataset.n_features, dtype=np.intp)
            column_of_feature[place[place >= 0]] = np.flatnonzero(place >= 0)
            lower, upper = (np.ascontiguousarray(bound[:, column_of_feature]) for bound in (lower, upper))
        zero, infinite = np.zeros(dataset.n_features), np.full(dataset.n_features, np.inf)
        return Boxes(lower, upper, zero, zero, -infinite, infinite)

    def for_features(self, features: NDArray[np.int32]) -> Perturbation:
        raise RequestError(UNEQUAL_RADII)

    def describe(self) -> str:
        return f"from-file {self.path}"


def read_boxes(source: str, n_samples: int, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read one box for each sample; bounds may be infinite.

    Returns
    -------
    lower, upper : float64 arrays, shape (n_samples, n_features)
    """
    name = display_name(source)
    text = read_source(source, 2)
    wanted = n_samples * n_features
    bounds = np.empty((wanted, 2))
    n_found = 0
    position = 0
    for match in _INTERVAL.finditer(text):
        if text[position : match.start()].strip():
            raise _parse_error(name, text, position)
        if n_found < wanted:
            bounds[n_found] = [_parse_interval_end(name, n_found, word) for word in match.groups()]
        n_found += 1
        position = match.end()
    if text[position:].strip():
        raise _parse_error(name, text, position)
    if n_found != wanted:
        raise PerturbationError(
            f"{name}: holds {n_found} intervals, {wanted} were expected ({n_samples} samples of {n_features} "
            "features); write one interval for each feature of each sample"
        )
    boxes = bounds.reshape(n_samples, n_features, 2)
    lower, upper = np.ascontiguousarray(boxes[:, :, 0]), np.ascontiguousarray(boxes[:, :, 1])
    empty = np.argwhere(~(lower <= upper) | (lower == np.inf) | (upper == -np.inf))
    if len(empty):
        row, feature = empty[0]
        raise PerturbationError(
            f"{name}: sample {row}, feature {feature}: [{lower[row, feature]:g};{upper[row, feature]:g}] is empty; "
            "the lower bound comes first"
        )
    return lower, upper


def _parse_interval_end(name: str, number: int, word: bytes) -> float:
    if not _NUMBER.fullmatch(word):
        found = shorten(word.decode(errors="replace"))
        raise PerturbationError(f"{name}: interval {number + 1}: {found} is not a number; {_EXPECTED}")
    return float(word)


def _parse_error(name: str, text: bytes, position: int) -> PerturbationError:
    rest = text[position:]
    start = position + len(rest) - len(rest.lstrip())
    line = text.count(b"\n", 0, start) + 1
    found = text[start:].split(None, 1)[0].decode(errors="replace")
    return PerturbationError(at_line(name, line, f"found {shorten(found)}; {_EXPECTED}"))


# Keyword of the command line: the arguments that follow it.
PERTURBATIONS: dict[str, tuple[str, ...]] = {
    "l_inf": ("E",),
    "l_inf-clip-all": ("E", "MIN", "MAX"),
    "from-file": ("PATH",),
}
PERTURBATION_ALIASES = {"from_file": "from-file"}


def parse_perturbation(phrase: Sequence[str]) -> Perturbation:
    """The perturbation of a phrase such as ``("l_inf", "0.1")``."""
    keyword, *words = phrase
    if keyword == "from-file":
        return BoxFile(words[0])
    numbers = [_parse_bound(word) for word in words]
    if None in numbers:
        raise RequestError(
            f"perturbation '{' '.join(phrase)}': {words[numbers.index(None)]!r} is not a number; write "
            f"'{' '.join((keyword, *PERTURBATIONS[keyword]))}' with numbers"
        )
    return Ball(*(number + 0.0 for number in numbers if number is not None))  # -0 is 0


def _parse_bound(word: str) -> float | None:
    """A decimal number as in data files, or an infinite one."""
    infinite = _INFINITE.fullmatch(word)
    return float(word) if infinite else parse_number(word.encode(errors="surrogateescape"))


def read_weights(source: str) -> tuple[float, ...]:
    """Read the weights of all features, in order, separated by commas or white space."""
    name = display_name(source)
    weights = []
    for line, text in enumerate(read_source(source, LINE_EXPANSION).splitlines(), start=1):
        for word in text.replace(b",", b" ").split():
            number = parse_number(word)
            if number is None:
                found = shorten(word.decode(errors="replace"))
                raise PerturbationError(
                    at_line(
                        name, line, f"{found} is not a number; expected one weight for each feature, such as 1,0.5,0"
                    )
                )
            weights.append(number)
    return tuple(weights)
