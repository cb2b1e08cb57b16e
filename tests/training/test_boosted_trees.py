"""Growth of boosted trees, compared with slow twins that know no codes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.boosting_oracles import (
    LeafProblem,
    best_by_search,
    best_split,
    best_values,
    bounds_of_tree,
    least_loss,
    leaves_of,
    loss_of_tree,
)
from support.training_problems import Problem, random_problem

from metasilvae._core.training import boosting as kernel
from metasilvae.errors import CheckpointError
from metasilvae.training import boosted_trees
from metasilvae.training.boosted_trees import (
    UNIT,
    VALUE_UNIT,
    BoostedTree,
    Codes,
    Derivatives,
    GrowthLimits,
    choose_thresholds,
    grow_tree,
    pack_trees,
    polish_tree,
    unpack_trees,
)
from metasilvae.training.checkpoint.files import pack, unpack

seeds = st.integers(0, 2**32 - 1)


def ends(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    pairs = [problem.radii.boxes(problem.dataset).bounds(row) for row in range(problem.dataset.n_samples)]
    return np.array([low for low, _ in pairs]), np.array([high for _, high in pairs])


def coded(problem: Problem, n_thresholds: int = 255) -> tuple[list[np.ndarray], Codes]:
    boxes = problem.radii.boxes(problem.dataset)
    thresholds = choose_thresholds(problem.dataset.X, boxes, n_thresholds, 0)
    return thresholds, Codes.of(problem.dataset, boxes, thresholds)


def random_loss(rng: np.random.Generator, is_positive: np.ndarray) -> Derivatives:
    """Derivatives as a logistic loss has them: a positive sample wants a higher score."""
    n = len(is_positive)
    sign = np.where(is_positive, -1, 1)
    first = [(sign * rng.integers(0, 50, n)).astype(np.int32) for _ in range(2)]
    second = [rng.integers(0, 20, n).astype(np.int32) for _ in range(2)]
    return Derivatives(first[0], second[0], first[1], second[1])


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


def random_leaf(seed: int) -> tuple[LeafProblem, list[np.ndarray], Codes, Derivatives, np.ndarray]:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    thresholds, codes = coded(problem, int(rng.integers(1, 20)))
    n = problem.dataset.n_samples
    is_positive = rng.random(n) < rng.random()
    loss = random_loss(rng, is_positive)
    falls, reaches = rng.random(n) < 0.8, rng.random(n) < 0.8
    leaf = LeafProblem(
        problem.dataset.X, *ends(problem), falls, reaches, is_positive, loss.own_gradient, loss.own_hessian,
        loss.gradient, loss.hessian,
    )  # fmt: skip
    return leaf, thresholds, codes, loss, rng.choice([0.5, 3.0, 40.0], 1)


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
@settings(max_examples=40)
def test_the_closed_form_is_the_minimum(seed: int) -> None:
    """No pair of values has a smaller loss than the better one of the two orders, or equal values."""
    leaf, thresholds, _, _, (penalty,) = random_leaf(seed)
    feature = seed % len(thresholds)
    if not len(thresholds[feature]):
        return
    threshold = float(thresholds[feature][seed % len(thresholds[feature])])
    best = least_loss(leaf, feature, threshold, penalty)
    values = np.linspace(-4, 4, 33)
    assert best_by_search(leaf, feature, threshold, penalty, values) >= best - 1e-6 * (1 + abs(best))


def grown(seed: int, **limits: Any) -> tuple[Problem, list[np.ndarray], Codes, BoostedTree]:
    *found, _ = grown_on(seed, **limits)
    return found[0], found[1], found[2], found[3]


def grown_on(seed: int, **limits: Any) -> tuple[Problem, list[np.ndarray], Codes, BoostedTree, np.ndarray]:
    """A tree and the rows that it was grown on."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, int(rng.integers(20, 80)))
    thresholds, codes = coded(problem)
    is_positive = rng.random(codes.n_samples) < 0.5
    scale = int(1 / UNIT) // 50
    loss = random_loss(rng, is_positive)
    loss = Derivatives(*((part * scale).astype(np.int32) for part in vars(loss).values()))
    rows = np.sort(rng.permutation(codes.n_samples)[: codes.n_samples // 2 + 1]).astype(np.int32)
    features = np.arange(problem.dataset.n_features, dtype=np.int32)
    tree = grow_tree(codes, loss, is_positive, rows, lambda level: features, GrowthLimits(**limits))
    return problem, thresholds, codes, tree, rows


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


class Polished:
    """A random tree and a loss, with the slow loss of any tree for the same samples."""

    def __init__(self, seed: int, max_depth: int) -> None:
        self.problem, self.thresholds, self.codes, self.tree = grown(seed, max_depth=max_depth)
        rng = np.random.default_rng(seed)
        self.is_positive = rng.random(self.codes.n_samples) < 0.5
        self.derivatives = random_loss(rng, self.is_positive)
        self.penalty = float(rng.choice([0.5, 20.0]))

    def polish(self, n_passes: int, prunes: bool, tree: BoostedTree | None = None) -> BoostedTree:
        start = tree or self.tree
        return polish_tree(start, self.codes, self.derivatives, self.is_positive, self.penalty * UNIT, n_passes, prunes)

    def nodes(self, tree: BoostedTree) -> tuple[np.ndarray, ...]:
        tests = zip(tree.feature, tree.code, strict=True)
        threshold = np.array([self.thresholds[f][c] if f >= 0 else 0.0 for f, c in tests])
        return tree.feature, threshold, tree.left, tree.right

    def loss(self, tree: BoostedTree, value: np.ndarray | None = None) -> float:
        loss = self.derivatives
        return loss_of_tree(
            self.nodes(tree), tree.value if value is None else value, self.problem.dataset.X, *ends(self.problem),
            self.is_positive, (loss.own_gradient, loss.own_hessian, loss.gradient, loss.hessian), self.penalty,
        )  # fmt: skip


@given(seeds, st.integers(0, 6), st.integers(1, 4), st.booleans())
@settings(max_examples=40)
def test_polishing_never_raises_the_loss(seed: int, max_depth: int, n_passes: int, prunes: bool) -> None:
    problem = Polished(seed, max_depth)
    losses = [min(problem.loss(problem.tree), 0.0)]
    for passes in range(n_passes):
        losses.append(problem.loss(problem.polish(passes, False)))
    # Pruning comes before the last pass.
    after = problem.polish(n_passes, prunes)
    losses.append(problem.loss(after))
    assert all(later <= earlier + 1e-9 * (1 + abs(earlier)) for earlier, later in pairwise(losses))
    assert after.n_leaves <= problem.tree.n_leaves
    assert prunes or after.n_leaves == problem.tree.n_leaves


@given(seeds, st.integers(1, 6))
@settings(max_examples=25)
def test_a_polished_leaf_has_its_best_value(seed: int, max_depth: int) -> None:
    """After many passes no leaf can be moved by itself to a clearly smaller loss."""
    problem = Polished(seed, max_depth)
    tree = problem.polish(60, False)
    best = problem.loss(tree)
    # A step that is halved four times ends just before a corner of the loss, where some sample is worst off elsewhere.
    allowed = 0.02 * abs(best) + 1e-6
    for leaf in np.flatnonzero(tree.feature < 0)[:6]:
        for change in (-0.5, -0.05, 0.05, 0.5):
            value = tree.value.copy()
            value[leaf] += change
            assert problem.loss(tree, value) >= best - allowed


@given(seeds, st.integers(1, 6))
@settings(max_examples=40)
def test_pruned_trees_are_parts_of_the_tree(seed: int, max_depth: int) -> None:
    problem = Polished(seed, max_depth)
    one, other = problem.polish(1, False), problem.polish(1, True)
    assert other.depth <= one.depth
    # Its inner nodes are those of the tree, from the root on, and stored trees know their children by their order.
    places = {0: 0}
    for node in np.flatnonzero(other.feature >= 0).tolist():
        place = places[node]
        assert (other.feature[node], other.code[node]) == (one.feature[place], one.code[place])
        places[int(other.left[node])], places[int(other.right[node])] = int(one.left[place]), int(one.right[place])
    (again,) = unpack_trees(unpack(pack(pack_trees([other]))))
    assert (again.left == other.left).all()
    # Where the derivatives are all 0, no split is of use.
    none = np.zeros(problem.codes.n_samples, dtype=np.int32)
    problem.derivatives = Derivatives(none, none, none, none)
    assert problem.polish(1, True).n_leaves == 1


@given(seeds, st.integers(0, 6))
@settings(max_examples=25)
def test_leaves_that_boxes_reach(seed: int, max_depth: int) -> None:
    problem = Polished(seed, max_depth)
    feature, code, left, right, value = problem.tree.in_preorder()
    tree = BoostedTree(feature, code, left, right, value)
    n_samples, (lower, upper) = problem.codes.n_samples, ends(problem.problem)
    numbers = np.arange(len(feature), dtype=np.int32)
    for usual in (0, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(boosted_trees, "USUAL_REACH", usual)
            nodes = feature, code, left, right, numbers
            own, starts, reached = boosted_trees._reach(problem.codes, nodes, tree.depth)
        leaf_starts, leaf_rows = np.empty(len(feature) + 1, dtype=np.int64), np.empty(len(reached), dtype=np.int32)
        kernel.group_rows(starts, reached, leaf_starts, leaf_rows)
        rows_of = [leaf_rows[start:stop].tolist() for start, stop in pairwise(leaf_starts.tolist())]
        for row in range(n_samples):
            x = problem.problem.dataset.X[row]
            assert leaves_of(problem.nodes(tree), x, x) == [own[row]]
            expected = leaves_of(problem.nodes(tree), lower[row], upper[row])
            assert sorted(reached[starts[row] : starts[row + 1]].tolist()) == expected
            assert [leaf for leaf, rows in enumerate(rows_of) if row in rows] == expected


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
