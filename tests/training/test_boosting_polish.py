"""Polishing of boosted trees, compared with a slow loss that knows no codes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.boosted_problems import ends, grown, random_loss
from support.boosting_oracles import leaves_of, loss_of_tree

from metasilvae._core.training import boosting_polish as kernel
from metasilvae.perturbations.boxes import Ball
from metasilvae.training import boosting_polish
from metasilvae.training.boosted_trees import UNIT, BoostedTree, Codes, Derivatives, pack_trees, unpack_trees
from metasilvae.training.boosting_polish import ReachedTree, polish_tree
from metasilvae.training.checkpoint.files import pack, unpack

seeds = st.integers(0, 2**32 - 1)


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

    def loss(self, tree: BoostedTree, present: BoostedTree | None = None) -> float:
        """The loss of a tree; the derivatives are those at scores that hold no tree, or the present one."""
        loss = self.derivatives
        own_gradient, gradient = loss.own_gradient.astype(float), loss.gradient.astype(float)
        if present is not None:
            for row, x in enumerate(self.problem.dataset.X):
                lower, upper = (each[row] for each in ends(self.problem))
                (own,) = leaves_of(self.nodes(present), x, x)
                reached = present.value[leaves_of(self.nodes(present), lower, upper)]
                own_gradient[row] -= loss.own_hessian[row] * present.value[own]
                gradient[row] -= loss.hessian[row] * (reached.min() if self.is_positive[row] else reached.max())
        return loss_of_tree(
            self.nodes(tree), tree.value, self.problem.dataset.X, *ends(self.problem), self.is_positive,
            (own_gradient, loss.own_hessian, gradient, loss.hessian), self.penalty,
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


@given(seeds, st.integers(0, 6), st.integers(1, 3))
@settings(max_examples=40)
def test_refitting_never_raises_the_loss_at_the_present_scores(seed: int, max_depth: int, n_passes: int) -> None:
    problem = Polished(seed, max_depth)
    tree = problem.tree

    def refit(loss: Derivatives, penalty: float, n_passes: int = 1) -> BoostedTree:
        return ReachedTree(tree, problem.codes, problem.is_positive).refitted(loss, penalty, n_passes)

    losses = [problem.loss(tree, tree)]
    for passes in range(1, n_passes + 1):
        after = refit(problem.derivatives, problem.penalty * UNIT, passes)
        losses.append(problem.loss(after, tree))
        assert after.n_leaves == tree.n_leaves
    assert all(later <= earlier + 1e-9 * (1 + abs(earlier)) for earlier, later in pairwise(losses))
    # A model that is alone and has no derivatives left keeps its leaves, but for the penalty.
    none = np.zeros(problem.codes.n_samples, dtype=np.int32)
    settled = Derivatives(none, none + 7, none, none + 7)
    (kept,) = unpack_trees(pack_trees([refit(settled, 0.0)]))
    assert sorted(kept.value[kept.feature < 0]) == pytest.approx(sorted(tree.value[tree.feature < 0]), abs=1e-9)


@given(seeds, st.integers(0, 6))
@settings(max_examples=25)
def test_without_boxes_every_leaf_has_its_best_value(seed: int, max_depth: int) -> None:
    problem = Polished(seed, max_depth)
    dataset, loss = problem.problem.dataset, problem.derivatives
    problem.codes = Codes.of(dataset, Ball(0.0).boxes(dataset), problem.thresholds)
    tree = problem.polish(1, False)
    leaves = np.array([leaves_of(problem.nodes(tree), x, x)[0] for x in dataset.X])
    for leaf in np.flatnonzero(tree.feature < 0):
        rows = leaves == leaf
        gradient = int(loss.own_gradient[rows].sum()) + int(loss.gradient[rows].sum())
        hessian = int(loss.own_hessian[rows].sum()) + int(loss.hessian[rows].sum())
        assert tree.value[leaf] == pytest.approx(-gradient / (hessian + problem.penalty), rel=1e-9, abs=1e-12)


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
            patch.setattr(boosting_polish, "USUAL_REACH", usual)
            nodes = feature, code, left, right, numbers
            own, starts, reached = boosting_polish._reach(problem.codes, nodes, tree.depth)
        leaf_starts, leaf_rows = np.empty(len(feature) + 1, dtype=np.int64), np.empty(len(reached), dtype=np.int32)
        kernel.group_rows(starts, reached, leaf_starts, leaf_rows)
        rows_of = [leaf_rows[start:stop].tolist() for start, stop in pairwise(leaf_starts.tolist())]
        for row in range(n_samples):
            x = problem.problem.dataset.X[row]
            assert leaves_of(problem.nodes(tree), x, x) == [own[row]]
            expected = leaves_of(problem.nodes(tree), lower[row], upper[row])
            assert sorted(reached[starts[row] : starts[row + 1]].tolist()) == expected
            assert [leaf for leaf, rows in enumerate(rows_of) if row in rows] == expected
