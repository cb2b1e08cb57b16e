"""The experiments of the paper as small tasks: their list and their settings. Nothing is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_forest_training import FOREST_EPSILONS

SMALL_SETS = ("breast-cancer", "wine", "ionosphere", "diabetes")
LARGE_SETS = ("cod-rna", "collision-detection", "sensorless-10k", "mnist-1-5", "mnist-2-6")
# Run only if they are named: the paper's own split of sensorless, and the two sets that it has forests for.
OTHER_SETS = ("sensorless", "mnist", "fashion-mnist")
PAPER_EPSILONS = {**FOREST_EPSILONS, "sensorless": FOREST_EPSILONS["sensorless-10k"]}
PAPER_WEIGHT = 0.9
PRESET, PUBLISHED_PRESET = "default", "paper"
# Numbers of trees, and depths, of the random forests that the authors published for collision-detection.
GRID = (5, 10, 15, 20, 25, 50, 75, 100)
CRITERIA = ("gini", "entropy")
OUR_TREES = 25
# Share of the training rows that chooses among forests, and how many of them at most.
HELD_OUT = 0.25
MOST_HELD_OUT = 1000
# What may be spent on a row of a forest: steps, unlike seconds, give the same verdicts on every machine.
STEPS_PER_ROW = 100_000


@dataclass(frozen=True)
class Task:
    """One piece of work, small enough to be done again."""

    kind: str
    dataset: str
    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, kind: str, dataset: str, **settings: Any) -> Task:
        return cls(kind, dataset, tuple(sorted(settings.items())))

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings)[name]

    @property
    def title(self) -> str:
        return " ".join([self.kind, self.dataset, *(f"{name}={value}" for name, value in self.settings)])


# What came of the tasks that are done.
Results = Mapping[Task, dict[str, Any]]


@dataclass(frozen=True)
class Mode:
    """How much is run."""

    name: str
    sets: tuple[str, ...]
    few_rows_seeds: int
    many_rows_seeds: int
    weights: tuple[float, ...]
    weight_sets: tuple[str, ...]
    weight_seeds: int
    convergence_sets: tuple[str, ...]
    depths: tuple[int, ...]

    def seeds(self, dataset: str, first: int) -> range:
        """Seeds of the trainings on a set."""
        return range(first, first + (self.few_rows_seeds if dataset in SMALL_SETS else self.many_rows_seeds))


MODES = {
    "full": Mode(
        "full", SMALL_SETS + LARGE_SETS, 20, 3, tuple(tenth / 10 for tenth in range(11)), SMALL_SETS, 3,
        ("breast-cancer", "diabetes"), GRID,
    ),
    "quick": Mode(
        "quick", SMALL_SETS, 5, 1, (0.0, 0.25, 0.5, 0.75, PAPER_WEIGHT, 1.0), ("breast-cancer", "wine", "diabetes"), 1,
        ("breast-cancer", "diabetes"), (5, 25),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A mode, the first seed, and the sets; of no other sets are there tasks."""

    mode: Mode
    seed: int
    sets: tuple[str, ...]


# Experiments


def _plan_data(request: Request, results: Results) -> Iterator[Task]:
    for name in request.sets:
        yield Task.of("data", name)


def _plan_training(request: Request, results: Results) -> Iterator[Task]:
    """Seed by seed, so that all sets have a figure soon; no tree is trained for the sets with forests only."""
    seeds = {name: request.mode.seeds(name, request.seed) for name in request.sets if name in TREE_SETS}
    for position in range(max(map(len, seeds.values()), default=0)):
        for name, each in seeds.items():
            if position < len(each):
                yield Task.of("tree", name, preset=PRESET, seed=each[position], w_acc=PAPER_WEIGHT)


def _plan_weights(request: Request, results: Results) -> Iterator[Task]:
    for name in _both(request.mode.weight_sets, request.sets):
        for weight in request.mode.weights:
            for seed in range(request.seed, request.seed + request.mode.weight_seeds):
                yield Task.of("tree", name, preset=PRESET, seed=seed, w_acc=weight)


def _plan_convergence(request: Request, results: Results) -> Iterator[Task]:
    for name in _both(request.mode.convergence_sets, request.sets):
        for preset in (PRESET, PUBLISHED_PRESET):
            yield Task.of("convergence", name, preset=preset, seed=request.seed)


def _plan_random_forests(request: Request, results: Results) -> Iterator[Task]:
    """The grid, and for each set of which the grid is done, the forest that it chooses."""
    for name in request.sets:
        grid = list_grid(request, name)
        yield from grid
        chosen = choose_forest(request, name, results)
        if chosen is not None:
            yield chosen


def _plan_forests(request: Request, results: Results) -> Iterator[Task]:
    for name in request.sets:
        yield Task.of("forest", name, trees=50 if name in OTHER_SETS else OUR_TREES, seed=request.seed)


Plan = Callable[[Request, Results], Iterator[Task]]


def _join(*plans: Plan) -> Plan:
    def plan(request: Request, results: Results) -> Iterator[Task]:
        for each in plans:
            yield from each(request, results)

    return plan


TREE_SETS = (*SMALL_SETS, *LARGE_SETS, "sensorless")
EXPERIMENTS: dict[str, Plan] = {
    "data": _plan_data,
    "training": _plan_training,
    "weights": _plan_weights,
    "convergence": _plan_convergence,
    "variance": _plan_training,
    "forests": _join(_plan_random_forests, _plan_training, _plan_forests),
    "efficiency": _join(_plan_random_forests, _plan_training, _plan_forests),
    "boosting": _join(_plan_training, _plan_forests),
}


def plan_tasks(experiments: Sequence[str], request: Request, results: Results) -> list[Task]:
    """Tasks of some experiments, each once; results may call for more tasks, never for fewer."""
    tasks = [task for name in experiments for task in EXPERIMENTS[name](request, results)]
    return list(dict.fromkeys(tasks))


def _both(names: Sequence[str], others: Sequence[str]) -> list[str]:
    return [name for name in names if name in others]


# Choices among what was measured; test rows have no say in them


def list_grid(request: Request, dataset: str) -> list[Task]:
    """Tasks that cover the grid of random forests for a set; each tries all numbers of trees."""
    return [
        Task.of("random-forest", dataset, criterion=criterion, depth=depth, seed=request.seed)
        for depth in request.mode.depths
        for criterion in CRITERIA
    ]


def choose_forest(request: Request, dataset: str, results: Results) -> Task | None:
    """The random forest with the best phi on held-out rows, among equals the smallest; None until all were tried."""
    grid = list_grid(request, dataset)
    if not grid or any(task not in results for task in grid):
        return None
    candidates = [
        (-phi(tried), tried["trees"], task["depth"], position)
        for position, task in enumerate(grid)
        for tried in results[task]["tried"]
    ]
    _, trees, depth, position = min(candidates)
    return Task.of(
        "chosen-forest", dataset, criterion=grid[position]["criterion"], depth=depth, trees=trees, seed=request.seed
    )


def share(counts: Mapping[str, int], name: str) -> float:
    """Share of the rows that are correct, stable or robust."""
    return counts[name] / counts["size"]


def phi(counts: Mapping[str, int]) -> float:
    """What a tree is trained for, by the paper's weights."""
    return PAPER_WEIGHT * share(counts, "correct") + (1 - PAPER_WEIGHT) * share(counts, "stable")
