"""The options of ``metasilvae train`` that keep a run for later, and the files behind them."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from metasilvae.checkpoint import SECONDS_BETWEEN, Checkpoint, read_checkpoint
from metasilvae.cli.parameters import shared_options
from metasilvae.errors import CheckpointError, MetasilvaeWarning, OutputError
from metasilvae.file_locks import lock
from metasilvae.pareto import TreeCollector
from metasilvae.storage import STANDARD_STREAM, is_same_file
from metasilvae.told_steps import Told

AUTOMATIC = "auto"
# Bytes of a line of a log; what is longer is something else.
LONGEST_RECORD = 1 << 16

checkpoint_options = shared_options(
    click.option(
        "--checkpoint",
        metavar="FILE",
        help="Keep in this new file what is done, so that --resume can go on after a crash or a kill: steps of a tree, "
        "trees of a forest, seeds.",
    ),
    click.option(
        "--every",
        type=click.IntRange(min=1),
        metavar="N",
        help="Write the checkpoint after every N steps (a first tree, a generation, a trial, a tree of a forest).  "
        f"[default: every {SECONDS_BETWEEN:g} seconds]",
    ),
    click.option(
        "--resume",
        metavar="FILE|auto",
        help="Go on from this checkpoint, with the data and options of its run (only --time-limit of a single run may "
        "change), to the same model byte for byte; auto: from the file of --checkpoint, if it is there.",
    ),
)


@dataclass(frozen=True)
class KeepingRequest:
    """What the options ask for.

    Attributes
    ----------
    target : str or None
        Where to write checkpoints.
    source : str or None
        Where the run to go on with is.
    every : int or None
    """

    target: str | None
    source: str | None
    every: int | None

    @property
    def outputs(self) -> list[str]:
        return [] if self.target is None else [self.target]

    @property
    def inputs(self) -> list[str]:
        return [] if self.source is None or self.source == self.target else [self.source]

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Keep other runs away from the checkpoint; refuse to replace one unless the run goes on from it."""
        if self.target is None:
            yield
            return
        target = Path(self.target)
        if target.exists() and not target.is_file():
            raise OutputError(f"{self.target}: is a device or a pipe; give the checkpoint the name of a file")
        with lock(self.target):
            if self.source != self.target and target.exists():
                raise OutputError(
                    f"{self.target}: is there already; go on with it by --resume auto, or give the checkpoint another "
                    "name"
                )
            yield

    def load(self) -> dict[str, Any] | None:
        """The checkpoint to go on from, if there is one."""
        return None if self.source is None else read_checkpoint(self.source)

    def open(
        self, run: dict[str, Any], stored: dict[str, Any] | None, collector: TreeCollector | None
    ) -> Checkpoint | None:
        """The checkpoint of the run that is described, which goes on from what was loaded."""
        if self.target is None:
            return None
        checkpoint = Checkpoint(self.target, run, self.every, collector)
        if stored is not None:
            with self.naming():
                checkpoint.take_over(stored)
        return checkpoint

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Name the file where something in it turns out to be wrong."""
        try:
            yield
        except CheckpointError as error:
            raise CheckpointError(f"{self.source}: {error}") from None


def read_keeping(checkpoint: str | None, every: int | None, resume: str | None) -> KeepingRequest:
    """Turn the values of `checkpoint_options` into a request."""
    if checkpoint is None and resume is None:
        if every is not None:
            raise click.UsageError("--every is for checkpoints; name a file for them with --checkpoint")
        return KeepingRequest(None, None, None)
    if STANDARD_STREAM in (checkpoint, resume):
        raise click.UsageError("a checkpoint is written again and again; give the name of a file, not -")
    if "" in (checkpoint, resume):
        raise click.UsageError("the name of the checkpoint is empty; give the name of a file")
    if resume == AUTOMATIC:
        if checkpoint is None:
            raise click.UsageError("--resume auto goes on from the file of --checkpoint; name one")
        resume = checkpoint if Path(checkpoint).exists() else None
    if checkpoint is None or (resume is not None and is_same_file(checkpoint, resume)):
        checkpoint = resume
    return KeepingRequest(checkpoint, resume, every)


def find_end_of_log(path: str | None, checkpoint: Checkpoint | None) -> int:
    """How many bytes of a log tell of the steps before a checkpoint; those that tell of later steps come again."""
    if path in (None, STANDARD_STREAM) or checkpoint is None or checkpoint.told.n_steps == 0:
        return 0
    assert path is not None
    told = checkpoint.told
    if not Path(path).exists():
        message = f"{path}: is not there; the log begins after the {told.n_steps} steps of {checkpoint.path}"
        warnings.warn(message, MetasilvaeWarning, stacklevel=2)
    if not Path(path).is_file():
        return 0
    found, n_bytes = _read_told(path, told.n_steps)
    if found.digest is None or found != told:
        raise OutputError(
            f"{path}: is not the log of the run in {checkpoint.path}, whose first {told.n_steps} steps it should "
            "hold; give --log another file"
        )
    return n_bytes


def _read_told(path: str, n_steps: int) -> tuple[Told, int]:
    """What the first records of a log tell, as far as they are records, and how many bytes they are."""
    told, n_bytes = Told(), 0
    with open(path, "rb") as stream:
        while told.n_steps < n_steps and (line := stream.readline(LONGEST_RECORD)).endswith(b"\n"):
            try:
                told = told.after_record(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                break
            n_bytes += len(line)
    return told, n_bytes
