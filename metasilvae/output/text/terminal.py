"""What people read on standard error: notes, warnings, errors, and progress bars if it is a terminal.

Work continues if standard error cannot be written. `Verbosity` decides what is shown.
"""

from __future__ import annotations

import contextlib
import enum
import sys
import threading
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from metasilvae.datasets.remote import Received


class Verbosity(enum.IntEnum):
    """How much is printed beside results and errors."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


_verbosity = Verbosity.NORMAL


def get_verbosity() -> Verbosity:
    return _verbosity


def set_verbosity(level: Verbosity) -> None:
    global _verbosity
    _verbosity = level


def tell_error(line: str) -> None:
    """Print a line on standard error; a full disk or a closed terminal must not end the work."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def tell(line: str) -> None:
    """Print a note or a warning on standard error, unless the program is to be quiet."""
    if _verbosity > Verbosity.QUIET:
        tell_error(line)


def tell_details(line: str) -> None:
    """Print a line on standard error if the program is to be verbose."""
    if _verbosity is Verbosity.VERBOSE:
        tell_error(line)


def print_summary(text: str, *, err: bool = False) -> None:
    """Print what a command did, on standard output unless its result goes there, and unless it is to be quiet."""
    if _verbosity > Verbosity.QUIET:
        click.echo(text.removesuffix("\n"), err=err)


def open_bar(**settings: Any) -> Any:
    """A progress bar of tqdm; None if standard error is no terminal or the program is to be quiet."""
    if _verbosity is Verbosity.QUIET or sys.stderr is None or not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    return tqdm(file=_Lasting(sys.stderr), leave=False, dynamic_ncols=True, **settings)


class _Lasting:
    """A stream that ignores errors when it cannot be written any more."""

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


# Seconds without progress after which a hint is shown.
PATIENCE = 20.0
WATCHER = "metasilvae-hint"


class RowBar:
    """A progress bar that counts rows or other units, if standard error is a terminal and the bar is wanted.

    Parameters
    ----------
    phase : str
        What is being done, such as ``verifying``.
    hint : str
        Shown once if nothing is done for a while; empty for none.
    """

    def __init__(
        self, n_rows: int, is_wanted: bool = True, phase: str = "verifying", unit: str = "rows", hint: str = ""
    ) -> None:
        self._bar: Any = None
        self._lock = threading.Lock()
        self._is_alive = threading.Event()
        self._is_closed = False
        self._n_rows, self._n_reached = n_rows, 0
        if is_wanted:
            self._bar = open_bar(total=n_rows, desc=phase, unit=f" {unit}")
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
        """Count more rows that are done; threads may call this."""
        if self._bar is not None:
            with self._lock:
                self._bar.update(n_rows)
            self._is_alive.set()

    def reach(self, fraction: float) -> None:
        """This fraction of the work is done."""
        n_done = int(self._n_rows * fraction)
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
    """A progress bar for bytes of a file that comes over the network."""

    def __init__(self, title: str) -> None:
        self._title = f"fetching {title}"
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
