"""Measure the time to load CSV data, compared with numpy.loadtxt on the same file.

    python scripts/bench_load.py [--check] [--repeat N] [--rows N] [FILE...]

Without a file a text of 60000 x 784 whole numbers is made, most of them 0, as in a set of handwritten digits. Times are
the best of N runs. With --check the exit code is 1 if loading takes more than 1.5 x the time of loadtxt.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.csv_files import is_number
from metasilvae.formats.datasets import read_dataset, write_dataset

MOST = 1.5
SEED = 1


def make_pixels(path: str, n_samples: int) -> None:
    """About a fifth of the pixels of handwritten digits are not 0."""
    rng = np.random.default_rng(SEED)
    X = rng.integers(1, 256, (n_samples, 784)).astype(np.float64)
    X[rng.random(X.shape) < 0.81] = 0
    y = rng.integers(0, 10, n_samples).astype(np.int32)
    write_dataset(Dataset(X, y, tuple("0123456789")), path)


def best_time(load: Callable[[], NDArray[np.float64]], repeat: int) -> tuple[float, NDArray[np.float64]]:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        values = load()
        times.append(time.perf_counter() - start)
    return min(times), values


def compare(path: str, repeat: int) -> float:
    """Print one line of figures; return our time as a multiple of loadtxt's."""
    dataset = read_dataset(path)
    assert dataset.line_of_row is not None
    n_skipped = int(dataset.line_of_row[0]) - 1
    has_numbers_only = all(map(is_number, dataset.labels))
    columns = None if has_numbers_only else range(1, dataset.n_features + 1)
    ours, X = best_time(lambda: read_dataset(path).X, repeat)
    theirs, table = best_time(
        lambda: np.loadtxt(path, delimiter=",", usecols=columns, skiprows=n_skipped, ndmin=2), repeat
    )
    if not np.array_equal(table[:, 1:] if has_numbers_only else table, X):
        raise SystemExit(f"{path}: numpy.loadtxt reads other numbers")
    print(
        f"{Path(path).name}  {dataset.n_samples} x {dataset.n_features}  metasilvae {ours:.3f} s  "
        f"numpy.loadtxt {theirs:.3f} s  ratio {ours / theirs:.3f}"
    )
    return ours / theirs


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure loading CSV data beside numpy.loadtxt.")
    parser.add_argument("files", nargs="*", help="CSV files with the label in the first column, separated by commas")
    parser.add_argument("--check", action="store_true", help=f"fail if a ratio is above {MOST}")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, the best counts [3]")
    parser.add_argument("--rows", type=int, default=60000, help="rows of the text that is made [60000]")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}")
    warnings.simplefilter("ignore", MetasilvaeWarning)
    with tempfile.TemporaryDirectory() as folder:
        files = options.files
        if not files:
            files = [str(Path(folder) / "pixels.csv")]
            make_pixels(files[0], options.rows)
        ratios = [compare(path, options.repeat) for path in files]
    return int(options.check and max(ratios) > MOST)


if __name__ == "__main__":
    sys.exit(main())
