"""Sufficient reasons, against all subsets of columns and all inputs between thresholds."""

from __future__ import annotations

import itertools
import math
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import data_of, elect, make_model
from support.proof_oracles import inputs_of, random_forest, random_space, random_voting

from metasilvae.analysis import sufficiency
from metasilvae.analysis.spaces import InputSpace
from metasilvae.analysis.sufficiency import find_sufficient
from metasilvae.errors import DataError
from metasilvae.model import Model
from metasilvae.verification.budget import Budget

Point = tuple[float, ...]


def list_columns(model: Model, space: InputSpace) -> list[tuple[int, ...]]:
    """The features of each column: groups as a whole, all others by themselves."""
    groups = [group.features for group in space.groups.groups]
    grouped = {f for group in groups for f in group}
    return [*groups, *((f,) for f in range(model.n_features) if f not in grouped)]


def agrees(x: Point, row: Point, features: tuple[int, ...]) -> bool:
    return all(x[f] == row[f] or (math.isnan(x[f]) and math.isnan(row[f])) for f in features)


def is_sufficient(inputs: list[tuple[Point, tuple[int, ...]]], row: Point, prediction, columns) -> bool:
    return all(found == prediction for x, found in inputs if all(agrees(x, row, column) for column in columns))


def smallest_size(inputs, row: Point, prediction, columns) -> int:
    for size in range(len(columns) + 1):
        for chosen in itertools.combinations(columns, size):
            if is_sufficient(inputs, row, prediction, chosen):
                return size
    raise AssertionError


def draw(seed: int) -> tuple[Model, InputSpace, str, list[Point], list[tuple[Point, tuple[int, ...]]]]:
    """A model, a space, some of its inputs as rows, and inputs of all cells with their predictions."""
    rng = random.Random(seed)
    model = random_forest(rng)
    space, voting = random_space(rng, model), random_voting(rng, model)
    inputs = [(x, elect(model, x, voting)) for x in inputs_of(model, space)]
    rows = [x for x, _ in rng.sample(inputs, min(3, len(inputs)))]
    return model, space, voting, rows, inputs


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_a_reason_is_sufficient_and_smallest(seed: int) -> None:
    model, space, voting, rows, inputs = draw(seed)
    columns = list_columns(model, space)
    result = find_sufficient(model, data_of([list(x) for x in rows], ["a"] * len(rows)), space, voting=voting, jobs=1)
    assert [reason.row for reason in result.reasons] == list(range(len(rows)))
    for reason, row in zip(result.reasons, rows, strict=True):
        prediction = elect(model, row, voting)
        chosen = [column for column in columns if set(column) & set(reason.features)]
        assert reason.prediction == prediction
        assert reason.is_smallest
        assert len(chosen) == len(reason.features) == smallest_size(inputs, row, prediction, columns)
        assert is_sufficient(inputs, row, prediction, chosen)


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 2]))
def test_on_a_limit_no_column_can_be_left_out(seed: int, max_turns: int) -> None:
    model, space, voting, rows, inputs = draw(seed)
    columns = list_columns(model, space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sufficiency, "MAX_TURNS", max_turns)
        data = data_of([list(x) for x in rows], ["a"] * len(rows))
        result = find_sufficient(model, data, space, voting=voting, jobs=1)
    for reason, row in zip(result.reasons, rows, strict=True):
        prediction = elect(model, row, voting)
        chosen = [column for column in columns if set(column) & set(reason.features)]
        assert reason.is_minimal
        assert is_sufficient(inputs, row, prediction, chosen)
        for column in chosen:
            assert not is_sufficient(inputs, row, prediction, [each for each in chosen if each != column])
        if reason.is_smallest:
            assert len(chosen) == smallest_size(inputs, row, prediction, columns)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_with_a_budget_sets_stay_sufficient(seed: int) -> None:
    model, space, voting, rows, inputs = draw(seed)
    columns = list_columns(model, space)
    data = data_of([list(x) for x in rows], ["a"] * len(rows))
    for reason in find_sufficient(model, data, space, voting=voting, jobs=1, budget=Budget(steps=1)).reasons:
        row = rows[reason.row]
        chosen = [column for column in columns if set(column) & set(reason.features)]
        assert is_sufficient(inputs, row, elect(model, row, voting), chosen)


STUMPS = [(0, 0.0, [1, 0], [0, 1]), (1, 0.0, [1, 0], [0, 1]), (2, 0.0, [1, 0], [0, 1])]


def test_two_of_three_votes_suffice() -> None:
    model = make_model(STUMPS, 4)
    result = find_sufficient(model, data_of([[1.0, 1.0, 1.0, 5.0], [1.0, -1.0, 1.0, 5.0]], ["a", "b"]))
    assert [len(reason.features) for reason in result.reasons] == [2, 2]
    assert result.reasons[1].features == (0, 2)
    assert result.sizes == {2: 2}


def test_a_constant_model_needs_no_column() -> None:
    result = find_sufficient(make_model([[1, 0]], 2), data_of([[1.0, 1.0]], ["a"]))
    assert result.reasons[0].features == ()
    assert result.reasons[0].is_smallest


def test_a_row_outside_the_space_belongs_to_it() -> None:
    """Without the first column the row could be any input of the space, or itself."""
    model = make_model([(0, 0.0, [1, 0], (0, 5.0, [0, 1], [1, 0]))], 1)
    space = InputSpace(np.array([1.0]), np.array([2.0]), np.array([False]), "a space")
    reasons = find_sufficient(model, data_of([[9.0], [1.5]], ["a", "b"]), space).reasons
    assert [reason.features for reason in reasons] == [(0,), ()]


def test_unknown_values_are_refused() -> None:
    rng = random.Random(3)
    while True:
        model = random_forest(rng)
        space = random_space(rng, model)
        if space.domains.whole:
            break
    feature = min(space.domains.whole)
    row = list(inputs_of(model, space)[0])
    row[feature] = 0.5
    with pytest.raises(DataError, match="has a value that the domain does not know"):
        find_sufficient(model, data_of([row], ["a"]), space)


def test_an_interrupted_search_keeps_nothing() -> None:
    stop = threading.Event()
    stop.set()
    assert find_sufficient(make_model(STUMPS, 3), data_of([[1.0] * 3], ["a"]), stop=stop).reasons == []
