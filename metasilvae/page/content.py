"""What a page is about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from metasilvae.assessment import Assessment
from metasilvae.model import Model
from metasilvae.page.source_names import shorten_sources


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
        Whether the work was ended early.
    """

    model: Model
    assessments: list[Assessment]
    command: str
    versions: dict[str, str]
    is_interrupted: bool = False

    @cached_property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names of the first data set that has any."""
        named = (each.question.dataset.feature_names for each in self.assessments)
        return next(filter(None, named), None)

    @cached_property
    def short_names(self) -> list[str]:
        """Names of the data sets for headings."""
        return shorten_sources([each.question.dataset.source for each in self.assessments])

    @property
    def voting(self) -> str:
        return self.assessments[0].question.voting
