"""Where two models answer differently: exact regions, or a proof that there are none.

Two trees are walked at once (model/difference.pyx), so that every pair of leaves with a common sample is seen. Two
forests with the same number of trees are compared tree by tree: if each contributes the same to the vote everywhere,
the forests answer the same. If not, samples of the regions are tried; where none of them gets different answers, a
complete search decides, if it ends within the limits (metasilvae.forest_comparison).
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.model import difference as kernel
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, ModelError, RequestError
from metasilvae.forest_comparison import search_difference
from metasilvae.forest_verification import Limits
from metasilvae.model import Model
from metasilvae.prediction import predict
from metasilvae.voting import choose_voting

LARGEST = float(np.finfo(np.float64).max)
# Regions of each tree of a forest from which samples are tried.
TRIED_REGIONS = 256


@dataclass(frozen=True)
class Domain:
    """A box of samples about which something is asked or promised.

    Attributes
    ----------
    lower, upper : float64 arrays, shape (n_features,)
        Finite; the largest numbers stand for no bound.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    description: str

    @classmethod
    def everything(cls, n_features: int) -> Domain:
        bound = np.full(n_features, LARGEST)
        return cls(-bound, bound, "all samples")

    @classmethod
    def between(cls, minimum: float, maximum: float, n_features: int) -> Domain:
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
    def around(cls, dataset: Dataset, margin: float = 0.0) -> Domain:
        """The smallest box that holds all rows, wider by a margin on all sides."""
        if not dataset.n_samples:
            raise DataError(f"{dataset.source}: has no rows to take a domain from")
        with np.errstate(over="ignore"):
            lower = np.maximum(dataset.X.min(axis=0) - margin, -LARGEST)
            upper = np.minimum(dataset.X.max(axis=0) + margin, LARGEST)
        more = f", {margin:g} more on all sides" if margin else ""
        return cls(lower, upper, f"the range of each feature in {dataset.source}{more}")


class Result(enum.Enum):
    """What is known about the difference of two models on a domain."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Region:
    """A box in which two models answer differently.

    Attributes
    ----------
    lower, upper, point : float64 arrays, shape (n_features,)
        Closed bounds, and a sample between them. Of forests only the sample is known to get different answers.
    first, second : tuple of str
        Labels that the models answer.
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
class Comparison:
    """What was found out about two models.

    Attributes
    ----------
    n_regions : int or None
        Number of all regions with different answers; None for forests, of which only samples are known.
    regions : list of Region
        Some of them.
    reason : str or None
        Why the question is undecided, if it is.
    """

    first: Model
    second: Model
    domain: Domain
    result: Result
    n_regions: int | None
    regions: list[Region]
    reason: str | None = None


def compare(
    first: Model,
    second: Model,
    domain: Domain | None = None,
    *,
    voting: str | None = None,
    max_regions: int = 10,
    samples: NDArray[np.float64] | None = None,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
    on_share: Callable[[float], object] = lambda share: None,
) -> Comparison:
    """Compare the answers of two models for all samples of a domain.

    Parameters
    ----------
    domain : Domain or None
        None means all finite samples.
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    max_regions : int
        Number of regions to hand out; all are counted.
    samples : float64 array, shape (n_samples, n_features), or None
        Samples of forests to try before the search.
    limits : Limits or None
        What the search in forests may take; None means whatever it takes.
    stop : threading.Event or None
        Once set, the search ends.
    on_share : function
        Called with the part of the search that is done, from 0 to 1.
    """
    if first.n_features != second.n_features:
        raise ModelError(
            f"{first.source} has {first.n_features} features, {second.source} has {second.n_features}; "
            "only models of the same features can be compared"
        )
    votings = choose_voting(first, voting), choose_voting(second, voting)
    domain = Domain.everything(first.n_features) if domain is None else domain
    if first.n_trees == second.n_trees == 1:
        classes = number_classes((first, second), "max")
        n_found, lowers, uppers = find_regions((first, second), 0, classes, domain, max_regions)
        regions = _answer_in(first, second, votings, lowers, uppers)
        return Comparison(first, second, domain, Result.DIFFERENT if n_found else Result.EQUAL, n_found, regions)

    equal: set[int] = set()
    regions = []
    if votings[0] == votings[1]:
        classes = number_classes((first, second), votings[0])
        for position in range(min(first.n_trees, second.n_trees)):
            n_found, lowers, uppers = find_regions((first, second), position, classes, domain, TRIED_REGIONS)
            if n_found == 0:
                equal.add(position)
            regions += _answer_in(first, second, votings, lowers, uppers)
    if first.n_trees == second.n_trees == len(equal):
        return Comparison(first, second, domain, Result.EQUAL, None, [])
    if samples is not None:
        inside = samples[((domain.lower <= samples) & (samples <= domain.upper)).all(axis=1)]
        regions += _answer_in(first, second, votings, inside, inside)
    regions = [region for region in regions if region.is_difference]
    if regions:
        return Comparison(first, second, domain, Result.DIFFERENT, None, regions[:max_regions])

    def look_at(lower: NDArray[np.float64], upper: NDArray[np.float64]) -> list[Region]:
        return [
            region for region in _answer_in(first, second, votings, lower[None], upper[None]) if region.is_difference
        ]

    found = search_difference(
        first, second, votings, domain.lower, domain.upper, equal.__contains__, lambda *box: bool(look_at(*box)),
        limits=limits or Limits(), stop=stop, on_share=on_share,
    )  # fmt: skip
    if found.box is not None:
        return Comparison(first, second, domain, Result.DIFFERENT, None, look_at(*found.box)[:max_regions])
    result = Result.EQUAL if found.reason is None else Result.UNDECIDED
    return Comparison(first, second, domain, result, None, [], found.reason)


def find_regions(
    models: tuple[Model, Model],
    position: int,
    classes: Sequence[NDArray[np.int32]],
    domain: Domain,
    max_regions: int = 0,
) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Number of regions in which one tree of each model falls into leaves of different classes, and some of them.

    Parameters
    ----------
    position : int
        Of the tree in both models.
    classes : two int32 arrays
        Class of each leaf of the models.
    """
    room = np.empty((2, max_regions, len(domain.lower)))
    leaves = np.empty((max_regions, 2), dtype=np.int32)
    first, second = models
    n_found = kernel.find_differences(
        first.nodes, int(first.roots[position]), classes[0], second.nodes, int(second.roots[position]), classes[1],
        first.max_depth + second.max_depth, domain.lower, domain.upper, leaves, *room,
    )  # fmt: skip
    lowers, uppers = room[:, :n_found]
    return n_found, lowers, uppers


def number_classes(models: Sequence[Model], voting: str) -> list[NDArray[np.int32]]:
    """Numbers for the leaves of several models: equal ones for leaves that contribute the same to the vote."""
    numbers: dict[Hashable, int] = {}
    found = []
    for model in models:
        if voting == "max":
            answers = [_named(model, label_set) for label_set in model.leaf_answers.sets]
            of_answer = [numbers.setdefault(frozenset(answer), len(numbers)) for answer in answers]
            found.append(np.array(of_answer, dtype=np.int32)[model.leaf_answers.ids])
            continue
        contributions = []
        for values in model.leaf_values.tolist():
            # A distribution is known by its counts in lowest terms; -0.0 is 0.
            divisor = math.gcd(*values) if voting == "average" else 1
            terms = (value // divisor if voting == "average" else value + 0.0 for value in values)
            contributions.append(frozenset(zip(model.labels, terms, strict=True)))
        found.append(np.array([numbers.setdefault(each, len(numbers)) for each in contributions], dtype=np.int32))
    return found


def _named(model: Model, label_set: Sequence[int]) -> tuple[str, ...]:
    return tuple(model.labels[label] for label in label_set)


def _answer_in(
    first: Model, second: Model, votings: tuple[str, str], lowers: NDArray[np.float64], uppers: NDArray[np.float64]
) -> list[Region]:
    points = choose_points(lowers, uppers)
    answers = [
        [_named(model, table.sets[number]) for number in table.ids]
        for model, table in (
            (model, predict(model, points, voting)) for model, voting in zip((first, second), votings, strict=True)
        )
    ]
    return [Region(*parts) for parts in zip(lowers, uppers, points, *answers, strict=True)]


def choose_points(lowers: NDArray[np.float64], uppers: NDArray[np.float64]) -> NDArray[np.float64]:
    """A sample in each region: the middle, the only bound where there is one, 0 where there is none."""
    has_lower, has_upper = lowers > -LARGEST, uppers < LARGEST
    middle = 0.5 * lowers + 0.5 * uppers
    points = np.where(has_lower & has_upper, middle, np.where(has_lower, lowers, np.where(has_upper, uppers, 0.0)))
    return np.ascontiguousarray(np.clip(points, lowers, uppers))


def count_unequal_rows(first: Model, second: Model, dataset: Dataset, voting: str | None, jobs: int | None) -> int:
    """Rows for which two models answer different labels; labels are compared by name."""
    named = []
    for model in (first, second):
        table = predict(model, dataset.X, voting, jobs)
        numbers = [frozenset(_named(model, label_set)) for label_set in table.sets]
        named.append([numbers[number] for number in table.ids])
    return sum(one != other for one, other in zip(*named, strict=True))
