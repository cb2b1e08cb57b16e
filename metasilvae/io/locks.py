"""Locks for files that a run rewrites repeatedly, so that no second run does the same.

Each write replaces the file, so the lock is on another file beside it. Locks are advisory and end with the process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from metasilvae.errors import OutputError
from metasilvae.io.storage import temporary_prefix

try:
    import fcntl
except ImportError:  # pragma: no cover - systems without it have no such locks
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def lock(path: str) -> Iterator[bool]:
    """Hold the lock of a file and remove what killed runs left beside it; False if the system has no locks.

    If another run holds the lock, an `OutputError` is raised.
    """
    target = Path(os.path.realpath(path))
    place = target.parent / f"{temporary_prefix(target)}lock"
    handle = _acquire(place, path)
    try:
        if handle is not None:
            _clear_leftovers(target, place)
        yield handle is not None
    finally:
        if handle is not None:
            # Removed while it is held, so that no other run locks a file that was removed.
            with contextlib.suppress(OSError):
                place.unlink()
            os.close(handle)


def _acquire(place: Path, path: str) -> int | None:
    """A handle of the lock; None if locks are not available."""
    while fcntl is not None:
        try:
            handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, place):
                return handle
            os.close(handle)
        except (BlockingIOError, PermissionError):
            os.close(handle)
            raise OutputError(
                f"{path}: is in use by another run, which holds {place.name}; wait until it ends, or use another name"
            ) from None
        except OSError:
            os.close(handle)
            with contextlib.suppress(OSError):
                place.unlink()
            return None
    return None


def _is_at(handle: int, place: Path) -> bool:
    """Whether an open file still has its name; the run that held the lock before removes it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(place))
    except FileNotFoundError:
        return False


def _clear_leftovers(target: Path, place: Path) -> None:
    """Remove temporary files of the target; the holder of its lock is the only one to write it."""
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            if path.name.startswith(temporary_prefix(target)) and path != place:
                path.unlink()
