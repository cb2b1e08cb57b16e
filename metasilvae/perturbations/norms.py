"""Perturbations with a limit of the total change: all samples within epsilon in the l0, l1 or l2 norm.

In the maximum norm each feature changes by at most epsilon, whatever the others do, which is a box
(metasilvae.perturbations.boxes). In the other norms features share what may change:

    l0    the number of changed features             sum of c[f] where x'[f] differs from x[f]
    l1    the sum of all changes                     sum of c[f] |x'[f] - x[f]|
    l2    the Euclidean distance                     square root of the sum of (c[f] |x'[f] - x[f]|)^2

The costs c[f] are 1, or those of an attack file. A one-hot group counts as one feature, which changes by 1. What an
attack file allows besides (radii, limits, whole numbers, groups, immutable columns) remains in force.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.perturbations.boxes import Ball, Boxes, NormLimit, Perturbation

LINF = "linf"
# Norm: what epsilon limits, for help and reports.
NORMS: dict[str, str] = {
    LINF: "the change of each feature",
    "l1": "the sum of all changes",
    "l2": "the Euclidean distance",
    "l0": "the number of changed features",
}
# Norms in which features share what may change.
SHARED_NORMS = tuple(norm for norm in NORMS if norm != LINF)


@dataclass(frozen=True)
class NormBall:
    """All samples within epsilon of a sample in the l0, l1 or l2 norm, as far as another perturbation allows them.

    Attributes
    ----------
    norm : str
        One of `SHARED_NORMS`.
    epsilon : float
        Not negative; infinite where only the other perturbation limits changes. A whole number for l0.
    within : Perturbation or None
        Allowed changes, such as an `Attack`; None allows all changes of numbers, and none of categories.
    """

    norm: str
    epsilon: float = math.inf
    within: Perturbation | None = None

    def __post_init__(self) -> None:
        if self.norm not in SHARED_NORMS:
            raise RequestError(f"norm {self.norm!r}: choose among {', '.join(SHARED_NORMS)}; Ball is the one of linf")
        if isinstance(self.within, NormBall):
            raise RequestError(f"{self.norm} within {self.within.describe()}: one norm at a time; give one of them")
        if not self.epsilon >= 0:
            raise RequestError(f"epsilon is {self.epsilon:g}; it must not be negative")
        if self.norm == "l0" and math.isfinite(self.epsilon) and self.epsilon != math.floor(self.epsilon):
            raise RequestError(
                f"epsilon is {self.epsilon:g}; in the norm l0 it is a number of features, a whole number"
            )

    def boxes(self, dataset: Dataset) -> Boxes:
        boxes = _allow_all(dataset) if self.within is None else self.within.boxes(dataset)
        if boxes.droppable is not None:
            raise PerturbationError(
                f'{self.describe()}: values may become missing (missing = "may appear"), which has no distance in the '
                f'norm {self.norm}; write missing = "stays"'
            )
        costs = np.ones(dataset.n_features) if boxes.costs is None else boxes.costs
        if self.norm == "l0" and (costs != np.floor(costs)).any():
            feature = int(np.argmax(costs != np.floor(costs)))
            raise PerturbationError(
                f"{self.describe()}: the cost of {dataset.feature_name(feature)} is {costs[feature]:g}; in the norm l0 "
                "costs are whole numbers"
            )
        return replace(boxes, limit=NormLimit(self.norm, self.epsilon, costs))

    def times(self, factor: float) -> NormBall:
        """The same norm with epsilon multiplied; in l0 it stays a whole number."""
        size = self.epsilon * factor if self.epsilon else 0.0
        return replace(self, epsilon=math.floor(size) if self.norm == "l0" and math.isfinite(size) else size)

    def for_features(self, features: NDArray[np.int32]) -> NormBall:
        return self if self.within is None else replace(self, within=self.within.for_features(features))

    def describe(self) -> str:
        size = "" if math.isinf(self.epsilon) else f" {self.epsilon:g}"
        return f"{self.norm}{size}" + ("" if self.within is None else f" within {self.within.describe()}")


def allowed_changes(perturbation: Perturbation) -> Perturbation | None:
    """What a perturbation allows for each feature by itself; None if only the total change is limited."""
    return perturbation.within if isinstance(perturbation, NormBall) else perturbation


def _allow_all(dataset: Dataset) -> Boxes:
    """Boxes in which numbers take any value, and categories stay."""
    boxes = Ball(1.0).boxes(dataset)
    radius = np.where(boxes.radius_up > 0, np.inf, 0.0)
    return replace(boxes, radius_down=radius, radius_up=radius)
