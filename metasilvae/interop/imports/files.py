"""Files of fitted objects: recognition of the library, and readers for joblib (pickle) and skops.

Loading a pickle can run any code, so it requires explicit trust. skops checks the types in a file before it creates
objects of them.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any

from metasilvae.errors import MetasilvaeError, MetasilvaeWarning, ModelError, list_some, shorten
from metasilvae.extras import load_library
from metasilvae.interop.imports.catboost import import_catboost
from metasilvae.interop.imports.imported import Imported, ImportOptions, NeedsOptions
from metasilvae.interop.imports.lightgbm import import_lightgbm
from metasilvae.interop.imports.scikit_learn import EXTRA, import_estimator
from metasilvae.interop.imports.xgboost import import_xgboost

# Compiled types of scikit-learn that skops does not trust by itself. They hold plain arrays, and the builder checks all
# of their nodes before it predicts any row.
TRUSTED_TYPES = ("sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor")
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_ZLIB_STARTS = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
_ONNX_START = b"\x08"
_LENGTH_TYPES = b"iUIlL"
_DUMP_STARTS = (b"[", b"booster[", b"0:[", b"0:leaf=")
_MOST_BLANKS = 1000


def read_joblib(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a file that joblib.dump or pickle.dump wrote, if it is trusted."""
    if not options.trust:
        raise NeedsOptions(
            f"{name}: this is a pickle (joblib), and loading one can run any program hidden in it; if you trust its "
            "origin, use --trust; a .skops file can be checked and needs no trust",
            "--trust",
        )
    joblib = load_library("joblib", EXTRA, "reading a joblib file")
    return import_any(_load(lambda: joblib.load(io.BytesIO(content)), name), options, name)


def read_skops(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a file that skops.io.dump wrote; types that skops does not know require trust."""
    skops = load_library("skops.io", EXTRA, "reading a skops file")
    untrusted = _load(lambda: skops.get_untrusted_types(data=content), name)
    unknown = [kind for kind in untrusted if kind not in TRUSTED_TYPES]
    if unknown and not options.trust:
        raise NeedsOptions(
            f"{name}: contains types that skops does not trust ({list_some(unknown)}); if you trust its origin, "
            "use --trust",
            "--trust",
        )
    return import_any(_load(lambda: skops.loads(content, trusted=untrusted), name), options, name)


def _load(load: Any, name: str) -> Any:
    """Call a loader; its errors become one line, and its warnings become warnings about the file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = load()
        except (MetasilvaeError, MemoryError):
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"{name}: cannot be loaded ({type(error).__name__}: {reason}); is the file damaged, or is it from "
                "another version of its library?"
            ) from None
    for message in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        where = "" if message.startswith(f"{name}:") else f"{name}: "
        warnings.warn(f"{where}{message[:300]}", MetasilvaeWarning, stacklevel=4)
    return result


def import_any(fitted: Any, options: ImportOptions, name: str) -> Imported:
    """Import a fitted object by the library that its class belongs to.

    A model of XGBoost, LightGBM or CatBoost goes through its file format, with the class names of the object, which
    predicts for the comparison itself.
    """
    library = type(fitted).__module__.partition(".")[0]
    if library not in ("xgboost", "lightgbm", "catboost"):
        return import_estimator(fitted, options, name)
    readers = {"xgboost": import_xgboost, "lightgbm": import_lightgbm, "catboost": import_catboost}
    imported: Imported = _load(lambda: readers[library](fitted, options, name), name)
    return imported


def is_packed_by_us(content: bytes, kind: str | None) -> bool:
    """Whether a file must be decompressed before it is read; joblib and skops do this themselves."""
    return kind not in ("joblib", "skops") and not is_skops(content)


def detect_kind(content: bytes, name: str) -> str:
    """The reader for a file; an error with advice if there is none."""
    kind = find_kind(content)
    if kind is None:
        raise ModelError(f"{name}: {_explain(content)}")
    return kind


def find_kind(content: bytes) -> str | None:
    """The reader for a file, if it begins like a model of another library."""
    if content.startswith(_PICKLE_STARTS) or content.startswith(_ZLIB_STARTS):
        return "joblib"
    if is_skops(content):
        return "skops"
    if content[:1] == b"{" and content[1:2] and content[1] in _LENGTH_TYPES:
        return "xgboost"
    start = content[:_MOST_BLANKS].lstrip()
    if start[:1] == b"{":
        is_catboost = b'"oblivious_trees"' in content or b'"features_info"' in content
        return "catboost" if is_catboost and b'"learner"' not in content else "xgboost"
    if start.startswith(_DUMP_STARTS):
        return "xgboost-dump"
    if content.startswith((b"tree\n", b"tree\r\n")):
        return "lightgbm"
    return "onnx" if content.startswith(_ONNX_START) else None


def is_skops(content: bytes) -> bool:
    """Whether a file is a zip archive as skops writes it."""
    if not content.startswith(b"PK\x03\x04"):
        return False
    try:
        return "schema.json" in zipfile.ZipFile(io.BytesIO(content)).namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def _explain(content: bytes) -> str:
    if not content:
        return "the file is empty; save the model again"
    if content.startswith(b"classifier-"):
        return "this is silva's format already; it needs no import"
    if content.startswith((b"binf", b"bs64")):
        return "this is XGBoost's old binary format; save the model as .json or .ubj"
    if content.startswith(b"CBM1"):
        return "this is CatBoost's binary format; save the model with format='json'"
    start = shorten(content[:20].decode("utf-8", "backslashreplace"))
    return f"begins with {start}, which is not a known model format; --from names its library"
