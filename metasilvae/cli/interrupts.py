"""Ending long work on a signal without losing what was reached."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupts:
    """Turns the first SIGINT or SIGTERM into a request to stop; a second one ends the program at once.

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
        if threading.current_thread() is threading.main_thread():
            self._usual = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
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
