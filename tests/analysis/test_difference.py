"""Differences of models against trying out every value that could matter."""

from __future__ import annotations

import itertools
import json
import math
import random
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.command import FOREST, HARD_FOREST, TREE, run, write
from support.oracles import LARGEST, classify, elect, make_model, models, random_model

from metasilvae.analysis import difference
from metasilvae.analysis.difference import DifferenceStatus, InputBox, ModelDifference, compare_models
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, ModelError, RequestError
from metasilvae.model import Model, join_trees
from metasilvae.output.text.terminal import RowBar
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget
from metasilvae.voting import choose_voting

single_trees = models(max_trees=1, max_splits=5)


def named(model: Model, prediction: tuple[int, ...]) -> frozenset[str]:
    return frozenset(model.labels[label] for label in prediction)


def values_that_matter(trees: tuple[Model, ...], feature: int, lower: float, upper: float) -> list[float]:
    """Values of an interval that together take every combination of branches of all trees."""
    thresholds = {k for tree in trees for k in tree.nodes["threshold"][tree.nodes["feature"] == feature].tolist()}
    values = {lower, upper, *thresholds, *(math.nextafter(k, math.inf) for k in thresholds)}
    return sorted(value for value in values if lower <= value <= upper)


def check_regions(first: Model, second: Model, domain: InputBox, difference: ModelDifference) -> None:
    assert difference.n_regions == len(difference.regions)
    n_different = 0
    columns = [
        values_that_matter((first, second), f, domain.lower[f], domain.upper[f]) for f in range(first.n_features)
    ]
    for point in itertools.product(*columns):
        predictions = named(first, classify(first, point)), named(second, classify(second, point))
        homes = [
            region
            for region in difference.regions
            if all(a <= x <= b for a, x, b in zip(region.lower, point, region.upper, strict=True))
        ]
        n_different += predictions[0] != predictions[1]
        assert len(homes) == (predictions[0] != predictions[1])
        if homes:
            assert (frozenset(homes[0].first), frozenset(homes[0].second)) == predictions
    assert (difference.result is DifferenceStatus.EQUAL) == (n_different == 0)


@settings(max_examples=300)
@given(st.data())
def test_regions_are_exactly_where_predictions_differ(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    first, second = (random_model(rng, max_splits=8, n_features=2) for _ in range(2))
    bounds = data.draw(st.sampled_from([(-math.inf, math.inf), (-1, 1), (0, math.inf), (0.5, 0.5)]))
    domain = InputBox.between(*bounds, 2)
    check_regions(first, second, domain, compare_models(first, second, domain, max_regions=1000))


@settings(max_examples=200)
@given(single_trees)
def test_a_model_does_not_differ_from_itself(tree: Model) -> None:
    difference = compare_models(tree, tree)
    assert (difference.result, difference.n_regions, difference.regions) == (DifferenceStatus.EQUAL, 0, [])


def test_labels_are_compared_by_name() -> None:
    first = make_model([(0, 1.0, [1, 0], [0, 1])], labels=("a", "b"))
    second = make_model([(0, 1.0, [0, 0, 2], [0, 3, 0])], labels=("c", "b", "a"))
    assert compare_models(first, second).result is DifferenceStatus.EQUAL
    tied = make_model([(0, 1.0, [0, 2, 2], [0, 3, 0])], labels=("c", "b", "a"))
    (region,) = compare_models(first, tied).regions
    assert (region.first, region.second) == (("a",), ("b", "a"))
    assert region.upper.tolist() == [1.0, LARGEST]


def test_regions_are_counted_beyond_those_shown() -> None:
    first = make_model([(0, 0.0, (1, 0.0, [1, 0], [0, 1]), (1, 0.0, [0, 1], [1, 0]))])
    difference = compare_models(first, make_model([[1, 1]]), max_regions=1)
    assert (difference.n_regions, len(difference.regions)) == (4, 1)
    assert compare_models(first, make_model([[1, 1]]), max_regions=0).n_regions == 4


@pytest.mark.parametrize("voting", ["max", "average"])
def test_forests_are_proved_equal_tree_by_tree(voting: str) -> None:
    rng = random.Random(1)
    for _ in range(50):
        trees = [random_model(rng, max_splits=5) for _ in range(3)]
        labels = max((tree.labels for tree in trees), key=len)
        trees = [tree for tree in trees if tree.labels == labels]
        forest = join_trees([*trees, trees[0]])
        assert compare_models(forest, forest, voting=voting).result is DifferenceStatus.EQUAL
        other = join_trees([trees[0], *trees[::-1]])
        found = compare_models(forest, other, voting=voting)
        for region in found.regions:
            predictions = [predict(model, region.point[None], voting) for model in (forest, other)]
            sets = [table.sets[table.ids[0]] for table in predictions]
            assert sets[0] != sets[1]
        if found.result is DifferenceStatus.DIFFERENT:
            assert found.regions


def differs_somewhere(first: Model, second: Model, domain: InputBox, votings: tuple[str, str]) -> bool:
    """By trying out a point of every joint cell."""
    columns = [
        values_that_matter((first, second), f, domain.lower[f], domain.upper[f]) for f in range(first.n_features)
    ]
    return any(
        named(first, elect(first, point, votings[0])) != named(second, elect(second, point, votings[1]))
        for point in itertools.product(*columns)
    )


def check_forests(first: Model, second: Model, domain: InputBox, voting: str | None) -> DifferenceStatus:
    votings = choose_voting(first, voting), choose_voting(second, voting)
    found = compare_models(first, second, domain, voting=voting)
    is_different = differs_somewhere(first, second, domain, votings)
    assert found.result is (DifferenceStatus.DIFFERENT if is_different else DifferenceStatus.EQUAL)
    for region in found.regions:
        predictions = [
            named(model, elect(model, region.point.tolist(), each))
            for model, each in zip((first, second), votings, strict=True)
        ]
        assert predictions == [frozenset(region.first), frozenset(region.second)]
        assert predictions[0] != predictions[1]
        assert (domain.lower <= region.point).all()
        assert (region.point <= domain.upper).all()
    return found.result


@pytest.mark.parametrize("voting", ["max", "average"])
def test_the_search_in_forests_agrees_with_all_cells(voting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forests that are unrelated, in another order, with a tree twice, and with one leaf changed."""
    monkeypatch.setattr(difference, "TRIED_REGIONS", 0)
    rng = random.Random(6)
    seen: dict[DifferenceStatus, int] = dict.fromkeys(DifferenceStatus, 0)
    for number in range(160):
        first = random_model(rng, rng.randint(1, 3), 4)
        trees = [first.tree(position) for position in range(first.n_trees)]
        second = random_model(rng, rng.randint(2, 3), 4)
        if number % 4 == 1:
            second = join_trees([*trees[::-1]])
        elif number % 4 == 2:
            second = join_trees([*trees, *trees])
        elif number % 4 == 3:
            values = first.leaf_values.copy()
            values[rng.randrange(len(values))] = rng.choice([[1] * first.n_labels, values[0]])
            second = replace(first, leaf_values=values)
        domain = InputBox.between(*rng.choice([(-math.inf, math.inf), (-1.0, 1.0)]), 2)
        seen[check_forests(first, second, domain, voting)] += 1
    assert seen[DifferenceStatus.UNDECIDED] == 0
    assert min(seen[DifferenceStatus.EQUAL], seen[DifferenceStatus.DIFFERENT]) > 30


@settings(max_examples=70)
@given(st.data())
def test_the_search_agrees_with_all_cells_for_every_kind_of_leaves(data: st.DataObject) -> None:
    first, second = (data.draw(models(max_trees=3, max_splits=3, max_features=2)) for _ in range(2))
    assume(first.n_features == second.n_features)
    assume(max(first.n_trees, second.n_trees) > 1)
    check_forests(first, second, InputBox.everything(first.n_features), None)


def test_the_search_ends_at_its_limits() -> None:
    """Pairs of trees that contradict each other on many features; the forests are equal, as only the votes show."""
    trees: list = [[1, 0]]
    for feature in range(16):
        trees += [(feature, 0.5, [1, 0], [0, 1]), (feature, 0.5, [0, 1], [1, 0])]
    first, second = make_model(trees, 16), make_model([[1, 0]], 16)
    assert first.n_trees != second.n_trees
    found = compare_models(first, second, budget=Budget(steps=100))
    assert (found.result, found.reason, found.regions) == (DifferenceStatus.UNDECIDED, "steps", [])
    assert compare_models(first, second, budget=Budget(seconds=1e-9)).reason == "timeout"
    stop = threading.Event()
    stop.set()
    assert compare_models(first, second, stop=stop).reason == "interrupted"
    shares: list[float] = []
    small = make_model(trees[:9], 16)
    assert compare_models(small, second, on_fraction=shares.append).result is DifferenceStatus.EQUAL
    assert shares[-1] == 1


def test_shared_trees_make_no_work() -> None:
    """One tree of many is replaced by one that answers the same; a search over all trees would not end."""
    rng = random.Random(3)
    trees = [random_model(rng, 1, 30, 8) for _ in range(400)]
    trees = [tree for tree in trees if tree.n_labels == 2][:60]
    split = make_model([(0, 0.5, [1, 0], [1, 0])], 8, trees[0].labels)
    whole = make_model([[1, 0]], 8, trees[0].labels)
    shuffled = [split, *trees]
    rng.shuffle(shuffled)
    found = compare_models(join_trees([*trees, whole]), join_trees(shuffled), budget=Budget(steps=100))
    assert found.result is DifferenceStatus.EQUAL


def test_leaves_of_forests_are_compared_by_what_they_contribute() -> None:
    forest = make_model([(0, 1.0, [1, 0], [0, 1]), [2, 1]])
    same_predictions = make_model([(0, 1.0, [3, 1], [1, 5]), [9, 1]])
    same_shares = make_model([(0, 1.0, [7, 0], [0, 3]), [6, 3]])
    assert compare_models(forest, same_predictions, voting="max").result is DifferenceStatus.EQUAL
    assert compare_models(forest, same_predictions, voting="average").result is not DifferenceStatus.EQUAL
    assert compare_models(forest, same_shares, voting="average").result is DifferenceStatus.EQUAL


def test_samples_decide_before_a_search() -> None:
    forest, tree = make_model([[1, 0], [1, 0]]), make_model([(0, 1.0, [1, 0], [0, 1])])
    samples = np.array([[0.0, 0.0], [3.0, 0.0]])
    stop = threading.Event()
    stop.set()
    found = compare_models(forest, tree, samples=samples, stop=stop)
    assert found.result is DifferenceStatus.DIFFERENT
    assert [3.0, 0.0] in [region.point.tolist() for region in found.regions]
    assert compare_models(forest, tree, InputBox.between(0, 0.5, 2), samples=samples).result is DifferenceStatus.EQUAL


def test_domains() -> None:
    dataset = Dataset(np.array([[0.0, 5.0], [2.0, 3.0]]), np.zeros(2, dtype=np.int32), ("a",), source="d.csv")
    domain = InputBox.around(dataset, 0.5)
    assert (domain.lower.tolist(), domain.upper.tolist()) == ([-0.5, 2.5], [2.5, 5.5])
    with pytest.raises(RequestError, match="is empty"):
        InputBox.between(1, 0, 2)
    with pytest.raises(DataError, match="no rows"):
        InputBox.around(Dataset(np.empty((0, 2)), np.empty(0, dtype=np.int32), ()))
    with pytest.raises(ModelError, match="only models of the same features"):
        compare_models(make_model([[1, 0]], 1), make_model([[1, 0]], 2))


def test_command(tree: str, rows: str, tmp_path: Path) -> None:
    other = write(tmp_path, "other.silva", TREE.replace("LEAF 2 2 0", "LEAF 2 1 0"))
    text = run("diff", tree, other, rows).stdout
    assert "the predictions differ in 1 region, and nowhere else" in text
    assert "1. a,bb | a\n   where x[0] <= 0.5, x[1] > 0.25\n" in text
    assert "1 of 7 rows" in text
    document = json.loads(run("diff", tree, other, rows, "--format", "json", "--exit-code", code=3).stdout)
    assert (document["result"], document["n_regions"], document["rows_different"]) == ("different", 1, 1)
    assert document["regions"][0]["bounds"][0] == {"feature": 0, "name": "x[0]", "at_least": None, "at_most": 0.5}
    assert "proved: the predictions are equal" in run("diff", tree, tree, "--exit-code").stdout
    assert "proved" in run("diff", tree, other, "--bounds", "0", "0.25", "--exit-code").stdout
    assert "proved" not in run("diff", tree, other, "--domain", rows, "--margin", "0.5").stdout


def test_command_on_forests(tree: str, forest: str, rows: str, tmp_path: Path) -> None:
    other = write(tmp_path, "other.silva", FOREST.replace("LEAF 3 1", "LEAF 1 3"))
    assert "the predictions differ, for these samples" in run("diff", forest, other, "--exit-code", code=3).stdout
    tripled = write(tmp_path, "tripled.silva", "classifier-forest 1\n" + TREE)
    assert "proved" in run("diff", tree, tripled).stdout
    more = write(tmp_path, "more.silva", FOREST.replace("LEAF 1 0", "LEAF 2 0"))
    assert "proved" in run("diff", forest, more, "--exit-code").stdout
    shy = write(tmp_path, "shy.silva", FOREST.replace("LEAF 3 1", "LEAF 4 1"))
    assert "proved" in run("diff", forest, shy, "--voting", "average", "--exit-code").stdout


def test_command_at_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = write(tmp_path, "hard.silva", HARD_FOREST)
    single = write(tmp_path, "single.silva", "classifier-decision-tree 2 2 a b\nLEAF 1 0\n")
    assert "proved: the predictions are equal" in run("diff", forest, single, "--exit-code").stdout
    words = ["diff", forest, single, "--exit-code"]
    text = run(*words, "--max-steps", 1, code=4).stdout
    assert "undecided, the number of steps was reached (--max-steps): no sample with different predictions" in text
    document = json.loads(run(*words, "--max-steps", 1, "--format", "json", code=4).stdout)
    assert (document["result"], document["reason"]) == ("undecided", "steps")
    monkeypatch.setattr("metasilvae.verification.budget.STEPS_PER_SLICE", 1)
    assert "(--time-limit)" in run(*words, "--time-limit", 1e-9, code=4).stdout
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    signals = iter([signal.SIGINT])
    monkeypatch.setattr(RowBar, "advance", lambda self, n_rows: [signal.raise_signal(s) for s in signals])
    try:
        assert "undecided, the search was interrupted" in run(*words, code=130).stdout
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bounds", "0", "1", "--domain", "x"], "give one of them"),
        (["--margin", "1"], "--margin widens"),
    ],
)
def test_wrong_usage(tree: str, options: list[str], message: str) -> None:
    assert message in run("diff", tree, tree, *options, code=2).stderr
