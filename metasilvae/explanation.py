"""Why rows are unstable: the features and thresholds behind it, and which features to freeze.

A perturbed row with another answer shows a set of features that must move for it. Frozen features make the row stable
if they include one of each such set. So the smallest set to freeze is found by turns: the smallest one that hits all
sets seen so far; and, as long as the verifier finds the row unstable with that one frozen, a further set.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.forest_verification import Limits
from metasilvae.hitting_set import find_smallest_hitting_set
from metasilvae.model import Model
from metasilvae.outcome import Outcome, Stability
from metasilvae.perturbation import Boxes
from metasilvae.radius import Radii, find_radii, has_radii, in_common_unit
from metasilvae.verification import Question, Witness, find_witnesses, verify

# Rows looked at together, so that many features need little memory.
ROWS_AT_A_TIME = 256
# Turns for a row, after which an upper bound will do.
MAX_TURNS = 100


@dataclass(frozen=True)
class FrozenSet:
    """Features that, frozen, make a row stable.

    Attributes
    ----------
    features : tuple of int or None
        Increasing; None if freezing does not help, or if that is not known.
    is_smallest : bool
        Whether it is proved that there is no smaller set (or none at all).
    """

    features: tuple[int, ...] | None
    is_smallest: bool


@dataclass(frozen=True)
class UnstableRow:
    """One unstable row.

    Attributes
    ----------
    witness : Witness
        For a tree the nearest one.
    moved : tuple of int
        Features that must move to get the other answer as the witness does, increasing.
    crossed : tuple of (int, float)
        Tests (feature, threshold) on the paths of the witness that the row itself decides the other way.
    frozen : FrozenSet
    radius : float or None
        The largest at which the row is stable (`metasilvae.radius`), where the perturbation has radii.
    """

    witness: Witness
    moved: tuple[int, ...]
    crossed: tuple[tuple[int, float], ...]
    frozen: FrozenSet
    radius: float | None = None

    @property
    def row(self) -> int:
        return self.witness.row


@dataclass(frozen=True)
class Explanation:
    """What makes the rows of a question unstable."""

    question: Question
    outcome: Outcome
    rows: list[UnstableRow]

    @cached_property
    def moved_features(self) -> Counter[int]:
        """For each feature the number of unstable rows whose witness must move it."""
        return Counter(feature for row in self.rows for feature in row.moved)

    @cached_property
    def frozen_features(self) -> Counter[int]:
        """For each feature the number of unstable rows whose frozen set it belongs to."""
        return Counter(feature for row in self.rows for feature in row.frozen.features or ())

    @cached_property
    def crossed_tests(self) -> Counter[tuple[int, float]]:
        """For each test the number of unstable rows whose witness crosses it."""
        return Counter(test for row in self.rows for test in row.crossed)

    @cached_property
    def frozen_sizes(self) -> Counter[int]:
        """Number of rows for each size of frozen sets."""
        return Counter(len(row.frozen.features) for row in self.rows if row.frozen.features is not None)

    def most_fragile(self, count: int) -> list[UnstableRow]:
        """The rows with the smallest radii, or with the nearest witnesses where there are no radii."""
        X = self.question.dataset.X

        def distance(row: UnstableRow) -> float:
            return float(np.abs(row.witness.point - X[row.row]).max()) if row.radius is None else row.radius

        return sorted(self.rows, key=lambda row: (distance(row), row.row))[:count]


def explain(question: Question, jobs: int | None = None, *, limits: Limits | None = None) -> Explanation:
    """Find out what makes each unstable row unstable.

    Parameters
    ----------
    jobs : int or None
        Threads; None means all available cores. The result does not depend on it.
    limits : Limits or None
        What may be spent on each question about a row of a forest; None means whatever it takes.
    """
    outcome = verify(question, jobs, limits=limits)
    rows = [row for batch in explain_in_batches(question, outcome, jobs, limits=limits) for row in batch]
    return Explanation(question, outcome, rows)


def explain_in_batches(
    question: Question,
    outcome: Outcome,
    jobs: int | None = None,
    *,
    limits: Limits | None = None,
    radii: Radii | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Iterator[list[UnstableRow]]:
    """The same for rows that are verified already, some at a time.

    Parameters
    ----------
    outcome : Outcome
        What `verify` found for the question.
    radii : Radii or None
        Of all rows, if they are known already, in the unit that is wanted.
    stop : threading.Event or None
        Once set, no further rows are explained.
    on_rows : function
        Called with the number of unstable rows that are done since the last call.
    """
    verifier = _Verifier(jobs, limits, stop)
    unstable = np.flatnonzero(outcome.stability == Stability.UNSTABLE)
    for start in range(0, len(unstable), ROWS_AT_A_TIME):
        rows = unstable[start : start + ROWS_AT_A_TIME]
        known = None if radii is None else radii.lower[rows]
        found = _explain_rows(question, rows, known, verifier)
        if stop is not None and stop.is_set():
            return
        on_rows(len(rows))
        yield found


@dataclass(frozen=True)
class _Verifier:
    """Verification on so many threads, within these limits, until it is to stop."""

    jobs: int | None
    limits: Limits | None
    stop: threading.Event | None

    def find_witnesses(self, question: Question) -> tuple[Outcome, list[Witness]]:
        outcome = verify(question, self.jobs, limits=self.limits, stop=self.stop)
        return outcome, list(find_witnesses(question, outcome, self.jobs))

    def find_radii(self, question: Question) -> NDArray[np.float64]:
        return find_radii(question, self.jobs, limits=self.limits, stop=self.stop).lower


def _explain_rows(
    question: Question, rows: NDArray[np.intp], radii: NDArray[np.float64] | None, verifier: _Verifier
) -> list[UnstableRow]:
    part = question.subset(rows)
    boxes = _explicit(part)
    part = replace(part, boxes=boxes)
    start = np.clip(part.dataset.X, boxes.low_center, boxes.high_center)
    first = {witness.row: witness for witness in verifier.find_witnesses(part)[1]}
    radii = _radii(question, rows, verifier) if radii is None else radii
    sets = _freeze(part, start, first, verifier)
    model = question.model.feasible
    return [
        UnstableRow(
            replace(witness, row=int(rows[item])),
            tuple(sorted(_moved(witness, start[item]))),
            find_crossed_tests(model, part.dataset.X[item], witness.point),
            sets[item],
            None if radii is None else float(radii[item]),
        )
        for item, witness in sorted(first.items())
    ]


def _explicit(question: Question) -> Boxes:
    """The same boxes as absolute bounds."""
    bounds = [question.boxes.bounds(row) for row in range(question.dataset.n_samples)]
    nothing = np.zeros(question.dataset.n_features)
    endless = np.full(question.dataset.n_features, np.inf)
    lower, upper = (np.array([pair[side] for pair in bounds]) for side in (0, 1))
    return replace(
        question.boxes,
        low_center=lower,
        high_center=upper,
        radius_down=nothing,
        radius_up=nothing,
        minimum=-endless,
        maximum=endless,
    )


def _moved(witness: Witness, start: NDArray[np.float64]) -> frozenset[int]:
    """Features in which a witness differs from what the row starts from; it keeps all values that it can keep."""
    return frozenset(map(int, np.flatnonzero(witness.point != start)))


def _freeze(
    question: Question, start: NDArray[np.float64], first: dict[int, Witness], verifier: _Verifier
) -> dict[int, FrozenSet]:
    """A smallest frozen set for each row, by position."""
    seen = {item: [_moved(witness, start[item])] for item, witness in first.items()}
    found = {item: FrozenSet(None, True) for item, sets in seen.items() if not sets[0]}
    # Frozen sets that grow by whole sets, once there have been too many turns.
    grown: dict[int, frozenset[int]] = {}
    active = [item for item in seen if item not in found]
    for turn in range(MAX_TURNS + question.dataset.n_features):
        if not active:
            break
        trial: dict[int, tuple[frozenset[int], bool]] = {}
        for item in active:
            if turn < MAX_TURNS:
                trial[item] = find_smallest_hitting_set(seen[item])
            else:
                grown[item] = grown.get(item, find_smallest_hitting_set(seen[item])[0]) | seen[item][-1]
                trial[item] = grown[item], False
        part = question.subset(np.array(active))
        lower, upper = part.boxes.low_center.copy(), part.boxes.high_center.copy()
        for place, item in enumerate(active):
            frozen = sorted(trial[item][0])
            lower[place, frozen] = upper[place, frozen] = start[item, frozen]
        boxes = replace(part.boxes, low_center=lower, high_center=upper)
        outcome, witnesses = verifier.find_witnesses(replace(part, boxes=boxes))
        for witness in witnesses:
            seen[active[witness.row]].append(_moved(witness, start[active[witness.row]]))
        for place, item in enumerate(active):
            stability = outcome.stability[place]
            if stability == Stability.STABLE:
                features, is_smallest = trial[item]
                found[item] = FrozenSet(tuple(sorted(features)), is_smallest)
            elif stability == Stability.UNKNOWN:
                found[item] = FrozenSet(None, False)
            elif not seen[item][-1]:
                found[item] = FrozenSet(None, True)
        active = [item for item in active if item not in found]
    return found


def find_crossed_tests(
    model: Model, sample: NDArray[np.float64], point: NDArray[np.float64]
) -> tuple[tuple[int, float], ...]:
    """Tests on the paths of a point that a sample decides the other way, in order of feature and threshold."""
    crossed = set()
    for root in model.roots.tolist():
        threshold, feature, left, right, _ = model.nodes[root].item()
        while feature >= 0:
            goes_left = bool(point[feature] <= threshold)
            if bool(sample[feature] <= threshold) != goes_left:
                crossed.add((feature, threshold))
            threshold, feature, left, right, _ = model.nodes[left if goes_left else right].item()
    return tuple(sorted(crossed))


def _radii(question: Question, rows: NDArray[np.intp], verifier: _Verifier) -> NDArray[np.float64] | None:
    """Radii of some rows; in multiples of the radii of the question unless they are the same for all features."""
    boxes, X = question.boxes, question.dataset.X
    if not has_radii(question):
        return None
    if not ((boxes.minimum <= X[rows]) & (X[rows] <= boxes.maximum)).all():
        return None
    return verifier.find_radii(in_common_unit(question).subset(rows))
