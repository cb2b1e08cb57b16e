"""Stratified splits of a data set: into a training and a test part, and into the folds of a cross-validation."""

from __future__ import annotations

from dataclasses import dataclass

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


# Cross-validation: repeated folds; where there are many samples, the folds of some of them.
FOLDS = 5
REPEATS = 2
MANY_SAMPLES = 3000
FOLDS_IF_MANY = 4
# Of many samples, at most so many and so many values are used, but no fewer than this number.
MOST_SAMPLES = 12000
MOST_VALUES = 3e6
FEWEST_SAMPLES = 2000
# How rows are split for tuning: "blocks" are contiguous, "auto" uses them if rows look ordered in time.
SPLITS = ("auto", "random", "blocks")
# Rows look ordered if, in at least half of the features with so many values, neighbouring rows of the same class are
# correlated by more than this.
ORDERED_CORRELATION = 0.8
MIN_VALUES_IF_ORDERED = 10
MIN_ROWS_IF_ORDERED = 100
# Rows and features that the test of the order looks at.
MOST_TESTED_ROWS = 20000
MOST_TESTED_FEATURES = 64

Pair = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True)
class CrossValidation:
    """Splits for tuning.

    Attributes
    ----------
    pairs : list of (intp array, intp array)
        Rows to train on and rows to score by.
    n_first : int
        Number of pairs that all candidates are tried on; only the leading ones are tried on the others.
    kind : str
        "random" or "blocks".
    n_rows : int
        Number of rows that take part.
    """

    pairs: list[Pair]
    n_first: int
    kind: str
    n_rows: int


def split_into_folds(y: NDArray[np.int32], n_folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Number of the fold of each sample; every class is spread evenly."""
    folds = np.empty(len(y), dtype=np.intp)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        folds[rows] = (np.arange(len(rows)) + rng.integers(n_folds)) % n_folds
    return folds


def split_into_blocks(y: NDArray[np.int32], n_folds: int, shift: float = 0.0) -> NDArray[np.intp]:
    """Number of the fold of each sample; the samples of a class that follow each other are in the same fold.

    Parameters
    ----------
    shift : float
        By how much of a fold the edges are moved; the last fold then continues at the first sample.
    """
    folds = np.empty(len(y), dtype=np.intp)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        place = (np.arange(len(rows)) + 0.5) * n_folds / len(rows) + shift
        folds[rows] = place.astype(np.intp) % n_folds
    return folds


def is_ordered(dataset: Dataset) -> bool:
    """Whether neighbouring rows of the same class resemble each other, as they do in recordings over time.

    Files that are sorted by class, or by one feature, are not ordered in this sense.
    """
    n_rows, n_features = min(dataset.n_samples, MOST_TESTED_ROWS), dataset.n_features
    if n_rows < MIN_ROWS_IF_ORDERED:
        return False
    features = np.unique(np.linspace(0, n_features - 1, min(n_features, MOST_TESTED_FEATURES)).round().astype(np.intp))
    y = dataset.y[:n_rows]
    order = np.argsort(y, kind="stable")
    is_pair = y[order][1:] == y[order][:-1]
    correlations = []
    for feature in features:
        column = dataset.X[:n_rows, feature]
        if len(np.unique(column)) < MIN_VALUES_IF_ORDERED:
            continue
        # Ranks, because single large values would hide or feign a correlation; less the mean of the class.
        ranks = np.unique(column, return_inverse=True)[1].astype(np.float64)
        ranks -= (np.bincount(y, ranks) / np.maximum(np.bincount(y), 1))[y]
        sorted_ranks = ranks[order]
        variance = float(ranks @ ranks) / n_rows
        if variance > 0:
            products = (sorted_ranks[1:] * sorted_ranks[:-1])[is_pair]
            correlations.append(float(products.mean()) / variance if len(products) else 0.0)
    return bool(correlations) and float(np.median(correlations)) > ORDERED_CORRELATION


def choose_kind(dataset: Dataset, kind: str) -> str:
    """Replace "auto" by "random" or "blocks"."""
    return kind if kind != "auto" else "blocks" if is_ordered(dataset) else "random"


def plan_cross_validation(
    dataset: Dataset, seed: int, kind: str = "auto", most_values: float = MOST_VALUES, is_repeated: bool = True
) -> CrossValidation:
    """Splits of a data set for tuning: folds, repeated if asked for, or the folds of some of many samples."""
    chosen = choose_kind(dataset, kind)
    rng = np.random.default_rng([seed, 2])
    y = dataset.y
    rows = np.arange(len(y))
    n_folds, n_repeats = FOLDS, REPEATS if is_repeated else 1
    if len(y) > MANY_SAMPLES:
        n_most = int(min(MOST_SAMPLES, max(FEWEST_SAMPLES, most_values / dataset.n_features)))
        rows = np.sort(rng.permutation(len(y))[:n_most])
        n_folds, n_repeats = FOLDS_IF_MANY, 1
    pairs = _list_pairs(y[rows], n_folds, n_repeats, None if chosen == "blocks" else rng)
    n_first = (n_folds + 1) // 2 if n_repeats == 1 else n_folds
    usable = [_is_usable(y[rows], pair) for pair in pairs]
    kept_pairs = [(rows[kept], rows[held]) for (kept, held), is_usable in zip(pairs, usable, strict=True) if is_usable]
    return CrossValidation(kept_pairs, max(1, sum(usable[:n_first])), chosen, len(rows))


def _list_pairs(y: NDArray[np.int32], n_folds: int, n_repeats: int, rng: np.random.Generator | None) -> list[Pair]:
    """Rows outside and inside each fold; without a random generator, folds are blocks."""
    pairs: list[Pair] = []
    for repeat in range(n_repeats):
        shift = repeat / n_repeats
        folds = split_into_blocks(y, n_folds, shift) if rng is None else split_into_folds(y, n_folds, rng)
        pairs += [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(n_folds)]
    return pairs


def _is_usable(y: NDArray[np.int32], pair: Pair) -> bool:
    kept, held = pair
    return len(kept) > 0 and len(held) > 0 and len(np.unique(y[kept])) > 1
