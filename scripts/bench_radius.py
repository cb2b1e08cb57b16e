"""Measure the time of exact certified radii and of verdicts at one epsilon, on one thread.

    python scripts/bench_radius.py MODEL DATA --epsilon E [--rows N] [--repeat R]

Seconds are processor time of the analysis, the best of several runs, without reading the files. The last line checks
that radii and verdicts agree.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import find_radii
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

T = TypeVar("T")


def measure(work: Callable[[], T], repeat: int) -> tuple[float, T]:
    """The least processor time of several runs, and the result."""
    best = np.inf
    for _ in range(repeat):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--epsilon", type=float, required=True, help="radius of the verdicts")
    parser.add_argument("--rows", type=int, help="use the first rows only")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    model, dataset = read_model(arguments.model), read_dataset(arguments.data)
    if arguments.rows is not None:
        dataset = dataset.subset(np.arange(min(arguments.rows, dataset.n_samples)))
    print(f"{model.n_trees} trees, {model.n_leaves} leaves; {dataset.n_samples} rows x {dataset.n_features} features")
    seconds, outcome = measure(lambda: verify(make_query(model, dataset, Ball(arguments.epsilon)), 1), arguments.repeat)
    print(f"verdicts at {arguments.epsilon:g}  {seconds:.4f} s")
    seconds, radii = measure(lambda: find_radii(make_query(model, dataset, Ball(1.0)), 1), arguments.repeat)
    print(f"exact radii      {seconds:.4f} s")
    agree = (radii.lower >= arguments.epsilon) == (outcome.stability == Stability.STABLE)
    print(f"agreement on {agree.sum()} of {len(agree)} rows")


if __name__ == "__main__":
    main()
