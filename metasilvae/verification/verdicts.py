"""Results of a verification, row by row and in total."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import Stability
from metasilvae.model import PredictionTable
from metasilvae.notebook import describe, show_facts, show_percent

R = TypeVar("R", bound="RowResults")


class RowStatus(enum.IntEnum):
    """The result of a row as one word."""

    @property
    def word(self) -> str:
        return self.name.replace("_", "-")


class Verdict(RowStatus):
    """Stability and correctness in one word."""

    ROBUST = 0
    FRAGILE = 1
    VULNERABLE = 2
    BROKEN = 3
    NO_INFO = 4

    @property
    def meaning(self) -> str:
        """The verdict in words, for reports."""
        return _MEANINGS[self]

    @property
    def stability(self) -> Stability:
        return _STABILITY[self]


_MEANINGS = {
    Verdict.ROBUST: "correct, no perturbation changes the prediction",
    Verdict.FRAGILE: "correct, some perturbation changes the prediction",
    Verdict.VULNERABLE: "consistently wrong (stable, incorrect)",
    Verdict.BROKEN: "wrong, some perturbation changes the prediction",
    Verdict.NO_INFO: "not decided within the budget",
}
_STABILITY = {
    Verdict.ROBUST: Stability.STABLE,
    Verdict.FRAGILE: Stability.UNSTABLE,
    Verdict.VULNERABLE: Stability.STABLE,
    Verdict.BROKEN: Stability.UNSTABLE,
    Verdict.NO_INFO: Stability.UNKNOWN,
}


@dataclass(frozen=True)
class VerdictCounts:
    """Numbers of rows, by silva's names."""

    size: int
    correct: int
    wrong: int
    stable: int
    unstable: int
    no_info: int
    robust: int
    fragile: int
    vulnerable: int
    broken: int

    @property
    def accuracy(self) -> Fraction:
        return Fraction(self.correct, self.size)

    @property
    def stability(self) -> Fraction:
        return Fraction(self.stable, self.size)

    @property
    def robust_accuracy(self) -> Fraction:
        """Robust accuracy (certified)."""
        return Fraction(self.robust, self.size)

    def as_dict(self) -> dict[str, int]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class RowResults:
    """What verdicts and certified radii have in common.

    Attributes
    ----------
    predictions : PredictionTable
        Prediction for each unperturbed row.
    is_correct : bool array, shape (n_samples,)
        Whether the prediction is the true label and nothing else.
    seconds : float
        Time of the analysis.
    reasons : dict
        For rows without a definite result, why.
    witness_leaves : int32 array, shape (n_samples, n_trees), or None
        For rows of a forest whose prediction can change, a leaf of each tree; the prediction changes where these
        leaves intersect.
    witness_points : float64 array, shape (n_samples, n_features), or None
        Where searches find points instead of leaves (metasilvae.verification.nearest): for rows whose prediction can
        change, a point with another one.
    """

    predictions: PredictionTable
    is_correct: NDArray[np.bool_]
    seconds: float = field(default=0.0, kw_only=True)
    reasons: dict[int, str] = field(default_factory=dict, kw_only=True)
    witness_leaves: NDArray[np.int32] | None = field(default=None, kw_only=True)
    witness_points: NDArray[np.float64] | None = field(default=None, kw_only=True)

    @property
    def n_samples(self) -> int:
        return len(self.is_correct)

    def subset(self: R, rows: NDArray[np.intp]) -> R:
        """The results for some rows."""
        arrays = {name: getattr(self, name)[rows] for name in self.array_names}
        predictions = PredictionTable(self.predictions.sets, self.predictions.ids[rows])
        reasons = {item: self.reasons[row] for item, row in enumerate(rows.tolist()) if row in self.reasons}
        return replace(self, predictions=predictions, reasons=reasons, **arrays)

    @property
    def array_names(self) -> list[str]:
        """Fields that hold one item for each row."""
        return [each.name for each in fields(self) if isinstance(getattr(self, each.name), np.ndarray)]


@dataclass(frozen=True)
class Outcome(RowResults):
    """Result of verifying one model on one data set under one perturbation.

    Attributes
    ----------
    stability : uint8 array, shape (n_samples,)
        Values of `Stability`.
    row_seconds : float64 array, shape (n_samples,), or None
        Time of each row, where rows are decided one by one.
    """

    stability: NDArray[np.uint8]
    row_seconds: NDArray[np.float64] | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return describe(
            "Outcome", [f"{self.n_samples} rows", *(f"{name} {value}" for name, value in self._metrics.items())]
        )

    def _repr_html_(self) -> str:
        counts = self.counts
        verdicts = {verdict.word: getattr(counts, verdict.name.lower()) for verdict in Verdict}
        shown = {word: count for word, count in verdicts.items() if count or word != Verdict.NO_INFO.word}
        return show_facts("Outcome", {"rows": self.n_samples, **self._metrics, **shown})

    @property
    def _metrics(self) -> dict[str, str]:
        counts = self.counts
        metrics = {
            "accuracy": counts.accuracy,
            "stability": counts.stability,
            "robust accuracy": counts.robust_accuracy,
        }
        shown = {name: show_percent(float(value)) for name, value in metrics.items()}
        return {**shown, **({"undecided": str(counts.no_info)} if counts.no_info else {})}

    @cached_property
    def verdicts(self) -> NDArray[np.uint8]:
        """Values of `Verdict`, shape (n_samples,)."""
        when_correct = np.array([Verdict.FRAGILE, Verdict.ROBUST, Verdict.NO_INFO], dtype=np.uint8)
        when_wrong = np.array([Verdict.BROKEN, Verdict.VULNERABLE, Verdict.NO_INFO], dtype=np.uint8)
        return np.where(self.is_correct, when_correct[self.stability], when_wrong[self.stability])

    @cached_property
    def counts(self) -> VerdictCounts:
        verdicts = np.bincount(self.verdicts, minlength=len(Verdict))
        stability = np.bincount(self.stability, minlength=len(Stability))
        n_correct = int(self.is_correct.sum())
        return VerdictCounts(
            size=self.n_samples,
            correct=n_correct,
            wrong=self.n_samples - n_correct,
            stable=int(stability[Stability.STABLE]),
            unstable=int(stability[Stability.UNSTABLE]),
            no_info=int(stability[Stability.UNKNOWN]),
            robust=int(verdicts[Verdict.ROBUST]),
            fragile=int(verdicts[Verdict.FRAGILE]),
            vulnerable=int(verdicts[Verdict.VULNERABLE]),
            broken=int(verdicts[Verdict.BROKEN]),
        )

    @cached_property
    def undecided_correct(self) -> int:
        """Rows that may turn out to be robust: correct and undecided."""
        return int((self.is_correct & (self.stability == Stability.UNKNOWN)).sum())
