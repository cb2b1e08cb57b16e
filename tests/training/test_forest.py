"""Training of forests: what it promises about its result, whatever the data and the workers."""

from __future__ import annotations

import math
import pickle
from concurrent import futures
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.datasets import splitting
from metasilvae.datasets.splitting import CrossValidation
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model, parse_model
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball, Enlarged
from metasilvae.training import forest, forest_tuning, large, tuning
from metasilvae.training.forest import ForestTrainer
from metasilvae.training.forest_growth import (
    COUNTED_TREES,
    LARGEST_BATCH,
    draw_evenly,
    grow_forest,
    grow_tree,
    plan_tree,
    split_into_batches,
    weigh_rows,
)
from metasilvae.training.forest_tuning import (
    CANDIDATES,
    CANDIDATES_IF_FEW,
    ForestRace,
    choose_method,
    list_candidates,
    list_tuned_candidates,
    plan_tuning_splits,
    score_candidate,
    tune_tree,
)
from metasilvae.training.forest_votes import GrowingForest, bound
from metasilvae.training.large import make_single_tree_trainer
from metasilvae.training.options import FEW_SAMPLES, ForestOptions, TrainingOptions, forest_options_for, options_for
from metasilvae.training.protocol import StopReason, TrainerGroup, finish
from metasilvae.training.tuning import USUAL, make_tree_trainer

EPSILON = Ball(0.1)


@pytest.fixture(scope="module")
def iris() -> Dataset:
    return read_dataset("builtin:iris/train")


@pytest.fixture(scope="module")
def wine() -> Dataset:
    return read_dataset("builtin:wine/train")


@pytest.fixture
def short_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest_tuning, "TRIAL_TREES", 2)
    monkeypatch.setattr(splitting, "REPEATS", 1)


def quick(n_trees: int = 7, **changes: object) -> ForestOptions:
    changes.setdefault("tune", False)
    changes.setdefault("generations", 0)
    return forest_options_for("default", n_trees, **changes)  # type: ignore[arg-type]


def train_to_end(dataset: Dataset, perturbation: Ball, options: ForestOptions) -> Model:
    return finish(ForestTrainer(dataset, perturbation, options))


def finished(trainer: ForestTrainer) -> ForestTrainer:
    for _ in trainer.run():
        pass
    return trainer


# What every run promises


@pytest.mark.parametrize("preset", ["default", "fast", "best", "paper", "cart"])
def test_every_preset_trains_a_forest(preset: str, wine: Dataset) -> None:
    trainer = ForestTrainer(wine, EPSILON, forest_options_for(preset, 5, tune=False, generations=3))
    records = list(trainer.run())
    assert [record.phase for record in records] == ["tree"] * 5
    assert len(records) == trainer.n_steps
    model = trainer.model
    assert (model.n_trees, model.is_forest, model.labels) == (5, True, wine.labels)
    assert bound(model, wine, EPSILON).counts.accuracy > 0.9
    assert trainer.stop_reason is StopReason.ITERATIONS
    assert format_model(parse_model(format_model(model).encode(), "-")) == format_model(model)
    assert len({format_model(model.tree(position)) for position in range(5)}) > 2


VARIANTS = {
    "default": {},
    "tuned": {"tune": True},
    "tuned forest": {"tune": True, "method": "independent"},
    "independent": {"method": "independent"},
    "rows and features": {"row_sample": 0.5, "allowed_features": 3},
    "validation": {"validation": 0.25},
    "search": {"generations": 4, "population": 6, "initial_population": 6},
}


@pytest.mark.usefixtures("short_tuning")
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_bytes_for_any_number_of_jobs(variant: str, iris: Dataset) -> None:
    options = quick(6, seed=5, **VARIANTS[variant])
    trainers = [finished(ForestTrainer(iris, EPSILON, options, jobs)) for jobs in (1, 2, 5)]
    assert len({format_model(trainer.model) for trainer in trainers}) == 1
    other = replace(options, tree=replace(options.tree, seed=6))
    if variant != "tuned":
        assert format_model(train_to_end(iris, EPSILON, other)) != format_model(trainers[0].model)
    if options.tree.tune:
        assert trainers[0].candidate in trainers[0]._list_candidates()
        assert [trainer.candidate for trainer in trainers] == [trainers[0].candidate] * 3


def test_the_records_tell_what_is_proven_about_the_forest(wine: Dataset) -> None:
    trainer = ForestTrainer(wine, EPSILON, quick(8, training_epsilon_factor=1.0))
    records = list(trainer.run())
    last = records[-1]
    counts = bound(trainer.model, wine, EPSILON).counts
    assert last.accuracy == float(counts.accuracy)
    assert last.stability == float(counts.stability)
    assert last.robust_accuracy == float(counts.robust_accuracy)
    assert (last.leaves, last.offspring) == (trainer.model.n_leaves, 8)
    assert last.fitness == pytest.approx(0.9 * last.accuracy + 0.1 * last.stability)
    assert [record.seconds for record in records] == sorted(record.seconds for record in records)


def test_a_forest_beats_its_trees() -> None:
    digits, epsilon = read_dataset("builtin:digits/train"), Ball(1.0)
    model = train_to_end(digits, epsilon, quick(11))
    alone = [bound(model.tree(position), digits, epsilon).counts for position in range(11)]
    together = bound(model, digits, epsilon).counts
    assert together.correct > max(counts.correct for counts in alone)
    assert together.robust > max(counts.robust for counts in alone)


def test_rows_held_out_judge_and_teach_nothing(iris: Dataset) -> None:
    trainer = finished(ForestTrainer(iris, EPSILON, quick(4, validation=0.25)))
    assert trainer.held_out is not None
    counts = bound(trainer.model, trainer.held_out, EPSILON).counts
    assert trainer.held_out_fitness == pytest.approx(0.9 * float(counts.accuracy) + 0.1 * float(counts.stability))
    assert int(trainer.model.tree(0).leaf_values.sum()) == iris.n_samples - trainer.held_out.n_samples
    assert finished(ForestTrainer(iris, EPSILON, quick(2))).held_out_fitness is None


def test_one_tree_is_a_forest_too(iris: Dataset) -> None:
    model = train_to_end(iris, EPSILON, quick(1))
    assert (model.n_trees, model.is_forest) == (1, True)


def test_some_of_the_trees(iris: Dataset) -> None:
    options = quick(9, method="independent", seed=3)
    whole = finished(ForestTrainer(iris, EPSILON, options)).model
    parts = [train_to_end(iris, EPSILON, replace(options, numbers=tuple(range(*ends)))) for ends in ((0, 4), (4, 9))]
    trees = [format_model(part.tree(position)) for part in parts for position in range(part.n_trees)]
    assert trees == [format_model(whole.tree(position)) for position in range(9)]


@pytest.mark.usefixtures("short_tuning")
def test_tasks_may_run_elsewhere(iris: Dataset) -> None:
    options = quick(5, tune=True, seed=2)

    def submit(function, *arguments):
        # As on a cluster: what goes there and comes back is pickled.
        function, arguments = pickle.loads(pickle.dumps((function, (iris, EPSILON, *arguments))))
        future: futures.Future = futures.Future()
        future.set_result(pickle.loads(pickle.dumps(function(*arguments))))
        return future

    elsewhere = finished(ForestTrainer(iris, EPSILON, options, submit=submit)).model
    assert format_model(elsewhere) == format_model(train_to_end(iris, EPSILON, options))


# Ends before the end


@pytest.mark.parametrize("method", ["reweighted", "independent"])
def test_a_stop_keeps_the_trees_so_far(method: str, iris: Dataset) -> None:
    trainer = ForestTrainer(iris, EPSILON, quick(40, method=method), 2)
    for record in trainer.run():
        if record.step == 4:
            trainer.stop()
    assert trainer.stop_reason is StopReason.INTERRUPTED
    assert 5 <= trainer.model.n_trees < 40
    whole = train_to_end(iris, EPSILON, quick(40, method=method))
    for position in range(5):
        assert format_model(trainer.model.tree(position)) == format_model(whole.tree(position))


@pytest.mark.usefixtures("short_tuning")
@pytest.mark.parametrize("phase", ["initial tree", "tuning"])
def test_a_stop_before_the_first_tree_leaves_a_tree(phase: str, iris: Dataset) -> None:
    trainer = ForestTrainer(iris, EPSILON, quick(40, tune=True), 2)
    for record in trainer.run():
        if record.phase == phase:
            trainer.stop()
    assert trainer.stop_reason is StopReason.INTERRUPTED
    assert trainer.candidate is None
    assert trainer.model.n_trees == 1
    assert trainer.model.n_leaves > 1


def test_a_run_that_was_stopped_at_once_predictions_by_majority(iris: Dataset) -> None:
    trainer = ForestTrainer(iris, EPSILON, quick(3))
    trainer.stop()
    assert list(trainer.run()) == []
    assert (trainer.model.n_trees, trainer.model.n_leaves) == (1, 1)


def test_leaving_the_loop_keeps_the_trees(iris: Dataset) -> None:
    trainer = ForestTrainer(iris, EPSILON, quick(9))
    for record in trainer.run():
        if record.step == 2:
            break
    assert trainer.model.n_trees == 3


def test_limits_of_time_and_target_end_a_run(wine: Dataset) -> None:
    trainer = finished(ForestTrainer(wine, EPSILON, quick(100_000, time_limit=0.5)))
    assert trainer.stop_reason is StopReason.TIME_LIMIT
    assert 1 <= trainer.model.n_trees < 100_000
    trainer = finished(ForestTrainer(wine, EPSILON, quick(100_000, target=0.9)))
    assert trainer.stop_reason is StopReason.TARGET
    assert trainer.model.n_trees < 1000


def test_a_tuning_that_takes_too_long_is_cut_short(monkeypatch: pytest.MonkeyPatch, iris: Dataset) -> None:
    monkeypatch.setattr(forest, "TUNING_FRACTION", 1e-12)
    trainer = ForestTrainer(iris, EPSILON, quick(5, tune=True, time_limit=1e6), 2)
    phases = [record.phase for record in trainer.run()]
    assert phases.count("tuning") < trainer.n_steps - 6
    assert trainer.candidate == CANDIDATES_IF_FEW[0]
    assert trainer.stop_reason is StopReason.ITERATIONS
    plain = train_to_end(iris, EPSILON, quick(5, tune=False).with_candidate(CANDIDATES_IF_FEW[0]))
    assert format_model(trainer.model) == format_model(plain)


# Parts


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=30).filter(lambda weights: max(weights) > 1e-200),
    st.integers(1, 60),
    st.floats(0, 1),
)
@settings(max_examples=300, deadline=None)
def test_rows_are_drawn_as_often_as_expected(weights: list[float], n_drawn: int, start: float) -> None:
    drawn = np.bincount(draw_evenly(np.array(weights), n_drawn, min(start, 0.999)), minlength=len(weights))
    expected = np.array(weights) / sum(weights) * n_drawn
    assert drawn.sum() == n_drawn
    assert (np.abs(drawn - expected) < 1 + 1e-6).all()


def test_rows_on_which_the_forest_fails_weigh_more(wine: Dataset) -> None:
    votes = GrowingForest(wine, EPSILON)
    for tree in (train_to_end(wine, EPSILON, quick(3, seed=seed)) for seed in range(2)):
        for position in range(3):
            votes.add(tree.tree(position))
    options = replace(quick(9), focus=1.0, strength=0.5)
    weights = weigh_rows(votes, options)
    order = np.argsort(votes.worst_margins, kind="stable")
    assert (np.diff(weights[order]) <= 0).all()
    assert weights[order[0]] > weights[order[-1]] > 0
    own = weigh_rows(votes, replace(options, focus=0.0))
    assert (np.diff(own[np.argsort(votes.own_margins, kind="stable")]) <= 0).all()
    assert len(set(weigh_rows(votes, replace(options, strength=0.0)).tolist())) == 1


def test_weights_do_not_run_away_in_a_large_forest(wine: Dataset) -> None:
    tree = train_to_end(wine, EPSILON, quick(1)).tree(0)
    votes = GrowingForest(wine, EPSILON)
    spans = []
    for _ in range(4 * COUNTED_TREES):
        votes.add(tree)
        weights = weigh_rows(votes, quick(9))
        spans.append(weights.max() / weights.min())
    assert spans[: COUNTED_TREES - 1] == sorted(spans[: COUNTED_TREES - 1])
    assert spans[COUNTED_TREES:] == pytest.approx([spans[COUNTED_TREES]] * len(spans[COUNTED_TREES:]))


@pytest.mark.parametrize("is_reweighted", [True, False])
def test_batches_cover_the_numbers_in_order(is_reweighted: bool) -> None:
    for n_trees in range(1, 30):
        batches = split_into_batches(range(10, 10 + n_trees), is_reweighted)
        assert [number for batch in batches for number in batch] == list(range(10, 10 + n_trees))
        assert max(map(len, batches)) <= (LARGEST_BATCH if is_reweighted else n_trees)


def test_each_batch_sees_the_forest_before_it(wine: Dataset) -> None:
    """The slow, obvious order of events: weigh by the trees so far, grow, repeat."""
    options = quick(8, seed=4)
    rows = np.arange(wine.n_samples)
    trees: list = []
    for batch in ([0], [1], [2, 3], [4, 5, 6, 7]):
        votes = GrowingForest(wine, Enlarged(EPSILON, options.tree.training_epsilon_factor))
        for tree in trees:
            votes.add(tree)
        weights = weigh_rows(votes, options) if trees else None
        tasks = [plan_tree(options, number, rows, weights, wine.n_features, math.inf) for number in batch]
        trees += [grow_tree(wine, EPSILON, task) for task in tasks]
    found = grow_forest(
        wine, EPSILON, options, rows, range(8), lambda tasks: [grow_tree(wine, EPSILON, task) for task in tasks],
        lambda: math.inf,
    )  # fmt: skip
    assert [format_model(tree) for tree, _ in found] == [format_model(tree) for tree in trees]


def test_a_task_draws_rows_and_features(wine: Dataset) -> None:
    options = quick(5, row_sample=0.4, allowed_features=3)
    rows = np.arange(10, wine.n_samples)
    tasks = [plan_tree(options, number, rows, None, wine.n_features, 9.0) for number in range(20)]
    for task in tasks:
        assert len(task.rows) == len(set(task.rows.tolist())) == round(0.4 * len(rows))
        assert task.rows.min() >= 10
        assert len(set(task.features.tolist())) == 3
        assert task.options.time_limit == 9.0
        tree = grow_tree(wine, EPSILON, task)
        assert set(tree.tested_features.tolist()) <= set(task.features.tolist())
        assert tree.n_features == wine.n_features
        assert int(tree.leaf_values.sum()) == len(task.rows)
    assert len({tuple(task.features.tolist()) for task in tasks}) > 10
    assert len({task.options.seed for task in tasks}) == 20


def test_a_tree_that_is_stopped_is_whole(wine: Dataset) -> None:
    ended = TrainerGroup()
    ended.stop()
    tree = grow_tree(wine, EPSILON, plan_tree(quick(1), 0, np.arange(wine.n_samples), None, 13, math.inf), ended)
    assert int(tree.leaf_values.sum()) == wine.n_samples


# The tuning


TUNED = {"training_epsilon_factor": 1.0, "robust_weight": 0.2, "leaf_penalty": 4.0}


def test_settings_that_do_not_differ_are_tried_once() -> None:
    assert list_candidates(quick(5), FEW_SAMPLES) == list(CANDIDATES_IF_FEW)
    many = FEW_SAMPLES + 1
    assert list_candidates(quick(5), many) == list(CANDIDATES)
    independent = list_candidates(quick(5, method="independent"), many)
    assert 1 < len(independent) < len(CANDIDATES)
    reweighted = list_candidates(quick(5, method="reweighted"), many)
    assert reweighted == [{**candidate, "method": "reweighted"} for candidate in CANDIDATES[:-1]]


@pytest.mark.parametrize("method", ["independent", "reweighted"])
def test_candidates_name_the_method_that_is_fixed(method: str) -> None:
    options = quick(5, method=method)
    for n_samples in (FEW_SAMPLES, FEW_SAMPLES + 1):
        found = list_candidates(options, n_samples) + list_tuned_candidates(options, TUNED)
        assert {candidate["method"] for candidate in found} == {method}


def test_a_part_of_a_forest_is_not_replaced_by_a_tree() -> None:
    like_tree, tree = list_tuned_candidates(quick(5, tune=True), TUNED)
    assert like_tree == {**TUNED, "method": "independent"}
    assert tree == {**TUNED, "method": "single"}
    part = replace(quick(5, tune=True), numbers=(0, 2))
    for options in (quick(1, tune=True), part, quick(5, method="independent", tune=True), quick(5)):
        assert list_tuned_candidates(options, TUNED) == [like_tree]


def test_forests_do_not_enlarge_epsilon_past_the_gaps_of_a_grid() -> None:
    for n_samples in (FEW_SAMPLES, FEW_SAMPLES + 1):
        found = list_candidates(quick(5), n_samples, factors=[1.0])
        assert {candidate["training_epsilon_factor"] for candidate in found} == {1.0}


def test_a_forest_must_not_be_behind_the_tree() -> None:
    candidates = [{"focus": 1.0}, {"focus": 0.5}, {"method": "single"}]
    forests = [[0.8, 0.82], [0.9, 0.92]]
    assert choose_method(candidates, np.array([*forests, [0.93, 0.95]])) == 2
    assert choose_method(candidates, np.array([*forests, [0.95, 0.86]])) == 1
    assert choose_method(candidates, np.array([*forests, [0.95, 0.89]])) == 1, "by a quarter of the error"
    assert choose_method(candidates, np.array([*forests, [0.9, 0.92]])) == 2, "trees that are much the same"
    assert choose_method(candidates, np.array([[0.8, 0.82], [0.79, 0.86], [0.75, 0.8]])) == 0, "it may be luck"
    assert choose_method(candidates[:2], np.array(forests)) == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_forest_can_be_the_default_tree(iris: Dataset, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.setattr(forest_tuning, "choose_method", lambda candidates, scores, n_errors: len(candidates) - 1)
    options = forest_options_for("default", 5, seed=2)
    trainer = ForestTrainer(iris, EPSILON, options, jobs)
    records = list(trainer.run())
    assert [record.phase for record in records].count("tree") == 1
    assert len(records) == trainer.n_steps
    assert trainer.model.n_trees == 1
    tree = make_tree_trainer(iris, EPSILON, options_for("default", seed=2))
    assert format_model(trainer.model.tree(0)) == format_model(finish(tree))
    assert trainer.tuning is not None
    assert tree.tuning is not None
    assert trainer.tuning["chosen"] == {**tree.tuning["chosen"], "method": "single"}
    assert records[-1].tuning == trainer.tuning
    again = ForestTrainer(iris, EPSILON, options, jobs)
    again.resume(trainer.state)
    assert list(again.run()) == []
    assert format_model(again.model) == format_model(trainer.model)


def test_labels_that_nothing_tells_are_one_tree_quickly() -> None:
    rng = np.random.default_rng(0)
    noise = Dataset(
        rng.random((FEW_SAMPLES + 500, 3)), rng.integers(0, 2, FEW_SAMPLES + 500).astype(np.int32), ("a", "b")
    )
    trainer = finished(ForestTrainer(noise, EPSILON, forest_options_for("default", 3, seed=1)))
    assert trainer.forest_options.is_single
    assert trainer.model.n_leaves == 1


def test_the_tuning_of_a_tree_is_that_of_a_tree_without_a_forest(iris: Dataset) -> None:
    rows = np.arange(10, iris.n_samples)
    options = options_for("default", seed=3)
    tree = make_tree_trainer(iris.subset(rows), EPSILON, options)
    finish(tree)
    assert tree.tuning is not None
    winner, penalty, scores = tune_tree(iris, EPSILON, quick(3, seed=3).tree, rows)
    assert {**winner, "leaf_penalty": penalty} == tree.tuning["chosen"]
    # The first scores are those of the splits that forests are tried on.
    splits = plan_tuning_splits(iris.subset(rows), rows, 3, "auto").pairs
    single = quick(3, seed=3, tune=True).with_candidate({**winner, "method": "single"})
    again = [score_candidate(iris, EPSILON, single, *split) for split in splits]
    np.testing.assert_allclose(scores[: len(splits)], again, atol=0.05)
    stopped = TrainerGroup()
    stopped.stop()
    assert tune_tree(iris, EPSILON, options, rows, stopped)[0] == USUAL


@pytest.mark.usefixtures("short_tuning")
def test_a_stopped_tuning_resumes_with_the_same_forest(iris: Dataset) -> None:
    options = quick(3, tune=True, seed=1)
    whole = ForestTrainer(iris, EPSILON, options)
    states = [whole.state]
    for _ in whole.run():
        states.append(whole.state)
    assert len(states) == whole.n_steps + 1
    for state in states[::3]:
        again = ForestTrainer(iris, EPSILON, options)
        again.resume(state)
        rest = len(list(again.run()))
        assert rest == whole.n_steps - state["steps"]
        assert format_model(again.model) == format_model(whole.model)


def test_with_a_fixed_method_the_leaf_penalty_is_chosen(iris: Dataset) -> None:
    trainer = ForestTrainer(iris, EPSILON, quick(3, method="reweighted", tune=True))
    phases = [record.phase for record in trainer.run()]
    planned = plan_tuning_splits(iris, np.arange(iris.n_samples), 0, "auto")
    # One for the tuning of a tree; two candidates at most are tried on more than the first splits.
    n_candidates, n_others = len(CANDIDATES_IF_FEW) + 1, len(planned.pairs) - planned.n_first
    n_trials = phases.count("tuning") - 1 - n_candidates * planned.n_first
    assert n_trials in range(0, 2 * n_others + 1, 2)
    assert trainer.candidate in trainer._list_candidates()
    assert trainer.forest_options.is_reweighted


def test_a_fixed_method_stays() -> None:
    for candidate in (*CANDIDATES, *CANDIDATES_IF_FEW):
        assert quick(5, method="independent").with_candidate(candidate).method == "independent"
        assert quick(5, method="reweighted").with_candidate(candidate).is_reweighted


def test_a_tuning_tests_on_rows_that_it_has_not_seen(iris: Dataset) -> None:
    rows = np.arange(20, iris.n_samples)
    splits = plan_tuning_splits(iris.subset(rows), rows, 0, "auto").pairs
    for kept, held in splits:
        assert not set(kept.tolist()) & set(held.tolist())
        assert set(kept.tolist()) | set(held.tolist()) == set(rows.tolist())
    assert 0.5 < score_candidate(iris, EPSILON, quick(3), *splits[0]) <= 1.0


def test_trees_of_many_rows_are_tried_on_parts_of_them() -> None:
    rows = np.arange(7, 50_000)
    zeros = Dataset(np.zeros((len(rows), 1)), np.zeros(len(rows), np.int32), ("a",))
    planned = plan_tuning_splits(zeros, rows, 0, "auto")
    assert len(planned.pairs) == forest_tuning.SPLITS_IF_MANY > planned.n_first
    for kept, held in planned.pairs:
        assert (len(kept), len(held)) == (forest_tuning.GROWN_SAMPLES[1], forest_tuning.TESTED_SAMPLES)
        assert not set(kept.tolist()) & set(held.tolist())
        assert (np.diff(kept) > 0).all()
        assert set(kept.tolist()) | set(held.tolist()) <= set(rows.tolist())
    tested = np.concatenate([held for _, held in planned.pairs])
    assert len(np.unique(tested)) == len(tested), "rows test once"


def race_of(n_forests: int, n_splits: int, n_first: int) -> ForestRace:
    candidates = [{"strength": float(number)} for number in range(n_forests)] + [{"method": "single"}]
    pair = np.arange(3), np.arange(3, 5)
    return ForestRace(candidates, CrossValidation([pair] * n_splits, n_first, "random", 5))


@given(
    st.integers(1, 5),
    st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_a_race_tries_the_leading_candidates_on_more_splits(n_forests: int, splits: tuple[int, int], draw: Any) -> None:
    n_splits, n_first = splits
    race = race_of(n_forests, n_splits, n_first)
    truth = np.array([[draw.choice([0.1, 0.2, 0.3, 0.4]) for _ in range(n_splits)] for _ in range(n_forests + 1)])
    n_known = [race.count_trials()]
    assert race.choice == 0, "there was no time"
    while trials := race.plan():
        for number, split in trials:
            assert np.isnan(race.scores[number, split])
            race.scores[number, split] = truth[number, split]
            n_known.append(race.count_trials())
    assert n_known == sorted(n_known, reverse=True)
    assert race.n_tried == n_known[-1]
    best = int(np.argmax(truth[:n_forests, :n_first].mean(axis=1)))
    n_tried = np.isfinite(race.scores).sum(axis=1)
    assert [each["splits"] for each in race.describe()] == n_tried.tolist()
    assert (n_tried >= n_first).all()
    assert n_tried[0] == n_tried[n_forests] == n_tried.max()
    assert all(n_tried[number] == n_first for number in range(1, n_forests) if number != best)
    gain = truth[best] - truth[0]
    assert n_tried[best] == n_tried[0] or gain[: n_tried[best]].mean() <= 0, "it fell back"
    if n_tried[0] < n_splits:
        assert n_tried[0] >= forest_tuning.FEWEST_SPLITS, "the choice was clear"
    rivals = [0, n_forests] if n_tried[best] < n_tried[0] or gain[: n_tried[0]].mean() <= 0 else [0, best, n_forests]
    scores = truth[rivals, : n_tried[0]]
    assert race.choice == rivals[choose_method([race.candidates[each] for each in rivals], scores)]


def test_a_race_ends_when_its_outcome_is_obvious() -> None:
    race = race_of(2, 5, 1)
    race.scores[:, 0] = 0.8, 0.7, 0.5
    for split in (1, 2):
        assert race.plan() == [(0, split), (2, split)]
        race.scores[[0, 2], split] = 0.81, 0.52
    assert race.plan() == []
    assert race.choice == 0
    close = race_of(2, 5, 1)
    close.scores[:, :3] = [[0.8, 0.81, 0.8], [0.7, np.nan, np.nan], [0.79, 0.82, 0.75]]
    assert close.plan() == [(0, 3), (2, 3)]
    alone = ForestRace([{"strength": 0.1}, {"strength": 0.2}], race.validation)
    alone.scores[:, 0] = 0.8, 0.7
    assert alone.plan() == [], "there is nothing to decide"
    alone.scores[:, 0] = 0.7, 0.8
    assert alone.plan() == [(0, 1), (1, 1)]


def test_a_race_that_was_cut_short_uses_the_splits_that_all_finalists_have() -> None:
    race = race_of(2, 3, 1)
    race.scores[:, 0] = 0.5, 0.4, 0.6
    assert race.choice == 2
    race.scores[0, 1] = 0.9
    assert race.choice == 2, "the tree was not tried there"
    race.scores[2, 1] = 0.1
    assert race.choice == 0


def test_too_few_rows_to_compare_make_a_forest() -> None:
    pair = Dataset(np.array([[0.0], [1.0]]), np.array([0, 1], np.int32), ("a", "b"))
    for preset in ("default", "fast"):
        trainer = finished(ForestTrainer(pair, EPSILON, forest_options_for(preset, 3)))
        assert trainer.model.n_trees == 3
        assert trainer.tuning is None


# Presets that do not tune


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_fast_forest_gives_way_to_the_fast_tree(jobs: int) -> None:
    rng = np.random.default_rng(3)
    X = rng.random((400, 3))
    y = (X[:, 0] > 0.5) ^ (rng.random(400) < 0.2)
    noisy = Dataset(X, y.astype(np.int32), ("a", "b"))
    options = forest_options_for("fast", 9, seed=4)
    trainer = ForestTrainer(noisy, EPSILON, options, jobs)
    states = [trainer.state]
    for _ in trainer.run():
        states.append(trainer.state)
    assert len(states) == trainer.n_steps + 1
    assert trainer.candidate == {"method": "single"}
    tree = finish(make_tree_trainer(noisy, EPSILON, options_for("fast", seed=4)))
    assert format_model(trainer.model.tree(0)) == format_model(tree)
    assert trainer.tuning is not None
    assert [each["splits"] for each in trainer.tuning["finalists"]] == [forest_tuning.PLAIN_SPLITS] * 2
    for state in states[::2]:
        again = ForestTrainer(noisy, EPSILON, options, jobs)
        again.resume(state)
        assert len(list(again.run())) == len(states) - 1 - state["steps"]
        assert format_model(again.model) == format_model(trainer.model)


def test_a_fast_forest_that_is_better_stays(wine: Dataset) -> None:
    options = forest_options_for("fast", 9, seed=1)
    trainer = finished(ForestTrainer(wine, EPSILON, options))
    assert trainer.candidate == {"method": "reweighted"}
    assert trainer.model.n_trees == 9
    alone = finished(ForestTrainer(wine, EPSILON, forest_options_for("fast", 9, seed=1, tune=False)))
    assert alone.tuning is None
    assert format_model(alone.model) == format_model(trainer.model), "trials leave the forest as it is"


def test_what_is_fixed_is_not_compared_with_a_tree() -> None:
    for preset in ("default", "fast", "best"):
        options = forest_options_for(preset, 5, max_leaves=7, seed=3)
        assert options.single == options_for(preset, max_leaves=7, seed=3)
        assert options.describe()["compare-with-tree"]
        assert options.with_seed(8).with_candidate({"method": "single"}).tree.seed == 8
        for change in ({"tune": False}, {"leaf_penalty": 3.0}, {"greedy": False}, {"method": "reweighted"}):
            fixed = forest_options_for(preset, 5, **change)  # type: ignore[arg-type]
            assert fixed.single is None
            assert not fixed.describe()["compare-with-tree"]
    assert forest_options_for("paper", 5).single is None
    assert forest_options_for("cart", 5).single is None


def test_a_single_tree_of_very_many_rows_is_searched_for_on_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X = rng.random((300, 3))
    many = Dataset(X, (X[:, 0] > 0.5).astype(np.int32), ("a", "b"))
    for module in (forest, large):
        monkeypatch.setattr(module, "VERY_MANY_SAMPLES", 200)
    monkeypatch.setattr(large.LargeTreeTrainer.__init__, "__defaults__", (1, 100))
    monkeypatch.setattr(forest_tuning, "choose_method", lambda candidates, scores, n_errors: len(candidates) - 1)
    for preset in ("default", "fast"):
        trainer = finished(ForestTrainer(many, EPSILON, forest_options_for(preset, 5, seed=2)))
        tree = make_single_tree_trainer(many, EPSILON, options_for(preset, seed=2))
        assert isinstance(tree, large.LargeTreeTrainer)
        assert format_model(trainer.model.tree(0)) == format_model(finish(tree))


def test_rows_in_the_order_of_time_are_split_into_blocks() -> None:
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(4000, 3)), axis=0)
    in_time = Dataset(walk, (walk[:, 0] > np.median(walk[:, 0])).astype(np.int32), ("a", "b"))
    rows = np.arange(10, 4010)
    found = plan_tuning_splits(in_time, rows, 0, "auto")
    assert (found.kind, len(found.pairs)) == ("blocks", 4)
    for kept, held in found.pairs:
        assert not set(kept.tolist()) & set(held.tolist())
        assert len(kept) == forest_tuning.GROWN_SAMPLES[0]
        for label in range(2):
            of_class = rows[in_time.y == label]
            places = np.searchsorted(of_class, held[in_time.y[held - 10] == label])
            assert (np.diff(places) == 1).all(), "rows of a class that follow each other"
    assert plan_tuning_splits(in_time, rows, 0, "random").kind == "random"
    trainer = ForestTrainer(in_time.subset(np.arange(500)), EPSILON, quick(2, tune=True), 2)
    for _ in trainer.run():
        pass
    assert trainer.tuning is not None
    assert trainer.tuning["split"] == "blocks"


# Options


def test_a_value_that_the_tuning_would_choose_makes_it_needless() -> None:
    assert forest_options_for("default", 5).tree.tune
    assert not forest_options_for("default", 5, robust_weight=0.3).tree.tune
    assert not forest_options_for("fast", 5).tree.tune
    assert not forest_options_for("paper", 5).is_reweighted


def test_trees_are_searched_for_where_samples_are_few() -> None:
    options = forest_options_for("default", 5)
    assert options.for_samples(FEW_SAMPLES + 1) == options
    few = options.for_samples(FEW_SAMPLES)
    assert few.tree.generations > 0
    assert set(options.tree.blends) < set(few.tree.blends)
    for asked in (forest_options_for("fast", 5), forest_options_for("default", 5, generations=0)):
        assert asked.for_samples(10) == asked


def test_features_of_each_tree() -> None:
    assert [quick(5).features_per_tree(n) for n in (1, 6, 16, 48, 784)] == [1, 6, 16, 24, 208]
    assert quick(5, allowed_features=3).features_per_tree(6) == 3
    assert forest_options_for("paper", 5).features_per_tree(784) == 784


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_trees": 0}, "trees is 0"),
        ({"method": "bagging"}, "forest-method must be"),
        ({"row_sample": 1.5}, "row-sample is 1.5"),
        ({"strength": -1.0}, "strength must"),
        ({"focus": 2.0}, "strength must"),
    ],
)
def test_options_out_of_range_are_refused(change: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ForestOptions(TrainingOptions(), **change)


def test_data_that_teach_nothing_are_refused(iris: Dataset) -> None:
    one = Dataset(np.zeros((3, 2)), np.zeros(3, np.int32), ("a",))
    with pytest.raises(DataError, match="one class only"):
        ForestTrainer(one, EPSILON, quick(3))
    with pytest.raises(RequestError, match="9 features are to be drawn"):
        ForestTrainer(iris, EPSILON, quick(3, allowed_features=9))


@pytest.mark.parametrize("n_rows", [120, 60])
def test_a_tree_with_many_values_is_tuned_on_fewer_splits_than_forests(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch, n_rows: int
) -> None:
    """The splits on which its tuning tries all candidates are fewer then than those of forests."""
    monkeypatch.setattr(tuning, "MANY_VALUES", 10)
    rows = iris.subset(np.arange(0, iris.n_samples, iris.n_samples // n_rows))
    trainer = finished(ForestTrainer(rows, EPSILON, forest_options_for("default", 3, seed=1)))
    assert trainer.model.n_trees in (1, 3)
    assert trainer.tuning is not None
