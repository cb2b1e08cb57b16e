"""The verifier of single trees against exhaustive enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import (
    LARGEST,
    GivenBoxes,
    boxes_of_leaves,
    classify,
    coordinates,
    data_of,
    make_model,
    models,
    points,
    prediction_of,
)

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError, PerturbationError
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability, Verdict
from metasilvae.verification.verifier import find_witnesses, verify


def representatives(tree: Model, feature: int, lower: float, upper: float) -> list[float]:
    """Values of an interval that together take every branch that some value of it takes."""
    is_tested = tree.nodes["feature"] == feature
    thresholds = tree.nodes["threshold"][is_tested].tolist()
    ends = {max(lower, -LARGEST), min(upper, LARGEST)}
    values = {*ends, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)}
    return sorted(value for value in values if lower <= value <= upper and math.isfinite(value))


def all_predictions(tree: Model, lower: list[float], upper: list[float], tiers: list[int] | None = None) -> set:
    """Every answer of a tree inside a box, by trying out every combination of values that could matter."""
    tiers = tiers or [0] * tree.n_features
    choices = [
        representatives(tree, f, lower[f], upper[f])
        if tiers[f] == 0
        else [value for value in (0.0, 1.0) if lower[f] <= value <= upper[f]]
        for f in range(tree.n_features)
    ]
    return {
        classify(tree, point)
        for point in itertools.product(*choices)
        if all(sum(point[f] for f in range(len(point)) if tiers[f] == g) == 1 for g in set(tiers) - {0})
    }


single_trees = models(max_trees=1, max_splits=8)
radii = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 5e-324, 1e-9, 1e9, 1e300]), st.floats(0, 4))


def distance(point: list[float], sample: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(point, sample, strict=True))


def nearest_distance(tree: Model, sample: list[float], lower: list[float], upper: list[float]) -> float:
    """Distance to the nearest point of the box with another answer."""
    others = (
        distance([min(max(x, a), b) for x, a, b in zip(sample, low, high, strict=True)], sample)
        for leaf, low, high in boxes_of_leaves(tree, lower, upper)
        if prediction_of(tree.leaf_values[leaf].tolist()) != classify(tree, sample)
    )
    return min(others)


@settings(max_examples=1500)
@given(st.data())
def test_balls_are_decided_as_by_enumeration(data: st.DataObject) -> None:
    tree = data.draw(single_trees)
    rows = data.draw(st.lists(points(tree), min_size=1, max_size=3))
    labels = data.draw(st.lists(st.sampled_from(tree.labels), min_size=len(rows), max_size=len(rows)))
    ball = Ball(data.draw(radii))
    query = make_query(tree, data_of(rows, labels), ball)
    outcome = verify(query, jobs=1)
    witnesses = {witness.row: witness for witness in find_witnesses(query, outcome)}
    for row, sample in enumerate(rows):
        lower, upper = (bound.tolist() for bound in query.boxes.bounds(row))
        prediction = classify(tree, sample)
        assert outcome.predictions.sets[outcome.predictions.ids[row]] == prediction
        assert outcome.is_correct[row] == (prediction == (tree.labels.index(labels[row]),))
        is_stable = all_predictions(tree, lower, upper) <= {prediction}
        assert outcome.stability[row] == (Stability.STABLE if is_stable else Stability.UNSTABLE)
        assert (row in witnesses) == (not is_stable)
        if not is_stable:
            found = witnesses[row]
            assert classify(tree, found.point.tolist()) == found.perturbed_prediction != found.prediction == prediction
            assert distance(found.point.tolist(), sample) == nearest_distance(tree, sample, lower, upper)


@settings(max_examples=500)
@given(st.data())
def test_given_boxes_are_decided_as_by_enumeration(data: st.DataObject) -> None:
    tree = data.draw(single_trees)
    sample = data.draw(points(tree))
    ends = [sorted(data.draw(st.tuples(coordinates(tree), coordinates(tree)))) for _ in sample]
    lower, upper = ([end[side] for end in ends] for side in (0, 1))
    query = make_query(tree, data_of([sample], [tree.labels[0]]), GivenBoxes([lower], [upper]))
    outcome = verify(query, jobs=1)
    is_stable = all_predictions(tree, lower, upper) <= {classify(tree, sample)}
    assert outcome.stability[0] == (Stability.STABLE if is_stable else Stability.UNSTABLE)
    assert len(list(find_witnesses(query, outcome))) == (not is_stable)


@settings(max_examples=800)
@given(st.data())
def test_one_hot_groups_are_kept(data: st.DataObject) -> None:
    n_features = data.draw(st.integers(2, 5))
    tiers = data.draw(st.lists(st.integers(0, 2), min_size=n_features, max_size=n_features))
    values = [0.0, 0.25, 0.5, 1.0, -1.0]
    feature, threshold = st.integers(0, n_features - 1), st.sampled_from(values)
    leaf = st.sampled_from([[1, 0], [0, 1], [1, 1]])
    nested = data.draw(st.recursive(leaf, lambda part: st.tuples(feature, threshold, part, part), max_leaves=8))
    tree = make_model([nested], n_features)
    sample = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=n_features, max_size=n_features))
    radius = data.draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))
    query = make_query(tree, data_of([sample], ["a"]), Ball(radius), tiers=tiers)
    lower, upper = (bound.tolist() for bound in query.boxes.bounds(0))
    predictions = all_predictions(tree, lower, upper, tiers)
    if not predictions:
        with pytest.raises(PerturbationError, match="row 0: no point of its box has one-hot groups"):
            verify(query)
        return
    outcome = verify(query)
    is_stable = predictions <= {classify(tree, sample)}
    assert outcome.stability[0] == (Stability.STABLE if is_stable else Stability.UNSTABLE)
    for witness in find_witnesses(query, outcome):
        for group in set(tiers) - {0}:
            assert sorted(witness.point[[tier == group for tier in tiers]].tolist())[-1] == 1.0
            assert sum(witness.point[[tier == group for tier in tiers]].tolist()) == 1.0


def test_the_right_side_starts_at_the_next_number() -> None:
    for k in (0.0, 1.0, 16384.0, 1e9, 1e-300, 1e300):
        tree = make_model([(0, k, [1, 0], [0, 1])], n_features=1)
        just_above = math.nextafter(k, math.inf)
        rows = [[k], [just_above]]
        outcome = verify(make_query(tree, data_of(rows, ["a", "b"]), Ball(0)))
        assert outcome.verdicts.tolist() == [Verdict.ROBUST, Verdict.ROBUST]
        outcome = verify(make_query(tree, data_of(rows, ["a", "b"]), Ball(just_above - k)))
        assert outcome.verdicts.tolist() == [Verdict.FRAGILE, Verdict.FRAGILE]


def test_contradictory_branches_are_no_excuse() -> None:
    tree = make_model([(0, 5.0, (0, 6.0, [1, 0], [0, 1]), [1, 0])], n_features=1)
    assert verify(make_query(tree, data_of([[5.0]], ["a"]), Ball(10))).verdicts.tolist() == [Verdict.ROBUST]


def test_ties_are_predictions_of_their_own() -> None:
    tree = make_model([(0, 0.0, [1, 1], [1, 0])], n_features=1)
    outcome = verify(make_query(tree, data_of([[0.0], [1.0], [-5.0]], ["a", "a", "b"]), Ball(1)))
    assert outcome.verdicts.tolist() == [Verdict.BROKEN, Verdict.FRAGILE, Verdict.VULNERABLE]


def test_more_than_64_labels() -> None:
    labels = [f"c{i}" for i in range(100)]
    leaves = np.eye(100, dtype=int).tolist()
    nested = leaves[99]
    for i in reversed(range(99)):
        nested = (0, float(i), leaves[i], nested)
    tree = make_model([nested], 1, labels)
    outcome = verify(make_query(tree, data_of([[float(i)] for i in range(100)], labels), Ball(0.5)))
    assert outcome.counts.correct == 100
    assert outcome.counts.unstable == 99


@pytest.mark.parametrize("tiers", [None, [0, 0, 0]])
def test_threads_do_not_change_the_result(tiers: list[int] | None) -> None:
    rng = np.random.default_rng(0)
    tree = make_model([(0, 0.5, (1, 0.2, [1, 0], [0, 1]), (2, 0.7, [0, 1], (0, 0.9, [1, 0], [1, 1])))], 3)
    dataset = Dataset(rng.random((5000, 3)), np.zeros(5000, dtype=np.int32), ("a",))
    query = make_query(tree, dataset, Ball(0.1), tiers=tiers)
    alone = verify(query, jobs=1)
    for jobs in (2, 3, 8, None):
        shared = verify(query, jobs=jobs)
        assert shared.verdicts.tobytes() == alone.verdicts.tobytes()
        assert [w.point.tobytes() for w in find_witnesses(query, shared, jobs)] == [
            w.point.tobytes() for w in find_witnesses(query, alone, 1)
        ]


def test_a_deep_chain() -> None:
    nested = [1, 0]
    for i in range(100_000):
        nested = (0, float(i), [0, 1], nested)
    tree = make_model([nested], 1)
    outcome = verify(make_query(tree, data_of([[-5.0], [1e6]], ["b", "a"]), Ball(1)))
    assert outcome.verdicts.tolist() == [Verdict.ROBUST, Verdict.ROBUST]


def test_model_and_data_must_belong_together() -> None:
    tree = make_model([(2, 0.5, [1, 0], [0, 1])], n_features=4)
    with pytest.raises(ModelError, match="has 2 features, <memory> expects 4"):
        make_query(tree, data_of([[0.0, 0.0]], ["a"]), Ball(0))
    with pytest.raises(ModelError, match="has 5 features"):
        make_query(tree, data_of([[0.0] * 5], ["a"]), Ball(0))
    with pytest.raises(ModelError, match=r"no label of data.csv \(x\) is known"):
        make_query(tree, data_of([[0.0] * 4], ["x"]), Ball(0))
    with pytest.warns(MetasilvaeWarning, match="the data have every feature that the model tests"):
        make_query(tree, data_of([[0.0] * 3], ["a"]), Ball(0))
    with pytest.warns(MetasilvaeWarning, match="1 rows of data.csv have labels"):
        outcome = verify(make_query(tree, data_of([[0.0] * 4, [0.0] * 4], ["a", "x"]), Ball(0)))
    assert outcome.verdicts.tolist() == [Verdict.ROBUST, Verdict.VULNERABLE]
