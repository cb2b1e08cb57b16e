"""Models in the forms that other programs and people read; to add one, write a module and name it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metasilvae.export.graphviz import write_dot
from metasilvae.export.json_document import write_json
from metasilvae.export.readable import write_text
from metasilvae.model import Model

# Each takes a model and the names of its features.
EXPORTERS: dict[str, Callable[[Model, Sequence[str] | None], str]] = {
    "dot": write_dot,
    "json": write_json,
    "text": write_text,
}

__all__ = ["EXPORTERS"]
