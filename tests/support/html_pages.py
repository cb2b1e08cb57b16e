"""What a page of `metasilvae report` says, read back from its HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from metasilvae.analysis.assessment import assess
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.output.html.content import PageContent
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query
from support.command import run

VOID = {"meta", "input", "br"}


@dataclass
class Cell:
    text: str = ""
    value: str | None = None


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """Elements in order, tables by the name of their caption, all open tags closed."""

    source: str
    elements: list[Element] = field(default_factory=list)
    tables: dict[str, list[list[Cell]]] = field(default_factory=dict)
    _open: list[Element] = field(default_factory=list)
    _table: list[list[Cell]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        assert not self._open, self._open

    def __hash__(self) -> int:
        return id(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Element(tag, dict(attrs))
        assert len(found.attributes) == len(attrs), f"an attribute twice in {attrs}"
        self.elements.append(found)
        if tag not in VOID:
            self._open.append(found)
        if tag == "table":
            self._table = []
        elif tag == "caption":
            name = found.attributes["id"]
            assert name is not None
            assert name not in self.tables
            self.tables[name] = self._table
        elif tag == "tr":
            self._table.append([])
        elif tag in ("td", "th"):
            self._table[-1].append(Cell())
        elif tag == "data" and self._cell is not None:
            self._cell.value = found.attributes["value"]

    @property
    def _cell(self) -> Cell | None:
        inside = any(element.tag in ("td", "th") for element in self._open)
        return self._table[-1][-1] if inside else None

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag
        if tag == "li" and self._cell is not None:
            self._cell.text += "\n"

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data
        if self._cell is not None:
            self._cell.text += data

    def find(self, tag: str, **attributes: str) -> list[Element]:
        return [
            element
            for element in self.elements
            if element.tag == tag and all(element.attributes.get(name) == value for name, value in attributes.items())
        ]

    def data(self, name: str) -> Any:
        """Data for the script."""
        (found,) = self.find("script", id=name)
        return json.loads(found.text)

    def texts(self, table: str) -> list[list[str]]:
        """A table without its heading."""
        return [[cell.text for cell in row] for row in self.tables[table][1:]]


def make_page(*arguments: object, code: int = 0) -> Page:
    """The page of a command."""
    result = run("report", *arguments, "-o", "-", code=code)
    return Page(result.stdout)


def page_of(model: str, *data: str, epsilon: float = 0.1, jobs: int = 1) -> PageContent:
    """What a page is made of, without a command line."""
    loaded, allowed = read_model(model), Ball(epsilon)
    found = [assess(make_query(loaded, read_dataset(each), allowed), allowed, jobs) for each in data]
    return PageContent(loaded, found, "command", {"metasilvae": "0"})
