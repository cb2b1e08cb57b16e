"""Models in the forms that other programs and people read; to add one, write a module and name it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metasilvae.export.c_source import write_c
from metasilvae.export.graphviz import write_dot
from metasilvae.export.json_document import write_json
from metasilvae.export.onnx import write_onnx, write_onnx_double
from metasilvae.export.python_source import write_python
from metasilvae.export.readable import write_text
from metasilvae.export.scikit_learn import write_joblib, write_skops
from metasilvae.model import Model

# What a model is: each takes a model and the names of its features.
EXPORTERS: dict[str, Callable[[Model, Sequence[str] | None], str]] = {
    "dot": write_dot,
    "json": write_json,
    "text": write_text,
}
# What a model answers: each takes the voting scheme, too.
PREDICTOR_EXPORTERS: dict[str, Callable[[Model, Sequence[str] | None, str], str | bytes]] = {
    "c": write_c,
    "python": write_python,
    "onnx": write_onnx,
    "onnx-double": write_onnx_double,
    "joblib": write_joblib,
    "skops": write_skops,
}

__all__ = ["EXPORTERS", "PREDICTOR_EXPORTERS"]
