"""Content of a page: a model and its assessments, the order of labels, and short names of files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.analysis.assessment import Assessment
from metasilvae.model import Model
from metasilvae.verification.requirements import CheckedRequirement

_DIGITS = re.compile(r"([0-9]+)")
# Such sources are short, and their last parts alone say little.
_KEPT = "builtin:"


@dataclass(frozen=True)
class PageContent:
    """One model on one or more data sets.

    Attributes
    ----------
    assessments : list of Assessment
        One for each data set, at least one.
    command : str
        The command line that made the page.
    versions : dict
        Names of programs and libraries, and their versions.
    is_interrupted : bool
        Whether the search was interrupted.
    requirements : sequence of list of CheckedRequirement
        For each data set the results of all requirements; empty without requirements.
    date : str or None
        Date in the header.
    n_rows : int
        Rows of each data set to list with changes to a wanted label.
    """

    model: Model
    assessments: list[Assessment]
    command: str
    versions: dict[str, str]
    is_interrupted: bool = False
    requirements: Sequence[Sequence[CheckedRequirement]] = ()
    date: str | None = None
    n_rows: int = 10

    @cached_property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names of the first data set that has any."""
        named = (each.query.dataset.feature_names for each in self.assessments)
        return next(filter(None, named), None)

    @cached_property
    def short_names(self) -> list[str]:
        """Names of the data sets for headings."""
        return shorten_sources([each.query.dataset.source for each in self.assessments])

    @property
    def target(self) -> str | None:
        """The wanted label, if there is one."""
        changes = self.assessments[0].changes
        return None if changes is None else self.model.labels[changes.results.target]

    @property
    def voting(self) -> str:
        return self.assessments[0].query.voting


def order_labels(labels: Iterable[str]) -> list[str]:
    """Labels by value if all are numbers; else in natural order: alphabetically, with digits by value."""
    found = list(labels)
    values = {label: parse_number(label.encode(errors="replace")) for label in found}
    numbers = {label: value for label, value in values.items() if value is not None and not math.isnan(value)}
    if len(numbers) == len(values):
        return sorted(found, key=lambda label: (numbers[label], label))
    return sorted(found, key=_natural)


def _natural(label: str) -> tuple[list[tuple[str, int, str]], str]:
    pieces = _DIGITS.split(label)
    words, digits = pieces[::2], [*pieces[1::2], ""]
    key = [
        (word.casefold(), len(number.lstrip("0")), number.lstrip("0"))
        for word, number in zip(words, digits, strict=True)
    ]
    return key, label


def shorten_sources(sources: Sequence[str]) -> list[str]:
    """The last part of each path; more parts where different paths would look the same."""
    parts = [[source] if source.startswith(_KEPT) else source.split("/") for source in sources]
    n_distinct = len(set(sources))
    for n_parts in range(1, max(map(len, parts), default=0)):
        names = ["/".join(part[-n_parts:]) for part in parts]
        if len(set(names)) == n_distinct and all(names):
            return names
    return list(sources)
