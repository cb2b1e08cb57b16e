"""Radii against the verifier and against a search over all radii that could matter, in plain Python."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import LARGEST, boxes_of_leaves, classify, make_model, models, numbers, points, random_model

from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball, BoxFile, Enlarged, Perturbation, Weighted
from metasilvae.verification.curve import Curve, choose_quantile
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import find_nearest_witnesses, find_radii
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

single_trees = models(max_trees=1, max_splits=8)
weights = st.one_of(st.just(1.0), st.sampled_from([0.0, 0.5, 3.0, 1e-300, 1e300, 5e-324]), st.floats(0, 10))


def data_of(rows: list[list[float]]) -> Dataset:
    return Dataset(np.array(rows, dtype=np.float64), np.zeros(len(rows), dtype=np.int32), ("a",), source="data.csv")


def smallest_number(holds: Callable[[float], bool]) -> float:
    """The smallest number from 0 to the largest one for which a monotone condition holds, else infinity."""
    if holds(0.0):
        return 0.0
    if not holds(LARGEST):
        return math.inf
    low, high = np.array([0.0, LARGEST]).view(np.int64).tolist()
    while high - low > 1:
        middle = (low + high) // 2
        if holds(float(np.int64(middle).view(np.float64))):
            high = middle
        else:
            low = middle
    return float(np.int64(high).view(np.float64))


def box_at(sample: list[float], radius: float, weight: list[float], minimum: float, maximum: float) -> tuple:
    lower = [max(x - radius * w, minimum) for x, w in zip(sample, weight, strict=True)]
    upper = [min(x + radius * w, maximum) for x, w in zip(sample, weight, strict=True)]
    return lower, upper


def breaking_radius(tree: Model, sample: list[float], weight: list[float], minimum: float, maximum: float) -> float:
    """The smallest radius at which some leaf with another answer is reached, by definition."""

    def is_unstable(radius: float) -> bool:
        lower, upper = box_at(sample, radius, weight, minimum, maximum)
        lower, upper = [max(x, -LARGEST) for x in lower], [min(x, LARGEST) for x in upper]
        return any(classify(tree, low) != classify(tree, sample) for _, low, _ in boxes_of_leaves(tree, lower, upper))

    return smallest_number(is_unstable)


def is_stable(
    tree: Model, dataset: Dataset, perturbation: Perturbation, radius: float, tiers: list[int] | None = None
) -> list[bool]:
    outcome = verify(make_query(tree, dataset, Enlarged(perturbation, radius), tiers=tiers), jobs=1)
    return (outcome.stability == Stability.STABLE).tolist()


@settings(max_examples=400)
@given(st.data())
def test_radii_are_those_of_the_definition(data: st.DataObject) -> None:
    tree = data.draw(single_trees)
    rows = data.draw(st.lists(points(tree), min_size=1, max_size=3))
    has_weights, is_cut = data.draw(st.booleans()), data.draw(st.booleans())
    weight = [data.draw(weights) if has_weights else 1.0 for _ in range(tree.n_features)]
    values = [value for row in rows for value in row]
    minimum = min([*values, data.draw(numbers)]) if is_cut else -math.inf
    maximum = max([*values, data.draw(numbers)]) if is_cut else math.inf
    perturbation = Weighted(Ball(1.0, minimum, maximum), tuple(weight))
    dataset = data_of(rows)
    query = make_query(tree, dataset, perturbation)
    radii = find_radii(query, jobs=1)
    assert radii.is_exact.all()
    witnesses = {witness.row: witness for witness in find_nearest_witnesses(query, radii)}
    for row, sample in enumerate(rows):
        breaking = breaking_radius(tree, sample, weight, minimum, maximum)
        radius = radii.lower[row]
        assert radius == (math.inf if breaking == math.inf else math.nextafter(breaking, 0))
        assert (row in witnesses) == math.isfinite(radius)
        # The verifier agrees on both sides of the radius.
        if math.isinf(radius):
            assert is_stable(tree, dataset, perturbation, LARGEST)[row]
            continue
        assert is_stable(tree, dataset, perturbation, radius)[row]
        assert not is_stable(tree, dataset, perturbation, breaking)[row]
        point = witnesses[row].point.tolist()
        lower, upper = box_at(sample, breaking, weight, minimum, maximum)
        assert all(a <= x <= b for a, x, b in zip(lower, point, upper, strict=True))
        assert classify(tree, point) == witnesses[row].perturbed_prediction != classify(tree, sample)


def test_thousands_of_radii_agree_with_the_verifier() -> None:
    rng = random.Random(5)
    for _ in range(300):
        tree = random_model(rng, max_splits=40, n_features=4)
        rows = [
            [rng.choice([rng.random(), rng.gauss(0, 3), float(rng.randint(-4, 4))]) for _ in range(4)] for _ in range(8)
        ]
        dataset = data_of(rows)
        radii = find_radii(make_query(tree, dataset, Ball(1)), jobs=1)
        for row, radius in enumerate(radii.lower.tolist()):
            if math.isinf(radius):
                assert is_stable(tree, dataset, Ball(1), LARGEST)[row]
            else:
                assert is_stable(tree, dataset, Ball(1), radius)[row]
                assert not is_stable(tree, dataset, Ball(1), math.nextafter(radius, math.inf))[row]


@settings(max_examples=250)
@given(st.data())
def test_one_hot_groups_are_kept(data: st.DataObject) -> None:
    n_features = data.draw(st.integers(2, 6))
    tiers = data.draw(st.lists(st.integers(0, 2), min_size=n_features, max_size=n_features))
    feature, threshold = st.integers(0, n_features - 1), st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0])
    leaf = st.sampled_from([[1, 0], [0, 1], [1, 1]])
    nested = data.draw(st.recursive(leaf, lambda part: st.tuples(feature, threshold, part, part), max_leaves=10))
    tree = make_model([nested], n_features)
    sample = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=n_features, max_size=n_features))
    for group in set(tiers) - {0}:
        members = [f for f in range(n_features) if tiers[f] == group]
        one = data.draw(st.sampled_from(members))
        for f in members:
            sample[f] = float(f == one)
    weight = tuple(data.draw(st.sampled_from([1.0, 0.5, 0.0, 3.0])) for _ in sample)
    perturbation = Weighted(Ball(1), weight)
    query = make_query(tree, data_of([sample]), perturbation, tiers=tiers)
    radius = find_radii(query).lower[0]
    if math.isinf(radius):
        assert is_stable(tree, query.dataset, perturbation, LARGEST, tiers) == [True]
    else:
        assert is_stable(tree, query.dataset, perturbation, radius, tiers) == [True]
        assert is_stable(tree, query.dataset, perturbation, math.nextafter(radius, math.inf), tiers) == [False]
        (witness,) = find_nearest_witnesses(query, find_radii(query))
        for group in set(tiers) - {0}:
            assert sorted(witness.point[[tier == group for tier in tiers]].tolist())[::-1][:1] == [1.0]


def test_a_hand_made_tree() -> None:
    tree = make_model([(0, 5.0, [1, 0], (1, 2.0, [0, 1], [1, 0]))])
    radii = find_radii(make_query(tree, data_of([[4.0, 1.0], [4.0, 2.5], [7.0, 9.0]]), Ball(1)))
    # x > 5 needs the number after 5, to which 4 + r is rounded up only if r > 1 + 2**-51; 9 - r <= 2 needs 7.
    assert radii.lower.tolist() == [1 + 2**-51, 1 + 2**-51, math.nextafter(7, 0)]


def test_a_constant_model_has_infinite_radii() -> None:
    radii = find_radii(make_query(make_model([(0, 1.0, [1, 0], [2, 1])]), data_of([[0.0, 0.0]]), Ball(1)))
    assert radii.lower.tolist() == radii.upper.tolist() == [math.inf]
    assert list(find_nearest_witnesses(make_query(make_model([[1, 0]]), data_of([[0.0, 0.0]]), Ball(1)), radii)) == []


def test_threads_do_not_change_the_result() -> None:
    tree = random_model(random.Random(3), max_splits=60, n_features=3)
    query = make_query(tree, data_of(np.random.default_rng(0).normal(size=(3000, 3)).tolist()), Ball(1))
    alone = find_radii(query, jobs=1)
    for jobs in (2, 3, None):
        assert find_radii(query, jobs).lower.tobytes() == alone.lower.tobytes()


def test_what_has_no_radius_is_refused(tmp_path: Path) -> None:
    tree, dataset = make_model([(0, 1.0, [1, 0], [0, 1])]), data_of([[0.0, 2.0]])
    boxes = tmp_path / "boxes.txt"
    boxes.write_text("[0;1] [0;1]")
    with pytest.raises(RequestError, match="listed swaps have no common radii"):
        find_radii(make_query(tree, dataset, BoxFile(str(boxes))))
    with pytest.raises(PerturbationError, match=r"row 0, x\[1\] = 2 does not lie in \[0, 1\]"):
        find_radii(make_query(tree, dataset, Ball(1, 0, 1)))
    with pytest.raises(PerturbationError, match="row 0 is not one-hot in the features 0, 1"):
        find_radii(make_query(tree, dataset, Ball(2), tiers=[1, 1]))
    with pytest.raises(PerturbationError, match="weight of feature 1 is -1"):
        Weighted(Ball(1), (1.0, -1.0))
    with pytest.raises(PerturbationError, match=r"has 1 weights, .* has 2 features"):
        make_query(tree, dataset, Weighted(Ball(1), (1.0,)))


@settings(max_examples=100)
@given(st.data())
def test_the_curve_is_what_the_verifier_finds_at_every_step(data: st.DataObject) -> None:
    tree = data.draw(single_trees)
    rows = data.draw(st.lists(points(tree), min_size=1, max_size=6))
    dataset = replace(data_of(rows), labels=(tree.labels[0],))
    curve = Curve(find_radii(make_query(tree, dataset, Ball(1)), jobs=1))
    epsilons, stable, robust = curve.steps
    assert (np.diff(epsilons) > 0).all()
    for place, epsilon in enumerate(epsilons.tolist()):
        if math.isinf(epsilon):
            epsilon = LARGEST
        beyond = math.nextafter(epsilon, math.inf)
        counts = verify(make_query(tree, dataset, Ball(epsilon)), jobs=1).counts
        assert (counts.stable, counts.robust) == (stable[place], robust[place])
        assert curve.stability(epsilon) == float(counts.stability)
        assert curve.robust_accuracy(epsilon) == float(counts.robust_accuracy)
        if beyond < math.inf:
            counts = verify(make_query(tree, dataset, Ball(beyond)), jobs=1).counts
            after = (stable[place + 1], robust[place + 1]) if place + 1 < len(epsilons) else (0, 0)
            assert (counts.stable, counts.robust) == after


def test_quantiles_are_radii_of_rows() -> None:
    radii = np.array([3.0, 1.0, math.inf, 2.0])
    assert [choose_quantile(radii, p) for p in (0, 25, 26, 50, 75, 76, 100)] == [1, 1, 2, 2, 3, math.inf, math.inf]
    assert [choose_quantile(np.array([7.0]), p) for p in (0, 100)] == [7, 7]


def test_choices_are_all_tried() -> None:
    """The search of the oracle finds the threshold of any monotone condition."""
    for bound in itertools.chain([0.0, 5e-324, 1.0, LARGEST], np.random.default_rng(0).random(20)):
        assert smallest_number(lambda x, bound=bound: x >= bound) == bound
