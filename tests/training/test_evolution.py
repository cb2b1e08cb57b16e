"""Whole training runs: what they promise about their result, whatever the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, ModelError, RequestError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model, parse_model
from metasilvae.model import Model, join_trees
from metasilvae.perturbations.boxes import Ball, BoxFile
from metasilvae.training import evolution
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import PRESETS, TrainingOptions, options_for
from metasilvae.training.protocol import Progress, StopReason, finish
from metasilvae.training.tuning import make_tree_trainer
from metasilvae.verification.metrics import evaluate
from metasilvae.verification.objective import Fitness

SHORT = {"tune": False, "generations": 6, "population": 8, "initial_population": 8}


@pytest.fixture(scope="module")
def circle() -> Dataset:
    return read_dataset("builtin:circle/train")


@pytest.fixture(scope="module")
def iris() -> Dataset:
    return read_dataset("builtin:iris/train")


def make_dataset(rows: list[list[float]], y: list[int]) -> Dataset:
    labels = tuple(f"c{number}" for number in range(max(y) + 1))
    return Dataset(np.array(rows, dtype=float), np.array(y, dtype=np.int32), labels)


def train(dataset: Dataset, epsilon: float, options: TrainingOptions | None = None) -> Model:
    return finish(make_tree_trainer(dataset, Ball(epsilon), options or TrainingOptions()))


def run(trainer: TreeTrainer) -> list[evolution.Progress]:
    return list(trainer.run())


def phi(model: Model, dataset: Dataset, epsilon: float) -> float:
    metrics = evaluate(model, dataset, [Ball(epsilon)])[0]
    return 0.9 * metrics.accuracy + 0.1 * (metrics.stability or 0.0)


# What every run promises


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_trains(preset: str, iris: Dataset) -> None:
    trainer = TreeTrainer(iris, Ball(0.1), options_for(preset))
    records = run(trainer)
    assert len(records) <= trainer.n_steps
    assert phi(trainer.model, iris, 0.1) > 0.9
    assert trainer.model.leaf_values.sum() == iris.n_samples


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_never_gets_worse(preset: str, seed: int, circle: Dataset) -> None:
    trainer = TreeTrainer(circle, Ball(0.02), options_for(preset, seed=seed, generations=20, elitism=0))
    records = run(trainer)
    scores = [record.score for record in records]
    assert scores == sorted(scores)
    if preset == "paper":
        # No leaf costs anything there, so the score is the fitness.
        assert scores == pytest.approx([record.fitness for record in records])
        assert records[-1].fitness == pytest.approx(phi(trainer.model, circle, 0.02))
    offspring = [record.offspring for record in records]
    assert offspring == sorted(offspring)


def test_the_records_tell_what_the_verifier_finds(iris: Dataset) -> None:
    options = options_for("default", training_epsilon_factor=1.0, **SHORT)
    trainer = TreeTrainer(iris, Ball(0.1), options)
    last = run(trainer)[-1]
    metrics = evaluate(trainer.model, iris, [Ball(0.1)])[0]
    assert (last.accuracy, last.stability, last.robust_accuracy, last.leaves) == (
        metrics.accuracy,
        metrics.stability,
        metrics.robust_accuracy,
        trainer.model.n_leaves,
    )


VARIANTS = {
    "default": {},
    "validation": {"validation": 0.25},
    "encourage-variance": {"mutation_probability_rule": "encourage-variance"},
    "features": {"allowed_features": 2},
    "blank": {"greedy": False, "mutation": "grow", "selection": "uniform", "crossover": 1.0},
    "paper": PRESETS["paper"],
    "from-forest": {},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_bytes_for_any_number_of_jobs(variant: str, iris: Dataset) -> None:
    options = TrainingOptions(**{**VARIANTS[variant], **SHORT, "seed": 7})
    forest = train(iris, 0.2, options_for("cart")) if variant == "from-forest" else None
    texts = set()
    for jobs in (1, 2, 3, 8):
        trainer = TreeTrainer(iris, Ball(0.1), options, jobs, forest)
        run(trainer)
        texts.add(format_model(trainer.model))
    assert len(texts) == 1


def test_other_seeds_give_other_trees(circle: Dataset) -> None:
    texts = {format_model(train(circle, 0.02, options_for("paper", seed=seed))) for seed in range(5)}
    assert len(texts) > 1


@pytest.mark.parametrize("preset", ["default", "paper", "cart"])
def test_limits_hold(preset: str, iris: Dataset) -> None:
    limits = {"max_leaves": 5, "max_depth": 3, "min_samples_leaf": 4}
    for seed in range(3):
        model = train(iris, 0.1, options_for(preset, seed=seed, crossover=1.0, leaf_penalty=0.0, tune=False, **limits))
        assert model.n_leaves <= 5
        assert model.max_depth <= 3
        assert model.leaf_values.sum(axis=1).min() >= 4


def test_one_leaf_is_a_limit_too(iris: Dataset) -> None:
    assert train(iris, 0.1, options_for("default", max_leaves=1, **SHORT)).n_leaves == 1
    assert train(iris, 0.1, options_for("default", max_depth=0, **SHORT)).n_leaves == 1


def test_allowed_features_are_drawn_once(iris: Dataset) -> None:
    drawn = set()
    for seed in range(12):
        model = train(iris, 0.1, options_for("fast", allowed_features=2, seed=seed))
        assert len(model.tested_features) <= 2
        drawn.add(tuple(model.tested_features.tolist()))
    assert len(drawn) > 2
    with pytest.raises(RequestError, match="5 features are to be drawn"):
        train(iris, 0.1, options_for("fast", allowed_features=5))


# Odd data

ODD = {
    "two samples": make_dataset([[0, 0], [1, 1]], [0, 1]),
    "duplicate rows with different labels": make_dataset([[1, 2]] * 5 + [[3, 4]] * 5, [0, 1, 1, 2, 0, 2, 2, 1, 2, 2]),
    "nothing but duplicates": make_dataset([[1, 2]] * 4, [0, 1, 1, 0]),
    "constant features": make_dataset([[7, number, 7] for number in range(12)], [0] * 6 + [1] * 6),
    "120 classes": make_dataset([[number % 120, number % 7] for number in range(480)], [n % 120 for n in range(480)]),
    "classes of one row": make_dataset([[number, -number] for number in range(20)], [0] * 17 + [1, 2, 3]),
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1e308])
@pytest.mark.parametrize("data", ODD)
def test_odd_data(data: str, epsilon: float, preset: str) -> None:
    dataset = ODD[data]
    trainer = TreeTrainer(dataset, Ball(epsilon), options_for(preset, **SHORT))
    run(trainer)
    model = parse_model(format_model(trainer.model).encode())
    metrics = evaluate(model, dataset, [Ball(epsilon)])[0]
    assert metrics.accuracy >= 0
    if epsilon == 0:
        assert metrics.stability == 1.0
    if epsilon == 1e308 and preset != "cart":
        # Nobody can tell anything apart: at best a single leaf, or leaves of the same answer.
        assert metrics.stability in (0.0, 1.0)


def test_samples_that_can_be_told_apart_are() -> None:
    for data in ("two samples", "constant features"):
        model = train(ODD[data], 0.0, options_for("default", min_samples_leaf=1, leaf_penalty=0.0, **SHORT))
        assert evaluate(model, ODD[data])[0].accuracy == 1.0


def test_a_huge_perturbation_leaves_one_stable_leaf(iris: Dataset) -> None:
    options = options_for("default", fitness=Fitness(correct=0.1, stable=0.9))
    model = train(iris, 1e6, options)
    assert model.n_leaves == 1


def test_clipped_boxes(iris: Dataset) -> None:
    ball = Ball(0.5, 0.0, 8.0)
    trainer = TreeTrainer(iris, ball, options_for("default", **SHORT))
    run(trainer)
    metrics = evaluate(trainer.model, iris, [ball])[0]
    assert (metrics.stability or 0) > 0.3


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(list(PRESETS)), st.sampled_from([0.0, 0.3]))
def test_random_data(seed: int, preset: str, validation: float) -> None:
    """The run itself compares its metrics with the verifier's at its end."""
    rng = np.random.default_rng(seed)
    n, d, m = int(rng.integers(8, 40)), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    X = rng.integers(0, 8, (n, d)).astype(float) if rng.random() < 0.5 else rng.random((n, d))
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)]).astype(np.int32)
    dataset = Dataset(np.ascontiguousarray(X), y, tuple(map(str, range(m))))
    perturbation = Ball(float(rng.choice([0.0, 0.1, 1.0])), *((0.0, 7.0) if rng.random() < 0.3 else ()))
    weights = rng.normal(size=9).round(2)
    options = options_for(preset, fitness=Fitness(*weights.tolist()), validation=validation, seed=seed, **SHORT)
    trainer = TreeTrainer(dataset, perturbation, options, 2)
    scores = [record.score for record in trainer.run()]
    assert scores == sorted(scores)
    assert trainer.model.leaf_values.sum() == n


# First generations


def scored_last(trainer: TreeTrainer) -> float:
    return run(trainer)[-1].score


def test_the_best_of_a_forest_is_never_lost(iris: Dataset) -> None:
    good = train(iris, 0.1, options_for("default", training_epsilon_factor=1.0, **SHORT))
    bad = train(iris, 0.1, options_for("default", max_leaves=2, generations=0, tune=False))
    same = {"training_epsilon_factor": 1.0, **SHORT}
    reached = scored_last(
        TreeTrainer(
            iris, Ball(0.1), options_for("default", generations=0, polish=0, training_epsilon_factor=1.0), 1, good
        )
    )
    for forest in (join_trees([bad, bad, good]), join_trees([good, bad]), join_trees([bad] * 40 + [good])):
        for preset in ("default", "paper"):
            idle = options_for(preset, **{**same, "generations": 0, "polish": 0})
            trainer = TreeTrainer(iris, Ball(0.1), idle, 1, forest)
            run(trainer)
            assert format_model(trainer.model) == format_model(good)
        worst = options_for("default", elitism=0, selection="uniform", mutation="grow-or-prune", polish=0, **same)
        assert scored_last(TreeTrainer(iris, Ball(0.1), worst, 1, forest)) >= reached


def test_a_forest_may_name_the_labels_in_another_order(iris: Dataset) -> None:
    good = train(iris, 0.1, options_for("fast"))
    turned = dataclasses.replace(good, labels=good.labels[::-1], leaf_values=good.leaf_values[:, ::-1])
    idle = options_for("default", generations=0, polish=0)
    trainer = TreeTrainer(iris, Ball(0.1), idle, 1, turned)
    run(trainer)
    assert format_model(trainer.model) == format_model(good)


def test_a_forest_for_other_data_is_refused(iris: Dataset, circle: Dataset) -> None:
    other = train(circle, 0.02, options_for("fast"))
    with pytest.raises(ModelError, match="2 features"):
        TreeTrainer(iris, Ball(0.1), TrainingOptions(), 1, other)
    renamed = dataclasses.replace(other, labels=("up", "down"))
    with pytest.raises(ModelError, match="none of its labels"):
        TreeTrainer(circle, Ball(0.1), TrainingOptions(), 1, renamed)
    with pytest.raises(RequestError, match="more than 1 leaves"):
        TreeTrainer(circle, Ball(0.1), TrainingOptions(max_leaves=1), 1, other)


@pytest.mark.parametrize(
    ("changes", "n_trees"),
    [({"greedy": False}, 0), ({"greedy": True}, 0), ({}, 1), ({}, 3), ({}, 60)],
)
@pytest.mark.parametrize("size", [1, 5, 50])
def test_the_first_generation_has_the_size_asked_for(
    changes: dict, n_trees: int, size: int, circle: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = join_trees([train(circle, 0.02, options_for("fast"))] * n_trees) if n_trees else None
    sizes = []
    breed = TreeTrainer._breed

    def note_and_breed(self: TreeTrainer, pool, parents, *rest) -> None:
        sizes.append(len(parents))
        breed(self, pool, parents, *rest)

    monkeypatch.setattr(TreeTrainer, "_breed", note_and_breed)
    options = TrainingOptions(initial_population=size, population=8, generations=3, patience=0, **changes)
    run(TreeTrainer(circle, Ball(0.02), options, 1, forest))
    assert sizes == [size, 8, 8]


def test_a_blank_start_is_a_single_leaf(circle: Dataset) -> None:
    trainer = TreeTrainer(circle, Ball(0.02), options_for("paper", generations=0))
    assert [record.leaves for record in trainer.run()] == [1]
    assert trainer.model.n_leaves == 1


def test_encourage_variance_lowers_the_probability_of_mutations(
    circle: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    make = evolution.kernel.Reproduction

    def note_and_make(**recipe):
        seen.append(recipe["mutation_probability"])
        return make(**recipe)

    monkeypatch.setattr(evolution.kernel, "Reproduction", note_and_make)
    options = options_for(
        "paper", mutation_probability_rule="encourage-variance", mutation_probability=0.5, generations=20
    )
    run(TreeTrainer(circle, Ball(0.02), options))
    assert seen[0] == 0.5
    assert 0 < min(seen) < 0.5


# Ends


def test_reasons_to_stop(iris: Dataset) -> None:
    def reason(**changes) -> StopReason | None:
        trainer = TreeTrainer(iris, Ball(0.1), options_for("default", **{**SHORT, **changes}))
        assert trainer.stop_reason is None
        run(trainer)
        assert trainer.model.n_labels == 3
        return trainer.stop_reason

    assert reason(patience=0) == StopReason.ITERATIONS
    assert reason(patience=1, generations=1000) == StopReason.PATIENCE
    assert reason(target=0.5) == StopReason.TARGET
    assert reason(target=math.inf, patience=0, generations=0) == StopReason.ITERATIONS
    assert reason(time_limit=1e-9) == StopReason.TIME_LIMIT


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [({}, True), ({"polish": 2}, False), ({"generations": 1}, False), ({"validation": 0.3}, False)],
)
def test_a_single_pass_after_growth_improves_the_best_tree_only(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], is_one: bool
) -> None:
    numbers = []
    usual = TreeTrainer._search_locally

    def count(self: TreeTrainer, pool: Any) -> Iterator[Progress]:
        numbers.append((len(self._trees), len(self._hall_of_fame.trees)))
        return usual(self, pool)

    monkeypatch.setattr(TreeTrainer, "_search_locally", count)
    run(TreeTrainer(iris, Ball(0.1), options_for("fast", seed=1, leaf_penalty=0.0, **changes)))
    ((n_improved, n_best),) = numbers
    assert n_best > 1
    assert n_improved == (1 if is_one else n_best)


def test_a_target_ends_the_run_when_it_is_reached(iris: Dataset) -> None:
    records = run(TreeTrainer(iris, Ball(0.1), options_for("paper", target=0.6)))
    assert records[-1].fitness >= 0.6
    assert all(record.fitness < 0.6 for record in records[:-1])


@pytest.mark.parametrize("step", [0, 3, 17, 20])
def test_a_run_can_be_stopped_at_any_step(step: int, iris: Dataset) -> None:
    trainer = TreeTrainer(iris, Ball(0.1), options_for("default", patience=0, **SHORT))
    n_records = 0
    for number, _ in enumerate(trainer.run()):
        n_records += 1
        if number == step:
            trainer.stop()
    assert n_records == step + 1
    assert trainer.stop_reason == StopReason.INTERRUPTED
    assert phi(trainer.model, iris, 0.1) > 0.5


def test_a_run_stopped_before_it_starts_gives_a_tree(iris: Dataset) -> None:
    trainer = TreeTrainer(iris, Ball(0.1), TrainingOptions())
    assert trainer.model.n_leaves == 1
    trainer.stop()
    assert len(run(trainer)) == 1
    assert trainer.model.n_leaves == 1


def test_leaving_the_loop_keeps_the_best_tree(iris: Dataset) -> None:
    trainer = TreeTrainer(iris, Ball(0.1), TrainingOptions())
    for record in trainer.run():
        if record.phase == "generation":
            break
    assert phi(trainer.model, iris, 0.1) > 0.9


# Held-out rows


def test_held_out_rows_choose_and_are_counted_in_the_end(iris: Dataset) -> None:
    trainer = TreeTrainer(iris, Ball(0.1), options_for("default", validation=0.3, **SHORT))
    assert trainer.held_out is not None
    assert trainer.held_out.n_samples == 36
    assert trainer.learned.n_samples == 84
    run(trainer)
    assert trainer.model.leaf_values.sum() == 120
    chosen = [trainer._score_held_out(tree) for tree in trainer._hall_of_fame.trees]
    assert chosen == sorted(chosen, reverse=True)
    assert trainer.held_out_fitness == chosen[0]


def test_runs_with_different_seeds_hold_out_the_same_rows(iris: Dataset) -> None:
    held = [TreeTrainer(iris, Ball(0.1), TrainingOptions(validation=0.2, seed=seed)).held_out for seed in (1, 2)]
    assert held[0] is not None
    assert held[1] is not None
    assert (held[0].X == held[1].X).all()


def test_too_few_rows_to_hold_out() -> None:
    with pytest.raises(DataError, match="too few"):
        TreeTrainer(ODD["two samples"], Ball(0.1), TrainingOptions(validation=0.1))


# Refusals


def test_one_class_is_nothing_to_learn() -> None:
    with pytest.raises(DataError, match="one class only"):
        train(make_dataset([[1.0], [2.0]], [0, 0]), 0.1)


def test_boxes_of_a_file_are_refused(iris: Dataset, tmp_path) -> None:
    path = tmp_path / "boxes"
    path.write_text("[0;1] [0;1] [0;1] [0;1]\n" * iris.n_samples)
    with pytest.raises(RequestError, match="same radii"):
        TreeTrainer(iris, BoxFile(str(path)), TrainingOptions())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"robust_weight": 2.0}, "robust-weight is 2, it must be from 0 to 1"),
        ({"robust_weight": math.nan}, "robust-weight is nan"),
        ({"generations": -1}, "max-iteration is -1, it must be at least 0"),
        ({"population": 0}, "population-max-size is 0, it must be at least 1"),
        ({"initial_population": 0}, "population-initial-size is 0"),
        ({"leaf_penalty": math.inf}, "leaf-penalty is inf"),
        ({"training_epsilon_factor": -1.0}, "training-epsilon-factor is -1, it must be at least 0"),
        ({"min_samples_leaf": 2**40}, "min-samples-leaf is"),
        ({"aggressiveness": 0.0}, "split-search-aggressiveness"),
        ({"elitism": 33}, "elitism is 33, which exceeds"),
        ({"time_limit": 0.0}, "time-limit"),
        ({"time_limit": math.nan}, "time-limit"),
        ({"target": math.nan}, "target is not a number"),
        ({"selection": "best"}, "selection must be one of tournament"),
        ({"mutation": "Z"}, "mutation must be one of"),
        ({"blends": ()}, "blends"),
        ({"blends": (2.0,)}, "blends"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
    ],
)
def test_options_out_of_range(changes: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        TrainingOptions(**changes)


def test_presets_with_changes() -> None:
    assert options_for("paper", seed=None).mutation == "grow-or-prune"
    assert options_for("paper", mutation="grow").mutation == "grow"
    assert options_for("default") == TrainingOptions()
    with pytest.raises(RequestError, match="no such option"):
        options_for("default", speed=9)
