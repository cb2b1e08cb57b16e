"""Quality and speed of robust boosting on the paper's data sets, beside published results of robust boosting.

    python scripts/bench_boosting.py [--data FOLDER] [--sets NAME,NAME] [--rounds N] [--aim phi|robust] [--tune]
                                     [--split] [--epsilon E] [--thresholds N] [--max-depth N] [--learning-rate X]
                                     [--score-penalty X] [--refits N] [--refit-penalty X] [--tolerance X]
                                     [--row-sample X] [--image-shifts HEIGHTxWIDTH] [--additive] [--jobs N]
                                     [--models FOLDER]

With --aim phi the objective is 0.9 accuracy + 0.1 stability and all options have their defaults, for all sets. With
--aim robust the objective is 0.15 accuracy + 0.85 robust accuracy; tuning is off, and other options are fixed by ROBUST
below, for all sets, and by ROBUST_IF_FEW for those with few rows; with --tune they have their defaults too. Small sets
(those with a folds.tsv): mean over the folds given there, or with --split the authors' test split. Large sets: the test
split, seed 1. No evaluated row takes part in training. The columns are

    acc / st / rob  decided exactly; a row that is not decided within a second counts as unstable
    phi             0.9 accuracy + 0.1 stability
    leaves          of all trees together
    seconds         processor time of one training, inside the process
    published       accuracy / robust accuracy of robust boosting (Andriushchenko and Hein, NeurIPS 2019), as quoted
                    by Ranzato and Zanella, "Genetic Adversarial Training of Decision Trees"; for small sets on one
                    split
    candidate       what tuning chose (on the last fold), and the number of rounds
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from bench_forest_training import FOREST_EPSILONS, figures_of, splits_of
from bench_train import SHARED

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.silva_models import write_model
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.additive_boosting import make_boosting_trainer
from metasilvae.training.options import FEW_SAMPLES, BoostingOptions, boosting_options_for
from metasilvae.training.protocol import finish
from metasilvae.training.results import take_model
from metasilvae.verification.objective import Fitness

SEED = 1
SETS = (
    "breast-cancer", "wine", "ionosphere", "diabetes", "collision-detection", "cod-rna", "mnist-1-5", "mnist-2-6",
    "sensorless-10k",
)  # fmt: skip
# Chosen on rows held out of the training splits.
ROBUST: dict[str, Any] = {
    "fitness": Fitness(correct=0.15, robust=0.85), "robust_weight": 0.0, "tolerance": 0.5, "max_depth": 10,
    "score_penalty": 10.0,
}  # fmt: skip
ROBUST_IF_FEW: dict[str, Any] = {**ROBUST, "max_depth": 4, "score_penalty": 1.0, "tolerance": 0.0}
OPTIONS = {
    "thresholds": int, "max_depth": int, "learning_rate": float, "score_penalty": float, "refits": int,
    "refit_penalty": float, "tolerance": float, "row_sample": float, "image_shifts": str,
}  # fmt: skip
PUBLISHED = {
    "breast-cancer": "0.993 / 0.934",
    "cod-rna": "0.931 / 0.787",
    "diabetes": "0.727 / 0.643",
    "fashion-mnist": "0.858 / 0.768",
    "mnist-1-5": "0.998 / 0.987",
    "mnist-2-6": "0.993 / 0.962",
}


def options_for(arguments: argparse.Namespace, n_rows: int) -> BoostingOptions:
    robust = ROBUST_IF_FEW if n_rows <= FEW_SAMPLES else ROBUST
    if arguments.tune:
        robust = {"fitness": ROBUST["fitness"]}
    given = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name) is not None}
    chosen = {**(robust if arguments.aim == "robust" else {}), **given, "additive": arguments.additive}
    return boosting_options_for("default", arguments.rounds, seed=SEED, **chosen)


def measure(
    train: Dataset, test: Dataset, ball: Ball, arguments: argparse.Namespace
) -> tuple[tuple[float, float, float], float, Any]:
    start = time.process_time()
    options = options_for(arguments, train.n_samples)
    trainer = make_boosting_trainer(train, ball, options, arguments.jobs)
    finish(trainer)
    model = take_model(trainer)
    seconds = time.process_time() - start
    return figures_of(model, test, ball, arguments.jobs), seconds, trainer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--aim", choices=("phi", "robust"), default="phi")
    parser.add_argument("--tune", action="store_true", help="tune, also with --aim robust")
    parser.add_argument("--split", action="store_true", help="use the test split of small sets too")
    parser.add_argument("--epsilon", type=float, help="instead of those of the paper")
    for name, kind in OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="as in train, instead of the one above")
    parser.add_argument("--additive", action="store_true", help="one tree for each feature")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--models", type=Path, help="folder for the models")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; aim {arguments.aim}, {arguments.rounds} rounds, {arguments.jobs} thread(s)\n")
    names = ("set", "acc / st / rob", "phi", "leaves", "seconds", "published", "candidate")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name in arguments.sets.split(","):
        folder, ball = arguments.data / name, Ball(arguments.epsilon or FOREST_EPSILONS[name])
        if not (folder / "train.csv.gz").exists():
            print(f"| {name} | left out: {folder} is missing |")
            continue
        results = [measure(*split, ball, arguments) for split in splits_of(folder, not arguments.split)]
        trainer = results[-1][2]
        if arguments.models is not None:
            arguments.models.mkdir(exist_ok=True)
            write_model(trainer.model, str(arguments.models / f"{name}.silva"))
        accuracy, stability, robust_accuracy = np.mean([figures for figures, _, _ in results], axis=0)
        chosen = {**(trainer.candidate or {}), "rounds": trainer.n_rounds}
        cells = (
            name,
            f"{accuracy:.4f} / {stability:.4f} / {robust_accuracy:.4f}",
            f"{0.9 * accuracy + 0.1 * stability:.4f}",
            f"{np.mean([each.model.n_leaves for _, _, each in results]):.0f}",
            f"{np.mean([seconds for _, seconds, _ in results]):.1f}",
            PUBLISHED.get(name, ""),
            " ".join(f"{key}={value}" for key, value in chosen.items()),
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
