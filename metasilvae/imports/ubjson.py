"""Universal Binary JSON, as far as XGBoost writes it.

Lengths are believed only if as many bytes follow. Objects and lists may lie inside each other to a depth that no model
has; they are kept on a stack, so that nothing recurses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metasilvae.errors import ModelError
from metasilvae.imports.documents import Document

_NUMBERS: dict[bytes, np.dtype[Any]] = {
    b"i": np.dtype(">i1"),
    b"U": np.dtype(">u1"),
    b"I": np.dtype(">i2"),
    b"l": np.dtype(">i4"),
    b"L": np.dtype(">i8"),
    b"d": np.dtype(">f4"),
    b"D": np.dtype(">f8"),
}
_CONSTANTS: dict[bytes, Any] = {b"T": True, b"F": False, b"Z": None}
_DEEPEST = 64


def load_ubjson(content: bytes, name: str) -> Document:
    """Read a UBJSON document."""
    try:
        return Document(_Reader(content).read(), name)
    except _Broken as error:
        raise ModelError(f"{name}: this is not a UBJSON document of XGBoost: {error}") from None


class _Broken(Exception):
    pass


class _Open:
    """An object or list whose end was not reached yet; a counted one has no end mark."""

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
        """The beginning of an object or list, or the whole of a list of numbers."""
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
