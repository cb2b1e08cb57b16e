"""Documents of nested objects and lists, from JSON or from XGBoost's Universal Binary JSON (UBJSON).

Every value is checked when it is taken out of a document. The UBJSON reader accepts a length only if as many bytes
follow, and keeps open objects and lists on a stack instead of recursing.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, shorten
from metasilvae.interop.imports.imported import refuse_unknown

LARGEST_INTEGER = 2**53
# UBJSON: types of numbers, constants, and the deepest nesting, which no model reaches.
_NUMBERS: dict[bytes, np.dtype[Any]] = {
    mark: np.dtype(kind)
    for mark, kind in [
        (b"i", ">i1"), (b"U", ">u1"), (b"I", ">i2"), (b"l", ">i4"), (b"L", ">i8"), (b"d", ">f4"), (b"D", ">f8"),
    ]
}  # fmt: skip
_CONSTANTS: dict[bytes, Any] = {b"T": True, b"F": False, b"Z": None}
_DEEPEST = 64


class Document:
    """An object of a document, with its place for messages."""

    def __init__(self, values: Any, name: str, place: str = "") -> None:
        if not isinstance(values, dict):
            where = f"{place} is" if place else "the document is"
            raise ModelError(f"{name}: {where} {_describe(values)}, an object was expected; is this such a model?")
        self.values: dict[str, Any] = values
        self.name = name
        self.place = place

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def where(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def take(self, key: str) -> Any:
        if key not in self.values:
            raise ModelError(f"{self.name}: {self.where(key)} is missing; is the file such a model, and complete?")
        return self.values[key]

    def object(self, key: str) -> Document:
        return Document(self.take(key), self.name, self.where(key))

    def objects(self, key: str) -> list[Document]:
        items = self.list(key)
        return [Document(item, self.name, f"{self.where(key)}[{number}]") for number, item in enumerate(items)]

    def list(self, key: str) -> list[Any]:
        items = self.take(key)
        if not isinstance(items, list):
            self.refuse(key, items, "a list")
        found: list[Any] = items
        return found

    def text(self, key: str) -> str:
        found = self.take(key)
        if not isinstance(found, str):
            self.refuse(key, found, "a text")
        return str(found)

    def integer(self, key: str) -> int:
        """A whole number, written as a number or as a text."""
        found = self.take(key)
        if isinstance(found, str) and len(found) < 20 and found.lstrip("-").isascii() and found.lstrip("-").isdigit():
            found = int(found)
        if not isinstance(found, int) or isinstance(found, bool) or abs(found) > LARGEST_INTEGER:
            self.refuse(key, found, "a whole number")
        return int(found)

    def numbers(self, key: str) -> NDArray[np.float64]:
        """A list of numbers."""
        return as_numbers(self.list(key), f"{self.name}: {self.where(key)}")

    def integers(self, key: str) -> NDArray[np.int64]:
        """A list of whole numbers."""
        numbers = self.numbers(key)
        if not ((np.abs(numbers) <= LARGEST_INTEGER) & (numbers == np.rint(numbers))).all():
            raise ModelError(f"{self.name}: {self.where(key)} holds something that is not a whole number")
        return numbers.astype(np.int64)

    def expect_only(self, known: Container[str]) -> None:
        """Refuse keys that are not known, unless they are empty."""
        refuse_unknown(self.values, known, f"{self.name}: {self.place or 'the document'}")

    def refuse(self, key: str, found: Any, expected: str) -> None:
        raise ModelError(f"{self.name}: {self.where(key)} is {_describe(found)}, {expected} was expected")


def as_numbers(items: list[Any], where: str) -> NDArray[np.float64]:
    """A list of numbers as an array."""
    if not all(type(item) in (int, float) for item in items):
        raise ModelError(f"{where} holds something that is not a number")
    try:
        return np.array(items, dtype=np.float64)
    except OverflowError:
        raise ModelError(f"{where} holds a number that is too large") from None


def load_json(content: bytes, name: str) -> Document:
    """Read a JSON document."""
    try:
        return Document(json.loads(content), name)
    except RecursionError:
        raise ModelError(f"{name}: the JSON document is nested too deeply; this is no model") from None
    except UnicodeDecodeError:
        raise ModelError(f"{name}: this is not a JSON document: it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"{name}:{error.lineno}: this is not a JSON document: {error.msg}; is it complete?") from None
    except ValueError as error:
        raise ModelError(f"{name}: this is not a JSON document: {error}") from None


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return shorten(str(value) if isinstance(value, int | float | bool) or value is None else value)


def load_ubjson(content: bytes, name: str) -> Document:
    """Read a UBJSON document."""
    try:
        return Document(_Reader(content).read(), name)
    except _Broken as error:
        raise ModelError(f"{name}: this is not a UBJSON document of XGBoost: {error}") from None


class _Broken(Exception):
    pass


class _Open:
    """An object or list that is being read; one with a length has no end mark."""

    def __init__(self, is_object: bool, n_missing: int | None) -> None:
        self.items: Any = {} if is_object else []
        self.is_object = is_object
        self.n_missing = n_missing
        self.key = ""


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0

    def read(self) -> Any:
        stack: list[_Open] = []
        while True:
            if stack and self._is_closed(stack[-1]):
                value = stack.pop().items
            else:
                if stack and stack[-1].is_object:
                    stack[-1].key = self._text()
                mark = self._bytes(1)
                if mark in (b"{", b"["):
                    if len(stack) >= _DEEPEST:
                        raise _Broken(f"it is nested deeper than {_DEEPEST} levels")
                    opened = self._open(mark == b"{")
                    if isinstance(opened, _Open):
                        stack.append(opened)
                        continue
                    value = opened
                else:
                    value = self._scalar(mark)
            if not stack:
                return value
            self._add(stack[-1], value)

    def _is_closed(self, container: _Open) -> bool:
        if container.n_missing is not None:
            return container.n_missing == 0
        end = b"}" if container.is_object else b"]"
        if self.content[self.place : self.place + 1] == end:
            self.place += 1
            return True
        return False

    def _add(self, container: _Open, value: Any) -> None:
        if container.is_object:
            container.items[container.key] = value
        else:
            container.items.append(value)
        if container.n_missing is not None:
            container.n_missing -= 1

    def _open(self, is_object: bool) -> _Open | list[Any]:
        """The beginning of an object or list, or a complete list of numbers."""
        kind = None
        if self.content[self.place : self.place + 1] == b"$":
            self.place += 1
            kind = self._bytes(1)
        if self.content[self.place : self.place + 1] != b"#":
            if kind is not None:
                raise _Broken(f"a typed list at byte {self.place} has no length")
            return _Open(is_object, None)
        self.place += 1
        n_items = self._length()
        if kind is None:
            if n_items > len(self.content) - self.place:
                raise _Broken(f"{n_items} values are announced at byte {self.place}, but the file ends before")
            return _Open(is_object, n_items)
        if is_object or kind not in _NUMBERS:
            raise _Broken(f"values of type {kind!r} at byte {self.place} are not supported")
        dtype = _NUMBERS[kind]
        items: list[Any] = np.frombuffer(self._bytes(n_items * dtype.itemsize), dtype=dtype).tolist()
        return items

    def _scalar(self, mark: bytes) -> Any:
        if mark in _NUMBERS:
            dtype = _NUMBERS[mark]
            return np.frombuffer(self._bytes(dtype.itemsize), dtype=dtype)[0].item()
        if mark == b"S":
            return self._text()
        if mark == b"C":
            return self._bytes(1).decode("latin-1")
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        raise _Broken(f"found {mark!r} at byte {self.place - 1} where a value was expected")

    def _text(self) -> str:
        raw = self._bytes(self._length())
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise _Broken(f"the text before byte {self.place} is not UTF-8") from None

    def _length(self) -> int:
        mark = self._bytes(1)
        if mark not in (b"i", b"U", b"I", b"l", b"L"):
            raise _Broken(f"found {mark!r} at byte {self.place - 1} where a length was expected")
        length = int(self._scalar(mark))
        if length < 0:
            raise _Broken(f"the length before byte {self.place} is negative")
        return length

    def _bytes(self, n_bytes: int) -> bytes:
        if n_bytes > len(self.content) - self.place:
            raise _Broken(f"it ends inside a value at byte {self.place}; it is cut short")
        piece = self.content[self.place : self.place + n_bytes]
        self.place += n_bytes
        return piece
