"""Simplified models answer the same, are never larger, and lose what makes no difference."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import TREE, run, write
from support.oracles import LARGEST, classify, leaf_of, make_model, models, nest, prediction_of, random_model

from metasilvae.analysis.difference import DifferenceStatus, InputBox, compare_models
from metasilvae.analysis.simplification import simplify
from metasilvae.model import LeafKind, Model
from metasilvae.prediction import predict


def values_that_matter(model: Model, feature: int, lower: float, upper: float) -> list[float]:
    thresholds = model.nodes["threshold"][model.nodes["feature"] == feature].tolist()
    values = {lower, upper, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)}
    return sorted(value for value in values if lower <= value <= upper)


def points_that_matter(model: Model, domain: InputBox) -> list[tuple[float, ...]]:
    columns = [values_that_matter(model, f, domain.lower[f], domain.upper[f]) for f in range(model.n_features)]
    return list(itertools.product(*columns))


domains = st.sampled_from([(-math.inf, math.inf), (-1.0, 1.0), (0.0, math.inf), (0.5, 0.5), (-1e300, 0.25)])


@settings(max_examples=400)
@given(st.integers(0, 2**32), domains)
def test_trees_prediction_the_same_in_the_domain(seed: int, bounds: tuple[float, float]) -> None:
    tree = random_model(random.Random(seed), max_splits=12)
    domain = InputBox.between(*bounds, 2)
    simple = simplify(tree, domain)
    assert simple.n_leaves <= tree.n_leaves
    for point in points_that_matter(tree, domain):
        assert classify(simple, point) == classify(tree, point)
    assert compare_models(tree, simple, domain).result is DifferenceStatus.EQUAL
    again = simplify(simple, domain)
    assert again.n_nodes == simple.n_nodes
    # No test is left that one could do without: each has a sample on either side that needs it.
    predictions = {classify(tree, point) for point in points_that_matter(tree, domain)}
    if len(predictions) == 1:
        assert simple.n_leaves == 1


@settings(max_examples=200)
@given(models(max_trees=3, max_splits=4), st.sampled_from(["max", "average"]))
def test_forests_vote_the_same(model: Model, voting: str) -> None:
    if model.leaf_kind is LeafKind.SCORES:
        voting = "softargmax"
    simple = simplify(model, voting=voting)
    assert compare_models(model, simple, voting=voting).result is DifferenceStatus.EQUAL
    rng = random.Random(0)
    columns = [values_that_matter(model, f, -LARGEST, LARGEST) for f in range(model.n_features)]
    X = np.array([[rng.choice(column) for column in columns] for _ in range(50)])
    before, after = predict(model, X, voting), predict(simple, X, voting)
    assert [before.sets[i] for i in before.ids] == [after.sets[i] for i in after.ids]
    if voting == "average" and model.n_trees > 1:
        for position, x in itertools.product(range(model.n_trees), X[:10]):
            old, new = (m.leaf_values[leaf_of(m, x, position)].tolist() for m in (model, simple))
            assert [value * sum(new) for value in old] == [value * sum(old) for value in new]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Equal answers below a split: counts are added.
        ((0, 1.0, [3, 1], [2, 0]), [5, 1]),
        # A test that is decided above.
        ((0, 1.0, (0, 2.0, [1, 0], [0, 1]), [0, 1]), (0, 1.0, [1, 0], [0, 1])),
        # The right child says the same as the left one on the left side.
        ((0, 5.0, (0, 3.0, [1, 0], [0, 1]), [0, 2]), (0, 3.0, [1, 0], [0, 1])),
        # Equal subtrees.
        ((0, 5.0, (1, 3.0, [1, 0], [0, 1]), (1, 3.0, [2, 0], [0, 2])), (1, 3.0, [1, 0], [0, 1])),
        # A tie is an answer of its own.
        ((0, 1.0, [1, 1], [1, 0]), (0, 1.0, [1, 1], [1, 0])),
    ],
)
def test_what_is_dropped(before: tuple, after: tuple | list) -> None:
    assert nest(simplify(make_model([before]))) == after


def test_what_lies_outside_the_domain_is_dropped() -> None:
    tree = make_model([(0, 1.0, (1, 0.0, [1, 0], [0, 1]), [0, 1])])
    assert nest(simplify(tree, InputBox.between(-1, 1, 2))) == (1, 0.0, [1, 0], [0, 1])
    assert nest(simplify(tree, InputBox.between(1, 2, 2))) == [0, 2]


def test_forests_keep_what_their_voting_looks_at() -> None:
    forest = make_model([(0, 1.0, [3, 1], [2, 0]), (1, 1.0, [3, 1], [6, 2]), [1, 0]])
    assert [nest(simplify(forest, voting="max"), i) for i in range(3)] == [[5, 1], [9, 3], [1, 0]]
    assert [nest(simplify(forest, voting="average"), i) for i in range(3)] == [
        (0, 1.0, [3, 1], [2, 0]), [9, 3], [1, 0],
    ]  # fmt: skip
    scores = make_model([(0, 1.0, [0.5, 0.25], [0.5, 0.0]), (0, 1.0, [0.5, 0.0], [0.5, -0.0])], kind=LeafKind.SCORES)
    assert simplify(scores).n_leaves == 3


def test_counts_stay_such_that_files_can_hold_them() -> None:
    simple = simplify(make_model([(0, 1.0, [2**53, 1], [2**53, 0])]))
    assert prediction_of(nest(simple)) == (0,)
    assert simple.leaf_values.max() <= 2**53


def test_a_deep_chain() -> None:
    nested: tuple | list = [1, 0]
    for i in range(5_000):
        nested = (0, float(-i), [0, 1], nested)
    assert nest(simplify(make_model([nested], 1))) == (0, 0.0, [0, 1], [1, 0])


def test_command(tree: str, rows: str, tmp_path: Path) -> None:
    source = write(tmp_path, "long.silva", TREE.replace("LEAF 3 0 0", "SPLIT 0 0.75\nLEAF 3 0 0\nLEAF 0 1 0"))
    target = tmp_path / "short.silva"
    text = run("simplify", source, "-o", target).stdout
    assert text == "5 leaves, depth 3 -> 4 leaves, depth 2; predictions are proved equal for all samples\n"
    assert "proved" in run("diff", source, target, "--exit-code").stdout
    result = run("simplify", tree, "--domain", rows, "--margin", "0.1")
    assert result.stdout.startswith("classifier-decision-tree")
    assert "the range of each feature in" in result.stderr
    run("simplify", tree, "-o", tree, code=2)
