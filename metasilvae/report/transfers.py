"""What is shown while a file comes over the network."""

from __future__ import annotations

import sys
from typing import Any

from metasilvae.transfer import Received


class TransferBar:
    """A bar on standard error, if that is a terminal; one for each file."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def show(self, received: Received) -> None:
        if sys.stderr is None or not sys.stderr.isatty():
            return
        bar = self._bar
        if bar is None or bar.total != received.total or bar.n > received.n_bytes:
            from tqdm import tqdm

            self.close()
            self._bar = bar = tqdm(
                total=received.total,
                initial=received.n_bytes,
                desc=self._title,
                unit="B",
                unit_scale=True,
                file=sys.stderr,
                leave=False,
                dynamic_ncols=True,
            )
        bar.update(received.n_bytes - bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
