"""Metrics of each class: recall, precision, F1, stability, robust accuracy and ROC AUC, and their means over classes.

All are exact fractions. A prediction counts for a label if it is this label alone; tied labels count for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import ModelFacts
from metasilvae.notebook import describe, show_percent, show_records
from metasilvae.verification.verdicts import Outcome, RowResults, Stability

# Classes in a notebook.
MOST_SHOWN = 100


class Subject(Protocol):
    """What is evaluated: a model on a data set."""

    @property
    def model(self) -> ModelFacts: ...

    @property
    def dataset(self) -> Dataset: ...


@dataclass(frozen=True)
class ClassMetrics:
    """Metrics of one class; None where they are not defined or not known.

    Attributes
    ----------
    label : str
    rows : int
        Rows with this true label.
    predicted : int
        Rows that are predicted as this label alone.
    correct : int
        Rows with this true label that are predicted correctly.
    stable, robust : int or None
        Rows with this true label that are stable, and those that are correct too; None without a perturbation.
    undecided, undecided_correct : int
        Rows with this true label whose stability is not decided, and those that are correct.
    roc_auc : Fraction or None
        Area under the ROC curve of this class against all others.
    """

    label: str
    rows: int
    predicted: int
    correct: int
    stable: int | None = None
    robust: int | None = None
    undecided: int = 0
    undecided_correct: int = 0
    roc_auc: Fraction | None = None

    @property
    def recall(self) -> Fraction | None:
        """Fraction of the rows with this label that are predicted correctly."""
        return _divide(self.correct, self.rows)

    @property
    def precision(self) -> Fraction | None:
        """Fraction of the rows predicted as this label that have it; 0 if no row is predicted so."""
        if not self.predicted:
            return Fraction(0) if self.rows else None
        return Fraction(self.correct, self.predicted)

    @property
    def f1(self) -> Fraction | None:
        """Harmonic mean of recall and precision."""
        return _divide(2 * self.correct, self.rows + self.predicted)

    @property
    def stability(self) -> Fraction | None:
        """Fraction of the rows with this label that are proved to be stable."""
        return _divide(self.stable, self.rows)

    @property
    def robust_accuracy(self) -> Fraction | None:
        """Certified robust accuracy on the rows with this label."""
        return _divide(self.robust, self.rows)

    @property
    def most_stability(self) -> Fraction | None:
        """Stability if all undecided rows are stable."""
        return None if self.stable is None else _divide(self.stable + self.undecided, self.rows)

    @property
    def most_robust_accuracy(self) -> Fraction | None:
        """Robust accuracy if all undecided rows are stable."""
        return None if self.robust is None else _divide(self.robust + self.undecided_correct, self.rows)


def _divide(part: int | None, whole: int) -> Fraction | None:
    return None if part is None or not whole else Fraction(part, whole)


@dataclass(frozen=True)
class ClassReport:
    """Metrics of all classes, and their means over the classes for which they are defined.

    Attributes
    ----------
    classes : tuple of ClassMetrics
        Labels of the model in its order, then labels of rows that the model does not know.
    """

    classes: tuple[ClassMetrics, ...]

    def __repr__(self) -> str:
        means = {"balanced accuracy": self.balanced_accuracy, "ROC AUC": self.roc_auc}
        shown = [f"{name} {show_percent(float(value))}" for name, value in means.items() if value is not None]
        return describe("ClassReport", [f"{len(self.classes)} classes", *shown])

    def _repr_html_(self) -> str:
        names = ("recall", "precision", "f1", "stability", "robust_accuracy", "roc_auc")
        known = [name for name in names if any(getattr(each, name) is not None for each in self.classes)]
        records = []
        for each in self.classes[:MOST_SHOWN]:
            values = {name: getattr(each, name) for name in known}
            shown = {
                name.replace("_", " "): show_percent(None if value is None else float(value))
                for name, value in values.items()
            }
            records.append({"label": each.label, "rows": each.rows, **shown})
        more = len(self.classes) - len(records)
        return show_records(f"Metrics of classes{f', {more} more' if more else ''}", records)

    @property
    def balanced_accuracy(self) -> Fraction | None:
        """Mean recall of the classes, however many rows they have."""
        return _average([each.recall for each in self.classes])

    @property
    def balanced_robust_accuracy(self) -> Fraction | None:
        """Mean certified robust accuracy of the classes."""
        return _average([each.robust_accuracy for each in self.classes])

    @property
    def most_balanced_robust_accuracy(self) -> Fraction | None:
        """The same if all undecided rows are stable."""
        return _average([each.most_robust_accuracy for each in self.classes])

    @property
    def roc_auc(self) -> Fraction | None:
        """Mean area under the ROC curve, one class against the rest; None if it is not defined for any class."""
        return _average([each.roc_auc for each in self.classes])

    def of(self, label: str) -> ClassMetrics | None:
        """Metrics of one class."""
        return next((each for each in self.classes if each.label == label), None)


def _average(values: Sequence[Fraction | None]) -> Fraction | None:
    defined = [value for value in values if value is not None]
    return sum(defined, Fraction(0)) / len(defined) if defined else None


def measure_classes(subject: Subject, results: RowResults, scores: NDArray[np.float64] | None = None) -> ClassReport:
    """Metrics of each class.

    Parameters
    ----------
    subject
        A query, an evaluation, or anything else with a model and a data set with labels.
    results : RowResults
        Predictions and correctness of the rows; an `Outcome` has their stability too.
    scores : float64 array, shape (n_samples, n_labels of the model), or None
        Numbers that order rows as the probability of each label does, of `rank_labels`; None leaves ROC AUC out.
    """
    labels, dataset = subject.model.labels, subject.dataset
    place = {label: number for number, label in enumerate(labels)}
    for label in dataset.labels:
        place.setdefault(label, len(place))
    classes = np.array([place[label] for label in dataset.labels], dtype=np.intp)[dataset.y]

    def count(rows: NDArray[np.bool_] | None = None) -> list[int]:
        chosen = classes if rows is None else classes[rows]
        return list(map(int, np.bincount(chosen, minlength=len(place))))

    only = results.predictions.only_label[results.predictions.ids]
    columns: dict[str, list[int]] = {
        "rows": count(),
        "predicted": np.bincount(only[only >= 0], minlength=len(place)).tolist(),
        "correct": count(results.is_correct),
    }
    if isinstance(results, Outcome):
        is_stable, is_open = (results.stability == each for each in (Stability.STABLE, Stability.UNKNOWN))
        columns |= {
            "stable": count(is_stable),
            "robust": count(is_stable & results.is_correct),
            "undecided": count(is_open),
            "undecided_correct": count(is_open & results.is_correct),
        }
    found = []
    for label, number in place.items():
        if number >= len(labels) and not columns["rows"][number]:
            continue
        has_score = scores is not None and number < len(labels)
        area = rank_area(scores[:, number], classes == number) if scores is not None and has_score else None
        counts = {name: column[number] for name, column in columns.items()}
        found.append(ClassMetrics(label, **counts, roc_auc=area))
    return ClassReport(tuple(found))


def rank_area(scores: NDArray[np.float64], is_positive: NDArray[np.bool_]) -> Fraction | None:
    """Area under the ROC curve: of all pairs of a positive and another row, the fraction that is ordered by the score.

    Pairs with equal scores count half. None if there are no such pairs.
    """
    n_positive = int(is_positive.sum())
    n_pairs = n_positive * (len(scores) - n_positive)
    if not n_pairs:
        return None
    _, groups = np.unique(scores, return_inverse=True)
    sizes = np.bincount(groups.reshape(-1))
    positive = np.bincount(groups.reshape(-1)[is_positive], minlength=len(sizes))
    negative = sizes - positive
    below = np.cumsum(negative) - negative
    return Fraction(int((positive * (2 * below + negative)).sum()), 2 * n_pairs)
