"""Schema files: TOML with the types of the columns of a table. docs/formats.md describes the format."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from metasilvae.encoding import BOOLEAN, CATEGORY, NUMBER
from metasilvae.errors import DataError, shorten
from metasilvae.formats.tables import COLUMN_KINDS, IGNORED, ColumnSpec, TableOptions, TypedColumn
from metasilvae.io.storage import display_name, read_source
from metasilvae.io.toml_text import write_key, write_list, write_text

_SECTIONS = ("label", "missing", "columns")
_KEYS = ("type", "categories", "other", "missing", "values")
_ADVICE = "`metasilvae data schema DATA` writes a file to start from"


def read_schema(source: str) -> TableOptions:
    """Read a schema file, - for standard input, into options that can be changed further."""
    return parse_schema(read_source(source), display_name(source))


def parse_schema(content: bytes, name: str) -> TableOptions:
    """The types in the content of a schema file."""
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise DataError(f"{name}: is not UTF-8 text; a schema is TOML in UTF-8") from None
    except RecursionError:
        raise DataError(f"{name}: is nested too deeply; {_ADVICE}") from None
    except ValueError as error:
        raise DataError(f"{name}: is not TOML: {' '.join(str(error).split())}; {_ADVICE}") from None
    _check_keys(document, _SECTIONS, name)
    label = document.get("label")
    if label is not None and not isinstance(label, str):
        raise DataError(f"{name}: label: {shorten(str(label))} is not the name of a column")
    columns = document.get("columns", {})
    if not isinstance(columns, dict):
        raise DataError(f"{name}: columns: expected a table; {_ADVICE}")
    specs = {column: _read_spec(content, f"{name}: {column}") for column, content in columns.items()}
    options = TableOptions(specs, label)
    if "missing" not in document:
        return options
    return TableOptions(specs, label, missing=_read_texts(document["missing"], f"{name}: missing"))


def _read_spec(content: object, place: str) -> ColumnSpec:
    if not isinstance(content, dict):
        raise DataError(f'{place}: expected a table such as {{ type = "number" }}, found {shorten(str(content))}')
    _check_keys(content, _KEYS, place)
    kind = content.get("type")
    if kind not in COLUMN_KINDS:
        raise DataError(f"{place}: the type is {shorten(str(kind))}; expected {', '.join(COLUMN_KINDS)}")
    allowed = {CATEGORY: ("categories", "other", "missing"), BOOLEAN: ("values",)}.get(kind, ())
    for key in content:
        if key != "type" and key not in allowed:
            raise DataError(f"{place}: {key} is not for columns of the type {kind}; leave it out")
    flags = [content.get(key) for key in ("other", "missing")]
    for key, flag in zip(("other", "missing"), flags, strict=True):
        if flag is not None and not isinstance(flag, bool):
            raise DataError(f"{place}: {key} is {shorten(str(flag))}; expected true or false")
    texts = content.get("categories" if kind == CATEGORY else "values")
    categories = None if texts is None else _read_texts(texts, place)
    if categories is not None and kind == BOOLEAN and len({text.strip().lower() for text in categories}) != 2:
        raise DataError(f'{place}: values: expected the two texts for false and true, such as ["no", "yes"]')
    if categories is not None and kind == CATEGORY and not categories and not any(flags):
        raise DataError(f"{place}: categories: the list is empty; list them, or leave the key out")
    return ColumnSpec(kind, categories, *flags)


def _read_texts(content: object, place: str) -> tuple[str, ...]:
    if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
        raise DataError(f'{place}: expected a list of texts such as ["a", "b"]')
    if len(set(content)) < len(content):
        raise DataError(f"{place}: a text is listed twice")
    return tuple(content)


def _check_keys(table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise DataError(f"{place}: unknown key {shorten(key)}; {hint}")


def write_schema(typed: Sequence[TypedColumn], label: str | None, missing: Sequence[str], source: str) -> Iterator[str]:
    """The text of a schema file with a line for each column."""
    yield f"# Types of the columns of {' '.join(source.split())}; `--schema FILE` reads them.\n#\n"
    yield '#   type = "number", "category", "boolean" or "ignored"\n'
    yield "#   categories, other, missing    values of a category; whether others and missing cells have a place\n"
    yield "#   values                        the texts for false and true of a boolean\n\n"
    if label is not None:
        yield f"label = {write_text(label)}\n"
    yield f"missing = {write_list(missing)}\n\n[columns]\n"
    for each in typed:
        yield f"{write_key(each.raw.name)} = {{ {_write_spec(each)} }}{_comment(each, missing)}\n"


def _write_spec(each: TypedColumn) -> str:
    column = each.column
    parts = [f'type = "{each.kind}"']
    if column is not None and column.kind == CATEGORY:
        parts.append(f"categories = {write_list(column.categories)}")
        parts += [
            f"{key} = true" for key, is_set in (("other", column.has_other), ("missing", column.has_missing)) if is_set
        ]
    elif column is not None and column.kind == BOOLEAN:
        parts.append(f"values = {write_list(column.categories)}")
    return ", ".join(parts)


def _comment(each: TypedColumn, missing: Sequence[str]) -> str:
    if each.kind == IGNORED and each.reason:
        return f"  # {each.reason}"
    if each.kind != NUMBER:
        return ""
    values = each.raw.numbers(missing)
    known = values[~np.isnan(values)]
    if not len(known):
        return ""
    n_missing = len(values) - len(known)
    return f"  # {known.min():g} to {known.max():g}" + (f", {n_missing} missing" if n_missing else "")
