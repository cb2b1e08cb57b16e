"""Robust boosting: the loss, the bounds, the models."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training_problems import FeatureRadii, random_problem

from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError, RequestError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model, parse_model
from metasilvae.model import LeafKind
from metasilvae.perturbations.attack import load_attack
from metasilvae.perturbations.boxes import Ball, BoxFile, Perturbation
from metasilvae.perturbations.norms import NormBall
from metasilvae.training.additive_boosting import make_boosting_trainer
from metasilvae.training.boosted_trees import UNIT, Codes, choose_thresholds
from metasilvae.training.boosting import Booster, BoostingTrainer, CodedRows
from metasilvae.training.boosting_scores import Scores, find_derivatives
from metasilvae.training.boosting_tuning import Rows, find_base
from metasilvae.training.forest_votes import bound
from metasilvae.training.options import BoostingOptions, boosting_options_for
from metasilvae.training.protocol import StopReason, finish
from metasilvae.training.results import judge
from metasilvae.verification.metrics import evaluate
from metasilvae.verification.objective import Fitness
from metasilvae.verification.query import make_query
from metasilvae.verification.shards import Shard
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

seeds = st.integers(0, 2**32 - 1)


def random_scores(rng: np.random.Generator, n_labels: int, n_samples: int = 12) -> Scores:
    nothing = np.zeros((1, n_samples), dtype=np.uint8)
    codes = Codes(nothing, nothing, nothing, np.ones(1, dtype=np.int32))
    scores = Scores(
        codes, rng.integers(0, n_labels, n_samples).astype(np.int32), np.zeros(1 if n_labels == 2 else n_labels)
    )
    scores.own += rng.normal(size=scores.own.shape)
    scores.lowest = scores.own - rng.random(scores.own.shape)
    scores.highest = scores.own + rng.random(scores.own.shape)
    return scores


def loss_of(scores: Scores, weights: tuple[float, float], tolerance: float) -> np.ndarray:
    """The loss of each sample, as written in docs/method.md."""
    total = np.zeros(len(scores.y))
    for row, label in enumerate(scores.y):
        for weight, is_worst, power in ((weights[0], False, 0.0), (weights[1], True, tolerance)):
            own, low, high = scores.own[:, row], scores.lowest[:, row], scores.highest[:, row]
            if len(own) == 1:
                own, low, high = (np.concatenate([[0.0], part]) for part in (own, low, high))
            values = np.where(np.arange(len(own)) == label, low, high) if is_worst else own
            share = np.exp(values[label]) / np.exp(values).sum()
            total[row] += weight * ((1 - share**power) / power if power else -np.log(share))
    return total


@pytest.mark.parametrize("n_labels", [2, 3, 5])
@pytest.mark.parametrize("tolerance", [0.0, 0.5, 1.0])
def test_derivatives_are_those_of_the_loss(n_labels: int, tolerance: float) -> None:
    scores = random_scores(np.random.default_rng(n_labels), n_labels)
    found = find_derivatives(scores, (0.3, 0.7), tolerance)
    step = 1e-5
    for column, derivatives in enumerate(found):
        # The natural part moves with the scores of the samples, the certified part with the bounds.
        for names, first in ((("own",), derivatives.own_gradient), (("lowest", "highest"), derivatives.gradient)):
            losses = []
            for sign in (1, -1):
                for name in names:
                    getattr(scores, name)[column] += sign * step
                losses.append(loss_of(scores, (0.3, 0.7), tolerance))
                for name in names:
                    getattr(scores, name)[column] -= sign * step
            assert first * UNIT == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-6)
        assert (derivatives.own_hessian >= 0).all()
        assert (derivatives.hessian >= 0).all()


def test_second_derivatives_of_the_logistic_loss() -> None:
    scores = random_scores(np.random.default_rng(5), 2)
    (found,) = find_derivatives(scores, (1.0, 0.0))
    step = 1e-4
    losses = []
    for shift in (step, 0.0, -step):
        scores.own += shift
        losses.append(loss_of(scores, (1.0, 0.0), 0.0))
        scores.own -= shift
    assert found.own_hessian * UNIT == pytest.approx((losses[0] - 2 * losses[1] + losses[2]) / step**2, abs=1e-4)


def trained(dataset: Dataset, perturbation: Any, n_rounds: int = 8, **changes: Any) -> BoostingTrainer:
    options = boosting_options_for("fast", n_rounds, **{"min_samples_leaf": 1, "max_depth": 3, **changes})
    trainer = BoostingTrainer(dataset, perturbation, options)
    finish(trainer)
    return trainer


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_bounds_are_sound_and_metrics_agree_with_the_verifier(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed), 40)
    dataset, radii = problem.dataset, problem.radii
    if dataset.n_labels < 2:
        return
    trainer = trained(dataset, radii)
    model, booster = trainer.model, trainer._booster
    assert booster is not None
    assert model.leaf_kind is LeafKind.SCORES
    assert model.feasible is model
    outcome = verify(make_query(model, dataset, radii), jobs=1)
    proved = bound(model, dataset, radii)
    assert (proved.predictions.ids == outcome.predictions.ids).all()
    assert (outcome.stability[proved.stability == Stability.STABLE] == Stability.STABLE).all()
    if trainer._n_kept:
        correct, stable, robust = booster.learned.fractions
        assert correct == float(outcome.counts.accuracy)
        assert stable == float(proved.counts.stability) <= float(outcome.counts.stability)
        assert robust == float(proved.counts.robust_accuracy)


def test_a_model_survives_its_file() -> None:
    dataset = read_dataset("builtin:iris/train")
    model = trained(dataset, Ball(0.1), n_rounds=12).model
    again = parse_model(format_model(model).encode(), "model")
    assert format_model(again) == format_model(model)
    assert (model.n_trees, model.is_forest) == (36, True)
    exact, ours = (judge(each, dataset, Ball(0.1), 1).counts for each in (model, again))
    assert exact == ours


def test_boosting_learns() -> None:
    dataset = read_dataset("builtin:iris/train")
    counts = judge(trained(dataset, Ball(0.1), 30).model, dataset, Ball(0.1), 1).counts
    assert counts is not None
    assert counts.accuracy > 0.95
    assert counts.robust_accuracy is not None
    assert counts.robust_accuracy > 0.85


def test_weight_moves_from_accuracy_to_robust_accuracy() -> None:
    rng = np.random.default_rng(3)
    X = rng.random((400, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=400) > 0.5).astype(np.int32)
    dataset = Dataset(X, y, ("a", "b"))
    found = [
        judge(trained(dataset, Ball(0.08), 20, robust_weight=weight, tolerance=0.0).model, dataset, Ball(0.08), 1)
        for weight in (0.0, 1.0)
    ]
    assert found[0].accuracy > found[1].accuracy
    assert (found[0].robust_accuracy or 0) < (found[1].robust_accuracy or 0)


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("learning_rate", [0.5, 1.0])
@pytest.mark.parametrize("perturbation", [Ball(0.02), NormBall("l1", 0.02)], ids=["box", "norm"])
def test_scores_stay_numbers_without_a_penalty(perturbation: Perturbation, learning_rate: float, n_labels: int) -> None:
    """After many rounds most derivatives are rounded to 0, so that nothing but 0 may be there to divide by."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 100, (80, 2)) / 100
    y = (X[:, 0] * n_labels).astype(np.int32)
    y[:8] = rng.integers(0, n_labels, 8)
    dataset = Dataset(X, y, tuple("abc"[:n_labels]))
    fits = {"refits": 2, "refit_penalty": 0.0} if isinstance(perturbation, Ball) else {}
    options = boosting_options_for(
        "fast", 120, score_penalty=0.0, learning_rate=learning_rate, robust_weight=0.5, max_depth=3, **fits
    )
    trainer = make_boosting_trainer(dataset, perturbation, options)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        records = list(trainer.run())
    model = trainer.model
    assert np.isfinite(model.leaf_values).all()
    assert format_model(parse_model(format_model(model).encode(), "x")) == format_model(model)
    assert evaluate(model, dataset)[0].accuracy == records[-1].accuracy > 0.8


def test_trees_grown_on_samples_are_the_same_for_any_number_of_threads_and_nearly_as_good() -> None:
    dataset, ball = read_dataset("builtin:digits/train"), Ball(1.0)
    options = boosting_options_for("fast", 8, max_depth=5, row_sample=0.3)
    one, three = (finish(BoostingTrainer(dataset, ball, options, jobs)) for jobs in (1, 3))
    assert format_model(one) == format_model(three)
    whole = finish(BoostingTrainer(dataset, ball, dataclasses.replace(options, row_sample=1.0), 2))
    found, best = (judge(model, dataset, ball, 1) for model in (one, whole))
    assert found.accuracy > best.accuracy - 0.03
    assert (found.robust_accuracy or 0) > (best.robust_accuracy or 0) - 0.05


def test_the_training_loss_falls_where_it_used_to_rise() -> None:
    """Trees whose leaves are fitted one by one make the loss larger here after some rounds."""
    rng = np.random.default_rng(0)
    X = rng.random((600, 3))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=600) > 0.75).astype(np.int32)
    dataset, ball = Dataset(X, y, ("a", "b")), Ball(0.1)
    fitness = Fitness(correct=0.1, robust=0.9)
    options = boosting_options_for("fast", 60, fitness=fitness, robust_weight=0.0, tolerance=0.0)
    rows = Rows(dataset, ball.boxes(dataset))
    booster = Booster(dataset, None, CodedRows.of(rows, None, options, 1), options)
    losses = []
    for _ in range(60):
        booster.add_round(booster.grow_round())
        losses.append(loss_of(booster.learned, options.loss_weights, 0.0).mean())
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(losses))


def boosted(options: BoostingOptions, tested: bool = False) -> Booster:
    """Rounds on the digits; every fifth row may be there to test on."""
    dataset, ball = read_dataset("builtin:digits/train").subset(np.arange(500)), Ball(1.0)
    is_tested = np.arange(500) % 5 == 0
    parts = [dataset.subset(np.flatnonzero(each)) for each in (~is_tested, is_tested)]
    learned, other = (Rows(part, ball.boxes(part)) for part in parts)
    coded = CodedRows.of(learned, other if tested else None, options, 1)
    booster = Booster(parts[0], parts[1] if tested else None, coded, options)
    for _ in range(options.n_rounds):
        booster.add_round(booster.grow_round())
    return booster


@pytest.mark.parametrize(("tolerance", "penalty"), [(0.0, None), (0.5, None), (0.0, 0.2)])
def test_leaves_of_all_trees_are_fitted_again(tolerance: float, penalty: float | None) -> None:
    options = boosting_options_for(
        "fast", 6, max_depth=4, tolerance=tolerance, learning_rate=0.3, refit_penalty=penalty
    )
    booster = boosted(options, tested=True)

    def loss() -> float:
        """With the penalty on scores, which is larger by the learning rate unless it is given."""
        squares = sum(float((tree.value[tree.feature < 0] ** 2).sum()) for trees in booster.rounds for tree in trees)
        rows = loss_of(booster.learned, options.loss_weights, tolerance).sum()
        weight = options.score_penalty / options.learning_rate if penalty is None else penalty
        return float(rows + weight * squares / 2)

    losses = [loss()]
    shapes = [(tree.feature, tree.code) for trees in booster.rounds for tree in trees]
    saved = booster.save()
    for _ in range(3):
        assert booster.refit()
        losses.append(loss())
    assert all(later < earlier for earlier, later in pairwise(losses))
    trees = [tree for trees in booster.rounds for tree in trees]
    assert all((tree.feature == f).all() and (tree.code == c).all() for tree, (f, c) in zip(trees, shapes, strict=True))
    # The scores are those of the new trees, exactly.
    for scores in (booster.learned, booster.tested):
        assert scores is not None
        again = Scores(scores.codes, scores.y, booster.base)
        for trees in booster.rounds:
            for column, tree in enumerate(trees):
                again.add(tree, column)
        assert all((one == other).all() for one, other in zip(scores.sums, again.sums, strict=True))
    booster.restore(saved)
    assert loss() == losses[0]


def test_a_pass_that_is_stopped_leaves_the_model_as_it_was() -> None:
    dataset, ball = read_dataset("builtin:iris/train"), Ball(0.1)
    before = trained(dataset, ball, 5, refits=0).model
    options = boosting_options_for("fast", 5, min_samples_leaf=1, max_depth=3, refits=2)
    trainer = BoostingTrainer(dataset, ball, options)
    refit = Booster.refit

    def stopped(booster: Booster, is_stopped: Any) -> bool:
        answers = iter([False, False, True])

        def is_stopped_late() -> bool:
            if next(answers):
                trainer.stop()
            return bool(is_stopped())

        return refit(booster, is_stopped_late)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Booster, "refit", stopped)
        phases = [progress.phase for progress in trainer.run()]
    assert phases == ["round"] * 5
    assert trainer.stop_reason is StopReason.INTERRUPTED
    assert format_model(trainer.model) == format_model(before)
    again = BoostingTrainer(dataset, ball, options)
    again.resume(trainer.state)
    assert (
        format_model(finish(again)) == format_model(trained(dataset, ball, 5, refits=2).model) != format_model(before)
    )


@pytest.mark.parametrize("seed", range(4))
def test_held_out_rows_do_not_lose_by_fitting_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.random((200, 3))
    y = (X[:, 0] + 0.5 * rng.random(200) > 0.7).astype(np.int32)
    dataset = Dataset(X, y, ("a", "b"))
    common = {"validation": 0.4, "patience": 5, "max_depth": 4}
    before = trained(dataset, Ball(0.05), 60, **common, refits=0)
    after = trained(dataset, Ball(0.05), 60, **common, refits=3)
    assert after.stop_reason is before.stop_reason is StopReason.PATIENCE
    assert after.held_out_fitness is not None
    assert before.held_out_fitness is not None
    assert after.held_out_fitness >= before.held_out_fitness
    assert after.model.n_trees == before.model.n_trees
    assert (format_model(after.model) == format_model(before.model)) == (after._n_refitted == 0)


def test_many_rows_are_fitted_again() -> None:
    assert boosting_options_for("default", 1).refits_for(500) == 0
    assert boosting_options_for("default", 1).refits_for(50_000) == 3
    assert boosting_options_for("default", 1, refits=0).refits_for(50_000) == 0
    assert boosting_options_for("default", 1, refits=5).refits_for(50) == 5


def test_rows_of_a_tree() -> None:
    assert boosting_options_for("default", 1).rows_per_tree(500) == 1
    assert boosting_options_for("default", 1).rows_per_tree(20_000) == 0.5
    assert boosting_options_for("default", 1).rows_per_tree(1_000_000) == 0.3
    assert boosting_options_for("default", 1, row_sample=0.7).rows_per_tree(500) == 0.7


def test_base_scores_are_those_of_the_classes() -> None:
    y = np.array([0, 0, 0, 1], dtype=np.int32)
    assert find_base(y, 2) == pytest.approx([np.log(2 / 4)], abs=1e-6)
    assert find_base(np.array([0, 0, 1, 2], dtype=np.int32), 3).argmax() == 0


def test_thresholds_of_many_rows_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((500, 2))
    boxes = Ball(0.1).boxes(Dataset(X, np.zeros(500, dtype=np.int32), ("a",)))
    whole = choose_thresholds(X, boxes, 20, 0)
    monkeypatch.setattr("metasilvae.training.boosted_trees.MOST_ROWS", 50)
    drawn = choose_thresholds(X, boxes, 20, 0)
    for ours, theirs in zip(whole, drawn, strict=True):
        assert len(theirs) == 20
        assert np.abs(ours - theirs).max() < 0.3
        assert (ours != theirs).any()


# Perturbations


def test_radii_of_features_and_limits() -> None:
    dataset = read_dataset("builtin:iris/train")
    arrays = (
        np.array([0.1, 0.0, 0.3, 0.2]),
        np.array([0.2, 0.0, 0.0, 0.2]),
        dataset.X.min(axis=0),
        dataset.X.max(axis=0),
    )
    model = trained(dataset, FeatureRadii(arrays)).model
    assert judge(model, dataset, FeatureRadii(arrays), 1).robust_accuracy > 0.8  # type: ignore[operator]


def test_boxes_from_a_file(tmp_path: Path) -> None:
    dataset = read_dataset("builtin:iris/train")
    path = tmp_path / "boxes"
    path.write_text("\n".join(" ".join(f"[{x - 0.1};{x + 0.2}]" for x in row) for row in dataset.X.tolist()))
    trainer = trained(dataset, BoxFile(str(path)), validation=0.2)
    assert trainer.held_out_fitness is not None
    assert judge(trainer.model, dataset, BoxFile(str(path)), 1).robust_accuracy > 0.8  # type: ignore[operator]
    with pytest.raises(RequestError, match="have no radius to multiply"):
        trained(dataset, BoxFile(str(path)), training_epsilon_factor=1.1)


def test_one_hot_groups_are_bounded_soundly(tmp_path: Path) -> None:
    """The boxes hold points that the groups exclude, so that the bound is lower than it needs to be."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 60)
    X = np.column_stack([np.eye(3)[kinds], rng.random(60)])
    y = ((kinds + (X[:, 3] > 0.5)) % 2).astype(np.int32)
    dataset = Dataset(X, y, ("a", "b"), ("red", "green", "blue", "size"))
    path = tmp_path / "attack.toml"
    path.write_text('[columns]\nsize = { radius = 0.1 }\n[[one-hot]]\ncolumns = ["red", "green", "blue"]\n')
    attack = load_attack(str(path), dataset)
    trainer = trained(dataset, attack)
    proved, decided = bound(trainer.model, dataset, attack), verify(make_query(trainer.model, dataset, attack), jobs=1)
    assert (decided.stability[proved.stability == Stability.STABLE] == Stability.STABLE).all()


# The run


def test_held_out_rows_choose_the_number_of_rounds() -> None:
    rng = np.random.default_rng(1)
    X = rng.random((120, 3))
    y = (rng.random(120) < 0.5).astype(np.int32)
    trainer = trained(Dataset(X, y, ("a", "b")), Ball(0.02), 200, validation=0.4, patience=5, max_depth=4)
    assert trainer.stop_reason is StopReason.PATIENCE
    fitness = trainer._held_fitness
    assert trainer._n_kept == int(np.argmax(fitness)) == len(fitness) - 6
    assert trainer.held_out_fitness == max(fitness)
    assert trainer.model.n_trees == max(1, trainer._n_kept)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("curves", lambda part: np.zeros(3)),
        ("curves", lambda part: np.full(10**6, 0.5)),
        ("candidate", lambda part: 99),
        ("trees", lambda part: {**part, "feature": part["feature"] + 50 * (part["feature"] >= 0)}),
        ("trees", lambda part: {**part, "code": part["code"] + 300 * (part["code"] >= 0)}),
        ("rounds", lambda part: 0),
        ("refits", lambda part: 1),
        ("patience", lambda part: None),
    ],
)
def test_a_damaged_state_is_refused(name: str, change: Any) -> None:
    dataset, options = read_dataset("builtin:iris/train"), boosting_options_for("default", 4)
    trainer = BoostingTrainer(dataset, Ball(0.1), options)
    finish(trainer)
    state = dict(trainer.state)
    state[name] = change(state[name])
    if isinstance(state[name], np.ndarray):
        state[name] = state[name].astype(np.float64)
    again = BoostingTrainer(dataset, Ball(0.1), options)

    def resume() -> None:
        again.resume(state)
        finish(again)

    with pytest.raises(CheckpointError, match="damaged"):
        resume()


# Options


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.0}, "learning-rate is 0, it must be more than 0"),
        ({"feature_sample": 1.5}, "feature-sample is 1.5, it must be from 0 to 1"),
        ({"refits": -1}, "refits is -1, it must be from 0 to 100000"),
        ({"refit_penalty": -1.0}, "refit-penalty is -1, it must be from 0 to"),
        ({"thresholds": 300}, "thresholds is 300, it must be from 1 to 255"),
        ({"population": 3}, "'population-max-size' is for the search for trees"),
        ({"leaf_penalty": 1.0}, "'leaf-penalty' is for the search for trees"),
        ({"fitness": Fitness(correct=-1.0, stable=0.5)}, "boosting needs weights that reward accuracy"),
        ({"tune": True, "max_depth": 3}, "'tune' and 'max-depth' exclude each other"),
    ],
)
def test_wrong_options(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        boosting_options_for("default", 5, **changes)


def test_presets_and_unknown_options() -> None:
    with pytest.raises(RequestError, match="preset 'paper' is for single trees and forests"):
        boosting_options_for("paper", 5)
    with pytest.raises(RequestError, match="boost is 0"):
        boosting_options_for("fast", 0)
    with pytest.raises(RequestError, match="no such option: nonsense"):
        boosting_options_for("fast", 5, nonsense=1)
    assert boosting_options_for("default", 5).tree.tune
    assert not boosting_options_for("default", 5, max_depth=4).tree.tune


def test_weights_of_the_loss() -> None:
    options = boosting_options_for("fast", 5, robust_weight=0.5, fitness=Fitness(correct=0.6, stable=0.2, robust=0.2))
    assert options.loss_weights == pytest.approx((0.3, 0.7))
    assert dataclasses.replace(options, tree=dataclasses.replace(options.tree, robust_weight=0.0)).loss_weights == (
        pytest.approx((0.6, 0.4))
    )


def test_shards_of_boosted_models_divide_seeds() -> None:
    options = boosting_options_for("fast", 5)
    assert options.take_shard(Shard(1, 2), [1, 2, 3, 4]) == (options, [1, 2])
    with pytest.raises(RequestError, match="depends on those before it"):
        options.take_shard(Shard(1, 2), None)


def test_features_of_a_level() -> None:
    options = boosting_options_for("fast", 5)
    assert options.features_per_level(10) == 10
    assert options.features_per_level(784) < 200
    assert BoostingOptions(options.tree, feature_sample=0.5).features_per_level(10) == 5
