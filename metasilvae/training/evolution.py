"""Training one tree: an initial population, a genetic search, and a local search around the best trees.

The kernels change and score trees (cython_ext/training/evolution.pyx). This module decides what is done in which order,
gives the work to threads and reports each step. Every random draw depends on the seed and on the number of the
offspring that it is for, so the result is the same for any number of threads. For the same reason a run can be stored
between two steps without the state of a random generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from itertools import cycle, islice
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Boxes, Enlarged, Perturbation
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.training.checkpoint.files import damaged, pack_individuals, take, take_array, unpack_individuals
from metasilvae.training.interactions import Interaction
from metasilvae.training.options import TrainingOptions
from metasilvae.training.population import (
    Grower,
    Growers,
    HallOfFame,
    TreeMaker,
    blank,
    count_again,
    list_interactions,
    plan_starts,
    plan_trees,
    take_trees,
)
from metasilvae.training.protocol import BaseTrainer, Clock, Progress, StopReason
from metasilvae.training.samples import as_model, make_samples
from metasilvae.verification.metrics import evaluate
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

# Samples times features that one random move may look at.
SWEEP_BUDGET = 4e4
# Counts of a tree by which the hall of fame recognizes it: correct, stable and robust samples, leaves.
N_COUNTS = 4


def make_objective(options: TrainingOptions, dataset: Dataset, samples: kernel.TrainingSet) -> Any:
    """What the search maximizes on the given samples, and its limits."""
    n = dataset.total_weight
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
        samples.copies_of(features),
        min_leaf=options.min_samples_leaf,
        max_leaves=options.max_leaves,
        max_depth=options.max_depth,
        leaf_penalty=options.price_of_leaf(dataset.weighted_rows),
    )


def make_recipe(options: TrainingOptions, fitness: NDArray[np.float64]) -> Any:
    """How a population with the given fitness reproduces."""
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
        blends=options.growth_criteria,
    )


class TreeTrainer(BaseTrainer):
    """Training of one tree; see `metasilvae.training.protocol.Trainer` for the contract.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    perturbation : Perturbation
        The perturbation that the tree should withstand; its radii must be the same for all samples.
    options : TrainingOptions
    jobs : int or None
        Threads; None means all available cores.
    forest : Model or None
        Trees to start from, instead of those that the options choose.
    like : TreeTrainer or None
        Another trainer on the same data set; if it holds out the same rows, its sorted samples are used again, and if
        it has the same boxes, the growth of its trees is continued.
    clock : Clock or None
        The clock of the run that this one is a part of.
    deepening : sequence of float
        Criteria by which the first tree of `forest` is continued at its leaves, each giving another tree.
    keep_growth : bool
        Keep the growth of trees for another trainer.
    interactions : sequence of Interaction or None
        Features that some trees of a greedily grown population begin with; None looks for them among the samples.
    """

    norms = SHARED_NORMS
    # What tuning has chosen: this trainer does not tune.
    candidate: dict[str, Any] | None = None

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: TrainingOptions,
        jobs: int | None = 1,
        forest: Model | None = None,
        like: TreeTrainer | None = None,
        clock: Clock | None = None,
        deepening: Sequence[float] = (),
        keep_growth: bool = False,
        interactions: Sequence[Interaction] | None = None,
    ) -> None:
        super().__init__(dataset, perturbation, options, jobs, clock)
        self._total_weight = self.learned.total_weight
        self._boxes = Enlarged(perturbation, options.training_epsilon_factor)
        self._samples = self._prepare(self._boxes.boxes(self.learned), like)
        self._objective = make_objective(options, self.learned, self._samples)
        self._workspaces: SimpleQueue[Any] = SimpleQueue()
        for _ in range(self._jobs):
            self._workspaces.put(kernel.Workspace(self._samples))
        self._growers = self._make_growers(like) if forest is None and options.greedy else {}
        self._makers: list[TreeMaker] = [blank(self._samples)]
        if forest is not None:
            self._makers = take_trees(forest, dataset, self._samples, self._objective, options, deepening)
        elif options.greedy:
            self._makers = plan_trees(self._growers, self._objective, options, keep_growth)
            known = list_interactions(self.learned, options) if interactions is None else interactions
            self._makers += plan_starts(known, self._samples, self._objective, options)
        self._best = self._with_workspace(blank(self._samples))
        self._hall_of_fame = HallOfFame(self._score, None if self.held_out is None else self._score_held_out)
        self._hall_of_fame.offer(self._best)
        self._n_offspring = 0
        # The phase, how many of its steps are done, and the trees that the next step starts from: the initial
        # population so far, a population, or the trees of the local search.
        self._phase = "initial population"
        self._step = 0
        self._trees: list[Any] = []
        # Generations since the last improvement.
        self._n_stalled = 0
        self._last_state: dict[str, Any] | None = None

    def _prepare(self, boxes: Boxes, like: TreeTrainer | None) -> kernel.TrainingSet:
        """The training samples as ranks; those of another trainer are used again if only the radii differ."""
        if like is None or like.options.validation != self.options.validation:
            return make_samples(self.learned, boxes)
        is_same = like.options.training_epsilon_factor == self.options.training_epsilon_factor
        if is_same and boxes.low_center is boxes.high_center:
            return like.samples
        return make_samples(self.learned, boxes, like.samples)

    def _make_growers(self, like: TreeTrainer | None) -> Growers:
        """A grower for each criterion. Growth is the same whatever the regularization, and can be taken over."""
        known = {} if like is None else like.hand_over_growers()
        usable = {criterion: grower for criterion, grower in known.items() if grower.samples is self._samples}
        objective = make_objective(
            replace(self.options, robust_weight=0.0, leaf_penalty=0.0), self.learned, self._samples
        )
        return {
            criterion: usable.get(criterion) or Grower(self._samples, objective, *criterion)
            for criterion in self.options.growth_criteria
        }

    @property
    def samples(self) -> kernel.TrainingSet:
        """The training samples as ranks, with the boxes to train for."""
        return self._samples

    def hand_over_growers(self) -> Growers:
        """The growth of its trees for another trainer to continue; this one keeps none."""
        growers = dict(self._growers)
        self._growers.clear()
        return growers

    @property
    def n_steps(self) -> int:
        return len(self._makers) + self.options.generations + self.options.polish

    @property
    def model(self) -> Model:
        """The best tree so far, with the class counts of all training samples in its leaves."""
        model = as_model(self._hall_of_fame.chosen.tree, self.dataset)
        return model if self.held_out is None else count_again(model, self.dataset)

    @property
    def held_out_fitness(self) -> float | None:
        return None if self.held_out is None else self._hall_of_fame.chosen.held_out

    # Storing and resuming

    @property
    def state(self) -> dict[str, Any]:
        return self._pack_state() if self._last_state is None else self._last_state

    def _pack_state(self) -> dict[str, Any]:
        finalists = self._hall_of_fame.trees
        # A tree may stand in several places; it is stored once.
        distinct = list({id(tree): tree for tree in (self._best, *finalists, *self._trees)}.values())
        place = {id(tree): position for position, tree in enumerate(distinct)}

        def places(trees: list[Any]) -> np.ndarray:
            return np.array([place[id(tree)] for tree in trees], dtype=np.int32)

        return {
            "phase": self._phase,
            "step": self._step,
            "stalled": self._n_stalled,
            "offspring": self._n_offspring,
            "steps": self._n_reported,
            "seconds": self.seconds,
            "individuals": pack_individuals(distinct),
            "best": place[id(self._best)],
            "hall_of_fame": places(finalists),
            "trees": places(self._trees),
            "seen": np.array(self._hall_of_fame.seen, dtype=np.int64).ravel(),
            "observed": self._observed,
        }

    def resume(self, document: dict[str, Any]) -> None:
        individuals = self._with_workspace(
            lambda workspace: unpack_individuals(
                take(document, "individuals", dict), self._samples, self._objective, workspace
            )
        )

        def listed(places: np.ndarray) -> list[Any]:
            if len(places) and not 0 <= places.min() <= places.max() < len(individuals):
                raise damaged("a tree is missing")
            return [individuals[place] for place in places]

        self._phase = take(document, "phase", str)
        self._step = take(document, "step", int)
        self._trees = listed(take_array(document, "trees", "<i4"))
        most = {
            "initial population": len(self._trees), "generation": self.options.generations,
            "local search": self.options.polish, "end": 0,
        }  # fmt: skip
        needs_trees = self._step > 0 or self._phase in ("generation", "local search")
        if self._step > most.get(self._phase, -1) or (needs_trees and not self._trees):
            raise damaged("its phase and its step contradict each other")
        (self._best,) = listed(np.array([take(document, "best", int)]))
        finalists, seen = listed(take_array(document, "hall_of_fame", "<i4")), take_array(document, "seen", "<i8")
        if not finalists or len(seen) % N_COUNTS:
            raise damaged("the hall of fame is not complete")
        self._hall_of_fame.resume(finalists, [tuple(counts) for counts in seen.reshape(-1, N_COUNTS).tolist()])
        self._n_stalled = take(document, "stalled", int)
        self._n_offspring = take(document, "offspring", int)
        self._n_reported = take(document, "steps", int)
        self._clock.resume(take(document, "seconds", float))
        self._resume_observers(document)

    def _keep_state(self) -> None:
        """After a stop, remember the state: the step that comes now was cut short, and is repeated by a resumed run."""
        if self.stop_reason is not None and self._last_state is None:
            self._last_state = self._pack_state()

    # Parts of the run

    def _steps(self) -> Iterator[Progress]:
        self._show([self._best])
        pool = futures.ThreadPoolExecutor(self._jobs)
        try:
            if self._phase == "initial population":
                yield from self._grow_initial_population(pool)
            if self._phase == "generation" and not self._is_over():
                yield from self._evolve(pool)
            if self._phase == "local search" and not self._is_over():
                yield from self._search_locally(pool)
        finally:
            # After the end no work is under way, and another trainer may continue the growth.
            if self._phase != "end":
                self._stop_work()
            pool.shutdown(cancel_futures=True)
        if self.stop_reason is None and not self._is_patient:
            self.stop_reason = StopReason.PATIENCE
        self._check_counts()

    @property
    def _is_patient(self) -> bool:
        return not 0 < self.options.patience <= self._n_stalled

    def _enter(self, phase: str, trees: list[Any]) -> None:
        self._phase, self._step, self._trees = phase, 0, trees

    def _grow_initial_population(self, pool: futures.Executor) -> Iterator[Progress]:
        if self._step > 0 and self._is_over():
            return
        for task in [pool.submit(self._with_workspace, make) for make in self._makers[self._step :]]:
            tree = self._wait(task)
            self._keep_state()
            self._trees.append(tree)
            self._step += 1
            self._n_offspring += 1
            self._note(self._trees, offer_all=True)
            yield self._report(self._step - 1)
            if self._is_over():
                return
        size = self.options.initial_population
        self._enter("generation", list(islice(cycle(self._ranked(self._trees)[:size]), size)))

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
                return  # not all children are complete
            before = self._score(self._best)
            self._n_offspring += n_children
            kept = {id(tree) for tree in (*elite, *children)}
            recycled = [tree for tree in (*population, *spare[n_children:]) if id(tree) not in kept]
            spare = list({id(tree): tree for tree in recycled}.values())
            self._trees = self._ranked([*elite, *children])
            self._step += 1
            self._note(self._trees)
            self._n_stalled = 0 if self._score(self._best) > before else self._n_stalled + 1
            yield self._report(self._step - 1)
            if self._is_over():
                return
        trees = self._hall_of_fame.trees
        if self.options.polish == 1 and self.options.generations == 0 and self.held_out is None:
            # A single pass after growth alone is for short runs; another tree is hardly ever the best one after it.
            trees = trees[:1]
        self._enter("local search", trees)

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

    def _search_locally(self, pool: futures.Executor) -> Iterator[Progress]:
        """Move the thresholds of the best trees until no single move is an improvement, or all passes are done.

        The better half of the trees takes part in the next pass. If rows are held out, all of them do.
        """

        def improve(tree: Any) -> Callable[[Any], Any]:
            def work(workspace: Any) -> Any:
                better = kernel.Individual(self._samples).become(tree)
                better.improve_locally(self._objective, workspace)
                return better

            return work

        while self._step < self.options.polish:
            before = [self._score(tree) for tree in self._trees]
            tasks = [pool.submit(self._with_workspace, improve(tree)) for tree in self._trees]
            improved = [self._wait(task) for task in tasks]
            self._keep_state()
            self._trees = [
                new if self._score(new) > score else old
                for old, new, score in zip(self._trees, improved, before, strict=True)
            ]
            step = self._step
            is_last = [self._score(tree) for tree in self._trees] == before
            self._step = self.options.polish if is_last else step + 1
            self._note(self._trees, offer_all=True)
            if self.held_out is None:
                self._trees = self._ranked(self._trees)[: (len(self._trees) + 1) // 2]
            yield self._report(step)
            if self._is_over():
                return
        self._enter("end", [])

    def _with_workspace(self, work: Callable[[Any], Any]) -> Any:
        workspace = self._workspaces.get()
        try:
            return work(workspace)
        finally:
            self._workspaces.put(workspace)

    def _stop_work(self) -> None:
        self._objective.stop()
        for grower in list(self._growers.values()):
            grower.stop()

    def _is_over(self) -> bool:
        if not super()._is_over() and self._fitness(self._best) >= self.options.target:
            self._end(StopReason.TARGET)
        return self.stop_reason is not None

    # Metrics

    def _score(self, tree: Any) -> float:
        score: float = self.options.fitness.constant + tree.fitness(self._objective)
        return score

    def _fractions(self, tree: Any) -> tuple[float, float, float]:
        """Accuracy, stability and robust accuracy."""
        correct, stable, robust = tree.counts
        return correct / self._total_weight, stable / self._total_weight, robust / self._total_weight

    def _fitness(self, tree: Any) -> float:
        return self.options.fitness.value(*self._fractions(tree))

    def _score_held_out(self, tree: Any) -> float:
        assert self.held_out is not None
        evaluation = evaluate(as_model(tree, self.dataset), self.held_out, [self.perturbation], jobs=1)[0]
        return evaluation.phi(self.options.fitness)

    def _ranked(self, trees: Sequence[Any]) -> list[Any]:
        """Best first; of equally good trees the smaller, then the earlier one."""
        return sorted(trees, key=lambda tree: (-self._score(tree), tree.n_leaves))

    def _note(self, trees: Sequence[Any], offer_all: bool = False) -> None:
        """Show the trees of a step and keep a copy of the best one; trees of a population are overwritten later."""
        self._show(trees)
        best = self._ranked(trees)[0]
        if (self._score(best), -best.n_leaves) > (self._score(self._best), -self._best.n_leaves):
            self._best = kernel.Individual(self._samples).become(best)
        for tree in trees if offer_all else (best,):
            self._hall_of_fame.offer(tree)

    def _check_counts(self) -> None:
        """The verifier, which does not compute by increments, must find the counts that the search relied on."""
        model = as_model(self._best, self.learned)
        outcome = verify(make_query(model, self.learned, self._boxes), self._jobs)
        is_stable = outcome.stability == Stability.STABLE
        counted = (outcome.is_correct, is_stable, outcome.is_correct & is_stable)
        correct, *others = (self.learned.count(each) for each in counted)
        # In the norms l1 and l2, and for samples outside their boxes, the search errs on the safe side.
        is_rounded = self._best.samples.has_wider_boxes or self._boxes.boxes(self.learned).limit is not None
        known = self._best.counts
        if correct != known[0] or any(
            found != count and not (is_rounded and found > count)
            for found, count in zip(others, known[1:], strict=True)
        ):
            raise AssertionError("the trainer and the verifier disagree about the best tree")

    def _report(self, step: int) -> Progress:
        self._n_reported += 1
        return Progress(
            self._phase,
            step,
            self.seconds,
            self._fitness(self._best),
            *self._fractions(self._best),
            self._best.n_leaves,
            self._n_offspring,
            float(np.mean([self._fitness(tree) for tree in self._trees])),
            self._score(self._best),
            self.options.training_epsilon_factor,
        )
