"""Stops at any place where a run asks whether it has to end, each time the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

import pytest

from metasilvae.training.protocol import BaseTrainer, Trainer, TrainerGroup


class LateTask:
    """A task that is done when its result is asked for, in the thread that asks."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work: Callable[[], Any] | None = work
        self._is_cancelled = False
        self._result: Any = None

    def cancel(self) -> bool:
        self._is_cancelled = self._work is not None
        return self._is_cancelled

    def result(self, timeout: float | None = None) -> Any:
        if self._is_cancelled:
            raise futures.CancelledError
        if self._work is not None:
            work, self._work = self._work, None
            self._result = work()
        return self._result


class LateExecutor:
    """Instead of threads: the same order of all work in every run."""

    def __init__(self, max_workers: int | None = None) -> None:
        self._tasks: list[LateTask] = []

    def submit(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> LateTask:
        self._tasks.append(LateTask(lambda: function(*arguments, **named)))
        return self._tasks[-1]

    def map(self, function: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        tasks = [self.submit(function, *each) for each in zip(*items, strict=False)]
        return (task.result() for task in tasks)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        for task in self._tasks:
            if cancel_futures:
                task.cancel()


class Questions:
    """Counts how often trainers and groups of them ask whether they are stopped; the chosen question stops a run.

    Attributes
    ----------
    count : int
        Questions so far.
    stop_at : int or None
        The question, from 0 on, before which `trainer` is stopped.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.stop_at: int | None = None
        self.trainer: Trainer | None = None
        self._is_stopping = False
        patch.setattr(futures, "ThreadPoolExecutor", LateExecutor)
        for owner, name in ((BaseTrainer, "stop_reason"), (TrainerGroup, "is_stopped")):
            patch.setattr(owner, name, self._watch(name), raising=False)

    def follow(self, trainer: Trainer, stop_at: int | None = None) -> None:
        """Run a trainer to its end, or to the stop."""
        self.trainer, self.count, self.stop_at = trainer, 0, stop_at
        for _ in trainer.run():
            pass
        self.trainer = None

    def _watch(self, name: str) -> property:
        def read(owner: Any) -> Any:
            self._ask()
            return owner.__dict__[name]

        def write(owner: Any, value: Any) -> None:
            owner.__dict__[name] = value

        return property(read, write)

    def _ask(self) -> None:
        if self.trainer is None or self._is_stopping:
            return
        if self.count == self.stop_at:
            self._is_stopping = True
            self.trainer.stop()
            self._is_stopping = False
        self.count += 1
