"""Requirements on metrics, such as ``stability>=0.8`` or ``recall[yes]>=0.6``, for scripts.

Metrics are compared as exact fractions. Undecided rows leave a metric between a lower and an upper bound; a requirement
is undecided if it holds for one of them and is violated for the other.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import RequestError, list_some
from metasilvae.verification.class_metrics import ClassMetrics, ClassReport, Subject, measure_classes
from metasilvae.verification.verdicts import Outcome

OPERATORS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_SYNTAX = re.compile(r"\s*([a-z_0-9]+)\s*(?:\[(.*)\])?\s*(>=|<=|==|>|<)\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*", re.DOTALL)
# In place of a label: a requirement on each class that has rows.
EVERY_LABEL = "*"
Bounds = tuple[Fraction | None, Fraction | None]


def _accuracy(outcome: Outcome) -> tuple[Fraction, Fraction]:
    return outcome.counts.accuracy, outcome.counts.accuracy


def _stability(outcome: Outcome) -> tuple[Fraction, Fraction]:
    counts = outcome.counts
    return counts.stability, Fraction(counts.stable + counts.no_info, counts.size)


def _robust_accuracy(outcome: Outcome) -> tuple[Fraction, Fraction]:
    counts = outcome.counts
    return counts.robust_accuracy, Fraction(counts.robust + outcome.undecided_correct, counts.size)


# Metrics of all rows.
METRICS: dict[str, Callable[[Outcome], tuple[Fraction, Fraction]]] = {
    "accuracy": _accuracy,
    "stability": _stability,
    "robust_accuracy": _robust_accuracy,
}
# Means over classes.
MEANS: dict[str, Callable[[ClassReport], Bounds]] = {
    "balanced_accuracy": lambda report: (report.balanced_accuracy, report.balanced_accuracy),
    "balanced_robust_accuracy": lambda report: (report.balanced_robust_accuracy, report.most_balanced_robust_accuracy),
    "roc_auc": lambda report: (report.roc_auc, report.roc_auc),
}
# Metrics of one class.
CLASS_METRICS: dict[str, Callable[[ClassMetrics], Bounds]] = {
    "recall": lambda found: (found.recall, found.recall),
    "precision": lambda found: (found.precision, found.precision),
    "f1": lambda found: (found.f1, found.f1),
    "stability": lambda found: (found.stability, found.most_stability),
    "robust_accuracy": lambda found: (found.robust_accuracy, found.most_robust_accuracy),
    "roc_auc": lambda found: (found.roc_auc, found.roc_auc),
}
PERTURBED_METRICS = ("stability", "robust_accuracy", "balanced_robust_accuracy")


class RequirementResult(enum.IntEnum):
    """Result of one or several requirements; the value is the exit code of the command."""

    HOLDS = 0
    VIOLATED = 3
    UNDECIDED = 4


@dataclass(frozen=True)
class CheckedRequirement:
    """A requirement with its result, and the value of the metric in words."""

    requirement: Requirement
    result: RequirementResult
    found: str

    @property
    def sentence(self) -> str:
        return f"{self.requirement.text}: {self.result.name.lower()} ({self.found})"


@dataclass(frozen=True)
class Requirement:
    """One requirement.

    Attributes
    ----------
    metric, comparison : str
    bound : Fraction
    text : str
        The requirement as it was written.
    label : str or None
        The class that it is about, `EVERY_LABEL` for each class, None for all rows.
    """

    metric: str
    comparison: str
    bound: Fraction
    text: str
    label: str | None = None

    @classmethod
    def parse(cls, text: str, sizes: Sequence[str] | None = None) -> Requirement:
        """A requirement on a metric, at most 1.

        Parameters
        ----------
        sizes : sequence of str or None
            Names that may be compared with any number, beside metrics of all rows; None allows metrics of classes.
        """
        match = _SYNTAX.fullmatch(re.sub(r"^\s*robustness\b", "robust_accuracy", text))
        of_rows, of_classes = (list(METRICS), []) if sizes is not None else ([*METRICS, *MEANS], list(CLASS_METRICS))
        known = [*of_rows, *(sizes or ())]
        is_size = match is not None and match[1] in (sizes or ())
        if match is None or match[1] not in (known if match[2] is None else of_classes) or (match[5] and is_size):
            more = f"; {' or '.join(sizes)} may be compared with any number" if sizes else ""
            if of_classes:
                more = (
                    f"; of one class METRIC[LABEL], of each class METRIC[{EVERY_LABEL}], with {', '.join(of_classes)}"
                )
            raise RequestError(
                f"requirement '{text}' is not understood; write METRIC OPERATOR NUMBER, for example 'stability>=0.8', "
                f"with a metric out of {', '.join(of_rows)}, an operator out of {' '.join(OPERATORS)}, "
                f"and a number from 0 to 1 (or from 0% to 100%){more}"
            )
        bound = Fraction(match[4]) / (100 if match[5] else 1)
        if bound > 1 and not is_size:
            raise RequestError(f"requirement '{text}': a metric is at most 1; write 80% or 0.8")
        return cls(match[1], match[3], bound, text.strip(), match[2])

    @property
    def needs_perturbation(self) -> bool:
        return self.metric in PERTURBED_METRICS

    @property
    def needs_classes(self) -> bool:
        """Whether the metrics of classes are needed to check it."""
        return self.label is not None or self.metric in MEANS

    @property
    def needs_scores(self) -> bool:
        return self.metric == "roc_auc"

    def accepts(self, value: Fraction | int) -> bool:
        """Whether the requirement holds for a known value."""
        return OPERATORS[self.comparison](Fraction(value), self.bound)

    def check(self, outcome: Outcome, classes: ClassReport | None = None) -> CheckedRequirement:
        """Whether the requirement holds.

        Parameters
        ----------
        classes : ClassReport or None
            Metrics of the classes, if the requirement needs them.
        """
        checked = []
        for name, (lower, upper) in self._find_bounds(outcome, classes):
            span = f"{float(lower):.6g}" if lower == upper else f"between {float(lower):.6g} and {float(upper):.6g}"
            checked.append((self._compare(lower, upper), lower, f"{name} is {span}"))
        result = combine(each for each, _, _ in checked)
        # The class that decides, if there are several: the lowest one for a lower bound, the highest for an upper one.
        deciding = [(lower, found) for each, lower, found in checked if each is result]
        choose = max if self.comparison.startswith("<") else min
        return CheckedRequirement(self, result, choose(deciding, key=lambda item: item[0])[1])

    def _find_bounds(
        self, outcome: Outcome, classes: ClassReport | None
    ) -> list[tuple[str, tuple[Fraction, Fraction]]]:
        """For each value to compare, its name and its bounds."""
        if not self.needs_classes:
            return [(self.metric, METRICS[self.metric](outcome))]
        assert classes is not None
        if self.label is None:
            found = [(self.metric, MEANS[self.metric](classes))]
        else:
            chosen = [each for each in classes.classes if self.label in (EVERY_LABEL, each.label)]
            if not chosen:
                known = list_some([each.label for each in classes.classes])
                raise RequestError(f"requirement '{self.text}': no class is called {self.label}; there are {known}")
            found = [(f"{self.metric}[{each.label}]", CLASS_METRICS[self.metric](each)) for each in chosen]
        defined = [(name, (lower, upper)) for name, (lower, upper) in found if lower is not None and upper is not None]
        if not defined:
            raise RequestError(
                f"requirement '{self.text}': {found[0][0]} is not defined on these rows, which need rows of this class"
                + (" and of others" if self.needs_scores else "")
            )
        return defined

    def _compare(self, lower: Fraction, upper: Fraction) -> RequirementResult:
        if self.comparison == "==" and lower < upper:
            is_open = lower <= self.bound <= upper
        else:
            is_open = self.accepts(lower) != self.accepts(upper)
        if is_open:
            return RequirementResult.UNDECIDED
        return RequirementResult.HOLDS if self.accepts(lower) else RequirementResult.VIOLATED


def check_requirements(
    required: Sequence[Requirement],
    subject: Subject,
    outcome: Outcome,
    rank_labels: Callable[[], NDArray[np.float64]] | None = None,
) -> list[CheckedRequirement]:
    """Check requirements on a model and a data set.

    Parameters
    ----------
    rank_labels : function or None
        Finds the scores of `measure_classes`; None if they are not known.
    """
    classes = None
    if any(each.needs_classes for each in required):
        needs_scores = any(each.needs_scores for each in required)
        if needs_scores and rank_labels is None:
            raise RequestError("roc_auc needs the scores of the model, which shards do not hold; verify all rows")
        scores = rank_labels() if needs_scores and rank_labels is not None else None
        classes = measure_classes(subject, outcome, scores)
    return [each.check(outcome, classes) for each in required]


def combine(results: Iterable[RequirementResult]) -> RequirementResult:
    """Violated if any requirement is; else undecided if any is."""
    order = (RequirementResult.HOLDS, RequirementResult.UNDECIDED, RequirementResult.VIOLATED)
    return max(results, key=order.index, default=RequirementResult.HOLDS)
