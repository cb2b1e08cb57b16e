"""Radii of forests against the verifier on both sides, and against enumeration."""

from __future__ import annotations

import math
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import LARGEST, forest_predictions, make_model, models, points, random_model

from metasilvae.analysis.explanation import explain
from metasilvae.dataset import Dataset
from metasilvae.model import Model, join_trees
from metasilvae.perturbations.boxes import Ball, Enlarged, Perturbation, Weighted
from metasilvae.verification.budget import INTERRUPTED, STEPS, Budget
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import find_nearest_witnesses, find_radii
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify


def data_of(rows: list[list[float]], model: Model) -> Dataset:
    return Dataset(np.array(rows), np.zeros(len(rows), dtype=np.int32), model.labels[:1], source="data.csv")


def random_forest(rng: random.Random, n_trees: int, n_features: int = 3) -> Model:
    trees: list[Model] = []
    while len(trees) < n_trees:
        tree = random_model(rng, max_splits=8, n_features=n_features)
        if not trees or tree.labels == trees[0].labels:
            trees.append(tree)
    return join_trees(trees)


def is_stable(
    query: VerificationQuery, perturbation: Perturbation, radius: float, tiers: list[int] | None = None
) -> list[bool]:
    again = make_query(
        query.model, query.dataset, Enlarged(perturbation, radius), voting=query.voting, tiers=tiers
    )  # fmt: skip
    return (verify(again, jobs=1).stability == Stability.STABLE).tolist()


def check(query: VerificationQuery, perturbation: Perturbation, tiers: list[int] | None = None) -> None:
    radii = find_radii(query, jobs=1)
    assert radii.is_exact.all()
    assert radii.reasons == {}
    witnesses = {witness.row: witness for witness in find_nearest_witnesses(query, radii)}
    for row, radius in enumerate(radii.lower.tolist()):
        assert (row in witnesses) == math.isfinite(radius)
        if math.isinf(radius):
            assert is_stable(query, perturbation, LARGEST, tiers)[row]
        else:
            assert is_stable(query, perturbation, radius, tiers)[row]
            assert not is_stable(query, perturbation, math.nextafter(radius, math.inf), tiers)[row]


@pytest.mark.parametrize("voting", ["max", "average"])
def test_radii_agree_with_the_verifier(voting: str) -> None:
    rng = random.Random(11)
    for _ in range(60):
        forest = random_forest(rng, rng.randint(2, 6))
        rows = [[rng.choice([rng.random() * 4 - 2, float(rng.randint(-4, 4))]) for _ in range(3)] for _ in range(3)]
        weight = rng.choice([(1.0, 1.0, 1.0), (0.5, 0.0, 3.0)])
        perturbation = Weighted(Ball(1), weight)
        check(make_query(forest, data_of(rows, forest), perturbation, voting=voting), perturbation)


@settings(max_examples=60)
@given(st.data())
def test_radii_agree_with_enumeration(data: st.DataObject) -> None:
    forest = data.draw(models(max_trees=3, max_splits=3))
    sample = data.draw(points(forest))
    query = make_query(forest, data_of([sample], forest), Ball(1))
    radius = float(find_radii(query, jobs=1).lower[0])

    def predictions(epsilon: float) -> set:
        lower, upper = [x - epsilon for x in sample], [x + epsilon for x in sample]
        return forest_predictions(forest, lower, upper, query.voting)

    if math.isinf(radius):
        assert len(predictions(LARGEST)) == 1
    else:
        assert len(predictions(radius)) == 1
        assert len(predictions(math.nextafter(radius, math.inf))) > 1


def test_one_hot_groups_are_kept() -> None:
    rng = random.Random(3)
    for _ in range(60):
        tiers = rng.choice([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 2, 2]])
        trees = []
        for _ in range(3):
            part: list | tuple = [1, 0]
            for _ in range(6):
                leaf = rng.choice([[1, 0], [0, 1], [1, 1]])
                split = (rng.randrange(4), rng.choice([0.0, 0.25, 0.5, 1.0]))
                part = (*split, leaf, part) if rng.random() < 0.5 else (*split, part, leaf)
            trees.append(part)
        forest = make_model(trees, 4)
        sample = [rng.random() for _ in range(4)]
        for group in set(tiers) - {0}:
            members = [f for f in range(4) if tiers[f] == group]
            one = rng.choice(members)
            for f in members:
                sample[f] = float(f == one)
        check(make_query(forest, data_of([sample], forest), Ball(1), tiers=tiers), Ball(1), tiers)


def hard_query() -> VerificationQuery:
    rng = random.Random(2)
    forest = random_forest(rng, 25, n_features=6)
    return make_query(forest, data_of([[rng.random() * 4 - 2 for _ in range(6)] for _ in range(8)], forest), Ball(1))


def test_limits_give_bounds_that_hold() -> None:
    query = hard_query()
    exact = find_radii(query, jobs=1)
    n_open = 0
    for steps in (1, 3, 10, 40):
        found = find_radii(query, jobs=1, budget=Budget(steps=steps))
        assert (found.lower <= exact.lower).all()
        assert (exact.lower <= found.upper).all()
        assert set(found.reasons) == set(np.flatnonzero(~found.is_exact).tolist())
        assert set(found.reasons.values()) <= {STEPS}
        n_open += len(found.reasons)
        for jobs in (2, 3):
            again = find_radii(query, jobs=jobs, budget=Budget(steps=steps))
            assert again.lower.tobytes() == found.lower.tobytes()
            assert again.upper.tobytes() == found.upper.tobytes()
        assert len(list(find_nearest_witnesses(query, found))) == np.isfinite(found.upper).sum()
    assert n_open > 0


def test_a_stopped_search_keeps_what_is_known() -> None:
    query = hard_query()
    stop = threading.Event()
    stop.set()
    found = find_radii(query, stop=stop)
    assert set(found.reasons.values()) == {INTERRUPTED}
    assert (found.lower <= find_radii(query).lower).all()
    assert np.isinf(found.upper).all()


def test_forests_are_explained() -> None:
    rng = random.Random(4)
    forest = random_forest(rng, 3)
    rows = [[rng.random() * 4 - 2 for _ in range(3)] for _ in range(10)]
    query = make_query(forest, data_of(rows, forest), Ball(0.5))
    found = explain(query, jobs=1)
    assert found.rows
    for row in found.rows:
        features = row.frozen.features
        assert features is not None
        weights = tuple(0.0 if f in features else 1.0 for f in range(3))
        assert is_stable(query, Weighted(Ball(0.5), weights), 1.0)[row.row]
        for spared in features:
            fewer = tuple(0.0 if f in features and f != spared else 1.0 for f in range(3))
            assert not is_stable(query, Weighted(Ball(0.5), fewer), 1.0)[row.row]
        assert row.radius is not None
        assert row.radius < 0.5
