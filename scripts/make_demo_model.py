"""Make the small model that ships with the project: datasets/iris/tree.silva.

    python scripts/make_demo_model.py [--output FILE]

A textbook tree: split where the Gini impurity falls most, three levels deep, thresholds half way between neighbours.
It ignores stability, as `make demo` shows.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import parse_model, write_model

MAX_DEPTH = 3
OUTPUT = Path(__file__).resolve().parent.parent / "datasets" / "iris" / "tree.silva"


def impurity(counts: NDArray[np.int64]) -> float:
    """Gini impurity times the number of samples."""
    return float(counts.sum() - (counts**2).sum() / counts.sum())


def find_split(X: NDArray[np.float64], y: NDArray[np.int32], n_labels: int) -> tuple[float, int, float] | None:
    """Impurity, feature and threshold of the best split; the first one among equals."""
    best = None
    for feature in range(X.shape[1]):
        values = np.unique(X[:, feature])
        for low, high in itertools.pairwise(values):
            threshold = float(round((low + high) / 2, 6))
            is_left = X[:, feature] <= threshold
            total = sum(impurity(np.bincount(y[side], minlength=n_labels)) for side in (is_left, ~is_left))
            if best is None or total < best[0]:
                best = total, feature, threshold
    return best


def grow(X: NDArray[np.float64], y: NDArray[np.int32], n_labels: int, depth: int) -> list[str]:
    """Lines of a subtree in silva's text format."""
    counts = np.bincount(y, minlength=n_labels)
    split = find_split(X, y, n_labels) if depth < MAX_DEPTH and np.count_nonzero(counts) > 1 else None
    if split is None or split[0] >= impurity(counts):
        return [f"LEAF {' '.join(map(str, counts))}"]
    _, feature, threshold = split
    is_left = X[:, feature] <= threshold
    children = (grow(X[side], y[side], n_labels, depth + 1) for side in (is_left, ~is_left))
    return [f"SPLIT {feature} {threshold!r}", *(line for child in children for line in child)]


def make_tree(dataset: Dataset) -> str:
    header = f"classifier-decision-tree {dataset.n_features} {dataset.n_labels} {' '.join(dataset.labels)}"
    return "\n".join([header, *grow(dataset.X, dataset.y, dataset.n_labels, 0)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the small model that ships with the project.")
    parser.add_argument("--output", default=str(OUTPUT))
    path = parser.parse_args().output
    write_model(parse_model(make_tree(read_dataset("builtin:iris/train")).encode()), path)


if __name__ == "__main__":
    main()
