"""Attacks in the words of the table: patterns, categories, swaps and relative radii, against an enumeration."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae import api
from metasilvae._core.common.values import rank_boxes
from metasilvae.dataset import Dataset
from metasilvae.encoding import BOOLEAN, CATEGORY, Column, Encoding
from metasilvae.errors import MetasilvaeWarning, PerturbationError
from metasilvae.output.text.datasets import list_rules
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.attack_templates import write_template
from metasilvae.perturbations.boxes import Ball, Enlarged
from metasilvae.prediction import predict
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import find_witnesses, verify

COLUMNS = (
    Column("size"),
    Column("count"),
    Column("colour", CATEGORY, ("blue", "green", "red"), has_missing=True),
    Column("old", BOOLEAN, ("no", "yes")),
)
ENCODING = Encoding(COLUMNS)
RULES = """
[columns]
size = { radius = "50% of value" }
count = { radius = "40% of value", integer = true }
colour = { swap = [["blue", "red"]] }
old = { any = true }
"""


def make_rows(cells: list[tuple[float, float, int, float]], y: list[int] | None = None) -> Dataset:
    X = np.zeros((len(cells), ENCODING.n_features))
    for row, (size, count, colour, old) in enumerate(cells):
        X[row, [0, 1, 6]] = size, count, old
        X[row, 2 + colour] = 1
    labels = np.array(y if y is not None else [row % 2 for row in range(len(cells))], dtype=np.int32)
    return Dataset(
        X, labels, ("a", "b"), ENCODING.feature_names, "table", encoding=ENCODING, indicators=ENCODING.is_indicator
    )


def attack_of(text: str, dataset: Dataset):
    return fit_attack(parse_attack(text.encode(), "attack.toml"), dataset)


ROWS = st.tuples(
    st.sampled_from([-3.0, -0.5, 0.0, 0.25, 1.0, 2.0, 7.0]), st.sampled_from([-6.0, -1.0, 0.0, 2.0, 3.0, 5.0, 9.0]),
    st.integers(0, 3), st.sampled_from([0.0, 1.0]),
)  # fmt: skip
COLOURS = [None, "any = true", 'swap = [["blue", "red"]]', 'swap = [["green", "red", "blue"]]', "immutable = true"]
# Categories (blue, green, red, missing) that each category may become.
REACHED = {
    COLOURS[0]: {0: {0}, 1: {1}, 2: {2}, 3: {3}},
    COLOURS[1]: {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}, 3: {3}},
    COLOURS[2]: {0: {0, 2}, 1: {1}, 2: {0, 2}, 3: {3}},
    COLOURS[3]: {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}, 3: {3}},
    COLOURS[4]: {0: {0}, 1: {1}, 2: {2}, 3: {3}},
}


def list_points(row: np.ndarray, colour: str | None, thresholds: list[float], size: Fraction, count: Fraction):
    """Representatives of all rows that the attack allows, by the definition: ends, thresholds and points above them."""
    radius = float(size * abs(Fraction(row[0])))
    low, high = row[0] - radius, row[0] + radius
    cuts = [*thresholds, *(math.nextafter(t, math.inf) for t in thresholds)]
    sizes = sorted({low, high, row[0], *(t for t in cuts if low <= t <= high)})
    reach = math.floor(count * abs(Fraction(row[1])))
    counts = [row[1] + step for step in range(-reach, reach + 1)]
    for s, c, member, old in itertools.product(sizes, counts, REACHED[colour][int(np.argmax(row[2:6]))], (0.0, 1.0)):
        point = np.zeros(7)
        point[[0, 1, 6]] = s, c, old
        point[2 + member] = 1
        yield point


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROWS, min_size=4, max_size=12),
    st.sampled_from(COLOURS),
    st.sampled_from(["10", "50", "100", "33.3"]),
    st.sampled_from([None, 3]),
)
def test_verdicts_and_training_are_exact(cells, colour: str | None, percent: str, trees: int | None) -> None:
    dataset = make_rows(cells)
    text = f'[columns]\nsize = {{ radius = "{percent}% of value" }}\nold = {{ any = true }}\n'
    text += 'count = { radius = "40% of value", integer = true }\n'
    text += "" if colour is None else f"colour = {{ {colour} }}\n"
    attack = attack_of(text, dataset)
    # Training compares the counts of its kernels with those of the verifier at its end.
    options = {"min_samples_leaf": 1, "tune": False, "leaf_penalty": 0.0, "generations": 2, "population": 4}
    model = api.train(dataset, attack, jobs=1, **options) if trees is None else api.train(
        dataset, attack, jobs=1, preset="fast", trees=trees, min_samples_leaf=1
    )  # fmt: skip
    query = make_query(model, dataset, attack)
    outcome = verify(query, 1)
    thresholds = model.nodes["threshold"][model.nodes["feature"] == 0].tolist()
    for row in range(dataset.n_samples):
        points = list(list_points(dataset.X[row], colour, thresholds, Fraction(percent) / 100, Fraction(2, 5)))
        found = predict(model, np.array(points))
        own = predict(model, dataset.X[[row]])
        expected = {found.sets[number] for number in found.ids} == {own.sets[own.ids[0]]}
        assert (outcome.stability[row] == Stability.STABLE) == expected
    assert len(list(find_witnesses(query, outcome, 1))) == outcome.counts.unstable  # each is checked when it is found


@settings(max_examples=100, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=8), st.sampled_from([0.0, 0.5, 1.0, 1.15, 4.0]))
def test_boxes_of_a_multiple(cells, factor: float) -> None:
    dataset = make_rows(cells)
    attack = attack_of(RULES, dataset)
    lower, upper = Enlarged(attack, factor).boxes(dataset).all_bounds
    for row, x in enumerate(dataset.X):
        size = float(min(Fraction(1, 2) * Fraction(factor), Fraction(1)) * abs(Fraction(x[0])))
        assert (lower[row, 0], upper[row, 0]) == (x[0] - size, x[0] + size)
        count = math.floor(min(Fraction(2, 5) * Fraction(factor), Fraction(1)) * abs(Fraction(x[1])))
        assert (lower[row, 1], upper[row, 1]) == (x[1] - count, x[1] + count)
        can_swap = factor > 0 and (x[2] == 1 or x[4] == 1)
        assert (lower[row, 2], upper[row, 2]) == ((0, 1) if can_swap else (x[2], x[2]))
        assert (lower[row, 3], upper[row, 3]) == (x[3], x[3])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_ranks_of_boxes(cells) -> None:
    X = np.array([[float(x)] for x, _, _ in cells])
    lower, upper = (X + sign * np.array([[float(c[place])] for c in cells]) for sign, place in ((-1, 1), (1, 2)))
    ranked = rank_boxes(X, lower, upper)
    triples = sorted({(x[0], a[0], b[0]) for x, a, b in zip(X, lower, upper, strict=True)})
    is_increasing = all(a[1] <= b[1] and a[2] <= b[2] for a, b in itertools.pairwise(triples))
    assert (ranked is not None) == is_increasing
    if ranked is not None:
        codes, values, _, lower_ends, upper_ends = ranked
        assert list(zip(values, lower_ends, upper_ends, strict=True)) == triples
        np.testing.assert_array_equal(values[codes[0]], X[:, 0])
        np.testing.assert_array_equal(lower_ends[codes[0]], lower[:, 0])


def test_rules_in_words() -> None:
    dataset = make_rows([(1.0, 2.0, 0, 1.0), (2.0, 3.0, 3, 0.0)])
    assert [(names[0], words) for names, words in list_rules(attack_of(RULES, dataset), dataset)] == [
        ("size", "up or down by at most 50 % of the value"),
        ("count", "whole numbers, up or down by at most 40 % of the value"),
        ("colour", "may become each other: blue, red; 2 stay"),
        ("old", "may change, no or yes"),
    ]


def test_patterns_and_defaults() -> None:
    dataset = make_rows([(1.0, 2.0, 0, 1.0), (2.0, 3.0, 3, 0.0)])
    attack = attack_of('[default]\nradius = 3\n[columns]\n"s*" = { up = 1 }\n', dataset)
    assert attack.radius_up.tolist() == [1, 3, 0, 0, 0, 0, 0]
    assert attack.radius_down.tolist() == [0, 3, 0, 0, 0, 0, 0]
    exact = attack_of('[columns]\n"*o*" = { immutable = true }\ncount = { up = 2 }\n', dataset)
    assert exact.radius_up.tolist() == [0, 2, 0, 0, 0, 0, 0]


def test_epsilon_moves_numbers_only() -> None:
    dataset = make_rows([(1.0, 2.0, 0, 1.0)])
    boxes = Ball(5.0).boxes(dataset)
    assert boxes.radius_up.tolist() == [5, 5, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[columns]\n"z*" = { up = 1 }', "no column of table matches z*"),
        ('[columns]\n"s*" = { up = 1 }\n"*e" = { up = 2 }', "size matches s* and *e; give it a rule of its own"),
        ("[columns]\ncolour = { radius = 1 }", "colour is a category; write any = true, swap = [[..]]"),
        ("[columns]\nold = { values = [0, 1] }", "old is a boolean; write any = true"),
        ("[columns]\nsize = { any = true }", "size is a number; radius = inf allows any value"),
        ('[columns]\ncolour = { swap = [["blue", "rot"]] }', "colour has no value 'rot'; its values are blue"),
        ('[columns]\ncolour = { swap = [["blue", "(missing)"]] }', "colour has no value '(missing)'"),
        ('[columns]\ncolour = { swap = [["blue", "red"], ["red", "green"]] }', "'red' is listed twice"),
        ('[columns]\nsize = { radius = "101% of value" }', "give at most 100% of value"),
        ('[columns]\nsize = { radius = "5% of values" }', 'write a number, "5% of range" or "5% of value"'),
        ("[columns]\ncolour = { any = true, up = 1 }", "excludes any"),
        ('[columns]\n"colour = red" = { up = 1 }', "table has no column colour = red; did you mean colour?"),
    ],
)
def test_rules_that_do_not_fit(text: str, message: str) -> None:
    dataset = make_rows([(1.0, 2.0, 0, 1.0)])
    with pytest.raises(PerturbationError) as caught:
        attack_of(text, dataset)
    assert message in str(caught.value)


def test_a_percentage_alone_warns_and_means_the_range() -> None:
    dataset = make_rows([(1.0, 2.0, 0, 1.0), (3.0, 3.0, 3, 0.0)])
    with pytest.warns(MetasilvaeWarning, match='write that, or "50% of value"'):
        rules = parse_attack(b'[columns]\nsize = { radius = "50%", range = [0, 4] }\n', "attack.toml")
    assert fit_attack(rules, dataset).radius_up[0] == 2


def test_certified_radii_need_common_radii() -> None:
    dataset = make_rows([(1.0, 2.0, 0, 1.0), (2.0, 3.0, 3, 0.0)])
    attack = attack_of(RULES, dataset)
    model = api.train(dataset, attack, preset="fast", min_samples_leaf=1)
    with pytest.raises(Exception, match="no common radii"):
        api.find_radii(model, dataset, attack)


def test_templates_guess_codes_and_categories() -> None:
    cells = [(float(n) / 7, float(n % 3), n % 4, float(n % 2)) for n in range(40)]
    dataset = make_rows(cells)
    text = "".join(write_template(dataset))
    lines = {line.split(" = ")[0]: line for line in text.splitlines() if " = {" in line}
    assert 'radius = "5% of range"' in lines["size"]
    assert "immutable = true" in lines["count"]
    assert lines["colour"] == 'colour = { immutable = true }  # values "blue", "green", "red", "(missing)"'
    assert lines["old"].startswith("old = { immutable = true }")
    fair = "".join(write_template(dataset, "fairness-cat", ["colour", "old"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attack = fit_attack(parse_attack(fair.encode(), "fair.toml"), dataset)
    assert attack.boxes(dataset).groups.n_groups == 1
