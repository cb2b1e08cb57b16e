"""Measure tables with categories: processor seconds of reading, training by default and verifying, on one core.

    python scripts/bench_tables.py [--rows 30000] [--numbers 6] [--categories 8] [--preset default]

The table is made up: the label depends on two numbers, two categories and noise; each category has ten values.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from metasilvae import api
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.tables import TableOptions
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack

ATTACK = (
    '[default]\nradius = "2% of value"\n[columns]\nc0 = { any = true }\nc1 = { swap = [["v0", "v1"], ["v2", "v3"]] }\n'
)
N_VALUES = 10


def make_table(path: Path, n_rows: int, n_numbers: int, n_categories: int) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.normal(50, 10, (n_rows, n_numbers)).round(3)
    categories = rng.integers(0, N_VALUES, (n_rows, n_categories))
    score = numbers[:, 0] - 50 + (numbers[:, 1] - 50) / 2 + 4 * (categories[:, 0] < 3) - 4 * (categories[:, 1] > 6)
    labels = np.where(score + rng.normal(0, 4, n_rows) > 0, "yes", "no")
    names = [*(f"n{column}" for column in range(n_numbers)), *(f"c{column}" for column in range(n_categories))]
    with path.open("w") as stream:
        stream.write(",".join(["id", *names, "label"]) + "\n")
        for row in range(n_rows):
            cells = [*(f"{value}" for value in numbers[row]), *(f"v{value}" for value in categories[row])]
            stream.write(",".join([f"r{row}", *cells, labels[row]]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure tables with categories.")
    parser.add_argument("--rows", type=int, default=30000)
    parser.add_argument("--numbers", type=int, default=6)
    parser.add_argument("--categories", type=int, default=8)
    parser.add_argument("--preset", default="default")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        make_table(path, wanted.rows, wanted.numbers, wanted.categories)
        started = time.process_time()
        dataset = read_dataset(str(path), label_column="label", columns=TableOptions(ids=("id",)))
    read = time.process_time()
    attack = fit_attack(parse_attack(ATTACK.encode(), "attack"), dataset)
    model = api.train(dataset, attack, preset=wanted.preset, jobs=1)
    trained = time.process_time()
    counts = api.verify(model, dataset, attack, jobs=1).counts
    verified = time.process_time()
    print(
        f"{wanted.rows} rows, {wanted.numbers} numbers, {wanted.categories} categories: {dataset.n_features} features"
    )
    print(f"read     {read - started:7.2f} s")
    print(f"train    {trained - read:7.2f} s  ({model.n_leaves} leaves)")
    print(f"verify   {verified - trained:7.2f} s  ({counts.correct} correct, {counts.stable} stable)")


if __name__ == "__main__":
    main()
