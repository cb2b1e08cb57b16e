"""Training one tree: a first generation, a genetic search from it, and a final polish.

The kernels change and score trees (cython_ext/breeding.pyx); this module decides what is done in which order, hands the
work to threads and tells after each step how far it is. Every random draw depends on the seed and on the number of the
offspring it is for, so the result is the same for any number of threads.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from itertools import cycle, islice
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core import breeding
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.evaluation import evaluate
from metasilvae.finalists import Finalists
from metasilvae.first_generation import blank, plan_trees, take_trees
from metasilvae.individuals import as_model, count_again
from metasilvae.model import Model
from metasilvae.parallel import available_cores, wait_for
from metasilvae.perturbation import Enlarged, Perturbation
from metasilvae.splitting import split_dataset
from metasilvae.training_options import TrainingOptions
from metasilvae.verification import ask, verify

# Samples times features that one random move may look at.
SWEEP_BUDGET = 3e5
# Rows are held out by a draw of their own, so that runs with different seeds are judged by the same rows.
HOLDING_SEED = 0


class StopReason(enum.Enum):
    """Why a training run ended."""

    ITERATIONS = "iterations"
    PATIENCE = "patience"
    TARGET = "target"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


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
        Since the start of the run, with what it took to prepare the samples.
    fitness : float
        Of the best tree so far on the training samples, with the boxes of the training; the cost of its leaves is not
        counted.
    accuracy, stability, robustness : float
        Shares of the training samples.
    leaves : int
    offspring : int
        Trees made so far.
    mean_fitness : float
        Of the population.
    score : float
        What the search maximizes: fitness with caution and the cost of leaves. It never falls.
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
    score: float


class Trainer:
    """A training run that can be watched and stopped.

    Iterate over `run` for progress; `model` gives the best tree so far at any time.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    perturbation : Perturbation
        What the tree is to withstand; its radii must be the same for all samples.
    options : TrainingOptions
    jobs : int or None
        Threads; None means all available cores. The result does not depend on it.
    forest : Model or None
        Trees to start from, instead of those that the options choose.
    like : Trainer or None
        Another run on the same data set; if it holds out the same rows, its preparation of the others is used again.

    Attributes
    ----------
    stop_reason : StopReason or None
        Why the run ended; None before.
    observe : function
        Called with the trees of each step, in an order that does not depend on the jobs; they are overwritten later.
    """

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: TrainingOptions,
        jobs: int | None = 1,
        forest: Model | None = None,
        like: Trainer | None = None,
    ) -> None:
        begin = time.perf_counter()
        if dataset.n_labels < 2:
            raise DataError(f"{dataset.source}: holds one class only ({dataset.labels[0]}); there is nothing to learn")
        self.dataset = dataset
        self.options = options
        self.perturbation = perturbation
        self.stop_reason: StopReason | None = None
        self.observe: Callable[[Sequence[Any]], object] = lambda trees: None
        self.held_out: Dataset | None = None
        self._learned = dataset
        if options.validation > 0:
            self._learned, self.held_out = split_dataset(dataset, options.validation, HOLDING_SEED)
        self.n_samples = self._learned.n_samples
        self._boxes = Enlarged(perturbation, options.radius_factor)
        limits = self._boxes.boxes(self._learned).arrays[2:]
        if like is None or like.options.validation != options.validation:
            self._samples = breeding.TrainingSet(self._learned.X, self._learned.y, dataset.n_labels, *limits)
        else:
            self._samples = like._samples.with_boxes(*limits)
        self._objective = self._make_objective()
        self._jobs = available_cores() if jobs is None else jobs
        self._benches: SimpleQueue[Any] = SimpleQueue()
        for _ in range(self._jobs):
            self._benches.put(breeding.Bench(self._samples))
        parts = self._samples, self._objective, options
        self._first_trees = plan_trees(*parts) if forest is None else take_trees(forest, dataset, *parts)
        self._best = self._with_bench(blank(self._samples))
        self._finalists = Finalists(self._score, None if self.held_out is None else self._held_out_fitness)
        self._finalists.offer(self._best)
        self._n_offspring = 0
        self._is_patient = True
        self._preparation = time.perf_counter() - begin
        self._start = begin

    # The run

    @property
    def n_steps(self) -> int:
        """Number of progress records of a run that nothing ends early."""
        return len(self._first_trees) + self.options.generations + self.options.polish

    def run(self) -> Iterator[Progress]:
        """Train; yield after each step. Leaving the loop early keeps the best tree so far."""
        self._start = time.perf_counter() - self._preparation
        self.observe([self._best])
        pool = futures.ThreadPoolExecutor(self._jobs)
        try:
            grown: list[Any] = []
            for step, tree in enumerate(self._start_trees(pool)):
                grown.append(tree)
                self._n_offspring += 1
                self._note(grown, is_seed=True)
                yield self._progress("seed", step, grown)
                if self._is_over():
                    break
            if not self._is_over():
                n_first = self.options.initial_population
                yield from self._evolve(pool, list(islice(cycle(self._ranked(grown)[:n_first]), n_first)))
            if not self._is_over():
                yield from self._polish(pool)
        finally:
            self._objective.stop()
            pool.shutdown(cancel_futures=True)
        if self.stop_reason is None:
            self.stop_reason = StopReason.ITERATIONS if self._is_patient else StopReason.PATIENCE
        self._check_tallies()

    def stop(self) -> None:
        """End the run soon; may be called at any time, from a signal handler or from another thread too."""
        self._end(StopReason.INTERRUPTED)

    @property
    def model(self) -> Model:
        """The best tree so far, with the class counts of all training samples in its leaves."""
        model = as_model(self._finalists.chosen.tree, self.dataset)
        return model if self.held_out is None else count_again(model, self.dataset)

    @property
    def held_out_fitness(self) -> float | None:
        """Fitness of the best tree so far on the held-out rows, if there are any."""
        return None if self.held_out is None else self._finalists.chosen.held_out

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
            leaf_cost=options.price_of_leaf(n),
        )

    def _start_trees(self, pool: futures.Executor) -> Iterator[Any]:
        """The trees of the first generation, one by one."""
        tasks = [pool.submit(self._with_bench, work) for work in self._first_trees]
        for task in tasks:
            yield self._wait(task)

    def _evolve(self, pool: futures.Executor, population: list[Any]) -> Iterator[Progress]:
        options = self.options
        spare: list[Any] = []
        without_improvement = 0
        for generation in range(options.generations):
            fitness = np.array([self._score(tree) for tree in population])
            elite = list({id(tree): tree for tree in population}.values())[: options.elitism]
            n_children = options.population - len(elite)
            while len(spare) < n_children:
                spare.append(breeding.Individual(self._samples))
            children = spare[:n_children]
            self._breed(pool, population, fitness, children, generation)
            if self.stop_reason is not None:
                return  # not all children are there
            before = self._score(self._best)
            self._n_offspring += n_children
            kept = {id(tree) for tree in (*elite, *children)}
            recycled = [tree for tree in (*population, *spare[n_children:]) if id(tree) not in kept]
            spare = list({id(tree): tree for tree in recycled}.values())
            population = self._ranked([*elite, *children])
            self._note(population)
            yield self._progress("generation", generation, population)
            improved = self._score(self._best) > before
            without_improvement = 0 if improved else without_improvement + 1
            self._is_patient = not (options.patience and without_improvement >= options.patience)
            if self._is_over() or not self._is_patient:
                return

    def _breed(
        self,
        pool: futures.Executor,
        parents: list[Any],
        fitness: NDArray[np.float64],
        children: list[Any],
        generation: int,
    ) -> None:
        options = self.options
        probability = options.mutation_probability
        if options.mutation_probability_rule == "encourage-variance":
            probability *= float(np.clip(1 - (fitness.max() - fitness.min()), 0, 1))
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
            def work(bench: Any) -> None:
                if self.stop_reason is None:
                    recipe.breed(
                        parents, fitness, children, self._objective, bench,
                        options.seed, generation, position, position + 1,
                    )  # fmt: skip

            return work

        for task in [pool.submit(self._with_bench, breed(position)) for position in range(len(children))]:
            self._wait(task)

    def _polish(self, pool: futures.Executor) -> Iterator[Progress]:
        """Bring the best trees to a local optimum of all single moves of a test."""

        def polish(tree: Any) -> Callable[[Any], Any]:
            def work(bench: Any) -> Any:
                better = breeding.Individual(self._samples).become(tree)
                better.polish(self._objective, bench)
                return better

            return work

        trees = self._finalists.trees
        for step in range(self.options.polish):
            before = [self._score(tree) for tree in trees]
            tasks = [pool.submit(self._with_bench, polish(tree)) for tree in trees]
            polished = [self._wait(task) for task in tasks]
            trees = [
                new if self._score(new) > score else old
                for old, new, score in zip(trees, polished, before, strict=True)
            ]
            self._note(trees, is_seed=True)
            yield self._progress("polish", step, trees)
            if self._is_over() or [self._score(tree) for tree in trees] == before:
                return

    # Threads and time

    def _with_bench(self, work: Callable[[Any], Any]) -> Any:
        bench = self._benches.get()
        try:
            return work(bench)
        finally:
            self._benches.put(bench)

    def _wait(self, task: futures.Future[Any]) -> Any:
        """Result of a task; when time is over, the task is told to end early."""
        deadline = self._start + self.options.time_limit
        return wait_for(task, deadline, lambda: self._end(StopReason.TIME_LIMIT))

    def _end(self, reason: StopReason) -> None:
        if self.stop_reason is None:
            self.stop_reason = reason
        self._objective.stop()

    def _is_over(self) -> bool:
        if self.stop_reason is None:
            if time.perf_counter() - self._start >= self.options.time_limit:
                self._end(StopReason.TIME_LIMIT)
            elif self._fitness(self._best) >= self.options.target:
                self._end(StopReason.TARGET)
        return self.stop_reason is not None

    # Figures

    def _score(self, tree: Any) -> float:
        score: float = self.options.fitness.constant + tree.fitness(self._objective)
        return score

    def _ranked(self, trees: Sequence[Any]) -> list[Any]:
        """Best first; of equally good trees the smaller, then the earlier one."""
        return sorted(trees, key=lambda tree: (-self._score(tree), tree.n_leaves))

    def _note(self, trees: Sequence[Any], is_seed: bool = False) -> None:
        """Remember the best tree; trees in a population may be overwritten later, so this is a copy."""
        self.observe(trees)
        best = self._ranked(trees)[0]
        if (self._score(best), -best.n_leaves) > (self._score(self._best), -self._best.n_leaves):
            self._best = breeding.Individual(self._samples).become(best)
        for tree in trees if is_seed else (best,):
            self._finalists.offer(tree)

    def _held_out_fitness(self, tree: Any) -> float:
        assert self.held_out is not None
        figures = evaluate(as_model(tree, self.dataset), self.held_out, [self.perturbation], jobs=1)[0]
        return figures.phi(self.options.fitness)

    def _check_tallies(self) -> None:
        """The verifier, which knows nothing of increments, must find the figures that the search went by."""
        model = as_model(self._best, self._learned)
        tally = verify(ask(model, self._learned, self._boxes), self._jobs).tally
        if (tally.correct, tally.stable, tally.robust) != self._best.tallies:
            raise AssertionError("the trainer and the verifier disagree about the best tree")

    def _shares(self, tree: Any) -> tuple[float, float, float]:
        correct, stable, robust = tree.tallies
        return correct / self.n_samples, stable / self.n_samples, robust / self.n_samples

    def _fitness(self, tree: Any) -> float:
        return self.options.fitness.value(*self._shares(tree))

    def _progress(self, phase: str, step: int, population: Sequence[Any]) -> Progress:
        return Progress(
            phase,
            step,
            time.perf_counter() - self._start,
            self._fitness(self._best),
            *self._shares(self._best),
            self._best.n_leaves,
            self._n_offspring,
            float(np.mean([self._fitness(tree) for tree in population])),
            self._score(self._best),
        )
