"""Long work on rows: how far it is on a terminal, and a signal that ends it with what is decided."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from metasilvae.cli.interrupts import Interrupts
from metasilvae.forest_verification import Limits
from metasilvae.report.row_bars import RowBar

LIMIT_HINT = "a row takes long; Ctrl-C reports what is known, --sample-timeout SECONDS limits each row"


class RowWork:
    """What the work and its caller have to know of each other.

    Attributes
    ----------
    stop : threading.Event
        Set by a signal; what is not decided by then stays open.
    on_stop : function
        Called by the signal too, for work that is done elsewhere.
    """

    def __init__(self, interrupts: Interrupts, bar: RowBar) -> None:
        self.stop = threading.Event()
        self.on_stop: Callable[[], object] = lambda: None
        self._interrupts = interrupts
        self._bar = bar

    def advance(self, n_rows: int) -> None:
        """So many more rows; threads may call this."""
        self._bar.advance(n_rows)

    def reach(self, share: float) -> None:
        """So much of the whole is done, from 0 to 1."""
        self._bar.reach(share)

    def end(self) -> None:
        self.stop.set()
        self.on_stop()

    @property
    def is_interrupted(self) -> bool:
        return self._interrupts.received != 0

    @property
    def exit_code(self) -> int:
        return self._interrupts.exit_code


@contextlib.contextmanager
def follow_rows(
    n_rows: int, limits: Limits, *, is_long: bool = True, name: str = "verify", unit: str = "row"
) -> Iterator[RowWork]:
    """Show progress and take signals, if the work is long; else there is nothing to keep, and a signal ends it all."""
    hint = "" if limits.as_dict() else LIMIT_HINT
    with Interrupts() as interrupts, RowBar(n_rows, is_long, name, unit, hint) as bar:
        work = RowWork(interrupts, bar)
        interrupts.stop = work.end if is_long else None
        yield work
