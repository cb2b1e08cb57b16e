"""The ten numbers of the C program's linear fitness against a sum over the rows, verdict by verdict."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metasilvae.errors import RequestError
from metasilvae.verification.objective import LINEAR_WORDS, PAPER_FITNESS, Fitness, fitness_from_weights, parse_linear

WEIGHTS = st.lists(st.integers(-8, 8).map(lambda number: number / 4), min_size=9, max_size=9)
ROWS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


def naive_value(weights: dict[str, float], rows: list[tuple[bool, bool]]) -> float:
    total = 0.0
    for is_correct, is_stable in rows:
        total += weights["correct"] if is_correct else weights["wrong"]
        total += weights["stable"] if is_stable else weights["unstable"]
        if is_correct and is_stable:
            total += weights["robust"]
        elif is_correct:
            total += weights["fragile"]
        elif is_stable:
            total += weights["vulnerable"]
        else:
            total += weights["broken"]
    return total / len(rows)


def fitness_or_none(weights: list[float]) -> Fitness | None:
    try:
        return Fitness(*weights)
    except RequestError:
        return None


@given(WEIGHTS, ROWS)
def test_weights_are_summed_by_verdict(weights: list[float], rows: list[tuple[bool, bool]]) -> None:
    fitness = fitness_or_none(weights)
    if fitness is None:
        return
    names = [field.name for field in fields(Fitness)]
    assert names[5:] == ["robust", "fragile", "vulnerable", "broken"]
    n = len(rows)
    shares = (
        sum(correct for correct, _ in rows) / n,
        sum(stable for _, stable in rows) / n,
        sum(correct and stable for correct, stable in rows) / n,
    )
    expected = naive_value(dict(zip(names, weights, strict=True)), rows)
    assert fitness.value(*shares) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("robust", (True, True)),
        ("fragile", (True, False)),
        ("vulnerable", (False, True)),
        ("broken", (False, False)),
    ],
)
def test_a_weight_counts_the_verdict_of_its_name(name: str, row: tuple[bool, bool]) -> None:
    fitness = Fitness(**{name: 1.0})
    for other in [(True, True), (True, False), (False, True), (False, False)]:
        assert fitness.value(other[0], other[1], other[0] and other[1]) == (1.0 if other == row else 0.0)


def test_the_words_of_the_c_program() -> None:
    assert len(LINEAR_WORDS) == 10
    epsilon, fitness = parse_linear(["0.25", "1", "2", "3", "4", "5", "6", "7", "8", "9"])
    assert epsilon == 0.25
    assert fitness == Fitness(
        correct=1, wrong=2, stable=3, unstable=4, no_info=5, robust=6, fragile=7, vulnerable=8, broken=9
    )


def test_friendly_names() -> None:
    assert fitness_from_weights({"accuracy": 0.9, "stability": 0.1}) == PAPER_FITNESS
    assert fitness_from_weights({"robustness": 1.0, "no-info": 0.5}) == Fitness(robust=1.0, no_info=0.5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"speed": 1.0}, "'speed' has no weight; choose among accuracy, stability"),
        ({"accuracy": 1.0, "correct": 1.0}, "given twice"),
        ({"accuracy": float("inf")}, "not a finite number"),
        ({"accuracy": 0.0}, "all trees are equally fit"),
        ({"correct": 1.0, "wrong": 1.0}, "all trees are equally fit"),
    ],
)
def test_weights_without_a_meaning_are_refused(weights: dict[str, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        fitness_from_weights(weights)


def test_words_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(RequestError, match="'x' is not a number"):
        parse_linear(["0", "1", "x", "0", "0", "0", "0", "0", "0", "0"])
