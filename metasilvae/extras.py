"""Libraries that are needed for some formats only."""

from __future__ import annotations

import importlib
from typing import Any

from metasilvae.errors import MetasilvaeError


class MissingLibrary(MetasilvaeError):
    """A library that an optional part needs is not installed."""


def load_library(module: str, extra: str, purpose: str) -> Any:
    """Import a library; an error that names the extra to install if it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise MissingLibrary(
            f"{purpose} needs {module.split('.')[0]}, which is not installed{reason}; pip install 'metasilvae[{extra}]'"
        ) from None


def find_library(module: str) -> Any | None:
    """A library if it is installed, else None."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
