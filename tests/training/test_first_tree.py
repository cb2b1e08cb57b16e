"""First trees of boosted models that are searched for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metasilvae.api import verify
from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model
from metasilvae.model import LeafKind, Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import find_leaves
from metasilvae.training import boosted_trees, first_tree
from metasilvae.training.boosted_trees import BoostedTree, choose_thresholds
from metasilvae.training.boosting import CANDIDATES, CANDIDATES_IF_FEW, BoostingTrainer
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.first_tree import FirstTree, search_tree
from metasilvae.training.options import FEW_SAMPLES, FEW_VALUES, SEARCHED_FOR, boosting_options_for
from metasilvae.training.protocol import StopReason, finish
from metasilvae.training.samples import build_tree, find_doubled

EPSILON = 0.05
FAST = {"max_depth": 3, "first_tree": SEARCHED_FOR}


def parity(rng: np.random.Generator, n_samples: int = 400, n_used: int = 2) -> Dataset:
    """Labels that no feature tells anything about by itself."""
    X = rng.uniform(-1, 1, (n_samples, n_used + 2))
    return Dataset(X, ((X[:, :n_used] > 0).sum(axis=1) % 2).astype(np.int32), ("even", "odd"))


def with_missing(rng: np.random.Generator) -> Dataset:
    dataset = parity(rng, 150)
    X = dataset.X.copy()
    X[rng.random(X.shape) < 0.15] = np.nan
    return Dataset(X, dataset.y, dataset.labels).noting_missing


def as_model(tree: BoostedTree, tests: boosted_trees.Tests, dataset: Dataset) -> Model:
    """A model whose leaves are numbered in the order of the nodes."""
    columns, directions, values = tests.read(tree)
    numbers = np.arange(len(values), dtype=np.float64)[:, None]
    return build_tree(columns, numbers, dataset.n_features, ("number",), LeafKind.SCORES, directions)


def search(dataset: Dataset, **changes: Any) -> FirstTree:
    options = boosting_options_for("default", 5, **{**FAST, **changes})
    found = search_tree(dataset, Ball(EPSILON), options, lambda: False, is_trial=True)
    assert found is not None
    return found


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([255, 255, 40]))
def test_rows_fall_into_the_leaves_of_the_searched_tree(seed: int, has_missing: bool, n_thresholds: int) -> None:
    rng = np.random.default_rng(seed)
    dataset = with_missing(rng) if has_missing else parity(rng, 150)
    boxes = Ball(EPSILON).boxes(dataset)
    first = search(dataset)
    doubled = find_doubled(dataset, boxes)
    known = choose_thresholds(dataset.X, boxes, n_thresholds, 0)
    thresholds = first.add_thresholds(known, doubled, n_thresholds)
    assert all(len(each) <= n_thresholds and (np.diff(each) > 0).all() for each in thresholds)
    tests = boosted_trees.Tests.of(thresholds, doubled)
    columns = first.feature, first.threshold, first.left, first.right
    n_leaves = int((first.feature < 0).sum())
    directions = first.direction if has_missing else None
    wanted = build_tree(columns, np.zeros((n_leaves, 1)), dataset.n_features, ("number",), LeafKind.SCORES, directions)
    found = as_model(first.coded(tests), tests, dataset)
    assert find_leaves(found, dataset.X).tolist() == find_leaves(wanted, dataset.X).tolist()


def test_too_many_thresholds_become_the_nearest_ones() -> None:
    dataset = parity(np.random.default_rng(0), 300)
    first = search(dataset)
    boxes = Ball(EPSILON).boxes(dataset)
    thresholds = first.add_thresholds(choose_thresholds(dataset.X, boxes, 1, 0), np.zeros(0, np.int32), 1)
    assert all(len(each) == 1 for each in thresholds)
    coded = first.coded(boosted_trees.Tests.of(thresholds, np.zeros(0, np.int32)))
    assert set(coded.code[coded.feature >= 0].tolist()) == {0}


@pytest.mark.parametrize("candidates", [CANDIDATES, CANDIDATES_IF_FEW])
def test_tuning_tries_it(candidates: tuple[dict[str, Any], ...]) -> None:
    assert [each.get("first_tree") == SEARCHED_FOR for each in candidates].count(True) == 1
    assert "first_tree" not in candidates[0]


@pytest.mark.parametrize("seed", range(3))
def test_boosting_learns_what_no_single_split_tells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dataset, others = parity(rng, 1000, 3), parity(rng, 1000, 3)
    trainer = BoostingTrainer(dataset, Ball(EPSILON), boosting_options_for("default", 30))
    model = finish(trainer)
    assert trainer.candidate is not None
    assert trainer.candidate.get("first_tree") == SEARCHED_FOR
    grown = finish(BoostingTrainer(dataset, Ball(EPSILON), boosting_options_for("default", 30, first_tree="grown")))
    scores = [float(verify(each, others, EPSILON).counts.robust_accuracy) for each in (model, grown)]
    assert scores[0] > scores[1]
    assert scores[0] > 0.75


def test_trials_search_less_and_least_with_many_values() -> None:
    options = boosting_options_for("default", 5, first_tree=SEARCHED_FOR, min_samples_leaf=7, seed=4)

    def generations(n_rows: int, n_features: int, is_trial: bool) -> int:
        return options.first_tree_options(n_rows, n_features, is_trial).generations

    whole = generations(FEW_SAMPLES, 1000, is_trial=False)
    assert generations(FEW_SAMPLES + 1, 1000, is_trial=False) == whole
    short = generations(FEW_SAMPLES, 1000, is_trial=True)
    assert whole > short > 0
    assert generations(FEW_VALUES // 6, 6, is_trial=True) == short
    assert generations(FEW_VALUES // 6 + 1, 6, is_trial=True) == 0
    assert options.first_tree_options(10, 2, True).min_samples_leaf == 7
    assert not options.first_tree_options(10, 2, False).tune


def test_many_rows_are_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = parity(np.random.default_rng(0), 300)
    seen = []

    def note(rows: Dataset, *others: Any) -> TreeTrainer:
        seen.append(rows.n_samples)
        return TreeTrainer(rows, *others)

    monkeypatch.setattr(first_tree, "TreeTrainer", note)
    for most, fewest, values in ((400, 50, 10**6), (200, 50, 10**6), (200, 50, 400), (200, 50, 40)):
        monkeypatch.setattr(first_tree, "MOST_ROWS", most)
        monkeypatch.setattr(first_tree, "FEWEST_ROWS", fewest)
        monkeypatch.setattr(first_tree, "MOST_VALUES", values)
        search(dataset)
    # All; as many as allowed; as many as four features leave; never fewer than these.
    assert seen == [300, 200, 100, 50]


def test_an_interrupted_search_keeps_the_rounds_of_the_first_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = parity(np.random.default_rng(1), n_used=3)
    # Of candidates that are almost equal here, the first and the last one are compared.
    monkeypatch.setattr("metasilvae.training.boosting_tuning.list_racing", lambda curves, split: [0, len(curves) - 1])
    trainer = BoostingTrainer(dataset, Ball(EPSILON), boosting_options_for("default", 30))

    def stopped(*arguments: Any, **others: Any) -> FirstTree | None:
        if others.get("is_trial"):
            return search_tree(*arguments, **others)
        trainer.stop()
        return None

    with monkeypatch.context() as patch:
        patch.setattr("metasilvae.training.boosting.search_tree", stopped)
        model = finish(trainer)
    assert trainer.stop_reason is StopReason.INTERRUPTED
    assert model.n_trees > 0
    assert model.n_leaves > model.n_trees
    # The run goes on as if it had never been interrupted.
    other = BoostingTrainer(dataset, Ball(EPSILON), boosting_options_for("default", 30))
    other.resume(trainer.state)
    whole = BoostingTrainer(dataset, Ball(EPSILON), boosting_options_for("default", 30))
    assert format_model(finish(other)) == format_model(finish(whole))


@pytest.mark.parametrize("n_rounds", [0, 1, 4])
def test_a_stored_run_goes_on(n_rounds: int) -> None:
    dataset, options = read_dataset("builtin:iris/train"), boosting_options_for("default", 6, **FAST)
    whole = BoostingTrainer(dataset, Ball(0.1), options)
    states = [whole.state]
    states += [whole.state for _ in whole.run()]
    other = BoostingTrainer(dataset, Ball(0.1), options)
    other.resume(states[n_rounds])
    assert format_model(finish(other)) == format_model(whole.model)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("feature", lambda part: part[:-1]),
        ("feature", lambda part: part + 50),
        ("threshold", lambda part: part * np.nan),
        ("left", lambda part: np.zeros_like(part)),
        ("right", lambda part: part + 1),
    ],
)
def test_a_damaged_first_tree_is_refused(name: str, change: Any) -> None:
    state = search(parity(np.random.default_rng(0))).state
    assert FirstTree.read(state, 4).state.keys() == state.keys()
    with pytest.raises(CheckpointError, match="the first tree"):
        FirstTree.read({**state, name: change(state[name])}, 4)
