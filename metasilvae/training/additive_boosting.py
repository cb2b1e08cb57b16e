"""Boosting of additive models: for a limit of the total change in the norms l0, l1 and l2, and for boxes if asked for.

An additive model has one tree for each feature (metasilvae.training.additive_models says why). Every sample counts
twice in the loss, as in metasilvae.training.boosting: by its margin, and by the bound of its margin at the worst
point that the perturbation allows, which is exact in a box. A round takes a few steps down the gradient for all trees
at once, each on a part of the samples. At its end the base score is settled, so that as many samples as possible are
correct and robust.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import additive as kernel
from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Boxes, Perturbation
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.training.additive_models import (
    AdditiveModel,
    AdditiveSamples,
    CellTable,
    count_thresholds,
    make_additive_model,
    settle_base,
)
from metasilvae.training.boosted_trees import UNIT, VALUE_UNIT, FloatArray
from metasilvae.training.boosting import BoostingTrainer
from metasilvae.training.boosting_tuning import BaseBoostingTrainer, Candidate, Rows, Stopped, find_base
from metasilvae.training.checkpoint.files import damaged, take, take_array
from metasilvae.training.options import GROWN, BoostingOptions
from metasilvae.training.protocol import Progress, StopReason, Trainer

# Parts of the samples in a round, each of which makes one step.
PARTS = 4
# Rounds before samples that are far from robust are given up.
PATIENT_FRACTION = 0.25
TRIAL_ROUNDS = 30
# The best prices of the training samples are searched after every round with so few cells of samples, else at the end.
QUICK_CELLS = 5_000_000
# Candidates of tuning for a limit of the total change. The first one is the best one on average, each of the others on
# some sets.
CANDIDATES: tuple[Candidate, ...] = (
    {"max_depth": 8, "robust_weight": 0.5, "tolerance": 0.0},
    {"max_depth": 8, "robust_weight": 0.9, "tolerance": 0.0},
    {"max_depth": 8, "robust_weight": 0.9, "tolerance": 1.0},
    {"max_depth": 8, "robust_weight": 0.2, "tolerance": 0.0},
)
# The same for boxes; the depth is that of the options.
CANDIDATES_FOR_BOXES: tuple[Candidate, ...] = tuple(
    {name: value for name, value in each.items() if name != "max_depth"} for each in CANDIDATES
)
NO_GRADIENT = np.zeros((0, 0), dtype=np.int64)


class AdditiveBooster:
    """The rounds of an additive model, without clock and checkpoints.

    Parameters
    ----------
    learned, tested : Rows
        Samples to learn from, with the limit to be certified; samples to test on, or None.
    options : BoostingOptions
    n_rounds : int
        Rounds in all: steps become smaller towards the end.
    most_thresholds : int
        Maximum number of thresholds of each feature, if the options do not ask for fewer.
    pool : Executor or None
        Threads for parts of the samples.
    jobs : int
        Number of these threads.
    """

    def __init__(
        self,
        learned: Rows,
        tested: Rows | None,
        options: BoostingOptions,
        n_rounds: int,
        most_thresholds: int,
        pool: futures.Executor | None = None,
        jobs: int = 1,
    ) -> None:
        self._options, self._n_rounds, self._pool, self._jobs = options, n_rounds, pool, jobs
        tree = options.tree
        enlarged = learned.enlarged(tree.training_epsilon_factor)
        n_levels = tree.max_depth - bool(learned.dataset.columns_with_missing.any())
        n_thresholds = min(options.thresholds, most_thresholds, 2 ** min(max(n_levels, 0), 20) - 1)
        self.table = CellTable.of(enlarged.dataset, enlarged.boxes, n_thresholds, tree.seed, jobs)
        self.learned = AdditiveSamples(self.table, enlarged.dataset, enlarged.boxes, jobs)
        self.tested = None if tested is None else AdditiveSamples(self.table, tested.dataset, tested.boxes, jobs)
        rows = learned.dataset
        self.model = AdditiveModel(
            self.table, find_base(rows.y, rows.n_labels, rows.weights), rows.columns_with_missing
        )
        self.n_done = 0
        self.measure()

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of leaves and of trees."""
        return self.model.size

    @property
    def n_columns(self) -> int:
        return len(self.model.base)

    def grow_round(self, is_stopped: Callable[[], bool] = lambda: False) -> bool:
        """Do the next round; its random draws depend on the seed and on its number alone.

        What is known about margins is that of the model before it, until `measure` is called.

        Returns
        -------
        is_complete : bool
            Whether the round was done; a stop between its parts leaves it undone. After its last part it is complete,
            whatever was asked for meanwhile.
        """
        options, samples, model = self._options, self.learned, self.model
        before = model.copy(), samples.prices.copy()
        model.shift[:] = 0.0
        rng = np.random.default_rng(np.random.SeedSequence(options.tree.seed, spawn_key=(self.n_done,)))
        n_parts = round(1 / options.row_sample) if options.row_sample else PARTS
        order = rng.permutation(samples.n_samples).astype(np.int32)
        progress = self.n_done / self._n_rounds
        rate = options.learning_rate * min(1.0, 2 * (1 - progress))
        tolerance = options.tolerance if progress >= PATIENT_FRACTION else 0.0
        for part in np.array_split(order, min(max(n_parts, 1), samples.n_samples)):
            if is_stopped():
                self.model, samples.prices = before
                return False
            gradient, base_gradient = self._find_gradient(np.sort(part), tolerance)
            unit = UNIT / float(samples.row_weights[part].sum() or 1.0)
            penalty = options.score_penalty / samples.n_samples
            is_moved = None
            if options.feature_sample:
                n_features = self.table.n_features
                n_drawn = max(1, round(options.feature_sample * n_features))
                is_moved = np.zeros(n_features, dtype=bool)
                is_moved[rng.permutation(n_features)[:n_drawn]] = True
            model.descend(gradient * unit, base_gradient * unit, penalty, rate, is_moved)
        self.n_done += 1
        return True

    def measure(self) -> None:
        """Find margins and bounds of all samples, after the base is settled for those of training."""
        weights, model = self._options.loss_weights, self.model
        model.shift[:] = 0.0
        is_quick = self.learned.n_samples * self.table.n_cells <= QUICK_CELLS
        self._bound(self.learned, is_thorough=is_quick or self.n_done >= self._n_rounds)
        if self.n_columns == 1 and self.n_done:
            shift = settle_base(self.learned, weights)
            model.shift[:] = np.rint(shift / VALUE_UNIT) * VALUE_UNIT
            self.learned.move_base(float(model.shift[0]))
        self._bound_wrong(self.learned)
        if self.tested is not None:
            self._bound(self.tested, is_thorough=True)
            self._bound_wrong(self.tested)

    def _bound_wrong(self, samples: AdditiveSamples) -> None:
        """Find out which wrong samples are stable at least."""
        other, rows = samples.as_predicted()
        if len(rows):
            self._bound(other, rows, is_thorough=True)
        samples.note_predicted(other, rows)

    def _bound(
        self, samples: AdditiveSamples, rows: NDArray[np.int32] | None = None, is_thorough: bool = False
    ) -> None:
        rows = np.arange(samples.n_samples, dtype=np.int32) if rows is None else rows
        scores, none = self.model.scores, np.zeros(self.n_columns, dtype=np.int64)
        self._divide(
            lambda start, stop: self._call(
                samples, scores, rows, start, stop, is_thorough, (0.0, 0.0), 0.0, NO_GRADIENT, none
            ),
            len(rows),
        )

    def _find_gradient(self, rows: NDArray[np.int32], tolerance: float) -> tuple[FloatArray, FloatArray]:
        """Derivatives of the loss of some samples by the scores of cells, and by the base scores, in units."""
        scores, weights = self.model.scores, self._options.loss_weights

        def add(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            gradient = np.zeros(scores.shape, dtype=np.int64)
            of_base = np.zeros(self.n_columns, dtype=np.int64)
            self._call(self.learned, scores, rows, start, stop, False, weights, tolerance, gradient, of_base)
            return gradient, of_base

        found = self._divide(add, len(rows))
        return sum(each[0] for each in found).astype(np.float64), sum(each[1] for each in found).astype(np.float64)

    def _call(
        self, samples: AdditiveSamples, scores: FloatArray, rows: NDArray[np.int32], start: int, stop: int,
        is_thorough: bool, weights: tuple[float, float], tolerance: float, gradient: NDArray[np.int64],
        of_base: NDArray[np.int64],
    ) -> None:  # fmt: skip
        kernel.measure_rows(
            samples.X, *samples.cell_arguments, samples.home, samples.low, samples.high, scores,
            self.model.base + self.model.shift, samples.y, rows, start, stop, is_thorough, samples.prices,
            samples.margins, samples.bounds, samples.row_weights, *weights, tolerance, UNIT, gradient, of_base,
        )  # fmt: skip

    def _divide(self, work: Callable[[int, int], Any], n_items: int) -> list[Any]:
        n_parts = min(n_items, self._jobs)
        if self._pool is None or n_parts < 2:
            return [work(0, n_items)]
        bounds = [n_items * part // n_parts for part in range(n_parts + 1)]
        return list(self._pool.map(work, bounds[:-1], bounds[1:]))


def try_candidate(
    learned: Rows,
    tested: Rows,
    options: BoostingOptions,
    n_rounds: int,
    most_thresholds: int,
    is_stopped: Stopped,
) -> FloatArray:
    """Lower bound of the fitness on the samples to test on, an array of one number; NaN if it was stopped."""
    booster = AdditiveBooster(learned, None, options, n_rounds, most_thresholds)
    for _ in range(n_rounds):
        if not booster.grow_round(is_stopped):
            return np.full(1, np.nan)
    booster.tested = AdditiveSamples(booster.table, tested.dataset, tested.boxes)
    booster.measure()
    return np.array([options.tree.fitness.value(*booster.tested.fractions)])


class AdditiveBoostingTrainer(BaseBoostingTrainer):
    """Training of an additive model; see `BaseBoostingTrainer` for its parameters.

    Without held-out rows the model is that of the last round; with them, that of the round with the best fitness on
    these rows. Before the first round it is a single leaf with the class frequencies.
    """

    norms = SHARED_NORMS

    def __init__(
        self, dataset: Dataset, perturbation: Perturbation, options: BoostingOptions, jobs: int | None = 1
    ) -> None:
        super().__init__(dataset, perturbation, options, jobs)
        _refuse_unusable(self.dataset, perturbation.boxes(self.dataset), perturbation, options)
        self._most_thresholds = count_thresholds(self._learned.dataset)
        self._booster: AdditiveBooster | None = None
        self._stored: dict[str, Any] | None = None
        # Scores and base of the best model so far.
        self._best: tuple[FloatArray, FloatArray] | None = None

    @property
    def model(self) -> Model:
        if self._booster is None or self._best is None:
            rows = self._learned.dataset
            base = find_base(rows.y, rows.n_labels, rows.weights)
            table = CellTable.of_thresholds([np.zeros(0)] * self.dataset.n_features, self._learned.boxes)
            return make_additive_model(np.zeros((len(base), table.n_cells)), base, table, self.dataset)
        return make_additive_model(*self._best, self._booster.table, self.dataset)

    @property
    def held_out_fitness(self) -> float | None:
        """Lower bound of the fitness on the held-out rows, if there are any."""
        if self._held is None:
            return None
        if not self._held_fitness:
            self._make_booster()
        return max(self._held_fitness)

    @property
    def state(self) -> dict[str, Any]:
        document = {**super().state, "booster": self._stored}
        if self._booster is not None and self._booster.n_done:
            best = self._best or (self._booster.model.scores, self._booster.model.base)
            document["booster"] = {
                "rounds": self._booster.n_done,
                **self._booster.model.state,
                "prices": self._booster.learned.prices.ravel(),
                "fitness": np.array(self._fitness),
                "held_fitness": np.array(self._held_fitness),
                "has_best": self._best is not None,
                "best_scores": best[0].ravel(),
                "best_base": best[1],
            }
        return document

    def resume(self, document: dict[str, Any]) -> None:
        super().resume(document)
        if document.get("booster") is not None:
            self._stored = take(document, "booster", dict)

    # Parts of the run

    def _list_candidates(self) -> tuple[Candidate, ...]:
        return CANDIDATES_FOR_BOXES if self._learned.boxes.limit is None else CANDIDATES

    @property
    def _n_followed(self) -> int:
        # Steps become smaller towards the last round, so that only this one can be compared.
        return 1

    def _plan_trial(self, options: BoostingOptions, split: int) -> Callable[[Stopped], FloatArray]:
        learned, tested = (self._learned.subset(rows) for rows in self._splits[split])
        n_rounds = min(TRIAL_ROUNDS, options.n_rounds)
        return partial(try_candidate, learned, tested, options, n_rounds, self._most_thresholds)

    def _forget_booster(self) -> None:
        self._booster = None

    def _make_booster(self, pool: futures.Executor | None = None) -> AdditiveBooster:
        """A model without rounds, and its fitness."""
        options = self.boosting_options
        self._booster = AdditiveBooster(
            self._learned, self._held, options, options.n_rounds, self._most_thresholds, pool, self._jobs
        )
        self._fitness, self._held_fitness, self._best = [], [], None
        self._keep(self._booster)
        return self._booster

    def _keep(self, booster: AdditiveBooster) -> None:
        """Note the fitness after a round, and keep the model if it is the best one."""
        self._note(booster)
        is_best = self._fitness[-1] >= self._fitness[0]
        if booster.tested is not None:
            is_best = self._held_fitness[-1] > max(self._held_fitness[:-1], default=-np.inf)
        if booster.n_done and is_best:
            self._best = booster.model.scores, booster.model.base + booster.model.shift
        elif booster.tested is None:
            self._best = None

    def _boost(self, pool: futures.Executor) -> Iterator[Progress]:
        booster = self._make_booster(pool)
        if self._stored is not None:
            self._restore(booster, self._stored)
            self._stored = None
        for step in range(booster.n_done, self._n_rounds):
            if self._is_finished():
                return
            if not booster.grow_round(self._is_over):
                return
            booster.measure()
            self._keep(booster)
            self._n_reported += 1
            yield self._report("round", step, booster)
        self._is_finished()

    def _restore(self, booster: AdditiveBooster, document: dict[str, Any]) -> None:
        booster.n_done = take(document, "rounds", int)
        booster.model.resume(document)
        shape = booster.model.steps.shape
        prices = take_array(document, "prices", "<f8")
        scores, base = take_array(document, "best_scores", "<f8"), take_array(document, "best_base", "<f8")
        if len(prices) != booster.learned.prices.size or len(scores) != shape[0] * shape[1] or len(base) != shape[0]:
            raise damaged("it belongs to other samples")
        booster.learned.prices[:] = prices.reshape(booster.learned.prices.shape)
        self._fitness = take_array(document, "fitness", "<f8").tolist()
        self._held_fitness = take_array(document, "held_fitness", "<f8").tolist()
        if len(self._fitness) != booster.n_done + 1 or len(self._held_fitness) not in (0, booster.n_done + 1):
            raise damaged("there are other numbers of rounds")
        self._best = (scores.reshape(shape), base) if take(document, "has_best", bool) else None
        # Margins and bounds of the reports; the prices of the stored run go on.
        booster.measure()
        booster.learned.prices[:] = prices.reshape(booster.learned.prices.shape)

    def _is_finished(self) -> bool:
        patience = self.options.patience
        if self._fitness[-1] >= self.options.target:
            self._end(StopReason.TARGET)
        elif patience and self._held is not None:
            n_since = len(self._held_fitness) - 1 - int(np.argmax(self._held_fitness))
            if n_since >= patience:
                self._end(StopReason.PATIENCE)
        return self._is_over()


def _refuse_unusable(dataset: Dataset, boxes: Boxes, perturbation: Perturbation, options: BoostingOptions) -> None:
    """Refuse options that mean nothing here, and what the verification in a norm would refuse."""
    kind = "additive models" if boxes.limit is None else f"{perturbation.describe()}: trees for a norm"
    if options.tree.min_samples_leaf > 1:
        why = "" if boxes.limit is None else ", so that a change takes many steps"
        raise RequestError(f"{kind} have leaves without rows{why}; leave 'min-samples-leaf' out")
    for name, is_given in (("refits", options.refits), ("refit-penalty", options.refit_penalty is not None)):
        if is_given:
            raise RequestError(f"{kind} are fitted together in every round; leave '{name}' out")
    if options.additive and boxes.limit is not None:
        raise RequestError(f"{perturbation.describe()}: models for a norm are additive anyway; leave 'additive' out")
    if options.first_tree != GROWN:
        raise RequestError(f"{kind} test one feature each; leave 'first-tree' out")
    if options.image_shifts is not None:
        raise RequestError(f"{kind} learn from no shifted images; leave 'image-shifts' out")
    if not all(group.is_one_hot for group in boxes.groups.groups):
        why = "test one feature each" if boxes.limit is None else "know no distance between sets of categories"
        raise PerturbationError(f"{kind} {why}; leave the rules of categories out of the attack file")
    if boxes.limit is None:
        if boxes.droppable is not None:
            raise PerturbationError(f'{kind} do not know missing = "may appear" in an attack file; write "stays"')
        return
    lower, upper = boxes.all_bounds
    is_out = (lower > dataset.X) | (upper < dataset.X)
    if is_out.any():
        row, feature = np.argwhere(is_out)[0]
        raise PerturbationError(
            f"{dataset.source}: row {dataset.number_of(int(row))}, {dataset.feature_name(int(feature))} = "
            f"{dataset.X[row, feature]:g} does not lie in [{lower[row, feature]:g}, {upper[row, feature]:g}]; "
            "distances need rows inside the range: widen it"
        )


def make_boosting_trainer(
    dataset: Dataset, perturbation: Perturbation, options: BoostingOptions, jobs: int | None = 1
) -> Trainer:
    """The trainer of boosted models for boxes, or for a limit of the total change, which takes additive ones."""
    is_additive = options.additive or perturbation.boxes(dataset).limit is not None
    return (AdditiveBoostingTrainer if is_additive else BoostingTrainer)(dataset, perturbation, options, jobs)
