"""What the trainers of boosted models have in common: candidates that are tried on splits of the rows, then rounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset, RowWeights
from metasilvae.datasets.splitting import Pair, plan_cross_validation
from metasilvae.errors import RequestError
from metasilvae.execution.threads import wait_for
from metasilvae.perturbations.boxes import Boxes, Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.training.boosted_trees import VALUE_UNIT, FloatArray
from metasilvae.training.checkpoint.files import damaged, take, take_array
from metasilvae.training.options import BoostingOptions
from metasilvae.training.protocol import BaseTrainer, Observer, Progress
from metasilvae.training.trials import compare

Candidate = dict[str, Any]
# Whether work that is under way should end.
Stopped = Callable[[], bool]
# Fraction of the time limit that tuning may take.
TUNING_FRACTION = 0.3
# A difference counts if it exceeds so many standard errors.
ERRORS = 1.0
# A curve whose best round is in the last part of its rounds still rises.
RISING = 0.8


@dataclass(frozen=True)
class Rows:
    """Samples with their boxes; `boxes` may be larger than those to be certified."""

    dataset: Dataset
    boxes: Boxes

    def subset(self, rows: NDArray[np.intp]) -> Rows:
        return Rows(self.dataset.subset(rows), self.boxes.subset(rows))

    def enlarged(self, factor: float) -> Rows:
        """The same samples with the radii multiplied, or the limit of the total change (in l0 a whole number)."""
        limit = self.boxes.limit
        if factor == 1:
            return self
        if limit is not None:
            epsilon = NormBall(limit.norm, limit.epsilon).times(factor).epsilon
            return replace(self, boxes=replace(self.boxes, limit=replace(limit, epsilon=epsilon)))
        if self.boxes.low_center is not self.boxes.high_center:
            raise RequestError(
                "boxes that differ from row to row have no radius to multiply; leave out 'training-epsilon-factor' "
                "and 'tune'"
            )
        factors = np.full(self.dataset.n_features, factor)
        return Rows(self.dataset, self.boxes.with_radii_times(factors))


def find_base(y: NDArray[np.int32], n_labels: int, weights: RowWeights | None = None) -> FloatArray:
    """Scores before the first round: logarithms of the class frequencies, by their weights if there are some."""
    logs = np.log(np.bincount(y, None if weights is None else weights.by_mean, n_labels) + 1.0)
    base = logs[1:] - logs[0] if n_labels == 2 else logs - logs.mean()
    return np.asarray(np.rint(base / VALUE_UNIT) * VALUE_UNIT)


def score_curves(curves: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """The number of rounds of each candidate, and its fitness with them on each split.

    It is the last round that is not behind the best one by more than a standard error: curves of few rows have their
    highest point anywhere, and models of fewer rows than the final one overfit earlier.

    Parameters
    ----------
    curves : array, shape (n_candidates, n_splits, n_rounds)
        Fitness after each round.
    """
    n_rounds, scores = [], []
    for curve in curves:
        mean, error = compare((curve - curve[:, [curve.mean(axis=0).argmax()]]).T)
        n_rounds.append(int(np.flatnonzero(mean >= -ERRORS * error)[-1]) + 1)
        scores.append(curve[:, n_rounds[-1] - 1])
    return np.array(n_rounds), np.stack(scores)


def choose_by_curves(curves: FloatArray) -> tuple[int, int]:
    """Candidate and number of rounds, from curves of fitness as in `score_curves`."""
    n_rounds, scores = score_curves(curves)
    mean, error = compare(scores - scores[0])
    chosen = int(np.argmax(np.where(mean > ERRORS * error, mean, 0.0)))
    return chosen, int(n_rounds[chosen])


class RatedRows(Protocol):
    """Samples under a boosted model."""

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Accuracy, and lower bounds of stability and of robust accuracy."""


class Rounds(Protocol):
    """A boosted model that grows by rounds."""

    @property
    def learned(self) -> RatedRows: ...

    @property
    def tested(self) -> RatedRows | None: ...

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of leaves and of trees."""


class BaseBoostingTrainer(BaseTrainer):
    """A boosted model whose options are chosen among candidates; see `metasilvae.training.protocol.Trainer`.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    perturbation : Perturbation
        The perturbation that the model should withstand.
    options : BoostingOptions
    jobs : int or None
        Threads; None means all available cores.

    Attributes
    ----------
    candidate : dict or None
        The candidate that tuning chose.
    """

    title: ClassVar[str] = "a boosted model"

    def __init__(
        self, dataset: Dataset, perturbation: Perturbation, options: BoostingOptions, jobs: int | None = 1
    ) -> None:
        super().__init__(dataset, perturbation, options.tree, jobs)
        self.boosting_options = options
        self.candidate: Candidate | None = None
        every = Rows(self.dataset, perturbation.boxes(self.dataset))
        self._learned = every if self.held_out is None else every.subset(self._rows)
        kept_out = np.setdiff1d(np.arange(dataset.n_samples), self._rows)
        self._held = None if self.held_out is None else every.subset(kept_out)
        self._n_rounds = options.n_rounds
        self._splits: list[Pair] = []
        self._split_kind, self._n_tuning_rows = options.tree.split, 0
        if options.tree.tune:
            planned = plan_cross_validation(self._learned.dataset, options.tree.seed, options.tree.split)
            self._splits = planned.pairs[: planned.n_first]
            self._split_kind, self._n_tuning_rows = planned.kind, planned.n_rows
        self._candidates = [dict(each) for each in self._list_candidates()] if self._splits else []
        # Fitness of each candidate on each split, after the rounds that its trials follow.
        self._curves = np.full((len(self._candidates), len(self._splits), self._n_followed), np.nan)
        # Fitness after each round, from the single leaf on: on the samples, and on held-out rows.
        self._fitness: list[float] = []
        self._held_fitness: list[float] = []

    @abstractmethod
    def _list_candidates(self) -> tuple[Candidate, ...]:
        """Candidates of tuning; the first one is the usual one."""

    @property
    @abstractmethod
    def _n_followed(self) -> int:
        """Number of values of the fitness that a trial finds."""

    @property
    def _round_curves(self) -> FloatArray:
        """Those of them that belong to rounds."""
        return self._curves

    @abstractmethod
    def _plan_trial(self, options: BoostingOptions, split: int) -> Callable[[Stopped], FloatArray]:
        """The trial of a candidate on a split; it returns a curve of fitness, which holds NaN if it was stopped."""

    @abstractmethod
    def _make_booster(self, pool: futures.Executor | None = None) -> Rounds:
        """A model without rounds, whose fitness is noted."""

    def _start_tuning(self, pool: futures.Executor) -> Rounds:
        """The model for users who stop before a candidate is chosen."""
        return self._make_booster()

    @abstractmethod
    def _forget_booster(self) -> None:
        """Forget the model, because the options have changed."""

    @abstractmethod
    def _boost(self, pool: futures.Executor) -> Iterator[Progress]:
        """All rounds, with the options that tuning has chosen."""

    def _rounds_for_all_rows(self, n_rounds: int) -> int | None:
        """The number of rounds of the whole run by that of the trials; None if trials say nothing about it."""
        return None

    @property
    def n_rounds(self) -> int:
        """Rounds to train: as many as the options ask for, or as tuning chose."""
        return self._n_rounds

    @property
    def n_steps(self) -> int:
        return len(self._candidates) * len(self._splits) + self.boosting_options.n_rounds

    def observe(self, observer: Observer) -> NoReturn:
        raise RequestError("an archive holds the trees of one run for a single tree; leave 'boost' out")

    @property
    def tuning(self) -> dict[str, Any] | None:
        if self.candidate is None or not np.isfinite(self._curves).all():
            return None
        n_rounds, scores = score_curves(self._round_curves)
        mean, error = compare(scores)
        compared = [
            {**candidate, "score": round(float(mean[place]), 6), "error": round(float(error[place]), 6)}
            for place, candidate in enumerate(self._candidates)
        ]
        for record, number in zip(compared, n_rounds.tolist(), strict=True):
            if self._rounds_for_all_rows(number) is not None:
                record["rounds"] = number
        chosen = compared[self._candidates.index(self.candidate)]
        rounds = {} if self._n_rounds == self.boosting_options.n_rounds else {"rounds": self._n_rounds}
        return {
            "chosen": {**self.candidate, **rounds}, "score": chosen["score"], "error": chosen["error"],
            "splits": len(self._splits), "split": self._split_kind, "rows": self._n_tuning_rows, "finalists": compared,
        }  # fmt: skip

    @property
    def state(self) -> dict[str, Any]:
        return {
            "curves": self._curves.ravel()[np.isfinite(self._curves.ravel())],
            "candidate": None if self.candidate is None else self._candidates.index(self.candidate),
            "rounds": self._n_rounds,
            "steps": self._n_reported,
            "seconds": self.seconds,
        }

    def resume(self, document: dict[str, Any]) -> None:
        curves = take_array(document, "curves", "<f8")
        if len(curves) > self._curves.size or len(curves) % max(self._n_followed, 1) or not np.isfinite(curves).all():
            raise damaged("the tuning has another size")
        self._curves.ravel()[: len(curves)] = curves
        if document.get("candidate") is not None:
            position = take(document, "candidate", int)
            if position >= len(self._candidates):
                raise damaged("there is no such candidate")
            self._apply(self._candidates[position])
        self._n_rounds = take(document, "rounds", int)
        self._n_reported = take(document, "steps", int)
        self._clock.resume(take(document, "seconds", float))

    # Parts of the run

    def _steps(self) -> Iterator[Progress]:
        pool = futures.ThreadPoolExecutor(self._jobs)
        try:
            if self._candidates and self.candidate is None:
                yield from self._tune(pool)
            if not self._is_over():
                yield from self._boost(pool)
        finally:
            pool.shutdown(cancel_futures=True)

    def _tune(self, pool: futures.Executor) -> Iterator[Progress]:
        """Try every candidate on every split, then choose one and, where possible, its number of rounds."""
        booster = self._start_tuning(pool)
        if self._is_over():
            yield self._report("tuning", 0, booster)
            return
        places = list(np.ndindex(self._curves.shape[:2]))
        n_known = int(np.isfinite(self._curves[:, :, -1]).sum())
        is_late = False

        def is_stopped() -> bool:
            return self.stop_reason is not None or is_late

        def hurry() -> None:
            nonlocal is_late
            is_late = True

        tasks = [
            pool.submit(
                self._plan_trial(self.boosting_options.with_candidate(self._candidates[row]), split), is_stopped
            )
            for row, split in places[n_known:]
        ]
        for step, (place, task) in enumerate(zip(places[n_known:], tasks, strict=True), n_known):
            curve = wait_for(task, self._clock.deadline(TUNING_FRACTION), hurry)
            if self.stop_reason is None and np.isfinite(curve).all():
                self._curves[place] = curve
                self._n_reported += 1
            progress = self._report("tuning", step, booster)
            if step == len(places) - 1 and self.stop_reason is None:
                self._choose()
                progress = replace(progress, tuning=self.tuning)
            yield progress
            if self._is_over():
                return
        # All trials were known before.
        if self.candidate is None:
            self._choose()

    def _choose(self) -> None:
        self._n_reported = len(self._candidates) * len(self._splits)
        is_complete = bool(np.isfinite(self._curves).all())
        curves = self._round_curves
        position, n_rounds = choose_by_curves(curves) if is_complete else (0, curves.shape[2])
        self._apply(self._candidates[position])
        wanted = self._rounds_for_all_rows(n_rounds)
        # A curve that still rises at its end says nothing about later rounds.
        if wanted is not None and n_rounds < RISING * curves.shape[2]:
            self._n_rounds = min(wanted, self._n_rounds)

    def _apply(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.boosting_options = self.boosting_options.with_candidate(candidate)
        self.options = self.boosting_options.tree
        self._forget_booster()

    def _note(self, booster: Rounds) -> None:
        """Keep the fitness after a round."""
        value = self.options.fitness.value
        self._fitness.append(value(*booster.learned.fractions))
        if booster.tested is not None:
            self._held_fitness.append(value(*booster.tested.fractions))

    def _stop_work(self) -> None:
        """Rounds ask for the reason to stop by themselves."""

    def _report(self, phase: str, step: int, booster: Rounds) -> Progress:
        fractions = booster.learned.fractions
        fitness = self.options.fitness.value(*fractions)
        factor = self.options.training_epsilon_factor
        return Progress(phase, step, self.seconds, fitness, *fractions, *booster.size, fitness, fitness, factor)
