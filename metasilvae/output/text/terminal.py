"""Standard error: lines for people, and progress bars if it is a terminal. Work goes on where it cannot be written.

How far work on rows is, on a terminal.

What is shown while a file comes over the network.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from metasilvae.datasets.remote import Received


def tell(line: str) -> None:
    """A line on standard error; a full disk or a terminal that has gone must not end what it tells of."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def open_bar(**settings: Any) -> Any:
    """A progress bar of tqdm, or None if standard error is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    return tqdm(file=_Lasting(sys.stderr), leave=False, dynamic_ncols=True, **settings)


class _Lasting:
    """A stream that takes nothing any more when it cannot be written, instead of failing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


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


class TransferBar:
    """A bar on standard error, if that is a terminal; one for each file."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def show(self, received: Received) -> None:
        bar = self._bar
        if bar is None or bar.total != received.total or bar.n > received.n_bytes:
            self.close()
            self._bar = bar = open_bar(
                total=received.total, initial=received.n_bytes, desc=self._title, unit="B", unit_scale=True
            )
        if bar is not None:
            bar.update(received.n_bytes - bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
