"""Files that come into a folder together: written beside their places, and moved there when all are complete."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from metasilvae.errors import OutputError


@contextlib.contextmanager
def staging(target: Path, name: str) -> Iterator[Path]:
    """A folder inside `target` to write files to; `settle` moves them. If writing fails, it goes, with all in it.

    A kill leaves it behind; who asks for it by the same name again gets it empty.
    """
    place = target / name
    with naming(target):
        discard(place)
        place.mkdir()
    try:
        yield place
    except OutputError as error:
        _try_to_discard(place)
        raise OutputError(str(error).replace(f"{place}{os.sep}", f"{target}{os.sep}")) from None
    except BaseException:
        _try_to_discard(place)
        raise


def settle(place: Path, names: Sequence[str]) -> None:
    """Move all files of a staging folder into the one around it, in the given order."""
    with naming(place.parent):
        for name in names:
            os.replace(place / name, place.parent / name)
        place.rmdir()


def discard(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Name the folder where something in it cannot be done."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{folder}: the folder cannot be used: {error.strerror or error}") from None


def _try_to_discard(place: Path) -> None:
    with contextlib.suppress(OSError):
        discard(place)
