"""Summary of a data set, with warnings about unusual content."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.values import hash_rows
from metasilvae.dataset import Dataset
from metasilvae.encoding import BOOLEAN, MISSING_TOKENS, NUMBER, Column, Encoding
from metasilvae.errors import list_some, shorten
from metasilvae.formats.silva_models import label_problem

_MOST_LISTED = 5
_BLOCK_ROWS = 1024
# From this fraction of rows on, the largest class alone is hard to beat.
IMBALANCED = 0.8
# Names of columns that name rows, and the number of rows from which on this is no accident.
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?i:id|ids|index|key|uid|rowid|row)$|[a-z]I[dD]$")
FEWEST_IDENTIFIERS = 20


@dataclass(frozen=True)
class Duplicates:
    """Rows with equal values.

    Attributes
    ----------
    n_repeats : int
        Rows that repeat the values of an earlier row.
    conflicts : list of tuple of int
        Groups of rows with the same values that do not all have the same label.
    """

    n_repeats: int
    conflicts: list[tuple[int, ...]]

    @property
    def n_conflicting_rows(self) -> int:
        return sum(map(len, self.conflicts))


@dataclass(frozen=True)
class ColumnSummary:
    """One column of a table.

    Attributes
    ----------
    kind : str
        ``label``, ``number``, ``category``, ``boolean`` or ``ignored``.
    content : str
        Range of numbers, categories with their counts, or classes.
    n_missing : int
    features : str
        What a model sees of the column.
    """

    name: str
    kind: str
    content: str
    n_missing: int
    features: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class DataSummary:
    """Size, classes and value ranges of a data set.

    Attributes
    ----------
    class_counts : dict
        Number of rows by label, in order of first appearance.
    minimum, maximum : float64 arrays, shape (n_features,)
    constant_features : list of int
    is_whole : bool
        All values are whole numbers.
    oddities : list of str
        Warnings, one sentence each.
    columns : list of ColumnSummary
        The label first, then the columns in the order of their features, then columns that are no features.
    """

    n_samples: int
    n_features: int
    class_counts: dict[str, int]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    constant_features: list[int]
    is_whole: bool
    duplicates: Duplicates
    oddities: list[str]
    columns: list[ColumnSummary]


def summarize_dataset(dataset: Dataset) -> DataSummary:
    """Summarize a data set of at least one row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns without any value
        minimum, maximum = np.nanmin(dataset.X, axis=0), np.nanmax(dataset.X, axis=0)
    counts = np.bincount(dataset.y, minlength=dataset.n_labels).tolist()
    class_counts = dict(zip(dataset.labels, counts, strict=True))
    constant = np.flatnonzero(minimum == maximum).tolist()
    duplicates = find_duplicates(dataset.X, dataset.y)
    oddities = [
        *_describe_classes(class_counts),
        *describe_identifiers(dataset),
        *_describe_constants(dataset, constant),
        *_describe_conflicts(dataset, duplicates),
        *_describe_labels(dataset.labels),
    ]
    return DataSummary(
        dataset.n_samples,
        dataset.n_features,
        class_counts,
        minimum,
        maximum,
        constant,
        _is_whole(dataset.X),
        duplicates,
        oddities,
        summarize_columns(dataset, minimum, maximum),
    )


def summarize_columns(
    dataset: Dataset, minimum: NDArray[np.float64], maximum: NDArray[np.float64]
) -> list[ColumnSummary]:
    """A summary of the label and of each column."""
    columns = []
    if dataset.has_labels:
        counts = np.bincount(dataset.y, minlength=dataset.n_labels)
        content = _list_counts(dataset.labels, counts)
        columns.append(ColumnSummary(dataset.label_name or "label", "label", content, 0, "-"))
    encoding = dataset.encoding or Encoding(tuple(Column(dataset.feature_name(f)) for f in range(dataset.n_features)))
    n_missing = np.isnan(dataset.X).sum(axis=0)
    for place, column in enumerate(encoding.columns):
        features = encoding.features_of(place)
        first, missing = features[0], int(n_missing[features[0]])
        if column.kind == NUMBER:
            content, seen = f"{minimum[first]:g} to {maximum[first]:g}", "the number"
        elif column.kind == BOOLEAN:
            ones = int(np.nansum(dataset.X[:, first]))
            counts = np.array([dataset.n_samples - missing - ones, ones])
            content, seen = _list_counts(column.categories, counts), "0 or 1"
        else:
            if column.sets is None:
                counts = np.nansum(dataset.X[:, features], axis=0).astype(np.int64)
            else:
                counts = np.bincount(dataset.X[:, features[-1]].astype(np.int64), minlength=len(column.values))
            missing = int(counts[-1]) if column.has_missing else 0
            n_shown = len(column.values) - column.has_missing
            content = _list_counts(column.values[:n_shown], counts[:n_shown])
            seen = f"{len(features)} features, one of them 1"
            if column.sets is not None:
                seen = f"{len(features) - 1} features for sets of categories"
        columns.append(ColumnSummary(column.name, column.kind, content, missing, seen))
    tokens = {token.lower() for token in encoding.missing}
    for name, cells in dataset.ids:
        n_empty = sum(cell.strip().lower() in tokens for cell in cells)
        content = f"{len(set(cells))} texts such as {shorten(cells[0], 20)}" if len(cells) else ""
        columns.append(ColumnSummary(name, "ignored", content, n_empty, "nothing"))
    return columns


def _list_counts(names: Sequence[str], counts: NDArray[np.int64]) -> str:
    """Names with counts, the most frequent ones first if there are many."""
    order = range(len(names)) if len(names) <= _MOST_LISTED else np.argsort(-counts, kind="stable")[:_MOST_LISTED]
    listed = ", ".join(f"{_cut(names[place])} {counts[place]}" for place in order)
    return listed + (f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else "")


def _cut(name: str) -> str:
    return name if len(name) <= 30 else name[:27] + "..."


def _is_whole(X: NDArray[np.float64]) -> bool:
    """Whether all values are whole numbers; in blocks, because memory may not hold a second array of the size of X."""
    blocks = (X[first : first + _BLOCK_ROWS] for first in range(0, len(X), _BLOCK_ROWS))
    return all(np.array_equal(block, np.floor(block), equal_nan=True) for block in blocks)


def find_duplicates(X: NDArray[np.float64], y: NDArray[np.int32]) -> Duplicates:
    """Find equal rows: candidates by hash, then exactly."""
    hashes = np.empty(len(X), np.uint64)
    hash_rows(X, hashes)
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for row in np.flatnonzero(counts[inverse.reshape(-1)] > 1).tolist():
        groups[(X[row] + 0.0).tobytes()].append(row)
    n_repeats = sum(len(rows) - 1 for rows in groups.values())
    conflicts = [tuple(rows) for rows in groups.values() if len(set(y[rows].tolist())) > 1]
    return Duplicates(n_repeats, conflicts)


def _describe_classes(class_counts: dict[str, int]) -> list[str]:
    oddities = []
    if len(class_counts) == 1:
        oddities.append(f"every row has the label {shorten(next(iter(class_counts)))}; a classifier needs two classes")
    n_samples = sum(class_counts.values())
    if len(class_counts) > max(20, n_samples / 4):
        oddities.append(
            f"{len(class_counts)} different labels in {n_samples} rows; is the label in another column? "
            "Then use --label-column"
        )
    oddities += describe_labels(list(class_counts))
    majority = max(class_counts, key=lambda label: class_counts[label])
    share = class_counts[majority] / n_samples
    if len(class_counts) > 1 and share >= IMBALANCED:
        oddities.append(
            f"predicting {shorten(majority)} for every row is correct in {share:.1%} of them and always stable; train "
            "with --class-weight balanced if the other classes matter"
        )
    return oddities


def describe_labels(labels: Sequence[str]) -> list[str]:
    """Labels that seem to be missing, and those that are the same number in other words."""
    found = [
        f"the label {label} is a class like others; if it stands for a missing label, delete these rows"
        for label in labels
        if label in MISSING_TOKENS
    ]
    by_number: defaultdict[float, list[str]] = defaultdict(list)
    for label in labels:
        with contextlib.suppress(ValueError):
            by_number[float(label)].append(label)
    found += [
        f"the labels {' and '.join(map(shorten, same))} are different classes, and the same number; write them alike"
        for same in by_number.values()
        if len(same) > 1
    ]
    return found


def describe_identifiers(dataset: Dataset) -> list[str]:
    """Features that seem to name rows: their names say so, and each row has a whole number of its own."""
    found = []
    for feature in range(dataset.n_features if dataset.n_samples >= FEWEST_IDENTIFIERS else 0):
        name = dataset.feature_name(feature)
        if not _IDENTIFIER.search(name) or not dataset.names.is_number(feature):
            continue
        values = dataset.X[:, feature]
        if np.array_equal(values, np.floor(values)) and len(np.unique(values)) == len(values):
            found.append(
                f"{shorten(name)} is a different whole number in each row; if it names the rows, leave it out of the "
                f"features with --id {name if name.isalnum() or name.isidentifier() else repr(name)}"
            )
    return found


def _describe_constants(dataset: Dataset, constant: list[int]) -> list[str]:
    if not constant:
        return []
    names = list_some([dataset.feature_name(feature) for feature in constant])
    return [f"{len(constant)} constant feature{'s' * (len(constant) > 1)}, useless for splits: {names}"]


def _describe_conflicts(dataset: Dataset, duplicates: Duplicates) -> list[str]:
    if not duplicates.conflicts:
        return []
    rows = duplicates.conflicts[0][:_MOST_LISTED]
    if dataset.line_of_row is None:
        places = "rows " + ", ".join(str(row + 1) for row in rows)
    else:
        places = "lines " + ", ".join(str(dataset.line_of_row[row]) for row in rows)
    return [
        f"{duplicates.n_conflicting_rows} rows have equal values but different labels, for instance {places}; "
        "no classifier predicts all of them correctly"
    ]


def _describe_labels(labels: tuple[str, ...]) -> list[str]:
    bad = [f"{shorten(label)} {problem.partition(';')[0]}" for label in labels if (problem := label_problem(label))]
    return [f"silva's model format cannot represent {len(bad)} of the labels: {list_some(bad)}"] if bad else []
