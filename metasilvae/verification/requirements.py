"""Requirements on metrics, such as ``stability>=0.8``, for scripts.

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

from metasilvae.errors import RequestError
from metasilvae.verification.verdicts import Outcome

OPERATORS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_SYNTAX = re.compile(r"\s*([a-z_]+)\s*(>=|<=|==|>|<)\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*")


def _accuracy(outcome: Outcome) -> tuple[Fraction, Fraction]:
    return outcome.counts.accuracy, outcome.counts.accuracy


def _stability(outcome: Outcome) -> tuple[Fraction, Fraction]:
    counts = outcome.counts
    return counts.stability, Fraction(counts.stable + counts.no_info, counts.size)


def _robust_accuracy(outcome: Outcome) -> tuple[Fraction, Fraction]:
    counts = outcome.counts
    return counts.robust_accuracy, Fraction(counts.robust + outcome.undecided_correct, counts.size)


METRICS: dict[str, Callable[[Outcome], tuple[Fraction, Fraction]]] = {
    "accuracy": _accuracy,
    "stability": _stability,
    "robust_accuracy": _robust_accuracy,
}


class RequirementResult(enum.IntEnum):
    """Result of one or several requirements; the value is the exit code of the command."""

    HOLDS = 0
    VIOLATED = 3
    UNDECIDED = 4


@dataclass(frozen=True)
class Requirement:
    """One requirement."""

    metric: str
    comparison: str
    bound: Fraction
    text: str

    @classmethod
    def parse(cls, text: str, sizes: Sequence[str] = ()) -> Requirement:
        """A requirement on a metric, at most 1, or on one of the sizes, whose bound may be any number."""
        match = _SYNTAX.fullmatch(re.sub(r"\brobustness\b", "robust_accuracy", text))
        if match is None or match[1] not in (*METRICS, *sizes) or (match[4] and match[1] in sizes):
            of_sizes = f"; {' or '.join(sizes)} may be compared with any number" if sizes else ""
            raise RequestError(
                f"requirement '{text}' is not understood; write METRIC OPERATOR NUMBER, for example 'stability>=0.8', "
                f"with a metric out of {', '.join(METRICS)}, an operator out of {' '.join(OPERATORS)}, "
                f"and a number from 0 to 1 (or from 0% to 100%){of_sizes}"
            )
        bound = Fraction(match[3]) / (100 if match[4] else 1)
        if bound > 1 and match[1] not in sizes:
            raise RequestError(f"requirement '{text}': a metric is at most 1; write 80% or 0.8")
        return cls(match[1], match[2], bound, text.strip())

    def accepts(self, value: Fraction | int) -> bool:
        """Whether the requirement holds for a known value."""
        return OPERATORS[self.comparison](Fraction(value), self.bound)

    def check(self, outcome: Outcome) -> RequirementResult:
        lower, upper = METRICS[self.metric](outcome)
        if self.comparison == "==" and lower < upper:
            is_open = lower <= self.bound <= upper
        else:
            is_open = self.accepts(lower) != self.accepts(upper)
        if is_open:
            return RequirementResult.UNDECIDED
        return RequirementResult.HOLDS if self.accepts(lower) else RequirementResult.VIOLATED

    def explain(self, outcome: Outcome, result: RequirementResult) -> str:
        lower, upper = METRICS[self.metric](outcome)
        found = f"{float(lower):.6g}" if lower == upper else f"between {float(lower):.6g} and {float(upper):.6g}"
        return f"{self.text}: {result.name.lower()} ({self.metric} is {found})"


def combine(results: Iterable[RequirementResult]) -> RequirementResult:
    """Violated if any requirement is; else undecided if any is."""
    order = (RequirementResult.HOLDS, RequirementResult.UNDECIDED, RequirementResult.VIOLATED)
    return max(results, key=order.index, default=RequirementResult.HOLDS)
