"""Training one tree: a first generation, a genetic search from it, and a final polish.

The kernels change and score trees (training/evolution.pyx); this module decides what is done in which order, hands the
work to threads and tells after each step how far it is. Every random draw depends on the seed and on the number of the
offspring it is for, so the result is the same for any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from itertools import cycle, islice
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError
from metasilvae.evaluation import evaluate
from metasilvae.finalists import Finalists
from metasilvae.first_generation import blank, plan_trees, take_trees
from metasilvae.individuals import as_model, count_again
from metasilvae.model import Model
from metasilvae.parallel import available_cores, wait_for
from metasilvae.perturbation import Enlarged, Perturbation
from metasilvae.search_setup import make_objective, make_recipe
from metasilvae.search_state import SearchState
from metasilvae.splitting import split_dataset
from metasilvae.training_options import TrainingOptions
from metasilvae.training_progress import Progress, StopReason
from metasilvae.verification import ask, verify

# Rows are held out by a draw of their own, so that runs with different seeds are judged by the same rows.
HOLDING_SEED = 0


class Trainer:
    """A training run that can be watched and stopped.

    Iterate over `run` for progress; `model` gives the best tree so far at any time. Between two steps, and after the
    run, `state` tells all that another trainer on the same data and options needs to `resume` it.

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
    observed : function
        What the observer knows, to be kept with the state.
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
        self.observe: Callable[[Sequence[evolution.Individual]], object] = lambda trees: None
        self.observed: Callable[[], dict[str, Any] | None] = lambda: None
        self.held_out: Dataset | None = None
        self._learned = dataset
        if options.validation > 0:
            self._learned, self.held_out = split_dataset(dataset, options.validation, HOLDING_SEED)
        self.n_samples = self._learned.n_samples
        self._boxes = Enlarged(perturbation, options.radius_factor)
        limits = self._boxes.boxes(self._learned).arrays[2:]
        if like is None or like.options.validation != options.validation:
            self._samples = evolution.TrainingSet(self._learned.X, self._learned.y, dataset.n_labels, *limits)
        else:
            self._samples = like._samples.with_boxes(*limits)
        self._objective = make_objective(options, self._learned)
        self._jobs = available_cores() if jobs is None else jobs
        self._benches: SimpleQueue[evolution.Workspace] = SimpleQueue()
        for _ in range(self._jobs):
            self._benches.put(evolution.Workspace(self._samples))
        parts = self._samples, self._objective, options
        self._first_trees = plan_trees(*parts) if forest is None else take_trees(forest, dataset, *parts)
        self._best: evolution.Individual = self._with_bench(blank(self._samples))
        self._finalists = Finalists(self._score, None if self.held_out is None else self._held_out_fitness)
        self._finalists.offer(self._best)
        self._n_offspring = 0
        # The phase, how many of its steps are done, and the trees that the next one starts from.
        self._phase = "seed"
        self._step = 0
        self._trees: list[evolution.Individual] = []
        self._without_improvement = 0
        self._n_told = 0
        self._last_state: dict[str, Any] | None = None
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
            if self._phase == "seed":
                yield from self._grow_first(pool)
            if self._phase == "generation" and not self._is_over():
                yield from self._evolve(pool)
            if self._phase == "polish" and not self._is_over():
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

    @property
    def state(self) -> dict[str, Any]:
        """Where the run stands after its last step that was not cut short."""
        return self._pack_state() if self._last_state is None else self._last_state

    def resume(self, document: dict[str, Any]) -> None:
        """Stand where another run on the same data and options stood."""
        found = self._with_bench(
            lambda bench: SearchState.unpack(document, self._samples, self._objective, bench, self.options)
        )
        self._phase, self._step, self._trees = found.phase, found.step, found.trees
        self._without_improvement = found.without_improvement
        self._n_offspring = found.n_offspring
        self._n_told = found.n_steps
        self._best = found.best
        self._finalists.take_over(found.finalists, found.seen)
        self._preparation += found.seconds

    # Parts of the run

    @property
    def _is_patient(self) -> bool:
        return not 0 < self.options.patience <= self._without_improvement

    def _enter(self, phase: str, trees: list[evolution.Individual]) -> None:
        self._phase, self._step, self._trees = phase, 0, trees

    def _pack_state(self) -> dict[str, Any]:
        search = SearchState(
            self._phase, self._step, self._trees, self._without_improvement, self._n_offspring,
            self._best, self._finalists.trees, self._finalists.seen, self._n_told, time.perf_counter() - self._start,
        )  # fmt: skip
        return {**search.pack(), "observed": self.observed()}

    def _keep_state(self) -> None:
        """Remember where the run stands, if it was stopped: what comes now was cut short, and would not come again."""
        if self.stop_reason is not None and self._last_state is None:
            self._last_state = self._pack_state()

    def _grow_first(self, pool: futures.Executor) -> Iterator[Progress]:
        """The trees of the first generation, one by one."""
        if self._step > 0 and self._is_over():
            return
        for task in [pool.submit(self._with_bench, work) for work in self._first_trees[self._step :]]:
            tree = self._wait(task)
            self._keep_state()
            self._trees.append(tree)
            self._step += 1
            self._n_offspring += 1
            self._note(self._trees, is_seed=True)
            yield self._progress("seed", self._step - 1, self._trees)
            if self._is_over():
                return
        n_first = self.options.initial_population
        self._enter("generation", list(islice(cycle(self._ranked(self._trees)[:n_first]), n_first)))

    def _evolve(self, pool: futures.Executor) -> Iterator[Progress]:
        options = self.options
        spare: list[evolution.Individual] = []
        while self._step < options.generations and self._is_patient:
            population = self._trees
            fitness = np.array([self._score(tree) for tree in population])
            elite = list({id(tree): tree for tree in population}.values())[: options.elitism]
            n_children = options.population - len(elite)
            while len(spare) < n_children:
                spare.append(evolution.Individual(self._samples))
            children = spare[:n_children]
            self._breed(pool, population, fitness, children, self._step)
            if self.stop_reason is not None:
                return  # not all children are there
            before = self._score(self._best)
            self._n_offspring += n_children
            kept = {id(tree) for tree in (*elite, *children)}
            recycled = [tree for tree in (*population, *spare[n_children:]) if id(tree) not in kept]
            spare = list({id(tree): tree for tree in recycled}.values())
            self._trees = self._ranked([*elite, *children])
            self._step += 1
            self._note(self._trees)
            improved = self._score(self._best) > before
            self._without_improvement = 0 if improved else self._without_improvement + 1
            yield self._progress("generation", self._step - 1, self._trees)
            if self._is_over():
                return
        self._enter("polish", self._finalists.trees)

    def _breed(
        self,
        pool: futures.Executor,
        parents: list[evolution.Individual],
        fitness: NDArray[np.float64],
        children: list[evolution.Individual],
        generation: int,
    ) -> None:
        recipe = make_recipe(self.options, fitness)

        def breed(position: int) -> Callable[[evolution.Workspace], None]:
            def work(bench: evolution.Workspace) -> None:
                if self.stop_reason is None:
                    recipe.reproduce(
                        parents, fitness, children, self._objective, bench,
                        self.options.seed, generation, position, position + 1,
                    )  # fmt: skip

            return work

        for task in [pool.submit(self._with_bench, breed(position)) for position in range(len(children))]:
            self._wait(task)

    def _polish(self, pool: futures.Executor) -> Iterator[Progress]:
        """Bring the best trees to a local optimum of all single moves of a test."""

        def polish(tree: evolution.Individual) -> Callable[[evolution.Workspace], evolution.Individual]:
            def work(bench: evolution.Workspace) -> evolution.Individual:
                better = evolution.Individual(self._samples).become(tree)
                better.improve_locally(self._objective, bench)
                return better

            return work

        while self._step < self.options.polish:
            before = [self._score(tree) for tree in self._trees]
            tasks = [pool.submit(self._with_bench, polish(tree)) for tree in self._trees]
            polished = [self._wait(task) for task in tasks]
            self._keep_state()
            self._trees = [
                new if self._score(new) > score else old
                for old, new, score in zip(self._trees, polished, before, strict=True)
            ]
            step = self._step
            is_last = [self._score(tree) for tree in self._trees] == before
            self._step = self.options.polish if is_last else step + 1
            self._note(self._trees, is_seed=True)
            yield self._progress("polish", step, self._trees)
            if self._is_over():
                return
        self._enter("end", [])

    # Threads and time

    def _with_bench(self, work: Callable[[evolution.Workspace], Any]) -> Any:
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

    def _score(self, tree: evolution.Individual) -> float:
        score: float = self.options.fitness.constant + tree.fitness(self._objective)
        return score

    def _ranked(self, trees: Sequence[evolution.Individual]) -> list[evolution.Individual]:
        """Best first; of equally good trees the smaller, then the earlier one."""
        return sorted(trees, key=lambda tree: (-self._score(tree), tree.n_leaves))

    def _note(self, trees: Sequence[evolution.Individual], is_seed: bool = False) -> None:
        """Remember the best tree; trees in a population may be overwritten later, so this is a copy."""
        self.observe(trees)
        best = self._ranked(trees)[0]
        if (self._score(best), -best.n_leaves) > (self._score(self._best), -self._best.n_leaves):
            self._best = evolution.Individual(self._samples).become(best)
        for tree in trees if is_seed else (best,):
            self._finalists.offer(tree)

    def _held_out_fitness(self, tree: evolution.Individual) -> float:
        assert self.held_out is not None
        figures = evaluate(as_model(tree, self.dataset), self.held_out, [self.perturbation], jobs=1)[0]
        return figures.phi(self.options.fitness)

    def _check_tallies(self) -> None:
        """The verifier, which knows nothing of increments, must find the figures that the search went by."""
        model = as_model(self._best, self._learned)
        tally = verify(ask(model, self._learned, self._boxes), self._jobs).tally
        if (tally.correct, tally.stable, tally.robust) != self._best.counts:
            raise AssertionError("the trainer and the verifier disagree about the best tree")

    def _shares(self, tree: evolution.Individual) -> tuple[float, float, float]:
        correct, stable, robust = tree.counts
        return correct / self.n_samples, stable / self.n_samples, robust / self.n_samples

    def _fitness(self, tree: evolution.Individual) -> float:
        return self.options.fitness.value(*self._shares(tree))

    def _progress(self, phase: str, step: int, population: Sequence[evolution.Individual]) -> Progress:
        self._n_told += 1
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
