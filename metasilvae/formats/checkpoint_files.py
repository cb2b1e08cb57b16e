"""Checkpoint files: a document of plain values and arrays, with a digest of all of it.

::

    metasilvae checkpoint 1
    SHA-256 of all that follows this line, in hexadecimal digits
    {"arrays": [["<i4", 12], ...], "content": {...}}
    the arrays, one after another, without gaps

The third line is JSON; ``{"array": N}`` in it stands for the N-th array. There is nothing in
such a file that could be run, and every value is checked where it is used.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeVar

import numpy as np

from metasilvae.errors import CheckpointError, shorten

T = TypeVar("T")
WORDS = b"metasilvae checkpoint "
FORMAT = 1
ARRAY_TYPES = ("<i4", "<i8", "<u8", "<f8")
_PLACE = "array"
_LARGEST_WHOLE = 2**53


def pack(content: dict[str, Any]) -> bytes:
    """The bytes of a file; `content` holds dicts with text keys, lists, numbers, texts, None and arrays of one axis."""
    arrays: list[np.ndarray] = []
    places: dict[int, int] = {}

    def place(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: place(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [place(each) for each in value]
        if isinstance(value, np.ndarray):
            # An array that stands in several places is written once.
            if id(value) not in places:
                places[id(value)] = len(arrays)
                arrays.append(value.astype(value.dtype.newbyteorder("<")))
                assert arrays[-1].dtype.str in ARRAY_TYPES
                assert value.ndim == 1
            return {_PLACE: places[id(value)]}
        return value

    placed = place(content)
    document = {"arrays": [[array.dtype.str, len(array)] for array in arrays], "content": placed}
    head = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    body = b"".join([head, *(array.tobytes() for array in arrays)])
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"%s%d\n%s\n%s" % (WORDS, FORMAT, digest, body)


def unpack(data: bytes) -> dict[str, Any]:
    """The content of a file."""
    if not data.startswith(WORDS):
        raise CheckpointError("is not a checkpoint of metasilvae; give the file that `train --checkpoint` wrote")
    title, _, rest = data[:100].partition(b"\n")
    number = title[len(WORDS) :]
    if number != b"%d" % FORMAT:
        found = shorten(number.decode("ascii", "backslashreplace"))
        raise CheckpointError(f"is a checkpoint in format {found}, expected {FORMAT}; use the version that wrote it")
    digest, _, _ = rest.partition(b"\n")
    body = data[len(title) + len(digest) + 2 :]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise damaged("its digest is wrong")
    head, _, tail = body.partition(b"\n")
    try:
        document = json.loads(head)
    except (ValueError, RecursionError):
        raise damaged("its head is not JSON") from None
    arrays = _read_arrays(take(document, "arrays", list), memoryview(tail))
    try:
        content: dict[str, Any] = _put_arrays(take(document, "content", dict), arrays)
    except RecursionError:
        raise damaged("its head is nested too deeply") from None
    return content


def damaged(found: str) -> CheckpointError:
    return CheckpointError(f"the checkpoint is damaged or cut short ({found}); train from the start")


def take(document: Any, key: str, kind: type[T], least: float = 0) -> T:
    """A value of a document, of the given kind; a number is not smaller than `least`."""
    value = document.get(key) if isinstance(document, dict) else None
    if kind is float and type(value) is int:
        value = float(value) if abs(value) <= _LARGEST_WHOLE else None
    if type(value) is not kind or (isinstance(value, int | float) and not least <= value):
        raise damaged(f"{key!r} is missing or is not what it should be")
    return value


def take_array(document: Any, key: str, kind: str) -> np.ndarray:
    """An array of a document, in the byte order of this machine."""
    array = take(document, key, np.ndarray)
    if array.dtype.str != kind:
        raise damaged(f"{key!r} has another type of numbers")
    return array.astype(array.dtype.newbyteorder("="))


def _read_arrays(kinds: list[Any], data: memoryview) -> list[np.ndarray]:
    arrays = []
    start = 0
    for kind in kinds:
        if not (isinstance(kind, list) and len(kind) == 2 and kind[0] in ARRAY_TYPES and type(kind[1]) is int):
            raise damaged("an array is not described")
        n_bytes = np.dtype(kind[0]).itemsize * kind[1]
        if not 0 <= n_bytes <= len(data) - start:
            raise damaged("an array is not complete")
        arrays.append(np.frombuffer(data[start : start + n_bytes], dtype=kind[0]))
        start += n_bytes
    if start != len(data):
        raise damaged("more follows its arrays")
    return arrays


def _put_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_put_arrays(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if list(value) == [_PLACE]:
        position = take(value, _PLACE, int)
        if position >= len(arrays):
            raise damaged("an array is missing")
        return arrays[position]
    return {name: _put_arrays(each, arrays) for name, each in value.items()}
