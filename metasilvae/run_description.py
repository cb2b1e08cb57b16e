"""What the result of a training run depends on, as plain values, for checkpoints and manifests."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from metasilvae import fingerprints
from metasilvae._version import VERSION
from metasilvae.dataset import Dataset
from metasilvae.forest_options import ForestOptions
from metasilvae.model import Model
from metasilvae.perturbation import Perturbation
from metasilvae.training_options import PUBLIC_NAMES, TrainingOptions

# Of the options, the one that may change where a single run goes on.
TIME_LIMIT = "time-limit"
# Options of a forest by their names on the command line; its trees have the others.
_FOREST_NAMES = {"n_trees": "trees", "method": "forest-method", "row_sample": "row-sample", "numbers": "shard"}


def describe_run(
    dataset: Dataset,
    perturbation: Perturbation,
    options: TrainingOptions | ForestOptions,
    seeds: Sequence[int],
    forest: Model | None = None,
) -> dict[str, Any]:
    """All that the result depends on; `forest` holds trees to start from. JSON gives it back as it is."""
    return {
        "versions": {"metasilvae": VERSION, "numpy": np.__version__, "python": platform.python_version()},
        "data": describe_data(dataset),
        "perturbation": {
            "description": perturbation.describe(),
            "fingerprint": fingerprints.of_boxes(perturbation.boxes(dataset), dataset),
        },
        "start": None if forest is None else fingerprints.of_model(forest),
        "options": _describe_options(options),
        "seeds": list(seeds),
    }


def fingerprint_run(run: dict[str, Any]) -> str:
    """A digest of a description; two runs that may go on from the same checkpoint have the same one.

    Names of files, the version of Python and the time limit make no difference.
    """
    options = {name: value for name, value in run["options"].items() if name != TIME_LIMIT}
    versions = {name: version for name, version in run["versions"].items() if name != "python"}
    data = {name: value for name, value in run["data"].items() if name != "file"}
    parts = [versions, data, run["perturbation"]["fingerprint"], run["start"], options, run["seeds"]]
    return fingerprints.fingerprint((json.dumps(parts, sort_keys=True),))


def describe_data(dataset: Dataset) -> dict[str, Any]:
    return {
        "file": dataset.source,
        "rows": dataset.n_samples,
        "features": dataset.n_features,
        "classes": dataset.n_labels,
        "fingerprint": fingerprints.of_dataset(dataset),
    }


def _describe_options(options: TrainingOptions | ForestOptions) -> dict[str, Any]:
    """Options by their names on the command line; the seed stands elsewhere."""
    if isinstance(options, ForestOptions):
        own = {
            _FOREST_NAMES.get(field.name, field.name.replace("_", "-")): as_json(getattr(options, field.name))
            for field in fields(options)
            if field.name != "tree"
        }
        return {**_describe_options(options.tree), **own}
    found = asdict(options)
    del found["seed"]
    found["population_generator"] = "greedy" if found.pop("greedy") else "blank"
    return {PUBLIC_NAMES.get(name, name.replace("_", "-")): as_json(value) for name, value in found.items()}


def as_json(value: Any) -> Any:
    """JSON has neither tuples nor infinite numbers; here the latter mean that there is no limit."""
    if isinstance(value, tuple):
        return [as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
