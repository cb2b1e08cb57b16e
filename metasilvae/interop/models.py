"""Models for commands, in silva's format or in that of another library."""

from __future__ import annotations

import shlex
import warnings

from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.silva_models import FOREST_WORD, TREE_WORD, parse_model
from metasilvae.interop.imports import check_import, import_content
from metasilvae.interop.imports.comparison import QUICK_ROWS
from metasilvae.interop.imports.files import find_kind, is_skops
from metasilvae.interop.imports.imported import ImportOptions, NeedsOptions
from metasilvae.io import storage
from metasilvae.model import Model

_SILVA_STARTS = (TREE_WORD.encode(), FOREST_WORD.encode())


def load_model(source: str) -> Model:
    """Read a model from a path or ``-``: in silva's format, or of another library if its import needs no options.

    An imported model is compared with its library on some rows, and a warning says where it came from. A pickle is
    never loaded; the error names the command that imports it.
    """
    packed = storage.read_packed(source)
    name = storage.display_name(source)
    if packed.startswith(_SILVA_STARTS):
        return parse_model(packed, name)
    content = packed if is_skops(packed) else storage.unpack(packed, source)
    if find_kind(content) is None:
        return parse_model(content, name)
    return _import_model(packed, source, name)


def _import_model(content: bytes, source: str, name: str) -> Model:
    try:
        imported = check_import(import_content(content, source, None, ImportOptions()), max_rows=QUICK_ROWS)
    except NeedsOptions as error:
        command = f"metasilvae import {shlex.quote(source)} model.silva {error.options}"
        raise ModelError(f"{error}; as a command: {command}") from None
    compared = "" if imported.comparison is None else f", {imported.comparison.summary}"
    for note in (f"imported ({imported.origin}{compared})", *imported.notes):
        warnings.warn(f"{name}: {note}", MetasilvaeWarning, stacklevel=3)
    return imported.model
