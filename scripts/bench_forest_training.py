"""Quality and speed of training forests on the paper's data sets, with one default configuration for all of them.

    python scripts/bench_forest_training.py [--data FOLDER] [--sets NAME,NAME] [--trees N] [--method NAME] [--jobs N]
                                            [--single] [--models FOLDER]

Small sets (those with a folds.tsv): mean over the folds given there. Large sets: the test split, seed 1. Only epsilon
differs from set to set, and no evaluated row takes part in training. The columns are

    acc / st / rob  decided exactly; a row that is not decided within a second counts as unstable
    phi             0.9 accuracy + 0.1 stability
    leaves          of all trees together
    seconds         processor time of one training, and of them for the tuning
    single tree     a tree trained by the default options, with its tuning and its genetic search (with --single)
    setting         the candidate that tuning chose (on the last fold)

With --models each forest is written into a folder.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_train import EPSILONS, SHARED, join

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import write_model
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.forest import ForestTrainer
from metasilvae.training.options import METHODS, forest_options_for, options_for
from metasilvae.training.results import take_model
from metasilvae.training.runs import make_trainer
from metasilvae.verification.budget import Budget
from metasilvae.verification.metrics import evaluate

FOREST_EPSILONS = {**EPSILONS, "mnist": 30.0, "fashion-mnist": 25.0}
SEED = 1


@dataclass(frozen=True)
class Run:
    """Accuracy, stability and robustness on rows that were not learned, and what they took."""

    forest: tuple[float, float, float]
    single: tuple[float, float, float] | None
    leaves: int
    seconds: float
    tuned: float


def figures_of(model: Model, test: Dataset, ball: Ball, jobs: int) -> tuple[float, float, float]:
    found = evaluate(model, test, [ball], jobs=jobs, budget=Budget(seconds=1.0))[0]
    return found.accuracy, found.stability or 0.0, found.robust_accuracy or 0.0


def train_both(train: Dataset, test: Dataset, ball: Ball, arguments: argparse.Namespace) -> tuple[Run, ForestTrainer]:
    start, tuned = time.process_time(), 0.0
    options = forest_options_for("default", arguments.trees, arguments.method, seed=SEED)
    trainer = ForestTrainer(train, ball, options, arguments.jobs)
    for progress in trainer.run():
        if progress.phase != "tree":
            tuned = time.process_time() - start
    model, seconds = take_model(trainer), time.process_time() - start
    single = None
    if arguments.single:
        tree = make_trainer(train, ball, options_for("default", seed=SEED), arguments.jobs)
        for _ in tree.run():
            pass
        single = figures_of(take_model(tree), test, ball, arguments.jobs)
    return Run(figures_of(model, test, ball, arguments.jobs), single, model.n_leaves, seconds, tuned), trainer


def splits_of(folder: Path, uses_folds: bool = True) -> Iterator[tuple[Dataset, Dataset]]:
    """Training and test part of each fold, or those of the files."""
    train, test = read_dataset(str(folder / "train.csv.gz")), read_dataset(str(folder / "test.csv.gz"))
    if not uses_folds or not (folder / "folds.tsv").exists():
        yield train, test
        return
    whole = join(train, test)
    folds = np.loadtxt(folder / "folds.tsv", skiprows=1, dtype=int)[:, 1:]
    for parts in folds.T:
        for fold in range(parts.max() + 1):
            yield whole.subset(np.flatnonzero(parts != fold)), whole.subset(np.flatnonzero(parts == fold))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(EPSILONS))
    parser.add_argument("--trees", type=int, default=25)
    parser.add_argument("--method", choices=METHODS, default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--single", action="store_true", help="train a single tree too")
    parser.add_argument("--models", type=Path, help="folder for the forests")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; {arguments.trees} trees, method {arguments.method}, {arguments.jobs} thread(s)\n")
    names = ("set", "acc / st / rob", "phi", "leaves", "seconds", "tuning", "single tree: acc / st / rob", "setting")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name in arguments.sets.split(","):
        folder, ball = arguments.data / name, Ball(FOREST_EPSILONS[name])
        if not (folder / "train.csv.gz").exists():
            print(f"| {name} | left out: {folder} is missing |")
            continue
        results = [train_both(*split, ball, arguments) for split in splits_of(folder)]
        runs, trainer = [run for run, _ in results], results[-1][1]
        if arguments.models is not None:
            arguments.models.mkdir(exist_ok=True)
            write_model(trainer.model, str(arguments.models / f"{name}.silva"))
        accuracy, stability, robust_accuracy = np.mean([run.forest for run in runs], axis=0)
        single = np.mean([run.single for run in runs], axis=0) if arguments.single else ()
        cells = (
            name,
            f"{accuracy:.4f} / {stability:.4f} / {robust_accuracy:.4f}",
            f"{0.9 * accuracy + 0.1 * stability:.4f}",
            f"{np.mean([run.leaves for run in runs]):.0f}",
            f"{np.mean([run.seconds for run in runs]):.1f}",
            f"{np.mean([run.tuned for run in runs]):.1f}",
            " / ".join(f"{figure:.4f}" for figure in single),
            " ".join(f"{key}={value}" for key, value in (trainer.candidate or {}).items()),
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
