"""Trees that are trained in the norms l1 and l2, beside trees that are trained for boxes and CART.

    python scripts/bench_norm_trees.py [--data FOLDER] [--sets NAME,NAME] [--folds N] [--repeats N] [--jobs N]

For each set, norm and epsilon, phi (0.9 accuracy + 0.1 stability in that norm, verified exactly) on rows left out, in
repeats of stratified folds of the training rows; test rows are not used. Values are scaled to [0, 1] by the training
rows. The columns are

    norm tree     train with --norm, all other options as they are by default (tuned on the rows of the other folds)
    boxes         the same for boxes (the maximum norm), the radii a fraction of epsilon; the best fraction of those in
                  --factors, chosen by the very rows that it is measured on, so that it is too good rather than too bad
    (at)          that fraction
    CART          --preset cart
    difference    of the norm tree and the best boxes, with the standard error over folds

A set with more than --rows rows is trained on so many rows drawn for each fold, and judged by as many, without tuning
and with a search of 15 generations.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_train import SHARED

from metasilvae.api import evaluate, train
from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_into_folds
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.verification.objective import PAPER_FITNESS

# Set, norm and epsilon, in fractions of the range of a feature.
TASKS = (
    ("iris", "l1", 0.2),
    ("iris", "l2", 0.15),
    ("wine", "l1", 0.15),
    ("wine", "l2", 0.1),
    ("breast-cancer", "l1", 0.5),
    ("breast-cancer", "l2", 0.4),
    ("diabetes", "l1", 0.05),
    ("diabetes", "l2", 0.05),
    ("ionosphere", "l1", 0.2),
    ("ionosphere", "l2", 0.15),
    ("mnist-1-5", "l1", 1.0),
    ("mnist-1-5", "l2", 0.8),
)
SEED = 7
QUICK: dict[str, Any] = {"tune": False, "generations": 15}
SHIPPED = ("iris",)


def load(folder: Path, name: str) -> Dataset | None:
    """The training rows of a set, with values in [0, 1]; None if they are not there."""
    path = folder / name / "train.csv.gz"
    if not path.exists() and name not in SHIPPED:
        return None
    rows = read_dataset(str(path) if path.exists() else f"builtin:{name}/train")
    low, high = rows.X.min(axis=0), rows.X.max(axis=0)
    return replace(rows, X=np.ascontiguousarray((rows.X - low) / np.where(high > low, high - low, 1.0)))


def fit(rows: Dataset, withstood: Perturbation, options: dict[str, Any]) -> tuple[Model, float]:
    start = time.process_time()
    model = train(rows, withstood, seed=SEED, **options)
    return model, time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(dict.fromkeys(task[0] for task in TASKS)))
    parser.add_argument("--norms", default="l1,l2")
    parser.add_argument("--factors", default="0,0.1,0.2,0.4,0.7,1")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--rows", type=int, default=3000, help="more rows are too many")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    factors = [float(word) for word in arguments.factors.split(",")]
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; {arguments.repeats} x {arguments.folds} folds, {arguments.jobs} thread(s)\n")
    names = ("set", "norm", "norm tree", "s", "boxes", "at", "s", "CART", "difference")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    differences = []
    for name, norm, epsilon in TASKS:
        if name not in arguments.sets.split(",") or norm not in arguments.norms.split(","):
            continue
        rows = load(arguments.data, name)
        if rows is None:
            print(f"| {name} | left out: {arguments.data / name} is missing |")
            continue
        ball = NormBall(norm, epsilon)
        options: dict[str, Any] = {"preset": arguments.preset}
        kinds: dict[str, tuple[Perturbation, dict[str, Any]]] = {"norm": (ball, {}), "CART": (ball, {"preset": "cart"})}
        kinds |= {f"{factor:g}": (Ball(epsilon * factor), {}) for factor in factors}
        found: dict[str, list[float]] = {kind: [] for kind in kinds}
        seconds = dict.fromkeys(kinds, 0.0)
        for turn in range(arguments.repeats * arguments.folds):
            repeat, number = divmod(turn, arguments.folds)
            folds = split_into_folds(rows.y, arguments.folds, np.random.default_rng([SEED, repeat]))
            kept, judged = np.flatnonzero(folds != number), np.flatnonzero(folds == number)
            if len(kept) > arguments.rows:
                kept = np.sort(np.random.default_rng([SEED, turn]).permutation(kept)[: arguments.rows])
                judged = judged[: arguments.rows]
                options |= QUICK
            for kind, (withstood, changes) in kinds.items():
                chosen = {**(changes or options), "jobs": arguments.jobs}
                model, needed = fit(rows.subset(kept), withstood, chosen)
                seconds[kind] += needed
                evaluation = evaluate(model, rows.subset(judged), [ball], jobs=arguments.jobs)[0]
                found[kind].append(evaluation.phi(PAPER_FITNESS))
        boxes = max((f"{factor:g}" for factor in factors), key=lambda kind: float(np.mean(found[kind])))
        n = len(found["norm"])
        gains = np.array(found["norm"]) - np.array(found[boxes])
        differences.append(float(gains.mean()))
        cells = (
            name, f"{norm} {epsilon:g}", f"{np.mean(found['norm']):.4f}", f"{seconds['norm'] / n:.1f}",
            f"{np.mean(found[boxes]):.4f}", boxes, f"{seconds[boxes] / n:.1f}", f"{np.mean(found['CART']):.4f}",
            f"{gains.mean():+.4f} ± {gains.std(ddof=1) / n**0.5:.4f}",
        )  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    if differences:
        print(f"\nmean difference {np.mean(differences):+.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
