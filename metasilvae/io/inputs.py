"""The files that a command has read, which none of its outputs may replace.

Commands refuse such outputs before they work (`metasilvae.io.storage.check_outputs`). This is the second line: inside
`protect_inputs` every file that is read is recorded, by its place on the disk and by its path, and every output is
compared with them when it is written. No command can be written that forgets it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from metasilvae.errors import OutputError


class _Record:
    def __init__(self) -> None:
        self.inputs: set[tuple[int, int] | str] = set()
        self.outputs: set[str] = set()


# One for the whole process: a command may read in other threads.
_record: _Record | None = None


@contextlib.contextmanager
def protect_inputs() -> Iterator[None]:
    """Refuse to replace a file that was read inside."""
    global _record
    outer, _record = _record, _Record()
    try:
        yield
    finally:
        _record = outer


def record_input(handle: int, path: str | None) -> None:
    """Note that an open file is an input, unless it is a pipe or a device, or was written by this command."""
    if _record is None:
        return
    found = os.fstat(handle)
    place = None if path is None else os.path.realpath(path)
    if stat.S_ISREG(found.st_mode) and place not in _record.outputs:
        _record.inputs.add((found.st_dev, found.st_ino))
        if place is not None:
            _record.inputs.add(place)


def is_input(path: str | os.PathLike[str]) -> bool:
    """Whether an output would replace a file that was read."""
    if _record is None:
        return False
    try:
        place = os.path.realpath(path)
        found = os.stat(place)
    except ValueError:  # no valid path
        return False
    except OSError:
        identity = None
    else:
        identity = (found.st_dev, found.st_ino)
    return place in _record.inputs or identity in _record.inputs


def refuse_input(path: str | os.PathLike[str]) -> None:
    """Raise an `OutputError` if an output would replace an input."""
    if is_input(path):
        raise OutputError(describe_input(os.fspath(path)))


def record_output(path: str | os.PathLike[str]) -> None:
    """Note that a file was written, which may be read and replaced again."""
    if _record is not None:
        _record.outputs.add(os.path.realpath(path))


def describe_input(path: str) -> str:
    """Why an output is refused."""
    return f"{path} is read by this command; write the result to another file"
