"""Growth of boosted trees, compared with slow twins that know no codes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.boosted_problems import coded, ends, grown, grown_on, random_loss
from support.boosting_oracles import (
    LeafProblem,
    SlowGrowth,
    best_by_search,
    best_split,
    best_values,
    bounds_of_tree,
    least_loss,
)
from support.training_problems import random_problem

from metasilvae._core.training import boosting_codes as codes_kernel
from metasilvae._core.training import boosting_growth as kernel
from metasilvae.errors import CheckpointError
from metasilvae.training import boosted_trees
from metasilvae.training.boosted_trees import (
    UNIT,
    VALUE_UNIT,
    BoostedTree,
    Codes,
    Derivatives,
    GrowthLimits,
    grow_tree,
    pack_trees,
    unpack_trees,
)
from metasilvae.training.checkpoint.files import pack, unpack

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 12))
def test_codes_compare_as_the_verifier_does(seed: int, n_thresholds: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    thresholds, codes = coded(problem, n_thresholds)
    lower, upper = ends(problem)
    for feature, own in enumerate(thresholds):
        assert len(own) <= n_thresholds
        assert (np.diff(own) > 0).all()
        for number, threshold in enumerate(own):
            assert ((codes.own[feature] <= number) == (problem.dataset.X[:, feature] <= threshold)).all()
            assert ((codes.low[feature] <= number) == (lower[:, feature] <= threshold)).all()
            assert ((codes.high[feature] > number) == (upper[:, feature] > threshold)).all()


@given(seeds)
def test_all_ways_to_divide_the_rows_are_among_the_thresholds(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    thresholds, _ = coded(problem)
    lower, upper = ends(problem)
    for feature, own in enumerate(thresholds):
        events = np.unique(np.concatenate([part[:, feature] for part in (problem.dataset.X, lower, upper)]))
        assert len(own) == len(events) - 1
        assert ((events[:-1] <= own) & (own < events[1:])).all()


def without_most_bends(loss: Derivatives) -> Derivatives:
    """Nothing is left of most second derivatives, as when a model is sure of most samples."""
    return dataclasses.replace(loss, own_hessian=loss.own_hessian // 15, hessian=loss.hessian // 15)


def random_leaf(seed: int) -> tuple[LeafProblem, list[np.ndarray], Codes, Derivatives, np.ndarray]:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    thresholds, codes = coded(problem, int(rng.integers(1, 20)))
    n = problem.dataset.n_samples
    is_positive = rng.random(n) < rng.random()
    loss = random_loss(rng, is_positive)
    if rng.random() < 0.4:
        loss = without_most_bends(loss)
    falls, reaches = rng.random(n) < 0.8, rng.random(n) < 0.8
    leaf = LeafProblem(
        problem.dataset.X, *ends(problem), falls, reaches, is_positive, loss.own_gradient, loss.own_hessian,
        loss.gradient, loss.hessian,
    )  # fmt: skip
    return leaf, thresholds, codes, loss, rng.choice([0.0, 0.5, 3.0, 40.0], 1)


@given(seeds, st.integers(1, 3))
@settings(max_examples=200)
def test_the_best_split_of_a_leaf(seed: int, min_samples: int) -> None:
    leaf, thresholds, codes, loss, (penalty,) = random_leaf(seed)
    own = np.flatnonzero(leaf.falls).astype(np.int32)
    positive = np.flatnonzero(leaf.reaches & leaf.is_positive).astype(np.int32)
    negative = np.flatnonzero(leaf.reaches & ~leaf.is_positive).astype(np.int32)
    pairs = np.concatenate([positive, negative])
    n_features = len(thresholds)
    gains, chosen = np.full((n_features, 1), -1.0), np.full((n_features, 1), -1, dtype=np.int32)
    sums = np.zeros((n_features, 1, 4), dtype=np.int64)
    for start, stop in ((0, n_features // 2), (n_features // 2, n_features)):
        kernel.find_splits(
            *codes.arrays, codes.n_thresholds, np.arange(n_features, dtype=np.int32), start, stop,
            own, np.array([0, len(own)]), loss.own_gradient, loss.own_hessian,
            pairs, np.array([0, len(positive), len(pairs)]), loss.gradient[pairs], loss.hessian[pairs],
            penalty, min_samples, gains, chosen, sums,
        )  # fmt: skip
    for feature, own_thresholds in enumerate(thresholds):
        gain, numbers = best_split(leaf, feature, own_thresholds, penalty, min_samples)
        assert gains[feature, 0] == pytest.approx(gain, rel=1e-9, abs=1e-9)
        if gain > 1e-6:
            threshold = own_thresholds[chosen[feature, 0]]
            assert numbers
            found = best_values(leaf, feature, threshold, penalty)
            assert found is not None
            assert found[0] == pytest.approx(gain, rel=1e-9)
            assert tuple(sums[feature, 0]) == found[1]


@given(seeds)
@settings(max_examples=150)
def test_growth_over_several_levels(seed: int) -> None:
    """The slow twin knows values and boxes, but no codes, no lists of samples and no histograms."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, int(rng.integers(20, 60)))
    thresholds, codes = coded(problem, int(rng.integers(2, 12)))
    n_samples, n_features = problem.dataset.n_samples, problem.dataset.n_features
    is_positive, is_drawn = rng.random(n_samples) < 0.5, rng.random(n_samples) < 0.8
    rows = np.flatnonzero(is_drawn).astype(np.int32)
    loss = random_loss(rng, is_positive)
    if rng.random() < 0.4:
        loss = without_most_bends(loss)
    if rng.random() < 0.6:
        # Wide boxes leave little to gain by splits, unless their part of the loss is small.
        loss = dataclasses.replace(loss, gradient=loss.gradient // 5, hessian=loss.hessian // 5)
    penalty, min_samples = float(rng.choice([0.0, 0.5, 10.0])), int(rng.integers(1, 4))
    share = float(rng.choice([0.0, 0.3, 1.0]))
    most_pairs = int(rng.choice([rng.integers(n_samples, 3 * n_samples), 10**6]))
    levels = [
        np.sort(rng.permutation(n_features)[: int(rng.integers(1, n_features + 1))]).astype(np.int32)
        for _ in range(int(rng.integers(1, 6)))
    ]
    n_refits = int(rng.integers(0, 4))
    growth = kernel.Growth(
        *codes.arrays, codes.n_thresholds, *vars(loss).values(), is_positive.view(np.uint8), rows, penalty,
        min_samples, share, most_pairs,
    )  # fmt: skip
    for features in levels:
        if not growth.n_open:
            break
        growth.begin_level(features)
        for place in reversed(range(len(features))):
            growth.find_splits(place, place + 1)
        growth.end_level()
    *nodes, values = growth.finish(n_refits)
    samples = LeafProblem(
        problem.dataset.X, *ends(problem), is_drawn, is_drawn, is_positive, *vars(loss).values()
    )  # fmt: skip
    slow = SlowGrowth(samples, thresholds, penalty, min_samples, share, most_pairs)
    expected, expected_values = slow.grow([features.tolist() for features in levels], n_refits)
    assert np.transpose(nodes).tolist() == expected
    assert values.tolist() == expected_values


def random_shape(rng: np.random.Generator, n_inner: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Feature, left and right of a tree whose children come after their parent, in any order of siblings."""
    feature, left, right = np.full((3, 2 * n_inner + 1), -1, dtype=np.int32)
    leaves = [0]
    for number in range(n_inner):
        node = leaves.pop(int(rng.integers(len(leaves))))
        children = rng.permutation([2 * number + 1, 2 * number + 2]).tolist()
        feature[node], (left[node], right[node]) = rng.integers(3), children
        leaves += children
    return feature, left, right


@given(seeds, st.integers(0, 12))
@settings(max_examples=60)
def test_orders_of_nodes(seed: int, n_inner: int) -> None:
    rng = np.random.default_rng(seed)
    feature, left, right = random_shape(rng, n_inner)
    n_nodes = len(feature)

    def walk(node: int, depth: int = 0) -> list[tuple[int, int]]:
        if feature[node] < 0:
            return [(node, depth)]
        return [(node, depth), *walk(left[node], depth + 1), *walk(right[node], depth + 1)]

    preorder = walk(0)
    order, places = np.empty((2, n_nodes), dtype=np.int32)
    assert codes_kernel.order_nodes(feature, left, right, order, places) == max(depth for _, depth in preorder)
    assert order.tolist() == [node for node, _ in preorder]
    assert places[order].tolist() == list(range(n_nodes))

    # Down to nodes that are pruned; what lies below them does not matter.
    is_leaf = (feature < 0) | (rng.random(n_nodes) < 0.2)
    expected, level = [], [0]
    while level:
        expected += level
        level = [child for node in level if not is_leaf[node] for child in (left[node], right[node])]
    n_found = codes_kernel.order_levels(left, right, is_leaf.view(np.uint8), order)
    assert order[:n_found].tolist() == expected


@given(seeds, st.integers(0, 12))
@settings(max_examples=60)
def test_numbers_of_leaves(seed: int, n_inner: int) -> None:
    single = random_shape(np.random.default_rng(seed), n_inner)
    tree = BoostedTree(single[0], single[0], single[1], single[2], np.zeros(2 * n_inner + 1))
    feature, _, left, right, _ = tree.in_preorder()

    def leaves_below(node: int) -> list[int]:
        return [node] if feature[node] < 0 else leaves_below(left[node]) + leaves_below(right[node])

    first, last = np.empty((2, len(feature)), dtype=np.int32)
    codes_kernel.number_leaves(feature, right, first, last)
    numbers = {leaf: number for number, leaf in enumerate(np.flatnonzero(feature < 0).tolist())}
    for node in range(len(feature)):
        assert list(range(first[node], last[node])) == [numbers[leaf] for leaf in leaves_below(node)]


@given(seeds)
@settings(max_examples=40)
def test_the_closed_form_is_the_minimum(seed: int) -> None:
    """No pair of values has a smaller loss than the better one of the two orders, or equal values."""
    leaf, thresholds, _, _, (penalty,) = random_leaf(seed)
    feature = seed % len(thresholds)
    # Without a penalty the loss of a leaf whose second derivatives are 0 has no minimum.
    if not len(thresholds[feature]) or not penalty:
        return
    threshold = float(thresholds[feature][seed % len(thresholds[feature])])
    best = least_loss(leaf, feature, threshold, penalty)
    values = np.linspace(-4, 4, 33)
    assert best_by_search(leaf, feature, threshold, penalty, values) >= best - 1e-6 * (1 + abs(best))


@given(seeds, st.integers(0, 6), st.sampled_from([1, 4]))
@settings(max_examples=60)
def test_scores_and_their_bounds(seed: int, max_depth: int, min_samples: int) -> None:
    problem, thresholds, codes, tree = grown(seed, max_depth=max_depth, min_samples=min_samples)
    tree = tree.scaled(0.3)
    assert tree.depth <= max_depth
    assert (tree.value % VALUE_UNIT == 0).all()
    own, lowest, highest = np.zeros((3, codes.n_samples))
    tree.add_to(codes, own, lowest, highest)
    lower, upper = ends(problem)
    threshold = np.array([thresholds[f][c] if f >= 0 else 0.0 for f, c in zip(tree.feature, tree.code, strict=True)])
    for row in range(codes.n_samples):
        expected = bounds_of_tree(
            tree.feature, threshold, tree.left, tree.right, tree.value, problem.dataset.X[row], lower[row], upper[row]
        )
        assert (own[row], lowest[row], highest[row]) == expected


@given(seeds)
@settings(max_examples=30)
def test_every_leaf_has_its_samples_and_no_branch_is_contradictory(seed: int) -> None:
    problem, thresholds, codes, tree = grown(seed, max_depth=6, min_samples=3)
    bounds = {0: (np.full(problem.dataset.n_features, -np.inf), np.full(problem.dataset.n_features, np.inf))}
    for node in np.flatnonzero(tree.feature >= 0).tolist():
        low, high = bounds[node]
        tested, threshold = int(tree.feature[node]), thresholds[tree.feature[node]][tree.code[node]]
        assert low[tested] < threshold < high[tested]
        cut = np.arange(len(low)) == tested
        bounds[int(tree.left[node])] = low, np.where(cut, threshold, high)
        bounds[int(tree.right[node])] = np.where(cut, threshold, low), high
    assert sorted(bounds) == list(range(len(tree.feature)))
    feature, code, left, right, value = tree.in_preorder()
    again = BoostedTree(feature, code, left, right, value)
    sums = np.zeros((6, codes.n_samples))
    tree.add_to(codes, *sums[:3])
    again.add_to(codes, *sums[3:])
    assert (sums[:3] == sums[3:]).all()
    inner = np.flatnonzero(feature >= 0)
    assert (left[inner] == inner + 1).all()


@given(seeds, st.integers(2, 5))
@settings(max_examples=20)
def test_parts_of_the_features_make_no_difference(seed: int, n_parts: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 40)
    _, codes = coded(problem)
    is_positive = rng.random(40) < 0.5
    loss = random_loss(rng, is_positive)
    rows, features = np.arange(40, dtype=np.int32), np.arange(problem.dataset.n_features, dtype=np.int32)

    def divide(work: Any, n_items: int) -> None:
        for part in reversed(range(n_parts)):
            work(n_items * part // n_parts, n_items * (part + 1) // n_parts)

    limits = GrowthLimits(max_depth=4, penalty=UNIT)
    one = grow_tree(codes, loss, is_positive, rows, lambda level: features, limits)
    other = grow_tree(codes, loss, is_positive, rows, lambda level: features, limits, divide)
    assert all((ours == theirs).all() for ours, theirs in zip(vars(one).values(), vars(other).values(), strict=True))


@given(seeds, st.integers(1, 40))
@settings(max_examples=20)
def test_drawn_rows_side_by_side_give_the_same_tree(seed: int, n_drawn: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 40)
    _, codes = coded(problem)
    is_positive = rng.random(40) < 0.5
    loss = random_loss(rng, is_positive)
    rows = np.sort(rng.permutation(40)[:n_drawn]).astype(np.int32)
    features = np.arange(problem.dataset.n_features, dtype=np.int32)
    limits = GrowthLimits(max_depth=4, penalty=UNIT)
    taken = codes.take(rows), loss.take(rows), is_positive[rows]
    one = grow_tree(codes, loss, is_positive, rows, lambda level: features, limits)
    other = grow_tree(*taken, np.arange(n_drawn, dtype=np.int32), lambda level: features, limits)
    assert all((ours == theirs).all() for ours, theirs in zip(vars(one).values(), vars(other).values(), strict=True))


@given(seeds)
@settings(max_examples=20)
def test_a_level_has_no_more_pairs_than_allowed(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosted_trees, "MOST_PAIRS", 1)
        _, _, codes, tree, rows = grown_on(seed, max_depth=1)
    if tree.n_leaves > 1:
        feature, code = int(tree.feature[0]), int(tree.code[0])
        is_both = (codes.low[feature] <= code) & (codes.high[feature] > code)
        assert not is_both[rows].any()
    free = grown(seed, max_depth=1)[3]
    assert free.n_leaves >= tree.n_leaves


def test_stored_trees_are_the_same() -> None:
    trees = [grown(seed, max_depth=depth)[3] for seed in range(8) for depth in (0, 2, 5)]
    again = unpack_trees(unpack(pack(pack_trees(trees))))
    assert len(again) == len(trees)
    for one, other in zip(trees, again, strict=True):
        assert all(
            (ours == theirs).all() for ours, theirs in zip(vars(one).values(), vars(other).values(), strict=True)
        )
    assert unpack_trees(unpack(pack(pack_trees([])))) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sizes", lambda part: part[:-1]),
        ("sizes", lambda part: part - 1),
        ("feature", lambda part: part * 0 - 1),
        ("feature", lambda part: part - 1),
        ("code", lambda part: part - 300),
        ("value", lambda part: part * np.nan),
    ],
)
def test_damaged_trees_are_refused(name: str, change: Any) -> None:
    document = pack_trees([grown(seed, max_depth=3)[3] for seed in range(3)])
    document[name] = change(document[name]).astype(document[name].dtype)
    with pytest.raises(CheckpointError, match="damaged"):
        unpack_trees(unpack(pack(document)))
