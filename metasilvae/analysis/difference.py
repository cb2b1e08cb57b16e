"""Where the predictions of two models differ: exact regions, or a proof that there are none.

Two trees are walked together (model/difference.pyx), so that every pair of leaves with a common sample is visited. Two
forests with the same number of trees are compared tree by tree: if each pair of trees contributes the same to the vote
everywhere, the forests are equal. If not, samples of the differing regions are tried; if all of them have equal
predictions, a complete search decides within its budget.
"""

from __future__ import annotations

import enum
import math
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.model import difference as kernel
from metasilvae.dataset import Dataset
from metasilvae.encoding import CATEGORY, Encoding
from metasilvae.errors import DataError, ModelError, RequestError
from metasilvae.model import Model, join_trees, match_features, share_encoding
from metasilvae.perturbations.groups import Group, GroupArrays, TableGroups, pack_options
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget, RemainingBudget
from metasilvae.voting import VOTINGS, choose_voting

FloatArray = NDArray[np.float64]


LARGEST = float(np.finfo(np.float64).max)
# Regions of each tree of a forest from which samples are tried.
TRIED_REGIONS = 256


@dataclass(frozen=True)
class InputBox:
    """The box of samples for which models are compared.

    Attributes
    ----------
    lower, upper : float64 arrays, shape (n_features,)
        Finite; the largest float64 numbers stand for no bound.
    may_be_missing : bool array, shape (n_features,), or None
        Whether samples without a value belong to the domain; None means where the models take missing values.
    groups : TableGroups
        Features of categories, which take joint values only; set by `for_models`.
    allowed : uint64 array, shape (1, n_groups, n_words), or None
        The options of groups that belong to the domain; None means all.
    rows : float64 array, shape (n_samples, n_features), or None
        Samples whose categories belong to the domain; None means all categories.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    description: str
    may_be_missing: NDArray[np.bool_] | None = None
    groups: TableGroups = field(default_factory=TableGroups)
    allowed: NDArray[np.uint64] | None = None
    rows: NDArray[np.float64] | None = None

    def for_models(self, *models: Model) -> InputBox:
        """The part of the domain that all models take: with missing values where all of them have directions."""
        takes = np.all([model.takes_missing for model in models], axis=0)
        if self.may_be_missing is not None:
            takes &= self.may_be_missing
        # Models that do not test a feature take its missing values too.
        groups = list_groups(models[0].encoding)
        lower, upper, allowed = self.lower.copy(), self.upper.copy(), None
        for group in groups.groups:
            takes[list(group.features)] = False
            lower[list(group.features)], upper[list(group.members)] = 0.0, 1.0
            upper[group.code] = len(group.table) - 1.0 if group.code >= 0 else upper[group.code]
        if self.rows is not None and groups.n_groups:
            seen = [np.isin(np.arange(len(g.table)), g.find_options(self.rows))[np.newaxis] for g in groups.groups]
            allowed = np.stack([pack_options(each, groups.n_words) for each in seen], axis=1)
        more = ", with and without missing values" if takes.any() and any(m.has_directions for m in models) else ""
        return replace(
            self, lower=lower, upper=upper, may_be_missing=takes, description=self.description + more, groups=groups,
            allowed=allowed,
        )  # fmt: skip

    @property
    def tables(self) -> tuple[*GroupArrays, NDArray[np.uint64]]:
        """The groups and their allowed options, in the form that kernels take."""
        return *self.groups.arrays, np.zeros((0, 0, 0), dtype=np.uint64) if self.allowed is None else self.allowed

    def take_options(
        self, points: NDArray[np.float64], lowers: NDArray[np.float64], uppers: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The points with the first option of each group that belongs to the domain and lies between the bounds."""
        for number, group in enumerate(self.groups.groups):
            members = list(group.members)
            table = group.table.astype(np.float64)[:, np.newaxis]
            fits = ((lowers[:, members] <= table) & (table <= uppers[:, members])).all(axis=2)
            if self.allowed is not None:
                words = self.allowed[0, number]
                numbers = np.arange(len(group.table))
                bits = (words[numbers // 64] >> (numbers % 64).astype(np.uint64)) & np.uint64(1)
                fits &= (bits == 1)[:, np.newaxis]
            option = np.argmax(fits, axis=0)
            points[:, members] = group.table[option]
            if group.code >= 0:
                points[:, group.code] = option
        return points

    @property
    def missing(self) -> NDArray[np.uint8]:
        """Whether each feature may be missing, in the form that kernels take."""
        assert self.may_be_missing is not None
        return self.may_be_missing.view(np.uint8)

    @classmethod
    def everything(cls, n_features: int) -> InputBox:
        bound = np.full(n_features, LARGEST)
        return cls(-bound, bound, "all samples")

    @classmethod
    def between(cls, minimum: float, maximum: float, n_features: int) -> InputBox:
        """The same range in every feature."""
        if not minimum <= maximum:
            raise RequestError(f"the range [{minimum:g}, {maximum:g}] is empty; give the smaller bound first")
        lower, upper = max(minimum, -LARGEST), min(maximum, LARGEST)
        return cls(
            np.full(n_features, lower, dtype=np.float64),
            np.full(n_features, upper, dtype=np.float64),
            f"[{minimum:g}, {maximum:g}] in each feature",
        )

    @classmethod
    def around(cls, dataset: Dataset, margin: float = 0.0) -> InputBox:
        """The smallest box that holds all rows, wider by a margin on all sides."""
        if not dataset.n_samples:
            raise DataError(f"{dataset.source}: has no rows, which the domain needs")
        with np.errstate(over="ignore"):
            lower = np.maximum(np.fmin.reduce(dataset.X) - margin, -LARGEST)
            upper = np.minimum(np.fmax.reduce(dataset.X) + margin, LARGEST)
        more = f", {margin:g} more on all sides" if margin else ""
        # A feature without any value keeps the value 0 beside its missing ones.
        return cls(
            np.nan_to_num(lower, nan=0.0),
            np.nan_to_num(upper, nan=0.0),
            f"the range of each feature in {dataset.source}{more}",
            np.asarray(np.isnan(dataset.X).any(axis=0)),
            rows=dataset.X,
        )


def list_groups(encoding: Encoding | None) -> TableGroups:
    """The features of each category of an encoding."""
    if encoding is None:
        return TableGroups()
    groups = []
    for place, column in enumerate(encoding.columns):
        features = tuple(encoding.features_of(place))
        if column.sets is not None:
            groups.append(Group(features[:-1], column.table, features[-1]))
        elif column.kind == CATEGORY:
            groups.append(Group.one_hot(features))
    return TableGroups(tuple(groups))


class DifferenceStatus(enum.Enum):
    """Result of comparing two models on a domain."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Region:
    """A box in which the predictions of two models differ.

    Attributes
    ----------
    lower, upper, point : float64 arrays, shape (n_features,)
        Closed bounds, and a sample between them; NaN for features that are missing in the region. For forests only the
        sample is known to have different predictions.
    first, second : tuple of str
        Labels that the models predict.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    point: NDArray[np.float64]
    first: tuple[str, ...]
    second: tuple[str, ...]

    @property
    def is_difference(self) -> bool:
        return set(self.first) != set(self.second)


@dataclass(frozen=True)
class ModelDifference:
    """Comparison of two models.

    Attributes
    ----------
    n_regions : int or None
        Number of all regions with different predictions; None for forests, of which only samples are known.
    regions : list of Region
        Some of them.
    reason : str or None
        Why the result is undecided, if it is.
    votings : tuple of str
        Voting schemes of the models.
    """

    first: Model
    second: Model
    domain: InputBox
    result: DifferenceStatus
    n_regions: int | None
    regions: list[Region]
    reason: str | None = None
    votings: tuple[str, str] = ("", "")


def compare_models(
    first: Model,
    second: Model,
    domain: InputBox | None = None,
    *,
    voting: str | None = None,
    max_regions: int = 10,
    samples: NDArray[np.float64] | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_fraction: Callable[[float], object] = lambda fraction: None,
) -> ModelDifference:
    """Compare the predictions of two models for all samples of a domain.

    Parameters
    ----------
    domain : InputBox or None
        None means all finite samples.
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    max_regions : int
        Number of regions to return; all are counted.
    samples : float64 array, shape (n_samples, n_features), or None
        Samples to try before the search, for forests.
    budget : Budget or None
        Work allowed for the whole search, for forests; None means no limit.
    stop : threading.Event or None
        Once set, the search ends.
    on_fraction : function
        Called with the fraction of the search that is done, from 0 to 1.
    """
    first, second = share_encoding(first, second)
    second = match_features(second, first)
    if first.n_features != second.n_features:
        raise ModelError(
            f"{first.source} has {first.n_features} features, {second.source} has {second.n_features}; "
            "only models of the same features can be compared"
        )
    votings = choose_voting(first, voting), choose_voting(second, voting)
    domain = (InputBox.everything(first.n_features) if domain is None else domain).for_models(first, second)
    found = partial(ModelDifference, first, second, domain, votings=votings)
    if first.n_trees == second.n_trees == 1:
        classes = number_classes((first, second), "max")
        n_found, lowers, uppers = find_regions((first, second), 0, classes, domain, max_regions)
        regions = _make_regions(first, second, votings, domain, lowers, uppers)
        status = DifferenceStatus.DIFFERENT if n_found else DifferenceStatus.EQUAL
        return found(status, n_found, regions)

    equal: set[int] = set()
    regions = []
    if votings[0] == votings[1]:
        classes = number_classes((first, second), votings[0])
        for position in range(min(first.n_trees, second.n_trees)):
            n_found, lowers, uppers = find_regions((first, second), position, classes, domain, TRIED_REGIONS)
            if n_found == 0:
                equal.add(position)
            regions += _make_regions(first, second, votings, domain, lowers, uppers)
    if first.n_trees == second.n_trees == len(equal):
        return found(DifferenceStatus.EQUAL, None, [])
    if samples is not None:
        is_inside = (domain.lower <= samples) & (samples <= domain.upper)
        inside = samples[np.where(np.isnan(samples), domain.missing != 0, is_inside).all(axis=1)]
        regions += _make_regions(first, second, votings, domain, inside, inside)
    regions = [region for region in regions if region.is_difference]
    if regions:
        return found(DifferenceStatus.DIFFERENT, None, regions[:max_regions])

    remaining = RemainingBudget(budget or Budget(), threading.Event() if stop is None else stop)
    region, reason = _search(first, second, votings, domain, equal, remaining, on_fraction)
    if region is not None:
        return found(DifferenceStatus.DIFFERENT, None, [region][:max_regions])
    result = DifferenceStatus.EQUAL if reason is None else DifferenceStatus.UNDECIDED
    return found(result, None, [], reason)


def find_regions(
    models: tuple[Model, Model],
    position: int,
    classes: Sequence[NDArray[np.int32]],
    domain: InputBox,
    max_regions: int = 0,
) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Number of regions in which one tree of each model reaches leaves of different classes, and some of them.

    Parameters
    ----------
    position : int
        Of the tree in both models.
    classes : two int32 arrays
        Class of each leaf of the models.
    """
    buffer = np.empty((2, max_regions, len(domain.lower)))
    leaves = np.empty((max_regions, 2), dtype=np.int32)
    first, second = models
    n_found = kernel.find_differences(
        first.nodes, int(first.roots[position]), classes[0], second.nodes, int(second.roots[position]), classes[1],
        first.max_depth + second.max_depth, domain.lower, domain.upper, domain.missing, *domain.tables, leaves, *buffer,
    )  # fmt: skip
    lowers, uppers = buffer[:, :n_found]
    return n_found, lowers, uppers


def number_classes(models: Sequence[Model], voting: str) -> list[NDArray[np.int32]]:
    """Class of each leaf of several models; leaves of the same class contribute the same to the vote."""
    numbers: dict[Hashable, int] = {}
    found = []
    for model in models:
        if voting == "max":
            predictions = [_named(model, label_set) for label_set in model.leaf_predictions.sets]
            of_prediction = [numbers.setdefault(frozenset(prediction), len(numbers)) for prediction in predictions]
            found.append(np.array(of_prediction, dtype=np.int32)[model.leaf_predictions.ids])
            continue
        contributions = []
        for values in model.leaf_values.tolist():
            # A distribution is identified by its counts in lowest terms; -0.0 is 0.
            divisor = math.gcd(*values) if voting == "average" else 1
            terms = (value // divisor if voting == "average" else value + 0.0 for value in values)
            contributions.append(frozenset(zip(model.labels, terms, strict=True)))
        found.append(np.array([numbers.setdefault(each, len(numbers)) for each in contributions], dtype=np.int32))
    return found


def _named(model: Model, label_set: Sequence[int]) -> tuple[str, ...]:
    return tuple(model.labels[label] for label in label_set)


def _make_regions(
    first: Model,
    second: Model,
    votings: tuple[str, str],
    domain: InputBox,
    lowers: NDArray[np.float64],
    uppers: NDArray[np.float64],
) -> list[Region]:
    points = domain.take_options(choose_points(lowers, uppers), lowers, uppers)
    predictions = [
        [_named(model, table.sets[number]) for number in table.ids]
        for model, table in (
            (model, predict(model, points, voting)) for model, voting in zip((first, second), votings, strict=True)
        )
    ]
    return [Region(*parts) for parts in zip(lowers, uppers, points, *predictions, strict=True)]


def choose_points(lowers: NDArray[np.float64], uppers: NDArray[np.float64]) -> NDArray[np.float64]:
    """A sample in each region: the middle, the only bound where there is one, 0 where there is none.

    A feature with NaN bounds is missing.
    """
    has_lower, has_upper = lowers > -LARGEST, uppers < LARGEST
    middle = 0.5 * lowers + 0.5 * uppers
    points = np.where(has_lower & has_upper, middle, np.where(has_lower, lowers, np.where(has_upper, uppers, 0.0)))
    return np.ascontiguousarray(np.where(np.isnan(lowers), np.nan, np.clip(points, lowers, uppers)))


def count_unequal_rows(first: Model, second: Model, dataset: Dataset, voting: str | None, jobs: int | None) -> int:
    """Number of rows for which the predictions of two models differ; labels are compared by name."""
    named = []
    for model in (first, second):
        table = predict(model, dataset.X, voting, jobs)
        numbers = [frozenset(_named(model, label_set)) for label_set in table.sets]
        named.append([numbers[number] for number in table.ids])
    return sum(one != other for one, other in zip(*named, strict=True))


def _search(
    first: Model,
    second: Model,
    votings: tuple[str, str],
    domain: InputBox,
    equal: set[int],
    remaining: RemainingBudget,
    on_fraction: Callable[[float], object],
) -> tuple[Region | None, str | None]:
    """A region in which two forests differ, or else the reason if the search ended without a decision.

    Parameters
    ----------
    equal : set of int
        Positions at which the trees of both forests contribute the same to the vote everywhere in the domain.
    """
    models = _unite_labels(first.feasible, second.feasible)
    units, slack = _score(models, votings)
    kind = first.leaf_kind
    joined = join_trees(
        [replace(model, leaf_values=part, leaf_kind=kind) for model, part in zip(models, units, strict=True)]
    )
    is_known = np.array([[label in model.labels for label in joined.labels] for model in (first, second)])
    search = kernel.DifferenceSearch(
        joined.nodes, joined.roots, first.n_trees, joined.max_depth,
        _find_shared(models, units, votings, equal), joined.leaf_values, is_known.astype(np.uint8), slack,
        domain.lower, domain.upper, domain.missing, *domain.tables,
    )  # fmt: skip
    while True:
        status, reason = remaining.run(search, lambda: on_fraction(search.done))
        if status in (SearchStatus.FOUND, SearchStatus.CANDIDATE):
            lower, upper = (side[np.newaxis].copy() for side in search.box)
            (region,) = _make_regions(first, second, votings, domain, lower, upper)
            if region.is_difference:
                return region, None
            assert status == SearchStatus.CANDIDATE
            reason = remaining.reason()
        if status == SearchStatus.ABSENT or reason is not None:
            return None, reason


def _unite_labels(first: Model, second: Model) -> tuple[Model, Model]:
    """The same trees with the labels of both models; a label that a model does not know gets no score."""
    labels = tuple(dict.fromkeys([*first.labels, *second.labels]))

    def rename(model: Model) -> Model:
        values = np.zeros((model.n_leaves, len(labels)), dtype=model.leaf_values.dtype)
        values[:, [labels.index(label) for label in model.labels]] = model.leaf_values
        return replace(model, leaf_values=values, labels=labels)

    return rename(first), rename(second)


def _score(models: tuple[Model, Model], votings: tuple[str, str]) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Scores of the leaves of each model in whole numbers, in one unit if they vote alike, and slacks of sums."""
    if votings[0] == votings[1]:
        scores = VOTINGS[votings[0]].score(join_trees(models))
        units = np.split(scores.units, [models[0].n_leaves])
        errors = [scores.error, scores.error]
    else:
        each = [VOTINGS[voting].score(model) for model, voting in zip(models, votings, strict=True)]
        units, errors = [scores.units for scores in each], [scores.error for scores in each]
    slack = [2 * error * model.n_trees for error, model in zip(errors, models, strict=True)]
    return units, np.array(slack, dtype=np.int64)


def _find_shared(
    models: tuple[Model, Model], units: list[NDArray[np.int64]], votings: tuple[str, str], equal: set[int]
) -> NDArray[np.uint8]:
    """Which trees have a counterpart in the other model: the same tree anywhere, or an equal one at its position."""
    is_shared = [np.zeros(model.n_trees, dtype=np.uint8) for model in models]
    if votings[0] != votings[1]:
        return np.concatenate(is_shared)
    keys = [
        [_key_of(model, part, position) for position in range(model.n_trees)]
        for model, part in zip(models, units, strict=True)
    ]
    common = Counter(keys[0]) & Counter(keys[1])
    for flags, own in zip(is_shared, keys, strict=True):
        left = common.copy()
        for position, key in enumerate(own):
            flags[position] = left[key] > 0
            left[key] -= 1
    for position in range(min(models[0].n_trees, models[1].n_trees)):
        if not is_shared[0][position] and not is_shared[1][position] and position in equal:
            is_shared[0][position] = is_shared[1][position] = 1
    return np.concatenate(is_shared)


def _key_of(model: Model, units: NDArray[np.int64], position: int) -> Hashable:
    """A key that is equal for trees with the same tests and scores."""
    tree = replace(model, leaf_values=units).tree(position)
    nodes = tree.nodes
    directions = np.where(nodes["feature"] >= 0, nodes["leaf"], 0)
    return nodes["feature"].tobytes(), nodes["threshold"].tobytes(), directions.tobytes(), tree.leaf_values.tobytes()
