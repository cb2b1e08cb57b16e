"""Loading what a command works on."""

from __future__ import annotations

from typing import Any

from metasilvae.dataset import Dataset
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.matching import check_width
from metasilvae.model import Model


def load_data_for(model: Model, source: str, data_options: dict[str, Any], needs_labels: bool = True) -> Dataset:
    """Read data that a model is to work on; sparse data are as wide as the model."""
    return read_dataset(source, libsvm_width=model.n_features, needs_labels=needs_labels, **data_options)


def load_model_and_data(
    model: str, data: str, data_options: dict[str, Any], needs_labels: bool = True
) -> tuple[Model, Dataset]:
    loaded = read_model(model)
    return loaded, load_data_for(loaded, data, data_options, needs_labels)


def load_feature_names(model: Model, data: str | None, data_options: dict[str, Any]) -> tuple[str, ...] | None:
    """Column names of data that belong to a model, where there are data and they have names."""
    if data is None:
        return None
    dataset = load_data_for(model, data, data_options)
    check_width(model, dataset)
    return dataset.feature_names
