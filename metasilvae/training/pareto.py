"""Pareto archives: the trees of a training run that no other tree beats in accuracy, stability and size at once.

A training run maximizes one fitness. On the way it finds trees that are more stable and less accurate, or smaller; only
a user can say which of them is wanted. An archive keeps those that are not dominated: no other tree of the run is at
least as good in all three metrics and better in one of them. `TreeCollector` is the observer that collects them.

On disk an archive is a folder with a file for each tree and an index with their metrics. The index is written last, so
a folder without one is not complete. It holds counts of rows, from which all fractions are computed again, and the
fingerprint of the run that may replace the archive.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, OutputError, RequestError
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.io.memory import JSON_EXPANSION
from metasilvae.io.storage import (
    STANDARD_STREAM,
    TEMPORARY_PREFIX,
    commit,
    discard,
    error_context,
    prepare_folder,
    read_source,
    staging,
    write_output,
)
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.checkpoint.files import damaged, pack_models, take, take_array, unpack_models
from metasilvae.training.options import TrainingOptions, as_json
from metasilvae.training.protocol import hold_out
from metasilvae.training.samples import as_model
from metasilvae.training.ties import settle_ties
from metasilvae.verification.objective import Fitness
from metasilvae.verification.query import make_query
from metasilvae.verification.requirements import Requirement
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

# Most trees of an archive; a user does not compare more.
CAPACITY = 64
# The best by each metric and the best by fitness always stay.
LEAST_CAPACITY = 4
# Bytes of the digest that identifies a tree.
DIGEST_SIZE = 16
T = TypeVar("T")


@dataclass(frozen=True)
class TreeMetrics:
    """Accuracy, stability and size of a tree; the first four are counts of rows, or sums of their weights."""

    rows: int
    correct: int
    stable: int
    robust: int
    leaves: int
    depth: int

    @property
    def goals(self) -> tuple[int, int, int]:
        """The values that are compared; more is better."""
        return self.correct, self.stable, -self.leaves

    @property
    def accuracy(self) -> Fraction:
        return Fraction(self.correct, self.rows)

    @property
    def stability(self) -> Fraction:
        return Fraction(self.stable, self.rows)

    @property
    def robust_accuracy(self) -> Fraction:
        return Fraction(self.robust, self.rows)

    def phi(self, fitness: Fitness) -> float:
        return fitness.value(float(self.accuracy), float(self.stability), float(self.robust_accuracy))

    @property
    def is_possible(self) -> bool:
        """Whether some tree could have these metrics."""
        either = self.correct + self.stable - self.robust
        in_order = 0 <= self.robust <= min(self.correct, self.stable) <= either <= self.rows
        return in_order and self.rows > 0 and self.leaves > 0

    def covers(self, other: TreeMetrics) -> bool:
        """Whether the other tree is nowhere better."""
        return all(own >= its for own, its in zip(self.goals, other.goals, strict=True))


def measure(model: Model, dataset: Dataset, perturbation: Perturbation, jobs: int | None = 1) -> TreeMetrics:
    """Exact metrics of a tree; several threads pay only for large trees and many rows."""
    outcome = verify(make_query(model, dataset, perturbation), jobs)
    is_stable = outcome.stability == Stability.STABLE
    correct, stable = dataset.count(outcome.is_correct), dataset.count(is_stable)
    robust = dataset.count(outcome.is_correct & is_stable)
    return TreeMetrics(dataset.total_weight, correct, stable, robust, model.n_leaves, model.max_depth)


# Archives


class Archive(Generic[T]):
    """Items that are not dominated by any that was offered; of those with equal metrics the first.

    If there are too many, the one that is closest to another one is removed. Its metrics are remembered, so that what
    it dominates is still refused.

    Parameters
    ----------
    merit : function
        Chooses among close items; the best one is always kept.
    capacity : int
        Largest number of items.
    """

    def __init__(self, merit: Callable[[TreeMetrics], float], capacity: int = CAPACITY) -> None:
        if capacity < LEAST_CAPACITY:
            raise ValueError(f"an archive needs room for {LEAST_CAPACITY} items or more, not {capacity}")
        self._merit = merit
        self._capacity = capacity
        self._front: list[TreeMetrics] = []
        self._kept: list[tuple[TreeMetrics, T]] = []

    @property
    def n_found(self) -> int:
        """How many items an archive without bounds would hold."""
        return len(self._front)

    @property
    def contents(self) -> tuple[list[TreeMetrics], list[tuple[TreeMetrics, T]]]:
        """All metrics that are not dominated, and the items that are kept, in the order of their arrival."""
        return self._front, self._kept

    def resume(self, front: list[TreeMetrics], kept: list[tuple[TreeMetrics, T]]) -> None:
        """Continue from the `contents` of another archive."""
        self._front, self._kept = front, kept

    @property
    def entries(self) -> list[tuple[TreeMetrics, T]]:
        """Most accurate first, then most stable."""
        return sorted(self._kept, key=lambda entry: entry[0].goals, reverse=True)

    def offer(self, metrics: TreeMetrics, thing: T) -> None:
        if any(other.covers(metrics) for other in self._front):
            return
        self._front = [*(other for other in self._front if not metrics.covers(other)), metrics]
        self._kept = [*(entry for entry in self._kept if not metrics.covers(entry[0])), (metrics, thing)]
        if len(self._kept) > self._capacity:
            del self._kept[self._find_most_crowded()]

    def _find_most_crowded(self) -> int:
        metrics = [each for each, _ in self._kept]
        merits = [self._merit(each) for each in metrics]
        spared = {max(range(len(metrics)), key=lambda position: metrics[position].goals[goal]) for goal in range(3)}
        spared.add(max(range(len(metrics)), key=merits.__getitem__))
        points = np.array([(each.correct, each.stable, math.log2(each.leaves)) for each in metrics])
        spans = np.ptp(points, axis=0)
        points /= np.where(spans > 0, spans, 1.0)
        squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
        np.fill_diagonal(squares, np.inf)
        nearest = squares.min(axis=1)
        others = [position for position in range(len(metrics)) if position not in spared]
        return min(others, key=lambda position: (nearest[position], merits[position], -position))


class TreeCollector:
    """Observer of a trainer that keeps the trees that are not dominated.

    The metrics are those with the perturbation itself, not with the larger one of the training, on the held-out rows if
    there are any, otherwise on the training rows.

    Attributes
    ----------
    judges : Dataset
        The rows that the trees are evaluated on.
    run : str
        Fingerprint of the run, which identifies the archive that it wrote.
    n_seen : int
        Number of different trees so far.
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
        self.judges = hold_out(dataset, options.validation)[1] or dataset
        self._seen: set[bytes] = set()
        self._archive: Archive[Model] = Archive(lambda metrics: metrics.phi(options.fitness), capacity)

    @property
    def n_seen(self) -> int:
        return len(self._seen)

    @property
    def n_found(self) -> int:
        """Number of trees that are not dominated; the archive keeps at most its capacity."""
        return self._archive.n_found

    @property
    def entries(self) -> list[tuple[TreeMetrics, Model]]:
        """Most accurate first; the leaves hold counts of the rows that a tree was trained on, without held-out rows."""
        return self._archive.entries

    def observe(self, trees: Sequence[Any]) -> None:
        """Evaluate the trees that were not seen before."""
        for tree in trees:
            digest = blake2b(b"".join(part.tobytes() for part in tree.nodes()), digest_size=DIGEST_SIZE).digest()
            if digest not in self._seen:
                self._seen.add(digest)
                model = settle_ties(as_model(tree, self.dataset), self.dataset)
                self._archive.offer(measure(model, self.judges, self.perturbation), model)

    @property
    def state(self) -> dict[str, Any]:
        """All that the collector knows, for `resume` of another collector of the same run."""
        front, kept = self._archive.contents
        return {
            "seen": np.frombuffer(b"".join(sorted(self._seen)), dtype="<u8").astype(np.uint64),
            "front": _pack_metrics(front),
            "kept": _pack_metrics([metrics for metrics, _ in kept]),
            "models": pack_models([model for _, model in kept]),
        }

    def resume(self, document: dict[str, Any]) -> None:
        """Continue from the state of another collector."""
        seen = take_array(document, "seen", "<u8")
        front, kept = (_unpack_metrics(take_array(document, key, "<i8")) for key in ("front", "kept"))
        models = unpack_models(take(document, "models", dict), self.dataset)
        sizes = [(model.n_leaves, model.max_depth) for model in models]
        if len(seen) % 2 or [(metrics.leaves, metrics.depth) for metrics in kept] != sizes or len(kept) > len(front):
            raise damaged("the archive of trees is not complete")
        digests = seen.astype("<u8").tobytes()
        self._seen = {digests[start : start + DIGEST_SIZE] for start in range(0, len(digests), DIGEST_SIZE)}
        self._archive.resume(front, list(zip(kept, models, strict=True)))


def _pack_metrics(all_metrics: Sequence[TreeMetrics]) -> np.ndarray:
    return np.array([astuple(metrics) for metrics in all_metrics], dtype=np.int64).ravel()


def _unpack_metrics(numbers: np.ndarray) -> list[TreeMetrics]:
    n_metrics = len(fields(TreeMetrics))
    if len(numbers) % n_metrics:
        raise damaged("the metrics of a tree are not complete")
    all_metrics = [TreeMetrics(*row) for row in numbers.reshape(-1, n_metrics).tolist()]
    if not all(metrics.is_possible for metrics in all_metrics):
        raise damaged("the metrics of a tree contradict each other")
    return all_metrics


# Choices

# Criteria of a choice; more is better.
MEASURES: dict[str, Callable[[TreeMetrics, Fitness], Fraction | float]] = {
    "accuracy": lambda metrics, fitness: metrics.accuracy,
    "stability": lambda metrics, fitness: metrics.stability,
    "robust_accuracy": lambda metrics, fitness: metrics.robust_accuracy,
    "phi": lambda metrics, fitness: metrics.phi(fitness),
    "leaves": lambda metrics, fitness: -metrics.leaves,
}
SIZES = ("leaves",)


def satisfies(metrics: TreeMetrics, requirements: Sequence[Requirement]) -> bool:
    return all(requirement.accepts(getattr(metrics, requirement.metric)) for requirement in requirements)


def pick(
    all_metrics: Sequence[TreeMetrics], requirements: Sequence[Requirement], by: str, fitness: Fitness
) -> int | None:
    """Position of the best tree that satisfies all requirements; None if none does.

    Ties are resolved by accuracy, then stability, then size, then position.
    """
    allowed = [position for position, metrics in enumerate(all_metrics) if satisfies(metrics, requirements)]

    def rank(position: int) -> tuple[Any, ...]:
        metrics = all_metrics[position]
        return MEASURES[by](metrics, fitness), metrics.goals

    return max(allowed, key=rank, default=None)


INDEX = "index.json"
FORMAT = "metasilvae archive 1"
_FILE_NAME = re.compile(r"tree-[0-9]{3,}\.silva")
_COUNTS = tuple(field.name for field in fields(TreeMetrics))


@dataclass(frozen=True)
class StoredArchive:
    """The content of an index.

    Attributes
    ----------
    data : str
        Name of the data set.
    rows : str
        The rows that the trees were evaluated on.
    perturbation : str
        The perturbation as on the command line.
    fitness : Fitness
        The fitness of the training.
    files : list of str
        Names of the trees inside the folder.
    metrics : list of TreeMetrics
        Metrics of the trees.
    """

    folder: str
    data: str
    rows: str
    perturbation: str
    fitness: Fitness
    files: list[str]
    metrics: list[TreeMetrics]

    def path(self, position: int) -> str:
        return str(Path(self.folder) / self.files[position])

    def read_tree(self, position: int) -> Model:
        """A tree; it must have the size that the index gives."""
        model, metrics = read_model(self.path(position)), self.metrics[position]
        if model.is_forest or (model.n_leaves, model.max_depth) != (metrics.leaves, metrics.depth):
            raise DataError(
                f"{self.path(position)}: is not the tree that {INDEX} describes ({metrics.leaves} leaves, depth "
                f"{metrics.depth}); one of the two was changed, train again"
            )
        return model


def check_folder(folder: str, run: str | None = None) -> None:
    """Make a folder for an archive; refuse one that cannot be written to, or that is not empty.

    It may hold what the run with the given fingerprint wrote.
    """
    if folder in ("", STANDARD_STREAM):
        raise OutputError(f"{folder!r}: an archive is a folder; give the name of a new or an empty one")
    target = prepare_folder(folder)
    _refuse_others(target, run)
    with error_context(target), tempfile.TemporaryFile(dir=target):
        pass


def _refuse_others(target: Path, run: str | None) -> None:
    with error_context(target):
        own = _find_own(target, run)
        found = min((path.name for path in target.iterdir() if path not in own), default=None)
    if found is not None:
        fitting = "a new or an empty folder" if run is None else "a new or an empty folder, or the one of this run"
        raise OutputError(f"{target}: is not empty ({found}); an archive needs {fitting}")


def _find_own(target: Path, run: str | None) -> list[Path]:
    """Files that the given run wrote to a folder, or left there when it was killed."""
    if run is None:
        return []
    place = target / _name_staging(run)
    is_own = _read_run(target) == run if (target / INDEX).exists() else place.is_dir()
    if not is_own:
        return []
    return [path for path in target.iterdir() if path == place or (_is_part(path.name) and not path.is_dir())]


def _is_part(name: str) -> bool:
    return name == INDEX or _FILE_NAME.fullmatch(name) is not None or name.startswith(TEMPORARY_PREFIX)


def _read_run(target: Path) -> str | None:
    """Fingerprint of the run that wrote the archive in a folder."""
    try:
        document = json.loads(read_source(str(target / INDEX), JSON_EXPANSION, is_kept=False))
    except (DataError, ValueError, RecursionError):
        return None
    run = document.get("run") if isinstance(document, dict) and document.get("format") == FORMAT else None
    return run if isinstance(run, str) else None


def _name_staging(run: str) -> str:
    return f"{TEMPORARY_PREFIX}{run}"


def write_archive(
    folder: str,
    collector: TreeCollector,
    entries: Sequence[tuple[TreeMetrics, Model]] | None = None,
    *,
    plain: bool = False,
) -> int:
    """Write all trees and the index, and replace an archive of the same run; returns the number of trees.

    Until all is written, the old archive stays complete.

    Parameters
    ----------
    entries : sequence of (TreeMetrics, Model) or None
        The entries of the collector with models that have a description; None writes those of the collector.
    plain : bool
        Whether to leave out the descriptions of the models.
    """
    target = prepare_folder(folder)
    _refuse_others(target, collector.run)
    with staging(target, _name_staging(collector.run)) as place:
        names = _write_parts(place, collector, collector.entries if entries is None else entries, plain)
    with error_context(target):
        # Without an index, the folder is not read as an archive.
        (target / INDEX).unlink(missing_ok=True)
        commit(place, [*names, INDEX])
        for path in _find_own(target, collector.run):
            if path.name not in (INDEX, *names):
                discard(path)
    return len(names)


def _write_parts(
    place: Path, collector: TreeCollector, entries: Sequence[tuple[TreeMetrics, Model]], plain: bool
) -> list[str]:
    """Write trees and index; returns the names of the trees."""
    options = collector.options
    trees: list[dict[str, Any]] = []
    for position, (metrics, model) in enumerate(entries):
        name = f"tree-{position:03}.silva"
        write_model(model, str(place / name), plain=plain)
        trees.append({"file": name, **asdict(metrics), **describe(metrics, options.fitness)})
    document = {
        "format": FORMAT,
        "run": collector.run,
        "data": collector.dataset.source,
        "rows": "held-out rows" if options.validation > 0 else "training rows",
        "perturbation": collector.perturbation.describe(),
        "options": {name: as_json(value) for name, value in asdict(options).items()},
        "trees_seen": collector.n_seen,
        "not_dominated": collector.n_found,
        "trees": trees,
    }
    write_output(str(place / INDEX), json.dumps(document, indent=1) + "\n")
    return [tree["file"] for tree in trees]


def describe(metrics: TreeMetrics, fitness: Fitness) -> dict[str, float]:
    """Fractions of the rows, and the fitness."""
    return {
        "accuracy": float(metrics.accuracy),
        "stability": float(metrics.stability),
        "robust_accuracy": float(metrics.robust_accuracy),
        "phi": metrics.phi(fitness),
    }


# Reading


def read_archive(folder: str) -> StoredArchive:
    """Read the index of an archive; the trees are read when they are needed."""
    path = Path(folder) / INDEX
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder; `metasilvae train --pareto {folder}` makes an archive")
    if not path.is_file():
        raise DataError(f"{folder}: holds no {INDEX}, so it is no complete archive of `metasilvae train --pareto`")
    try:
        document = json.loads(read_source(str(path), JSON_EXPANSION))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error}); the archive is damaged") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{path}: is no index of an archive ({FORMAT!r}); name a folder of `train --pareto`")
    try:
        trees = _take(document, "trees", list)
        return StoredArchive(
            folder,
            _take(document, "data", str),
            _take(document, "rows", str),
            _take(document, "perturbation", str),
            _read_fitness(_take(_take(document, "options", dict), "fitness", dict)),
            [_read_name(tree) for tree in trees],
            _read_metrics(trees),
        )
    except (ValueError, RequestError) as error:
        raise DataError(f"{path}: {error}; the archive is damaged") from None


def _take(document: Any, key: str, kind: type) -> Any:
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{key!r} is missing or is not what it should be")
    return value


def _read_fitness(weights: dict[str, Any]) -> Fitness:
    if set(weights) != {field.name for field in fields(Fitness)}:
        raise ValueError("the weights of the fitness are not complete")
    if not all(isinstance(weight, float | int) for weight in weights.values()):
        raise ValueError("a weight of the fitness is not a number")
    return Fitness(**weights)


def _read_name(tree: Any) -> str:
    name: str = _take(tree, "file", str)
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a tree")
    return name


def _read_metrics(trees: Sequence[Any]) -> list[TreeMetrics]:
    all_metrics = [TreeMetrics(*(_take(tree, name, int) for name in _COUNTS)) for tree in trees]
    if not all(each.is_possible for each in all_metrics):
        raise ValueError("the metrics of a tree contradict each other")
    return all_metrics
