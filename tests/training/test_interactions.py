"""Features that tell something only together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracles import chi_squared

from metasilvae._core.training import interactions as kernel
from metasilvae.api import verify
from metasilvae.dataset import Dataset
from metasilvae.perturbations.boxes import Ball
from metasilvae.training import interactions
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.forest import ForestTrainer
from metasilvae.training.interactions import (
    Interaction,
    LabelCounts,
    Sides,
    Signs,
    find_interactions,
    find_quartiles,
    pack_bits,
)
from metasilvae.training.options import forest_options_for, options_for
from metasilvae.training.protocol import finish
from metasilvae.training.tuning import TunedTrainer

EPSILON = 0.02
LABELS = ("even", "odd")


def parity(seed: int, n_samples: int = 600, n_used: int = 3, n_others: int = 4, noise: float = 0.05) -> Dataset:
    """Labels that depend on the sides of some features together; the features lie between others."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_used + n_others))
    y = (X[:, 1 : n_used + 1] > 0).sum(axis=1) % 2
    return Dataset(X, np.where(rng.random(n_samples) < noise, 1 - y, y).astype(np.int32), LABELS)


def chessboard(seed: int, n_samples: int = 800) -> Dataset:
    X = np.random.default_rng(seed).random((n_samples, 4))
    return Dataset(X, (np.floor(4 * X[:, [0, 3]]).sum(axis=1) % 2).astype(np.int32), LABELS)


def packed(signs: np.ndarray) -> Signs:
    """Signs of shape (n_rows, n_columns), 0 where a value is missing."""
    return Signs.of(signs.T < 0, signs.T != 0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_products_of_signs_are_summed(seed: int, n_rows: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(-1, 2, (n_rows, n)) for n in (2, 3))
    is_member = rng.random(n_rows) < 0.6
    sums = np.empty((2, 3), dtype=np.int64)
    one, other = packed(left), packed(right)
    kernel.sum_products(one.negative, one.present, other.negative, other.present, pack_bits(is_member), sums)
    assert (sums == left[is_member].T @ right[is_member]).all()
    product = one.times(1, other)
    kernel.sum_products(one.negative, one.present, product.negative, product.present, pack_bits(is_member), sums)
    assert (sums == left[is_member].T @ (left[:, [1]] * right)[is_member]).all()


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_statistics_are_those_of_the_table_of_sides_and_labels(seed: int, n_labels: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_labels, 60).astype(np.int32)
    left, right = (rng.choice([-1.0, 1.0], (60, n), p=[0.3, 0.7]) for n in (2, 3))
    counts = LabelCounts(y)
    found = counts.measure(packed(left), packed(right))
    np.testing.assert_allclose(counts.measure_alone(packed(left)), [chi_squared(each, y) for each in left.T], atol=1e-9)
    expected = [[chi_squared(left[:, i] * right[:, j], y) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, np.nextafter(5.0, 6.0)]), min_size=1, max_size=30))
def test_quartiles_separate_values(values: list[float]) -> None:
    column = np.array([*values, np.nan])
    for threshold in find_quartiles(column):
        if threshold is None:
            assert len(set(values)) == 1
        else:
            assert 0 < (column <= threshold).sum() < len(values)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 1000))
def test_the_tree_of_an_interaction_has_a_leaf_for_each_cell(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    thresholds = tuple(tuple(np.sort(rng.random(size)).tolist()) for size in sizes)
    found = Interaction(tuple(range(2, 2 + len(sizes))), thresholds)
    feature, threshold, left, right = found.nodes()
    assert (feature < 0).sum() == found.n_cells
    X = rng.random((200, 6))
    leaves = []
    for row in X:
        node = 0
        while feature[node] >= 0:
            node = left[node] if row[feature[node]] <= threshold[node] else right[node]
        leaves.append(node)
    cells = [
        tuple(int(np.searchsorted(each, row[f])) for f, each in zip(found.features, thresholds, strict=True))
        for row in X
    ]
    # Two rows share a leaf if and only if they share a cell.
    assert len(set(zip(leaves, cells, strict=True))) == len(set(leaves)) == len(set(cells))


@pytest.mark.parametrize("seed", range(6))
def test_features_that_tell_something_together_are_found(seed: int) -> None:
    assert [each.features for each in find_interactions(parity(seed))] == [(1, 2, 3)]
    assert [each.features for each in find_interactions(parity(seed, n_used=2))] == [(1, 2)]
    (board,) = find_interactions(chessboard(seed))
    assert board.features == (0, 3)
    np.testing.assert_allclose(board.thresholds, [[0.25, 0.5, 0.75]] * 2, atol=0.08)


@pytest.mark.parametrize("seed", range(6))
def test_features_without_a_joint_effect_are_not_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(500, 8))
    for y in (rng.integers(0, 3, 500), (X[:, 0] > 0) & (X[:, 1] > 0), X[:, 0] + X[:, 1] > 0, np.zeros(500)):
        assert not find_interactions(Dataset(X, np.asarray(y, dtype=np.int32), ("a", "b", "c")))


def test_features_with_a_joint_effect_yield_to_a_stronger_one() -> None:
    dataset = parity(0, n_others=4)
    is_told = np.random.default_rng(1).random(dataset.n_samples) < 0.6
    # The first feature tells most labels by itself, the next three together the others.
    y = np.where(is_told, dataset.X[:, 0] > 0, dataset.y)
    assert not find_interactions(Dataset(dataset.X, y.astype(np.int32), LABELS))


def test_missing_values_and_constant_columns_do_not_matter() -> None:
    dataset = parity(0)
    X = dataset.X.copy()
    X[np.random.default_rng(1).random(X.shape) < 0.05] = np.nan
    X[:, 0], X[:, 4] = 7.0, np.nan
    assert [each.features for each in find_interactions(Dataset(X, dataset.y, LABELS))] == [(1, 2, 3)]


def test_few_rows_and_large_tables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not find_interactions(parity(0, n_samples=20))
    dataset = parity(0)
    n_sides = Sides.of(dataset.X).n_sides
    assert n_sides == 3 * dataset.n_features
    # Medians alone are enough here.
    monkeypatch.setattr(interactions, "MOST_WORK", 2 * dataset.n_samples * n_sides * (n_sides - 1) / 2)
    assert [each.features for each in find_interactions(dataset)] == [(1, 2, 3)]
    monkeypatch.setattr(interactions, "MOST_WORK", 100)
    assert not find_interactions(dataset)


def test_an_interaction_among_some_features() -> None:
    found = Interaction((1, 4), ((0.5,), (1.0, 2.0)))
    assert found.among(np.array([0, 1, 4], dtype=np.int32)) == Interaction((1, 2), found.thresholds)
    assert found.among(np.array([0, 1, 3], dtype=np.int32)) is None


@pytest.mark.parametrize("seed", range(3))
def test_trees_and_forests_begin_with_an_interaction(seed: int) -> None:
    dataset, others = parity(seed, 1000), parity(seed + 100, 2000)
    # No search, and a short one: growth alone must find it.
    tree = finish(TreeTrainer(dataset, Ball(EPSILON), options_for("fast")))
    forest = finish(ForestTrainer(dataset, Ball(EPSILON), forest_options_for("fast", 3)))
    for model in (tree, forest):
        assert float(verify(model, others, EPSILON).counts.accuracy) > 0.9


def test_tuning_knows_the_interaction() -> None:
    dataset = parity(3)
    trainer = TunedTrainer(dataset, Ball(EPSILON), options_for("default", generations=2, polish=1))
    records = list(trainer.run())
    assert len(records) <= trainer.n_steps
    assert trainer.tuning is not None
    # Trials begin with it too, so that they tell what to expect.
    assert trainer.tuning["score"] > 0.85


def test_trees_of_a_given_size_or_of_other_features_do_not_begin_with_it() -> None:
    dataset = parity(0)

    def count(**changes: object) -> int:
        return len(TreeTrainer(dataset, Ball(EPSILON), options_for("fast", **changes))._makers)

    usual = count()
    assert count(max_leaves=7) < usual
    assert count(allowed_features=2) < usual
    plain = TreeTrainer(dataset, Ball(EPSILON), options_for("cart"))
    assert len(plain._makers) == len(TreeTrainer(dataset, Ball(EPSILON), options_for("cart"), interactions=())._makers)


def test_classes_may_alternate_from_row_to_row() -> None:
    whole = parity(1, 12000, n_used=2)
    counts = np.bincount(whole.y).min()
    rows = np.stack([np.flatnonzero(whole.y == label)[:counts] for label in (0, 1)], axis=1).ravel()
    assert [each.features for each in find_interactions(whole.subset(rows))] == [(1, 2)]


def test_very_many_features_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of all pairs of 50000 features would take 20 GB, even if most of them are constant."""

    def refuse(X: object) -> None:
        raise AssertionError("looked at")

    monkeypatch.setattr(Sides, "of", refuse)
    X = np.zeros((60, 50000))
    X[:, :9] = np.random.default_rng(0).random((60, 9))
    assert find_interactions(Dataset(X, np.arange(60, dtype=np.int32) % 2, LABELS)) == ()
