"""Distances in the norms l0, l1 and l2 against enumeration, exact fractions and a mixed-integer program."""

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
from support.attacks import Case, random_case
from support.oracles import (
    LARGEST,
    boxes_of_leaves,
    cells_of,
    collapse,
    data_of,
    elect,
    make_model,
    models,
    points,
    power_of_distance,
    random_model,
    with_directions,
)

from metasilvae.errors import PerturbationError, RequestError
from metasilvae.model import LeafKind, Model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.norms import SHARED_NORMS, NormBall
from metasilvae.verification.budget import Budget
from metasilvae.verification.curve import trace_curve
from metasilvae.verification.distances import as_distance, exact_power, largest_below
from metasilvae.verification.nearest import goal_of_target, goals_for, search_rows
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import find_nearest_witnesses, find_radii
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import find_witnesses, verify

norms = st.sampled_from(SHARED_NORMS)


def query_of(model: Model, rows: list[list[float]], ball: NormBall, voting: str | None = None) -> VerificationQuery:
    return make_query(model, data_of(rows, [model.labels[0]] * len(rows)), ball, voting=voting)


def nearest_by_enumeration(
    model: Model, sample: list[float], norm: str, voting: str, target: int | None = None
) -> Fraction | None:
    """The smallest cost of a point with another prediction, or with one label only."""
    before = elect(model, sample, voting)
    found = [
        power_of_distance(norm, sample, point, [1.0] * len(sample))
        for point in cells_of(model, sample)
        if (elect(model, point, voting) != before if target is None else elect(model, point, voting) == (target,))
    ]
    return min(found, default=None)


def search(query: VerificationQuery, target: int | None = None) -> list[Fraction | None]:
    """Nearest costs, after a check that the searches were finished and that the points are real."""
    predictions, _ = query.classify(1)
    n_labels = query.model.n_labels
    goals = goals_for(query, predictions) if target is None else lambda row: [goal_of_target(target, n_labels)]
    found = search_rows(query, goals, is_nearest=True, jobs=1)
    assert found.reasons == {}
    limit = query.boxes.limit
    assert limit is not None
    for row, cost in enumerate(found.costs):
        sample, point = query.dataset.X[row].tolist(), found.points[row].tolist()
        assert found.at_least[row] == (math.inf if cost is None else cost)
        if cost is not None:
            assert power_of_distance(limit.norm, sample, point, limit.costs.tolist(), query.groups.lists) == cost
            after = elect(query.model, point, query.voting)
            assert after != elect(query.model, sample, query.voting) if target is None else after == (target,)
    return found.costs


@settings(max_examples=200, deadline=None)
@given(st.data(), norms)
def test_nearest_points_are_those_of_enumeration(data: st.DataObject, norm: str) -> None:
    # Counts and scores, ties, thresholds that samples lie on, huge and tiny numbers, scores that are rounded.
    model = data.draw(models(max_trees=3, max_splits=4))
    voting = "softargmax" if model.leaf_kind is LeafKind.SCORES else data.draw(st.sampled_from(["max", "average"]))
    rows = data.draw(st.lists(points(model), min_size=1, max_size=2))
    target = data.draw(st.sampled_from([None, *range(model.n_labels)]))
    query = query_of(model, rows, NormBall(norm), voting)
    expected = [nearest_by_enumeration(model, row, norm, voting, target) for row in query.dataset.X.tolist()]
    assert search(query, target) == expected


@pytest.mark.parametrize("norm", SHARED_NORMS)
def test_many_random_forests(norm: str) -> None:
    rng = random.Random(norm)
    for _ in range(60):
        model = random_model(rng, rng.randint(2, 5), 5, rng.randint(1, 3))
        rows = [[rng.choice([rng.random(), float(rng.randint(-4, 4))]) for _ in range(model.n_features)]]
        voting = rng.choice(["max", "average"])
        query = query_of(model, rows, NormBall(norm), voting)
        assert search(query) == [nearest_by_enumeration(model, rows[0], norm, voting)]


@settings(max_examples=100, deadline=None)
@given(st.data(), norms)
def test_the_ball_is_closed_and_radii_are_the_largest_stable_numbers(data: st.DataObject, norm: str) -> None:
    model = data.draw(models(max_trees=2, max_splits=4, kinds=[LeafKind.COUNTS]))
    row = data.draw(points(model))
    query = query_of(model, [row], NormBall(norm))
    radii = find_radii(query, jobs=1)
    assert radii.is_exact.all()
    radius = float(radii.lower[0])
    exact = nearest_by_enumeration(model, query.dataset.X[0].tolist(), norm, query.voting)
    if exact is None:
        assert radius == math.inf
        assert verify(query, jobs=1).stability.tolist() == [Stability.STABLE]
        return
    larger = radius + 1 if norm == "l0" else math.nextafter(radius, math.inf)
    assert exact_power(norm, Fraction(radius)) < exact or radius == 0
    if larger < math.inf:
        assert exact_power(norm, Fraction(larger)) >= exact
        assert is_stable(model, row, norm, larger) is False
    assert is_stable(model, row, norm, radius) is True


def is_stable(model: Model, row: list[float], norm: str, epsilon: float) -> bool:
    query = query_of(model, [row], NormBall(norm, epsilon))
    outcome = verify(query, jobs=1)
    assert len(list(find_witnesses(query, outcome))) == (outcome.stability[0] == Stability.UNSTABLE)
    return bool(outcome.stability[0] == Stability.STABLE)


def with_costs(case: Case, rng: random.Random) -> tuple[str, list[float]]:
    """The attack file of a case with a cost for each column and group, and the costs."""
    costs = [rng.choice([1.0, 1.0, 2.0, 3.0]) for _ in case.columns]
    lines, names = [], [f"c{f}" for f in range(len(costs))]
    members = set(itertools.chain(*case.groups))
    for f, column in enumerate(case.columns):
        if f not in members:
            moves = column.text or "radius = 0.5"
            lines.append(f"{names[f]} = {{ {moves}, cost = {costs[f]} }}")
    for group in case.groups:
        for f in group:
            costs[f] = costs[group[0]]
        lines.append(f"[[one-hot]]\ncolumns = {[names[f] for f in group]}\ncost = {costs[group[0]]}")
    return "[columns]\n" + "\n".join(lines) + "\n", costs


@pytest.mark.parametrize("norm", SHARED_NORMS)
def test_attack_files_limit_what_distances_reach(norm: str) -> None:
    rng = random.Random(f"attack {norm}")
    n_groups = 0
    for _ in range(80):
        n_features = rng.randint(2, 4)
        model = random_model(rng, rng.randint(1, 3), 5, n_features)
        case = random_case(rng, n_features, 2)
        while rng.random() < 0.8 and not case.groups:
            case = random_case(rng, n_features, 2)
        n_groups += len(case.groups)
        text, costs = with_costs(case, rng)
        attack = fit_attack(parse_attack(text.encode(), "attack.toml"), case.dataset)
        dataset = replace(case.dataset, labels=(model.labels[0], model.labels[1]))
        query = make_query(model, dataset, NormBall(norm, within=attack))
        target = rng.choice([None, rng.randrange(model.n_labels)])
        found = search(query, target)
        for row, sample in enumerate(case.dataset.X.tolist()):
            before = elect(model, sample, query.voting)
            predictions = ((point, elect(model, point, query.voting)) for point in case.points(row, model))
            expected = [
                power_of_distance(norm, sample, point, costs, case.groups)
                for point, after in predictions
                if (after != before if target is None else after == (target,))
            ]
            assert found[row] == min(expected, default=None), (text, sample)
    assert n_groups > 5


@pytest.mark.parametrize("norm", SHARED_NORMS)
def test_tiers_count_once(norm: str) -> None:
    rng = random.Random(f"tiers {norm}")
    for _ in range(40):
        model = random_model(rng, rng.randint(1, 3), 5, 4)
        tiers = [0, 1, 1, 1]
        active = rng.randint(1, 3)
        row = [rng.choice([0.3, 1.0, -2.0]), *(float(f == active) for f in (1, 2, 3))]
        dataset = data_of([row], [model.labels[0]])
        query = make_query(model, dataset, NormBall(norm), tiers=tiers)
        before = elect(model, row, query.voting)
        numbers = sorted({point[0] for point in cells_of(model, row)})
        points = [[x, *(float(f == one) for f in (1, 2, 3))] for x in numbers for one in (1, 2, 3)]
        expected = [
            power_of_distance(norm, row, point, [1.0] * 4, [[1, 2, 3]])
            for point in points
            if elect(model, point, query.voting) != before
        ]
        assert search(query) == [min(expected, default=None)]


def test_missing_values_stay_missing() -> None:
    rng = random.Random(5)
    for _ in range(40):
        model = with_directions(random_model(rng, rng.randint(1, 3), 5, 3), rng)
        row = [rng.choice([math.nan, 0.5, 2.0]) for _ in range(3)]
        norm = rng.choice(SHARED_NORMS)
        found = search_rows(
            query := query_of(model, [row], NormBall(norm)), goals_for(query, query.classify(1)[0]), is_nearest=True
        )
        missing = [f for f, x in enumerate(row) if math.isnan(x)]
        known = [0.0 if f in missing else x for f, x in enumerate(row)]
        plain = collapse(model, missing)
        assert found.costs == [nearest_by_enumeration(plain, known, norm, query.voting)]
        assert np.isnan(found.points[0, missing]).all()


def test_radii_come_with_bounds_when_the_budget_is_spent() -> None:
    rng = random.Random(1)
    n_open = 0
    for _ in range(15):
        model = random_model(rng, 12, 12, 4)
        rows = [[rng.random() for _ in range(4)] for _ in range(2)]
        query = query_of(model, rows, NormBall("l1"), "average")
        exact = find_radii(query, jobs=1)
        assert exact.is_exact.all()
        for steps in (1, 3, 10):
            bounds = find_radii(query, jobs=1, budget=Budget(steps=steps))
            n_open += int((~bounds.is_exact).sum())
            assert (bounds.lower <= exact.lower).all()
            assert (bounds.upper >= exact.upper).all()
            assert set(bounds.reasons) == set(np.flatnonzero(~bounds.is_exact).tolist())
            list(find_nearest_witnesses(query, bounds))
        for epsilon in (0.01, 0.2):
            outcome = verify(query_of(model, rows, NormBall("l1", epsilon), "average"), 1, budget=Budget(steps=1))
            for row in range(2):
                known = {Stability.STABLE: exact.lower[row] >= epsilon, Stability.UNSTABLE: exact.lower[row] < epsilon}
                assert known.get(Stability(outcome.stability[row]), row in outcome.reasons)
    assert n_open > 10


def test_the_number_of_threads_changes_nothing() -> None:
    rng = random.Random(2)
    model = random_model(rng, 8, 10, 4)
    rows = [[rng.random() for _ in range(4)] for _ in range(40)]
    query = query_of(model, rows, NormBall("l2"))
    one, three = (find_radii(query, jobs=jobs) for jobs in (1, 3))
    assert one.lower.tolist() == three.lower.tolist()
    assert one.witness_points is not None
    assert three.witness_points is not None
    assert one.witness_points.tobytes() == three.witness_points.tobytes()


def test_curves_fall_at_the_radii() -> None:
    model = make_model([(0, 1.0, [3, 0], [0, 3])])
    dataset = data_of([[0.0, 0.0], [1.0, 0.0], [1.5, 0.0]], ["a", "a", "b"])
    curve = trace_curve(model, dataset, NormBall("l1"), jobs=1)
    assert curve.stability(0.4) == 2 / 3
    assert curve.stability(0.5) == 1 / 3
    assert curve.stability(1.0) == 1 / 3
    assert curve.stability(1.1) == 0.0


@given(st.fractions(min_value=0), st.integers(-2000, 500), st.sampled_from(["l1", "l2"]))
def test_the_largest_number_below_a_distance(cost: Fraction, exponent: int, norm: str) -> None:
    cost *= Fraction(2) ** exponent
    found = largest_below(norm, cost)
    assert exact_power(norm, Fraction(found)) < cost or found == 0
    assert exact_power(norm, Fraction(math.nextafter(found, math.inf))) >= cost
    near = as_distance(norm, cost)
    assert abs(exact_power(norm, Fraction(near)) - cost) <= cost / 2**50 or near < 1e-300


def test_distances_beyond_all_numbers() -> None:
    assert largest_below("l1", Fraction(10) ** 400) == LARGEST
    assert largest_below("l2", Fraction(10) ** 700) == LARGEST
    assert largest_below("l1", math.inf) == math.inf
    assert largest_below("l0", Fraction(3)) == 2.0
    model = make_model([(0, 0.0, [1, 0], (1, 0.0, [1, 0], [0, 1]))])
    query = query_of(model, [[-LARGEST, -LARGEST]], NormBall("l1"))
    assert search(query) == [2 * Fraction(LARGEST) + 2 * Fraction(math.nextafter(0.0, 1.0))]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NormBall("linf", 1.0), "choose among l1, l2, l0"),
        (lambda: NormBall("l1", -1.0), "must not be negative"),
        (lambda: NormBall("l1", math.nan), "must not be negative"),
        (lambda: NormBall("l0", 1.5), "a whole number"),
    ],
)
def test_balls_that_make_no_sense(make: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "norm", "message"),
    [
        ('[default]\nradius = 1\nmissing = "may appear"\n', "l1", "has no distance in the norm l1"),
        ("[columns]\nx = { radius = 1, cost = 1.5 }\n", "l0", "the cost of x is 1.5; in the norm l0 costs are whole"),
        ("[columns]\nx = { radius = 1, cost = 0 }\n", "l1", "0 is not a cost; expected a number above 0"),
        ("[default]\nradius = 1\ncost = -1\n", "l1", "attack.toml:3: default.cost: -1 is not a cost"),
        ('[[one-hot]]\ncolumns = ["x", "y"]\ncost = inf\n', "l1", "inf is not a cost"),
    ],
)
def test_attack_files_that_do_not_fit_a_norm(text: str, norm: str, message: str) -> None:
    dataset = replace(data_of([[0.0, 1.0], [1.0, 0.0]], ["a", "b"]), feature_names=("x", "y"))
    with pytest.raises(PerturbationError, match=message):
        make_query(
            make_model([(0, 0.5, [1, 0], [0, 1])]),
            dataset,
            NormBall(norm, within=fit_attack(parse_attack(text.encode(), "attack.toml"), dataset)),
        )


def test_rows_that_are_not_one_hot_are_refused() -> None:
    model = make_model([(0, 0.5, [1, 0], [0, 1])])
    query = make_query(model, data_of([[1.0, 1.0]], ["a"]), NormBall("l1", 1.0), tiers=[1, 1])
    with pytest.raises(PerturbationError, match="row 0 is not one-hot"):
        verify(query)


def test_a_mixed_integer_program_agrees() -> None:
    """The smallest l1 distance as a MILP: a binary variable for each leaf, a point that every chosen leaf holds."""
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(3)
    for _ in range(6):
        n_features, n_trees = 3, 5
        trees = [_random_tree(rng, n_features, 3) for _ in range(n_trees)]
        model = make_model(trees, n_features, ["a", "b"], LeafKind.SCORES)
        sample = rng.random(n_features).round(3).tolist()
        query = query_of(model, [sample], NormBall("l1"))
        found = search(query)[0]
        expected = _solve(optimize, model, sample, elect(model, sample, "softargmax"))
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert float(found) == pytest.approx(expected, abs=2e-6)


def _random_tree(rng: np.random.Generator, n_features: int, depth: int) -> tuple | list:
    if depth == 0:
        score = float(rng.integers(-9, 10))
        return [-score, score]
    left, right = (_random_tree(rng, n_features, depth - 1) for _ in range(2))
    return (int(rng.integers(n_features)), round(float(rng.random()), 3), left, right)


def _solve(optimize: object, model: Model, sample: list[float], before: tuple[int, ...]) -> float | None:
    n_features = len(sample)
    leaves = [  # tree, bounds and score of the second label
        (position, low, high, model.leaf_values[leaf][1])
        for position in range(model.n_trees)
        for leaf, low, high in _leaf_boxes(model, position)
    ]
    # Variables: the point, the size of each change, and the leaves.
    n = 2 * n_features + len(leaves)
    rows, low, high = [], [], []

    def add(terms: dict[int, float], at_least: float, at_most: float) -> None:
        row = np.zeros(n)
        for place, value in terms.items():
            row[place] = value
        rows.append(row)
        low.append(at_least)
        high.append(at_most)

    for f, x in enumerate(sample):
        add({f: 1, n_features + f: -1}, -math.inf, x)
        add({f: 1, n_features + f: 1}, x, math.inf)
    for position in range(model.n_trees):
        add({2 * n_features + i: 1 for i, leaf in enumerate(leaves) if leaf[0] == position}, 1, 1)
    for i, (_, lower, upper, _) in enumerate(leaves):
        for f in range(n_features):
            if lower[f] > -9:
                add({f: 1, 2 * n_features + i: -(lower[f] + 2)}, -2, math.inf)
            if upper[f] < 9:
                add({f: 1, 2 * n_features + i: 3 - upper[f]}, -math.inf, 3)
    score = {2 * n_features + i: leaf[3] for i, leaf in enumerate(leaves)}
    add(score, *((-math.inf, 0) if before == (1,) else (0, math.inf)))
    if len(before) == 2:
        return None if _has_one_prediction(model) else 0.0
    cost = np.concatenate([np.zeros(n_features), np.ones(n_features), np.zeros(len(leaves))])
    result = optimize.milp(  # type: ignore[attr-defined]
        cost,
        constraints=optimize.LinearConstraint(np.array(rows), low, high),  # type: ignore[attr-defined]
        integrality=np.concatenate([np.zeros(2 * n_features), np.ones(len(leaves))]),
        bounds=optimize.Bounds(  # type: ignore[attr-defined]
            np.concatenate([np.full(n_features, -2.0), np.zeros(n_features + len(leaves))]),
            np.concatenate([np.full(n_features, 3.0), np.full(n_features, 5.0), np.ones(len(leaves))]),
        ),
    )
    return float(result.fun) if result.success else None


def _leaf_boxes(model: Model, position: int) -> list[tuple[int, list[float], list[float]]]:
    return list(boxes_of_leaves(model, [-9.0] * 3, [9.0] * 3, position))


def _has_one_prediction(model: Model) -> bool:
    return len({elect(model, point, "softargmax") for point in cells_of(model, [0.5] * 3)}) == 1
