"""Wanted labels and nearest changes against enumeration."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attacks import random_case
from support.oracles import cells_of, data_of, elect, make_model, models, points, power_of_distance, random_model

from metasilvae.errors import RequestError
from metasilvae.model import LeafKind
from metasilvae.perturbations.boxes import Ball
from metasilvae.perturbations.norms import SHARED_NORMS, NormBall
from metasilvae.verification.budget import Budget
from metasilvae.verification.distances import as_distance
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import find_radii
from metasilvae.verification.targets import TargetStatus, find_changes, find_label, find_targets


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([*SHARED_NORMS, "linf"]))
def test_reachable_labels_are_those_of_enumeration(data: st.DataObject, norm: str) -> None:
    model = data.draw(models(max_trees=3, max_splits=4, kinds=[LeafKind.COUNTS]))
    voting = data.draw(st.sampled_from(["max", "average"]))
    row = data.draw(points(model))
    target = data.draw(st.integers(0, model.n_labels - 1))
    epsilon = float(data.draw(st.integers(0, 4)))
    ball = Ball(epsilon) if norm == "linf" else NormBall(norm, epsilon)
    query = make_query(model, data_of([row], [model.labels[0]]), ball, voting=voting)
    sample = query.dataset.X[0].tolist()
    lower, upper = query.boxes.bounds(0)

    def is_within(point: tuple[float, ...]) -> bool:
        if norm == "linf":
            return all(a <= x <= b for a, x, b in zip(lower, point, upper, strict=True))
        size = power_of_distance(norm, sample, point, [1.0] * len(row))
        return size <= (epsilon**2 if norm == "l2" else epsilon)

    expected = any(is_within(point) and elect(model, point, voting) == (target,) for point in cells_of(model, sample))
    results = find_targets(query, target, jobs=1)
    if elect(model, sample, voting) == (target,):
        assert results.statuses.tolist() == [TargetStatus.PREDICTED]
    else:
        assert results.statuses.tolist() == [TargetStatus.REACHABLE if expected else TargetStatus.UNREACHABLE]
        assert len(list(find_changes(query, results))) == expected


@pytest.mark.parametrize("norm", SHARED_NORMS)
def test_nearest_changes_under_attack_files(norm: str) -> None:
    rng = random.Random(f"target {norm}")
    n_reached = 0
    for _ in range(100):
        n_features = rng.randint(2, 4)
        model = random_model(rng, rng.randint(1, 3), 5, n_features)
        case = random_case(rng, n_features, 2)
        dataset = replace(case.dataset, labels=(model.labels[0], model.labels[1]))
        query = make_query(model, dataset, NormBall(norm, within=case.attack))
        target = rng.randrange(model.n_labels)
        results = find_targets(query, target, is_nearest=True, jobs=1)
        changes = {change.row: change for change in find_changes(query, results)}
        assert results.distances is not None
        for row, sample in enumerate(case.dataset.X.tolist()):
            expected = [
                power_of_distance(norm, sample, point, [1.0] * n_features, case.groups)
                for point in case.points(row, model)
                if elect(model, point, query.voting) == (target,)
            ]
            is_predicted = elect(model, sample, query.voting) == (target,)
            nearest = as_distance(norm, min(expected)) if expected else math.inf
            assert results.distances[row] == (0.0 if is_predicted else nearest)
            assert (row in changes) == (bool(expected) and not is_predicted)
            assert results.is_nearest[row] == (row in changes)
            n_reached += row in changes
    assert n_reached > 10


def test_in_the_maximum_norm_the_nearest_change_is_where_the_radius_ends() -> None:
    rng = random.Random(4)
    n_found = 0
    for _ in range(40):
        model = random_model(rng, rng.randint(1, 3), 6, 3)
        row = [rng.choice([rng.random(), float(rng.randint(-3, 3))]) for _ in range(3)]
        query = make_query(model, data_of([row], [model.labels[0]]), Ball(1.0))
        radius = find_radii(query, jobs=1).lower[0]
        results = [find_targets(query, label, is_nearest=True, jobs=1) for label in range(model.n_labels)]
        for found in results:
            list(find_changes(query, found))
        distances = [float(found.distances[0]) for found in results if found.distances is not None]
        others = [d for d in distances if 0 < d < np.inf]
        # Ties are other predictions too, so that the radius may be smaller.
        assert all(np.nextafter(d, 0.0) >= radius for d in others)
        n_found += any(np.nextafter(d, 0.0) == radius for d in others)
    assert n_found > 10


def test_integers_groups_and_immutable_columns_are_kept_in_multiples_of_radii() -> None:
    rng = random.Random(6)
    n_checked = 0
    for _ in range(150):
        n_features = rng.randint(2, 3)
        model = random_model(rng, rng.randint(1, 3), 5, n_features)
        case = random_case(rng, n_features, 1)
        if not case.attack.has_common_radii:
            continue
        dataset = replace(case.dataset, labels=(model.labels[0], model.labels[1]))
        query = make_query(model, dataset, case.attack)
        target = rng.randrange(model.n_labels)
        results = find_targets(query, target, is_nearest=True, jobs=1)
        assert results.distances is not None
        if results.statuses[0] == TargetStatus.PREDICTED:
            continue
        distance = float(results.distances[0])

        def is_reached(factor: float, case=case, model=model, query=query, target=target) -> bool:  # type: ignore[no-untyped-def]
            return any(elect(model, point, query.voting) == (target,) for point in case.times(factor).points(0, model))

        if math.isinf(distance):
            assert not is_reached(1e300)
        else:
            assert is_reached(distance)
            assert not is_reached(math.nextafter(distance, 0.0))
            n_checked += 1
    assert n_checked > 10


def test_a_budget_leaves_bounds() -> None:
    rng = random.Random(8)
    n_open = 0
    for _ in range(10):
        model = random_model(rng, 12, 12, 4)
        query = make_query(model, data_of([[rng.random() for _ in range(4)]], ["a"]), NormBall("l1"))
        for target in range(model.n_labels):
            exact = find_targets(query, target, is_nearest=True, jobs=1)
            some = find_targets(query, target, is_nearest=True, jobs=1, budget=Budget(steps=2))
            assert exact.distances is not None
            assert some.distances is not None
            assert some.at_least is not None
            assert some.at_least[0] <= exact.distances[0] <= some.distances[0]
            n_open += bool(some.reasons)
            assert bool(some.reasons) == bool(some.at_least[0] < some.distances[0])
            list(find_changes(query, some))
    assert n_open > 5


def test_unknown_labels_are_refused() -> None:
    model = make_model([(0, 0.5, [1, 0], [0, 1])], labels=["bad", "good"])
    assert find_label(model, "good") == 1
    with pytest.raises(RequestError, match="did you mean 'good'"):
        find_label(model, "goood")
    with pytest.raises(RequestError, match="its labels are bad, good"):
        find_label(model, "x")
