"""Measure where the time of a training goes: processor seconds of each phase.

    python scripts/bench_phases.py [--data FOLDER] [--sets NAME,NAME] [--preset NAME] [--seed N] [--c-program PATH]

Trains one tree on the training split of each set, one thread, with default options; only epsilon differs. Prints the
processor seconds of each phase, their sum, and the leaves of the tree. With --c-program the authors' trainer runs on
the same rows right after ours (paper's weights, 100 iterations, 500 on diabetes); its processor seconds include reading
the file, ours do not.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from pathlib import Path

from bench_train import iterations_for, run_c_program

from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.options import PRESETS, options_for
from metasilvae.training.protocol import PHASES
from metasilvae.training.runs import make_trainer

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
EPSILONS = {
    "breast-cancer": 3.0,
    "wine": 0.1,
    "ionosphere": 0.2,
    "diabetes": 0.05,
    "collision-detection": 0.1,
    "cod-rna": 0.025,
    "sensorless-10k": 0.01,
    "mnist-1-5": 77.0,
    "mnist-2-6": 77.0,
    "mnist": 30.0,
    "fashion-mnist": 25.0,
}
LARGEST = ("mnist", "fashion-mnist")
COLUMNS = ("preparation", *(phase for phase in PHASES if phase not in ("sample", "tree", "round", "refit")))


def measure(path: Path, epsilon: float, preset: str, seed: int) -> tuple[dict[str, float], int]:
    """Processor seconds of each phase, and leaves."""
    dataset = read_dataset(str(path))
    last = time.process_time()
    seconds = dict.fromkeys(COLUMNS, 0.0)

    def book(phase: str) -> None:
        nonlocal last
        now = time.process_time()
        seconds[phase] += now - last
        last = now

    trainer = make_trainer(dataset, Ball(epsilon), options_for(preset, seed=seed), 1)
    book("preparation")
    for progress in trainer.run():
        book(progress.phase)
    return seconds, trainer.model.n_leaves


def time_c_program(program: Path, path: Path, epsilon: float, name: str) -> float:
    """Processor seconds of the authors' trainer."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    run_c_program(program, read_dataset(str(path)), epsilon, iterations_for(name))
    return spent() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--sets", default=",".join(name for name in EPSILONS if name not in LARGEST))
    parser.add_argument("--preset", default="default", choices=list(PRESETS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--c-program", type=Path, help="path to the authors' trainer")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    has_c_program = arguments.c_program is not None
    print(f"| set | {' | '.join(COLUMNS)} | total | leaves |{' C program |' if has_c_program else ''}")
    print("|---|" + "---:|" * (len(COLUMNS) + 2 + has_c_program))
    for name in arguments.sets.split(","):
        path = arguments.data / name / "train.csv.gz"
        seconds, n_leaves = measure(path, EPSILONS[name], arguments.preset, arguments.seed)
        cells = [*(f"{each:.1f}" for each in seconds.values()), f"{sum(seconds.values()):.1f}", str(n_leaves)]
        if has_c_program:
            cells.append(f"{time_c_program(arguments.c_program, path, EPSILONS[name], name):.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
