"""What attack files say, and what is wrong with the broken ones."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, PerturbationError
from metasilvae.perturbations.attack import Attack, fit_attack
from metasilvae.perturbations.attack_files import Percentage, Rule, parse_attack
from metasilvae.perturbations.boxes import Enlarged, Weighted

NAMES = ("age", "sex", "petal length", "red", "green")


def rows(values: list[list[float]] | None = None, names: tuple[str, ...] | None = NAMES) -> Dataset:
    X = np.array(values or [[30, 0, 1.5, 1, 0], [50, 1, 2.5, 0, 1]], dtype=np.float64)
    return Dataset(X, np.zeros(len(X), dtype=np.int32), ("a",), names, "data.csv")


def rule(text: str, column: str = "age") -> Rule:
    return parse_attack(text.encode(), "attack.toml").columns[column]


def attack(text: str, dataset: Dataset | None = None) -> Attack:
    return fit_attack(parse_attack(text.encode(), "attack.toml"), dataset or rows())


def test_a_file_that_says_nothing_allows_nothing() -> None:
    assert attack("").is_idle


def test_columns_take_over_what_they_do_not_say() -> None:
    default = "[default]\nradius = 0.5\nmin = 0\ninteger = true\n[columns]\n"
    assert (rule(default + "age = { max = 9 }").up, rule(default + "age = {}").minimum) == (0.5, 0)
    own = rule(default + "age = { up = 2, integer = false }")
    assert (own.down, own.up, own.minimum, own.is_whole) == (0, 2, 0, False)
    for text in ("values = [3, 1]", "immutable = true"):
        assert not rule(default + f"age = {{ {text} }}").is_whole


def test_a_radius_and_one_direction() -> None:
    found = rule("[columns]\nage = { radius = 3, up = inf }")
    assert (found.down, found.up) == (3, math.inf)


def test_per_cents_are_exact_fractions() -> None:
    assert rule('[columns]\nage = { radius = "0.1% of range" }').up == Percentage(Fraction(1, 1000))
    text = '[columns]\nage = { radius = "29% of range", range = [0, 100], integer = true }'
    assert 0.29 * 100 < 29
    assert attack(text).radius_up[0] == 29


def test_whole_numbers_have_whole_boxes() -> None:
    found = attack("[columns]\nage = { down = 2.9, up = 1.5, integer = true, min = 27.5, max = 50.5 }")
    boxes = found.boxes(rows())
    assert [bound[0] for bound in boxes.bounds(0)] == [28, 31]
    assert [bound[0] for bound in boxes.bounds(1)] == [48, 50]
    enlarged = Enlarged(found, 1.4).boxes(rows())
    _, _, down, up, _, _ = enlarged.arrays
    assert (down[0], up[0]) == (4, 2)


def test_numbers_that_are_too_large_are_not_endless() -> None:
    with pytest.raises(PerturbationError, match="'1e400' is too large for a 64-bit floating point number"):
        attack("[columns]\nage = { radius = 1e400 }")


def test_factors_of_endless_radii() -> None:
    found = attack("[columns]\nage = { radius = inf }")
    assert Enlarged(found, 1.3).boxes(rows()).radius_up.tolist() == [math.inf, 0, 0, 0, 0]
    assert Weighted(found, (0, 1, 1, 1, 1)).boxes(rows()).radius_up.tolist() == [0] * 5


@pytest.mark.parametrize("column", ["petal length", "2", "x[2]"])
def test_columns_by_name_and_number(column: str) -> None:
    assert attack(f'[columns]\n"{column}" = {{ radius = 1 }}').radius_up.tolist() == [0, 0, 1, 0, 0]


def test_some_features_of_an_attack() -> None:
    text = '[columns]\nage = { up = 1, integer = true }\nsex = { values = [0, 1] }\n[[one-hot]]\ncolumns = ["red", 4]'
    found = attack(text)
    part = found.for_features(np.array([1, 4, 0], dtype=np.int32))
    assert part.radius_up.tolist() == [math.inf, math.inf, 1]
    assert (part.domains.whole, part.domains.listed) == ({2}, {0: (0, 1)})
    assert part.groups.n_groups == 0  # red is missing
    assert found.for_features(np.array([3, 4], dtype=np.int32)).groups.lists == [[0, 1]]


def test_per_cents_of_the_data_are_told() -> None:
    with pytest.warns(MetasilvaeWarning, match=re.escape("range = [30.0, 50.0] for age")):
        found = attack('[columns]\nage = { radius = "10% of range" }')
    assert found.radius_up[0] == 2
    # An attack that is made does not depend on other rows.
    assert found.boxes(rows([[0, 0, 0, 0, 0]])).radius_up[0] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns", "attack.toml: is not TOML"),
        ("\n[colums]", "attack.toml:2: colums: unknown key; did you mean columns?"),
        ("[default]\nvalues = [1]", "attack.toml:2: default.values: unknown key"),
        ("[columns]\nage = 3", "attack.toml:2: columns.age: expected a table"),
        ("[columns.age]\n\nradus = 3", "attack.toml:3: columns.age.radus: unknown key; did you mean radius?"),
        ("[columns]\n'petal length' = { radius = -1 }", "attack.toml:2: columns.petal length.radius: -1 is negative"),
        ('[columns]\n"a = b" = { radius = -1 }', "attack.toml:2: columns.a = b.radius: -1 is negative"),
        ("columns = { age = { radius = -1 } }", "attack.toml:1: columns.age.radius: -1 is negative"),
        ("[columns]\nage = { radius = '5' }", "is not a radius; write a number"),
        ("[columns]\nage = { radius = '-5%' }", "is not a radius"),
        ("[columns]\nage = { radius = nan }", "'nan' is not a number"),
        ("[columns]\nage = { radius = true }", "'True' is not a number"),
        ("[columns]\nage = { radius = 1, up = 1, down = 1 }", "columns.age.radius: has no effect beside up and down"),
        ("[columns]\nage = { min = 3, max = 2 }", "columns.age.min: 3 is above max = 2"),
        ("[columns]\nage = { min = 0.2, max = 0.8, integer = true }", "no whole number lies from 0.2 to 0.8"),
        ("[columns]\nage = { integer = 1 }", "columns.age.integer: '1' is neither true nor false"),
        ("[columns]\nage = { range = [1] }", "columns.age.range: expected the two ends"),
        ("[columns]\nage = { range = [2, 1] }", "give the smaller end first"),
        ("[columns]\nage = { values = [] }", "columns.age.values: expected a list of numbers"),
        ("[columns]\nage = { values = [1, 1.0] }", "a value is listed twice"),
        ("[columns]\nage = { values = [inf] }", "values must be finite"),
        ("[columns]\nage = { values = [1], min = 0 }", "columns.age.min: excludes values"),
        ("[columns]\nage = { values = [1], up = 2 }", "columns.age.up: beside values, 0 forbids this direction"),
        ("[columns]\nage = { immutable = true, radius = 2 }", "columns.age.radius: excludes immutable"),
        (
            "[default]\nimmutable = true\n[columns]\nage = { min = 2 }",
            "columns.age.min: excludes immutable",
        ),
        ("one-hot = 3", "attack.toml:1: one-hot 1: expected a list of groups"),
        ("[[one-hot]]\ncolumns = ['red']", "attack.toml:1: one-hot 1: a group needs columns = [..] with two"),
        ("[[one-hot]]\ncolumns = [3, 4]\n[[one-hot]]\ncolumns = [1, 1]", "attack.toml:3: one-hot 2: a column is named"),
        ("[[one-hot]]\ncolumns = [3, 4.5]", "4.5 is not the name or the number of a column"),
        ("[columns]\nagee = {}", "attack.toml:2: columns.agee: data.csv has no column agee; did you mean age?"),
        ("[columns]\n9 = {}", "data.csv has no column 9; numbers go from 0 to 4"),
        ("[columns]\nage = {}\n0 = {}", "attack.toml:3: columns.0: column 0 already has a rule (attack.toml:2"),
        ("[columns]\nred = {}\n[[one-hot]]\ncolumns = ['red', 'green']", "column red already has a rule"),
    ],
)
def test_broken_files(text: str, message: str) -> None:
    with pytest.raises(PerturbationError, match=re.escape(message)):
        attack(text)


def test_broken_text() -> None:
    with pytest.raises(PerturbationError, match=r"attack\.toml:2: is not UTF-8"):
        parse_attack(b"# a\n# \xff\n", "attack.toml")


def test_values_over_several_lines_are_found() -> None:
    with pytest.raises(PerturbationError, match=r"attack\.toml:3: columns.age.values: 'x' is not a number"):
        attack("[columns.age]\n\nvalues = [\n  1,\n  'x',\n]")


@pytest.mark.parametrize(
    ("text", "sample", "message"),
    [
        ("age = { integer = true }", [1.5, 0, 0, 0, 0], "row 1, age = 1.5 is not a whole number (attack.toml:2"),
        ("sex = { values = [0, 1] }", [1, 2, 0, 0, 0], "row 1, sex = 2.0 is not among the listed values"),
        ("age = { min = 18, up = 1 }", [17, 0, 0, 0, 0], "row 1, age = 17.0 is outside the limits 18 to inf"),
        ("age = { max = 60 }", [61, 0, 0, 0, 0], "row 1, age = 61.0 is outside the limits -inf to 60"),
        ("\n[[one-hot]]\ncolumns = [3, 4]", [20, 0, 0, 1, 1], "row 1: of red, green not exactly one is 1"),
        ("\n[[one-hot]]\ncolumns = [3, 4]", [20, 0, 0, 0.5, 0.5], "row 1: of red, green not exactly one is 1"),
    ],
)
def test_rows_that_break_the_rules(text: str, sample: list[float], message: str) -> None:
    found = attack("[columns]\n" + text)
    with pytest.raises(PerturbationError, match=re.escape(message)):
        found.boxes(rows([[30, 0, 1.5, 1, 0], sample]))


def test_other_columns_are_refused() -> None:
    with pytest.raises(PerturbationError, match=r"has 2 features, attack\.toml was made to fit 5"):
        attack("").boxes(rows([[1, 2]], None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default = " + "[" * 3000, "is nested too deeply"),
        ("default = " + "{a = " * 3000, "is nested too deeply"),
        (".".join(["a"] * 3000) + " = 1", "is nested too deeply"),
        ("columns = " + "[" * 900 + "]" * 900, "is nested too deeply"),
        ("default.radius = " + "9" * 5000, "is not TOML: Exceeds the limit"),
        ("default.radius = 0x" + "f" * 5000, "the number is too large"),
        ("default.radius = 1" + "0" * 400, "the number is too large"),
        ("x" * 3000 + " = 1", "unknown key"),
    ],
)
def test_absurd_files(text: str, message: str) -> None:
    with pytest.raises(PerturbationError, match=message) as caught:
        parse_attack(text.encode(), "attack.toml")
    assert len(str(caught.value)) < 400


def test_values_that_may_become_missing() -> None:
    text = """[default]
radius = 0.1
missing = "may appear"
[columns]
a = { immutable = true }
b = { immutable = true, missing = "may appear" }
c = { missing = "stays" }
d = { values = [0, 1] }
"""
    rules = parse_attack(text.encode(), "attack.toml")
    assert rules.default.may_be_dropped
    assert {name: rule.may_be_dropped for name, rule in rules.columns.items()} == {
        "a": False, "b": True, "c": False, "d": True,
    }  # fmt: skip
    with pytest.raises(PerturbationError, match=r'toml:2: default.missing: .always. is unknown; write "stays" or'):
        parse_attack(b'[default]\nmissing = "always"\n', "attack.toml")


def test_rules_have_a_short_description() -> None:
    rules = parse_attack(b"[columns]\na = { radius = 1 }\nb = { immutable = true }\n", "attack.toml")
    assert repr(rules) == "<AttackRules attack.toml: columns a, b>"
    assert repr(parse_attack(b"[default]\nradius = 1\n", "attack.toml")) == "<AttackRules attack.toml>"
