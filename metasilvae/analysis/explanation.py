"""Explanations of unstable rows: the features and thresholds that a perturbation crosses, and features to freeze.

A witness of an unstable row moves a set of features. Freezing features makes the row stable if they include one of each
such set. The smallest set to freeze is found in turns: take the smallest set that hits all sets seen so far; while the
verifier finds the row unstable with these features frozen, its witness gives a further set.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.model import MISSING_LEFT, Model
from metasilvae.verification.budget import INTERRUPTED, Budget
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.radius import (
    Radii,
    boxes_at,
    find_nearest_witnesses,
    find_radii,
    has_radii,
    in_common_unit,
)
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.verification.verifier import Witness, find_witnesses, is_allowed, verify

# Rows explained together, so that many features need little memory.
ROWS_AT_A_TIME = 256
# Turns for a row, after which an upper bound suffices.
MAX_TURNS = 100
# Branches of the search for a hitting set, after which the best set found is returned.
MAX_STEPS = 20_000


@dataclass(frozen=True)
class FrozenSet:
    """Features that make a row stable if they are frozen.

    Attributes
    ----------
    features : tuple of int or None
        Increasing; None if freezing does not help, or if this is not known.
    is_smallest : bool
        Whether it is proved that there is no smaller set, or no set at all.
    """

    features: tuple[int, ...] | None
    is_smallest: bool


@dataclass(frozen=True)
class UnstableRow:
    """One unstable row.

    Attributes
    ----------
    witness : Witness
        The nearest known one, if the perturbation has radii.
    moved : tuple of int
        Features that the witness moves, increasing.
    crossed : tuple of (int, float)
        Tests (feature, threshold) on the paths of the witness that the row itself decides the other way.
    frozen : FrozenSet
    radius, radius_at_most : float or None
        Proved lower bound and upper bound of the certified radius (`metasilvae.verification.radius`), if the
        perturbation has radii.
    is_complete : bool
        Whether no search for the frozen set or the radius was interrupted.
    """

    witness: Witness
    moved: tuple[int, ...]
    crossed: tuple[tuple[int, float], ...]
    frozen: FrozenSet
    radius: float | None = None
    radius_at_most: float | None = None
    is_complete: bool = True

    @property
    def row(self) -> int:
        return self.witness.row

    @property
    def has_exact_radius(self) -> bool:
        return self.radius == self.radius_at_most


@dataclass(frozen=True)
class Explanation:
    """Explanations of the unstable rows of a query."""

    query: VerificationQuery
    outcome: Outcome
    rows: list[UnstableRow]

    @property
    def n_interrupted(self) -> int:
        """Rows whose radius or frozen set is unknown because the work was interrupted."""
        return sum(not row.is_complete for row in self.rows)

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
    def crossed_nodes(self) -> Counter[int]:
        """For each node of the model the number of unstable rows whose witness reaches it and crosses its test."""
        model, X = self.query.model, self.query.dataset.X
        if not self.rows:
            return Counter()
        samples = X[[row.row for row in self.rows]]
        points = np.stack([row.witness.point for row in self.rows])
        # A test that is already decided by those above it is on a path, but a witness need not cross it.
        tests = [set(row.crossed) for row in self.rows]
        return Counter(
            node
            for item, node in _find_crossings(model, samples, points)
            if model.nodes[node].item()[1::-1] in tests[item]
        )

    @cached_property
    def frozen_sizes(self) -> Counter[int]:
        """Number of rows for each size of frozen sets."""
        return Counter(len(row.frozen.features) for row in self.rows if row.frozen.features is not None)

    def most_fragile(self, count: int) -> list[UnstableRow]:
        """The rows with the smallest radii, or with the nearest witnesses if there are no radii."""
        X = self.query.dataset.X

        def distance(row: UnstableRow) -> float:
            # A value that is missing or became so has no distance.
            moved = np.abs(row.witness.point - X[row.row])
            return float(np.where(np.isnan(moved), 0.0, moved).max()) if row.radius is None else row.radius

        return sorted(self.rows, key=lambda row: (distance(row), row.row))[:count]


def explain(query: VerificationQuery, jobs: int | None = None, *, budget: Budget | None = None) -> Explanation:
    """Verify a query and explain its unstable rows.

    Parameters
    ----------
    jobs : int or None
        Threads; None means all available cores. The result does not depend on it.
    budget : Budget or None
        Work allowed for each search of a row of a forest; None means no limit.
    """
    return explain_outcome(query, verify(query, jobs, budget=budget), jobs, budget=budget)


def explain_outcome(
    query: VerificationQuery,
    outcome: Outcome,
    jobs: int | None = None,
    *,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_searches: Callable[[int], object] = lambda count: None,
) -> Explanation:
    """Explain the unstable rows of a verification.

    Parameters
    ----------
    stop : threading.Event or None
        Once set, the remaining frozen sets and radii stay unknown.
    on_searches : function
        Called with the number of searches that are done since the last call, by any thread; `count_searches` gives
        their total.
    """
    verifier = _Verifier(jobs, budget, threading.Event() if stop is None else stop)
    batches = _explain_batches(query, outcome, verifier, None, None, on_searches, on_searches)
    return Explanation(query, outcome, [row for batch in batches for row in batch])


def explain_in_batches(
    query: VerificationQuery,
    outcome: Outcome,
    jobs: int | None = None,
    *,
    budget: Budget | None = None,
    radii: Radii | None = None,
    unit: VerificationQuery | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Iterator[list[UnstableRow]]:
    """Explain the unstable rows of a verification in batches of completely explained rows.

    Parameters
    ----------
    radii : Radii or None
        Certified radii of all rows, if they are known.
    unit : VerificationQuery or None
        The query that these radii are those of: the same one, possibly with radii of 1. None stands for
        `in_common_unit`.
    stop : threading.Event or None
        Once set, no further rows are explained.
    on_rows : function
        Called with the number of unstable rows that are done since the last call.
    """
    verifier = _Verifier(jobs, budget, threading.Event() if stop is None else stop)
    for batch in _explain_batches(query, outcome, verifier, radii, unit, lambda count: None, on_rows):
        yield [row for row in batch if row.is_complete]
        if verifier.stop.is_set():
            return


def _explain_batches(
    query: VerificationQuery,
    outcome: Outcome,
    verifier: _Verifier,
    radii: Radii | None,
    unit: VerificationQuery | None,
    on_radii: Callable[[int], object],
    on_frozen: Callable[[int], object],
) -> Iterator[list[UnstableRow]]:
    unstable = _find_unstable(outcome)
    unit = in_common_unit(query) if unit is None else unit
    for start in range(0, len(unstable), ROWS_AT_A_TIME):
        rows = unstable[start : start + ROWS_AT_A_TIME]
        known = _radii(unit, rows, verifier, on_radii) if radii is None else radii.subset(rows)
        yield _explain_rows(query, unit, outcome, rows, known, verifier, on_frozen)


def count_searches(query: VerificationQuery, outcome: Outcome) -> int:
    """Number of searches for an explanation: one for the frozen set of each unstable row, and one for its radius."""
    return len(_find_unstable(outcome)) * (2 if has_radii(query) else 1)


def _find_unstable(outcome: Outcome) -> NDArray[np.intp]:
    return np.flatnonzero(outcome.stability == Stability.UNSTABLE)


@dataclass(frozen=True)
class _Verifier:
    """The threads, the budget and the stop event of all searches."""

    jobs: int | None
    budget: Budget | None
    stop: threading.Event

    def find_witnesses(self, query: VerificationQuery) -> tuple[Outcome, list[Witness]]:
        outcome = verify(query, self.jobs, budget=self.budget, stop=self.stop)
        return outcome, list(find_witnesses(query, outcome, self.jobs))

    def find_radii(self, query: VerificationQuery, on_rows: Callable[[int], object]) -> Radii:
        return find_radii(query, self.jobs, budget=self.budget, stop=self.stop, on_rows=on_rows)


def _explain_rows(
    query: VerificationQuery,
    unit: VerificationQuery,
    outcome: Outcome,
    rows: NDArray[np.intp],
    radii: Radii | None,
    verifier: _Verifier,
    on_frozen: Callable[[int], object],
) -> list[UnstableRow]:
    """Explain unstable rows; `radii` are theirs, in the unit of a query."""
    part = query.subset(rows)
    first = {witness.row: witness for witness in find_witnesses(part, outcome.subset(rows), verifier.jobs)}
    if radii is not None and (radii.witness_points is not None or radii.witness_leaves is not None):
        # The nearest ones are known too, if their search was not given up at some farther point; for a tree in the
        # maximum norm they are the first ones.
        nearest = find_nearest_witnesses(unit.subset(rows), radii, verifier.jobs)
        first |= {witness.row: witness for witness in nearest if is_allowed(part, witness.row, witness.point)}
    boxes = boxes_at(part, np.arange(len(rows)), np.ones(len(rows)))
    part = replace(part, boxes=boxes)
    start = np.clip(part.dataset.X, boxes.low_center, boxes.high_center)
    sets = _freeze(part, start, first, verifier, on_frozen)
    reasons = {} if radii is None else radii.reasons
    items, model = sorted(first), query.model.without_contradictions
    crossed: dict[int, set[tuple[int, float]]] = {item: set() for item in items}
    points = np.stack([first[item].point for item in items])
    for place, node in _find_crossings(model, part.dataset.X[items], points):
        crossed[items[place]].add(model.nodes[node].item()[1::-1])
    return [
        UnstableRow(
            replace(witness, row=int(rows[item])),
            tuple(sorted(_moved(query, witness, start[item]))),
            tuple(sorted(crossed[item])),
            sets.get(item, FrozenSet(None, False)),
            None if radii is None else float(radii.lower[item]),
            None if radii is None else float(radii.upper[item]),
            item in sets and reasons.get(item) != INTERRUPTED,
        )
        for item, witness in sorted(first.items())
    ]


def _moved(query: VerificationQuery, witness: Witness, start: NDArray[np.float64]) -> frozenset[int]:
    """Features that a witness moves; it keeps all values that it can keep.

    A group with a code moves as a whole, and the code stands for it.
    """
    is_kept = (witness.point == start) | (np.isnan(witness.point) & np.isnan(start))
    for group in query.groups.groups:
        if not group.is_one_hot:
            is_kept[list(group.members)] = True
    return frozenset(map(int, np.flatnonzero(~is_kept)))


def _freeze(
    query: VerificationQuery,
    start: NDArray[np.float64],
    first: dict[int, Witness],
    verifier: _Verifier,
    on_searches: Callable[[int], object],
) -> dict[int, FrozenSet]:
    """A smallest frozen set for each row, by position; rows that are not done when the work is stopped have none."""
    seen = {item: [_moved(query, witness, start[item])] for item, witness in first.items()}
    found = {item: FrozenSet(None, True) for item, sets in seen.items() if not sets[0]}
    # After too many turns frozen sets grow by whole sets.
    grown: dict[int, frozenset[int]] = {}
    active = [item for item in seen if item not in found]
    on_searches(len(found))
    for turn in range(MAX_TURNS + query.dataset.n_features):
        if not active or verifier.stop.is_set():
            break
        trial: dict[int, tuple[frozenset[int], bool]] = {}
        for item in active:
            if turn < MAX_TURNS:
                trial[item] = find_smallest_hitting_set(seen[item])
            else:
                grown[item] = grown.get(item, find_smallest_hitting_set(seen[item])[0]) | seen[item][-1]
                trial[item] = grown[item], False
        part = query.subset(np.array(active))
        lower, upper = part.boxes.low_center.copy(), part.boxes.high_center.copy()
        droppable = None if part.boxes.droppable is None else part.boxes.droppable.copy()
        for place, item in enumerate(active):
            frozen = sorted(trial[item][0])
            lower[place, frozen] = upper[place, frozen] = start[item, frozen]
            if droppable is not None:
                droppable[place, frozen] = 0
        boxes = replace(part.boxes, low_center=lower, high_center=upper, droppable=droppable)
        outcome, witnesses = verifier.find_witnesses(replace(part, boxes=boxes))
        for witness in witnesses:
            seen[active[witness.row]].append(_moved(query, witness, start[active[witness.row]]))
        for place, item in enumerate(active):
            stability = outcome.stability[place]
            if stability == Stability.STABLE:
                features, is_smallest = trial[item]
                found[item] = FrozenSet(tuple(sorted(features)), is_smallest)
            elif stability == Stability.UNKNOWN and outcome.reasons.get(place) != INTERRUPTED:
                found[item] = FrozenSet(None, False)
            elif stability == Stability.UNSTABLE and not seen[item][-1]:
                found[item] = FrozenSet(None, True)
        n_active = len(active)
        active = [item for item in active if item not in found]
        on_searches(n_active - len(active))
    return found


def _find_crossings(
    model: Model, samples: NDArray[np.float64], points: NDArray[np.float64]
) -> Iterator[tuple[int, int]]:
    """Each (row, node) where a node on a path of the row's point has a test that the sample decides the other way."""
    items, places = np.repeat(np.arange(len(points)), model.n_trees), np.tile(model.roots, len(points))
    while len(items):
        nodes = model.nodes[places]
        is_split = nodes["feature"] >= 0
        items, places, nodes = items[is_split], places[is_split], nodes[is_split]
        left_if_missing = nodes["leaf"] == MISSING_LEFT
        goes_left, went_left = (
            np.where(np.isnan(values), left_if_missing, values <= nodes["threshold"])
            for values in (points[items, nodes["feature"]], samples[items, nodes["feature"]])
        )
        is_crossed = goes_left != went_left
        yield from zip(items[is_crossed].tolist(), places[is_crossed].tolist(), strict=True)
        places = np.where(goes_left, nodes["left"], nodes["right"])


def _radii(
    query: VerificationQuery, rows: NDArray[np.intp], verifier: _Verifier, on_searches: Callable[[int], object]
) -> Radii | None:
    """Certified radii of some rows."""
    boxes, X = query.boxes, query.dataset.X
    if not has_radii(query):
        return None
    if ((X[rows] < boxes.minimum) | (X[rows] > boxes.maximum)).any():
        return None
    return verifier.find_radii(query.subset(rows), on_searches)


def find_smallest_hitting_set(
    sets: Iterable[frozenset[int]], max_steps: int = MAX_STEPS
) -> tuple[frozenset[int], bool]:
    """A smallest set that intersects all given nonempty sets, and whether it is proved to be smallest.

    Depth-first branch and bound: a set that is not hit yet must be hit by one of its elements. The lower bound is the
    number of pairwise disjoint sets.
    """
    family = _without_supersets(sets)
    best = _hit_greedily(family)
    n_steps = 0
    todo: list[tuple[frozenset[int], frozenset[int]]] = [(frozenset(), frozenset())]  # chosen, ruled out
    while todo:
        chosen, excluded = todo.pop()
        left = [each - excluded for each in family if not each & chosen]
        if len(chosen) + _count_disjoint(left) >= len(best):
            continue
        if not left:
            best = chosen
            continue
        if not all(left):
            continue
        n_steps += 1
        if n_steps > max_steps:
            return best, False
        counts = Counter(element for each in left for element in each)
        smallest: frozenset[int] = min(left, key=lambda each: (len(each), sorted(each)))
        branches = sorted(smallest, key=lambda element: (-counts[element], element))
        # Later branches need not try the elements of earlier ones again; the last branch pushed is visited first.
        todo += [
            (chosen | {element}, excluded | frozenset(branches[:place]))
            for place, element in reversed(list(enumerate(branches)))
        ]
    return best, True


def _without_supersets(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """The given sets without those that contain another one, which are hit with it."""
    family: list[frozenset[int]] = []
    for each in sorted(set(sets), key=lambda each: (len(each), sorted(each))):
        if not any(smaller <= each for smaller in family):
            family.append(each)
    return family


def _hit_greedily(family: list[frozenset[int]]) -> frozenset[int]:
    chosen: set[int] = set()
    left = family
    while left:
        counts = Counter(element for each in left for element in each)
        chosen.add(min(counts, key=lambda element: (-counts[element], element)))
        left = [each for each in left if not each & chosen]
    return frozenset(chosen)


def _count_disjoint(family: list[frozenset[int]]) -> int:
    seen: set[int] = set()
    count = 0
    for each in sorted(family, key=len):
        if not each & seen:
            seen |= each
            count += 1
    return count
