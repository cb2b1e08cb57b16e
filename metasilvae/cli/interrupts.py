"""Ending on a signal: long work without losing what was reached, everything else without leaving parts of files."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class Terminated(BaseException):
    """A signal asks the program to end; raised, so that temporary files are removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


# Signals that came while `raising_terminated` watched for them.
_arrived: list[int] = []


@contextlib.contextmanager
def raising_terminated() -> Iterator[None]:
    """Turn signals that would end the program at once into `Terminated`; those that are ignored stay so.

    Compiled code may drop an exception, as some modules do while they are imported. So it is raised again where work
    begins to catch signals by itself (`Interrupts`), and at the end.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        _arrived.append(number)
        raise Terminated(number)

    changed = []
    if threading.current_thread() is threading.main_thread():
        fatal = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        changed = [number for number in fatal if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, handle)
    try:
        yield
        _raise_arrived()
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
        _arrived.clear()


def _raise_arrived() -> None:
    if _arrived:
        raise Terminated(_arrived[0])


class Interrupts:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request to stop; a second one ends the program at once.

    Attributes
    ----------
    stop : function or None
        What asks the work to stop; None while there is nothing worth keeping, then the first signal ends the program.
    received : int
        The signal that came, 0 if none did.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], object] | None = None
        self.received = 0
        self._usual: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        _raise_arrived()
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM]
            # Who starts a program with nohup wants it to outlive the terminal.
            if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                numbers.append(signal.SIGHUP)
            self._usual = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    @property
    def exit_code(self) -> int:
        return 128 + self.received if self.received else 0

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)
        self._usual = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received or self.stop is None:
            self._restore()
            signal.raise_signal(number)
            return
        self.received = number
        self.stop()
