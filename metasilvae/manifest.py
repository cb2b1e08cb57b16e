"""A record beside a trained model of how it was made: options, data, versions, figures, times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metasilvae.dataset import Dataset
from metasilvae.evaluation import Evaluation
from metasilvae.run_description import describe_data
from metasilvae.seed_study import TrainedModel
from metasilvae.storage import STANDARD_STREAM, read_packed

FORMAT = "metasilvae manifest 1"
SUFFIX = ".manifest.json"


def name_manifest(output: str) -> str | None:
    """Where the manifest of a model is; standard output, pipes and devices have none."""
    if output == STANDARD_STREAM or (Path(output).exists() and not Path(output).is_file()):
        return None
    return output + SUFFIX


def describe_models(
    output: str,
    run: dict[str, Any],
    runs: Sequence[TrainedModel],
    kept: Sequence[TrainedModel],
    test: Dataset | None,
    command: str,
    started: datetime,
    n_starts: int,
) -> dict[str, Any]:
    """The manifest of a model that was written.

    Parameters
    ----------
    run : dict
        Of `metasilvae.run_description.describe_run`.
    runs, kept : sequences of TrainedModel
        All that were trained, and those in the file.
    command : str
        As it was typed.
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
        "training": _describe_figures(run, run.training),
        "held_out": held_out,
        "test": None if run.test is None else _describe_figures(run, run.test),
    }


def _describe_figures(run: TrainedModel, evaluation: Evaluation) -> dict[str, Any]:
    return {
        "rows": evaluation.dataset.n_samples,
        "phi": run.phi(evaluation),
        "accuracy": evaluation.accuracy,
        "stability": evaluation.stability,
        "robustness": evaluation.robustness,
    }
