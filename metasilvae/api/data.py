"""Data sets from arrays and data frames, and perturbations of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae.dataset import Dataset
from metasilvae.encoding import Encoding
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.frames import encode_rows, find_kinds, is_frame, read_frame
from metasilvae.formats.tables import DEFAULT_TABLE, TableOptions, read_typed, with_specs
from metasilvae.formats.text import Problems
from metasilvae.interop.imports.imported import name_classes
from metasilvae.model import Model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.verification.budget import Budget


def make_dataset(
    X: ArrayLike,
    y: ArrayLike,
    feature_names: Sequence[str] | None = None,
    source: str = "<memory>",
    *,
    columns: TableOptions | None = None,
    encoding: Encoding | None = None,
) -> Dataset:
    """A data set from arrays, or from a DataFrame of pandas or polars.

    Parameters
    ----------
    X : array of numbers or DataFrame, shape (n_samples, n_features)
        Finite; NaN where a value is missing. Columns of a DataFrame with texts, categories and booleans are encoded.
    y : array, shape (n_samples,)
        Labels of any kind; they are known by their text, whole numbers without a point.
    feature_names : sequence of str or None
        None takes the names of the columns if X is a DataFrame whose names are text.
    source : str
        Name for messages and reports.
    columns : TableOptions or None
        Types of columns of a DataFrame; None takes them from the dtypes and the rows.
    encoding : Encoding or None
        How the columns of a DataFrame become features, usually ``model.encoding``; None finds it out. Columns of an
        array are categories by the encoding of an imported model, too.
    """
    is_encoded = is_frame(X) and (encoding is not None or columns is not None or find_kinds(X))
    if is_encoded or (encoding is not None and encoding.has_sets):
        if encoding is not None and encoding.has_sets:
            dataset = encode_rows(X, source, encoding)
        else:
            dataset = encode_frame(X, source, columns or DEFAULT_TABLE, encoding)
        labels = np.asarray(y)
        if labels.shape != (dataset.n_samples,):
            raise DataError(f"{source}: X has {dataset.n_samples} rows, y has the shape {labels.shape}")
        texts = name_classes(labels)
        names = tuple(dict.fromkeys(texts))
        code = {name: number for number, name in enumerate(names)}
        codes = np.array([code[text] for text in texts], dtype=np.int32)
        return replace(dataset, y=codes, labels=names, label_name=name_series(y))
    values, labels = _as_numbers(X, source), np.asarray(y)
    if values.ndim != 2 or labels.shape != values.shape[:1] or not values.size:
        raise DataError(
            f"{source}: X has the shape {values.shape} and y {labels.shape}; expected (n_samples, n_features) and "
            "(n_samples,), with at least one sample and one feature"
        )
    _refuse_infinite(values, source)
    texts = name_classes(labels)
    names = tuple(dict.fromkeys(texts))
    code = {name: number for number, name in enumerate(names)}
    codes = np.array([code[text] for text in texts], dtype=np.int32)
    column_names = name_columns(X) if feature_names is None else tuple(feature_names)
    if column_names is not None and len(column_names) != values.shape[1]:
        raise DataError(f"{source}: X has {values.shape[1]} features, but there are {len(column_names)} feature_names")
    return Dataset(values, codes, names, column_names, source, label_name=name_series(y))


def encode_frame(
    X: Any,
    source: str,
    columns: TableOptions = DEFAULT_TABLE,
    encoding: Encoding | None = None,
    categorical: Sequence[str] = (),
) -> Dataset:
    """The rows of a DataFrame without labels, encoded as features."""
    table, specs = read_frame(X, source, categorical)
    return read_typed(table, with_specs(columns, specs), Problems(source), encoding, "the training data")


def name_columns(X: object) -> tuple[str, ...] | None:
    """Names of the columns of a DataFrame, if all of them are text."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return tuple(str(name) for name in columns)


def name_series(y: object) -> str | None:
    """Name of a Series, if it is text."""
    name = getattr(y, "name", None)
    return str(name) if isinstance(name, str) else None


def _as_numbers(X: ArrayLike, source: str) -> NDArray[np.float64]:
    try:
        return np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: X is no array of numbers: {error}") from None


def _refuse_infinite(values: NDArray[np.float64], source: str) -> None:
    if np.isinf(values).any():
        raise DataError(f"{source}: X holds infinite values; expected finite ones, and NaN where a value is missing")


def finite_table(X: ArrayLike, source: str) -> NDArray[np.float64]:
    values = _as_numbers(X, source)
    if values.ndim != 2:
        raise DataError(f"{source}: has the shape {values.shape}; expected (n_samples, n_features)")
    _refuse_infinite(values, source)
    return values


def as_perturbation(epsilon: float | Perturbation | AttackRules, dataset: Dataset | None = None) -> Perturbation:
    """A number is the radius of a ball in the maximum norm; rules of an attack are applied to the data set."""
    if isinstance(epsilon, AttackRules) and dataset is not None:
        return fit_attack(epsilon, dataset)
    if isinstance(epsilon, Real):
        return Ball(float(epsilon))
    if not hasattr(epsilon, "boxes"):
        raise RequestError(f"epsilon is {epsilon!r}; expected a number or a perturbation such as Ball(0.1)")
    return cast(Perturbation, epsilon)


def expect(**arguments: object) -> None:
    """Refuse arguments of a wrong type where they are given, instead of somewhere inside."""
    kinds = {"model": Model, "dataset": Dataset, "data": Dataset, "budget": Budget}
    data = "read_dataset or make_dataset"
    makers = {"model": "read_model or train", "dataset": data, "data": data, "budget": "Budget(seconds=1)"}
    for name, value in arguments.items():
        if not isinstance(value, kinds[name]) and not (name == "budget" and value is None):
            raise RequestError(f"{name} is a {type(value).__name__}; expected what {makers[name]} gives")
