"""Measure what each part of the trainer is worth: the default without one part, on rows held out of the training split.

    python scripts/bench_ablation.py [--data FOLDER] [--sets NAME,NAME] [--repeat N]

The test splits are not used. Small sets: mean phi over repeated five-fold cross-validation of the training split.
Large sets: phi on a quarter of the training split. The difference from the first row is in brackets.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_into_folds
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.options import options_for
from metasilvae.training.runs import make_trainer
from metasilvae.verification.metrics import evaluate

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
EPSILONS = {"breast-cancer": 3.0, "wine": 0.1, "ionosphere": 0.2, "diabetes": 0.05, "sensorless-10k": 0.01}
SMALL = 3000
FIXED = {"tune": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no tuning": FIXED,
    "no tuning, no genetic search": {**FIXED, "generations": 0},
    "no tuning, no threshold moves": {**FIXED, "polish": 0, "mutation": "grow-or-prune"},
    "no tuning, no crossover": {**FIXED, "crossover": 0.0},
    "no tuning, no reach-set impurity": {**FIXED, "blends": (0.0,)},
    "no tuning, reach-set impurity only": {**FIXED, "blends": (1.0,)},
    "no tuning, training-epsilon factor 1.15": {**FIXED, "training_epsilon_factor": 1.15},
    "no tuning, no robust weight": {**FIXED, "robust_weight": 0.0},
    "no tuning, no leaf penalty": {**FIXED, "leaf_penalty": 0.0},
    "no tuning, leaves of one sample": {**FIXED, "min_samples_leaf": 1},
    "no tuning, start from a single leaf": {**FIXED, "greedy": False},
}


def split(dataset: Dataset, repeat: int) -> Iterator[tuple[Dataset, Dataset]]:
    """Pairs to train on and to judge by."""
    n_parts, n_used = (5, 5) if dataset.n_samples <= SMALL else (4, 1)
    for number in range(repeat if dataset.n_samples <= SMALL else 1):
        parts = split_into_folds(dataset.y, n_parts, np.random.default_rng(number))
        for part in range(n_used):
            yield dataset.subset(np.flatnonzero(parts != part)), dataset.subset(np.flatnonzero(parts == part))


def measure(pairs: list[tuple[Dataset, Dataset]], epsilon: float, changes: dict[str, Any]) -> float:
    """Mean phi on the parts held out."""
    figures = []
    for train, held_out in pairs:
        trainer = make_trainer(train, Ball(epsilon), options_for("default", seed=1, **changes))
        for _ in trainer.run():
            pass
        result = evaluate(trainer.model, held_out, [Ball(epsilon)])[0]
        assert result.stability is not None
        figures.append(0.9 * result.accuracy + 0.1 * result.stability)
    return float(np.mean(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(EPSILONS))
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    names = arguments.sets.split(",")
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}\n")
    print(f"| | {' | '.join(names)} | seconds |\n|{'---|' * (len(names) + 2)}")
    pairs = {
        name: list(split(read_dataset(str(arguments.data / name / "train.csv.gz")), arguments.repeat)) for name in names
    }
    reference: dict[str, float] = {}
    for variant, changes in VARIANTS.items():
        start = time.perf_counter()
        cells = []
        for name in names:
            phi = measure(pairs[name], EPSILONS[name], changes)
            difference = phi - reference.setdefault(name, phi)
            cells.append(f"{phi:.4f} ({difference:+.4f})" if changes else f"{phi:.4f}")
        print(f"| {variant} | {' | '.join(cells)} | {time.perf_counter() - start:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
