"""Stability and robustness as functions of epsilon, exactly: both fall in steps, each at the radius of some row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import Radii, find_radii

# Per cent of the rows that have this radius or a smaller one.
QUANTILES = {"minimum": 0, "5 %": 5, "25 %": 25, "median": 50, "75 %": 75, "95 %": 95, "maximum": 100}


def choose_quantile(radii: NDArray[np.float64], percent: int) -> float:
    """The smallest radius that this part of the rows or more does not exceed; always the radius of some row."""
    place = max(-(-percent * len(radii) // 100) - 1, 0)
    return float(np.partition(radii, place)[place])


@dataclass(frozen=True)
class Curve:
    """Share of rows that are stable, and of those that are robust, for every epsilon.

    Radii that are not known exactly count with what was proved, so that the curve is a lower bound there.
    """

    radii: Radii

    @property
    def n_samples(self) -> int:
        return self.radii.n_samples

    @property
    def is_exact(self) -> bool:
        """Whether the curve is what it is, and not a lower bound."""
        return bool(self.radii.is_exact.all())

    @cached_property
    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Where the curve falls, and how many rows are stable (robust) up to there.

        Returns
        -------
        epsilon : float64 array, increasing
            Each distinct radius. The counts hold for every epsilon above the one before, up to and with this one.
        stable, robust : int64 arrays
            Beyond a last finite epsilon both are 0.
        """
        epsilon, place, counts = np.unique(self.radii.lower, return_inverse=True, return_counts=True)
        robust = np.bincount(place.reshape(-1), weights=self.radii.is_correct, minlength=len(epsilon)).astype(np.int64)
        return epsilon, np.cumsum(counts[::-1])[::-1].astype(np.int64), np.cumsum(robust[::-1])[::-1]

    def stability(self, epsilon: float) -> float:
        return float((self.radii.lower >= epsilon).sum() / self.radii.n_samples)

    def robustness(self, epsilon: float) -> float:
        is_robust = (self.radii.lower >= epsilon) & self.radii.is_correct
        return float(is_robust.sum() / self.radii.n_samples)


def trace_curve(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Curve:
    """The curve of a model, from the radius of each row; for the rest see `find_radii`.

    Parameters
    ----------
    perturbation : Perturbation or None
        Whose radii epsilon multiplies; None means balls, whose radius is epsilon.
    """
    query = make_query(model, dataset, Ball(1.0) if perturbation is None else perturbation, voting=voting)
    return Curve(find_radii(query, jobs, budget=budget, stop=stop, on_rows=on_rows))
