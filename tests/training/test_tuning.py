"""Tuning by cross-validation."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metasilvae.api import train
from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import is_ordered, plan_cross_validation, split_into_blocks
from metasilvae.errors import CheckpointError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model
from metasilvae.output.text.trainings import describe_tuning
from metasilvae.perturbations.boxes import Ball
from metasilvae.training import tuning
from metasilvae.training.checkpoint.runs import Checkpoint, read_checkpoint
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import BLENDS, TrainingOptions, options_for
from metasilvae.training.protocol import StopReason, Trainer, TrainerGroup, finish
from metasilvae.training.provenance import describe_run
from metasilvae.training.results import TrainedModel, TrainingResult, choose_best, judge, score_result
from metasilvae.training.runs import make_trainer
from metasilvae.training.trials import (
    LEAF_ERRORS_IF_FEW,
    LEAF_ERRORS_IF_MANY,
    LEAF_PENALTIES,
    TRIAL_BLENDS,
    Choice,
    QuickTrees,
    Race,
    choose_blends,
    choose_candidate,
    choose_values,
    list_factors,
)
from metasilvae.training.tuning import TunedTrainer
from metasilvae.verification.metrics import evaluate
from metasilvae.verification.objective import Fitness

SHORT = {"generations": 5, "population": 8, "initial_population": 8, "patience": 0}


@pytest.fixture(scope="module")
def iris() -> Dataset:
    return read_dataset("builtin:iris/train")


def test_the_options_decide_who_trains(iris: Dataset) -> None:
    assert isinstance(make_trainer(iris, Ball(0.1), TrainingOptions()), TunedTrainer)
    assert isinstance(make_trainer(iris, Ball(0.1), TrainingOptions(tune=False)), TreeTrainer)
    assert isinstance(make_trainer(iris, Ball(0.1), options_for("paper")), TreeTrainer)
    forest = TreeTrainer(iris, Ball(0.1), TrainingOptions()).model
    assert isinstance(make_trainer(iris, Ball(0.1), TrainingOptions(), 1, forest), TreeTrainer)


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_the_same_seed_gives_the_same_bytes_for_any_number_of_jobs(validation: float, iris: Dataset) -> None:
    texts, candidates = set(), []
    for jobs in (1, 2, 3, 8):
        trainer = TunedTrainer(iris, Ball(0.1), options_for("default", validation=validation, **SHORT), jobs)
        for _ in trainer.run():
            pass
        texts.add(format_model(trainer.model))
        candidates.append(trainer.candidate)
    assert len(texts) == 1
    assert candidates[0]["leaf_penalty"] in LEAF_PENALTIES
    assert candidates == [candidates[0]] * 4


def test_the_result_is_that_of_the_chosen_candidate(iris: Dataset) -> None:
    options = options_for("default", **SHORT)
    trainer = TunedTrainer(iris, Ball(0.1), options)
    records = list(trainer.run())
    assert len(records) <= trainer.n_steps
    assert list(dict.fromkeys(record.phase for record in records))[:4] == [
        "initial tree",
        "tuning",
        "initial population",
        "generation",
    ]
    seconds = [record.seconds for record in records]
    assert seconds == sorted(seconds)
    assert trainer.stop_reason == StopReason.ITERATIONS
    plain = TreeTrainer(iris, Ball(0.1), options_for("default", **SHORT, **trainer.candidate))
    for _ in plain.run():
        pass
    assert format_model(trainer.model) == format_model(plain.model)


PHASES = ["initial tree", "tuning", "initial population", "generation", "local search"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_run_can_be_stopped_in_any_phase(phase: str, iris: Dataset) -> None:
    trainer = TunedTrainer(iris, Ball(0.1), options_for("default", **SHORT), 2)
    last = None
    for record in trainer.run():
        if last is not None and last.phase == phase:
            assert record.phase == phase, "the run went on"
        last = record
        if record.phase == phase:
            trainer.stop()
    assert last is not None
    assert last.phase == phase
    assert trainer.stop_reason == StopReason.INTERRUPTED
    assert trainer.model.n_leaves == last.leaves
    assert evaluate(trainer.model, iris)[0].accuracy > 0.8


def test_a_stop_while_the_main_run_is_prepared(iris: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must reach a trainer that has not reported any step yet."""
    trainer = TunedTrainer(iris, Ball(0.1), options_for("default", **SHORT))
    usual = tuning.TreeTrainer.run

    def stop_and_run(self: TreeTrainer):
        if self.options.generations:
            trainer.stop()
        return usual(self)

    monkeypatch.setattr(tuning.TreeTrainer, "run", stop_and_run)
    records = list(trainer.run())
    assert [record.phase for record in records].count("initial population") <= 1
    assert "generation" not in {record.phase for record in records}
    assert trainer.stop_reason == StopReason.INTERRUPTED


@pytest.mark.parametrize("limit", [1e-9, 1e-3, 0.05])
def test_a_time_limit_holds_in_the_tuning_too(limit: float) -> None:
    digits = read_dataset("builtin:digits/train")
    trainer = TunedTrainer(digits, Ball(1), options_for("default", time_limit=limit))
    assert list(trainer.run())[-1].phase in PHASES
    assert trainer.stop_reason == StopReason.TIME_LIMIT
    assert trainer.model.n_labels == 10


def test_a_target_may_be_reached_early(iris: Dataset) -> None:
    trainer = TunedTrainer(iris, Ball(0.1), options_for("default", target=0.5))
    assert [record.phase for record in trainer.run()] == ["initial tree"]
    assert trainer.stop_reason == StopReason.TARGET


def make_rows(n_samples: int, n_features: int = 2, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_samples).astype(np.int32)
    return Dataset(rng.normal(size=(n_samples, n_features)), y, ("a", "b", "c"))


@pytest.mark.parametrize("kind", ["random", "blocks"])
@pytest.mark.parametrize("n_samples", [10, 200, 5000, 20_000])
def test_splits_are_disjoint_and_hold_every_class(n_samples: int, kind: str) -> None:
    dataset = make_rows(n_samples)
    found = plan_cross_validation(dataset, 1, kind)
    assert found.kind == kind
    assert len(found.pairs) == (4 if n_samples > 3000 else 10)
    assert found.n_first == (2 if n_samples > 3000 else 5)
    assert found.n_rows == min(n_samples, 12_000)
    for kept, held in found.pairs:
        assert not set(kept.tolist()) & set(held.tolist())
        assert len(np.unique(dataset.y[kept])) == 3 or n_samples == 10
        assert len(held)
        assert len(kept) + len(held) == found.n_rows


def test_many_features_mean_fewer_rows() -> None:
    assert plan_cross_validation(make_rows(4000, 900), 0, "random").n_rows == 3333
    assert plan_cross_validation(make_rows(4000, 900), 0, "random", 2e6).n_rows == 2222
    assert plan_cross_validation(make_rows(4000, 900), 0, "random", 1e6).n_rows == 2000


@pytest.mark.parametrize("shift", [0.0, 1 / 3, 0.9])
def test_blocks_are_contiguous_within_each_class(shift: float) -> None:
    y = np.random.default_rng(1).integers(0, 3, 200).astype(np.int32)
    folds = split_into_blocks(y, 5, shift)
    for label in range(3):
        of_class = folds[y == label]
        n_changes = int((np.diff(of_class) != 0).sum())
        assert n_changes <= (4 if shift == 0 else 5)
        sizes = np.bincount(of_class, minlength=5)
        assert sizes.max() - sizes.min() <= 2


def test_rows_in_the_order_of_time_are_noticed() -> None:
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(600, 5)), axis=0)
    y = (walk[:, 0] > np.median(walk[:, 0])).astype(np.int32)
    in_time = Dataset(walk, y, ("a", "b"))
    assert is_ordered(in_time)
    assert plan_cross_validation(in_time, 0).kind == "blocks"
    assert plan_cross_validation(in_time, 0, "random").kind == "random"
    shuffled = in_time.subset(rng.permutation(600))
    assert not is_ordered(shuffled)
    assert plan_cross_validation(shuffled, 0).kind == "random"
    # Sorted by class, or by one of five features, is no order in time.
    assert not is_ordered(shuffled.subset(np.argsort(shuffled.y, kind="stable")))
    noise = Dataset(rng.normal(size=(600, 5)), y, ("a", "b"))
    assert not is_ordered(noise.subset(np.argsort(noise.X[:, 0])))
    assert not is_ordered(in_time.subset(np.arange(50)))


def test_a_larger_epsilon_does_not_close_the_gaps_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    grid = Dataset(
        rng.integers(0, 10, (300, 2)).astype(np.float64), rng.integers(0, 2, 300).astype(np.int32), ("a", "b")
    )
    assert list_factors(grid, Ball(0.45)) == [1.0]
    assert list_factors(grid, Ball(0.4)) == [1.0, 1.15]
    assert list_factors(grid, Ball(0.5)) == [1.0, 1.15], "there is no gap left to lose"
    assert list_factors(Dataset(rng.normal(size=(300, 2)), grid.y, grid.labels), Ball(0.45)) == [1.0, 1.15]


def test_what_alternates_hides_nothing_from_tuning() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 10, (16000, 2)).astype(np.float64)
    # Every second row is of a sensor that is off, every second column is constant.
    X[::2] = 0.0
    rows = Dataset(X, rng.integers(0, 2, 16000).astype(np.int32), ("a", "b"))
    assert list_factors(rows, Ball(0.45)) == list_factors(rows.subset(rng.permutation(16000)), Ball(0.45)) == [1.0]
    X = rng.random((50, 256))
    X[:, ::2] = 0.0
    columns = Dataset(X, np.zeros(50, dtype=np.int32), ("a", "b"))
    assert tuning.count_values(columns) == pytest.approx(128 * 51, rel=0.3)


def run_race(race: Race, score: object) -> int:
    """Run a race with a function of candidate and split; returns the number of trials."""
    n_trials = 0
    while trials := race.plan():
        for trial in trials:
            factors = {race.candidates[number]["training_epsilon_factor"] for number in trial.candidates}
            assert len(factors) == 1
            race.record(trial, [score(race.candidates[number], trial.split) for number in trial.candidates])  # type: ignore[operator]
            n_trials += 1
    return n_trials


def test_a_race_drops_losers_and_chooses_the_best() -> None:
    race = Race([1.0, 1.15], [0.0, 0.2], 500, 15, 5)

    def score(candidate: dict[str, float], split: int) -> float:
        luck = 1e-4 * ((split * 7 + int(10 * candidate["robust_weight"])) % 5)
        return (
            0.9 + luck - 0.01 * abs(candidate["leaf_penalty"] - 4) + 0.02 * (candidate["training_epsilon_factor"] > 1)
        )

    n_trials = run_race(race, score)
    assert n_trials == race.n_most_trials
    chosen = race.candidates[race.choice]
    assert (chosen["leaf_penalty"], chosen["training_epsilon_factor"]) == (4.0, 1.15)
    n_tried = np.isfinite(race.scores).sum(axis=1)
    assert set(n_tried.tolist()) == {5, 15}
    described = race.describe()
    assert {each["leaf_penalty"] for each in described} == {2.0, 4.0, 8.0, 500.0}
    assert len(described) == (n_tried == 15).sum() == 16
    assert min(each["difference"] for each in described) < 0
    assert [each["difference"] for each in described if each.items() >= chosen.items()] == [0.0]


def test_a_factor_that_is_behind_is_dropped() -> None:
    race = Race([1.0, 1.15], [0.0, 0.2], 5000, 4, 2)
    n_trials = run_race(race, lambda candidate, split: 0.9 - 0.01 * candidate["training_epsilon_factor"])
    assert n_trials == 2 * 2 + 2
    assert race.candidates[race.choice]["training_epsilon_factor"] == 1.0


def test_of_equal_candidates_the_most_regularized_is_chosen() -> None:
    for n_samples, penalty in ((10, 16.0), (500, 500.0), (5000, 5000.0)):
        race = Race([1.0, 1.15], [0.0, 0.2], n_samples, 4, 2)
        run_race(race, lambda candidate, split: 0.6)
        chosen = {"training_epsilon_factor": 1.0, "robust_weight": 0.2, "leaf_penalty": penalty}
        assert race.candidates[race.choice] == chosen


def test_labels_that_do_not_depend_on_features_give_a_single_leaf() -> None:
    rng = np.random.default_rng(1)
    dataset = Dataset(rng.normal(size=(200, 20)), (rng.random(200) < 0.4).astype(np.int32), ("a", "b"))
    trainer = make_trainer(dataset, Ball(0.05), options_for("default", seed=1), 1)
    assert finish(trainer).n_leaves == 1


def make_scores(n_penalties: int = 5, n_splits: int = 10) -> np.ndarray:
    """Two factors, two weights; the second penalty is the best one by 0.01, and the last one, a single leaf, is bad."""
    scores = np.full((2, 2, n_penalties, n_splits), 0.8)
    scores[:, :, 1] += 0.01
    scores[:, :, -1] -= 0.1
    return scores


def test_each_option_is_chosen_by_averages_over_the_others() -> None:
    assert choose_values(make_scores(), LEAF_ERRORS_IF_FEW) == Choice(0, 1, 1)
    # One lucky candidate does not outweigh the others with its penalty.
    lucky = make_scores()
    lucky[1, 1, 3] += 0.015
    assert np.unravel_index(lucky.mean(axis=-1).argmax(), (2, 2, 5)) == (1, 1, 3)
    assert choose_values(lucky, LEAF_ERRORS_IF_FEW).penalty == 1
    # A penalty that is better with both factors is taken.
    better = make_scores()
    better[:, 1, 3] += 0.015
    assert choose_values(better, LEAF_ERRORS_IF_FEW) == Choice(0, 1, 3)


def test_other_weights_and_factors_must_be_better_by_their_errors() -> None:
    noise = np.array([1.0, -1.0] * 5)
    error = noise.std(ddof=1) / np.sqrt(10)
    for gain, is_chosen in ((0.9, False), (1.1, True)):
        scores = make_scores()
        scores[:, 0] += 0.01 * (noise + gain * error)
        assert choose_values(scores, LEAF_ERRORS_IF_FEW).weight == (0 if is_chosen else 1)
    for gain, is_chosen in ((0.4, False), (0.6, True)):
        scores = make_scores()
        scores[1] += 0.01 * (noise + gain * error)
        assert choose_values(scores, LEAF_ERRORS_IF_FEW).factor == is_chosen


@pytest.mark.parametrize("leaf_errors", [LEAF_ERRORS_IF_FEW, LEAF_ERRORS_IF_MANY])
def test_a_single_leaf_must_be_better_by_its_errors(leaf_errors: float) -> None:
    noise = np.array([1.0, -1.0] * 5)
    error = noise.std(ddof=1) / np.sqrt(10)
    for change, penalty in ((-0.1, 1), (0.1, 4)):
        scores = make_scores() - 0.05
        scores[:, :, 1] = 0.8 + 0.01 * noise
        scores[:, :, 4] = 0.8 + 0.01 * error * (leaf_errors + change)
        assert choose_values(scores, leaf_errors).penalty == penalty


def test_noise_ends_in_a_single_leaf_and_quickly() -> None:
    rng = np.random.default_rng(0)
    noise = Dataset(rng.normal(size=(3200, 3)), (rng.random(3200) < 0.3).astype(np.int32), ("a", "b"))
    trainer = TunedTrainer(noise, Ball(0.1), options_for("default"))
    phases = [record.phase for record in trainer.run()]
    assert trainer.model.n_leaves == 1
    assert phases.count("generation") == 0
    assert trainer.candidate is not None
    assert trainer.candidate["leaf_penalty"] == 3200.0


def make_many_rows(radius: float, n_samples: int = 3200) -> tuple[Dataset, Ball]:
    """Two informative columns: boxes of the first overlap across its only cut, those of the second do not."""
    rng = np.random.default_rng(5)
    y = (rng.random(n_samples) < 0.5).astype(np.int32)
    exact = y + rng.random(n_samples) * 0.9
    wide = np.where(rng.random(n_samples) < 0.7, y, 1 - y) * 10.0 + rng.random(n_samples)
    X = np.column_stack([exact, wide, rng.random(n_samples)])
    return Dataset(X, y, ("a", "b")), Ball(radius)


def test_with_many_rows_trials_use_the_criteria_that_suit_the_data() -> None:
    # Where accuracy and stability contradict each other, accuracy weighs more; where radii are 0, all are the same.
    dataset, ball = make_many_rows(1.0)
    options = options_for("default", seed=1)
    found = choose_blends(dataset, ball, options)
    assert len(found) == 2
    assert 1.0 not in found
    assert found == choose_blends(dataset, ball, options)
    for_stability = options_for("default", seed=1, fitness=Fitness(correct=0.3, stable=0.7))
    assert 1.0 in choose_blends(dataset, ball, for_stability)
    assert choose_blends(dataset, Ball(0.0), options) == TRIAL_BLENDS[:2]


def test_with_many_rows_trials_search_locally_once_for_each_weight() -> None:
    dataset, ball = make_many_rows(0.3, 400)
    rows = np.arange(400)
    parts = dataset.subset(rows[::2]), dataset.subset(rows[1::2])
    candidates = [(weight, penalty) for weight in (0.0, 0.2) for penalty in (4.0, 1.0)]
    scores = {}
    for has_many in (False, True):
        trees = QuickTrees(*parts, ball, options_for("default"), 1.0, has_many)
        scores[has_many] = trees.score(candidates)
    # The smallest penalty of each weight has the same trees either way.
    assert scores[True][1::2] == scores[False][1::2]
    assert all(0.5 < score <= 1 for each in scores.values() for score in each)


def test_with_many_rows_bytes_do_not_depend_on_jobs_either() -> None:
    dataset, ball = make_many_rows(0.1)
    texts = set()
    for jobs in (1, 3):
        trainer = TunedTrainer(dataset, ball, options_for("default", seed=2, **SHORT), jobs)
        records = list(trainer.run())
        texts.add(format_model(trainer.model))
        assert len(records) <= trainer.n_steps
        assert trainer._main is not None
        blends = trainer._main.options.blends
        assert set(TRIAL_BLENDS) <= set(blends) < set(BLENDS)
        assert trainer.options.blends == blends
    assert len(texts) == 1
    # Criteria that are given stay.
    given = TunedTrainer(dataset, ball, options_for("default", blends=(1.0, 0.5), **SHORT))
    assert given._tuning.list_blends(TrainerGroup()) == (1.0, 0.5)


def make_fragile() -> Dataset:
    """One column decides, and no box is stable there; the other one is stable, and right for 80 % of the rows."""
    rng = np.random.default_rng(3)
    exact = rng.random(3200)
    y = ((exact * 8).astype(int) % 2).astype(np.int32)
    wide = np.where(rng.random(3200) < 0.8, y, 1 - y) * 10.0
    return Dataset(np.column_stack([exact, wide]), y, ("a", "b"))


def chosen_options(trainer: Trainer) -> TrainingOptions:
    """Options of the tree that is trained after a quick choice."""
    finish(trainer)
    assert isinstance(trainer, TunedTrainer)
    assert trainer._main is not None
    return trainer._main.options


def test_the_fast_preset_drops_a_robust_weight_that_costs_much_accuracy() -> None:
    fast = options_for("fast", seed=1)
    assert fast.pretune
    fragile = make_fragile()
    found = chosen_options(make_trainer(fragile, Ball(0.06), fast))
    assert found.robust_weight == 0
    assert not found.pretune
    assert len(found.blends) == 2
    assert set(found.blends) < set(fast.blends)
    # Where boxes are small the weight stays.
    assert chosen_options(make_trainer(fragile, Ball(0.001), fast)).robust_weight == fast.robust_weight
    # Few rows, a value that is given and other presets: nothing is chosen.
    few = fragile.subset(np.arange(1000))
    assert make_trainer(few, Ball(0.06), fast).options == options_for("fast", seed=1, pretune=False)
    given = options_for("fast", robust_weight=0.2)
    assert make_trainer(fragile, Ball(0.06), given).options == given
    assert not options_for("fast", blends=(0.5,)).pretune
    assert not options_for("cart").pretune


@pytest.mark.parametrize(("epsilon", "weight"), [(0.06, 0.0), (0.001, 0.2)])
def test_the_quick_choice_is_told_with_its_last_step(epsilon: float, weight: float) -> None:
    fragile = make_fragile()
    trainer = make_trainer(fragile, Ball(epsilon), options_for("fast", seed=1))
    assert trainer.tuning is None
    records = list(trainer.run())
    assert len(records) <= trainer.n_steps
    assert trainer.tuning is not None
    blends = trainer.tuning["chosen"]["blends"]
    assert trainer.tuning["chosen"] == {"robust_weight": weight, "blends": blends}
    assert tuple(blends) == chosen_options(trainer).blends
    assert [each["robust_weight"] for each in trainer.tuning["finalists"]] == [0.0, 0.2]
    told = [record for record in records if record.tuning is not None]
    assert [record.phase for record in records][:4] == ["initial tree", "tuning", "tuning", "initial population"]
    assert told == [records[2]]
    assert told[0].tuning == trainer.tuning
    words = f"robust weight {weight:g}, reach-set weights {blends[0]:g} and {blends[1]:g}; phi"
    assert words in describe_tuning(trainer.tuning)
    # Nothing is chosen where rows are few.
    assert make_trainer(fragile.subset(np.arange(1000)), Ball(epsilon), options_for("fast", seed=1)).tuning is None


def test_criteria_are_told_where_no_weight_can_be_dropped() -> None:
    fragile = make_fragile()
    trainer = make_trainer(fragile, Ball(0.01), options_for("fast", fitness=Fitness(robust=1.0)))
    records = list(trainer.run())
    assert len(records) <= trainer.n_steps
    assert trainer.tuning is not None
    blends = trainer.tuning["chosen"]["blends"]
    assert trainer.tuning["chosen"] == {"blends": blends}
    assert tuple(blends) == chosen_options(trainer).blends
    assert trainer.tuning["finalists"] == []
    assert [record.tuning for record in records if record.phase == "tuning"] == [trainer.tuning]
    assert describe_tuning(trainer.tuning) == f"reach-set weights {blends[0]:g} and {blends[1]:g}; by 3200 rows"


def test_the_quick_choice_takes_part_in_the_run() -> None:
    """It can be stopped, by the clock too, and stored; before it there is a tree."""
    fragile, ball, fast = make_fragile(), Ball(0.06), options_for("fast", seed=1)
    whole = make_trainer(fragile, ball, fast)
    model = format_model(finish(whole))
    for n_steps in range(4):
        stopped = make_trainer(fragile, ball, fast)
        for number, _ in enumerate(stopped.run()):
            if number == n_steps:
                stopped.stop()
        assert stopped.stop_reason is StopReason.INTERRUPTED
        assert stopped.model.n_leaves > 1
        resumed = make_trainer(fragile, ball, fast)
        resumed.resume(stopped.state)
        assert format_model(finish(resumed)) == model
        assert resumed.tuning == whole.tuning
        assert resumed.state["steps"] == whole.state["steps"]


def test_the_time_limit_cuts_the_quick_choice_short(monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()

    def wait(rows: Dataset, ball: Ball, options: TrainingOptions, *others: object, group: TrainerGroup) -> Any:
        started.set()
        deadline = time.monotonic() + 30
        while not group.is_stopped and time.monotonic() < deadline:
            time.sleep(0.01)
        return options.blends

    monkeypatch.setattr("metasilvae.training.quick_choice.choose_blends", wait)
    trainer = make_trainer(make_fragile(), Ball(0.06), options_for("fast", time_limit=0.5))
    records = list(trainer.run())
    assert started.is_set()
    assert trainer.stop_reason is StopReason.TIME_LIMIT
    assert trainer.seconds < 20
    assert [record.phase for record in records] == ["initial tree"]
    assert trainer.tuning is None
    assert trainer.model.n_leaves > 1


def test_criteria_that_are_chosen_can_be_stopped() -> None:
    group = TrainerGroup()
    group.stop()
    dataset, ball = make_many_rows(0.3, 400)
    # Growth ends at the root.
    assert choose_blends(dataset, ball, options_for("default"), group=group) == TRIAL_BLENDS[:2]


def test_the_quick_choice_does_not_see_rows_that_are_held_out() -> None:
    dataset, ball = make_many_rows(0.1, 4200)
    for validation, n_rows in ((0.25, 3150), (0.0, 4200)):
        trainer = make_trainer(dataset, ball, options_for("fast", validation=validation))
        assert isinstance(trainer, TunedTrainer)
        assert trainer._tuning._learned.n_samples == n_rows
    # Those that are left are too few.
    assert isinstance(make_trainer(dataset, ball, options_for("fast", validation=0.5)), TreeTrainer)


def test_with_many_values_folds_are_not_repeated() -> None:
    rng = np.random.default_rng(0)
    for n_columns, digits, n_splits, n_first in ((59, 9, 10, 5), (61, 1, 10, 5), (61, 9, 5, 3), (200, 9, 5, 3)):
        X = rng.random((200, n_columns)).round(digits)
        dataset = Dataset(X, (X[:, 0] > 0.5).astype(np.int32), ("a", "b"))
        trainer = TunedTrainer(dataset, Ball(0.01), options_for("default", **SHORT))
        assert (len(trainer._validation.pairs), trainer._validation.n_first) == (n_splits, n_first)
        finish(trainer)
        blends = trainer._tuning._choose_blends(TrainerGroup())
        assert len(blends) == (4 if n_splits == 10 else 2)
        assert set(blends) <= set(TRIAL_BLENDS)


def test_what_was_chosen_is_told_with_the_last_trial(iris: Dataset) -> None:
    trainer = TunedTrainer(iris, Ball(0.1), options_for("default", **SHORT))
    assert trainer.tuning is None
    records = [record for record in trainer.run() if record.phase == "tuning"]
    assert all(record.tuning is None for record in records[:-1])
    assert records[-1].tuning == trainer.tuning
    assert trainer.tuning is not None
    assert trainer.tuning["chosen"] == trainer.candidate
    assert trainer.tuning["split"] == "random"
    assert trainer.tuning["rows"] == iris.n_samples
    finalists = trainer.tuning["finalists"]
    assert all(each["splits"] == 10 and 0 < each["score"] <= 1 and each["error"] >= 0 for each in finalists)
    assert any(each.items() >= trainer.candidate.items() for each in finalists)


def test_robust_weights_matter_only_with_a_weight_of_accuracy(iris: Dataset) -> None:
    trainer = TunedTrainer(iris, Ball(0.1), options_for("default", fitness=Fitness(robust=1.0), **SHORT))
    for _ in trainer.run():
        pass
    assert trainer.tuning is not None
    assert {each["robust_weight"] for each in trainer.tuning["finalists"]} == {0.0}


def test_another_candidate_must_be_surely_better() -> None:
    first = np.array([0.9, 0.8, 0.85])
    noise = np.array([0.3, -0.2, 0.0])
    assert choose_candidate(np.array([first, first + noise])) == 0
    assert choose_candidate(np.array([first, first + 0.01 + noise / 1000, first - 0.1])) == 1
    assert choose_candidate(np.array([[0.9], [0.9005], [0.95]])) == 2
    assert choose_candidate(np.array([[0.9], [0.8995]])) == 0


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[0.0], [1.0]], [0, 1]),
        ([[0.0], [1.0], [2.0]], [0, 1, 2]),
        ([[1.0, 1.0]] * 6, [0, 1, 0, 1, 2, 0]),
    ],
)
def test_very_few_samples(X: list[list[float]], y: list[int]) -> None:
    dataset = Dataset(np.array(X), np.array(y, dtype=np.int32), ("a", "b", "c")[: max(y) + 1])
    trainer = TunedTrainer(dataset, Ball(0.1), options_for("default", **SHORT))
    for _ in trainer.run():
        pass
    assert trainer.model.leaf_values.sum() == len(y)


def result_of(trainer: Trainer) -> TrainingResult:
    finish(trainer)
    return TrainingResult.of(trainer)


def test_results_of_seeds_are_compared_by_one_leaf_penalty(iris: Dataset) -> None:
    """A run that chose a small penalty does not win because of that."""
    run = score_result(result_of(TreeTrainer(iris, Ball(0.3), options_for("fast"))), iris, Ball(0.3), None, 1)
    trees = [train(iris, 0.3, preset="fast", leaf_penalty=penalty, jobs=1) for penalty in (0.0, 20.0)]
    large, small = (replace(run, model=tree, training=judge(tree, iris, Ball(0.3), 1)) for tree in trees)
    assert large.model.n_leaves > small.model.n_leaves

    def with_penalty(run: TrainedModel, penalty: float) -> TrainedModel:
        return replace(run, options=replace(run.options, leaf_penalty=penalty))

    assert large.merit(0.0) > small.merit(0.0)
    assert large.merit(50.0) < small.merit(50.0)
    # By its own penalty each of them would be best.
    light = [with_penalty(small, 50.0), with_penalty(large, 0.0), with_penalty(large, 0.0)]
    assert choose_best(light).model is large.model
    heavy = [with_penalty(large, 0.0), with_penalty(small, 50.0), with_penalty(small, 50.0)]
    assert choose_best(heavy).model is small.model


def test_a_stored_result_has_the_options_that_were_chosen(iris: Dataset, tmp_path: Path) -> None:
    options = replace(options_for("default", seed=3, leaf_penalty=17.0, **SHORT), tune=True)
    trainer = TunedTrainer(iris, Ball(0.3), options)
    result = result_of(trainer)
    assert result.options.leaf_penalty != options.leaf_penalty
    description = describe_run(iris, Ball(0.3), options, [3])
    stored = Checkpoint(str(tmp_path / "run.ck"), description)
    stored.close(3, result, trainer)
    stored.write()
    again = Checkpoint(str(tmp_path / "other.ck"), description)
    again.resume(read_checkpoint(str(tmp_path / "run.ck")))
    found = again.result(3, options, iris)
    assert found is not None
    assert found.options == result.options
    document = read_checkpoint(str(tmp_path / "run.ck"))
    for name, value in (("leaf_penalty", "2"), ("blends", ["a"]), ("blends", []), ("robust_weight", 7.0)):
        document["results"][0]["options"][name] = value
        again.resume(document)
        with pytest.raises(CheckpointError, match="damaged"):
            again.result(3, options, iris)
