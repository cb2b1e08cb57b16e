"""Training commands that are stopped and resumed."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from metasilvae.training.checkpoint.runs import Checkpoint
from support.command import run

DATA = "builtin:iris/train"


SHORT = ["--max-iteration", "8", "--population-max-size", "8", "--population-initial-size", "8", "--no-tune"]


TREE = ["--epsilon", "0.1", "--seed", "4", *SHORT]


def die_after(monkeypatch: pytest.MonkeyPatch, n_writes: int) -> None:
    """The process ends, without a chance to clean up, at the given writing of a checkpoint."""
    write, counter = Checkpoint.write, itertools.count(1)

    def write_and_die(self: Checkpoint) -> None:
        write(self)
        if next(counter) == n_writes:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", write_and_die)


def train(*arguments: object, code: int = 0) -> Any:
    return run("train", DATA, "model.silva", *arguments, code=code)


def records(path: str = "log.jsonl") -> list[dict[str, Any]]:
    return [{**json.loads(line), "seconds": 0} for line in Path(path).read_text().splitlines()]


def model() -> bytes:
    return Path("model.silva").read_bytes()


def archive() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path("trees").iterdir()}


def wait_for_change(path: Path, before: bytes, process: Any) -> None:
    """Until a checkpoint was written, or the process has ended."""
    while process.poll() is None and (not path.exists() or path.read_bytes() == before):
        time.sleep(0.001)
