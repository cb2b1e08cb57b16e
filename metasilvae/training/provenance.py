"""Provenance of models: what the result of a training run depends on, for checkpoints, and the manifest of a model.

The manifest is a JSON file beside a model that records options, data, versions, metrics and times.
"""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from metasilvae._version import VERSION
from metasilvae.dataset import Dataset, RowWeights
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.model_trailer import names_problem
from metasilvae.io.fingerprints import fingerprint
from metasilvae.io.storage import is_file_output, read_packed
from metasilvae.model import Model, ModelDescription
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.training.options import Options
from metasilvae.training.results import TrainedModel
from metasilvae.verification.metrics import Evaluation
from metasilvae.voting import DEFAULT_VOTING

# The option that may change when a single run is resumed.
TIME_LIMIT = "time-limit"
FORMAT = "metasilvae manifest 1"
SUFFIX = ".manifest.json"


def describe_run(
    dataset: Dataset,
    perturbation: Perturbation,
    options: Options,
    seeds: Sequence[int],
    forest: Model | None = None,
) -> dict[str, Any]:
    """All that the result depends on, as JSON has it; `forest` holds trees to start from."""
    return {
        "versions": {"metasilvae": VERSION, "numpy": np.__version__, "python": platform.python_version()},
        "data": describe_data(dataset),
        "perturbation": {
            "description": perturbation.describe(),
            "fingerprint": perturbation.boxes(dataset).fingerprint(dataset),
        },
        "start": None if forest is None else forest.fingerprint,
        "options": options.describe(),
        "seeds": list(seeds),
    }


def fingerprint_run(run: dict[str, Any]) -> str:
    """A digest of a description; runs that may resume from the same checkpoint have the same one.

    Names of files, the version of Python and the time limit do not matter.
    """
    options = {name: value for name, value in run["options"].items() if name != TIME_LIMIT}
    versions = {name: version for name, version in run["versions"].items() if name != "python"}
    data = {name: value for name, value in run["data"].items() if name != "file"}
    parts = [versions, data, run["perturbation"]["fingerprint"], run["start"], options, run["seeds"]]
    return fingerprint((json.dumps(parts, sort_keys=True),))


def describe_data(dataset: Dataset) -> dict[str, Any]:
    return {
        "file": dataset.source,
        "rows": dataset.n_samples,
        "features": dataset.n_features,
        "classes": dataset.n_labels,
        "fingerprint": dataset.fingerprint,
        **({} if dataset.weights is None else {"weights": _describe_weights(dataset.weights)}),
    }


def _describe_weights(weights: RowWeights) -> dict[str, Any]:
    """What metrics, counts of leaves and the choice of the model are weighted by."""
    return {"weights": weights.description, "unit": weights.unit, "fingerprint": fingerprint(weights.numbers)}


def describe_trained(
    model: Model, dataset: Dataset, run: dict[str, Any], seed: int, tuning: dict[str, Any] | None = None
) -> Model:
    """A trained model that knows its columns, its voting and how it was made.

    The same data, options and seed give the same description on every machine: it holds no times, no time limit (which
    may change when a run is resumed), and no names of files or hosts.

    Parameters
    ----------
    run : dict
        What `describe_run` returns.
    seed : int
        The seed that gave this model.
    tuning : dict or None
        What tuning has chosen; nothing, if a time limit has ended it.
    """
    words = run["perturbation"]["description"].split(" --feature-weights")[0]
    # Files have names that differ from machine to machine.
    words, _, within = words.partition(" within ")
    is_plain = words.startswith("l_inf") or words.split()[0] in SHARED_NORMS
    description = (words if is_plain else words.split()[0]) + (f" within {within.split()[0]}" if within else "")
    provenance = {
        "versions": run["versions"],
        "data": {name: value for name, value in run["data"].items() if name != "file"},
        "perturbation": {**run["perturbation"], "description": description},
        **({} if run["start"] is None else {"start": run["start"]}),
        "options": {name: value for name, value in run["options"].items() if name != TIME_LIMIT},
        "seed": seed,
        **({} if tuning is None or tuning.get("is_cut") else {"tuning": dict(sorted(tuning["chosen"].items()))}),
    }
    names = dataset.feature_names
    problem = None if names is None else names_problem(names, model.n_features)
    if problem is not None:
        message = f"{dataset.source}: {problem}; the model has no names, data are matched to it by position"
        warnings.warn(message, MetasilvaeWarning, stacklevel=2)
        names = None
    voting = DEFAULT_VOTING[model.leaf_kind] if model.is_forest else None
    encoding = None if dataset.encoding is None else dataset.encoding.as_json()
    return replace(model, description=ModelDescription(names, dataset.label_name, voting, encoding, provenance))


def name_manifest(output: str) -> str | None:
    """The path of the manifest of a model; standard output, pipes and devices have none."""
    if not is_file_output(output):
        return None
    return output + SUFFIX


def describe_models(
    output: str,
    run: dict[str, Any],
    runs: Sequence[TrainedModel],
    kept: Sequence[TrainedModel],
    test: Dataset | None,
    command: str | None,
    started: datetime,
    n_starts: int,
) -> dict[str, Any]:
    """The manifest of a model that was written.

    Parameters
    ----------
    run : dict
        What `describe_run` returns.
    runs, kept : sequences of TrainedModel
        All models that were trained, and those in the file.
    command : str or None
        The command as it was typed, if there was one.
    """
    ended = datetime.now(UTC)
    return {
        "format": FORMAT,
        "command": command,
        **run,
        "test_data": None if test is None else describe_data(test),
        "model": {
            "sha256": hashlib.sha256(read_packed(output)).hexdigest(),
            "seeds": [each.seed for each in kept],
            "trees": sum(each.model.n_trees for each in kept),
            "leaves": sum(each.model.n_leaves for each in kept),
            "depth": max(each.model.max_depth for each in kept),
        },
        "runs": [_describe_run(each) for each in runs],
        "starts": n_starts,
        "started": started.isoformat(timespec="seconds"),
        "ended": ended.isoformat(timespec="seconds"),
        "seconds": (ended - started).total_seconds(),
    }


def format_manifest(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _describe_run(run: TrainedModel) -> dict[str, Any]:
    held_out = None if run.held_out_fitness is None else {"rows": run.held_out_rows, "phi": run.held_out_fitness}
    return {
        "seed": run.seed,
        "seconds": run.seconds,
        "end": None if run.stop_reason is None else run.stop_reason.value,
        "leaves": run.model.n_leaves,
        "training": _describe_metrics(run, run.training),
        "held_out": held_out,
        "tuning": run.tuning,
        "test": None if run.test is None else _describe_metrics(run, run.test),
    }


def _describe_metrics(run: TrainedModel, evaluation: Evaluation) -> dict[str, Any]:
    return {"rows": evaluation.dataset.n_samples, **run.metrics(evaluation)}
