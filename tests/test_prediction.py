"""Classification and votes against plain Python with exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import LARGEST, elect, leaf_of, make_model, models, points, prediction_of

from metasilvae.errors import RequestError
from metasilvae.model import LeafKind, Model
from metasilvae.prediction import find_leaves, predict
from metasilvae.voting import VOTINGS, choose_voting


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
