"""What a training run tells of itself: after each step, and at its end."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields
from typing import Any

from metasilvae.training.checkpoint.files import take


class StopReason(enum.Enum):
    """Why a training run ended."""

    ITERATIONS = "iterations"
    PATIENCE = "patience"
    TARGET = "target"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Progress:
    """One step of a training run.

    Attributes
    ----------
    phase : str
        "seed", "generation" or "polish".
    step : int
        Number of the step in its phase.
    seconds : float
        Since the start of the run, with what it took to prepare the samples.
    fitness : float
        Of the best tree so far on the training samples, with the boxes of the training; the cost of its leaves is not
        counted.
    accuracy, stability, robustness : float
        Shares of the training samples.
    leaves : int
    offspring : int
        Trees made so far.
    mean_fitness : float
        Of the population.
    score : float
        What the search maximizes: fitness with robust weight and the leaf penalty. It never falls.
    """

    phase: str
    step: int
    seconds: float
    fitness: float
    accuracy: float
    stability: float
    robustness: float
    leaves: int
    offspring: int
    mean_fitness: float
    score: float


def read_progress(document: dict[str, Any]) -> Progress:
    """The progress that was stored as a dictionary."""
    kinds = {"str": str, "int": int, "float": float}
    return Progress(*(take(document, each.name, kinds[str(each.type)], -math.inf) for each in fields(Progress)))
