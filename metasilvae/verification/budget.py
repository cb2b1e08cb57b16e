"""How much work a complete search may do, and the loop that advances a search within its budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from metasilvae._core.common.status import SearchStatus

# Reasons of an undecided row.
TIMEOUT, STEPS, INTERRUPTED = "timeout", "steps", "interrupted"
# Between two slices of a search the clock, the number of steps and the stop event are checked.
STEPS_PER_SLICE = 256


@dataclass(frozen=True)
class Budget:
    """The work allowed for one row.

    Attributes
    ----------
    seconds : float or None
    steps : int or None
        Boxes that the search examines; unlike seconds this is the same on every machine.
    """

    seconds: float | None = None
    steps: int | None = None

    def as_dict(self) -> dict[str, float]:
        """The limits that are set, by the names of their options."""
        named = {"sample_timeout": self.seconds, "sample_steps": self.steps}
        return {name: value for name, value in named.items() if value is not None}


@dataclass
class RemainingBudget:
    """A budget of which `steps` are spent, and all seconds since `start`; once `stop` is set, nothing is left."""

    budget: Budget
    stop: threading.Event
    start: float = field(default_factory=time.perf_counter)
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

    def run(self, search: Any, on_slice: Callable[[], object] = lambda: None) -> tuple[SearchStatus, str | None]:
        """Advance a search until it has a result or the budget is spent.

        Parameters
        ----------
        search : object
            A compiled search with ``advance(max_steps)`` and the counter ``n_steps``.
        on_slice : function
            Called after each slice.

        Returns
        -------
        status : SearchStatus
        reason : str or None
            Why the search is undecided, if it is.
        """
        if self.stop.is_set():
            return SearchStatus.UNDECIDED, INTERRUPTED
        while True:
            n_before = search.n_steps
            left = STEPS_PER_SLICE if self.budget.steps is None else self.budget.steps - self.steps
            status = SearchStatus(search.advance(min(STEPS_PER_SLICE, left)))
            self.steps += search.n_steps - n_before
            on_slice()
            reason = self.reason() if status == SearchStatus.UNDECIDED else None
            if status != SearchStatus.UNDECIDED or reason is not None:
                return status, reason
