"""Exports of models to other formats; each format has a function here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metasilvae.interop.exports.documents import write_dot, write_json, write_silva, write_text
from metasilvae.interop.exports.onnx import write_onnx, write_onnx_double
from metasilvae.interop.exports.scikit_learn import write_joblib, write_skops
from metasilvae.interop.exports.source_code import write_c, write_python
from metasilvae.model import Model

# Descriptions of a model, from the model and its feature names.
EXPORTERS: dict[str, Callable[[Model, Sequence[str] | None], str]] = {
    "dot": write_dot,
    "json": write_json,
    "text": write_text,
    "silva": write_silva,
}
# Predictors, from the model, its feature names and the voting scheme.
PREDICTOR_EXPORTERS: dict[str, Callable[[Model, Sequence[str] | None, str], str | bytes]] = {
    "c": write_c,
    "python": write_python,
    "onnx": write_onnx,
    "onnx-double": write_onnx_double,
    "joblib": write_joblib,
    "skops": write_skops,
}

__all__ = ["EXPORTERS", "PREDICTOR_EXPORTERS"]
