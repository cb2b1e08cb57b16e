"""Classification and votes against plain Python with exact fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import LARGEST, elect, leaf_of, make_model, models, points, prediction_of

from metasilvae.errors import RequestError
from metasilvae.model import LeafKind, Model
from metasilvae.prediction import find_leaves, predict, predict_proba, rank_labels
from metasilvae.voting import VOTINGS, choose_voting, holds_distributions


def predictions(model: Model, X: Sequence[Sequence[float]], voting: str | None = None) -> list[tuple[int, ...]]:
    table = predict(model, np.array(X, dtype=np.float64).reshape(len(X), model.n_features), voting)
    return [table.sets[number] for number in table.ids]


def fitting(model: Model) -> list[str]:
    return [name for name, scheme in VOTINGS.items() if scheme.leaf_kind is model.leaf_kind]


@settings(max_examples=600)
@given(st.data())
def test_votes_are_counted_exactly(data: st.DataObject) -> None:
    model = data.draw(models(max_trees=5, max_splits=4))
    X = data.draw(st.lists(points(model), min_size=1, max_size=4))
    leaves = find_leaves(model, np.array(X, dtype=np.float64))
    assert leaves.tolist() == [[leaf_of(model, x, position) for position in range(model.n_trees)] for x in X]
    for voting in fitting(model):
        if model.n_trees == 1:
            continue
        assert predictions(model, X, voting) == [elect(model, x, voting) for x in X]


@settings(max_examples=300)
@given(st.data())
def test_one_tree_predictions_as_its_leaf(data: st.DataObject) -> None:
    model = data.draw(models(max_trees=1))
    X = data.draw(st.lists(points(model), min_size=1, max_size=4))
    expected = [prediction_of(model.leaf_values[leaf_of(model, x)].tolist()) for x in X]
    for voting in (None, *fitting(model)):
        assert predictions(model, X, voting) == expected


# Sums of these come very close to each other without being equal, or are equal only as fractions.
near_ties = st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 2 / 3, 1e-17, -1e-17, 1.0, -1.0, 1e16, -1e16, 5e-324])


@settings(max_examples=600)
@given(st.lists(st.lists(near_ties, min_size=3, max_size=3), min_size=2, max_size=8))
def test_near_ties_of_scores(leaves: list[list[float]]) -> None:
    model = make_model(leaves, 1, "abc", LeafKind.SCORES)
    assert predictions(model, [[0.0]]) == [elect(model, [0.0], "softargmax")]


@settings(max_examples=600)
@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=2, max_size=8))
def test_near_ties_of_distributions(leaves: list[list[int]]) -> None:
    model = make_model(leaves, 1, "abc")
    assert predictions(model, [[0.0]], "average") == [elect(model, [0.0], "average")]


def test_three_times_a_third() -> None:
    """1/3 + 1/3 + 1/3 = 1, whatever the order; in float64 0.1 + 0.2 is not 0.3."""
    model = make_model([[1, 2], [1, 2], [1, 2], [1, 0]], 1)
    assert predictions(model, [[0.0]], "average") == [(0, 1)]
    model = make_model([[0.1, 0.3], [0.2, 0.0]], 1, kind=LeafKind.SCORES)
    assert predictions(model, [[0.0]]) == [(0,)]
    assert Fraction(0.1) + Fraction(0.2) > Fraction(0.3)


def test_sums_beyond_the_largest_number() -> None:
    model = make_model([[LARGEST, LARGEST], [LARGEST, LARGEST], [-LARGEST, -1.0]], 1, kind=LeafKind.SCORES)
    assert predictions(model, [[0.0]]) == [(1,)]


def test_counts_whose_sum_is_beyond_int64() -> None:
    labels = [f"c{i}" for i in range(2000)]
    leaf = [2**53] * 2000
    model = make_model([leaf, [2**53 - 1, *leaf[1:]]], 1, labels)
    assert predictions(model, [[0.0]], "average") == [elect(model, [0.0], "average")] == [tuple(range(1, 2000))]


def test_threads_do_not_change_predictions() -> None:
    rng = np.random.default_rng(1)
    trees = [(t % 3, 0.1 * t, [3, 1, 1], (1, 0.5, [1, 1, 0], [0, 1, 1])) for t in range(9)]
    model = make_model(trees, 3, "abc")
    X = rng.random((5000, 3))
    alone = predict(model, X, "average", jobs=1)
    for jobs in (2, 7, None):
        shared = predict(model, X, "average", jobs=jobs)
        assert shared.sets == alone.sets
        assert shared.ids.tobytes() == alone.ids.tobytes()


def test_no_rows() -> None:
    assert predictions(make_model([[1, 0], [0, 1]], 1), []) == []


def test_voting_must_fit_the_leaves() -> None:
    counts, scores = make_model([[1, 0]]), make_model([[1.0, 0.0]], kind=LeafKind.SCORES)
    assert choose_voting(counts, None) == "max"
    assert choose_voting(counts, "average") == "average"
    assert choose_voting(scores, None) == "softargmax"
    with pytest.raises(RequestError, match="its leaves are LEAF_LOGARITHMIC leaves; use --voting softargmax"):
        choose_voting(scores, "max")
    with pytest.raises(RequestError, match="use --voting max or average"):
        choose_voting(counts, "softargmax")


def define_shares(model: Model, x: Sequence[float], voting: str) -> list[float]:
    """Probabilities of the labels of one sample, by definition."""
    totals = [Fraction(0)] * model.n_labels
    for position in range(model.n_trees):
        values = model.leaf_values[leaf_of(model, x, position)].tolist()
        for label, value in enumerate(values):
            if voting == "max" and model.n_trees > 1:
                totals[label] += label in prediction_of(values)
            elif voting == "softargmax":
                totals[label] += Fraction(value)
            else:
                totals[label] += Fraction(value, sum(values))
    if voting == "softargmax":
        return [1 / sum(_exponential(other - total) for other in totals) for total in totals]
    return [float(total / sum(totals)) for total in totals]


def _exponential(exponent: Fraction) -> float:
    return math.inf if exponent > 700 else math.exp(max(exponent, -800))


@settings(max_examples=300)
@given(st.data())
def test_probabilities_are_those_of_the_definition(data: st.DataObject) -> None:
    model = data.draw(models(max_trees=4, max_splits=4))
    if holds_distributions(model):
        return
    X = data.draw(st.lists(points(model), min_size=1, max_size=4))
    values = np.array(X, dtype=np.float64).reshape(len(X), model.n_features)
    for voting in fitting(model):
        found = predict_proba(model, values, voting)
        assert found.sum(axis=1) == pytest.approx(np.ones(len(X)))
        for x, shares in zip(X, found, strict=True):
            expected = define_shares(model, x, voting)
            # Sums of huge and tiny scores are rounded; where they cancel, only the definition knows the difference.
            scores = np.abs(model.leaf_values).max() if voting == "softargmax" else 0
            if scores < 1e3:
                assert shares.tolist() == pytest.approx(expected, abs=1e-9)
                winners = elect(model, x, voting) if model.n_trees > 1 else prediction_of(expected)
                assert all(shares[label] == pytest.approx(shares.max()) for label in winners)


@settings(max_examples=200)
@given(st.data())
def test_ranks_order_rows_as_probabilities_do(data: st.DataObject) -> None:
    model = data.draw(models(max_trees=3, max_splits=4))
    X = data.draw(st.lists(points(model), min_size=2, max_size=5))
    values = np.array(X, dtype=np.float64).reshape(len(X), model.n_features)
    for voting in fitting(model):
        shares, ranks = predict_proba(model, values, voting), rank_labels(model, values, voting)
        assert not np.isnan(ranks).any()
        for label in range(model.n_labels):
            for first, second in itertools.combinations(range(len(X)), 2):
                if shares[first, label] < shares[second, label] * (1 - 1e-9):
                    assert ranks[first, label] < ranks[second, label]


def test_scores_that_are_distributions_are_averaged() -> None:
    """As in an imported forest whose classes have weights."""
    trees = [(0, 0.5, [0.25, 0.75], [1.0, 0.0]), [0.5, 0.5]]
    X = np.array([[0.0], [1.0]])
    for scale in (1.0, 0.5):
        scaled = [(0, 0.5, [scale * 0.25, scale * 0.75], [scale, 0.0]), [scale * 0.5, scale * 0.5]]
        model = make_model(scaled, 1, kind=LeafKind.SCORES)
        assert holds_distributions(model)
        assert predict_proba(model, X).tolist() == [[0.375, 0.625], [0.75, 0.25]]
        assert rank_labels(model, X).tolist() == [[0.375, 0.625], [0.75, 0.25]]
    assert not holds_distributions(make_model(trees, 1, kind=LeafKind.COUNTS))
    assert not holds_distributions(make_model([[0.25, 0.25], [-0.5, 1.5]], 1, kind=LeafKind.SCORES))


def test_scores_that_overflow() -> None:
    model = make_model([[LARGEST, 0.0], [LARGEST, 0.0]], 1, kind=LeafKind.SCORES)
    assert predict_proba(model, np.zeros((1, 1))).tolist() == [[1.0, 0.0]]
    assert rank_labels(model, np.zeros((1, 1))).tolist() == [[np.inf, -np.inf]]


def test_huge_scores_are_no_distributions() -> None:
    assert not holds_distributions(make_model([[LARGEST, LARGEST]], 1, kind=LeafKind.SCORES))
