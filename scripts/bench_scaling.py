"""Measure how the time of a generation depends on rows, features, leaves and threads.

    python scripts/bench_scaling.py [--repeat N] [--studies rows,features,leaves,threads]

Trains on synthetic data of several sizes, one thread, and prints the time of a generation and the exponent of the
best-fitting power law: 1 is linear. The study of threads prints offspring per second for one and for two threads.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import options_for

GENERATIONS = 10
POPULATION = 32


def make_data(n_samples: int, n_features: int) -> Dataset:
    """Classes by a wavy surface, so that trees of any size find something to learn."""
    rng = np.random.default_rng(0)
    X = rng.random((n_samples, n_features))
    surface = np.sin(12 * X[:, 0]) + np.cos(9 * X[:, 1 % n_features]) + X.mean(axis=1) + rng.normal(0, 0.3, n_samples)
    return Dataset(X, (surface > np.median(surface)).astype(np.int32), ("low", "high"))


def time_generation(n_samples: int, n_features: int, n_leaves: int, repeat: int, jobs: int = 1) -> float:
    """Seconds of one generation of 32 trees of about the given size, the best of several runs."""
    options = options_for(
        "default", tune=False, generations=GENERATIONS, patience=0, polish=0, blends=(0.0,), leaf_penalty=0.0,
        population=POPULATION, elitism=0, seed_leaves=n_leaves, max_leaves=n_leaves,
    )  # fmt: skip
    best = np.inf
    for _ in range(repeat):
        trainer = TreeTrainer(make_data(n_samples, n_features), Ball(0.01), options, jobs)
        start = None
        for progress in trainer.run():
            if progress.phase == "initial population":
                start = time.perf_counter()
        assert start is not None
        best = min(best, (time.perf_counter() - start) / GENERATIONS)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--studies", default="rows,features,leaves,threads")
    arguments = parser.parse_args()
    wanted = arguments.studies.split(",")
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}")
    studies = {
        "rows": [(n, 16, 64) for n in (2000, 4000, 8000, 16000, 32000)],
        "features": [(8000, d, 64) for d in (4, 8, 16, 32, 64)],
        "leaves": [(16000, 16, leaves) for leaves in (16, 32, 64, 128, 256)],
    }
    for position, (name, sizes) in enumerate(studies.items()):
        if name not in wanted:
            continue
        seconds = [time_generation(*size, arguments.repeat) for size in sizes]
        for size, each in zip(sizes, seconds, strict=True):
            print(f"{size[0]:>6} rows {size[1]:>4} features {size[2]:>4} leaves  {1000 * each:8.2f} ms per generation")
        exponent = np.polyfit(np.log([size[position] for size in sizes]), np.log(seconds), 1)[0]
        print(f"exponent for {name}: {exponent:.2f}\n", flush=True)
    if "threads" in wanted:
        rates = [POPULATION / time_generation(16000, 64, 64, arguments.repeat, jobs) for jobs in (1, 2)]
        print(
            f"{rates[0]:.0f} offspring per second with one thread, {rates[1]:.0f} with two: {rates[1] / rates[0]:.2f} x"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
