"""Measure how many rows of hard forests are decided: random forests of deep trees on continuous columns.

    python scripts/bench_hard_forests.py [--rows N] [--seconds S] [--radius-rows N] [--radius-seconds S]
        [--forests N]

Needs scikit-learn. Forests of 100 to 200 fully grown trees are trained on generated rows of 12 to 18 columns, scaled to
[0, 1]. Their test rows are verified with one thread, under average voting, at epsilons around the median certified
radius, where rows are hardest. A row may take `--seconds`; rows that are undecided then are counted. Then certified
radii are searched, with `--radius-seconds` for each row.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from metasilvae.dataset import Dataset
from metasilvae.interop.imports import import_object
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import find_radii
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

N_TRAINING = 5000
N_TEST = 1000


@dataclass(frozen=True)
class Problem:
    """A generated table and the size of the forest that is trained on it."""

    n_features: int
    n_informative: int
    separation: float
    n_trees: int


PROBLEMS = (Problem(15, 10, 1.0, 100), Problem(15, 15, 0.7, 100), Problem(12, 8, 1.0, 150), Problem(18, 12, 0.5, 200))
EPSILONS = (0.03, 0.04, 0.05, 0.06, 0.08)


def make_forest(problem: Problem, seed: int) -> tuple[Model, Dataset]:
    """A trained forest and its test rows."""
    X, y = make_classification(
        N_TRAINING + N_TEST, problem.n_features, n_informative=problem.n_informative, n_redundant=0,
        class_sep=problem.separation, flip_y=0.05, random_state=seed,
    )  # fmt: skip
    X = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    forest = RandomForestClassifier(problem.n_trees, random_state=seed).fit(X[:N_TRAINING], y[:N_TRAINING])
    model = import_object(forest).model
    labels = {label: number for number, label in enumerate(model.labels)}
    positions = np.array([labels[str(label)] for label in y[N_TRAINING:]], dtype=np.int32)
    return model, Dataset(np.ascontiguousarray(X[N_TRAINING:]), positions, model.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100, help="test rows of each forest")
    parser.add_argument("--seconds", type=float, default=1.0, help="limit for a verdict")
    parser.add_argument("--radius-rows", type=int, default=10, help="rows whose certified radius is searched")
    parser.add_argument("--radius-seconds", type=float, default=5.0, help="limit for a certified radius")
    parser.add_argument("--forests", type=int, default=len(PROBLEMS), help="only the first forests")
    arguments = parser.parse_args()
    print("forest: trees x columns, leaves | epsilon: stable unstable undecided, processor seconds")
    n_rows = n_undecided = n_radii = n_exact = 0
    for seed, problem in enumerate(PROBLEMS[: arguments.forests]):
        model, dataset = make_forest(problem, seed)
        rows = dataset.subset(np.arange(min(arguments.rows, dataset.n_samples)))
        print(f"{model.n_trees} x {model.n_features}, {model.n_leaves}")
        for epsilon in EPSILONS:
            start = time.process_time()
            outcome = verify(make_query(model, rows, Ball(epsilon)), 1, budget=Budget(arguments.seconds))
            seconds = time.process_time() - start
            counts = [int((outcome.stability == each).sum()) for each in (Stability.STABLE, Stability.UNSTABLE)]
            undecided = rows.n_samples - sum(counts)
            n_rows += rows.n_samples
            n_undecided += undecided
            print(f"  {epsilon:g}: {counts[0]} {counts[1]} {undecided}, {seconds:.1f} s", flush=True)
        few = dataset.subset(np.arange(min(arguments.radius_rows, dataset.n_samples)))
        start = time.process_time()
        radii = find_radii(make_query(model, few, Ball(1.0)), 1, budget=Budget(arguments.radius_seconds))
        seconds = time.process_time() - start
        n_radii += few.n_samples
        n_exact += int(radii.is_exact.sum())
        print(f"  radii: {radii.is_exact.sum()} of {few.n_samples} exact, {seconds:.1f} s", flush=True)
    print(f"undecided: {n_undecided} of {n_rows} rows; exact radii: {n_exact} of {n_radii}")


if __name__ == "__main__":
    main()
