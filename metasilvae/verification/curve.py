"""Stability and robust accuracy as exact functions of epsilon, which fall in steps at the certified radii of rows."""

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

# Percentage of the rows that have this certified radius or a smaller one.
QUANTILES = {"minimum": 0, "5 %": 5, "25 %": 25, "median": 50, "75 %": 75, "95 %": 95, "maximum": 100}


def choose_quantile(radii: NDArray[np.float64], percent: int) -> float:
    """The smallest radius of a row that at least this percentage of the rows does not exceed."""
    place = max(-(-percent * len(radii) // 100) - 1, 0)
    return float(np.partition(radii, place)[place])


@dataclass(frozen=True)
class Curve:
    """Fraction of rows that are stable, and of rows that are robust, for every epsilon.

    Radii that are not known exactly count with their proved lower bound, so that the curve is a lower bound too.
    """

    radii: Radii

    @property
    def n_samples(self) -> int:
        return self.radii.n_samples

    @property
    def is_exact(self) -> bool:
        """Whether the curve is exact, not a lower bound."""
        return bool(self.radii.is_exact.all())

    @cached_property
    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """The steps of the curve: where it falls, and how many rows are stable (robust) up to there.

        Returns
        -------
        epsilon : float64 array, increasing
            The distinct radii. The counts apply to every epsilon above the previous one, up to and including this one.
        stable, robust : int64 arrays
            Numbers of rows; both are 0 beyond a last finite epsilon.
        """
        epsilon, place, counts = np.unique(self.radii.lower, return_inverse=True, return_counts=True)
        robust = np.bincount(place.reshape(-1), weights=self.radii.is_correct, minlength=len(epsilon)).astype(np.int64)
        return epsilon, np.cumsum(counts[::-1])[::-1].astype(np.int64), np.cumsum(robust[::-1])[::-1]

    def stability(self, epsilon: float) -> float:
        return float((self.radii.lower >= epsilon).sum() / self.radii.n_samples)

    def robust_accuracy(self, epsilon: float) -> float:
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
    """The curve of a model; `find_radii` describes the other parameters.

    Parameters
    ----------
    perturbation : Perturbation or None
        Epsilon multiplies its radii; None means balls, whose radius is epsilon.
    """
    query = make_query(model, dataset, Ball(1.0) if perturbation is None else perturbation, voting=voting)
    return Curve(find_radii(query, jobs, budget=budget, stop=stop, on_rows=on_rows))
