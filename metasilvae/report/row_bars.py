"""How far work on rows is, on a terminal."""

from __future__ import annotations

import sys
import threading
from typing import Any


class RowBar:
    """A bar on standard error that counts rows, if that is a terminal and the bar is wanted."""

    def __init__(self, n_rows: int, is_wanted: bool = True, what: str = "verify", unit: str = "row") -> None:
        self._bar: Any = None
        self._lock = threading.Lock()
        if is_wanted and sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=n_rows, desc=what, unit=unit, file=sys.stderr, leave=False, dynamic_ncols=True)

    def __enter__(self) -> RowBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, n_rows: int) -> None:
        """So many more rows; threads may call this."""
        if self._bar is not None:
            with self._lock:
                self._bar.update(n_rows)
