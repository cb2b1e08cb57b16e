"""Measure how the time of training depends on rows, features, leaves and threads.

    python scripts/bench_scaling.py [--repeat N] [--studies rows,features,leaves,threads]
    python scripts/bench_scaling.py --studies training [--sizes 10000,100000,1000000] [--presets fast,default]
        [--noise 0.1,0.3] [--kinds tree,boost,forest] [--boost N] [--trees N] [--jobs N]

Trains on synthetic data of several sizes, one thread, and prints the time of a generation and the exponent of the
best-fitting power law: 1 is linear. The study of threads prints offspring per second for one and for two threads.

The study `training` measures whole runs, each in a process of its own: seconds, processor seconds, peak memory of the
process (with the data), leaves, and phi on 100000 fresh rows. The labels follow a tree of 32 leaves over 8 of the 28
features; a fraction of them (--noise) is wrong. `rule phi` is that of the tree behind the labels, at least: a row
counts as stable if it is far from all tests on its path. By default single trees are trained; --kinds adds boosted
models and forests. Their rows are decided exactly, within a second each; undecided ones count as unstable.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import resource
import sys
import time
from collections.abc import Iterator

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import Options, boosting_options_for, forest_options_for, options_for
from metasilvae.training.results import take_model
from metasilvae.training.runs import make_trainer
from metasilvae.verification.budget import Budget
from metasilvae.verification.metrics import evaluate

GENERATIONS = 10
POPULATION = 32
# Whole trainings.
N_FEATURES = 28
N_RELEVANT = 8
RULE_DEPTH = 5
RULE_EPSILON = 0.02
FRESH_ROWS = 100_000


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


def make_rule_data(n_samples: int, noise: float, seed: int) -> tuple[Dataset, float]:
    """Rows labelled by a fixed complete tree with random tests, and phi of that tree on them."""
    rng = np.random.default_rng([seed, 7])
    X = rng.random((n_samples, N_FEATURES))
    rule = np.random.default_rng(5)
    node = np.zeros(n_samples, dtype=np.int64)
    is_stable = np.ones(n_samples, dtype=bool)
    rows = np.arange(n_samples)
    for depth in range(RULE_DEPTH):
        feature, threshold = rule.integers(0, N_RELEVANT, 2**depth), rule.uniform(0.25, 0.75, 2**depth)
        value, limit = X[rows, feature[node]], threshold[node]
        # A row close to a threshold on its path may change its label; this bounds phi from below.
        is_stable &= (value + RULE_EPSILON <= limit) | (value - RULE_EPSILON > limit)
        node = 2 * node + (value > limit)
    y = rule.permutation(np.arange(2**RULE_DEPTH) % 2)[node]
    is_wrong = rng.random(n_samples) < noise
    phi = 0.9 * float(np.mean(~is_wrong)) + 0.1 * float(is_stable.mean())
    return Dataset(X, np.where(is_wrong, 1 - y, y).astype(np.int32), ("no", "yes")), phi


def train_once(n_samples: int, noise: float, options: Options, jobs: int) -> dict[str, float]:
    """Figures of one training run; for a process of its own."""
    dataset, _ = make_rule_data(n_samples, noise, 0)
    start, processor_start = time.perf_counter(), time.process_time()
    trainer = make_trainer(dataset, Ball(RULE_EPSILON), options, jobs)
    for _ in trainer.run():
        pass
    model = take_model(trainer)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor_start
    # Kilobytes on Linux, bytes on macOS.
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    fresh, best = make_rule_data(FRESH_ROWS, noise, 1)
    budget = Budget(seconds=1.0)
    phi = evaluate(model, fresh, [Ball(RULE_EPSILON)], jobs=jobs, budget=budget)[0].phi(options.tree_options.fitness)
    return {
        "rows": n_samples, "noise": noise, "seconds": seconds, "processor": processor, "memory": memory / 2**20,
        "leaves": model.n_leaves, "phi": phi, "best": best,
    }  # fmt: skip


def list_options(arguments: argparse.Namespace) -> Iterator[tuple[str, Options]]:
    """Names and options of the runs to measure."""
    for kind in arguments.kinds.split(","):
        for preset in arguments.presets.split(","):
            if kind == "tree":
                yield f"tree, {preset}", options_for(preset, seed=1)
            elif kind == "boost":
                yield f"boost {arguments.boost}, {preset}", boosting_options_for(preset, arguments.boost, seed=1)
            elif kind == "forest":
                yield f"forest {arguments.trees}, {preset}", forest_options_for(preset, arguments.trees, seed=1)
            else:
                raise SystemExit(f"--kinds {kind}: known are tree, boost and forest")


def study_training(arguments: argparse.Namespace) -> None:
    jobs = arguments.jobs
    print(f"{N_FEATURES} features, epsilon {RULE_EPSILON}, {jobs} threads")
    print("   rows  noise  model              seconds  processor  memory MB  leaves     phi  rule phi")
    for name, options in list_options(arguments):
        for noise in map(float, arguments.noise.split(",")):
            for n_samples in map(int, arguments.sizes.split(",")):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    run = pool.apply(train_once, (n_samples, noise, options, jobs))
                print(
                    f"{n_samples:>7}  {noise:>5g}  {name:<17}  {run['seconds']:>7.1f}  {run['processor']:>9.1f}  "
                    f"{run['memory']:>9.0f}  {run['leaves']:>6}  {run['phi']:.4f}    {run['best']:.4f}",
                    flush=True,
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--studies", default="rows,features,leaves,threads")
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--noise", default="0.1,0.3")
    parser.add_argument("--presets", default="fast,default")
    parser.add_argument("--kinds", default="tree", help="tree, boost, forest")
    parser.add_argument("--boost", type=int, default=100, help="rounds of boosted models")
    parser.add_argument("--trees", type=int, default=25, help="trees of forests")
    parser.add_argument("--jobs", type=int, default=1)
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
    if "training" in wanted:
        study_training(arguments)
    if "threads" in wanted:
        rates = [POPULATION / time_generation(16000, 64, 64, arguments.repeat, jobs) for jobs in (1, 2)]
        print(
            f"{rates[0]:.0f} offspring per second with one thread, {rates[1]:.0f} with two: {rates[1] / rates[0]:.2f} x"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
