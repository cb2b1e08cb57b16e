"""Every trainer keeps the contract of `metasilvae.training.protocol`."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.checkpoints import SHORT, coarse, stored, strip
from support.stops import Questions

from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError, DataError, RequestError
from metasilvae.formats.silva_models import format_model
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.prediction import predict
from metasilvae.training.additive_boosting import AdditiveBoostingTrainer
from metasilvae.training.boosting import BoostingTrainer
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.forest import ForestTrainer
from metasilvae.training.large import LargeTreeTrainer
from metasilvae.training.options import (
    Options,
    TrainingOptions,
    boosting_options_for,
    forest_options_for,
    options_for,
)
from metasilvae.training.pareto import TreeCollector
from metasilvae.training.protocol import PHASES, BaseTrainer, Clock, Progress, StopReason, Trainer, TrainerGroup, finish
from metasilvae.training.runs import TRAINERS, make_trainer
from metasilvae.training.tuning import TunedTrainer
from metasilvae.verification.metrics import evaluate
from metasilvae.verification.objective import Fitness

pytestmark = pytest.mark.usefixtures("_short_tuning")
EPSILON = Ball(0.6)
NORM = NormBall("l2", 0.6)
# Places of a run at which it is stopped within a step.
N_PLACES = 10
Maker = Callable[..., Trainer]


def maker(options: Options, is_observed: bool = False, perturbation: Perturbation = EPSILON) -> Maker:
    """Makes trainers; changes are for the options of a tree."""

    def make(jobs: int = 1, **changes: Any) -> Trainer:
        chosen: Any = options
        if changes and chosen.kind == "tree":
            chosen = dataclasses.replace(chosen, **changes)
        elif changes:
            chosen = dataclasses.replace(chosen, tree=dataclasses.replace(chosen.tree, **changes))
        trainer = make_trainer(coarse(), perturbation, chosen, jobs)
        if is_observed:
            trainer.observe(TreeCollector(coarse(), perturbation, chosen.tree_options))
        return trainer

    return make


def large_maker(options: TrainingOptions) -> Maker:
    """Makes trainers for many samples, with few of them."""

    def make(jobs: int = 1, **changes: Any) -> Trainer:
        return LargeTreeTrainer(coarse(), EPSILON, dataclasses.replace(options, **changes), jobs, sample_size=20)

    return make


def quick_maker(options: TrainingOptions) -> Maker:
    """Makes trainers with a quick choice, with few samples."""

    def make(jobs: int = 1, **changes: Any) -> Trainer:
        return TunedTrainer(coarse(), EPSILON, dataclasses.replace(options, **changes), jobs)

    return make


TREE = options_for("default", **SHORT, tune=False, seed=3)
TUNED = options_for("default", **SHORT, polish=1)
MAKERS: dict[str, Maker] = {
    "tree": maker(TREE),
    "tree, held out": maker(dataclasses.replace(TREE, validation=0.3)),
    "tuned tree": maker(TUNED),
    "tuned tree, held out": maker(dataclasses.replace(TUNED, validation=0.3)),
    "tree after a quick choice": quick_maker(options_for("fast", polish=2)),
    "tree after a quick choice, held out": quick_maker(options_for("fast", fitness=Fitness(robust=1), validation=0.3)),
    "forest": maker(forest_options_for("fast", 6, seed=2)),
    "forest, held out": maker(forest_options_for("fast", 4, "independent", validation=0.3)),
    "tuned forest": maker(forest_options_for("default", 4, **{**SHORT, "generations": 1})),
    "large tree": large_maker(TREE),
    "large tree, held out": large_maker(dataclasses.replace(TREE, validation=0.3)),
    "large tuned tree": large_maker(TUNED),
    "boosting": maker(boosting_options_for("fast", 7, seed=2, max_depth=3, min_samples_leaf=1)),
    "boosting, fitted again": maker(boosting_options_for("fast", 4, max_depth=3, min_samples_leaf=1, refits=2)),
    # The first refit reaches the target, no round does.
    "boosting, fitted again, target": maker(
        boosting_options_for("fast", 4, max_depth=3, min_samples_leaf=1, refits=2, target=0.6)
    ),
    "boosting, held out, fitted again": maker(
        boosting_options_for("fast", 9, validation=0.3, patience=2, max_depth=4, refits=2)
    ),
    "boosting, held out": maker(boosting_options_for("fast", 9, validation=0.3, patience=4, row_sample=0.7)),
    "tuned boosting": maker(boosting_options_for("default", 5)),
    "tuned boosting, held out": maker(boosting_options_for("default", 5, validation=0.3)),
    "tree in l1, held out": maker(dataclasses.replace(TREE, validation=0.3), perturbation=NormBall("l1", 1.0)),
    "tuned tree in l2": maker(TUNED, perturbation=NormBall("l2", 0.8)),
    "forest in l0": maker(forest_options_for("fast", 4, seed=2), perturbation=NormBall("l0", 1)),
    "boosting of shifted images": maker(boosting_options_for("fast", 5, max_depth=3, image_shifts="1x3")),
    "boosting in a norm": maker(boosting_options_for("fast", 5, max_depth=3), perturbation=NORM),
    "boosting in a norm, held out": maker(
        boosting_options_for("fast", 8, validation=0.3, patience=3), perturbation=NORM
    ),
    "boosting in a norm, tuned": maker(boosting_options_for("default", 4), perturbation=NORM),
    "additive boosting": maker(boosting_options_for("fast", 5, max_depth=3, additive=True)),
    "additive boosting, held out": maker(boosting_options_for("fast", 8, validation=0.3, patience=3, additive=True)),
    "additive boosting, tuned": maker(boosting_options_for("default", 4, additive=True)),
    "observed tree": maker(TREE, is_observed=True),
    "observed tuned tree": maker(TUNED, is_observed=True),
}
every_trainer = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def run(trainer: Trainer) -> list[Progress]:
    return [strip(record) for record in trainer.run()]


def places(n_steps: int) -> list[int]:
    """Some steps: the first ones, the last ones and a few in between."""
    return sorted({0, 1, 2, n_steps // 3, n_steps // 2, n_steps - 2, n_steps - 1})


def test_all_kinds_of_trainers_are_here() -> None:
    kinds = {TreeTrainer, TunedTrainer, ForestTrainer, LargeTreeTrainer, BoostingTrainer, AdditiveBoostingTrainer}
    assert {type(make()) for make in MAKERS.values()} == kinds
    assert set(TRAINERS) == {"tree", "forest", "boosting"}


@every_trainer
def test_everything_that_the_contract_names_is_there(make: Maker) -> None:
    trainer = make()
    assert isinstance(trainer, BaseTrainer)
    names = {name for name, _ in inspect.getmembers(Trainer) if not name.startswith("_")} | set(Trainer.__annotations__)
    assert {"n_steps", "run", "stop", "model", "state", "resume", "observe", "seconds", "options"} <= names
    assert [name for name in names if not hasattr(trainer, name)] == []


@every_trainer
def test_progress(make: Maker) -> None:
    trainer = make()
    assert trainer.stop_reason is None
    records = []
    for record in trainer.run():
        assert trainer.stop_reason is None
        records.append(record)
    assert trainer.stop_reason in (StopReason.ITERATIONS, StopReason.PATIENCE)
    assert 0 < len(records) <= trainer.n_steps
    seconds = [*(record.seconds for record in records), trainer.seconds]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)
    phases = [phase for phase, _ in itertools.groupby(records, key=lambda record: record.phase)]
    order = list(PHASES)
    assert phases == sorted(phases, key=order.index)
    for phase, group in itertools.groupby(records, key=lambda record: record.phase):
        of_phase = list(group)
        assert [record.step for record in of_phase] == list(range(len(of_phase)))
        assert {record.unit for record in of_phase} == {PHASES[phase]}
        # The steps on a part of the samples are of several phases.
        mixed = ("sample", "initial population")
        assert len({record.training_epsilon_factor for record in of_phase}) == 1 or phase in mixed
        if phase not in (*mixed, "tree", "round"):
            assert [record.score for record in of_phase] == sorted(record.score for record in of_phase)


@every_trainer
def test_a_fitness_that_falls_from_phase_to_phase_is_that_of_a_more_regularized_tree(make: Maker) -> None:
    for before, after in itertools.pairwise(make().run()):
        if after.fitness < before.fitness and after.phase != before.phase and before.phase != "sample":
            is_larger = after.training_epsilon_factor > before.training_epsilon_factor
            assert is_larger or after.leaves < before.leaves


@every_trainer
def test_there_is_a_model_at_any_time(make: Maker) -> None:
    trainer = make()
    models = [trainer.model, *(trainer.model for _ in trainer.run()), trainer.model]
    for model in models:
        assert model.labels == coarse().labels
        assert model.n_features == coarse().n_features
        assert 0 <= evaluate(model, coarse())[0].accuracy <= 1
    assert (trainer.held_out_fitness is None) == (trainer.held_out is None)


@every_trainer
def test_a_stop_before_the_run(make: Maker) -> None:
    trainer = make()
    trainer.stop()
    assert len(run(trainer)) <= 1
    assert trainer.stop_reason is StopReason.INTERRUPTED
    assert trainer.model.n_leaves > 0


@every_trainer
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stop_during_the_run_and_what_comes_of_its_state(make: Maker, jobs: int) -> None:
    whole = make(jobs)
    records = run(whole)
    for place in places(len(records)):
        trainer = make(jobs)
        n_reported = 0
        for n_reported, _ in enumerate(trainer.run(), 1):
            if n_reported == place + 1:
                trainer.stop()
        # A batch of trees or trials that is complete may be reported after the stop.
        assert place < n_reported <= min(place + 12, len(records))
        assert trainer.stop_reason is StopReason.INTERRUPTED or n_reported == len(records)
        again = make(jobs)
        again.resume(stored(trainer.state))
        rest = run(again)
        assert rest == records[len(records) - len(rest) :]
        assert format_model(again.model) == format_model(whole.model)


@every_trainer
def test_a_stop_within_a_step_and_what_comes_of_its_state(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    questions, whole = Questions(monkeypatch), make()
    questions.follow(whole)
    n_questions = questions.count
    for place in sorted({*places(n_questions), *range(0, n_questions, 1 + n_questions // N_PLACES)}):
        trainer = make()
        questions.follow(trainer, stop_at=place)
        assert trainer.stop_reason in (StopReason.INTERRUPTED, whole.stop_reason)
        assert trainer.model.n_leaves > 0
        again = make()
        again.resume(stored(trainer.state))
        questions.follow(again)
        assert format_model(again.model) == format_model(whole.model)
        assert again.held_out_fitness == whole.held_out_fitness
        assert again.stop_reason is whole.stop_reason


@every_trainer
def test_a_stop_after_the_run(make: Maker) -> None:
    trainer = make()
    finish(trainer)
    reason, model = trainer.stop_reason, format_model(trainer.model)
    trainer.stop()
    assert trainer.stop_reason is reason
    assert format_model(trainer.model) == model


@every_trainer
def test_leaving_the_loop(make: Maker) -> None:
    trainer = make()
    next(trainer.run())
    assert trainer.stop_reason is None
    assert trainer.model.n_leaves > 0


@every_trainer
def test_the_deadline(make: Maker) -> None:
    trainer = make(time_limit=1e-9)
    assert len(run(trainer)) <= 2
    assert trainer.stop_reason is StopReason.TIME_LIMIT
    assert trainer.model.n_leaves > 0


@every_trainer
def test_the_target(make: Maker) -> None:
    trainer = make(target=0.1)
    assert len(run(trainer)) <= trainer.n_steps
    assert trainer.stop_reason is StopReason.TARGET


@every_trainer
def test_a_resumed_run_gives_the_same_bytes(make: Maker) -> None:
    whole = make()
    states = [stored(whole.state)]
    records = []
    for record in whole.run():
        records.append(strip(record))
        states.append(stored(whole.state))
    for place in places(len(records)):
        trainer = make()
        trainer.resume(states[place])
        assert states[place]["steps"] == place
        assert trainer.seconds >= states[place]["seconds"]
        assert run(trainer) == records[place:]
        assert format_model(trainer.model) == format_model(whole.model)
        assert trainer.held_out_fitness == whole.held_out_fitness
        assert trainer.stop_reason is whole.stop_reason


@every_trainer
def test_options_hold_what_tuning_has_chosen(make: Maker) -> None:
    trainer = make()
    asked = trainer.options
    finish(trainer)
    if trainer.tuning is None:
        # Pruning of a tree on very many samples chooses a penalty too.
        assert isinstance(trainer, LargeTreeTrainer) or trainer.options == asked
        return
    chosen = {name: value for name, value in trainer.tuning["chosen"].items() if hasattr(asked, name)}
    if "blends" in chosen:
        chosen["blends"] = tuple(chosen["blends"])
    if isinstance(trainer, LargeTreeTrainer):
        assert trainer.options.leaf_penalty >= chosen.pop("leaf_penalty")
    # A forest may have chosen its method alone.
    assert chosen or isinstance(trainer, ForestTrainer)
    assert {name: getattr(trainer.options, name) for name in chosen} == chosen
    again = make()
    again.resume(stored(trainer.state))
    finish(again)
    assert again.options == trainer.options


@every_trainer
def test_the_number_of_jobs_makes_no_difference(make: Maker) -> None:
    one, two = make(1), make(2)
    assert run(one) == run(two)
    assert format_model(one.model) == format_model(two.model)
    assert one.held_out_fitness == two.held_out_fitness


@pytest.mark.parametrize(
    "options",
    [TREE, TUNED, forest_options_for("fast", 3), boosting_options_for("fast", 3)],
    ids=["tree", "tuned tree", "forest", "boosting"],
)
def test_one_class_is_nothing_to_learn(options: Options) -> None:
    alone = Dataset(coarse().X, coarse().y * 0, ("a",))
    with pytest.raises(DataError, match="holds one class only"):
        make_trainer(alone, EPSILON, options)


class Notes:
    """An observer that writes down what it sees, in a list that it shares with others."""

    def __init__(self, name: str, shared: list[tuple[str, list[bytes]]]) -> None:
        self.name = name
        self.shared = shared
        self.n_calls = 0

    def observe(self, trees: Any) -> None:
        self.n_calls += 1
        self.shared.append((self.name, [b"".join(part.tobytes() for part in tree.nodes()) for tree in trees]))

    @property
    def state(self) -> dict[str, Any]:
        return {"calls": self.n_calls}

    def resume(self, document: dict[str, Any]) -> None:
        self.n_calls = document["calls"]


@pytest.mark.parametrize("name", ["tree", "tree, held out", "tuned tree"])
def test_observers_are_called_in_the_same_order(name: str) -> None:
    seen = []
    for jobs in (1, 2):
        shared: list[tuple[str, list[bytes]]] = []
        trainer = MAKERS[name](jobs)
        for observer in "ab":
            trainer.observe(Notes(observer, shared))
        finish(trainer)
        assert [each for each, _ in shared] == ["a", "b"] * (len(shared) // 2)
        assert [trees for each, trees in shared if each == "a"] == [trees for each, trees in shared if each == "b"]
        seen.append(shared)
    assert seen[0] == seen[1]


def test_the_observers_of_a_run_see_the_trees_of_its_parts() -> None:
    whole, part = MAKERS["tree"](), MAKERS["tree"]()
    assert isinstance(whole, BaseTrainer)
    whole.share_observers(part)
    notes = Notes("a", [])
    whole.observe(notes)
    finish(part)
    assert notes.n_calls > 0


@pytest.mark.parametrize("name", ["tree", "tuned tree"])
def test_observers_are_resumed_with_the_run(name: str) -> None:
    trainer = MAKERS[name]()
    notes = Notes("a", [])
    trainer.observe(notes)
    running = trainer.run()
    for _ in range(3):
        next(running)
    state = stored(trainer.state)
    again, other = MAKERS[name](), Notes("a", [])
    again.observe(other)
    again.resume(state)
    assert other.n_calls == notes.n_calls > 0
    unobserved = MAKERS[name]()
    with pytest.raises(CheckpointError, match="another number of observers"):
        unobserved.resume(state)


def test_a_forest_has_no_observers() -> None:
    with pytest.raises(RequestError, match="leave the number of trees out"):
        MAKERS["forest"]().observe(Notes("a", []))


def test_a_group_stops_its_trainers() -> None:
    group = TrainerGroup()
    running = MAKERS["tree"]()
    group.add(running)
    group.stop()
    late = MAKERS["tree"]()
    group.run(late)
    assert running.stop_reason is late.stop_reason is StopReason.INTERRUPTED


def test_a_clock_counts_on() -> None:
    clock = Clock(100.0)
    assert not clock.is_expired
    clock.resume(40.0)
    clock.resume(30.0)
    assert 40 <= clock.seconds < 50
    assert 50 < clock.seconds_left <= 60
    assert clock.deadline(0.5) < clock.deadline()
    clock.resume(100.0)
    assert clock.is_expired
    assert clock.seconds_left > 0


LIMIT_REACHED = f"stopped: reached the limit of {options_for('default').generations} generations"


@pytest.mark.parametrize(
    ("reason", "is_forest", "expected"),
    [
        (StopReason.PATIENCE, False, "stopped: no improvement in 30 generations"),
        (
            StopReason.ITERATIONS,
            False,
            LIMIT_REACHED,
        ),
        (StopReason.ITERATIONS, True, "completed"),
        (StopReason.TARGET, False, "stopped: reached the target phi 0.9"),
        (StopReason.TIME_LIMIT, False, "stopped: reached the time limit"),
        (StopReason.INTERRUPTED, True, "stopped: interrupted"),
    ],
)
def test_reasons_in_words(reason: StopReason, is_forest: bool, expected: str) -> None:
    assert reason.describe(options_for("default", target=0.9), is_forest) == expected


@pytest.mark.parametrize(
    "options",
    [
        options_for("fast"), options_for("default", generations=5, tune=False), options_for("cart"),
        forest_options_for("fast", 5), boosting_options_for("fast", 20),
        boosting_options_for("fast", 60, additive=True),
    ],
    ids=["fast", "default", "cart", "forest", "boosting", "additive boosting"],
)  # fmt: skip
def test_rows_outside_the_limits_of_their_boxes_are_learned_from(options: Any) -> None:
    """The labels of such rows depend on values that no perturbation reaches."""
    rng = np.random.default_rng(3)
    X = np.round(rng.random((300, 3)), 2)
    dataset = Dataset(X, (X[:, 0] > 0.93).astype(np.int32), ("a", "b"))
    model = finish(make_trainer(dataset, Ball(0.1, 0.0, 0.9), options))
    assert predict(model, X).are_correct(dataset.y).mean() > 0.97
