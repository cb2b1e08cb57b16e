"""Weights of classes and rows.

Kernels count in whole numbers, so that weighted metrics are as exact as others. Weights are therefore multiplied by a
number, the unit, that makes them whole. This is exact if their ratios are fractions with small terms, as those of
"balanced" are. Otherwise they are rounded, with the largest unit that keeps their sum within the limit of the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae._core.training.evolution import MOST_WEIGHT
from metasilvae.dataset import Dataset, RowWeights
from metasilvae.errors import DataError, RequestError, list_some, shorten

BALANCED = "balanced"
ClassWeight = str | Mapping[str, float]
# Fractions with larger terms are taken for rounded numbers.
_LARGEST_TERM = 10**6
_MOST_DISTINCT = 1000
_TOLERANCE = 1e-12
# Sums of weights from here to there, and what they are divided by, are far from the ends of floating-point numbers.
_LEAST, _MOST = Fraction(10) ** -290, Fraction(10) ** 290


def parse_class_weight(text: str) -> ClassWeight:
    """The class weights of ``balanced`` or ``a=1,b=5``."""
    if text.strip() == BALANCED:
        return BALANCED
    found: dict[str, float] = {}
    for part in text.split(","):
        label, sign, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not sign or not 0 < weight < math.inf:
            raise RequestError(
                f"class weight {shorten(part)}: expected LABEL=NUMBER with a number above 0, such as no=1,yes=5, or "
                f"{BALANCED}"
            )
        if label.strip() in found:
            raise RequestError(f"class weight {shorten(part)}: {shorten(label.strip())} is given twice")
        found[label.strip()] = weight
    return found


def weigh_classes(dataset: Dataset, class_weight: ClassWeight) -> dict[str, Fraction]:
    """The weight of each label; labels that are not listed have weight 1."""
    if isinstance(class_weight, str):
        if class_weight != BALANCED:
            raise RequestError(f"class weight {class_weight!r}: expected {BALANCED!r} or weights of labels")
        counts = np.bincount(dataset.y, minlength=dataset.n_labels).tolist()
        n_present = sum(count > 0 for count in counts)
        return {
            label: Fraction(dataset.n_samples, n_present * count) if count else Fraction(1)
            for label, count in zip(dataset.labels, counts, strict=True)
        }
    unknown = [str(label) for label in class_weight if str(label) not in dataset.labels]
    if unknown:
        raise DataError(
            f"class weight: {dataset.source} has no label {list_some([shorten(label) for label in unknown])}; its "
            f"labels are {list_some(dataset.labels)}"
        )
    for label, weight in class_weight.items():
        if not 0 < weight < math.inf:
            raise RequestError(f"class weight of {shorten(str(label))} is {weight}; expected a number above 0")
    given = {str(label): weight for label, weight in class_weight.items()}
    return {label: _as_fraction(given.get(label, 1.0)) for label in dataset.labels}


def _as_fraction(weight: float) -> Fraction:
    """The fraction with small terms that a number stands for, or the number itself."""
    near = Fraction(weight).limit_denominator(_LARGEST_TERM)
    return near if abs(float(near) - weight) <= _TOLERANCE * weight else Fraction(weight)


def weigh(
    dataset: Dataset,
    class_weight: ClassWeight | None = None,
    sample_weight: ArrayLike | None = None,
    of: Dataset | None = None,
) -> Dataset:
    """The data set with weights of its rows: those of their classes times their own.

    Parameters
    ----------
    class_weight : "balanced", mapping of labels to numbers, or None
        "balanced" gives all classes the same total weight.
    sample_weight : array-like, shape (n_samples,), or None
        Not negative; rows of weight 0 are left out.
    of : Dataset or None
        The data set whose class frequencies "balanced" refers to, by default the same one. Labels that it does not
        have get weight 1.
    """
    if class_weight is None and sample_weight is None:
        return dataset
    by_label = {} if class_weight is None else weigh_classes(of or dataset, class_weight)
    rows: NDArray[np.float64] | None = None
    if sample_weight is not None:
        rows = np.asarray(sample_weight, dtype=np.float64)
        if rows.shape != (dataset.n_samples,):
            raise DataError(f"sample_weight has the shape {rows.shape}; {dataset.source} has {dataset.n_samples} rows")
        if not (np.isfinite(rows).all() and (rows >= 0).all() and rows.any()):
            raise DataError("sample_weight holds negative or infinite numbers, NaN, or zeros only; expected weights")
        if not rows.all():
            kept = np.flatnonzero(rows)
            dataset, rows = replace(dataset.subset(kept), row_numbers=dataset.row_numbers), rows[kept]
    classes = [by_label.get(label, Fraction(1)) for label in dataset.labels]
    words = [f"{label}={_show(weight)}" for label, weight in zip(dataset.labels, classes, strict=True)]
    description = ", ".join(
        [*([", ".join(words)] if by_label else []), *(["weights of rows"] if rows is not None else [])]
    )
    return replace(dataset, weights=_scale(dataset.y, classes, rows, description))


def _show(weight: Fraction) -> str:
    return f"{float(weight):.4g}"


def _scale(
    y: NDArray[np.int32], classes: Sequence[Fraction], rows: NDArray[np.float64] | None, description: str
) -> RowWeights:
    """Weights as whole numbers."""
    rows = np.ones(len(y)) if rows is None else rows
    distinct, place = np.unique(np.stack([y.astype(np.float64), rows]), axis=1, return_inverse=True)
    place = place.reshape(-1)
    if distinct.shape[1] <= _MOST_DISTINCT:
        exact = [classes[int(label)] * _as_fraction(weight) for label, weight in distinct.T.tolist()]
        unit = Fraction(math.lcm(*(weight.denominator for weight in exact)))
        unit /= math.gcd(*(int(weight * unit) for weight in exact))
        whole = [int(weight * unit) for weight in exact]
        counts = np.bincount(place, minlength=len(whole)).tolist()
        if sum(weight * count for weight, count in zip(whole, counts, strict=True)) <= MOST_WEIGHT:
            return _with_unit(np.array(whole, dtype=np.int32)[place], unit, description)
    # Without the power of two in the largest weights, nothing can overflow, and all else is the same to the last bit.
    factors, shift_of_classes = _shift_down(np.array([float(weight) for weight in classes]))
    rows, shift_of_rows = _shift_down(rows)
    weights = factors[y] * rows
    # Rounding up to 1 may add 1 for each row.
    unit_of_sum = (MOST_WEIGHT - len(y)) / float(weights.sum())
    numbers = np.maximum(np.rint(weights * unit_of_sum), 1).astype(np.int32)
    return _with_unit(numbers, Fraction(unit_of_sum) / Fraction(2) ** (shift_of_classes + shift_of_rows), description)


def _shift_down(numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Positive numbers divided by a power of two, the largest of them from 0.5 to 1, and its exponent."""
    shift = math.frexp(float(numbers.max()))[1]
    return np.ldexp(numbers, -shift), shift


def _with_unit(numbers: NDArray[np.int32], unit: Fraction, description: str) -> RowWeights:
    """Weights whose sum, and whose unit, floating-point numbers can hold."""
    total = Fraction(int(numbers.sum(dtype=np.int64))) / unit
    if not all(_LEAST <= each <= _MOST for each in (unit, total)):
        power = len(str(math.floor(total))) - 1 if total >= 1 else -len(str(math.floor(1 / total)))
        raise DataError(
            f"weights of rows add up to about 1e{power}, expected a sum from 1e-290 to 1e290; divide them all by the "
            "same number"
        )
    return RowWeights(numbers, float(unit), description)
