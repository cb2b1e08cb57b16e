"""Certified accuracy in the norms l1 and l2, beside published results of training for these norms.

    python scripts/bench_norms.py [--data FOLDER] [--sets NAME,NAME] [--rows N] [--trees N] [--jobs N]

Models are not trained for these norms: they are boosted models of metasilvae, trained for boxes, and extremely
randomized trees of scikit-learn, imported. What is measured is the exact verification. For each set, norm and radius,
the candidate (kind, depth, size of the boxes) is chosen by certified accuracy in 3 folds of at most 600 training rows.
Values are scaled to [0, 1] by the training rows, as in the papers. The columns are

    acc / cert    accuracy and certified accuracy on the test rows, at most --rows of them, drawn with a fixed seed
    undecided     rows that are not decided within 100000 steps; they count as not certified
    ms            processor time of the verification of one row
    published     accuracy / certified accuracy of de-randomized smoothing of stumps (Horvath, Mueller, Fischer and
                  Vechev, NeurIPS 2022, Table 2), on their own splits
    candidate     what was chosen
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_train import SHARED

from metasilvae.api import evaluate, train
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.interop.imports import import_object
from metasilvae.model import Model
from metasilvae.perturbations.norms import NormBall
from metasilvae.verification.budget import Budget
from metasilvae.verification.metrics import Evaluation

# Set, norm, radius and what was published.
TASKS = (
    ("breast-cancer", "l1", 1.0, "1.000 / 0.839"),
    ("diabetes", "l1", 0.05, "0.779 / 0.721"),
    ("mnist-1-5", "l1", 1.0, "0.993 / 0.981"),
    ("mnist-2-6", "l1", 1.0, "0.966 / 0.941"),
    ("breast-cancer", "l2", 0.7, "1.000 / 0.825"),
    ("diabetes", "l2", 0.05, "0.799 / 0.714"),
    ("mnist-1-5", "l2", 0.8, "0.992 / 0.963"),
    ("mnist-2-6", "l2", 0.8, "0.963 / 0.897"),
)
SEED = 1
FOLD_ROWS = 600
FOLDS = 3
JUDGED_ROWS = 60
# Steps for each row, where candidates are chosen and where the model is judged.
CHOOSING, JUDGING = Budget(steps=2000), Budget(steps=100_000)
FACTORS = (0.1, 0.2, 0.4, 0.8)
DEPTHS = (1, 2, 4)


def scale(train_rows: Dataset, rows: Dataset) -> Dataset:
    low, high = train_rows.X.min(axis=0), train_rows.X.max(axis=0)
    return replace(rows, X=np.ascontiguousarray((rows.X - low) / np.where(high > low, high - low, 1.0)))


def boosted(rows: Dataset, radius: float, factor: float, depth: int, n_trees: int, jobs: int) -> Model:
    """A boosted model for boxes that are smaller than the ball is wide."""
    weights = {"accuracy": 0.3, "robust_accuracy": 0.7}
    options = {"boost": n_trees, "max_depth": depth, "tune": False, "weights": weights, "seed": SEED}
    return train(rows, radius * factor, jobs=jobs, **options)


def randomized(rows: Dataset, depth: int, n_trees: int) -> Model:
    """Trees with thresholds drawn over the whole range, so that a small change passes few of them."""
    from sklearn.ensemble import ExtraTreesClassifier

    n_features = min(rows.n_features, max(1, round(rows.n_features**0.5 / 2)))
    classifier = ExtraTreesClassifier(n_trees, max_depth=depth, max_features=n_features, random_state=SEED)
    return import_object(classifier.fit(rows.X, np.array(rows.labels)[rows.y]), check=False).model


Maker = Callable[[Dataset], Model]


def list_candidates(radius: float, n_trees: int, jobs: int) -> dict[str, Maker]:
    found: dict[str, Maker] = {}
    for depth in DEPTHS:
        for factor in FACTORS:
            found[f"boosted, depth {depth}, boxes of {factor:g} r"] = lambda rows, depth=depth, factor=factor: boosted(
                rows, radius, factor, depth, n_trees, jobs
            )
        found[f"randomized, depth {depth}"] = lambda rows, depth=depth: randomized(rows, depth, n_trees)
    return found


def judge(model: Model, rows: Dataset, ball: NormBall, budget: Budget, jobs: int) -> Evaluation:
    return evaluate(model, rows, [ball], jobs=jobs, budget=budget)[0]


def choose(rows: Dataset, ball: NormBall, candidates: dict[str, Maker], jobs: int) -> str:
    """The candidate with the best certified accuracy on rows left out of a part of the training rows."""
    order = np.random.default_rng(SEED).permutation(rows.n_samples)[:FOLD_ROWS]
    folds = np.array_split(order, FOLDS)
    totals = dict.fromkeys(candidates, 0.0)
    for number, fold in enumerate(folds):
        kept = rows.subset(np.concatenate([each for other, each in enumerate(folds) if other != number]))
        judged = rows.subset(fold[:JUDGED_ROWS])
        for name, make in candidates.items():
            totals[name] += judge(make(kept), judged, ball, CHOOSING, jobs).robust_accuracy or 0.0
    return max(totals, key=lambda name: totals[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(dict.fromkeys(task[0] for task in TASKS)))
    parser.add_argument("--rows", type=int, default=500, help="test rows of a set")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; {arguments.trees} trees, at most {arguments.rows} test rows, {arguments.jobs} thread(s)\n")
    names = ("set", "norm", "radius", "acc / cert", "undecided", "ms", "published", "candidate")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name, norm, radius, published in TASKS:
        folder = arguments.data / name
        if name not in arguments.sets.split(","):
            continue
        if not (folder / "train.csv.gz").exists():
            print(f"| {name} | left out: {folder} is missing |")
            continue
        rows, test = (read_dataset(str(folder / f"{part}.csv.gz")) for part in ("train", "test"))
        rows, test = scale(rows, rows), scale(rows, test)
        drawn = np.random.default_rng(SEED).permutation(test.n_samples)[: arguments.rows]
        ball = NormBall(norm, radius)
        candidates = list_candidates(radius, arguments.trees, arguments.jobs)
        chosen = choose(rows, ball, candidates, arguments.jobs)
        model = candidates[chosen](rows)
        start = time.process_time()
        found = judge(model, test.subset(np.sort(drawn)), ball, JUDGING, arguments.jobs)
        seconds = (time.process_time() - start) / len(drawn)
        assert found.counts is not None
        cells = (
            name,
            norm,
            f"{radius:g}",
            f"{found.accuracy:.3f} / {found.robust_accuracy:.3f}",
            str(found.counts.no_info),
            f"{1000 * seconds:.1f}",
            published,
            chosen,
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
