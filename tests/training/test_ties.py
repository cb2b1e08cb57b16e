"""Labels that tie in a trained model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.training_problems import random_problem

from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import predict
from metasilvae.training.options import Options, boosting_options_for, options_for
from metasilvae.training.results import TrainingResult
from metasilvae.training.runs import make_trainer
from metasilvae.training.ties import prefer_constant, rank_labels, settle_ties
from metasilvae.training.weights import weigh
from metasilvae.verification.metrics import evaluate

SEEDS = st.integers(0, 2**32 - 1)


def train(dataset: Dataset, epsilon: float, options: Options) -> Model:
    trainer = make_trainer(dataset, Ball(epsilon), options)
    for _ in trainer.run():
        pass
    return TrainingResult.of(trainer).model


def rows_of(X: list[list[float]], labels: str) -> Dataset:
    names = tuple(dict.fromkeys(labels))
    return Dataset(np.array(X, dtype=np.float64), np.array([names.index(each) for each in labels], np.int32), names)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_no_row_loses_by_it(seed: int) -> None:
    """Accuracy never falls, and rows that are stable, or robust, remain so."""
    problem = random_problem(np.random.default_rng(seed))
    dataset = problem.dataset
    assume(dataset.n_labels > 1)
    trainer = make_trainer(dataset, problem.radii, options_for("fast", seed=1, leaf_penalty=0.0, min_samples_leaf=2))
    for _ in trainer.run():
        pass
    model = trainer.model
    settled = settle_ties(model, dataset)
    assert (settled.nodes == model.nodes).all()
    assert max(map(len, settled.leaf_predictions.sets)) == 1
    before, after = (evaluate(each, dataset, [problem.radii])[0] for each in (model, settled))
    assert after.accuracy >= before.accuracy
    assert after.stability is not None
    assert before.stability is not None
    assert after.stability >= before.stability
    assert after.robust_accuracy is not None
    assert before.robust_accuracy is not None
    assert after.robust_accuracy >= before.robust_accuracy
    # A leaf without a tie keeps its counts.
    is_tied = np.array([len(model.leaf_predictions.sets[each]) > 1 for each in model.leaf_predictions.ids])
    assert (settled.leaf_values[~is_tied] == model.leaf_values[~is_tied]).all()
    assert (settled.leaf_values[is_tied].sum(axis=1) == model.leaf_values[is_tied].sum(axis=1) + 1).all()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["tree", "boosting"])
def test_the_fitness_on_held_out_rows_is_that_of_the_result(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (40, 2)).astype(np.float64)
    dataset = Dataset(X, rng.integers(0, 3, 40).astype(np.int32), ("a", "b", "c"))
    options: Options = options_for("fast", validation=0.3, leaf_penalty=0.0, min_samples_leaf=2)
    if kind == "boosting":
        options = boosting_options_for("fast", 3, validation=0.3)
    trainer = make_trainer(dataset, Ball(0.4), options)
    for _ in trainer.run():
        pass
    result = TrainingResult.of(trainer)
    assert trainer.held_out is not None
    assert result.held_out_fitness is not None
    phi = evaluate(result.model, trainer.held_out, [Ball(0.4)])[0].phi(options.tree_options.fitness)
    if kind == "tree":
        assert result.held_out_fitness == pytest.approx(phi)
    assert result.held_out_fitness <= phi + 1e-12


def test_the_label_of_most_rows_is_preferred() -> None:
    dataset = rows_of([[0]] * 3 + [[1]] * 2, "abbac")
    assert rank_labels(dataset).tolist() == [0, 1, 2], "of equally frequent ones the first"
    weighted = weigh(dataset, {"c": 9.0})
    assert rank_labels(weighted).tolist() == [2, 0, 1]


@pytest.mark.parametrize("preset", ["fast", "default", "best"])
def test_no_tree_is_worse_than_a_single_leaf(preset: str) -> None:
    X = [[0.001 * row, row % 3] for row in range(30)]
    dataset = rows_of(X, "xy" * 15)
    model = train(dataset, 0.1, options_for(preset))
    evaluation = evaluate(model, dataset, [Ball(0.1)])[0]
    assert (model.n_leaves, evaluation.accuracy, evaluation.stability) == (1, 0.5, 1.0)
    leaf = options_for(preset, leaf_penalty=0.0, tune=False)
    assert prefer_constant(model, dataset, Ball(0.1), leaf) is model


def test_a_tree_that_is_better_stays() -> None:
    dataset = rows_of([[0], [0], [1], [1], [5], [5], [6], [6]], "aaaabbbb")
    options = options_for("fast", leaf_penalty=0.0, min_samples_leaf=1)
    model = train(dataset, 0.1, options)
    assert model.n_leaves == 2
    costly = options_for("fast", leaf_penalty=6.0)
    assert prefer_constant(model, dataset, Ball(0.1), costly).n_leaves == 1


def test_equal_rows_of_two_labels_are_predicted_by_a_boosted_model() -> None:
    dataset = rows_of([[1, 2]] * 20 + [[3, 3]] * 3, "xy" * 10 + "zzz")
    options = boosting_options_for("fast", 20)
    trainer = make_trainer(dataset, Ball(0.1), options)
    for _ in trainer.run():
        pass
    tied = predict(trainer.model, dataset.X)
    assert max(len(tied.sets[each]) for each in tied.ids) == 2
    model = TrainingResult.of(trainer).model
    assert evaluate(model, dataset)[0].accuracy == pytest.approx(13 / 23)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_scores_that_differ_keep_their_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (40, 2)).astype(np.float64)
    dataset = Dataset(X, rng.integers(0, 3, 40).astype(np.int32), ("a", "b", "c"))
    trainer = make_trainer(dataset, Ball(0.4), boosting_options_for("fast", 4))
    for _ in trainer.run():
        pass
    model = trainer.model
    settled = settle_ties(model, dataset)
    before, after = (predict(each, dataset.X) for each in (model, settled))
    for one, other in zip(before.ids, after.ids, strict=True):
        labels, (label,) = before.sets[one], after.sets[other]
        assert label in labels
