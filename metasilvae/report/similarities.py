"""Similarity of models as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.report.tables import as_text


def write_text(models: Sequence[Model], dataset: Dataset, equal: NDArray[np.int64]) -> str:
    """One line as the C program prints it for two models, a table for more."""
    shares = equal / dataset.n_samples
    if len(models) == 2:
        return f"Similarity: {shares[0, 1]:g}\n"
    return as_text(
        [
            {
                "": str(row + 1),
                "model": model.source,
                **{str(column + 1): float(x) for column, x in enumerate(shares[row])},
            }
            for row, model in enumerate(models)
        ]
    )


def write_json(models: Sequence[Model], dataset: Dataset, equal: NDArray[np.int64]) -> str:
    document = {
        "models": [model.source for model in models],
        "data": dataset.source,
        "n_rows": dataset.n_samples,
        "n_equal": equal.tolist(),
        "similarity": (equal / dataset.n_samples).tolist(),
    }
    return json.dumps(document, indent=2) + "\n"


SIMILARITY_FORMATS: dict[str, Callable[[Sequence[Model], Dataset, NDArray[np.int64]], str]] = {
    "text": write_text,
    "json": write_json,
}
