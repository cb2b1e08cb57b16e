"""Training of a forest: tuning, then the growth of its trees; see `metasilvae.training.forest_tuning` and
`metasilvae.training.forest_growth`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.execution.threads import wait_for
from metasilvae.model import Model, join_trees
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.training.checkpoint.files import damaged, pack_models, take, take_array, unpack_models
from metasilvae.training.forest_growth import TreeTask, grow_forest, grow_tree, plan_tree
from metasilvae.training.forest_tuning import (
    ForestRace,
    list_tuned_candidates,
    plan_race,
    score_candidate,
    tune_tree,
)
from metasilvae.training.forest_votes import GrowingForest
from metasilvae.training.large import VERY_MANY_SAMPLES
from metasilvae.training.options import SINGLE, ForestOptions
from metasilvae.training.population import list_interactions
from metasilvae.training.protocol import BaseTrainer, Observer, Progress, StopReason, TrainerGroup
from metasilvae.training.trials import TUNING_FRACTION, describe_cut_tuning
from metasilvae.training.tuning import SINGLE_LEAF, USUAL

# Calls a function with the data set, the perturbation and the given arguments on some worker.
Submit = Callable[..., "futures.Future[Any]"]


class ForestTrainer(BaseTrainer):
    """Training of a forest; see `metasilvae.training.protocol.Trainer` for the contract.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    perturbation : Perturbation
        The perturbation that the forest should withstand.
    options : ForestOptions
    jobs : int or None
        Threads; None means all available cores.
    submit : function or None
        Runs tasks elsewhere than on threads of this process: ``submit(function, *arguments)`` calls
        ``function(dataset, perturbation, *arguments)`` on a worker and returns a future. A stop cancels the futures.

    Attributes
    ----------
    candidate : dict or None
        The candidate that tuning chose.
    """

    norms = SHARED_NORMS
    title = "a forest"

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: ForestOptions,
        jobs: int | None = 1,
        submit: Submit | None = None,
    ) -> None:
        super().__init__(dataset, perturbation, options.tree, jobs)
        options.features_per_tree(dataset.n_features)
        self.candidate: dict[str, Any] | None = None
        self.forest_options = options.for_samples(len(self._rows))
        self._numbers = range(options.n_trees) if options.numbers is None else options.numbers
        self._submit = submit
        self._group = TrainerGroup()
        self._pending: list[futures.Future[Any]] = []
        self._trees: list[Model] = []
        # The trees that no stop has cut short; a resumed run knows them from its start.
        self._whole: list[Model] = []
        # The tree that is the model until the first one of the forest is grown.
        self._initial: list[Model] = []
        self._is_initial_whole = False
        self._is_tuned = options.tree.tune and options.tree.greedy
        self._race = plan_race(self.learned, perturbation, self.forest_options, self._rows)
        # What tuning has chosen for a single tree, with its leaf penalty for all rows and the scores of its trials; it
        # gives further candidates.
        self._tuned: tuple[dict[str, float], float, list[float]] | None = None
        # Trials that the time limit has cut short.
        self._n_cut = 0

    def observe(self, observer: Observer) -> NoReturn:
        raise RequestError("an archive holds the trees of one run for a single tree; leave the number of trees out")

    @property
    def n_steps(self) -> int:
        if self._race is None:
            return len(self._numbers)
        n_to_come = len(list_tuned_candidates(self.forest_options, USUAL)) if self._is_tree_to_tune else 0
        # The initial tree and the tuning of a single tree come before the trials.
        n_before = 1 + self._is_tuned
        return n_before + self._race.count_trials(n_to_come) + self._n_cut + len(self._numbers)

    @property
    def _is_tree_to_tune(self) -> bool:
        return self._is_tuned and self._tuned is None

    @property
    def model(self) -> Model:
        return join_trees(self._kept_trees())

    @property
    def held_out_fitness(self) -> float | None:
        """Lower bound of the fitness on the held-out rows, if there are any."""
        if self.held_out is None:
            return None
        judged = GrowingForest(self.held_out, self.perturbation, self._jobs)
        for tree in self._kept_trees():
            judged.add(tree)
        return self.options.fitness.value(*judged.certainty.fractions)

    @property
    def tuning(self) -> dict[str, Any] | None:
        if self.candidate is None or self._race is None:
            return None
        if self._race.plan():
            validation = self._race.validation
            return describe_cut_tuning(self.candidate, len(validation.pairs), validation.kind, validation.n_rows)
        if not self._race.n_tried:
            return None
        compared = self._race.describe()
        of_chosen = compared[self._race.candidates.index(self.candidate)]
        chosen = {**self.candidate}
        if "leaf_penalty" in chosen:
            chosen["leaf_penalty"] = self.options.leaf_penalty
        validation = self._race.validation
        return {
            "chosen": chosen, **{name: of_chosen[name] for name in ("score", "error", "splits")},
            "split": validation.kind, "rows": validation.n_rows, "finalists": compared,
        }  # fmt: skip

    @property
    def state(self) -> dict[str, Any]:
        return {
            "initial": pack_models(self._initial if self._is_initial_whole else []),
            "scores": np.empty(0) if self._race is None else self._race.scores.flatten(),
            "tuned": None if self._tuned is None else self._pack_tuned(),
            "candidate": None if self.candidate is None else self._list_candidates().index(self.candidate),
            "trees": pack_models(self._whole),
            "steps": self._n_reported,
            "seconds": self.seconds,
        }

    def _pack_tuned(self) -> dict[str, Any]:
        assert self._tuned is not None
        return {**self._tuned[0], "final_penalty": self._tuned[1], "scores": np.array(self._tuned[2])}

    def resume(self, document: dict[str, Any]) -> None:
        self._initial = unpack_models(take(document, "initial", dict), self.dataset)[:1]
        self._is_initial_whole = bool(self._initial)
        if document.get("tuned") is not None:
            tuned = take(document, "tuned", dict)
            known = take_array(tuned, "scores", "<f8")
            if self._race is not None and 0 < len(known) < self._race.scores.shape[1]:
                raise damaged("the tuning has another size")
            winner = {name: take(tuned, name, float) for name in USUAL}
            self._add_tuned(winner, take(tuned, "final_penalty", float), known.tolist())
        scores = take_array(document, "scores", "<f8")
        if self._race is not None:
            if scores.size != self._race.scores.size:
                raise damaged("the tuning has another size")
            self._race.scores[:] = scores.reshape(self._race.scores.shape)
        self._whole = unpack_models(take(document, "trees", dict), self.dataset)
        if len(self._whole) > len(self._numbers):
            raise damaged("there are more trees than there should be")
        if document.get("candidate") is not None:
            position = take(document, "candidate", int)
            if not 0 <= position < len(self._list_candidates()):
                raise damaged("there is no such candidate")
            self._apply(self._list_candidates()[position])
        self._n_reported = take(document, "steps", int)
        self._clock.resume(take(document, "seconds", float))

    # Parts of the run

    def _steps(self) -> Iterator[Progress]:
        pool = futures.ThreadPoolExecutor(self._jobs)
        if self._submit is None:
            self._submit = lambda function, *arguments: pool.submit(
                function, self.dataset, self.perturbation, *arguments, group=self._group
            )
        try:
            if self._race is not None and self.candidate is None:
                yield from self._tune(self._race)
            if not self._is_over():
                yield from self._grow()
        finally:
            self._group.stop()
            pool.shutdown(cancel_futures=True)

    def _tune(self, race: ForestRace) -> Iterator[Progress]:
        """Grow an initial tree, for a user who stops early; then try candidates until the race is over, and choose.

        The tuning of a single tree comes first, because some candidates follow from it.
        """
        votes = GrowingForest(self.dataset, self.perturbation, self._jobs)
        known = list(self._initial)
        for tree in known or self._do([(grow_tree, self._plan_first())]):
            self._is_initial_whole = self.stop_reason is None
            self._initial = [tree]
            votes.add(tree)
            if not known:
                self._n_reported += self._is_initial_whole
                yield self._report("initial tree", 0, self._initial, votes)
        tuning = [(tune_tree, self.options, self._rows)] if self._is_tree_to_tune else []
        for tuned in self._do(tuning, TUNING_FRACTION):
            if not self._group.is_stopped:
                self._add_tuned(*tuned)
                self._n_reported += 1
                yield self._report("tuning", 0, self._initial, votes)
        # Where there is nothing to find in all rows, trials need not look for it.
        interact = bool(list_interactions(self.learned, self.options))
        is_whole, n_cut = not self._is_tree_to_tune, 0
        while is_whole and (trials := race.plan()):
            changed = [self.forest_options.with_candidate(candidate) for candidate in race.candidates]
            splits = race.validation.pairs
            work = [(score_candidate, changed[number], *splits[split], interact) for number, split in trials]
            n_before = race.n_tried
            # After a stop, results may be missing.
            for place, score in zip(trials, self._do(work, TUNING_FRACTION), strict=False):
                # A trial that was cut short has no score.
                is_whole = is_whole and math.isfinite(score) and not self._group.is_stopped
                if is_whole:
                    race.scores[place] = score
                self._n_reported += is_whole
                n_cut += not is_whole
                yield self._report("tuning", race.n_tried + n_cut - (not self._is_tuned), self._initial, votes)
                # Checkpoints can undo one step that was cut short, not several.
                if not is_whole:
                    break
            is_whole = race.n_tried == n_before + len(trials)
        self._group = TrainerGroup()
        if not self._is_over():
            self._n_reported += n_cut
            self._n_cut = n_cut
            self._apply(race.candidates[race.choice])

    def _list_candidates(self) -> list[dict[str, Any]]:
        return [] if self._race is None else self._race.candidates

    def _add_tuned(self, tuned: dict[str, float], penalty: float, scores: list[float]) -> None:
        self._tuned = tuned, penalty, scores
        if self._race is not None:
            found = list_tuned_candidates(self.forest_options, tuned)
            self._race.add(found, scores if found[-1]["method"] == SINGLE else ())

    def _apply(self, candidate: dict[str, Any]) -> None:
        self.candidate = dict(candidate)
        changes: dict[str, Any] = {}
        if self._tuned is not None and candidate in list_tuned_candidates(self.forest_options, self._tuned[0]):
            changes["leaf_penalty"] = self._tuned[1]
            if self._tuned[1] >= len(self._rows):
                changes |= SINGLE_LEAF
            elif candidate["method"] == SINGLE and len(self._rows) > VERY_MANY_SAMPLES:
                # Such a tree is searched for on a part of the samples, and tuned for that.
                changes["tune"] = True
        self.forest_options = self.forest_options.with_candidate({**candidate, **changes})
        self.options = self.forest_options.tree
        if self.forest_options.is_single:
            self._numbers = self._numbers[:1]

    def _grow(self) -> Iterator[Progress]:
        growth = grow_forest(
            self.dataset, self.perturbation, self.forest_options, self._rows, self._numbers,
            self._grow_batch, lambda: self._clock.seconds_left, self._jobs,
        )  # fmt: skip
        n_known = len(self._whole)
        for step, (tree, votes) in enumerate(growth):
            self._trees.append(tree)
            progress = self._report("tree", step, self._trees, votes, self.options.training_epsilon_factor)
            if step >= n_known:
                yield progress if step else replace(progress, tuning=self.tuning)
            if progress.fitness >= self.options.target:
                self._end(StopReason.TARGET)

    def _grow_batch(self, tasks: list[TreeTask]) -> Iterator[Model]:
        n_before = len(self._trees)
        known = self._whole[n_before : n_before + len(tasks)]
        yield from known
        for tree in self._do([(grow_tree, task) for task in tasks[len(known) :]]):
            if self.stop_reason is None:
                self._whole.append(tree)
                self._n_reported += 1
            # A tree that was stopped before its first split has no useful vote.
            if self.stop_reason is None or tree.n_leaves > 1:
                is_cut = self.stop_reason is not None
                yield tree
                # As in tuning.
                if is_cut:
                    return

    def _plan_first(self) -> TreeTask:
        limit = self._clock.seconds_left
        return plan_tree(self.forest_options, self._numbers[0], self._rows, None, self.dataset.n_features, limit)

    def _kept_trees(self) -> list[Model]:
        if self._trees or self._initial:
            return self._trees or self._initial
        stopped = TrainerGroup()
        stopped.stop()
        return [grow_tree(self.dataset, self.perturbation, self._plan_first(), stopped)]

    def _do(self, work: Sequence[tuple[Any, ...]], fraction_of_time: float = 1.0) -> Iterator[Any]:
        """Results in order; after a stop, or that fraction of the time limit, only those that were under way."""
        if self._is_over():
            return
        assert self._submit is not None
        hurry = self._time_out if fraction_of_time == 1 else self._stop_work
        self._pending = [self._submit(*each) for each in work]
        for task in self._pending:
            try:
                result = wait_for(task, self._clock.deadline(fraction_of_time), hurry)
            except futures.CancelledError:
                continue
            yield result

    def _stop_work(self) -> None:
        for task in self._pending:
            task.cancel()
        self._group.stop()

    def _report(
        self, phase: str, step: int, trees: Sequence[Model], votes: GrowingForest, factor: float = 1.0
    ) -> Progress:
        fractions = votes.certainty.fractions
        fitness = self.options.fitness.value(*fractions)
        n_leaves = sum(tree.n_leaves for tree in trees)
        return Progress(phase, step, self.seconds, fitness, *fractions, n_leaves, len(trees), fitness, fitness, factor)
