"""The contract of everything that trains.

A trainer is made for one data set, one perturbation and one set of options. `Trainer` says what it offers.
`BaseTrainer` implements what is the same for all of them: held-out rows, clock, deadline, stop and observers. Trainers
that run other trainers (tuning, forests) pass a stop on to them through a `TrainerGroup`.
"""

from __future__ import annotations

import contextlib
import enum
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import choose_rows
from metasilvae.errors import DataError, RequestError
from metasilvae.execution.threads import available_cores, wait_for
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.perturbations.norms import LINF
from metasilvae.training.checkpoint.files import damaged, take
from metasilvae.training.options import TrainingOptions

# Rows are held out with a seed of their own, so that runs with different seeds are compared on the same rows.
HOLDING_SEED = 0
# A time limit must be more than 0.
TINY = 1e-9


def hold_out(dataset: Dataset, fraction: float) -> tuple[NDArray[np.intp], Dataset | None]:
    """Rows to train on, and the data set of a fraction of the rows that is held out; None if that is 0."""
    if not fraction:
        return np.arange(dataset.n_samples), None
    learned, held_out = choose_rows(dataset, fraction, HOLDING_SEED)
    return learned, dataset.subset(held_out)


class StopReason(enum.Enum):
    """Why a training run ended."""

    ITERATIONS = "iterations"
    PATIENCE = "patience"
    TARGET = "target"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"

    def describe(self, options: TrainingOptions, is_forest: bool = False) -> str:
        """The reason as a phrase for users; `options` are those of the trees."""
        found = {
            StopReason.ITERATIONS: f"reached the limit of {options.generations} generations",
            StopReason.PATIENCE: f"no improvement in {options.patience} {'rounds' if is_forest else 'generations'}",
            StopReason.TARGET: f"reached the target phi {options.target:g}",
            StopReason.TIME_LIMIT: "reached the time limit",
            StopReason.INTERRUPTED: "interrupted",
        }
        if self is StopReason.ITERATIONS and (is_forest or not options.generations):
            return "completed"
        return f"stopped: {found[self]}"


# Phases of training runs, with the unit of their steps. The phases of a tree are "initial population", "generation" and
# "local search". Tuning adds "initial tree", which is there for users who stop early, and "tuning" before them. After
# these two, the steps of a forest are of the phase "tree"; those of a boosted model are "round" and "refit". With
# very many samples all these phases except the last three run on a part of the samples first, reported as "sample".
PHASES = {
    "sample": "step",
    "initial tree": "step",
    "tuning": "trial",
    "initial population": "tree",
    "generation": "generation",
    "local search": "pass",
    "tree": "tree",
    "round": "round",
    "refit": "pass",
}


@dataclass(frozen=True)
class Progress:
    """One step of a training run.

    Metrics are those of the best model so far on the training samples. Within a phase the score of a tree never falls.
    From one phase to another metrics may fall, because they are measured differently: the initial tree of a tuned run
    is not regularized and is scored with the perturbation itself, later trees with the larger perturbation that they
    are trained for. The field `training_epsilon_factor` says which one it is. A forest starts anew after tuning.

    Attributes
    ----------
    phase : str
        One of `PHASES`.
    step : int
        Number of the step in its phase, from 0.
    seconds : float
        Since the trainer was made, including the preparation of the samples and the time before a resume.
    fitness : float
        Weighted sum of accuracy, stability and robust accuracy; the leaf penalty is not subtracted.
    accuracy, stability, robust_accuracy : float
        Fractions of the training samples. Those of a forest are lower bounds, as far as its votes prove them.
    leaves : int
        Number of leaves, of all trees of a forest.
    offspring : int
        Number of trees made so far.
    mean_fitness : float
        Mean fitness of the population.
    score : float
        What the search maximizes: the fitness with the robust weight and the leaf penalty.
    training_epsilon_factor : float
        Stability and robust accuracy are measured with the perturbation multiplied by this factor.
    tuning : dict or None
        What tuning has chosen, with the step that decided it.
    """

    phase: str
    step: int
    seconds: float
    fitness: float
    accuracy: float
    stability: float
    robust_accuracy: float
    leaves: int
    offspring: int
    mean_fitness: float
    score: float
    training_epsilon_factor: float = 1.0
    tuning: dict[str, Any] | None = None

    @property
    def unit(self) -> str:
        """What a step of this phase is."""
        return PHASES.get(self.phase, "step")


def read_progress(document: dict[str, Any]) -> Progress:
    """The progress that was stored as a dictionary."""
    kinds = {"str": str, "int": int, "float": float}
    stored = [each for each in fields(Progress) if each.name != "tuning"]
    return Progress(*(take(document, each.name, kinds[str(each.type)], -math.inf) for each in stored))


class Observer(Protocol):
    """Sees all trees of a training run, and is stored with it in checkpoints."""

    def observe(self, trees: Sequence[Any]) -> object:
        """Look at the trees of a step (`Individual` of the kernels); they are overwritten after the call."""

    @property
    def state(self) -> dict[str, Any]:
        """All that the observer knows, as plain values and arrays."""

    def resume(self, document: dict[str, Any]) -> None:
        """Continue from the state of another observer of the same run."""


class Trainer(Protocol):
    """A training run that can be followed, stopped, stored and resumed.

    The result depends on data, perturbation and options alone, never on the number of jobs.

    Attributes
    ----------
    options : TrainingOptions
        Options of the trees; after tuning, with the chosen values.
    stop_reason : StopReason or None
        Why the run ended; None before.
    held_out : Dataset or None
        Rows that are held out to choose among models.
    """

    dataset: Dataset
    perturbation: Perturbation
    options: TrainingOptions
    stop_reason: StopReason | None
    held_out: Dataset | None

    @property
    def n_steps(self) -> int:
        """Number of progress records of a run that nothing ends early."""

    @property
    def seconds(self) -> float:
        """Seconds since the trainer was made, with those of the runs that it resumes."""

    def run(self) -> Iterator[Progress]:
        """Train and yield after each step; leaving the loop early keeps the best model so far."""

    def stop(self) -> None:
        """End the run soon; may be called at any time, also from a signal handler or from another thread."""

    @property
    def model(self) -> Model:
        """The best model so far, at any time."""

    @property
    def held_out_fitness(self) -> float | None:
        """Fitness of the best model so far on the held-out rows, if there are any."""

    @property
    def tuning(self) -> dict[str, Any] | None:
        """What tuning has chosen and by which scores, as JSON has it; None without tuning."""

    @property
    def state(self) -> dict[str, Any]:
        """Where the run stands after the last step that no stop has cut short; `steps` counts the reported ones."""

    def resume(self, document: dict[str, Any]) -> None:
        """Continue from the state of another run with the same data and options; call it before `run`."""

    def observe(self, observer: Observer) -> None:
        """Show the trees of all steps to an observer, after those added before it; call it before `run`."""


class Clock:
    """Seconds since a run began, over all processes that it took, and the time at which it must end.

    Parameters
    ----------
    limit : float
        Seconds until the deadline.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self._start = time.perf_counter()
        self._limit = limit

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    @property
    def seconds_left(self) -> float:
        return max(TINY, self._limit - self.seconds)

    @property
    def is_expired(self) -> bool:
        return self.seconds >= self._limit

    def deadline(self, fraction: float = 1.0) -> float:
        """When a fraction of the time is over, by time.perf_counter."""
        return self._start + fraction * self._limit

    def resume(self, seconds: float) -> None:
        """Count at least so many seconds as passed."""
        self._start = min(self._start, time.perf_counter() - seconds)


class Stoppable(Protocol):
    """Work that can be ended early."""

    def stop(self) -> None:
        """End soon."""


class TrainerGroup:
    """Trainers that one call stops, from any thread; those that are added later stop at once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._trainers: list[Stoppable] = []
        self.is_stopped = False

    def stop(self) -> None:
        # Without the lock: a signal handler may interrupt the thread that holds it.
        self.is_stopped = True
        for trainer in list(self._trainers):
            trainer.stop()

    def add(self, trainer: Stoppable) -> None:
        with self._lock:
            self._trainers.append(trainer)
        if self.is_stopped:
            trainer.stop()

    @contextlib.contextmanager
    def watching(self, work: Stoppable) -> Iterator[None]:
        """Stop this work, too, if the group is stopped meanwhile."""
        self.add(work)
        try:
            yield
        finally:
            with self._lock:
                self._trainers.remove(work)

    def run(self, trainer: Trainer) -> Model:
        """Train to the end, or until the group is stopped."""
        with self.watching(trainer):
            return finish(trainer)


def finish(trainer: Trainer) -> Model:
    """Run a trainer to its end."""
    for _ in trainer.run():
        pass
    return trainer.model


class BaseTrainer(ABC):
    """What all trainers have in common; subclasses provide the abstract part of the contract.

    Parameters
    ----------
    dataset : Dataset
        Training samples of at least two classes.
    perturbation : Perturbation
        The perturbation that the model should withstand.
    options : TrainingOptions
        Options of the trees.
    jobs : int or None
        Threads; None means all available cores.
    clock : Clock or None
        The clock of the run that this one is a part of.

    Attributes
    ----------
    norms : tuple of str
        Norms of the total change that the trainer knows (`metasilvae.perturbations.norms`); all of them know boxes.
    title : str
        What it trains, for messages.
    """

    norms: ClassVar[tuple[str, ...]] = ()
    title: ClassVar[str] = "a tree"

    def __init__(
        self,
        dataset: Dataset,
        perturbation: Perturbation,
        options: TrainingOptions,
        jobs: int | None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock(options.time_limit)
        if dataset.n_labels < 2:
            raise DataError(f"{dataset.source}: holds one class only ({dataset.labels[0]}); there is nothing to learn")
        limit = perturbation.boxes(dataset).limit
        if limit is not None and limit.norm not in self.norms:
            known = ", ".join((LINF, *self.norms))
            raise RequestError(
                f"{perturbation.describe()}: {self.title} cannot be trained for the norm {limit.norm}, only for "
                f"{known}; train for another norm, and verify with this one"
            )
        self.dataset = dataset.noting_missing
        self.perturbation = perturbation
        self.options = options
        self.stop_reason: StopReason | None = None
        self._rows, self.held_out = hold_out(self.dataset, options.validation)
        self._jobs = available_cores() if jobs is None else jobs
        self._observers: list[Observer] = []
        # Steps that were reported and that no stop has cut short.
        self._n_reported = 0

    @cached_property
    def learned(self) -> Dataset:
        """The samples that are not held out."""
        return self.dataset if self.held_out is None else self.dataset.subset(self._rows)

    @property
    def seconds(self) -> float:
        return self._clock.seconds

    def run(self) -> Iterator[Progress]:
        yield from self._steps()
        self.stop_reason = self.stop_reason or StopReason.ITERATIONS

    def stop(self) -> None:
        self._end(StopReason.INTERRUPTED)

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    def share_observers(self, part: BaseTrainer) -> None:
        """Show the trees of a trainer that is a part of this run to all observers of this one, also to later ones."""
        part._observers = self._observers

    @property
    @abstractmethod
    def n_steps(self) -> int: ...

    @property
    @abstractmethod
    def model(self) -> Model: ...

    @property
    @abstractmethod
    def held_out_fitness(self) -> float | None: ...

    @property
    def tuning(self) -> dict[str, Any] | None:
        return None

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]: ...

    @abstractmethod
    def resume(self, document: dict[str, Any]) -> None: ...

    @abstractmethod
    def _steps(self) -> Iterator[Progress]:
        """The steps of the run; `_is_over` says between two of them whether to return."""

    @abstractmethod
    def _stop_work(self) -> None:
        """Make work that is under way end early."""

    def _end(self, reason: StopReason) -> None:
        self.stop_reason = self.stop_reason or reason
        self._stop_work()

    def _time_out(self) -> None:
        self._end(StopReason.TIME_LIMIT)

    def _is_over(self) -> bool:
        if self.stop_reason is None and self._clock.is_expired:
            self._time_out()
        return self.stop_reason is not None

    def _wait(self, task: futures.Future[Any]) -> Any:
        """Result of a task, which ends early at the deadline."""
        return wait_for(task, self._clock.deadline(), self._time_out)

    def _show(self, trees: Sequence[Any]) -> None:
        for observer in self._observers:
            observer.observe(trees)

    @property
    def _observed(self) -> list[dict[str, Any]]:
        return [observer.state for observer in self._observers]

    def _resume_observers(self, document: dict[str, Any]) -> None:
        stored = take(document, "observed", list)
        if len(stored) != len(self._observers):
            raise damaged("it has another number of observers")
        for observer, state in zip(self._observers, stored, strict=True):
            observer.resume(state)
