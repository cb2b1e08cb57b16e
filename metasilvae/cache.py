"""Where fetched data sets are kept; commands name them ``cache:NAME/SPLIT``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from metasilvae.errors import DataError

CACHE_PREFIX = "cache:"
CACHE_VARIABLE = "METASILVAE_CACHE"
CACHE_SUFFIX = ".csv.zip"


def cache_folder() -> Path:
    """Folder of fetched data sets: where the variable METASILVAE_CACHE says, else where the platform keeps caches."""
    chosen = os.environ.get(CACHE_VARIABLE)
    try:
        if chosen:
            return Path(chosen).expanduser()
        if sys.platform == "win32":
            return _variable("LOCALAPPDATA", "AppData", "Local") / "metasilvae" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "metasilvae"
        return _variable("XDG_CACHE_HOME", ".cache") / "metasilvae"
    except RuntimeError:
        raise DataError(f"there is no home folder to keep fetched data in; set {CACHE_VARIABLE} to a folder") from None


def _variable(name: str, *usual: str) -> Path:
    """The folder that an environment variable names, if it is absolute, else one in the home folder."""
    named = Path(os.environ.get(name, ""))
    return named if named.is_absolute() else Path.home().joinpath(*usual)


def find_cached(source: str) -> Path:
    """The file behind ``cache:NAME/SPLIT``."""
    folder = cache_folder()
    name = source.removeprefix(CACHE_PREFIX)
    path = folder / (name + CACHE_SUFFIX)
    if path.is_file() and folder.resolve() in path.resolve().parents:
        return path
    raise DataError(
        f"{source}: not fetched yet; `metasilvae data fetch {name.split('/')[0] or 'NAME'}` fetches it, "
        "`metasilvae data fetch --list` shows the names, and a name looks like cache:wine/train"
    )
