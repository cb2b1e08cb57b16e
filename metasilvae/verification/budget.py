"""How much work a complete search may spend on one row, and why it gave up."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

# Reasons of an undecided row.
TIMEOUT, STEPS, INTERRUPTED = "timeout", "steps", "interrupted"


@dataclass(frozen=True)
class Budget:
    """What may be spent on one row.

    Attributes
    ----------
    seconds : float or None
    steps : int or None
        Boxes looked at; unlike seconds the same on every machine.
    """

    seconds: float | None = None
    steps: int | None = None

    def as_dict(self) -> dict[str, float]:
        """The limits that are set, by the names of their options."""
        named = {"sample_timeout": self.seconds, "sample_steps": self.steps}
        return {name: value for name, value in named.items() if value is not None}


@dataclass
class RemainingBudget:
    """What is left for a row."""

    budget: Budget
    stop: threading.Event
    start: float
    steps: int = 0

    def reason(self) -> str | None:
        """Why the search must end, if it must."""
        if self.stop.is_set():
            return INTERRUPTED
        if self.budget.steps is not None and self.steps >= self.budget.steps:
            return STEPS
        if self.budget.seconds is not None and time.perf_counter() - self.start >= self.budget.seconds:
            return TIMEOUT
        return None

    def half(self) -> RemainingBudget:
        """Half of what is left, so that one hard radius does not use up everything."""
        now = time.perf_counter()
        seconds = None if self.budget.seconds is None else (self.budget.seconds - (now - self.start)) / 2
        steps = None if self.budget.steps is None else max((self.budget.steps - self.steps) // 2, 1)
        return RemainingBudget(Budget(seconds, steps), self.stop, now)
