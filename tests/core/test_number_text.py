"""Decimal text to float64 and back, against Python's own float() and repr()."""

import math
import re
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metasilvae._core.parsing import number_text

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_slowly(token: str) -> float | None:
    if not NUMBER.fullmatch(token):
        return None
    value = float(token)
    return value if math.isfinite(value) else None


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("d", value)


def assert_same(token: str) -> None:
    assert bits(number_text.parse_number(token.encode())) == bits(parse_slowly(token)), token


digits = st.text("0123456789", max_size=25)
decimals = st.builds(
    lambda sign, whole, point, fraction, exponent: sign + whole + point + fraction + exponent,
    st.sampled_from(["", "-", "+"]),
    digits,
    st.sampled_from(["", "."]),
    digits,
    st.one_of(
        st.just(""),
        st.builds(lambda e, power: f"{e}{power}", st.sampled_from(["e", "E", "e+", "e-"]), st.integers(0, 400)),
    ),
)


@settings(max_examples=3000, deadline=None)
@given(decimals)
@example("9007199254740993")
@example("9007199254740992e22")
@example("9007199254740992e-22")
@example("18446744073709551616")
@example("9999999999999999999")
@example("0." + "0" * 400 + "1")
@example("1" + "0" * 400)
@example("1" + "0" * 400 + "e-400")
@example("1e99999999999999999999")
@example("1e-99999999999999999999")
@example("0e99999999999999999999")
@example("-0")
@example("2.2250738585072011e-308")
@example("4.9406564584124654e-324")
@example("2.4703282292062327e-324")
@example("1.7976931348623158e308")
@example("1.7976931348623159e308")
def test_decimals_are_rounded_as_by_python(token: str) -> None:
    assert_same(token)


@settings(max_examples=2000, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_at_any_precision(value: float) -> None:
    for text in (repr(value), f"{value:.16e}", f"{value:.17e}", f"{value:.19e}", f"{value:.14g}"):
        assert_same(text)


@settings(max_examples=2000, deadline=None)
@given(st.text("0123456789+-.eE_xXnaif \t", max_size=12))
def test_garbage_is_refused(token: str) -> None:
    assert_same(token)


@pytest.mark.parametrize("token", ["", "nan", "inf", "-inf", "0x10", "1_000", "1e", "1e+", ".", "+", "1,5", "\uff11"])
def test_no_numbers(token: str) -> None:
    assert number_text.parse_number(token.encode()) is None


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**17), 10**17), min_size=1))
def test_written_numbers_read_back(values: list[float]) -> None:
    X = np.array([values], np.float64)
    text = bytearray(X.size * number_text.LONGEST_CELL + 2)
    length = number_text.write_csv_rows(X, np.zeros(1, np.int32), [b"a"], text)
    cells = text[:length].decode().removesuffix("\n").split(",")[1:]
    assert [bits(float(cell)) for cell in cells] == [bits(value) for value in X[0].tolist()]
    assert not any(cell.endswith(".0") for cell in cells)
