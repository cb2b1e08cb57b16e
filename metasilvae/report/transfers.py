"""What is shown while a file comes over the network."""

from __future__ import annotations

from typing import Any

from metasilvae.report.terminal import open_bar
from metasilvae.transfer import Received


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
