"""Tuning of boosted models: candidates, what they are chosen by, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from metasilvae.dataset import Dataset
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model
from metasilvae.output.text.trainings import describe_tuning
from metasilvae.perturbations.boxes import Ball
from metasilvae.perturbations.norms import NormBall
from metasilvae.training.additive_boosting import AdditiveBoostingTrainer
from metasilvae.training.boosting import (
    CANDIDATES,
    CANDIDATES_IF_FEW,
    EARLY_ROUNDS,
    BoostingTrainer,
    list_candidates,
)
from metasilvae.training.boosting_tuning import (
    BaseBoostingTrainer,
    Rows,
    choose_by_curves,
    list_racing,
    score_curves,
)
from metasilvae.training.options import FEW_SAMPLES, boosting_options_for
from metasilvae.training.protocol import finish
from metasilvae.training.results import judge
from metasilvae.verification.objective import Fitness


@pytest.fixture(scope="module")
def iris() -> Dataset:
    return read_dataset("builtin:iris/train")


def for_boxes(dataset: Dataset, n_rounds: int = 6, **changes: Any) -> BoostingTrainer:
    return BoostingTrainer(dataset, Ball(0.1), boosting_options_for("default", n_rounds, **changes))


def for_norm(dataset: Dataset, n_rounds: int = 6, **changes: Any) -> AdditiveBoostingTrainer:
    return AdditiveBoostingTrainer(dataset, NormBall("l1", 0.1), boosting_options_for("default", n_rounds, **changes))


makers = pytest.mark.parametrize("make", [for_boxes, for_norm])
Maker = Callable[..., BaseBoostingTrainer]


def test_curves_choose_candidate_and_rounds() -> None:
    curves = np.zeros((3, 4, 5))
    curves[0] += [0.1, 0.5, 0.6, 0.5, 0.4]
    curves[1] += [0.1, 0.2, 0.3, 0.9, 0.8]
    curves[2, 0, 0] = 2.5  # by luck, on one split
    assert choose_by_curves(curves) == (1, 4)
    assert choose_by_curves(curves[[0, 2]]) == (0, 3)
    assert choose_by_curves(curves[:, :1]) == (2, 1)


def test_rounds_go_on_as_long_as_the_best_one_is_not_clearly_better() -> None:
    better = np.array([0.7, 0.8, 0.79, 0.78, 0.5])
    noise = 0.02 * np.array([[1.0], [-1.0], [1.0], [-1.0]]) * [0, 0, 1, 0, 0]
    n_rounds, scores = score_curves(np.stack([better + noise, better + 0 * noise, better + noise - 0.3]))
    # Round 3 is behind by 0.01 with a standard error of 0.0115; round 4 is behind by the same on each split.
    assert n_rounds.tolist() == [3, 2, 3]
    assert np.allclose(scores.mean(axis=1), [0.79, 0.8, 0.49])


def test_candidates_follow_the_weights(iris: Dataset) -> None:
    usual = list_candidates(boosting_options_for("default", 5), 100)
    assert usual == CANDIDATES_IF_FEW
    assert list_candidates(boosting_options_for("default", 5), FEW_SAMPLES + 1) == CANDIDATES
    # Without a weight of accuracy there is none to move, and candidates that differ by it alone are one.
    robust = boosting_options_for("default", 5, fitness=Fitness(correct=0, robust=1))
    losses = [robust.with_candidate(each) for each in list_candidates(robust, 100)]
    assert len(losses) == len(CANDIDATES_IF_FEW) - 1
    assert len({(e.tree.max_depth, e.score_penalty, e.tolerance, e.first_tree) for e in losses}) == len(losses)
    # Penalties are multiples of the given one.
    given = list_candidates(boosting_options_for("default", 5, score_penalty=2.0), 100)
    assert [each["score_penalty"] for each in given] == [2 * each["score_penalty"] for each in usual]


@makers
def test_too_little_time_for_tuning_trains_the_first_candidate(
    monkeypatch: pytest.MonkeyPatch, make: Maker, iris: Dataset
) -> None:
    monkeypatch.setattr("metasilvae.training.boosting_tuning.TUNING_FRACTION", 1e-9)
    trainer = make(iris, time_limit=1e6)
    records = list(trainer.run())
    assert trainer.candidate == trainer._candidates[0]
    assert trainer.tuning is not None
    assert trainer.tuning["is_cut"]
    assert trainer.tuning["chosen"] == trainer.candidate
    assert describe_tuning(trainer.tuning).endswith("of the time limit, nothing was compared")
    assert [record.phase for record in records].count("round") == 6


@makers
def test_what_was_chosen_is_told_with_the_last_trial(make: Maker, iris: Dataset) -> None:
    trainer = make(iris)
    assert trainer.tuning is None
    records = [record for record in trainer.run() if record.phase == "tuning"]
    assert all(record.tuning is None for record in records[:-1])
    assert records[-1].tuning == trainer.tuning
    assert trainer.tuning is not None
    assert trainer.candidate is not None
    assert trainer.tuning["chosen"].items() >= trainer.candidate.items()
    finalists = trainer.tuning["finalists"]
    assert 1 <= len(finalists) <= 2
    assert finalists[0].items() >= trainer._candidates[0].items()
    assert len(records) == np.isfinite(trainer._curves[:, :, 0]).sum() < trainer._curves[:, :, 0].size
    assert all(0 < each["score"] <= 1 and each["error"] >= 0 for each in finalists)
    text = describe_tuning(trainer.tuning)
    assert f"depth {trainer.candidate['max_depth']}" in text
    assert f"of {iris.n_samples} rows" in text


def test_chosen_rounds_are_told(iris: Dataset) -> None:
    trainer = for_boxes(iris, 60)
    trainer._curves[:] = 0.5
    trainer._curves[:, :, 9] = 0.75
    trainer._choose()
    assert trainer.n_rounds == 10
    assert trainer.tuning is not None
    assert trainer.tuning["chosen"]["rounds"] == 10
    assert "rounds 10" in describe_tuning(trainer.tuning)


def test_more_rows_than_in_the_trials_get_more_rounds(monkeypatch: pytest.MonkeyPatch, iris: Dataset) -> None:
    monkeypatch.setattr("metasilvae.datasets.splitting.MANY_SAMPLES", 50)
    monkeypatch.setattr("metasilvae.datasets.splitting.MOST_SAMPLES", 40)
    for n_given, best, wanted in ((60, 5, 5 * iris.n_samples / 30), (12, 5, 12), (60, 50, 60)):
        trainer = for_boxes(iris, n_given)
        assert trainer._n_tuning_rows == 40
        trainer._curves[:] = 0.5
        trainer._curves[:, :, best - 1] = 0.75
        trainer._choose()
        # As many more as there are rows, but not more than were asked for, and all of them if the curve still rises.
        assert trainer.n_rounds == np.ceil(wanted)
        assert trainer.tuning is not None
        assert trainer.tuning["finalists"][0]["rounds"] == best


@makers
@pytest.mark.parametrize("n_missing", [0, 1])
def test_a_run_that_was_stopped_around_its_last_trial_goes_on_from_there(
    make: Maker, n_missing: int, iris: Dataset
) -> None:
    whole = make(iris)
    finish(whole)
    assert whole.candidate is not None
    curves = whole._curves.copy()
    # The last trial is that of the last finalist on the last split.
    curves[whole._finalists[len(whole._finalists) - n_missing :], -1] = np.nan
    n_trials = int(np.isfinite(curves[:, :, 0]).sum())
    first = make(iris).state
    other = make(iris)
    other.resume({**first, "curves": curves.ravel(), "steps": n_trials})
    records = list(other.run())
    assert [record.phase for record in records].count("tuning") == n_missing
    assert other.candidate == whole.candidate
    assert other.state["steps"] == whole.state["steps"]
    assert format_model(other.model) == format_model(whole.model)


@pytest.mark.parametrize(
    ("first", "second", "racing"),
    [
        # By the first split: the two best others, whether they are ahead or not.
        ([0.5, 0.4, 0.6, 0.1], None, [0, 1, 2]),
        ([0.5, 0.1, 0.2, 0.3], None, [0, 2, 3]),
        # Of equal ones, the first.
        ([0.5, 0.4, 0.4, 0.4], None, [0, 1, 2]),
        # By both splits: the best one, if it is ahead on average.
        ([0.5, 0.4, 0.6, 0.1], [0.5, 0.7, 0.5, np.nan], [0, 1]),
        ([0.5, 0.4, 0.6, 0.1], [0.5, 0.5, 0.5, np.nan], [0, 2]),
        ([0.5, 0.4, 0.6, 0.1], [0.5, 0.6, 0.4, np.nan], [0]),
    ],
)
def test_candidates_that_are_behind_are_dropped(
    first: list[float], second: list[float] | None, racing: list[int]
) -> None:
    curves = np.full((4, 5, 3), np.nan)
    assert list_racing(curves, 0) == [0, 1, 2, 3]
    curves[:, 0] = np.array(first)[:, None]
    if second is not None:
        curves[:, 1] = np.array(second)[:, None]
    for split in (1,) if second is None else (2, 3, 4):
        assert list_racing(curves, split) == racing
    # With two splits, as with many rows, all are tried on both.
    assert list_racing(curves[:, :2], 1) == [0, 1, 2, 3]


def test_a_race_tries_the_first_candidate_and_the_best_other_one_on_all_splits(iris: Dataset) -> None:
    truth = np.random.default_rng(3).random((6, 5))
    trainer = for_boxes(iris, 60)
    assert trainer._curves.shape[:2] == truth.shape
    batches = []
    while trials := trainer._plan_trials():
        batches.append(trials)
        for place in trials:
            trainer._curves[place] = truth[place]
    assert [len(batch) for batch in batches[:2]] == [6, 3]
    best = max({row for row, _ in batches[1]} - {0}, key=lambda row: truth[row, :2].sum())
    finalists = sorted({0, best} if truth[best, :2].sum() > truth[0, :2].sum() else {0})
    assert trainer._finalists == finalists
    assert sorted(batches[2]) == sorted((row, split) for row in finalists for split in (2, 3, 4))
    assert sum(map(len, batches)) <= trainer.n_steps - 60


def test_a_run_that_is_stopped_while_it_tunes_has_a_model(iris: Dataset) -> None:
    trainer = for_boxes(iris)
    records = []
    for record in trainer.run():
        records.append(record)
        trainer.stop()
    assert [record.phase for record in records] == ["tuning"]
    assert trainer.candidate is None
    assert trainer.model.n_trees == EARLY_ROUNDS * iris.n_labels
    assert trainer.model.n_leaves == records[0].leaves > trainer.model.n_trees
    assert judge(trainer.model, iris, Ball(0.1), 1).accuracy == pytest.approx(records[0].accuracy)
    assert records[0].accuracy > 0.9


def test_a_run_that_is_stopped_before_it_tunes_has_a_record(iris: Dataset) -> None:
    trainer = for_boxes(iris)
    trainer.stop()
    assert [(record.phase, record.offspring) for record in trainer.run()] == [("tuning", 0)]
    assert trainer.model.n_leaves == trainer.model.n_trees == iris.n_labels


@pytest.mark.parametrize("place", [0, 1])
def test_early_rounds_do_not_change_the_model(monkeypatch: pytest.MonkeyPatch, place: int, iris: Dataset) -> None:
    """Whether they are those of the chosen candidate or not, and whether they were stored or not."""

    def choose(curves: np.ndarray) -> tuple[int, int]:
        return place, curves.shape[2]

    monkeypatch.setattr("metasilvae.training.boosting_tuning.choose_by_curves", choose)
    monkeypatch.setattr("metasilvae.training.boosting_tuning.list_racing", lambda curves, split: [0, 1])
    whole = for_boxes(iris, 8)
    model = format_model(finish(whole))
    stopped = for_boxes(iris, 8)
    for _ in stopped.run():
        stopped.stop()
    resumed = for_boxes(iris, 8)
    resumed.resume(stopped.state)
    assert len(resumed._known) == EARLY_ROUNDS
    assert format_model(finish(resumed)) == model
    assert resumed.state["steps"] == whole.state["steps"]
    monkeypatch.setattr("metasilvae.training.boosting.EARLY_ROUNDS", 0)
    assert format_model(finish(for_boxes(iris, 8))) == model


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_radii_and_limits_are_multiplied(factor: float, iris: Dataset) -> None:
    boxes = Rows(iris, Ball(0.1).boxes(iris)).enlarged(factor).boxes
    lower, upper = boxes.all_bounds
    assert lower.tobytes() == Ball(0.1 * factor).boxes(iris).all_bounds[0].tobytes()
    assert upper.tobytes() == Ball(0.1 * factor).boxes(iris).all_bounds[1].tobytes()
    limit = Rows(iris, NormBall("l1", 0.1).boxes(iris)).enlarged(factor).boxes.limit
    assert limit is not None
    assert limit.epsilon == NormBall("l1", 0.1).times(factor).epsilon


def make_noise(n_rows: int, fraction: float) -> Dataset:
    """Two classes that one threshold separates; a fraction of the labels is drawn anew."""
    rng = np.random.default_rng(5)
    X = rng.random((n_rows, 4))
    y = np.where(rng.random(n_rows) < fraction, rng.random(n_rows) < 0.5, X[:, 0] > 0.5).astype(np.int32)
    return Dataset(X, y, ("a", "b"))


def test_trials_decide_whether_leaves_are_fitted_again() -> None:
    """The expected gain is that of the trials, corrected for their number of rows."""
    dataset = make_noise(4000, 0.3)
    for loss, n_refits in ((0.0, 3), (0.001, 3), (0.002, 0), (0.1, 0)):
        trainer = BoostingTrainer(dataset, Ball(0.01), boosting_options_for("default", 8))
        trainer._curves[:] = 0.8
        trainer._curves[:, :, -1] -= loss
        trainer._choose()
        # Of 4000 rows 3000 are learned from in a trial, so that the limit is a loss of 0.004 / 3.
        assert trainer._n_refits == n_refits
        assert trainer.tuning is not None
        assert trainer.tuning["chosen"]["refits"] == n_refits
        resumed = BoostingTrainer(dataset, Ball(0.01), boosting_options_for("default", 8))
        resumed.resume(trainer.state)
        assert resumed._n_refits == n_refits


@pytest.mark.parametrize("asked", [None, 0, 2])
def test_refits_that_are_asked_for_are_made(asked: int | None) -> None:
    options = boosting_options_for("default", 6, refits=asked)
    trainer = BoostingTrainer(make_noise(3600, 0.6), Ball(0.01), options)
    n_refits = [record.phase for record in trainer.run()].count("refit")
    assert trainer.tuning is not None
    assert trainer.tuning["chosen"].get("refits", asked) == n_refits
    assert ("refits" in trainer.tuning["chosen"]) == (asked is None)
