"""Runs that are stored and resumed after every step."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.formats.silva_models import format_model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.training.checkpoint.files import pack, unpack
from metasilvae.training.checkpoint.runs import Checkpoint
from metasilvae.training.options import Options, boosting_options_for, forest_options_for, options_for
from metasilvae.training.protocol import Progress, Trainer
from metasilvae.training.provenance import describe_run
from metasilvae.training.runs import make_trainer
from metasilvae.training.weights import weigh

SHORT: dict[str, Any] = {"generations": 5, "population": 6, "initial_population": 6, "elitism": 2}


PLAIN: dict[str, Any] = {**SHORT, "tune": False}


CASES: dict[str, Options] = {
    "tree": options_for("default", **PLAIN, seed=3),
    "no elite": options_for("default", **{**PLAIN, "elitism": 0, "crossover": 1.0}),
    "impatient": options_for("default", **{**PLAIN, "generations": 40, "patience": 2}),
    "held out": options_for("default", **PLAIN, validation=0.3),
    "some features": options_for("default", **PLAIN, allowed_features=2),
    "paper": options_for("paper", generations=6, population=5, initial_population=5),
    "cart": options_for("cart"),
    "tuned": options_for("default", **SHORT, polish=1),
    "tuned, held out": options_for("default", **SHORT, polish=1, validation=0.3),
    "reached target": options_for("default", **PLAIN, target=0.9),
    "forest": forest_options_for("default", 4, **{**SHORT, "generations": 1}),
    "plain forest": forest_options_for("fast", 6, seed=2),
    "independent": forest_options_for("fast", 5, "independent", validation=0.3),
    "forest with target": forest_options_for("fast", 9, target=0.9),
    "boosting": boosting_options_for("fast", 8, max_depth=3, min_samples_leaf=1, feature_sample=0.7),
    "boosting, held out": boosting_options_for("fast", 12, validation=0.3, patience=3),
    "tuned boosting": boosting_options_for("default", 6),
    "norm, boosting": boosting_options_for("fast", 8, max_depth=3, feature_sample=0.7),
    "norm, held out": boosting_options_for("fast", 12, max_depth=3, validation=0.3, patience=3),
    "norm, tuned": boosting_options_for("default", 5),
    "missing": options_for("default", **PLAIN, seed=3),
    "missing, held out": options_for("default", **PLAIN, validation=0.3),
    "missing, tuned": options_for("default", **SHORT, polish=1),
    "missing, forest": forest_options_for("fast", 5),
    "dropped": options_for("default", **PLAIN),
    "dropped, forest": forest_options_for("fast", 4),
    "weighted": options_for("default", **PLAIN, seed=3),
    "weighted, tuned": options_for("default", **SHORT, polish=1, validation=0.3),
    "weighted, forest": forest_options_for("fast", 4),
    "weighted, boosting": boosting_options_for("fast", 5, validation=0.3),
    "missing, boosting": boosting_options_for("fast", 6, max_depth=3, min_samples_leaf=1),
    "dropped, boosting": boosting_options_for("fast", 5, validation=0.3),
}


@functools.cache
def coarse() -> Dataset:
    """Few values and three labels, so that leaves tie often and metrics repeat."""
    rng = np.random.default_rng(7)
    X = rng.integers(0, 5, (50, 3)).astype(np.float64)
    y = ((X.sum(axis=1) + rng.integers(0, 4, 50)) % 3).astype(np.int32)
    return Dataset(X, y, ("a", "b", "c"))


@functools.cache
def with_holes() -> Dataset:
    """The same with missing values in two columns."""
    X = coarse().X.copy()
    X[np.random.default_rng(8).random(X.shape) < 0.15] = np.nan
    X[:, 2] = coarse().X[:, 2]
    return dataclasses.replace(coarse(), X=X)


def make(case: str, jobs: int = 1) -> Trainer:
    dataset = with_holes() if case.startswith(("missing", "dropped")) else coarse()
    if case.startswith("weighted"):
        dataset = weigh(dataset, {"a": 2.5}, np.arange(1, dataset.n_samples + 1))
    perturbation: Perturbation = NormBall("l1", 0.6) if case.startswith("norm") else Ball(0.6)
    if case.startswith("dropped"):
        rules = parse_attack(
            b'[default]\nradius = 0.6\n[columns]\n"x[0]" = { radius = 0.6, missing = "may appear" }\n', "a.toml"
        )
        perturbation = fit_attack(rules, dataset)
    return make_trainer(dataset, perturbation, CASES[case], jobs)


def strip(record: Progress) -> Progress:
    return dataclasses.replace(record, seconds=0.0)


@functools.cache
def whole_run(case: str) -> tuple[list[Progress], str, float | None, object]:
    trainer = make(case)
    records = [strip(record) for record in trainer.run()]
    return records, format_model(trainer.model), trainer.held_out_fitness, trainer.stop_reason


def stored(state: dict[str, Any]) -> dict[str, Any]:
    return unpack(pack(state))


def describe(options: Options = CASES["tree"], **changes: Any) -> dict[str, Any]:
    dataset = changes.pop("dataset", coarse())
    return describe_run(dataset, changes.pop("perturbation", Ball(0.6)), options, changes.pop("seeds", [3]), **changes)


def written(tmp_path: Any, case: str = "tree", n_steps: int = 4) -> str:
    """A checkpoint after some steps."""
    path = str(tmp_path / "run.checkpoint")
    checkpoint = Checkpoint(path, describe(CASES[case]), every=n_steps)
    trainer = make(case)
    checkpoint.resume_trainer(3, trainer)
    running = trainer.run()
    for _ in range(n_steps):
        checkpoint.note(3, next(running), trainer)
    running.close()
    return path
