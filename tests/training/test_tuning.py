"""Tuning by cross-validation."""

from __future__ import annotations

import numpy as np
import pytest

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import plan_splits
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model
from metasilvae.perturbations.boxes import Ball
from metasilvae.training import tuning
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import TrainingOptions, options_for
from metasilvae.training.protocol import StopReason
from metasilvae.training.runs import make_trainer
from metasilvae.training.tuning import CANDIDATES, TunedTrainer, choose_candidate
from metasilvae.verification.metrics import evaluate

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
    assert candidates[0] in CANDIDATES
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


@pytest.mark.parametrize("n_samples", [10, 200, 5000, 20_000])
def test_splits_are_disjoint_and_hold_every_class(n_samples: int) -> None:
    y = np.random.default_rng(0).integers(0, 3, n_samples).astype(np.int32)
    splits = plan_splits(y, 1)
    assert len(splits) == (1 if n_samples > 3000 else 15)
    for kept, held in splits:
        assert not set(kept.tolist()) & set(held.tolist())
        assert len(np.unique(y[kept])) == 3 or n_samples == 10
        assert len(held)


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
