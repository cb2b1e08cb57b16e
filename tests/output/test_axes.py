"""Axes on which curves can be read, and numbers with few digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.model import PredictionTable
from metasilvae.output.axes import (
    MOST_DECADES,
    N_TICKS,
    Axis,
    choose_axis,
    choose_log_ticks,
    choose_ticks,
    round_number,
    round_numbers,
)
from metasilvae.verification.curve import Curve
from metasilvae.verification.radius import Radii


def curve_of(*radii: float) -> Curve:
    values = np.array(radii, dtype=np.float64)
    predictions = PredictionTable(((0,),), np.zeros(len(values), dtype=np.int32))
    return Curve(Radii(predictions, np.ones(len(values), dtype=np.bool_), values, values))


@pytest.mark.parametrize("end", [1e-12, 0.07, 1.0, 9.9, 255.0, 1e20])
def test_ticks(end: float) -> None:
    ticks = choose_ticks(end)
    assert 3 <= len(ticks) <= N_TICKS + 1
    assert ticks[0] == 0
    assert ticks[-1] <= end


def test_logarithmic_ticks() -> None:
    assert choose_log_ticks(0.01, 300) == [0.01, 0.1, 1, 10, 100]
    assert choose_log_ticks(0.2, 30) == [0.2, 0.5, 1, 2, 5, 10, 20]
    assert choose_log_ticks(2, 30000) == [10, 100, 1000, 10000]


def test_similar_radii_have_a_linear_axis() -> None:
    assert choose_axis([curve_of(0.1, 0.2, 0.5, np.inf)]) == Axis(0.0, 1.05 * 0.5)
    assert choose_axis([curve_of(0.1, 0.2, 0.5)], 0.4) == Axis(0.0, 1.05 * 0.8)
    assert choose_axis([curve_of(np.inf)]) == choose_axis([curve_of(0.0)]) == Axis(0.0, 1.0)


def test_long_tails_have_a_logarithmic_one() -> None:
    radii = [0.003, 0.5, 2.0, 10.0, 100.0, 300.0]
    axis = choose_axis([curve_of(*radii)], 1.0)
    assert axis.is_log
    assert axis.start == 0.002
    assert axis.end == 1.05 * 300
    assert axis.place(axis.start) == axis.place(0.0) == 0
    assert axis.place(axis.end) == 1
    assert 0.3 < axis.place(1.0) < 0.7
    # The same radii in other units, without a marked value.
    assert choose_axis([curve_of(*(1000 * radius for radius in radii))]).is_log


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.floats(0, 1e9), st.floats(0), st.just(np.inf)), min_size=1, max_size=20),
    st.one_of(st.none(), st.floats(0, 1e6)),
)
def test_any_radii_have_an_axis(radii: list[float], marked: float | None) -> None:
    axis = choose_axis([curve_of(*radii)], marked)
    assert 0 <= axis.start < axis.end < np.inf
    assert (axis.start > 0) == axis.is_log
    if axis.is_log:
        assert axis.end / axis.start <= 10 ** (MOST_DECADES + 1.01)
    places = [axis.place(tick) for tick in axis.ticks]
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert places == sorted(places)
    assert 1 <= len(places) <= N_TICKS + 3


@pytest.mark.parametrize(
    ("value", "others", "text"),
    [
        (1039.9999389648438, (), "1040"),
        (0.1, (), "0.1"),
        (15329.999511718748, (15937.0,), "15330"),
        (139999.99218749997, (140000.0,), "139999.99"),
        (140000.0, (139999.99218749997,), "140000"),
        (1234567.0, (), "1234570"),
        (-0.000012345678, (), "-0.0000123457"),
        (1e300, (), "1e+300"),
        (3e-310, (), "3e-310"),
        (5.0, (5.0,), "5"),
    ],
)
def test_numbers_for_people(value: float, others: tuple[float, ...], text: str) -> None:
    assert round_number(value, *others) == text


@settings(max_examples=200)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_different_numbers_look_different(one: float, other: float) -> None:
    texts = [round_number(one, other), round_number(other, one)]
    assert (texts[0] == texts[1]) == (one == other) or {one, other} == {0.0}
    assert float(texts[0]) == pytest.approx(one, rel=1e-5)


def test_numbers_in_a_list() -> None:
    assert round_numbers([15330.0, 15329.9995, 2.5, 15330.0]) == ["15330", "15329.999", "2.5", "15330"]
