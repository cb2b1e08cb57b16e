"""Logs of training runs: one line of JSON for each step.

A resumed run continues its log. A checkpoint therefore stores a `LogPosition`: how many records belong to the steps
before it, with a digest of them. Records of later steps are cut off, because these steps are repeated.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from metasilvae.errors import MetasilvaeWarning, OutputError
from metasilvae.io.storage import STANDARD_STREAM
from metasilvae.training.checkpoint.files import take
from metasilvae.training.protocol import Progress

# The fields that a repeated step has in common with the first one; seconds differ.
_REPEATED = ("seed", "phase", "step", "fitness", "leaves", "offspring")
# Bytes of a record; what is longer is something else.
LONGEST_RECORD = 1 << 16


def make_record(seed: int, progress: Progress) -> dict[str, Any]:
    record = {"seed": seed, **asdict(progress)}
    if progress.tuning is None:
        del record["tuning"]
    return record


@dataclass(frozen=True)
class LogPosition:
    """The number of records of a log, and a digest of them; the digest is None where it is not known."""

    n_steps: int = 0
    digest: str | None = ""

    @classmethod
    def read(cls, document: dict[str, Any], key: str) -> LogPosition:
        stored = take(document, key, dict)
        return cls(take(stored, "n_steps", int), None if stored.get("digest") is None else take(stored, "digest", str))

    def after(self, record: dict[str, Any]) -> LogPosition:
        """The position after one more record; a KeyError if it is none."""
        if self.digest is None:
            return LogPosition(self.n_steps + 1, None)
        text = json.dumps([self.digest, *(record[name] for name in _REPEATED)])
        return LogPosition(self.n_steps + 1, blake2b(text.encode(), digest_size=12).hexdigest())


class ProgressLog:
    """Writes a record for each step; if the log cannot be written any more, the training continues without it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._is_lost = False

    def write(self, seed: int, progress: Progress) -> None:
        if self._is_lost:
            return
        try:
            self._stream.write(json.dumps(make_record(seed, progress)).encode() + b"\n")
            self._stream.flush()
        except OSError as error:
            self._is_lost = True
            name = getattr(self._stream, "name", "the log")
            message = f"{name}: cannot be written: {error.strerror or error}; the training continues without it"
            warnings.warn(message, MetasilvaeWarning, stacklevel=2)


def find_end(path: str, reported: LogPosition, checkpoint: str) -> int:
    """Number of bytes of a log that belong to the steps before a checkpoint; refuses the log of another run."""
    if path == STANDARD_STREAM or reported.n_steps == 0:
        return 0
    if not Path(path).exists():
        message = f"{path}: is missing; the log begins after the {reported.n_steps} steps of {checkpoint}"
        warnings.warn(message, MetasilvaeWarning, stacklevel=2)
    if not Path(path).is_file():
        return 0
    found, n_bytes = LogPosition(), 0
    with open(path, "rb") as stream:
        while found.n_steps < reported.n_steps and (line := stream.readline(LONGEST_RECORD)).endswith(b"\n"):
            try:
                found = found.after(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                break
            n_bytes += len(line)
    if found.digest is None or found != reported:
        raise OutputError(
            f"{path}: is not the log of the run in {checkpoint}, whose first {reported.n_steps} steps it should hold; "
            "use another file for the log"
        )
    return n_bytes
