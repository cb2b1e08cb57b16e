"""Training one tree: greedy seeds, a genetic search over them, and a final polish.

The kernels change and score trees (cython_ext/breeding.pyx); this module decides what is done in which order, hands the
work to threads and tells after each step how far it is. Every random draw depends on the seed and on the number of the
offspring it is for, so the result is the same for any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core import breeding
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.evaluation import evaluate
from metasilvae.model import NODE_DTYPE, LeafKind, Model
from metasilvae.parallel import available_cores
from metasilvae.perturbation import Ball, Perturbation
from metasilvae.splitting import split_rows
from metasilvae.training_options import TrainingOptions

# Trees that are polished at the end, and from which held-out rows choose.
FINALISTS = 4
# Samples times features that one random move may look at.
SWEEP_BUDGET = 3e5
# First trees are small, so that a good one is there at once.
FIRST_SPLITS = 8


@dataclass(frozen=True)
class Progress:
    """One step of a training run.

    Attributes
    ----------
    phase : str
        "seed", "generation" or "polish".
    step : int
        Number of the step in its phase.
    seconds : float
        Since the start of the run.
    fitness : float
        Of the best tree so far on the training samples, the cost of its leaves not counted.
    accuracy, stability, robustness : float
        Shares of the training samples.
    leaves : int
    offspring : int
        Trees made so far.
    mean_fitness : float
        Of the population.
    """

    phase: str
    step: int
    seconds: float
    fitness: float
    accuracy: float
    stability: float
    robustness: float
    leaves: int
    offspring: int
    mean_fitness: float


class Trainer:
    """A training run that can be watched and stopped.

    Iterate over `run` for progress; `model` gives the best tree so far at any time.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    perturbation : Ball
        What the tree is to withstand.
    options : TrainingOptions
    jobs : int or None
        Threads; None means all available cores. The result does not depend on it.
    """

    def __init__(
        self, dataset: Dataset, perturbation: Perturbation, options: TrainingOptions, jobs: int | None = 1
    ) -> None:
        if dataset.n_labels < 2:
            raise DataError(f"{dataset.source}: holds one class only ({dataset.labels[0]}); there is nothing to learn")
        self.dataset = dataset
        self.options = options
        self.perturbation = perturbation
        self.held_out: Dataset | None = None
        learned = dataset
        if options.validation > 0:
            kept, held = split_rows(dataset.y, options.validation, options.seed)
            learned, self.held_out = dataset.subset(kept), dataset.subset(held)
        self.n_samples = learned.n_samples
        boxes = perturbation.boxes(learned)
        if boxes.low_center is not boxes.high_center:
            raise RequestError("training needs a perturbation with the same radii for all samples, such as l_inf")
        factor = options.radius_factor
        limits = (factor * boxes.radius_down, factor * boxes.radius_up, boxes.minimum, boxes.maximum)
        self._samples = breeding.TrainingSet(learned.X, learned.y, dataset.n_labels, *limits)
        self._objective = self._make_objective()
        self._jobs = available_cores() if jobs is None else jobs
        self._benches: SimpleQueue[Any] = SimpleQueue()
        for _ in range(self._jobs):
            self._benches.put(breeding.Bench(self._samples))
        self._best = self._with_bench(lambda bench: breeding.Individual(self._samples).plant(bench))
        self._finalists: list[Any] = [self._best]
        self._n_offspring = 0
        self._start = time.perf_counter()

    # The run

    def run(self) -> Iterator[Progress]:
        """Train; yield after each step. Leaving the loop early keeps the best tree so far."""
        self._start = time.perf_counter()
        with ThreadPoolExecutor(self._jobs) as pool:
            population = self._first_generation
            for step, population in enumerate(self._seeded(pool)):
                yield self._progress("seed", step, population)
                if self._is_over():
                    break
            if not self._is_over():
                yield from self._evolve(pool, list(population))
            if not self._is_over():
                yield from self._polish(pool)

    @property
    def model(self) -> Model:
        """The best tree so far, with the class counts of all training samples in its leaves."""
        best = self._best
        if self.held_out is not None:
            best = max(self._finalists, key=lambda tree: self._held_out_fitness(tree))
            whole = breeding.TrainingSet(
                self.dataset.X, self.dataset.y, self.dataset.n_labels, *self.perturbation.boxes(self.dataset).arrays[2:]
            )
            feature, threshold, left, right, _ = best.nodes()
            objective = breeding.Objective(1.0, 0.0, 0.0, range(self.dataset.n_features))
            best = breeding.Individual(whole).take_nodes(
                feature, threshold, left, right, objective, breeding.Bench(whole)
            )
        return _as_model(best, self.dataset)

    # Parts of the run

    def _make_objective(self) -> Any:
        options, n = self.options, self.n_samples
        features = np.arange(self.dataset.n_features, dtype=np.int32)
        if options.allowed_features:
            if options.allowed_features > len(features):
                raise RequestError(
                    f"{options.allowed_features} features are to be drawn, {self.dataset.source} has {len(features)}"
                )
            rng = np.random.default_rng([options.seed, 1])
            features = np.sort(rng.choice(features, options.allowed_features, replace=False)).astype(np.int32)
        correct, stable, robust = options.fitness.weights
        moved = options.caution * max(correct, 0.0)
        correct, robust = correct - moved, robust + moved
        return breeding.Objective(
            correct / n,
            stable / n,
            robust / n,
            features,
            min_leaf=options.min_samples_leaf,
            max_leaves=options.max_leaves,
            max_depth=options.max_depth,
            leaf_cost=options.leaf_cost * max(correct + robust, stable, 0.0) / n,
        )

    @property
    def _first_generation(self) -> list[Any]:
        return [self._best]

    def _seeded(self, pool: ThreadPoolExecutor) -> Iterator[list[Any]]:
        """The first generation, tree by tree."""
        if not self.options.greedy:
            yield [self._best] * self.options.initial_population
            return
        largest = self.options.seed_leaves or max(
            2 * FIRST_SPLITS, self.n_samples // (8 * self.options.min_samples_leaf)
        )
        sizes = [FIRST_SPLITS, min(largest, self.options.max_leaves) - 1]
        tasks = [
            pool.submit(self._with_bench, self._grower(blend, n_splits))
            for n_splits in dict.fromkeys(sizes)
            for blend in self.options.blends
        ]
        grown: list[Any] = []
        try:
            for task in tasks:
                grown.append(task.result())
                self._n_offspring += 1
                self._note(grown)
                yield grown
        finally:
            for task in tasks:
                task.cancel()

    def _grower(self, blend: float, n_splits: int) -> Callable[[Any], Any]:
        def grow(bench: Any) -> Any:
            tree = breeding.Individual(self._samples).plant(bench)
            entropy = self.options.impurity == "entropy"
            if n_splits > 0:
                tree.grow(0, self._objective, bench, by_score=False, reach=blend, entropy=entropy, n_splits=n_splits)
            tree.trim(self._objective, bench)
            return tree

        return grow

    def _evolve(self, pool: ThreadPoolExecutor, population: list[Any]) -> Iterator[Progress]:
        options = self.options
        population = self._ranked(population)[: options.population]
        spare: list[Any] = []
        without_improvement = 0
        for generation in range(options.generations):
            fitness = np.array([tree.fitness(self._objective) for tree in population])
            elite = population[: options.elitism]
            n_children = options.population - len(elite)
            while len(spare) < n_children:
                spare.append(breeding.Individual(self._samples))
            children = spare[:n_children]
            self._breed(pool, population, fitness, children, generation)
            before = self._best.fitness(self._objective)
            self._n_offspring += n_children
            kept = {id(tree) for tree in (*elite, *children, *self._finalists)}
            recycled = [tree for tree in (*population, *spare[n_children:]) if id(tree) not in kept]
            spare = list({id(tree): tree for tree in recycled}.values())
            population = self._ranked([*elite, *children])
            self._note(population)
            yield self._progress("generation", generation, population)
            improved = self._best.fitness(self._objective) > before
            without_improvement = 0 if improved else without_improvement + 1
            if self._is_over() or (options.patience and without_improvement >= options.patience):
                return

    def _breed(
        self,
        pool: ThreadPoolExecutor,
        parents: list[Any],
        fitness: NDArray[np.float64],
        children: list[Any],
        generation: int,
    ) -> None:
        options = self.options
        probability = options.mutation_probability
        if options.mutation_probability_rule == "encourage-variance":
            probability = float(np.clip(1 - (fitness.max() - fitness.min()), 0, 1))
        recipe = breeding.Breeding(
            selection=options.selection,
            tournament_size=options.tournament_size,
            crossover_probability=options.crossover,
            mutation_probability=probability,
            mutation=options.mutation,
            aggressiveness=options.aggressiveness,
            split_by_score=options.split_by_score,
            impurity=options.impurity,
            max_burst=options.max_burst,
            sweep_budget=SWEEP_BUDGET,
            blends=options.blends,
        )

        def breed(position: int) -> Callable[[Any], None]:
            return lambda bench: recipe.breed(
                parents, fitness, children, self._objective, bench, options.seed, generation, position, position + 1
            )

        for task in [pool.submit(self._with_bench, breed(position)) for position in range(len(children))]:
            task.result()

    def _polish(self, pool: ThreadPoolExecutor) -> Iterator[Progress]:
        """Bring the best trees to a local optimum of all single moves of a test."""

        def polish(tree: Any) -> Callable[[Any], Any]:
            def work(bench: Any) -> Any:
                better = breeding.Individual(self._samples).become(tree)
                better.polish(self._objective, bench)
                return better

            return work

        trees = list(self._finalists)
        for step in range(self.options.polish):
            before = [tree.fitness(self._objective) for tree in trees]
            tasks = [pool.submit(self._with_bench, polish(tree)) for tree in trees]
            polished = [task.result() for task in tasks]
            trees = [
                new if new.fitness(self._objective) > fitness else old
                for old, new, fitness in zip(trees, polished, before, strict=True)
            ]
            self._finalists = self._ranked(trees)
            self._note(trees)
            yield self._progress("polish", step, trees)
            if self._is_over() or [tree.fitness(self._objective) for tree in trees] == before:
                return

    # Bookkeeping

    def _with_bench(self, work: Callable[[Any], Any]) -> Any:
        bench = self._benches.get()
        try:
            return work(bench)
        finally:
            self._benches.put(bench)

    def _ranked(self, trees: Sequence[Any]) -> list[Any]:
        """Best first; of equally fit trees the smaller, then the earlier one."""
        return sorted(trees, key=lambda tree: (-tree.fitness(self._objective), tree.n_leaves))

    def _note(self, trees: Sequence[Any]) -> None:
        """Remember the best trees; trees in a population may be overwritten later, so these are copies."""
        best = self._ranked(trees)[0]
        if best.fitness(self._objective) > self._best.fitness(self._objective):
            self._best = breeding.Individual(self._samples).become(best)
            self._finalists = [self._best, *self._finalists][:FINALISTS]

    def _held_out_fitness(self, tree: Any) -> float:
        assert self.held_out is not None
        figures = evaluate(_as_model(tree, self.dataset), self.held_out, [self.perturbation], jobs=1)[0]
        assert figures.stability is not None
        assert figures.robustness is not None
        return self.options.fitness.value(figures.accuracy, figures.stability, figures.robustness)

    def _is_over(self) -> bool:
        is_late = time.perf_counter() - self._start >= self.options.time_limit
        return is_late or self._fitness(self._best) >= self.options.target

    def _shares(self, tree: Any) -> tuple[float, float, float]:
        correct, stable, robust = tree.tallies
        return correct / self.n_samples, stable / self.n_samples, robust / self.n_samples

    def _fitness(self, tree: Any) -> float:
        return self.options.fitness.value(*self._shares(tree))

    def _progress(self, phase: str, step: int, population: Sequence[Any]) -> Progress:
        accuracy, stability, robustness = self._shares(self._best)
        return Progress(
            phase,
            step,
            time.perf_counter() - self._start,
            self._fitness(self._best),
            accuracy,
            stability,
            robustness,
            self._best.n_leaves,
            self._n_offspring,
            float(np.mean([self._fitness(tree) for tree in population])),
        )


def _as_model(tree: Any, dataset: Dataset) -> Model:
    feature, threshold, left, right, counts = tree.nodes()
    nodes = np.zeros(len(feature), dtype=NODE_DTYPE)
    for name, column in zip(("feature", "threshold", "left", "right"), (feature, threshold, left, right), strict=True):
        nodes[name] = column
    is_leaf = feature < 0
    nodes["leaf"] = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
    roots = np.zeros(1, dtype=np.int32)
    return Model(nodes, roots, counts[is_leaf], LeafKind.COUNTS, dataset.n_features, dataset.labels)


def train(dataset: Dataset, epsilon: float, options: TrainingOptions | None = None, jobs: int | None = 1) -> Model:
    """Train one tree to the end."""
    trainer = Trainer(dataset, Ball(epsilon), options or TrainingOptions(), jobs)
    for _ in trainer.run():
        pass
    return trainer.model
