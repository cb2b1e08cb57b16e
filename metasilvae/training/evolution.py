"""Training one tree: a first generation, a genetic search from it, and a final polish.

The kernels change and score trees (training/evolution.pyx); this module decides what is done in which order, hands the
work to threads and tells after each step how far it is. Every random draw depends on the seed and on the number of the
offspring it is for, so the result is the same for any number of threads.

What the options of a training run mean for the kernels: the objective, and how generations are bred.

Where the genetic search for one tree stands between two steps, in a form that can be stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from itertools import cycle, islice
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.execution.threads import available_cores, wait_for
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Enlarged, Perturbation
from metasilvae.training.checkpoint.files import damaged, pack_individuals, take, take_array, unpack_individuals
from metasilvae.training.options import TrainingOptions
from metasilvae.training.population import HallOfFame, as_model, blank, count_again, plan_trees, take_trees
from metasilvae.training.protocol import Progress, StopReason
from metasilvae.verification.metrics import evaluate
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify

# Samples times features that one random move may look at.
SWEEP_BUDGET = 3e5


def make_objective(options: TrainingOptions, dataset: Dataset) -> Any:
    """What is to be maximized on the given samples, within which limits."""
    n = dataset.n_samples
    features = np.arange(dataset.n_features, dtype=np.int32)
    if options.allowed_features:
        if options.allowed_features > len(features):
            raise RequestError(
                f"{options.allowed_features} features are to be drawn, {dataset.source} has {len(features)}"
            )
        rng = np.random.default_rng([options.seed, 1])
        features = np.sort(rng.choice(features, options.allowed_features, replace=False)).astype(np.int32)
    correct, stable, robust = options.fitness.weights
    moved = options.robust_weight * max(correct, 0.0)
    correct, robust = correct - moved, robust + moved
    return kernel.Objective(
        correct / n,
        stable / n,
        robust / n,
        features,
        min_leaf=options.min_samples_leaf,
        max_leaves=options.max_leaves,
        max_depth=options.max_depth,
        leaf_penalty=options.price_of_leaf(n),
    )


def make_recipe(options: TrainingOptions, fitness: NDArray[np.float64]) -> Any:
    """How a population with the given fitness has offspring."""
    probability = options.mutation_probability
    if options.mutation_probability_rule == "encourage-variance":
        probability *= float(np.clip(1 - (fitness.max() - fitness.min()), 0, 1))
    return kernel.Reproduction(
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


PHASES = ("seed", "generation", "polish", "end")
# Of a tree in `seen`.
N_FIGURES = 4


@dataclass(frozen=True)
class SearchState:
    """All that the rest of a search depends on, beside its data and options.

    Random numbers need no place here: each offspring has its own, by the seed and its number.

    Attributes
    ----------
    phase : str
        One of `PHASES`.
    step : int
        Steps of this phase that are done.
    trees : list of Individual
        What the next step starts from: the first trees so far, a population, or trees to polish. One tree may stand in
        several places.
    without_improvement : int
        Generations since the last improvement.
    n_offspring : int
    best : Individual
    finalists : list of Individual
    seen : list of tuple of int
        Figures of the trees that were offered to the finalists.
    n_steps : int
        Steps of all phases that were told.
    seconds : float
        That the search has taken.
    """

    phase: str
    step: int
    trees: list[Any]
    without_improvement: int
    n_offspring: int
    best: Any
    finalists: list[Any]
    seen: list[tuple[int, ...]]
    n_steps: int
    seconds: float

    def pack(self) -> dict[str, Any]:
        distinct = list({id(tree): tree for tree in (self.best, *self.finalists, *self.trees)}.values())
        place = {id(tree): position for position, tree in enumerate(distinct)}

        def places(trees: list[Any]) -> np.ndarray:
            return np.array([place[id(tree)] for tree in trees], dtype=np.int32)

        return {
            "phase": self.phase,
            "step": self.step,
            "without_improvement": self.without_improvement,
            "offspring": self.n_offspring,
            "steps": self.n_steps,
            "seconds": self.seconds,
            "individuals": pack_individuals(distinct),
            "best": place[id(self.best)],
            "finalists": places(self.finalists),
            "trees": places(self.trees),
            "seen": np.array(self.seen, dtype=np.int64).ravel(),
        }

    @classmethod
    def unpack(
        cls, document: Any, samples: Any, objective: Any, workspace: Any, options: TrainingOptions
    ) -> SearchState:
        """The state in a document, with trees for the given samples."""
        individuals = unpack_individuals(take(document, "individuals", dict), samples, objective, workspace)

        def listed(places: np.ndarray) -> list[Any]:
            if len(places) and not 0 <= places.min() <= places.max() < len(individuals):
                raise damaged("a tree is missing")
            return [individuals[place] for place in places]

        phase = take(document, "phase", str)
        trees = listed(take_array(document, "trees", "<i4"))
        step = take(document, "step", int)
        most = {"seed": len(trees), "generation": options.generations, "polish": options.polish, "end": 0}
        if step > most.get(phase, -1) or (not trees and (step > 0 or phase in ("generation", "polish"))):
            raise damaged("its phase and its step contradict each other")
        (best,) = listed(np.array([take(document, "best", int)]))
        finalists = listed(take_array(document, "finalists", "<i4"))
        seen = take_array(document, "seen", "<i8")
        if not finalists or len(seen) % N_FIGURES:
            raise damaged("the finalists are not complete")
        return cls(
            phase,
            step,
            trees,
            take(document, "without_improvement", int),
            take(document, "offspring", int),
            best,
            finalists,
            [tuple(figures) for figures in seen.reshape(-1, N_FIGURES).tolist()],
            take(document, "steps", int),
            take(document, "seconds", float),
        )


# Rows are held out by a draw of their own, so that runs with different seeds are judged by the same rows.
HOLDING_SEED = 0


class TreeTrainer:
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
        like: TreeTrainer | None = None,
    ) -> None:
        begin = time.perf_counter()
        if dataset.n_labels < 2:
            raise DataError(f"{dataset.source}: holds one class only ({dataset.labels[0]}); there is nothing to learn")
        self.dataset = dataset
        self.options = options
        self.perturbation = perturbation
        self.stop_reason: StopReason | None = None
        self.observe: Callable[[Sequence[Any]], object] = lambda trees: None
        self.observed: Callable[[], dict[str, Any] | None] = lambda: None
        self.held_out: Dataset | None = None
        self._learned = dataset
        if options.validation > 0:
            self._learned, self.held_out = split_dataset(dataset, options.validation, HOLDING_SEED)
        self.n_samples = self._learned.n_samples
        self._boxes = Enlarged(perturbation, options.training_epsilon_factor)
        limits = self._boxes.boxes(self._learned).arrays[2:]
        if like is None or like.options.validation != options.validation:
            self._samples = kernel.TrainingSet(self._learned.X, self._learned.y, dataset.n_labels, *limits)
        else:
            self._samples = like._samples.with_boxes(*limits)
        self._objective = make_objective(options, self._learned)
        self._jobs = available_cores() if jobs is None else jobs
        self._workspaces: SimpleQueue[Any] = SimpleQueue()
        for _ in range(self._jobs):
            self._workspaces.put(kernel.Workspace(self._samples))
        parts = self._samples, self._objective, options
        self._first_trees = plan_trees(*parts) if forest is None else take_trees(forest, dataset, *parts)
        self._best = self._with_workspace(blank(self._samples))
        self._finalists = HallOfFame(self._score, None if self.held_out is None else self._held_out_fitness)
        self._finalists.offer(self._best)
        self._n_offspring = 0
        # The phase, how many of its steps are done, and the trees that the next one starts from.
        self._phase = "seed"
        self._step = 0
        self._trees: list[Any] = []
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
        self._check_counts()

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
        found = self._with_workspace(
            lambda workspace: SearchState.unpack(document, self._samples, self._objective, workspace, self.options)
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

    def _enter(self, phase: str, trees: list[Any]) -> None:
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
        for task in [pool.submit(self._with_workspace, work) for work in self._first_trees[self._step :]]:
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
        spare: list[Any] = []
        while self._step < options.generations and self._is_patient:
            population = self._trees
            fitness = np.array([self._score(tree) for tree in population])
            elite = list({id(tree): tree for tree in population}.values())[: options.elitism]
            n_children = options.population - len(elite)
            while len(spare) < n_children:
                spare.append(kernel.Individual(self._samples))
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
        parents: list[Any],
        fitness: NDArray[np.float64],
        children: list[Any],
        generation: int,
    ) -> None:
        recipe = make_recipe(self.options, fitness)

        def breed(position: int) -> Callable[[Any], None]:
            def work(workspace: Any) -> None:
                if self.stop_reason is None:
                    recipe.reproduce(
                        parents, fitness, children, self._objective, workspace,
                        self.options.seed, generation, position, position + 1,
                    )  # fmt: skip

            return work

        for task in [pool.submit(self._with_workspace, breed(position)) for position in range(len(children))]:
            self._wait(task)

    def _polish(self, pool: futures.Executor) -> Iterator[Progress]:
        """Bring the best trees to a local optimum of all single moves of a test."""

        def polish(tree: Any) -> Callable[[Any], Any]:
            def work(workspace: Any) -> Any:
                better = kernel.Individual(self._samples).become(tree)
                better.improve_locally(self._objective, workspace)
                return better

            return work

        while self._step < self.options.polish:
            before = [self._score(tree) for tree in self._trees]
            tasks = [pool.submit(self._with_workspace, polish(tree)) for tree in self._trees]
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

    def _with_workspace(self, work: Callable[[Any], Any]) -> Any:
        workspace = self._workspaces.get()
        try:
            return work(workspace)
        finally:
            self._workspaces.put(workspace)

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
            self._best = kernel.Individual(self._samples).become(best)
        for tree in trees if is_seed else (best,):
            self._finalists.offer(tree)

    def _held_out_fitness(self, tree: Any) -> float:
        assert self.held_out is not None
        figures = evaluate(as_model(tree, self.dataset), self.held_out, [self.perturbation], jobs=1)[0]
        return figures.phi(self.options.fitness)

    def _check_counts(self) -> None:
        """The verifier, which knows nothing of increments, must find the figures that the search went by."""
        model = as_model(self._best, self._learned)
        counts = verify(make_query(model, self._learned, self._boxes), self._jobs).counts
        if (counts.correct, counts.stable, counts.robust) != self._best.counts:
            raise AssertionError("the trainer and the verifier disagree about the best tree")

    def _shares(self, tree: Any) -> tuple[float, float, float]:
        correct, stable, robust = tree.counts
        return correct / self.n_samples, stable / self.n_samples, robust / self.n_samples

    def _fitness(self, tree: Any) -> float:
        return self.options.fitness.value(*self._shares(tree))

    def _progress(self, phase: str, step: int, population: Sequence[Any]) -> Progress:
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
