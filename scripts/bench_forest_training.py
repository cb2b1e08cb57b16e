"""Quality and speed of training forests on the paper's data sets, with one default configuration for all of them.

    python scripts/bench_forest_training.py [--data FOLDER] [--sets NAME,NAME] [--trees N] [--method NAME] [--jobs N]
                                            [--single] [--models FOLDER]

Trains on the training split with seed 1 and judges on the test split, which decides nothing. Only epsilon differs from
set to set. The columns are

    acc / st / rob  on the test split; stability is what the votes of the trees prove, so that it may be higher
    leaves          of all trees together
    seconds         for the whole training, inside the process, and of them for the rehearsal
    setting         what the rehearsal chose

With --single a tree is trained by the default options too, with its rehearsal and its genetic search, for comparison.
With --models each forest is written into a folder, for instance to be verified completely.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from pathlib import Path

from bench_train import EPSILONS, SHARED

from metasilvae.errors import MetasilvaeWarning
from metasilvae.forest_options import METHODS, forest_options_for
from metasilvae.forest_training import ForestTrainer
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import write_model
from metasilvae.perturbation import Ball
from metasilvae.rehearsal import make_trainer
from metasilvae.seed_study import judge
from metasilvae.training_options import options_for

FOREST_EPSILONS = {**EPSILONS, "mnist": 30.0, "fashion-mnist": 25.0}
SEED = 1


def describe(setting: dict[str, object] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (setting or {}).items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(EPSILONS))
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--method", choices=METHODS, default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--single", action="store_true", help="train a single tree too")
    parser.add_argument("--models", type=Path, help="folder for the forests")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; {arguments.trees} trees, method {arguments.method}, {arguments.jobs} thread(s)\n")
    names = ("set", "acc / st / rob", "phi", "leaves", "seconds", "rehearsal", "single tree: acc / st / rob", "setting")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name in arguments.sets.split(","):
        folder, ball = arguments.data / name, Ball(FOREST_EPSILONS[name])
        if not (folder / "train.csv.gz").exists():
            print(f"| {name} | left out: {folder} is missing |")
            continue
        train, test = read_dataset(str(folder / "train.csv.gz")), read_dataset(str(folder / "test.csv.gz"))
        start, rehearsed = time.perf_counter(), 0.0
        options = forest_options_for("default", arguments.trees, arguments.method, seed=SEED)
        trainer = ForestTrainer(train, ball, options, arguments.jobs)
        for progress in trainer.run():
            if progress.phase != "tree":
                rehearsed = progress.seconds
        model, seconds = trainer.model, time.perf_counter() - start
        if arguments.models is not None:
            arguments.models.mkdir(exist_ok=True)
            write_model(model, str(arguments.models / f"{name}.silva"))
        figures = judge(model, test, ball, arguments.jobs)
        single = ""
        if arguments.single:
            tree = make_trainer(train, ball, options_for("default", seed=SEED), arguments.jobs)
            for _ in tree.run():
                pass
            one = judge(tree.model, test, ball, arguments.jobs)
            single = f"{one.accuracy:.3f} / {one.stability:.3f} / {one.robustness:.3f}"
        cells = (
            name,
            f"{figures.accuracy:.4f} / {figures.stability:.4f} / {figures.robustness:.4f}",
            f"{0.9 * figures.accuracy + 0.1 * (figures.stability or 0):.4f}",
            f"{model.n_leaves}",
            f"{seconds:.1f}",
            f"{rehearsed:.1f}",
            single,
            describe(trainer.setting),
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
