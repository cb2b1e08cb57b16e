"""Metrics of a model on a data set: accuracy, stability, robust accuracy, and their ratios to its size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import Model, PredictionTable
from metasilvae.notebook import describe, show_facts, show_percent
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.prediction import align, match_labels, predict, rank_labels
from metasilvae.verification.budget import INTERRUPTED, Budget
from metasilvae.verification.class_metrics import ClassReport, measure_classes
from metasilvae.verification.objective import Fitness
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Outcome, RowResults, Stability, VerdictCounts
from metasilvae.verification.verifier import verify


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one model on one data set, under one perturbation or none.

    Attributes
    ----------
    n_correct : int
    counts : VerdictCounts or None
        None without a perturbation.
    is_interrupted : bool
        Whether rows are undecided because the work was interrupted.
    voting : str or None
        Voting scheme; None means that of the model.
    results : RowResults or None
        Results of the rows, an `Outcome` under a perturbation; None if only their counts are known.
    """

    model: Model
    dataset: Dataset
    n_correct: int
    perturbation: Perturbation | None = None
    counts: VerdictCounts | None = None
    is_interrupted: bool = False
    voting: str | None = None
    results: RowResults | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        return describe(self._title, [f"{name} {value}" for name, value in self._facts.items()])

    def _repr_html_(self) -> str:
        return show_facts(self._title, self._facts)

    @property
    def _title(self) -> str:
        under = "" if self.perturbation is None else f" under {self.perturbation.describe()}"
        return f"Evaluation of {self.model.source} on {self.dataset.source}{under}"

    @property
    def _facts(self) -> dict[str, str]:
        metrics = {"accuracy": self.accuracy, "stability": self.stability, "robust accuracy": self.robust_accuracy}
        facts = {name: show_percent(value) for name, value in metrics.items() if value is not None}
        if self.counts is not None and self.counts.no_info:
            facts["undecided"] = str(self.counts.no_info)
        return facts

    @cached_property
    def per_class(self) -> ClassReport:
        """Metrics of each class, with ROC AUC; the results of the rows must be known."""
        assert self.results is not None
        return measure_classes(self, self.results, rank_labels(self.model, self.dataset.X, self.voting))

    @property
    def accuracy(self) -> float:
        """Weighted, like the other fractions, if the rows of the data set have weights."""
        if self.dataset.weights is None:
            return self.n_correct / self.dataset.n_samples
        return self._weighted_fraction(self._rows.is_correct)

    @property
    def stability(self) -> float | None:
        if self.counts is None or self.dataset.weights is None:
            return None if self.counts is None else float(self.counts.stability)
        return self._weighted_fraction(self._is_stable)

    @property
    def robust_accuracy(self) -> float | None:
        if self.counts is None or self.dataset.weights is None:
            return None if self.counts is None else float(self.counts.robust_accuracy)
        return self._weighted_fraction(self._is_stable & self._rows.is_correct)

    @property
    def _rows(self) -> RowResults:
        assert self.results is not None
        return self.results

    @property
    def _is_stable(self) -> NDArray[np.bool_]:
        assert isinstance(self.results, Outcome)
        return np.asarray(self.results.stability == Stability.STABLE)

    def _weighted_fraction(self, is_counted: NDArray[np.bool_]) -> float:
        return self.dataset.count(is_counted) / self.dataset.total_weight

    def phi(self, fitness: Fitness) -> float:
        """The objective for these metrics; there must be a perturbation."""
        assert self.stability is not None
        assert self.robust_accuracy is not None
        return fitness.value(self.accuracy, self.stability, self.robust_accuracy)

    @property
    def accuracy_efficiency(self) -> float:
        """Accuracy for each leaf."""
        return self.accuracy / self.model.n_leaves

    @property
    def stability_efficiency(self) -> float | None:
        """Stability for each leaf."""
        return None if self.stability is None else self.stability / self.model.n_leaves


def evaluate(
    model: Model,
    dataset: Dataset,
    perturbations: Sequence[Perturbation] = (),
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> list[Evaluation]:
    """Evaluate under each perturbation, or compute the accuracy alone if none is given.

    Parameters
    ----------
    budget : Budget or None
        Work allowed for one row of a forest; None decides every row, however long it takes.
    stop : threading.Event or None
        Once set, the remaining rows of a forest stay undecided, and the remaining perturbations are skipped.
    on_rows : function
        Called with the number of rows that are done since the last call, by any thread.
    """
    dataset = align(model, dataset)
    if not perturbations:
        predictions = classify(model, dataset, voting=voting, jobs=jobs)
        is_correct = predictions.are_correct(match_labels(model, dataset))
        results = RowResults(predictions, is_correct)
        return [Evaluation(model, dataset, int(is_correct.sum()), voting=voting, results=results)]
    evaluations = []
    for perturbation in perturbations:
        if stop is not None and stop.is_set():
            break
        evaluations.append(
            evaluate_under(
                perturbation, model, dataset, voting=voting, jobs=jobs, budget=budget, stop=stop, on_rows=on_rows
            )
        )
    return evaluations


def evaluate_under(
    perturbation: Perturbation,
    model: Model,
    dataset: Dataset,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Evaluation:
    """Evaluate under one perturbation, see `evaluate`; there is a result after a stop too."""
    dataset = align(model, dataset)
    query = make_query(model, dataset, perturbation, voting=voting)
    outcome = verify(query, jobs, budget=budget, stop=stop, on_rows=on_rows)
    counts, is_interrupted = outcome.counts, INTERRUPTED in outcome.reasons.values()
    kept = replace(outcome, witness_leaves=None, row_seconds=None)
    return Evaluation(model, dataset, counts.correct, perturbation, counts, is_interrupted, voting, kept)


def classify(model: Model, dataset: Dataset, *, voting: str | None = None, jobs: int | None = None) -> PredictionTable:
    """Predictions for the rows of a data set, which must fit the model."""
    dataset = align(model, dataset)
    return predict(model, dataset.X, voting, jobs)


def confusion(model: Model, dataset: Dataset, predictions: PredictionTable) -> dict[tuple[str, str], int]:
    """Number of rows for each pair of true label and prediction; tied labels are joined by commas."""
    named = [",".join(model.labels[label] for label in label_set) for label_set in predictions.sets]
    pairs, counts = np.unique(np.stack([dataset.y, predictions.ids]), axis=1, return_counts=True)
    return {
        (dataset.labels[label], named[prediction]): int(count)
        for (label, prediction), count in zip(pairs.T, counts, strict=True)
    }
