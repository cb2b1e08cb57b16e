"""Documents of nested objects and lists, from JSON or UBJSON; every value is checked when it is taken out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, shorten

LARGEST_INTEGER = 2**53


class Document:
    """An object of a document, with its place in it for messages."""

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
