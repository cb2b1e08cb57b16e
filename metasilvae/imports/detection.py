"""Which library a file comes from, by its first bytes."""

from __future__ import annotations

import io
import zipfile

from metasilvae.errors import ModelError, shorten

_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_ZLIB_STARTS = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
_ONNX_START = b"\x08"
_LENGTH_TYPES = b"iUIlL"


def is_packed_by_us(content: bytes, kind: str | None) -> bool:
    """Whether a file is to be decompressed before it is read; joblib and skops do it themselves."""
    return kind not in ("joblib", "skops") and not _is_skops(content)


def detect_kind(content: bytes, name: str) -> str:
    """The reader for a file; an error that says what to do if there is none."""
    if content.startswith(_PICKLE_STARTS) or content.startswith(_ZLIB_STARTS):
        return "joblib"
    if _is_skops(content):
        return "skops"
    if content[:1] == b"{" and content[1:2] and content[1] in _LENGTH_TYPES:
        return "xgboost"
    text = content.lstrip()[:1]
    if text == b"{":
        is_catboost = b'"oblivious_trees"' in content or b'"features_info"' in content
        return "catboost" if is_catboost and b'"learner"' not in content else "xgboost"
    if content.startswith((b"tree\n", b"tree\r\n")):
        return "lightgbm"
    if content.startswith(_ONNX_START):
        return "onnx"
    raise ModelError(f"{name}: {_explain(content)}")


def _is_skops(content: bytes) -> bool:
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
    return f"begins with {start}, which is no model known here; --from names the library it comes from"
