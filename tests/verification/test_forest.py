"""The verifier of forests against exhaustive enumeration of leaf combinations."""

from __future__ import annotations

import random
import threading
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import (
    GivenBoxes,
    Nested,
    coordinates,
    data_of,
    elect,
    forest_predictions,
    make_model,
    models,
    points,
)

from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.model import LeafKind, Model
from metasilvae.perturbations.boxes import Ball, Enlarged, Perturbation
from metasilvae.prediction import predict
from metasilvae.verification import forest as forest_rows
from metasilvae.verification.budget import INTERRUPTED, STEPS, TIMEOUT, Budget
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.verdicts import Stability, Verdict
from metasilvae.verification.verifier import find_witnesses, verify

radii = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 5e-324, 1e-9, 1e9, 1e300]), st.floats(0, 4))


def fitting_votings(model: Model) -> list[str]:
    return ["softargmax"] if model.leaf_kind is LeafKind.SCORES else ["max", "average"]


# Steps before a local search and before a division of the box: as usual; both at once; division alone.
EFFORTS = ((8, 64), (1, 1), (10**9, 1))


def check(query: VerificationQuery, tiers: list[int] | None = None) -> None:
    """Verdicts and witnesses are those of enumeration, whichever way the search goes."""
    for local, division in EFFORTS:
        with mock.patch.multiple(forest_rows, STEPS_BEFORE_LOCAL=local, STEPS_BEFORE_DIVISION=division):
            check_once(query, tiers)


def check_once(query: VerificationQuery, tiers: list[int] | None = None) -> None:
    model = query.model
    outcome = verify(query, jobs=1)
    witnesses = {witness.row: witness for witness in find_witnesses(query, outcome)}
    for row, sample in enumerate(query.dataset.X.tolist()):
        lower, upper = (bound.tolist() for bound in query.boxes.bounds(row))
        prediction = elect(model, sample, query.voting)
        assert outcome.predictions.sets[outcome.predictions.ids[row]] == prediction
        is_stable = forest_predictions(model, lower, upper, query.voting, tiers) <= {prediction}
        assert outcome.stability[row] == (Stability.STABLE if is_stable else Stability.UNSTABLE)
        assert (row in witnesses) == (not is_stable)
        if is_stable:
            continue
        found = witnesses[row]
        point = found.point.tolist()
        assert elect(model, point, query.voting) == found.perturbed_prediction != found.prediction == prediction
        assert all(a <= x <= b for a, x, b in zip(lower, point, upper, strict=True))
        for group in set(tiers or ()) - {0}:
            values = sorted(x for x, tier in zip(point, tiers or (), strict=True) if tier == group)
            assert values == [0.0] * (len(values) - 1) + [1.0]


@settings(max_examples=700)
@given(st.data())
def test_odd_forests_are_decided_as_by_enumeration(data: st.DataObject) -> None:
    """Equal thresholds, contradictory branches, ties, infinite and tiny radii, scores from 5e-324 to 1.8e308."""
    forest = data.draw(models(max_trees=4, max_splits=5))
    rows = data.draw(st.lists(points(forest), min_size=1, max_size=2))
    voting = data.draw(st.sampled_from(fitting_votings(forest)))
    check(make_query(forest, data_of(rows, [forest.labels[0]] * len(rows)), Ball(data.draw(radii)), voting=voting))


@settings(max_examples=300)
@given(st.data())
def test_given_boxes_are_decided_as_by_enumeration(data: st.DataObject) -> None:
    forest = data.draw(models(max_trees=4, max_splits=5))
    sample = data.draw(points(forest))
    ends = [sorted(data.draw(st.tuples(coordinates(forest), coordinates(forest)))) for _ in sample]
    lower, upper = ([end[side] for end in ends] for side in (0, 1))
    voting = data.draw(st.sampled_from(fitting_votings(forest)))
    check(make_query(forest, data_of([sample], [forest.labels[0]]), GivenBoxes([lower], [upper]), voting=voting))


def random_forest(rng: random.Random, n_features: int, thresholds: list[float]) -> Model:
    """Up to nine trees, some of them twice, with leaves that nearly tie."""
    n_labels = rng.randint(2, 4)
    kind = rng.choice(list(LeafKind))
    size = rng.choice([1.0, 1e-9, 1e9])
    scores = [size * x for x in (0.1, 0.2, 0.3, 0.1 + 0.2, 0.7, -0.3, -0.1, 0.0, 1 / 3, 2 / 3, 1.0, -1.0)]

    def leaf() -> list:
        if kind is LeafKind.SCORES:
            return [rng.choice(scores) for _ in range(n_labels)]
        row = [rng.choice([0, 0, 1, 2, 3, 7]) for _ in range(n_labels)]
        return row if any(row) else [1] * n_labels

    trees: list[Nested] = []
    for _ in range(rng.randint(2, 9)):
        if trees and rng.random() < 0.15:
            trees.append(rng.choice(trees))
            continue
        parts: list[Nested] = [leaf() for _ in range(rng.randint(1, 7))]
        while len(parts) > 1:
            place = rng.randrange(len(parts) - 1)
            split = (rng.randrange(n_features), rng.choice(thresholds), parts[place], parts[place + 1])
            parts[place : place + 2] = [split]
        trees.append(parts[0])
    return make_model(trees, n_features, "abcd"[:n_labels], kind)


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_forests_are_decided_as_by_enumeration(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        n_features = rng.randint(1, 4)
        size = rng.choice([1.0, 1e-9, 1e9, 16384.0])
        thresholds = [size * rng.choice([rng.randint(-3, 3), rng.random()]) for _ in range(rng.randint(1, 8))]
        forest = random_forest(rng, n_features, thresholds)
        rows = [[rng.choice([*thresholds, size * rng.uniform(-3, 3)]) for _ in range(n_features)] for _ in range(2)]
        perturbation: Perturbation = Ball(size * rng.choice([0.0, 0.25, 1.0, 4.0]))
        if rng.random() < 0.2:
            perturbation = Ball(2 * size, -2 * size, rng.choice([4 * size, float("inf")]))
        if rng.random() < 0.2:
            perturbation = Enlarged(perturbation, 1.5)
        voting = rng.choice(fitting_votings(forest))
        check(make_query(forest, data_of(rows, ["a", "b"]), perturbation, voting=voting))


@pytest.mark.parametrize("seed", range(2))
def test_one_hot_groups_are_kept(seed: int) -> None:
    rng = random.Random(seed)
    n_refused = 0
    for _ in range(800):
        n_features = rng.randint(2, 6)
        tiers = [rng.randint(0, 2) for _ in range(n_features)]
        forest = random_forest(rng, n_features, [0.0, 0.25, 0.5, 1.0, -1.0])
        sample = [rng.choice([0.0, 0.0, 1.0, 1.0, 0.5, 3.0, -1.5]) for _ in range(n_features)]
        voting = rng.choice(fitting_votings(forest))
        ball = Ball(rng.choice([0.0, 0.5, 1.0, 2.0]))
        query = make_query(forest, data_of([sample], ["a"]), ball, tiers=tiers, voting=voting)
        lower, upper = (bound.tolist() for bound in query.boxes.bounds(0))
        if forest_predictions(forest, lower, upper, voting, tiers):
            check(query, tiers)
        else:
            n_refused += 1
            with pytest.raises(PerturbationError, match="row 0: no point of its box has one-hot groups"):
                verify(query)
    assert 100 < n_refused < 700


def hard_query(n_rows: int = 30) -> VerificationQuery:
    """Rows that take many steps."""
    rng = random.Random(3)
    n_features = 12

    def grow(depth: int) -> Nested:
        if depth == 0:
            return rng.choice([[3, 2], [1, 0], [2, 3], [0, 1], [1, 1]])
        return (rng.randrange(n_features), rng.random(), grow(depth - 1), grow(depth - 1))

    forest = make_model([grow(5) for _ in range(15)], n_features)
    X = np.random.default_rng(0).random((n_rows, n_features))
    return make_query(forest, Dataset(X, np.zeros(n_rows, dtype=np.int32), ("a",)), Ball(0.1), voting="average")


def test_more_steps_decide_more_rows_and_never_otherwise() -> None:
    query = hard_query()
    full = verify(query)
    assert (full.stability != Stability.UNKNOWN).all()
    assert not full.reasons
    n_unknown = []
    for steps in (1, 3, 10, 100, 10_000):
        limited = verify(query, budget=Budget(steps=steps))
        unknown = limited.stability == Stability.UNKNOWN
        assert (limited.stability[~unknown] == full.stability[~unknown]).all()
        assert limited.reasons == dict.fromkeys(np.flatnonzero(unknown).tolist(), STEPS)
        assert limited.counts.no_info == unknown.sum()
        assert list(limited.verdicts[unknown]) == [Verdict.NO_INFO] * unknown.sum()
        n_unknown.append(int(unknown.sum()))
    assert n_unknown == sorted(n_unknown, reverse=True)
    assert n_unknown[0] > 0
    assert n_unknown[-1] == 0


def test_a_search_that_was_given_up_leaves_nothing_behind() -> None:
    """Rows that the first bound decides, each after a row whose divided box is given up.

    Trees vote for b if three features have a given parity; b wins if all of these contradictory equations hold.
    """
    rng = random.Random(1)
    n_features, n_equations = 24, 30

    def grow(features: list[int], parity: int) -> Nested:
        if not features:
            return [0, 1] if parity else [1, 0]
        return (features[0], 0.5, grow(features[1:], parity), grow(features[1:], 1 - parity))

    equations = [grow(rng.sample(range(n_features), 3), rng.randrange(2)) for _ in range(n_equations)]
    model = make_model([*equations, *[[1, 0]] * n_equations], n_features)
    X = np.full((10, n_features), 0.4)
    X[1::2] = 0.1
    query = make_query(model, Dataset(X, np.zeros(len(X), dtype=np.int32), ("a",)), Ball(0.2), voting="max")
    with mock.patch.multiple(forest_rows, STEPS_BEFORE_LOCAL=10**9, STEPS_BEFORE_DIVISION=1, ROWS_PER_CHUNK=1):
        found = verify(query, jobs=1, budget=Budget(steps=100)).stability
    assert (found[0::2] == Stability.UNKNOWN).all()
    assert (found[1::2] == Stability.STABLE).all()


@pytest.mark.parametrize("kind", list(LeafKind))
def test_divided_boxes_have_the_verdicts_of_the_plain_search(kind: LeafKind) -> None:
    """Forests that are too large to enumerate, at epsilons where about half of the rows are stable."""
    rng = random.Random(5)
    n_divided = 0
    for n_features, n_labels, n_trees in ((4, 2, 40), (6, 3, 25), (8, 2, 25)):

        def leaf(n_labels: int = n_labels) -> list:
            if kind is LeafKind.SCORES:
                return [rng.choice([0.1, 0.2, 0.3, 0.1 + 0.2, -0.5, 1e-9, rng.gauss(0, 1)]) for _ in range(n_labels)]
            return [rng.randint(0, 2) for _ in range(n_labels - 1)] + [1]

        def grow(depth: int, n_features: int = n_features) -> Nested:
            if depth == 0:
                return leaf()
            return (rng.randrange(n_features), round(rng.random(), 2), grow(depth - 1), grow(depth - 1))

        model = make_model([grow(5) for _ in range(n_trees)], n_features, "abc"[:n_labels], kind)
        X = np.random.default_rng(0).random((40, n_features)).round(2)
        data = Dataset(X, np.zeros(len(X), dtype=np.int32), ("a",))
        for epsilon in (0.02, 0.05, 0.1):
            found = []
            for local, division in ((10**9, 10**9), *EFFORTS):
                with mock.patch.multiple(
                    forest_rows, STEPS_BEFORE_LOCAL=local, STEPS_BEFORE_DIVISION=division, QUICK_STEPS=1
                ):
                    query = make_query(model, data, Ball(epsilon), voting=fitting_votings(model)[-1])
                    outcome = verify(query, jobs=1)
                    assert (outcome.stability != Stability.UNKNOWN).all()
                    assert len(list(find_witnesses(query, outcome))) == (outcome.stability == Stability.UNSTABLE).sum()
                    found.append(outcome.stability.tolist())
                    if division == 1:
                        n_divided += sum(verify(query, jobs=1, budget=Budget(steps=1)).stability == Stability.UNKNOWN)
            assert found == found[:1] * len(found)
    assert n_divided > 30


def test_threads_do_not_change_the_result() -> None:
    query = hard_query(60)
    for budget in (Budget(), Budget(steps=5)):
        alone = verify(query, jobs=1, budget=budget)
        for jobs in (2, 5, None):
            shared = verify(query, jobs=jobs, budget=budget)
            assert shared.verdicts.tobytes() == alone.verdicts.tobytes()
            assert shared.reasons == alone.reasons
            assert [w.point.tobytes() for w in find_witnesses(query, shared, jobs)] == [
                w.point.tobytes() for w in find_witnesses(query, alone, 1)
            ]


def test_a_time_limit_leaves_rows_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metasilvae.verification.forest.QUICK_STEPS", 1)
    monkeypatch.setattr("metasilvae.verification.budget.STEPS_PER_SLICE", 1)
    outcome = verify(hard_query(), budget=Budget(seconds=1e-9))
    assert set(outcome.reasons.values()) == {TIMEOUT}
    assert outcome.counts.no_info == len(outcome.reasons) > 0


def test_a_stop_keeps_what_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metasilvae.verification.forest.ROWS_PER_CHUNK", 5)
    query = hard_query()
    full = verify(query)
    stop = threading.Event()
    n_done = 0

    def count(n_rows: int) -> None:
        nonlocal n_done
        n_done += n_rows
        if n_done == 10:
            stop.set()

    outcome = verify(query, jobs=1, stop=stop, on_rows=count)
    assert outcome.stability[:10].tolist() == full.stability[:10].tolist()
    assert outcome.reasons == dict.fromkeys(range(10, 30), INTERRUPTED)


def test_a_fault_in_one_thread_ends_all() -> None:
    def fail(n_rows: int) -> None:
        raise RuntimeError("fault")

    with pytest.raises(RuntimeError, match="fault"):
        verify(hard_query(), jobs=3, on_rows=fail)


def test_near_ties_are_ties_or_not() -> None:
    """0.1 + 0.2 is not 0.3, three times a third is one."""
    parts = [[0.1, 0.3], [0.2, 0.0]]
    scores = make_model([(0, 0.0, [1.0, 0.0], part) for part in parts], 1, kind=LeafKind.SCORES)
    assert verify(make_query(scores, data_of([[1.0]], ["a"]), Ball(0.5))).verdicts.tolist() == [Verdict.ROBUST]
    exact = elect(scores, [1.0], "softargmax")
    assert exact == (0,)
    thirds = make_model([(0, 0.0, [1, 2], [2, 1]), (0, 0.0, [1, 2], [2, 1]), [0, 1], [2, 1]], 1)
    query = make_query(thirds, data_of([[1.0], [-1.0]], ["a", "b"]), Ball(0.5), voting="average")
    assert verify(query).verdicts.tolist() == [Verdict.VULNERABLE, Verdict.ROBUST]


def test_a_tied_prediction_is_not_stable_where_one_label_wins() -> None:
    """Both directions: the tie breaks in favour of either member, or of a third label that joins in."""
    for values in ([2, 1, 0], [1, 2, 0], [1, 1, 1]):
        forest = make_model([(0, 0.0, [1, 1, 0], values), [1, 1, 1]], 1, "abc")
        outcome = verify(make_query(forest, data_of([[0.0], [-1.0]], ["a", "b"]), Ball(0.5), voting="max"))
        assert outcome.stability.tolist() == [Stability.UNSTABLE, Stability.STABLE]


def test_leaves_and_voting_must_fit() -> None:
    forest = make_model([[0.5, 1.0], [1.0, 0.0]], 1, kind=LeafKind.SCORES)
    with pytest.raises(RequestError, match="voting 'max' does not fit"):
        make_query(forest, data_of([[0.0]], ["a"]), Ball(0), voting="max")
    assert make_query(forest, data_of([[0.0]], ["a"]), Ball(0)).voting == "softargmax"


def test_more_than_64_labels_and_leaves() -> None:
    labels = [f"c{i}" for i in range(100)]
    leaves = np.eye(100, dtype=int).tolist()
    nested: Nested = leaves[99]
    for i in reversed(range(99)):
        nested = (0, float(i), leaves[i], nested)
    forest = make_model([nested, nested, nested], 1, labels)
    outcome = verify(make_query(forest, data_of([[float(i)] for i in range(100)], labels), Ball(0.5)))
    assert outcome.counts.correct == 100
    assert outcome.counts.unstable == 99


def test_deep_chains() -> None:
    nested: Nested = [1, 0]
    for i in range(20_000):
        nested = (0, float(i), [0, 1], nested)
    forest = make_model([nested, nested, [1, 1]], 1)
    query = make_query(forest, data_of([[-5.0], [1e6], [19998.5]], ["b", "a", "b"]), Ball(1))
    outcome = verify(query)
    assert outcome.verdicts.tolist() == [Verdict.ROBUST, Verdict.ROBUST, Verdict.FRAGILE]
    (witness,) = find_witnesses(query, outcome)
    assert predict(forest, witness.point[None, :]).sets == ((0,),)
