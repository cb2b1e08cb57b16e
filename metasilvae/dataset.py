"""Data sets in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.encoding import Encoding, FeatureNames
from metasilvae.errors import DataError, list_some, printable
from metasilvae.io.fingerprints import fingerprint
from metasilvae.notebook import describe, show_facts

NO_LABEL = -1


@dataclass(frozen=True)
class RowWeights:
    """Weights of the rows of a data set in training.

    Attributes
    ----------
    numbers : int32 array, shape (n_samples,)
        Whole numbers from 1 on; all weighted counts are sums of them.
    unit : float
        What a row of weight 1 has: the weights are `numbers` divided by it, rounded to whole numbers if necessary.
    description : str
        Where they come from, for reports.
    """

    numbers: NDArray[np.int32]
    unit: float
    description: str

    @property
    def total(self) -> int:
        return int(self.numbers.sum(dtype=np.int64))

    def fraction(self, is_counted: NDArray[np.bool_]) -> float:
        """The part of the total weight that some rows have."""
        return int(self.numbers[is_counted].sum(dtype=np.int64)) / self.total

    @property
    def by_mean(self) -> NDArray[np.float64]:
        """The weights, with a mean of 1."""
        return np.asarray(self.numbers * (len(self.numbers) / self.total))

    def subset(self, rows: NDArray[np.intp]) -> RowWeights:
        return replace(self, numbers=self.numbers[rows])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples with their labels.

    Attributes
    ----------
    X : float64 array, C-contiguous, shape (n_samples, n_features)
        Finite values; NaN where a value is missing.
    y : int32 array, shape (n_samples,)
        Position of each sample's label in `labels`; `NO_LABEL` throughout if there are none.
    labels : tuple of str
        Distinct labels in order of first appearance; empty if the samples have none.
    feature_names : tuple of str or None
        Column names, if the file has any.
    source : str
        Name for messages and reports.
    line_of_row : int64 array, shape (n_samples,), or None
        Line of the file on which each sample starts, if the format has lines.
    row_numbers : int64 array, shape (n_samples,), or None
        Number of each sample in the data set that it was taken from; None if that is its position.
    label_name : str or None
        Name of the label column, if the file has one.
    feature_of_column : int64 array, shape (n_columns,), or None
        Position of each feature of the file in `X`, -1 for those that are left out; None if `X` is as the file.
    omitted_names : tuple of str
        Names of the features that are left out.
    encoding : Encoding or None
        How the features were made from the columns of a table; None if they are the columns.
    indicators : bool array, shape (n_features,), or None
        Which features are 0 or 1 because they stand for a category or a boolean; None if none does.
    ids : tuple of (str, array of str)
        Columns that are no features, with their cells: reports show them beside the number of a row.
    missing_columns : bool array, shape (n_features,), or None
        Features with missing values in the data set that the samples were taken from; None if this is not known.
    weights : RowWeights or None
        Weights of the samples in training and in its metrics; None if all count the same.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int32]
    labels: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    source: str = "<memory>"
    line_of_row: NDArray[np.int64] | None = None
    row_numbers: NDArray[np.int64] | None = None
    label_name: str | None = None
    feature_of_column: NDArray[np.int64] | None = None
    omitted_names: tuple[str, ...] = ()
    encoding: Encoding | None = None
    indicators: NDArray[np.bool_] | None = None
    ids: tuple[tuple[str, NDArray[np.object_]], ...] = ()
    missing_columns: NDArray[np.bool_] | None = None
    weights: RowWeights | None = None

    def __repr__(self) -> str:
        facts = [f"{self.n_samples} rows", f"{self.n_features} features"]
        return describe(
            f"Dataset {self.source}", [*facts, *([f"labels {list_some(self.labels)}"] if self.labels else [])]
        )

    def _repr_html_(self) -> str:
        is_encoded = self.encoding is not None and self.encoding.n_features == self.n_features
        facts = {
            "rows": self.n_samples,
            "columns": len(self.encoding.columns) if self.encoding is not None and is_encoded else None,
            "features": self.n_features,
            "missing values": int(np.isnan(self.X).sum()) if self.has_missing else None,
            "labels": list_some(self.labels) if self.labels else None,
        }
        return show_facts(f"Dataset {self.source}", facts)

    @property
    def n_samples(self) -> int:
        return len(self.X)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @property
    def has_labels(self) -> bool:
        return bool(self.labels)

    @cached_property
    def has_missing(self) -> bool:
        """Whether some value is missing."""
        # The sum of finite numbers may be infinite, and that of infinite numbers NaN; it costs no memory.
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isnan(self.X.sum()) and np.isnan(self.X).any())

    @property
    def total_weight(self) -> int:
        """The sum of the weights, as whole numbers; the number of samples without weights."""
        return self.n_samples if self.weights is None else self.weights.total

    @property
    def weighted_rows(self) -> float:
        """How many rows of weight 1 the samples count as."""
        return self.n_samples if self.weights is None else self.weights.total / self.weights.unit

    def count(self, is_counted: NDArray[np.bool_]) -> int:
        """The sum of the weights of some samples; their number without weights."""
        if self.weights is None:
            return int(np.count_nonzero(is_counted))
        return int(self.weights.numbers[is_counted].sum(dtype=np.int64))

    @cached_property
    def columns_with_missing(self) -> NDArray[np.bool_]:
        """Which features have missing values, here or in the data set that the samples were taken from."""
        if self.missing_columns is not None:
            return self.missing_columns
        if not self.has_missing:
            return np.zeros(self.n_features, dtype=bool)
        return np.asarray(np.isnan(self.X).any(axis=0))

    @property
    def noting_missing(self) -> Dataset:
        """The same data set; parts of it know which features have missing values in the whole."""
        return replace(self, missing_columns=self.columns_with_missing)

    @property
    def fingerprint(self) -> str:
        """A digest of values and labels; column names and the spelling of numbers make no difference."""
        return fingerprint(self.X, self.y, self.labels)

    @property
    def names(self) -> FeatureNames:
        """Words for the features."""
        return FeatureNames.of(self.feature_names, self.n_features, self.encoding)

    def ids_of(self, row: int) -> dict[str, str]:
        """The cells of a sample in columns that are no features."""
        return {name: cells[row] for name, cells in self.ids}

    def feature_name(self, feature: int) -> str:
        """Column name, or ``x[3]`` for a column without one."""
        return printable(self.feature_names[feature]) if self.feature_names else f"x[{feature}]"

    def number_of(self, row: int) -> int:
        """Number of a sample for messages and reports."""
        return row if self.row_numbers is None else int(self.row_numbers[row])

    def take_features(self, features: Sequence[int], names: tuple[str, ...]) -> Dataset:
        """The same data set with the given features only, in this order and under these names."""
        chosen = np.array(features, dtype=np.intp)
        new = np.full(self.n_features, -1, dtype=np.int64)
        new[chosen] = np.arange(len(chosen))
        old = self.feature_of_column
        return replace(
            self,
            X=np.ascontiguousarray(self.X[:, chosen]),
            feature_names=names,
            feature_of_column=new if old is None else np.where(old >= 0, new[old], -1),
            omitted_names=(*self.omitted_names, *(name for name in self.feature_names or () if name not in names)),
            encoding=self.encoding if chosen.tolist() == list(range(self.n_features)) else None,
            indicators=None if self.indicators is None else self.indicators[chosen],
            missing_columns=None if self.missing_columns is None else self.missing_columns[chosen],
        )

    def subset(self, rows: NDArray[np.intp]) -> Dataset:
        """The same data set with the given rows only; labels keep their positions, rows their numbers."""
        return replace(
            self,
            X=np.ascontiguousarray(self.X[rows]),
            y=self.y[rows],
            line_of_row=None if self.line_of_row is None else self.line_of_row[rows],
            row_numbers=np.asarray(rows, dtype=np.int64) if self.row_numbers is None else self.row_numbers[rows],
            ids=tuple((name, cells[rows]) for name, cells in self.ids),
            weights=None if self.weights is None else self.weights.subset(rows),
        )


def refuse_missing(dataset: Dataset, reason: str) -> None:
    """Refuse missing values where they cannot be used; `reason` completes "x is missing, and ..."."""
    if dataset.has_missing:
        row, feature = np.argwhere(np.isnan(dataset.X))[0]
        name = dataset.feature_name(int(feature))
        raise DataError(
            f"{dataset.source}: row {dataset.number_of(int(row))}: {name} is missing, and {reason}; "
            "fill the missing values in, or leave the row out"
        )
