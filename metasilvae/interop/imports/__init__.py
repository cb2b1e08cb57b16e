"""Imports of models of other libraries, compared with the predictions of the library.

A source format is a module with a reader, which is listed in `READERS` and recognized in `files`. A reader takes the
bytes of a file, its name and `ImportOptions`, and returns an `Imported`; all content of the file is checked.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.frames import encode_rows
from metasilvae.interop.imports.comparison import MAX_ROWS, QUICK_ROWS, LibraryComparison, compare_with_library
from metasilvae.interop.imports.files import detect_kind, import_any, is_packed_by_us
from metasilvae.interop.imports.imported import Imported, ImportOptions
from metasilvae.interop.imports.scikit_learn import import_estimator
from metasilvae.io import storage

# Kind: (module of this package, function in it); imported when used.
READERS: dict[str, tuple[str, str]] = {
    "joblib": ("files", "read_joblib"),
    "skops": ("files", "read_skops"),
    "xgboost": ("xgboost", "read_xgboost"),
    "xgboost-dump": ("xgboost_dumps", "read_xgboost_dump"),
    "lightgbm": ("lightgbm", "read_lightgbm"),
    "catboost": ("catboost", "read_catboost"),
    "onnx": ("onnx", "read_onnx"),
}


def import_file(
    source: str,
    kind: str | None = None,
    options: ImportOptions | None = None,
    *,
    check: bool = True,
    data: ArrayLike | None = None,
    max_rows: int = QUICK_ROWS,
) -> Imported:
    """Read a model of another library from a path or ``-``.

    Parameters
    ----------
    kind : str or None
        One of `READERS`, or None to recognize it.
    check : bool
        Whether to compare the predictions with those of the library, if it is installed; a difference raises a
        `ModelError`.
    data : array of shape (n_samples, n_features) or None
        Rows to compare too.
    max_rows : int
        Most rows beside thresholds to compare.
    """
    imported = import_content(storage.read_packed(source), source, kind, options or ImportOptions())
    return check_import(imported, data, max_rows) if check else imported


def import_object(
    fitted: Any,
    options: ImportOptions | None = None,
    *,
    check: bool = True,
    data: ArrayLike | None = None,
    max_rows: int = QUICK_ROWS,
) -> Imported:
    """Import a fitted classifier of scikit-learn, XGBoost, LightGBM or CatBoost from memory.

    Parameters are those of `import_file`; the classifier itself predicts for the comparison.
    """
    imported = import_any(fitted, options or ImportOptions(), "<memory>")
    return check_import(imported, data, max_rows) if check else imported


def import_content(content: bytes, source: str, kind: str | None, options: ImportOptions) -> Imported:
    """Read a model of another library from the bytes of its file."""
    name = storage.display_name(source)
    digest = hashlib.sha256(content).hexdigest()
    if is_packed_by_us(content, kind):
        content = storage.unpack(content, source)
    module, function = READERS[kind or detect_kind(content, name)]
    reader: Callable[[bytes, str, ImportOptions], Imported]
    reader = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    imported = reader(content, name, options)
    description = imported.model.description
    file = os.path.basename(name).encode("utf-8", "replace").decode()
    provenance = {**(description.provenance or {}), "file": file, "sha256": digest}
    described = replace(description, provenance=provenance)
    return replace(imported, model=replace(imported.model, description=described))


def check_import(
    imported: Imported,
    data: ArrayLike | Dataset | None = None,
    max_rows: int = MAX_ROWS,
    on_fraction: Callable[[float], object] = lambda fraction: None,
) -> Imported:
    """The import with its comparison; a warning if it cannot be compared.

    `data` are rows as the library takes them, or a data set with the features of the model.
    """
    encoding = imported.model.encoding
    X: NDArray[np.float64] | None = None
    if isinstance(data, Dataset):
        X = data.X
    elif data is not None and encoding is not None:
        X = encode_rows(data, "the data", encoding, imported.model.source).X
    elif data is not None:
        X = np.ascontiguousarray(data, dtype=np.float64)
    comparison = compare_with_library(imported, X, on_fraction=on_fraction, max_rows=max_rows)
    if comparison is None:
        warnings.warn(
            f"{imported.model.source}: not compared with its library, {imported.why_not_compared}",
            MetasilvaeWarning,
            stacklevel=3,
        )
    return replace(imported, comparison=comparison)


__all__ = [
    "READERS",
    "ImportOptions",
    "Imported",
    "LibraryComparison",
    "ModelError",
    "check_import",
    "compare_with_library",
    "import_content",
    "import_estimator",
    "import_file",
    "import_object",
]
