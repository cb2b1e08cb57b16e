"""Table groups: categories that splits divide into sets, against the enumeration of all rows that an attack allows."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import elect, make_model, power_of_distance

from metasilvae.analysis.difference import DifferenceStatus, compare_models
from metasilvae.analysis.explanation import explain
from metasilvae.analysis.simplification import simplify
from metasilvae.dataset import Dataset
from metasilvae.encoding import CATEGORY, Column, Encoding
from metasilvae.model import Model, ModelDescription, share_encoding
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.groups import Group, TableGroups, pack_options
from metasilvae.perturbations.norms import SHARED_NORMS, NormBall
from metasilvae.verification.ceiling import find_ceiling
from metasilvae.verification.distances import as_distance, exact_power, largest_below
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import find_nearest_witnesses, find_radii
from metasilvae.verification.targets import TargetStatus, find_changes, find_targets
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import find_witnesses, verify
from metasilvae.voting import choose_voting

LABELS = ("no", "yes", "perhaps")


def random_encoding(rng: random.Random) -> Encoding:
    columns = []
    for name in ("job", "town"):
        n_values = rng.choice([2, 3, 5, 70])
        values = tuple(f"{name[0]}{n}" for n in range(n_values))
        width = n_values + 2
        n_sets = rng.randint(0, 4)
        sets = {"".join(rng.choice("01") for _ in range(width)) for _ in range(n_sets)}
        columns.append(Column(name, CATEGORY, values, True, True, tuple(sorted(sets))))
    return Encoding((Column("age"), columns[0], Column("pay"), columns[1]))


def random_forest(rng: random.Random, encoding: Encoding, n_trees: int) -> Model:
    tested = [f for f, name in enumerate(encoding.feature_names) if name not in ("job", "town")]

    def grow(depth: int) -> object:
        if depth == 0 or rng.random() < 0.2:
            return [rng.randint(0, 3) for _ in LABELS[:2]] + [0]
        f = rng.choice(tested)
        # Models of this package may test a feature that is 0 or 1 anywhere between.
        threshold = float(rng.randint(-2, 2)) if not encoding.is_indicator[f] else rng.choice([0.0, 0.5, 0.7])
        return (f, threshold, grow(depth - 1), grow(depth - 1))

    def one_of(leaf: object) -> object:
        if isinstance(leaf, list):
            return leaf if max(leaf) > 0 else [1, 0, 0]
        return (leaf[0], leaf[1], one_of(leaf[2]), one_of(leaf[3]))

    trees = [one_of(grow(rng.randint(1, 5))) for _ in range(n_trees)]
    model = make_model(trees, encoding.n_features, LABELS, is_forest=n_trees > 1)
    return replace(model, description=ModelDescription(encoding.feature_names, encoding=encoding.as_json()))


def encode(encoding: Encoding, rows: list[list[float]]) -> np.ndarray:
    """Rows of numbers and positions of values, as features."""
    X = np.zeros((len(rows), encoding.n_features))
    for place, column in enumerate(encoding.columns):
        features = encoding.features_of(place)
        for row, cells in enumerate(rows):
            if column.sets is None:
                X[row, features[0]] = cells[place]
            else:
                X[row, features[:-1]] = [float(each[int(cells[place])]) for each in column.sets]
                X[row, features[-1]] = cells[place]
    return X


def random_rules(rng: random.Random, encoding: Encoding) -> tuple[str, dict[str, dict[int, set[int]]]]:
    """An attack file, and which positions each position of a category may become."""
    lines, moves = ["[columns]"], {}
    for column in encoding.columns:
        n = len(column.values)
        if column.sets is None:
            lines.append(f"{column.name} = {{ radius = {rng.choice(['0.0', '1.0', '0.5'])} }}")
            continue
        may = {value: {value} for value in range(n)}
        kind = rng.choice(["fixed", "any", "swap", "missing", "any or missing"])
        if kind.startswith("any"):
            may = {value: set(range(n - 1)) if value < n - 1 else {value} for value in range(n)}
        if kind == "swap":
            chosen = rng.sample(range(n - 1), rng.randint(2, min(n - 1, 4)))
            lines.append(f"{column.name} = {{ swap = [{[column.values[v] for v in chosen]}] }}")
            may |= {value: set(chosen) for value in chosen}
        if kind.endswith("missing"):
            may = {value: allowed | {n - 1} for value, allowed in may.items()}
        missing = ', missing = "may appear"' if kind.endswith("missing") else ""
        if kind != "swap":
            what = "any = true" if kind.startswith("any") else "immutable = true"
            lines.append(f"{column.name} = {{ {what}{missing} }}")
        moves[column.name] = may
    return "\n".join(lines), moves


def perturbed(encoding: Encoding, query: VerificationQuery, moves: dict, cells: list[float], factor: float = 1.0):
    """Rows that stand for all rows that the attack allows."""
    choices = []
    for place, column in enumerate(encoding.columns):
        value = cells[place]
        if column.sets is not None:
            choices.append(sorted(moves[column.name][int(value)]) if factor else [value])
            continue
        f = encoding.starts[place]
        radius = factor * query.boxes.radius_up[f]
        low, high = value - radius, value + radius
        thresholds = query.model.nodes["threshold"][query.model.nodes["feature"] == f].tolist()
        ends = {low, value, high, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)}
        choices.append([x for x in ends if low <= x <= high])
    return encode(encoding, list(map(list, itertools.product(*choices))))


def answers(model: Model, X: np.ndarray, voting: str) -> set[tuple[int, ...]]:
    return {elect(model, x, voting) for x in np.unique(X, axis=0).tolist()}


def make_case(seed: int, n_trees: int):
    rng = random.Random(seed)
    encoding = random_encoding(rng)
    model = random_forest(rng, encoding, n_trees)
    cells = [
        [float(rng.randint(-2, 2)) if c.sets is None else rng.randrange(len(c.values)) for c in encoding.columns]
        for _ in range(4)
    ]
    y = np.array([rng.randrange(3) for _ in cells], dtype=np.int32)
    dataset = Dataset(
        encode(encoding, cells), y, LABELS, encoding.feature_names, encoding=encoding, indicators=encoding.is_indicator
    )
    text, moves = random_rules(rng, encoding)
    attack = fit_attack(parse_attack(text.encode(), "attack.toml"), dataset)
    return encoding, make_query(model, dataset, attack), moves, cells, attack


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]))
def test_verdicts_are_those_of_the_enumeration(seed: int, n_trees: int) -> None:
    encoding, query, moves, cells, _attack = make_case(seed, n_trees)
    outcome = verify(query, 1)
    for row, own in enumerate(cells):
        X = perturbed(encoding, query, moves, own)
        is_stable = len(answers(query.model, X, query.voting)) == 1
        assert outcome.stability[row] == (Stability.STABLE if is_stable else Stability.UNSTABLE)
    # Each witness is checked against the attack and classified again.
    for witness in find_witnesses(query, outcome, 1):
        decoded = encoding.decode(witness.point)
        for place, column in enumerate(encoding.columns):
            if column.sets is not None:
                value = int(witness.point[encoding.starts[place + 1] - 1])
                assert value in moves[column.name][int(cells[witness.row][place])]
                assert decoded[place] == ("" if value == len(column.values) - 1 else column.values[value])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3]))
def test_radii_are_the_largest_stable_ones(seed: int, n_trees: int) -> None:
    encoding, query, moves, cells, _attack = make_case(seed, n_trees)
    radii = find_radii(query, 1)
    assert np.array_equal(radii.lower, radii.upper)
    for row, own in enumerate(cells):
        radius = float(radii.lower[row])
        largest = 10.0 if math.isinf(radius) else radius
        assert len(answers(query.model, perturbed(encoding, query, moves, own, largest), query.voting)) == 1
        if not math.isinf(radius):
            above = perturbed(encoding, query, moves, own, math.nextafter(radius, math.inf))
            assert len(answers(query.model, above, query.voting)) > 1
    assert len(list(find_nearest_witnesses(query, radii, 1))) == int(np.isfinite(radii.upper).sum())


def cost_of(norm: str, encoding: Encoding, costs: list[float], own: list[float], other: np.ndarray) -> Fraction:
    """The distance of two rows, squared for l2; a category that differs is a change by 1."""
    groups = [list(encoding.features_of(place)) for place, c in enumerate(encoding.columns) if c.sets is not None]
    return power_of_distance(norm, encode(encoding, [own])[0].tolist(), other.tolist(), costs, groups)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]), st.sampled_from(SHARED_NORMS))
def test_distances_and_targets_are_those_of_the_enumeration(seed: int, n_trees: int, norm: str) -> None:
    encoding, query, moves, cells, attack = make_case(seed, n_trees)
    rng = random.Random(seed + 1)
    by_column = [float(rng.choice([1, 1, 2, 3])) for _ in encoding.columns]
    costs = [by_column[place] for place in range(len(by_column)) for _ in encoding.features_of(place)]
    attack = replace(attack, costs=np.array(costs))
    normed = make_query(query.model, query.dataset, NormBall(norm, within=attack))
    radii = find_radii(normed, 1)
    target = rng.randrange(3)
    results = find_targets(normed, target, 1, is_nearest=True)
    assert results.distances is not None
    epsilon = float(rng.randint(0, 4))
    outcome = verify(make_query(query.model, query.dataset, NormBall(norm, epsilon, attack)), 1)
    for row, own in enumerate(cells):
        X = perturbed(encoding, query, moves, own)
        found = [(elect(query.model, x.tolist(), query.voting), cost_of(norm, encoding, costs, own, x)) for x in X]
        before = elect(query.model, encode(encoding, [own])[0].tolist(), query.voting)
        others = [cost for prediction, cost in found if prediction != before]
        assert radii.is_exact[row]
        assert radii.lower[row] == (largest_below(norm, min(others)) if others else math.inf)
        reached = [cost for prediction, cost in found if prediction == (target,)]
        assert results.distances[row] == (as_distance(norm, min(reached)) if reached else math.inf)
        is_stable = all(cost > exact_power(norm, Fraction(epsilon)) for cost in others)
        assert outcome.stability[row] == (Stability.STABLE if is_stable else Stability.UNSTABLE)
    # Each change is checked against the attack, the distance and the prediction.
    changes = list(find_changes(normed, results))
    assert len(changes) == results.counts[TargetStatus.REACHABLE]
    assert len(list(find_nearest_witnesses(normed, radii))) == int(np.isfinite(radii.upper).sum())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]))
def test_targets_within_boxes_are_those_of_the_enumeration(seed: int, n_trees: int) -> None:
    encoding, query, moves, cells, _attack = make_case(seed, n_trees)
    target = seed % 3
    results = find_targets(query, target, 1)
    for row, own in enumerate(cells):
        X = perturbed(encoding, query, moves, own)
        is_reached = (target,) in answers(query.model, X, query.voting)
        assert (results.statuses[row] != TargetStatus.UNREACHABLE) == is_reached
    assert len(list(find_changes(query, results))) == results.counts[TargetStatus.REACHABLE]
    nearest = find_targets(query, target, 1, is_nearest=True)
    assert nearest.distances is not None
    for row, own in enumerate(cells):
        distance = float(nearest.distances[row])
        largest = 10.0 if math.isinf(distance) else math.nextafter(distance, 0.0)
        if distance > 0:
            X = perturbed(encoding, query, moves, own, largest)
            assert (target,) not in answers(query.model, X, query.voting)
    assert len(list(find_changes(query, nearest))) == nearest.counts[TargetStatus.REACHABLE]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3]))
def test_frozen_features_make_rows_stable(seed: int, n_trees: int) -> None:
    encoding, query, moves, cells, _attack = make_case(seed, n_trees)
    columns = [encoding.starts[place + 1] - 1 for place in range(len(encoding.columns))]
    for row in explain(query, 1).rows:
        frozen = row.frozen.features
        # A category is moved and frozen as a whole.
        assert row.frozen.is_smallest
        assert frozen is not None
        assert set(row.moved) | set(frozen) <= set(columns)
        X = perturbed(encoding, query, moves, cells[row.row])
        start = query.dataset.X[row.row]

        def is_stable(features: tuple[int, ...], X: np.ndarray = X, start: np.ndarray = start) -> bool:
            kept = X[(X[:, features] == start[list(features)]).all(axis=1)]
            return len(answers(query.model, kept, query.voting)) == 1

        assert is_stable(frozen)
        assert not any(is_stable(fewer) for fewer in itertools.combinations(columns, len(frozen) - 1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_conflicts_are_those_of_the_enumeration(seed: int) -> None:
    encoding, query, moves, cells, attack = make_case(seed, 1)

    def places(row: int, column: str, place: int) -> set[int]:
        return set(moves[column][int(cells[row][place])])

    def conflict(one: int, other: int) -> bool:
        if query.dataset.y[one] == query.dataset.y[other]:
            return False
        for place, column in enumerate(encoding.columns):
            if column.sets is None:
                radius = query.boxes.radius_up[encoding.starts[place]]
                if abs(cells[one][place] - cells[other][place]) > 2 * radius:
                    return False
            elif not places(one, column.name, place) & places(other, column.name, place):
                return False
        return True

    pairs = [(i, j) for i in range(4) for j in range(i) if conflict(i, j)]
    kept = max(
        sum(chosen)
        for chosen in itertools.product([0, 1], repeat=4)
        if not any(chosen[i] and chosen[j] for i, j in pairs)
    )
    ceiling = find_ceiling(query.dataset, attack)
    assert ceiling.reached <= kept <= ceiling.robust
    assert ceiling.n_conflicts == len(pairs)


def test_sets_of_options_are_bits_of_words() -> None:
    is_in = np.zeros((2, 70), dtype=np.bool_)
    is_in[0, [0, 63, 64]] = is_in[1, 69] = True
    assert pack_options(is_in, 2).tolist() == [[1 | 1 << 63, 1], [0, 1 << 5]]


def test_one_hot_groups_and_codes_find_options() -> None:
    one_hot = Group.one_hot([2, 0])
    assert one_hot.find_options(np.array([[1.0, 5, 0], [0, 5, 1], [1, 5, 1], [0, 5, 0]])).tolist() == [1, 0, -1, -1]
    table = np.array([[True], [False], [True]])
    coded = Group((0,), table, 1)
    X = np.array([[1.0, 0], [0, 1], [1, 2], [0, 2], [1, 3], [1, 0.5]])
    assert coded.find_options(X).tolist() == [0, 1, 2, -1, -1, -1]
    assert TableGroups((one_hot, coded)).n_words == 1


@pytest.mark.parametrize("n_trees", [1, 3])
def test_a_ball_leaves_categories_as_they_are(n_trees: int) -> None:
    from metasilvae.perturbations.boxes import Ball

    encoding, query, moves, cells, _ = make_case(5, n_trees)
    balls = make_query(query.model, query.dataset, Ball(1.0))
    fixed = {name: {value: {value} for value in may} for name, may in moves.items()}
    outcome = verify(balls, 1)
    for row, own in enumerate(cells):
        X = perturbed(encoding, balls, fixed, own)
        assert (outcome.stability[row] == Stability.STABLE) == (len(answers(query.model, X, query.voting)) == 1)


# Differences and simplification


def all_rows(encoding: Encoding, *models: Model) -> np.ndarray:
    """Rows such that every possible row falls into the same leaves as one of them; without missing numbers."""
    choices = []
    for place, column in enumerate(encoding.columns):
        if column.sets is not None:
            choices.append(list(range(len(column.values))))
            continue
        f = encoding.starts[place]
        thresholds = {k for m in models for k in m.nodes["threshold"][m.nodes["feature"] == f].tolist()}
        choices.append([0.0, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)])
    return np.unique(encode(encoding, list(map(list, itertools.product(*choices)))), axis=0)


def small_encoding(rng: random.Random) -> Encoding:
    encoding = random_encoding(rng)
    while max(len(column.categories) for column in encoding.columns) > 5:
        encoding = random_encoding(rng)
    return encoding


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2]))
def test_differences_are_those_of_possible_rows(seed: int, n_trees: int) -> None:
    rng = random.Random(seed)
    encoding = small_encoding(rng)
    first, second = (random_forest(rng, encoding, n_trees) for _ in range(2))
    if rng.random() < 0.5:
        second = simplify(first) if rng.random() < 0.5 else first
    X = all_rows(encoding, first, second)
    voting = choose_voting(first, None)
    differ = any(elect(first, x, voting) != elect(second, x, voting) for x in X.tolist())
    found = compare_models(first, second)
    assert found.result == (DifferenceStatus.DIFFERENT if differ else DifferenceStatus.EQUAL)
    for region in found.regions:
        place = encoding.starts[1:]
        cells = [region.point[end - 1] for end in place]
        assert np.array_equal(encode(encoding, [cells])[0], region.point)
        one, other = (elect(model, region.point.tolist(), voting) for model in (first, second))
        assert one != other


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3]))
def test_simplified_models_are_equal_on_possible_rows(seed: int, n_trees: int) -> None:
    rng = random.Random(seed)
    encoding = small_encoding(rng)
    model = random_forest(rng, encoding, n_trees)
    simple = simplify(model)
    voting = choose_voting(model, None)
    assert simple.n_nodes <= model.n_nodes
    for x in all_rows(encoding, model).tolist():
        assert elect(model, x, voting) == elect(simple, x, voting)


def test_tests_that_the_categories_decide_are_dropped() -> None:
    column = Column("job", CATEGORY, ("a", "b", "c"), True, True, ("10000", "11000"))
    encoding = Encoding((column,))
    # Whoever is in {a} is in {a, b}.
    tree = (0, 0.5, [1, 0, 0], (1, 0.5, [0, 1, 0], [0, 0, 1]))
    model = make_model([tree], encoding.n_features, LABELS)
    assert simplify(model).n_leaves == 3
    described = replace(model, description=ModelDescription(encoding.feature_names, encoding=encoding.as_json()))
    assert simplify(described).n_leaves == 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_models_with_other_sets_share_an_encoding(seed: int) -> None:
    rng = random.Random(seed)
    encodings = [small_encoding(rng) for _ in range(2)]
    models = [random_forest(rng, encoding, 2) for encoding in encodings]
    shared = share_encoding(*models)
    joined = shared[0].encoding
    assert joined == shared[1].encoding
    for own, old, new in zip(encodings, models, shared, strict=True):
        voting = choose_voting(old, None)
        for cells in itertools.product(
            *[[0.0, 1.0] if c.sets is None else range(len(c.values)) for c in joined.columns]
        ):
            known = list(cells)
            for place, column in enumerate(joined.columns):
                if column.sets is not None:
                    value = column.values[int(cells[place])]
                    values = own.columns[place].values
                    known[place] = values.index(value) if value in values else len(values) - 2
            x, y = encode(joined, [list(cells)])[0], encode(own, [known])[0]
            assert elect(new, x.tolist(), voting) == elect(old, y.tolist(), voting)
