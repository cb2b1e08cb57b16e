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
from metasilvae.training.trials import TUNING_FRACTION, compare, describe_cut_tuning

Candidate = dict[str, Any]
# Whether work that is under way should end.
Stopped = Callable[[], bool]
# A difference counts if it exceeds so many standard errors.
ERRORS = 1.0
# A curve whose best round is in the last part of its rounds still rises.
RISING = 0.8
# With more than two splits candidates race: all are tried on the first split, the first one and so many others on the
# second split, the first one and the best other one, if it is ahead, on all splits.
RACING_SPLITS = 2
MOST_OTHERS = 2


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


def list_racing(curves: FloatArray, split: int) -> list[int]:
    """Numbers of the candidates that are tried on a split, by their curves on the splits before; see `MOST_OTHERS`.

    Parameters
    ----------
    curves : array, shape (n_candidates, n_splits, n_rounds)
        As in `score_curves`; not a number where a candidate was not tried.
    """
    numbers = list(range(len(curves)))
    if split == 0 or curves.shape[1] <= RACING_SPLITS:
        return numbers
    n_known = min(split, RACING_SPLITS)
    known = [number for number in numbers if np.isfinite(curves[number, :n_known]).all()]
    _, scores = score_curves(curves[known, :n_known])
    gains = scores.mean(axis=1) - scores[0].mean()
    # Those that gain most; of equal ones, the first.
    others = np.argsort(-gains[1:], kind="stable") + 1
    is_final = n_known == RACING_SPLITS
    kept = [each for each in others[:1] if gains[each] > 0] if is_final else list(others[:MOST_OTHERS])
    return sorted({0, *(known[each] for each in kept)})


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
        # Fitness of each candidate on each split, after the rounds that its trials follow; NaN if it was not tried.
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
        n_candidates, n_splits = self._curves.shape[:2]
        n_trials = n_candidates * n_splits
        if n_splits > RACING_SPLITS:
            n_trials = n_candidates + min(n_candidates, 1 + MOST_OTHERS) + min(n_candidates, 2) * (n_splits - 2)
        return n_trials + self.boosting_options.n_rounds

    def observe(self, observer: Observer) -> NoReturn:
        raise RequestError("an archive holds the trees of one run for a single tree; leave 'boost' out")

    @property
    def tuning(self) -> dict[str, Any] | None:
        if self.candidate is None:
            return None
        if self._plan_trials():
            return describe_cut_tuning(self.candidate, len(self._splits), self._split_kind, self._n_tuning_rows)
        finalists = self._finalists
        n_rounds, scores = score_curves(self._round_curves[finalists])
        mean, error = compare(scores)
        compared = [
            {**self._candidates[number], "score": round(float(mean[place]), 6), "error": round(float(error[place]), 6)}
            for place, number in enumerate(finalists)
        ]
        for record, number in zip(compared, n_rounds.tolist(), strict=True):
            if self._rounds_for_all_rows(number) is not None:
                record["rounds"] = number
        chosen = compared[finalists.index(self._candidates.index(self.candidate))]
        rounds = {} if self._n_rounds == self.boosting_options.n_rounds else {"rounds": self._n_rounds}
        return {
            "chosen": {**self.candidate, **rounds}, "score": chosen["score"], "error": chosen["error"],
            "splits": len(self._splits), "split": self._split_kind, "rows": self._n_tuning_rows, "finalists": compared,
        }  # fmt: skip

    @property
    def state(self) -> dict[str, Any]:
        return {
            "curves": self._curves.ravel(),
            "candidate": None if self.candidate is None else self._candidates.index(self.candidate),
            "rounds": self._n_rounds,
            "steps": self._n_reported,
            "seconds": self.seconds,
        }

    def resume(self, document: dict[str, Any]) -> None:
        curves = take_array(document, "curves", "<f8")
        if len(curves) != self._curves.size:
            raise damaged("the tuning has another size")
        self._curves[:] = curves.reshape(self._curves.shape)
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
        """Try candidates until the race is over, then choose one and, where possible, its number of rounds."""
        booster = self._start_tuning(pool)
        if self._is_over():
            yield self._report("tuning", 0, booster)
            return
        is_late = False

        def is_stopped() -> bool:
            return self.stop_reason is not None or is_late

        def hurry() -> None:
            nonlocal is_late
            is_late = True

        while not is_late and (places := self._plan_trials()):
            tasks = [
                pool.submit(
                    self._plan_trial(self.boosting_options.with_candidate(self._candidates[row]), split), is_stopped
                )
                for row, split in places
            ]
            for place, task in zip(places, tasks, strict=True):
                curve = wait_for(task, self._clock.deadline(TUNING_FRACTION), hurry)
                step = self._n_reported
                if self.stop_reason is None:
                    self._n_reported += 1
                    if np.isfinite(curve).all():
                        self._curves[place] = curve
                progress = self._report("tuning", step, booster)
                is_last = place == places[-1] and (is_late or not self._plan_trials())
                if is_last and self.stop_reason is None:
                    self._choose()
                    progress = replace(progress, tuning=self.tuning)
                yield progress
                if self._is_over():
                    return
        # All trials were known before.
        if self.candidate is None:
            self._choose()

    def _plan_trials(self) -> list[tuple[int, int]]:
        """Candidate and split of the trials that come next, all independent of each other; none if the race is over."""
        trials: list[tuple[int, int]] = []
        for split in range(len(self._splits)):
            # Up to here the splits decide which candidates are tried on the next ones.
            if trials and len(self._splits) > RACING_SPLITS and split <= RACING_SPLITS:
                break
            is_known = np.isfinite(self._curves[:, split]).all(axis=1)
            trials += [(row, split) for row in list_racing(self._round_curves, split) if not is_known[row]]
        return trials

    @property
    def _finalists(self) -> list[int]:
        """Numbers of the candidates that were tried on all splits."""
        return [int(number) for number in np.flatnonzero(np.isfinite(self._curves).all(axis=(1, 2)))]

    def _choose(self) -> None:
        finalists, n_rounds = self._finalists, self._round_curves.shape[2]
        chosen = 0
        if not self._plan_trials():
            position, n_rounds = choose_by_curves(self._round_curves[finalists])
            chosen = finalists[position]
        self._apply(self._candidates[chosen])
        wanted = self._rounds_for_all_rows(n_rounds)
        # A curve that still rises at its end says nothing about later rounds.
        if wanted is not None and n_rounds < RISING * self._round_curves.shape[2]:
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
