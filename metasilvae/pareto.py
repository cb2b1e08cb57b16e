"""The trees of one training run that no other one beats in accuracy, stability and size at once.

A training run looks for the best tree by one measure. On the way it meets trees that are more stable and less accurate,
or smaller; which of them is wanted, only their user can tell. An archive keeps those that are not dominated: no other
tree of the run is at least as good in all three figures and better in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.evaluation import evaluate
from metasilvae.fitness import Fitness
from metasilvae.formats.checkpoint_files import damaged, take, take_array
from metasilvae.gates import Gate
from metasilvae.individuals import as_model
from metasilvae.model import Model
from metasilvae.perturbation import Perturbation
from metasilvae.splitting import split_dataset
from metasilvae.stored_trees import pack_models, unpack_models
from metasilvae.training import HOLDING_SEED
from metasilvae.training_options import TrainingOptions

# More trees than this nobody looks through.
CAPACITY = 64
# The best by each figure and the best by merit always stay.
LEAST_CAPACITY = 4
# Bytes by which trees are told apart.
DIGEST_SIZE = 16
T = TypeVar("T")


@dataclass(frozen=True)
class Figures:
    """How good, how stable and how large a tree is; the first four are numbers of rows."""

    rows: int
    correct: int
    stable: int
    robust: int
    leaves: int
    depth: int

    @property
    def goals(self) -> tuple[int, int, int]:
        """What is compared; more is better."""
        return self.correct, self.stable, -self.leaves

    @property
    def accuracy(self) -> Fraction:
        return Fraction(self.correct, self.rows)

    @property
    def stability(self) -> Fraction:
        return Fraction(self.stable, self.rows)

    @property
    def robustness(self) -> Fraction:
        return Fraction(self.robust, self.rows)

    def phi(self, fitness: Fitness) -> float:
        return fitness.value(float(self.accuracy), float(self.stability), float(self.robustness))

    @property
    def is_possible(self) -> bool:
        """Whether some tree could have these figures."""
        either = self.correct + self.stable - self.robust
        in_order = 0 <= self.robust <= min(self.correct, self.stable) <= either <= self.rows
        return in_order and self.rows > 0 and self.leaves > 0

    def covers(self, other: Figures) -> bool:
        """Whether the other tree is nowhere better."""
        return all(own >= its for own, its in zip(self.goals, other.goals, strict=True))


def measure(model: Model, dataset: Dataset, perturbation: Perturbation, jobs: int | None = 1) -> Figures:
    """The exact figures of a tree; unless it is large and the rows are many, more threads make it slower."""
    tally = evaluate(model, dataset, [perturbation], jobs=jobs)[0].tally
    assert tally is not None
    return Figures(tally.size, tally.correct, tally.stable, tally.robust, model.n_leaves, model.max_depth)


# Archives


class Archive(Generic[T]):
    """Things that are not dominated by any that was offered; of those with equal figures the first.

    If there are too many, the one that is closest to another one goes. Its figures are remembered, so that what it
    dominates is refused all the same.

    Parameters
    ----------
    merit : function
        By which, among close ones, the better stays; the best one always does.
    capacity : int
    """

    def __init__(self, merit: Callable[[Figures], float], capacity: int = CAPACITY) -> None:
        if capacity < LEAST_CAPACITY:
            raise ValueError(f"an archive has room for {LEAST_CAPACITY} things at least, not {capacity}")
        self._merit = merit
        self._capacity = capacity
        self._front: list[Figures] = []
        self._kept: list[tuple[Figures, T]] = []

    @property
    def n_found(self) -> int:
        """How many there would be in an archive without bounds."""
        return len(self._front)

    @property
    def contents(self) -> tuple[list[Figures], list[tuple[Figures, T]]]:
        """All figures that are not dominated, and what is kept, in the order in which they came."""
        return self._front, self._kept

    def take_over(self, front: list[Figures], kept: list[tuple[Figures, T]]) -> None:
        """Become what gave these `contents`."""
        self._front, self._kept = front, kept

    @property
    def entries(self) -> list[tuple[Figures, T]]:
        """Most accurate first, then most stable."""
        return sorted(self._kept, key=lambda entry: entry[0].goals, reverse=True)

    def offer(self, figures: Figures, thing: T) -> None:
        if any(other.covers(figures) for other in self._front):
            return
        self._front = [*(other for other in self._front if not figures.covers(other)), figures]
        self._kept = [*(entry for entry in self._kept if not figures.covers(entry[0])), (figures, thing)]
        if len(self._kept) > self._capacity:
            del self._kept[self._find_most_crowded()]

    def _find_most_crowded(self) -> int:
        figures = [each for each, _ in self._kept]
        merits = [self._merit(each) for each in figures]
        spared = {max(range(len(figures)), key=lambda position: figures[position].goals[goal]) for goal in range(3)}
        spared.add(max(range(len(figures)), key=merits.__getitem__))
        points = np.array([(each.correct, each.stable, math.log2(each.leaves)) for each in figures])
        spans = np.ptp(points, axis=0)
        points /= np.where(spans > 0, spans, 1.0)
        squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
        np.fill_diagonal(squares, np.inf)
        nearest = squares.min(axis=1)
        others = [position for position in range(len(figures)) if position not in spared]
        return min(others, key=lambda position: (nearest[position], merits[position], -position))


class TreeCollector:
    """Keeps the trees of a training run that are not dominated; its `observe` is for a trainer's.

    The figures are those of the true perturbation, not of the larger boxes of the training, on the rows that were held
    out if any were, else on the training rows.

    Attributes
    ----------
    judges : Dataset
        The rows that the figures are of.
    run : str
        Fingerprint of the run, by which what was written of it is known again.
    n_seen : int
        Different trees so far.
    """

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: TrainingOptions,
        capacity: int = CAPACITY,
        run: str = "",
    ) -> None:
        self.run = run
        self.dataset = dataset
        self.perturbation = perturbation
        self.options = options
        self.judges = dataset
        if options.validation > 0:
            self.judges = split_dataset(dataset, options.validation, HOLDING_SEED)[1]
        self._seen: set[bytes] = set()
        self._archive: Archive[Model] = Archive(lambda figures: figures.phi(options.fitness), capacity)

    @property
    def n_seen(self) -> int:
        return len(self._seen)

    @property
    def n_found(self) -> int:
        """How many are not dominated; at most as many as fit into the archive are kept."""
        return self._archive.n_found

    @property
    def entries(self) -> list[tuple[Figures, Model]]:
        """Most accurate first. The leaves count the rows a tree was trained on, not those that were held out."""
        return self._archive.entries

    def observe(self, trees: Sequence[Any]) -> None:
        """Judge the trees that were not seen before."""
        for tree in trees:
            digest = blake2b(b"".join(part.tobytes() for part in tree.nodes()), digest_size=DIGEST_SIZE).digest()
            if digest not in self._seen:
                self._seen.add(digest)
                model = as_model(tree, self.dataset)
                self._archive.offer(measure(model, self.judges, self.perturbation), model)

    @property
    def state(self) -> dict[str, Any]:
        """All that is known now; `resume` of another collector for the same run takes it."""
        front, kept = self._archive.contents
        return {
            "seen": np.frombuffer(b"".join(sorted(self._seen)), dtype="<u8").astype(np.uint64),
            "front": _pack_figures(front),
            "kept": _pack_figures([figures for figures, _ in kept]),
            "models": pack_models([model for _, model in kept]),
        }

    def resume(self, document: dict[str, Any]) -> None:
        """Know what another collector knew."""
        seen = take_array(document, "seen", "<u8")
        front, kept = (_unpack_figures(take_array(document, key, "<i8")) for key in ("front", "kept"))
        models = unpack_models(take(document, "models", dict), self.dataset)
        sizes = [(model.n_leaves, model.max_depth) for model in models]
        if len(seen) % 2 or [(figures.leaves, figures.depth) for figures in kept] != sizes or len(kept) > len(front):
            raise damaged("the archive of trees is not complete")
        digests = seen.astype("<u8").tobytes()
        self._seen = {digests[start : start + DIGEST_SIZE] for start in range(0, len(digests), DIGEST_SIZE)}
        self._archive.take_over(front, list(zip(kept, models, strict=True)))


def _pack_figures(all_figures: Sequence[Figures]) -> np.ndarray:
    return np.array([astuple(figures) for figures in all_figures], dtype=np.int64).ravel()


def _unpack_figures(numbers: np.ndarray) -> list[Figures]:
    n_figures = len(fields(Figures))
    if len(numbers) % n_figures:
        raise damaged("the figures of a tree are not complete")
    all_figures = [Figures(*row) for row in numbers.reshape(-1, n_figures).tolist()]
    if not all(figures.is_possible for figures in all_figures):
        raise damaged("the figures of a tree contradict each other")
    return all_figures


# Choices

# What a choice is made by: more is better.
MEASURES: dict[str, Callable[[Figures, Fitness], Fraction | float]] = {
    "accuracy": lambda figures, fitness: figures.accuracy,
    "stability": lambda figures, fitness: figures.stability,
    "robustness": lambda figures, fitness: figures.robustness,
    "phi": lambda figures, fitness: figures.phi(fitness),
    "leaves": lambda figures, fitness: -figures.leaves,
}
SIZES = ("leaves",)


def satisfies(figures: Figures, gates: Sequence[Gate]) -> bool:
    return all(gate.accepts(getattr(figures, gate.metric)) for gate in gates)


def pick(all_figures: Sequence[Figures], gates: Sequence[Gate], by: str, fitness: Fitness) -> int | None:
    """Position of the best that satisfies all requirements, None if none does.

    Of equally good ones it is the more accurate, then the more stable, then the smaller, then the first.
    """
    allowed = [position for position, figures in enumerate(all_figures) if satisfies(figures, gates)]

    def rank(position: int) -> tuple[Any, ...]:
        figures = all_figures[position]
        return MEASURES[by](figures, fitness), figures.goals

    return max(allowed, key=rank, default=None)
