"""Certified accuracy of boosted models that are trained for the norms l1 and l2, beside published results.

    python scripts/bench_norms.py [--data FOLDER] [--sets NAME,NAME] [--norms l1,l2] [--rows N] [--rounds N] [--jobs N]
        [--boxes] [--no-tune]

For each set, norm and radius one model is trained by `train --boost --norm`, whose tuning cross-validates on the
training rows (with --no-tune, by its first candidate). It is judged once on the test rows, by the exact verification.
Values are scaled to [0, 1] by the training rows, as in the papers. The columns are

    acc / cert    accuracy and certified accuracy on the test rows, at most --rows of them, drawn with a fixed seed
    undecided     rows that are not decided within --steps steps; they count as not certified
    ms            processor time of the verification of one row
    training s    processor time of the training, tuning included
    published     accuracy / certified accuracy of de-randomized smoothing of stumps (Horvath, Mueller, Fischer and
                  Vechev, NeurIPS 2022, Table 2), on their own splits
    boxes         acc / cert of a boosted model of as many rounds that is trained for boxes instead, with --boxes
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_train import SHARED

from metasilvae.api import evaluate, train
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.training.additive_boosting import CANDIDATES
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
WEIGHTS = {"accuracy": 0.3, "robust_accuracy": 0.7}
# Boxes of this part of the radius.
BOX_FACTOR = 0.4


def scale(train_rows: Dataset, rows: Dataset) -> Dataset:
    low, high = train_rows.X.min(axis=0), train_rows.X.max(axis=0)
    return replace(rows, X=np.ascontiguousarray((rows.X - low) / np.where(high > low, high - low, 1.0)))


def boosted(rows: Dataset, withstood: float | Perturbation, arguments: argparse.Namespace) -> Model:
    fixed = CANDIDATES[0] if arguments.no_tune else {}
    options = {"boost": arguments.rounds, "weights": WEIGHTS, "seed": SEED, **fixed}
    return train(rows, withstood, jobs=arguments.jobs, **options)


def judge(model: Model, rows: Dataset, ball: NormBall, arguments: argparse.Namespace) -> Evaluation:
    return evaluate(model, rows, [ball], jobs=arguments.jobs, budget=Budget(steps=arguments.steps))[0]


def show(found: Evaluation) -> str:
    return f"{found.accuracy:.3f} / {found.robust_accuracy:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(dict.fromkeys(task[0] for task in TASKS)))
    parser.add_argument("--norms", default="l1,l2")
    parser.add_argument("--rows", type=int, default=10**9, help="test rows of a set")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=100_000, help="of the verification of a row")
    parser.add_argument("--no-tune", action="store_true", help="take the first candidate of tuning")
    parser.add_argument("--boxes", action="store_true", help="train for boxes too")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; {arguments.rounds} rounds, {arguments.jobs} thread(s)\n")
    names = ("set", "norm", "radius", "test rows", "acc / cert", "undecided", "ms", "training s", "published")
    names += ("boxes",) if arguments.boxes else ()
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name, norm, radius, published in TASKS:
        folder = arguments.data / name
        if name not in arguments.sets.split(",") or norm not in arguments.norms.split(","):
            continue
        if not (folder / "train.csv.gz").exists():
            print(f"| {name} | left out: {folder} is missing |")
            continue
        rows, test = (read_dataset(str(folder / f"{part}.csv.gz")) for part in ("train", "test"))
        rows, test = scale(rows, rows), scale(rows, test)
        drawn = np.random.default_rng(SEED).permutation(test.n_samples)[: arguments.rows]
        test, ball = test.subset(np.sort(drawn)), NormBall(norm, radius)
        start = time.process_time()
        model = boosted(rows, ball, arguments)
        trained = time.process_time()
        found = judge(model, test, ball, arguments)
        seconds = (time.process_time() - trained) / test.n_samples
        assert found.counts is not None
        cells = [
            name,
            norm,
            f"{radius:g}",
            str(test.n_samples),
            show(found),
            str(found.counts.no_info),
            f"{1000 * seconds:.1f}",
            f"{trained - start:.1f}",
            published,
        ]
        if arguments.boxes:
            box = boosted(rows, BOX_FACTOR * radius, arguments)
            cells.append(show(judge(box, test, ball, arguments)))
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
