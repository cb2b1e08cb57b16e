"""Stratified splits of a data set: into a training and a test part, and into the folds of a cross-validation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError


def split_rows(y: NDArray[np.int32], test_fraction: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw the rows of a stratified split.

    Each class gives its fraction, rounded down, to the test part; the classes that lost most by rounding give one row
    more, until the test part has its size. Every class keeps at least one row for training.

    Parameters
    ----------
    y : int32 array
        Label code of each row.
    test_fraction : float
        Fraction of the rows for the test part, between 0 and 1.
    seed : int
        The same seed gives the same split.

    Returns
    -------
    train, test : intp arrays
        Increasing row numbers.
    """
    if not 0 < test_fraction < 1:
        raise RequestError(f"test fraction {test_fraction:g}: expected a number between 0 and 1, for instance 0.2")
    counts = np.bincount(y)
    wanted = counts * test_fraction
    n_test = np.floor(wanted).astype(np.intp)
    most = np.maximum(counts - 1, 0)
    missing = round(len(y) * test_fraction) - int(n_test.sum())
    for code in np.argsort(n_test - wanted, kind="stable"):
        if missing > 0 and n_test[code] < min(wanted[code], most[code]):
            n_test[code] += 1
            missing -= 1
    # Sorting random keys, unlike shuffling, depends on nothing but the stream of random numbers.
    keys = np.random.Generator(np.random.PCG64(seed)).random(len(y))
    in_test = np.zeros(len(y), bool)
    for code in np.flatnonzero(n_test):
        rows = np.flatnonzero(y == code)
        in_test[rows[np.argsort(keys[rows], kind="stable")[: n_test[code]]]] = True
    return np.flatnonzero(~in_test), np.flatnonzero(in_test)


def choose_rows(dataset: Dataset, test_fraction: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows of `split_rows`; refuses a split with an empty part."""
    train, test = split_rows(dataset.y, test_fraction, seed)
    if not len(test) or not len(train):
        raise DataError(f"{dataset.source}: {_explain_empty_part(dataset, test_fraction)}")
    return train, test


def split_dataset(dataset: Dataset, test_fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Stratified training and test part; rows keep the order they have in the data set."""
    train, test = choose_rows(dataset, test_fraction, seed)
    return dataset.subset(train), dataset.subset(test)


def _explain_empty_part(dataset: Dataset, test_fraction: float) -> str:
    """Why one of the parts would be empty."""
    if round(dataset.n_samples * test_fraction) and np.bincount(dataset.y).max() == 1:
        return (
            f"each of its {dataset.n_samples} rows is the only one of its class, and every class keeps a row for "
            "training; is the label in another column (--label-column)?"
        )
    return f"{dataset.n_samples} rows are too few to put {test_fraction:g} of them into a test part"


# Cross-validation: repeated folds, or a single split of at most so many samples where there are many.
FOLDS = 5
REPEATS = 3
MANY_SAMPLES = 3000
MOST_SAMPLES = 12000


def split_into_folds(y: NDArray[np.int32], n_folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Number of the fold of each sample; every class is spread evenly."""
    folds = np.empty(len(y), dtype=np.intp)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        folds[rows] = (np.arange(len(rows)) + rng.integers(n_folds)) % n_folds
    return folds


def plan_splits(y: NDArray[np.int32], seed: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Pairs of rows to train on and rows to test on: repeated folds, or one split of many samples."""
    rng = np.random.default_rng([seed, 2])
    if len(y) > MANY_SAMPLES:
        rows = np.sort(rng.permutation(len(y))[:MOST_SAMPLES])
        folds = split_into_folds(y[rows], 4, rng)
        return [(rows[folds != 0], rows[folds == 0])]
    splits = []
    for _ in range(REPEATS):
        folds = split_into_folds(y, FOLDS, rng)
        splits += [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(FOLDS)]
    return [(kept, held) for kept, held in splits if len(kept) and len(held) and len(np.unique(y[kept])) > 1]
