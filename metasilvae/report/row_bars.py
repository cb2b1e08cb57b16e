"""How far work on rows is, on a terminal."""

from __future__ import annotations

import threading
from typing import Any

from metasilvae.report.terminal import open_bar

# Seconds without a row that is done, after which a hint is given.
PATIENCE = 20.0
WATCHER = "metasilvae-hint"


class RowBar:
    """A bar on standard error that counts rows, if that is a terminal and the bar is wanted.

    Parameters
    ----------
    hint : str
        Told once if nothing is done for a while; empty for none.
    """

    def __init__(
        self, n_rows: int, is_wanted: bool = True, what: str = "verify", unit: str = "row", hint: str = ""
    ) -> None:
        self._bar: Any = None
        self._lock = threading.Lock()
        self._is_alive = threading.Event()
        self._is_closed = False
        self._n_rows, self._n_reached = n_rows, 0
        if is_wanted:
            self._bar = open_bar(total=n_rows, desc=what, unit=unit)
            if hint and self._bar is not None:
                threading.Thread(target=self._watch, args=(hint,), name=WATCHER, daemon=True).start()

    def __enter__(self) -> RowBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with self._lock:
                self._is_closed = True
                self._bar.close()
            self._is_alive.set()

    def advance(self, n_rows: int) -> None:
        """So many more rows; threads may call this."""
        if self._bar is not None:
            with self._lock:
                self._bar.update(n_rows)
            self._is_alive.set()

    def reach(self, share: float) -> None:
        """So much of the whole is done, from 0 to 1."""
        n_done = int(self._n_rows * share)
        self.advance(n_done - self._n_reached)
        self._n_reached = n_done

    def _watch(self, hint: str) -> None:
        while self._is_alive.wait(PATIENCE):
            if self._is_closed:
                return
            self._is_alive.clear()
        with self._lock:
            if not self._is_closed:
                self._bar.write(hint, file=self._bar.fp)
