"""Standard error: lines for people, and progress bars if it is a terminal. Work goes on where it cannot be written."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, TextIO

import click


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
