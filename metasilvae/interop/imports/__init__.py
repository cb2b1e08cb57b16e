"""Imports of models of other libraries, compared with the predictions of the library.

A source format is a module with a reader, which is listed in `READERS` and recognized in `files`. A reader takes the
bytes of a file, its name and `ImportOptions`, and returns an `Imported`; all content of the file is checked.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from metasilvae.errors import ModelError
from metasilvae.interop.imports.comparison import LibraryComparison, compare_with_library
from metasilvae.interop.imports.files import detect_kind, is_packed_by_us
from metasilvae.interop.imports.imported import Imported, ImportOptions
from metasilvae.interop.imports.scikit_learn import import_estimator
from metasilvae.io import storage

# Kind: (module of this package, function in it); imported when used.
READERS: dict[str, tuple[str, str]] = {
    "joblib": ("files", "read_joblib"),
    "skops": ("files", "read_skops"),
    "xgboost": ("xgboost", "read_xgboost"),
    "lightgbm": ("lightgbm", "read_lightgbm"),
    "catboost": ("catboost", "read_catboost"),
    "onnx": ("onnx", "read_onnx"),
}


def import_file(source: str, kind: str | None = None, options: ImportOptions | None = None) -> Imported:
    """Read a model of another library from a path or ``-``; `kind` is one of `READERS`, or None to recognize it."""
    content = storage.read_packed(source)
    name = storage.display_name(source)
    if is_packed_by_us(content, kind):
        content = storage.unpack(content, source)
    kind = kind or detect_kind(content, name)
    module, function = READERS[kind]
    reader: Callable[[bytes, str, ImportOptions], Imported]
    reader = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return reader(content, name, options or ImportOptions())


def import_object(fitted: Any, options: ImportOptions | None = None) -> Imported:
    """Import a fitted classifier of scikit-learn, XGBoost, LightGBM or CatBoost from memory."""
    from metasilvae.interop.imports.files import import_any

    return import_any(fitted, options or ImportOptions(), "<memory>")


__all__ = [
    "READERS",
    "ImportOptions",
    "Imported",
    "LibraryComparison",
    "ModelError",
    "compare_with_library",
    "import_estimator",
    "import_file",
    "import_object",
]
