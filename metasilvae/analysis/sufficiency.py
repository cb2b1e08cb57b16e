"""Sufficient reasons: a smallest set of columns that alone guarantees the prediction of a row, whatever the others are.

A set of columns is sufficient if all inputs of a space that share the values of the row in these columns get the
prediction of the row. An input with another prediction differs from the row in a set of columns, of which every
sufficient set contains one. The smallest sufficient set is found in turns: take the smallest set that hits all sets
seen so far; while the verifier finds an input with another prediction, it gives a further set. If that takes too long,
columns are left out one by one while the others remain sufficient: no column of the result can be left out then.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.explanation import find_smallest_hitting_set
from metasilvae.analysis.input_pairs import Constraint, JointInputs, PairFinder, lead
from metasilvae.analysis.spaces import InputSpace
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Boxes
from metasilvae.prediction import align, check_missing, match_labels, predict
from metasilvae.verification.budget import INTERRUPTED, Budget, RemainingBudget
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.verdicts import Outcome, Stability
from metasilvae.verification.verifier import find_witnesses, verify
from metasilvae.voting import choose_voting

FloatArray = NDArray[np.float64]
# Rows that are searched together, and turns after which columns are left out one by one.
ROWS_AT_A_TIME = 256
MAX_TURNS = 60


@dataclass(frozen=True)
class SufficientReason:
    """Columns that guarantee the prediction of a row.

    Attributes
    ----------
    row : int
    prediction : tuple of int
    features : tuple of int
        Increasing; one feature stands for each column: of a one-hot group the one that is 1, of a category with sets
        its code.
    is_smallest : bool
        Whether it is proved that no smaller set is sufficient.
    is_minimal : bool
        Whether it is proved that none of the columns can be left out.
    """

    row: int
    prediction: tuple[int, ...]
    features: tuple[int, ...]
    is_smallest: bool
    is_minimal: bool


@dataclass(frozen=True)
class Sufficiency:
    """Sufficient reasons of the rows of a data set; rows without one were interrupted."""

    model: Model
    dataset: Dataset
    space: InputSpace
    voting: str
    reasons: list[SufficientReason]

    @property
    def sizes(self) -> Counter[int]:
        """Number of rows for each size of sets."""
        return Counter(len(reason.features) for reason in self.reasons)

    @property
    def counts(self) -> Counter[int]:
        """For each feature the number of rows whose set holds it."""
        return Counter(feature for reason in self.reasons for feature in reason.features)


def find_sufficient(
    model: Model,
    dataset: Dataset,
    space: InputSpace | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Sufficiency:
    """A smallest set of columns for each row that alone guarantees its prediction.

    Parameters
    ----------
    space : InputSpace or None
        The values that the other columns may take; None means all inputs. Values of the row itself belong to it in any
        case.
    jobs : int or None
        Threads; None means all available cores. The result does not depend on it.
    budget : Budget or None
        Work allowed for each search of a row of a forest. A search that is undecided keeps a column, so that a set may
        hold more columns than needed; it is always sufficient.
    stop : threading.Event or None
        Once set, no further rows are explained.
    on_rows : function
        Called with the number of rows that are done since the last call.
    """
    dataset = align(model, dataset)
    check_missing(model, dataset)
    space = InputSpace.of_model(model) if space is None else space
    stop = threading.Event() if stop is None else stop
    query = VerificationQuery(
        model, dataset, match_labels(model, dataset), _make_boxes(dataset, space), space.groups,
        choose_voting(model, voting),
    )  # fmt: skip
    reasons = []
    for start in range(0, dataset.n_samples, ROWS_AT_A_TIME):
        rows = np.arange(start, min(start + ROWS_AT_A_TIME, dataset.n_samples))
        part = _Rows(query.subset(rows), jobs, budget, stop)
        part.search(on_rows)
        reasons += [replace(reason, row=start + reason.row) for reason in part.list_reasons()]
        if stop.is_set():
            break
    return Sufficiency(model, dataset, space, query.voting, reasons)


def _make_boxes(dataset: Dataset, space: InputSpace) -> Boxes:
    """For each row all inputs of a space, and the row itself."""
    X = dataset.X
    for feature in space.domains.features:
        _refuse(dataset, ~(space.domains.holds(feature, X[:, feature]) | np.isnan(X[:, feature])), feature)
    allowed = None if space.allowed is None else np.repeat(space.allowed, len(X), axis=0)
    for number, group in enumerate(space.groups.groups):
        option = group.find_options(X)
        _refuse(dataset, option < 0, group.features[-1])
        if allowed is not None:
            bits = np.uint64(1) << (option % 64).astype(np.uint64)
            allowed[np.arange(len(X)), number, option // 64] |= bits
    n_features = dataset.n_features
    may_be_missing = space.may_be_missing | np.isnan(X)
    droppable = np.ascontiguousarray(may_be_missing.astype(np.uint8)) if may_be_missing.any() else None
    nothing, endless = np.zeros(n_features), np.full(n_features, np.inf)
    return Boxes(
        np.fmin(space.lower, X), np.fmax(space.upper, X), nothing, nothing, -endless, endless, space.groups,
        space.domains, droppable, allowed,
    )  # fmt: skip


def _refuse(dataset: Dataset, is_bad: NDArray[np.bool_], feature: int) -> None:
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise DataError(
            f"{dataset.source}: row {dataset.number_of(row)}: {dataset.feature_name(feature)} has a value that the "
            "domain does not know; correct the row or the domain"
        )


@dataclass
class _State:
    """What is known of one row: sets of columns in which inputs with other predictions differ, and columns to keep."""

    seen: list[frozenset[int]] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)
    is_minimal: bool = True


def list_constraints(prediction: tuple[int, ...], n_labels: int) -> list[Constraint]:
    """Constraints of which one holds for an input if and only if it gets another prediction."""
    one, *others = prediction
    found = [Constraint(lead(label, one), {}) for label in range(n_labels) if label not in prediction]
    for label in others:
        found += [Constraint(lead(*pair), {}, is_strict=True) for pair in ((label, one), (one, label))]
    return found


class _Rows:
    """The searches of some rows; all of them that wait for the verifier are verified together."""

    def __init__(
        self, query: VerificationQuery, jobs: int | None, budget: Budget | None, stop: threading.Event
    ) -> None:
        self._query, self._jobs, self._budget, self._stop = query, jobs, budget, stop
        table = predict(query.model, query.dataset.X, query.voting)
        self._predictions = [table.sets[number] for number in table.ids]
        self._states = [_State() for _ in range(query.dataset.n_samples)]
        self._units = [self._find_units(row) for row in range(query.dataset.n_samples)]
        self._found: dict[int, tuple[frozenset[int], bool, bool]] = {}

    def _find_units(self, row: int) -> NDArray[np.intp]:
        """The feature that stands for the column of each feature."""
        units = np.arange(self._query.dataset.n_features)
        for group in self._query.groups.groups:
            own = [f for f in group.members if self._query.dataset.X[row, f] == 1]
            units[list(group.features)] = own[0] if group.is_one_hot else group.code
        return units

    def search(self, on_rows: Callable[[int], object]) -> None:
        active = list(range(len(self._states)))
        hard: list[int] = []
        for _ in range(MAX_TURNS):
            if not active or self._stop.is_set():
                break
            trials = {row: find_smallest_hitting_set(self._states[row].seen) for row in active}
            answers = self._verify({row: columns for row, (columns, _) in trials.items()})
            for row, answer in answers.items():
                if answer == Stability.STABLE:
                    columns, is_smallest = trials[row]
                    # It may be possible to leave a column out, but not of a smallest set.
                    self._found[row] = columns, is_smallest, is_smallest
            hard += [row for row, answer in answers.items() if answer == Stability.UNKNOWN]
            on_rows(sum(row in self._found and self._found[row][2] for row in answers))
            active = [row for row in active if answers.get(row) == Stability.UNSTABLE]
        hard += active
        too_large = [row for row, (_, _, is_minimal) in self._found.items() if not is_minimal]
        self._leave_out(sorted([*hard, *too_large]), on_rows)

    def _leave_out(self, rows: Sequence[int], on_rows: Callable[[int], object]) -> None:
        """Leave out one column after the other of rows for which no smallest set was found."""
        tested = {int(f) for f in self._query.model.tested_features}
        for row in rows:
            state, units = self._states[row], self._units[row]
            known = self._found.pop(row, None)
            columns = {int(units[f]) for f in tested} if known is None else set(known[0])
            often = Counter(column for each in state.seen for column in each)
            # Columns that hit many sets are tried last, so that they are kept.
            state.waiting = sorted(columns, key=lambda column: (-often[column], column))
            state.kept = columns
        active = list(rows)
        while active and not self._stop.is_set():
            trials: dict[int, frozenset[int]] = {}
            for row in active:
                state = self._states[row]
                while state.waiting:
                    trial = frozenset(state.kept - {state.waiting[-1]})
                    if all(each & trial for each in state.seen):
                        trials[row] = trial
                        break
                    state.waiting.pop()
            for row in [row for row in active if row not in trials]:
                state = self._states[row]
                self._found[row] = frozenset(state.kept), False, state.is_minimal
                on_rows(1)
            for row, answer in self._verify(trials).items():
                state = self._states[row]
                column = state.waiting.pop()
                if answer == Stability.STABLE:
                    state.kept.discard(column)
                elif answer == Stability.UNKNOWN:
                    state.is_minimal = False
            active = list(trials)

    def _verify(self, trials: dict[int, frozenset[int]]) -> dict[int, int]:
        """Whether each set of columns is sufficient for its row; other predictions are noted."""
        X = self._query.dataset.X
        # The verifier keeps missing values of a row; such rows are searched one by one.
        rows = [row for row in trials if not np.isnan(X[row]).any()]
        answers = {row: self._search_one(row, trials[row]) for row in trials if np.isnan(X[row]).any()}
        if rows:
            answers |= self._verify_together(rows, trials)
        return {row: answer for row, answer in answers.items() if answer is not None}

    def _verify_together(self, rows: list[int], trials: dict[int, frozenset[int]]) -> dict[int, int | None]:
        part = self._query.subset(np.array(rows))
        lower, upper = part.boxes.low_center.copy(), part.boxes.high_center.copy()
        droppable = None if part.boxes.droppable is None else part.boxes.droppable.copy()
        for place, row in enumerate(rows):
            fixed = np.flatnonzero(np.isin(self._units[row], sorted(trials[row])))
            lower[place, fixed] = upper[place, fixed] = part.dataset.X[place, fixed]
            if droppable is not None:
                droppable[place, fixed] = 0
        boxes = replace(part.boxes, low_center=lower, high_center=upper, droppable=droppable)
        part = replace(part, boxes=boxes)
        outcome: Outcome = verify(part, self._jobs, budget=self._budget, stop=self._stop)
        for witness in find_witnesses(part, outcome, self._jobs):
            self._note(rows[witness.row], witness.point)
        answers: dict[int, int | None] = {}
        for place, row in enumerate(rows):
            is_interrupted = outcome.reasons.get(place) == INTERRUPTED
            answers[row] = None if is_interrupted else int(outcome.stability[place])
        return answers

    def _search_one(self, row: int, columns: frozenset[int]) -> int | None:
        """The same for a row with missing values; None if the search was interrupted."""
        query, x, boxes = self._query, self._query.dataset.X[row], self._query.boxes
        assert boxes.droppable is not None
        is_fixed = np.isin(self._units[row], sorted(columns))
        lower, upper = (np.where(is_fixed, x, side[row]) for side in (boxes.low_center, boxes.high_center))
        may_be_missing = np.where(is_fixed, np.isnan(x), boxes.droppable[row] != 0)
        allowed = None if boxes.allowed is None else boxes.allowed[row : row + 1]
        space = InputSpace(lower, upper, may_be_missing, "", query.groups, boxes.domains, allowed)
        prediction = self._predictions[row]
        remaining = RemainingBudget(self._budget or Budget(), self._stop)
        finder = PairFinder(query.model, query.voting, JointInputs(space, [], [], []), remaining)
        for constraint in list_constraints(prediction, query.model.n_labels):
            found, reason = finder.find([constraint], lambda fraction: None)
            if found is not None:
                self._note(row, self._keep_values(row, found[0], prediction))
                return int(Stability.UNSTABLE)
            if reason is not None:
                return None if reason == INTERRUPTED else int(Stability.UNKNOWN)
        return int(Stability.STABLE)

    def _keep_values(self, row: int, point: FloatArray, prediction: tuple[int, ...]) -> FloatArray:
        """An input with another prediction in which one value after the other is that of the row, where it can be."""
        query, x = self._query, self._query.dataset.X[row]
        grouped = {f for group in query.groups.groups for f in group.features}
        for feature in sorted(set(query.model.tested_features.tolist()) - grouped):
            if point[feature] == x[feature]:
                continue
            trial = point.copy()
            trial[feature] = x[feature]
            table = predict(query.model, trial[np.newaxis], query.voting)
            if table.sets[table.ids[0]] != prediction:
                point = trial
        return point

    def _note(self, row: int, point: FloatArray) -> None:
        """Note the columns in which an input with another prediction differs from its row."""
        x = self._query.dataset.X[row]
        is_kept = (point == x) | (np.isnan(point) & np.isnan(x))
        self._states[row].seen.append(frozenset(self._units[row][~is_kept].tolist()))

    def list_reasons(self) -> list[SufficientReason]:
        return [
            SufficientReason(row, self._predictions[row], tuple(sorted(columns)), is_smallest, is_minimal)
            for row, (columns, is_smallest, is_minimal) in sorted(self._found.items())
        ]
