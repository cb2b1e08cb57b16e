"""Complete assessment of a model on one data set: verdicts, curve of certified radii, causes of instability, and the
changes that lead to a wanted label."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from metasilvae.analysis.explanation import Explanation, UnstableRow, explain_in_batches
from metasilvae.errors import MetasilvaeError
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.verification.budget import Budget
from metasilvae.verification.ceiling import Ceiling, bound_boxes
from metasilvae.verification.curve import Curve
from metasilvae.verification.metrics import Evaluation, confusion
from metasilvae.verification.nearest import check_rows
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.radius import Radii, check_radii, find_radii, in_common_unit
from metasilvae.verification.targets import TargetResults, TargetStatus, find_targets
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.verification.verifier import verify

# Pairs of rows that are compared for the ceiling, a second's work; of more, it is a weaker bound.
CEILING_PAIRS = 10**8
# Opens a progress display for a named part of the work and its number of rows; gives a function that counts rows.
Watch = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


@dataclass
class Attribution:
    """Causes of instability, counted over the explained rows.

    Attributes
    ----------
    n_explained : int
    moved, frozen : Counter
        For each feature the number of rows whose adversarial example must move it, or whose frozen set it belongs to.
    crossed : Counter
        For each test (feature, threshold) the number of rows whose adversarial example flips it.
    crossed_nodes : Counter
        The same for each node of the model, by its position in ``Model.nodes``.
    most_fragile : list of UnstableRow
        Those with the smallest certified radii.
    """

    n_explained: int = 0
    moved: Counter[int] = field(default_factory=Counter)
    frozen: Counter[int] = field(default_factory=Counter)
    crossed: Counter[tuple[int, float]] = field(default_factory=Counter)
    crossed_nodes: Counter[int] = field(default_factory=Counter)
    most_fragile: list[UnstableRow] = field(default_factory=list)

    def add(self, part: Explanation, n_fragile: int) -> None:
        """Count further rows, and keep the most fragile of all rows."""
        self.n_explained += len(part.rows)
        self.moved += part.moved_features
        self.frozen += part.frozen_features
        self.crossed += part.crossed_tests
        self.crossed_nodes += part.crossed_nodes
        candidates = Explanation(part.query, part.outcome, self.most_fragile + part.rows)
        self.most_fragile = candidates.most_fragile(n_fragile)


@dataclass(frozen=True)
class LabelChanges:
    """Which rows can get a wanted label, and by which changes.

    Attributes
    ----------
    query : VerificationQuery
        In whose unit the distances are.
    results : TargetResults
        With distances, if the perturbation has any; otherwise of changes within the perturbation.
    """

    query: VerificationQuery
    results: TargetResults

    def nearest_rows(self, count: int) -> list[int]:
        """The rows that need the smallest changes, or the first ones if there are no distances."""
        rows = np.flatnonzero(self.results.statuses == TargetStatus.REACHABLE)
        if self.results.distances is not None:
            rows = rows[np.argsort(self.results.distances[rows], kind="stable")]
        return [int(row) for row in rows[:count]]


@dataclass(frozen=True)
class Assessment:
    """Results on one data set.

    Attributes
    ----------
    curve : Curve or None
        In the unit of `is_over_epsilon`.
    no_curve : str
        Why there is no curve.
    ceiling : Ceiling or None
        What no model can exceed on these rows; None where the total change is limited.
    changes : LabelChanges or None
        Changes to a wanted label; None if none is wanted.
    """

    query: VerificationQuery
    perturbation: Perturbation
    outcome: Outcome
    curve: Curve | None
    no_curve: str
    attribution: Attribution
    ceiling: Ceiling | None
    changes: LabelChanges | None = None

    @property
    def is_over_epsilon(self) -> bool:
        """Whether radii, also of the curve, are values of epsilon, not multiples of the radii of an attack."""
        return isinstance(self.perturbation, Ball | NormBall)

    @cached_property
    def evaluation(self) -> Evaluation:
        counts = self.outcome.counts
        return Evaluation(
            self.query.model, self.query.dataset, counts.correct, self.perturbation, counts, voting=self.query.voting,
            results=self.outcome,
        )  # fmt: skip

    @cached_property
    def confusion(self) -> dict[tuple[str, str], int]:
        """Number of rows for each pair of true label and prediction."""
        return confusion(self.query.model, self.query.dataset, self.outcome.predictions)


def assess(
    query: VerificationQuery,
    perturbation: Perturbation,
    jobs: int | None = None,
    *,
    n_fragile: int = 10,
    target: int | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    watch: Watch = lambda what, n_rows: nullcontext(lambda count: None),
) -> Assessment:
    """Verify, compute certified radii and explain unstable rows.

    Parameters
    ----------
    perturbation : Perturbation
        The one of the query.
    target : int or None
        Position of a label; the nearest change of each row that gives it this label is found too.
    budget : Budget or None
        Work allowed for each search of a row of a forest; None means no limit.
    stop : threading.Event or None
        Once set, the remaining rows stay undecided, with bounds instead of radii, and are not explained.
    watch : function
        Called at the start of each part of the work.
    """
    n_rows = query.dataset.n_samples
    if target is not None:
        check_rows(query)
    with watch("verify", n_rows) as on_rows:
        outcome = verify(query, jobs, budget=budget, stop=stop, on_rows=on_rows)
    in_unit = in_common_unit(query) if isinstance(perturbation, Ball) else query
    radii: Radii | None = None
    no_curve = ""
    try:
        check_radii(query)
    except MetasilvaeError as error:
        no_curve = str(error)
    else:
        with watch("radii", n_rows) as on_rows:
            radii = find_radii(in_unit, jobs, budget=budget, stop=stop, on_rows=on_rows)
        size = perturbation.epsilon if isinstance(perturbation, Ball | NormBall) else 1.0
        proved = np.where(outcome.stability == Stability.STABLE, size, 0.0)
        radii = replace(radii, lower=np.minimum(np.maximum(radii.lower, proved), radii.upper))
    attribution = Attribution()
    with watch("explain", outcome.counts.unstable) as on_rows:
        batches = explain_in_batches(
            query, outcome, jobs, budget=budget, radii=radii, unit=in_unit, stop=stop, on_rows=on_rows
        )
        for rows in batches:
            attribution.add(Explanation(query, outcome, rows), n_fragile)
    curve = None if radii is None else Curve(radii)
    ceiling = None
    if query.boxes.limit is None:
        boxes = replace(query.boxes, groups=query.groups)
        ceiling = bound_boxes(query.dataset, boxes, most_pairs=CEILING_PAIRS)
    changes = None
    if target is not None:
        # Without radii there are no distances, but changes within the perturbation.
        searched = query if radii is None else in_unit
        with watch("targets", n_rows) as on_rows:
            results = find_targets(
                searched, target, jobs, is_nearest=radii is not None, budget=budget, stop=stop, on_rows=on_rows
            )
        changes = LabelChanges(searched, results)
    return Assessment(query, perturbation, outcome, curve, no_curve, attribution, ceiling, changes)
