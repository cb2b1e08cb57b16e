"""One run at a time for a file that is written again and again.

The file itself is replaced by each writing, so the lock is on another one beside it. A lock is advice to other runs of
this program; it ends with the process, however that ends.
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
    """Hold the lock of a file, and clear what killed runs left beside it; False where locks are not known.

    Another run that holds it is an `OutputError`.
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
            # While it is held, so that no other run is left with a lock on a file that is gone.
            with contextlib.suppress(OSError):
                place.unlink()
            os.close(handle)


def _acquire(place: Path, path: str) -> int | None:
    """A handle of the lock; None if there is none to have here, which is no reason not to work."""
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
                f"{path}: is in use by another run, which holds {place.name}; wait for its end, or take another name"
            ) from None
        except OSError:
            os.close(handle)
            with contextlib.suppress(OSError):
                place.unlink()
            return None
    return None


def _is_at(handle: int, place: Path) -> bool:
    """Whether a file is still there under its name; the run that held the lock before removes it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(place))
    except FileNotFoundError:
        return False


def _clear_leftovers(target: Path, place: Path) -> None:
    """Remove what was to become the target; who holds its lock is alone in writing it."""
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            if path.name.startswith(temporary_prefix(target)) and path != place:
                path.unlink()
