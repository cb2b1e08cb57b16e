"""Boosting for a limit of the total change: bounds, derivatives, models, runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.oracles import power_of_distance

from metasilvae._core.training import additive as kernel
from metasilvae.api import as_perturbation, evaluate, train
from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError, PerturbationError, RequestError
from metasilvae.formats.silva_models import format_model, parse_model
from metasilvae.model import MISSING_LEFT
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.boxes import Ball, Boxes
from metasilvae.perturbations.norms import NormBall
from metasilvae.prediction import predict
from metasilvae.training.additive_boosting import PARTS, AdditiveBoostingTrainer
from metasilvae.training.additive_models import (
    AdditiveModel,
    AdditiveSamples,
    CellTable,
    choose_steps,
    make_additive_model,
    settle_base,
)
from metasilvae.training.boosted_trees import UNIT, VALUE_UNIT
from metasilvae.training.boosting import BoostingTrainer
from metasilvae.training.forest_votes import bound
from metasilvae.training.options import BoostingOptions, boosting_options_for
from metasilvae.training.protocol import StopReason, finish
from metasilvae.training.results import judge
from metasilvae.training.weights import weigh
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

seeds = st.integers(0, 2**32 - 1)
norms = st.sampled_from(["l0", "l1", "l2"])
NO_GRADIENT = np.zeros((0, 0), dtype=np.int64)


def measure(
    samples: AdditiveSamples, scores: np.ndarray, base: np.ndarray, is_thorough: bool = True, weights: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    gradient = NO_GRADIENT if weights is None else np.zeros(scores.shape, dtype=np.int64)
    of_base = np.zeros(len(base), dtype=np.int64)
    rows = np.arange(samples.n_samples, dtype=np.int32)
    kernel.measure_rows(
        samples.X, *samples.cell_arguments, samples.home, samples.low, samples.high, scores, base, samples.y, rows, 0,
        len(rows), is_thorough, samples.prices, samples.margins, samples.bounds, samples.row_weights,
        *(weights or (0.0, 0.0, 0.0)), UNIT, gradient, of_base,
    )  # fmt: skip
    return gradient * UNIT, of_base * UNIT


class Problem:
    """A few samples of few features, an additive model with random scores, and a ball."""

    def __init__(self, seed: int, norm: str, n_labels: int = 2, costs: Sequence[float] | None = None) -> None:
        rng = np.random.default_rng(seed)
        n_features = int(rng.integers(1, 4))
        # Not around 0: a cost is rounded down, and half of the smallest number above 0 would cost nothing.
        X = 1 + rng.integers(0, 9, (6, n_features)) / 8
        if rng.random() < 0.3:
            X[rng.random(X.shape) < 0.2] = np.nan
        y = np.concatenate([np.arange(n_labels), rng.integers(0, n_labels, 6 - n_labels)]).astype(np.int32)
        self.dataset = Dataset(X, y, tuple("abc"[:n_labels])).noting_missing
        epsilon = float(rng.integers(0, 4)) if norm == "l0" else float(rng.integers(0, 9)) / 8
        self.ball = NormBall(norm, epsilon)
        self.boxes: Boxes = self.ball.boxes(self.dataset)
        self.costs = rng.choice([0.5, 1.0, 2.0], n_features) if norm != "l0" else rng.choice([1.0, 2.0], n_features)
        assert self.boxes.limit is not None
        self.boxes = dataclasses.replace(self.boxes, limit=dataclasses.replace(self.boxes.limit, costs=self.costs))
        thresholds = [1 + np.unique(rng.integers(-1, 10, int(rng.integers(0, 4))) / 8) for _ in range(n_features)]
        self.table = CellTable.of_thresholds(thresholds, self.boxes)
        n_columns = 1 if n_labels == 2 else n_labels
        self.scores = np.rint(rng.normal(size=(n_columns, self.table.n_cells)) / VALUE_UNIT) * VALUE_UNIT
        self.base = np.rint(rng.normal(size=n_columns) / VALUE_UNIT) * VALUE_UNIT
        self.samples = AdditiveSamples(self.table, self.dataset, self.boxes)

    def reachable(self, row: int) -> list[list[float]]:
        """All points that matter and that the limit allows, by exact distances."""
        limit, sample = self.boxes.limit, self.dataset.X[row]
        assert limit is not None
        columns = []
        for f, x in enumerate(sample.tolist()):
            cuts = self.table.thresholds[f].tolist()
            columns.append([x] if math.isnan(x) else [x, *cuts, *(math.nextafter(k, math.inf) for k in cuts)])
        known = [f for f, x in enumerate(sample) if not math.isnan(x)]
        most = Fraction(limit.epsilon) ** (2 if limit.norm == "l2" else 1)
        found = []
        for point in itertools.product(*columns):
            parts = [[each[f] for f in known] for each in (sample.tolist(), point, self.costs.tolist())]
            if power_of_distance(limit.norm, parts[0], parts[1], parts[2]) <= most:
                found.append(list(point))
        return found

    def score(self, point: Sequence[float]) -> np.ndarray:
        total = self.base.copy()
        for f, x in enumerate(point):
            cuts, first = self.table.thresholds[f], self.table.starts[f]
            cell = len(cuts) + 1 if math.isnan(x) else int((cuts < x).sum())
            total += self.scores[:, first + cell]
        return total

    def margin(self, point: Sequence[float], row: int, rival: int) -> float:
        score, label = self.score(point), int(self.dataset.y[row])
        if len(score) == 1:
            return float(score[0] if label == 1 else -score[0])
        return float(score[label] - score[rival])


class TestBounds:
    @given(seeds, norms, st.integers(2, 3))
    @settings(max_examples=150)
    def test_no_allowed_point_has_a_smaller_margin(self, seed: int, norm: str, n_labels: int) -> None:
        problem = Problem(seed, norm, n_labels)
        samples = problem.samples
        for is_thorough in (False, True):
            measure(samples, problem.scores, problem.base, is_thorough)
            for row in range(samples.n_samples):
                points = problem.reachable(row)
                for rival in range(samples.bounds.shape[1]):
                    if n_labels > 2 and rival == problem.dataset.y[row]:
                        continue
                    worst = min(problem.margin(point, row, rival) for point in points)
                    assert samples.margins[row, rival] == pytest.approx(
                        problem.margin(problem.dataset.X[row].tolist(), row, rival)
                    )
                    assert samples.bounds[row, rival] <= worst + 1e-9
                    assert samples.bounds[row, rival] <= samples.margins[row, rival]

    @given(seeds, norms)
    @settings(max_examples=80)
    def test_the_best_price_is_found(self, seed: int, norm: str) -> None:
        problem = Problem(seed, norm)
        samples = problem.samples
        samples.prices[:] = np.random.default_rng(seed).choice([0.0, 1e-9, 0.5, 1e4])
        measure(samples, problem.scores, problem.base)
        found = samples.bounds[:, 0].copy()
        for price in [0.0, *np.geomspace(1e-3, 1e3, 60)]:
            samples.prices[:] = price
            measure(samples, problem.scores, problem.base, is_thorough=False)
            assert (found >= samples.bounds[:, 0] - 1e-2 * (1 + price)).all()
        if problem.dataset.n_features == 1:
            # One feature shares with none, so that there is no gap.
            for row in range(samples.n_samples):
                worst = min(problem.margin(point, row, 0) for point in problem.reachable(row))
                assert found[row] == pytest.approx(worst)


class TestDerivatives:
    @given(seeds, norms, st.integers(2, 3), st.sampled_from([0.0, 1.0]))
    @settings(max_examples=60)
    def test_they_are_those_of_the_loss_at_a_price(self, seed: int, norm: str, n_labels: int, tolerance: float) -> None:
        problem = Problem(seed, norm, n_labels)
        samples, weights = problem.samples, (0.4, 0.6, tolerance)
        samples.row_weights = np.random.default_rng(seed).choice([0.5, 1.0, 3.0], samples.n_samples)
        prices = samples.prices.copy()

        def loss(scores: np.ndarray, base: np.ndarray) -> float:
            samples.prices[:] = prices
            measure(samples, scores, base, is_thorough=False)
            total = 0.0
            for row in range(samples.n_samples):
                for part, values in ((0.4, samples.margins[row]), (0.6, samples.bounds[row])):
                    others = np.exp(-values[np.isfinite(values)]).sum()
                    of_label = 1 / (1 + others)
                    # With tolerance 1, the probability of another label.
                    is_tolerant = part == 0.6 and tolerance == 1
                    total += samples.row_weights[row] * part * (1 - of_label if is_tolerant else math.log1p(others))
            return total

        gradient, of_base = measure(samples, problem.scores, problem.base, is_thorough=False, weights=weights)
        rng = np.random.default_rng(seed)
        for _ in range(3):
            # Almost nowhere does the attack change with a small step.
            step = 1e-6
            column, cell = int(rng.integers(problem.scores.shape[0])), int(rng.integers(problem.scores.shape[1]))
            changed = [problem.scores.copy() for _ in range(2)]
            changed[0][column, cell] += step
            changed[1][column, cell] -= step
            slope = (loss(changed[0], problem.base) - loss(changed[1], problem.base)) / (2 * step)
            assert gradient[column, cell] == pytest.approx(slope, abs=1e-4)
            bases = [problem.base + sign * step * (np.arange(len(problem.base)) == column) for sign in (1, -1)]
            slope = (loss(problem.scores, bases[0]) - loss(problem.scores, bases[1])) / (2 * step)
            assert of_base[column] == pytest.approx(slope, abs=1e-4)

    @given(seeds, norms, st.integers(2, 3))
    @settings(max_examples=40)
    def test_weights_of_rows_count_as_copies(self, seed: int, norm: str, n_labels: int) -> None:
        problem = Problem(seed, norm, n_labels)
        dataset, n_samples = problem.dataset, problem.dataset.n_samples
        copies = np.random.default_rng(seed).integers(1, 5, n_samples)
        repeated = dataset.subset(np.repeat(np.arange(n_samples), copies))
        sums, fractions = [], []
        # With weights, what counts is their ratio to the mean.
        for each, factor in ((weigh(dataset, {}, copies), copies.mean()), (repeated, 1.0)):
            boxes = problem.ball.boxes(each)
            assert boxes.limit is not None
            boxes = dataclasses.replace(boxes, limit=dataclasses.replace(boxes.limit, costs=problem.costs))
            samples = AdditiveSamples(problem.table, each, boxes)
            found = measure(samples, problem.scores, problem.base, False, (0.4, 0.6, 0.5))
            sums.append(np.concatenate([part.ravel() for part in found]) * factor)
            fractions.append(samples.fractions)
        assert sums[0] == pytest.approx(sums[1], abs=1e-5)
        assert fractions[0] == pytest.approx(fractions[1])

    def test_steps_descend(self) -> None:
        problem = Problem(3, "l1")
        model = AdditiveModel(problem.table, problem.base)
        losses = []
        for _ in range(60):
            gradient, of_base = measure(problem.samples, model.scores, model.base, False, (0.5, 0.5, 0.0))
            losses.append(np.logaddexp(0, -np.concatenate([problem.samples.margins, problem.samples.bounds])).sum())
            model.descend(gradient, of_base, 0.0, 0.05)
        assert losses[-1] < 0.8 * losses[0]
        assert (np.diff(losses) < 0.05 * losses[0]).all()


class TestModels:
    @given(seeds, st.integers(2, 3))
    @settings(max_examples=60)
    def test_the_trees_have_the_scores_of_the_cells(self, seed: int, n_labels: int) -> None:
        problem = Problem(seed, "l1", n_labels)
        model = make_additive_model(problem.scores, problem.base, problem.table, problem.dataset)
        assert format_model(parse_model(format_model(model).encode(), "x")) == format_model(model)
        for row in range(problem.dataset.n_samples):
            sample = problem.dataset.X[row]
            columns = [
                [x] if math.isnan(x) else [x, *(k for k in problem.table.thresholds[f]), -3.0, 3.0]
                for f, x in enumerate(sample.tolist())
            ]
            for point in itertools.islice(itertools.product(*columns), 40):
                leaves = [leaf_values(model, point, position) for position in range(model.n_trees)]
                found = np.sum(leaves, axis=0)
                score = problem.score(point)
                assert found.tolist() == ([0.0, score[0]] if n_labels == 2 else score.tolist())

    def test_equal_cells_need_no_threshold(self) -> None:
        dataset = Dataset(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0, 1], dtype=np.int32), ("a", "b"))
        boxes = NormBall("l1", 0.1).boxes(dataset)
        table = CellTable.of_thresholds([np.array([0.2, 0.4, 0.6]), np.array([0.5])], boxes)
        scores = np.array([[0.0, 1.0, 1.0, 2.0, 0.0, 3.0, 3.0, 0.0]])
        model = make_additive_model(scores, np.zeros(1), table, dataset)
        assert (model.n_trees, model.n_leaves) == (1, 3)
        assert model.nodes["threshold"][model.nodes["feature"] == 0].tolist() == [0.6, 0.2]
        empty = make_additive_model(0 * scores, np.ones(1), table, dataset)
        assert (empty.n_trees, empty.n_leaves) == (1, 1)

    def test_thresholds_lie_between_values_and_evenly(self) -> None:
        values = np.array([0.0, 0.0, 0.5, 0.5, 10.0, np.nan])
        found = choose_steps(values, 9, is_movable=True)
        assert len(found) <= 9
        assert {0.25, 5.25} <= set(found.tolist())
        assert np.diff(found).max() < 2
        assert choose_steps(values, 9, is_movable=False).tolist() == [0.25, 5.25]
        assert len(choose_steps(np.full(3, 2.0), 9, is_movable=True)) == 0
        huge = choose_steps(np.array([-1.7e308, 0.0, 1.7e308]), 20, is_movable=True)
        assert np.isfinite(huge).all()
        assert len(huge) > 10

    @given(seeds)
    @example(686)  # The same label for all samples is best.
    @settings(max_examples=60)
    def test_the_base_is_settled_where_most_samples_are_robust(self, seed: int) -> None:
        problem = Problem(seed, "l1")
        samples = problem.samples
        measure(samples, problem.scores, problem.base)
        shift = settle_base(samples, (0.3, 0.7))

        def worth(value: float) -> float:
            moved = [np.where(samples.y == 1, 1, -1) * value + each[:, 0] for each in (samples.margins, samples.bounds)]
            return float(0.3 * (moved[0] > 0).sum() + 0.7 * (moved[1] > 0).sum())

        places = np.sort(np.concatenate([samples.margins[:, 0], samples.bounds[:, 0]]))
        tried = np.concatenate([places, -places, [0.0]])
        tried = np.concatenate([tried + 1e-4, tried - 1e-4])
        is_crowded = np.diff(np.sort(np.concatenate([places, -places]))).min() < 1e-3
        assert is_crowded or worth(shift) >= max(map(worth, tried)) - 1e-9


def leaf_values(model: Any, point: Sequence[float], position: int) -> np.ndarray:
    one = model.tree(position)
    node = one.nodes[0]
    while node["feature"] >= 0:
        x = point[node["feature"]]
        goes_left = node["leaf"] == MISSING_LEFT if math.isnan(x) else x <= node["threshold"]
        node = one.nodes[node["left"] if goes_left else node["right"]]
    return np.asarray(one.leaf_values[node["leaf"]])


def rings(n_samples: int = 90, n_labels: int = 2, seed: int = 0) -> Dataset:
    """Labels by a sum of three features, with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((n_samples, 3))
    total = X.sum(axis=1) + 0.1 * rng.normal(size=n_samples)
    y = np.digitize(total, np.quantile(total, np.arange(1, n_labels) / n_labels)).astype(np.int32)
    return Dataset(X, y, tuple("abc"[:n_labels]))


def options(n_rounds: int = 12, **changes: Any) -> BoostingOptions:
    return boosting_options_for("fast", n_rounds, **changes)


def proved(dataset: Dataset, perturbation: Any, chosen: BoostingOptions) -> tuple[Any, np.ndarray, Any]:
    """A trained model, the samples that the trainer calls robust, and the verdicts."""
    trainer = AdditiveBoostingTrainer(dataset, perturbation, chosen)
    model = finish(trainer)
    booster = trainer._booster
    assert booster is not None
    is_robust = ((booster.learned.margins > 0) & (booster.learned.bounds > 1e-6)).all(axis=1)
    return model, is_robust, verify(make_query(model, dataset, perturbation))


class TestTraining:
    @pytest.mark.parametrize("n_labels", [2, 3])
    @pytest.mark.parametrize(("norm", "epsilon"), [("l1", 0.1), ("l2", 0.08), ("l0", 1.0)])
    def test_what_the_trainer_proves_is_true(self, norm: str, epsilon: float, n_labels: int) -> None:
        dataset = rings(n_labels=n_labels)
        model, is_robust, outcome = proved(dataset, NormBall(norm, epsilon), options())
        verified = outcome.is_correct & (outcome.stability == Stability.STABLE)
        assert verified[is_robust].all()
        if norm != "l0":
            assert is_robust.sum() >= 0.9 * verified.sum()
            assert is_robust.mean() > (0.7 if n_labels == 2 else 0.4)
        assert predict(model, dataset.X).are_correct(dataset.y).mean() > 0.7

    @pytest.mark.parametrize("n_labels", [2, 3])
    @pytest.mark.parametrize("seed", range(5))
    def test_margins_in_boxes_are_exact(self, n_labels: int, seed: int) -> None:
        dataset = rings(n_labels=n_labels, seed=seed)
        if seed > 2:
            X = np.where(np.random.default_rng(seed).random(dataset.X.shape) < 0.1, np.nan, dataset.X)
            dataset = dataclasses.replace(dataset, X=X).noting_missing
        model, is_robust, outcome = proved(dataset, Ball(0.06), options(additive=True))
        assert (is_robust == (outcome.is_correct & (outcome.stability == Stability.STABLE))).all()
        assert 0.3 < is_robust.mean() < 1
        assert model.n_trees <= dataset.n_features
        # So do the scores of the written model, without any search.
        proven = bound(model, dataset, Ball(0.06)).stability == Stability.STABLE
        assert (proven == (outcome.stability == Stability.STABLE)).all()

    @pytest.mark.parametrize("n_labels", [2, 3])
    @pytest.mark.parametrize("perturbation", [Ball(0.06), NormBall("l1", 0.1)])
    def test_reports_count_the_leaves_of_missing_values(self, perturbation: Any, n_labels: int) -> None:
        dataset = rings(n_labels=n_labels)
        X = dataset.X.copy()
        X[::7, 0] = np.nan
        dataset = dataclasses.replace(dataset, X=X).noting_missing
        trainer = AdditiveBoostingTrainer(
            dataset, perturbation, options(6, additive=not isinstance(perturbation, NormBall))
        )
        *_, last = trainer.run()
        assert last.leaves == trainer.model.n_leaves

    def test_rows_outside_the_limits_of_boxes(self) -> None:
        dataset = rings()
        perturbation = Ball(0.1, 0.05, 0.95)
        _, is_robust, outcome = proved(dataset, perturbation, options(additive=True))
        assert (outcome.is_correct & (outcome.stability == Stability.STABLE))[is_robust].all()

    def test_attack_files_say_what_may_change(self) -> None:
        dataset = rings()
        X = np.column_stack(
            [np.round(8 * dataset.X[:, 0]), dataset.X[:, 1], dataset.X[:, 2] > 0.5, dataset.X[:, 2] <= 0.5]
        )
        dataset = dataclasses.replace(dataset, X=np.ascontiguousarray(X, dtype=np.float64))
        rules = parse_attack(
            b'[default]\nradius = 0\n[columns]\n"x[0]" = { radius = inf, integer = true, cost = 0.1 }\n'
            b'"x[1]" = { up = 0.4, min = 0, max = 1, cost = 2 }\n[[one-hot]]\ncolumns = ["x[2]", "x[3]"]\ncost = 0.2\n',
            "a.toml",
        )  # fmt: skip
        for norm, epsilon in (("l1", 0.2), ("l2", 0.2)):
            ball = NormBall(norm, epsilon, fit_attack(rules, dataset))
            _, is_robust, outcome = proved(dataset, ball, options())
            verified = outcome.is_correct & (outcome.stability == Stability.STABLE)
            assert verified[is_robust].all()
            assert is_robust.sum() >= 0.7 * verified.sum() > 0

    def test_missing_values_stay_missing(self) -> None:
        dataset = rings()
        X = dataset.X.copy()
        X[::5, 1] = np.nan
        _, is_robust, outcome = proved(dataclasses.replace(dataset, X=X), NormBall("l1", 0.1), options())
        verified = outcome.is_correct & (outcome.stability == Stability.STABLE)
        assert verified[is_robust].all()
        assert is_robust.mean() > 0.5

    def test_models_for_the_norm_beat_those_for_boxes(self) -> None:
        dataset, test = rings(300), rings(150, seed=1)
        found = {}
        for name, trained in (("norm", NormBall("l2", 0.15)), ("box", 0.15), ("small box", 0.08)):
            model = train(dataset, trained, boost=30, preset="fast", weights={"accuracy": 0.3, "robust_accuracy": 0.7})
            found[name] = evaluate(model, test, [NormBall("l2", 0.15)], jobs=1)[0].robust_accuracy or 0.0
        assert found["norm"] > max(found["box"], found["small box"]) + 0.05

    def test_without_a_limit_in_effect_nothing_is_lost(self) -> None:
        """With epsilon 0 every correct sample is robust."""
        model, is_robust, outcome = proved(rings(), NormBall("l1", 0.0), options())
        assert (is_robust == outcome.is_correct).all()
        assert model.n_trees == 3

    @pytest.mark.parametrize("norm", ["l1", "l2"])
    @pytest.mark.parametrize("size", [2.0**900, 2.0**-900])
    def test_units_make_no_difference(self, norm: str, size: float) -> None:
        # Squares of such sizes are infinite or 0.
        dataset = rings()
        scaled = dataclasses.replace(dataset, X=size * dataset.X)
        usual, is_robust, _ = proved(dataset, NormBall(norm, 0.125), options(6))
        found, is_still_robust, outcome = proved(scaled, NormBall(norm, 0.125 * size), options(6))
        assert np.array_equal(size * usual.nodes["threshold"], found.nodes["threshold"])
        assert np.array_equal(is_robust, is_still_robust)
        assert 0.3 < is_robust.mean() < 1
        assert (outcome.stability[is_robust] == Stability.STABLE).all()

    def test_the_number_of_changed_features_is_whole(self) -> None:
        dataset, ball = rings(), NormBall("l0", 1.0)
        first, second = (
            finish(AdditiveBoostingTrainer(dataset, ball, options(4, training_epsilon_factor=factor)))
            for factor in (1.0, 1.5)
        )
        assert format_model(first) == format_model(second)

    def test_depth_and_thresholds_limit_the_trees(self) -> None:
        shallow = finish(AdditiveBoostingTrainer(rings(), NormBall("l1", 0.1), options(max_depth=2)))
        assert shallow.max_depth == 2
        few = finish(AdditiveBoostingTrainer(rings(), NormBall("l1", 0.1), options(thresholds=5)))
        assert max(few.tree(position).n_leaves for position in range(few.n_trees)) <= 6
        leaf = finish(AdditiveBoostingTrainer(rings(), NormBall("l1", 0.1), options(max_depth=0)))
        assert (leaf.n_trees, leaf.n_leaves) == (1, 1)

    @pytest.mark.parametrize(
        "changes",
        [{"learning_rate": 0.3}, {"score_penalty": 50.0}, {"row_sample": 0.5}, {"feature_sample": 0.4}, {"seed": 5},
         {"tolerance": 1.0}, {"training_epsilon_factor": 1.5}, {"robust_weight": 1.0}],
        ids=lambda changes: next(iter(changes)),
    )  # fmt: skip
    def test_options_have_an_effect(self, changes: dict[str, Any]) -> None:
        one, other = (
            finish(AdditiveBoostingTrainer(rings(), NormBall("l1", 0.2), options(**each))) for each in ({}, changes)
        )
        assert format_model(one) != format_model(other)

    @pytest.mark.parametrize("n_labels", [2, 3])
    def test_threads_make_no_difference(self, n_labels: int) -> None:
        dataset = rings(n_labels=n_labels)
        models = [
            format_model(finish(AdditiveBoostingTrainer(dataset, NormBall("l2", 0.1), options(6), jobs)))
            for jobs in (1, 2, 3)
        ]
        assert len(set(models)) == 1

    def test_metrics_are_lower_bounds(self) -> None:
        dataset, ball = rings(), NormBall("l1", 0.15)
        model = finish(AdditiveBoostingTrainer(dataset, ball, options()))
        bound, exact = judge(model, dataset, ball, 1), evaluate(model, dataset, [ball], jobs=1)[0]
        assert bound.accuracy == exact.accuracy
        assert (bound.robust_accuracy or 0) <= (exact.robust_accuracy or 0)
        assert (bound.robust_accuracy or 0) > 0.8 * (exact.robust_accuracy or 0)


class TestRuns:
    def test_held_out_rows_choose_the_round(self) -> None:
        trainer = AdditiveBoostingTrainer(rings(), NormBall("l1", 0.2), options(40, validation=0.4, patience=3))
        finish(trainer)
        assert trainer.held_out_fitness == max(trainer._held_fitness)
        assert trainer.stop_reason in (StopReason.PATIENCE, StopReason.ITERATIONS)

    def test_a_target_ends_the_run(self) -> None:
        trainer = AdditiveBoostingTrainer(rings(), NormBall("l1", 0.0), options(40, target=0.8))
        assert len(list(trainer.run())) < 40
        assert trainer.stop_reason is StopReason.TARGET

    def test_stops(self) -> None:
        trainer = AdditiveBoostingTrainer(rings(), NormBall("l1", 0.1), options(40))
        for _ in trainer.run():
            trainer.stop()
        assert trainer.stop_reason is StopReason.INTERRUPTED
        before = AdditiveBoostingTrainer(rings(), NormBall("l1", 0.1), options(40))
        before.stop()
        assert finish(before).n_leaves == 1

    def test_a_stop_in_the_last_part_of_a_round_keeps_the_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make = functools.partial(AdditiveBoostingTrainer, rings(), NormBall("l1", 0.1), options(6))
        whole, trainer = make(), make()
        records = list(whole.run())
        n_moves, descend = 0, AdditiveModel.descend

        def stop_in_the_third_round(*arguments: Any) -> None:
            nonlocal n_moves
            n_moves += 1
            if n_moves == 3 * PARTS:
                trainer.stop()
            descend(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(AdditiveModel, "descend", stop_in_the_third_round)
            assert len(list(trainer.run())) == 3
        assert trainer.stop_reason is StopReason.INTERRUPTED
        again = make()
        again.resume(trainer.state)
        assert len(list(again.run())) == len(records) - 3
        assert format_model(again.model) == format_model(whole.model)

    @pytest.mark.parametrize(
        "damage",
        [{"prices": np.zeros(3)}, {"scores": np.zeros(2)}, {"fitness": np.zeros(1)}, {"rounds": 7}, {"mean": "x"}],
        ids=lambda damage: next(iter(damage)),
    )
    def test_damaged_states_are_refused(self, damage: dict[str, Any]) -> None:
        trainer = AdditiveBoostingTrainer(rings(), NormBall("l1", 0.1), options(5))
        running = trainer.run()
        next(running)
        state = trainer.state
        running.close()
        again = AdditiveBoostingTrainer(rings(), NormBall("l1", 0.1), options(5))
        again.resume({**state, "booster": {**state["booster"], **damage}})
        with pytest.raises(CheckpointError, match="damaged"):
            finish(again)

    def test_what_cannot_be_is_refused(self) -> None:
        dataset, ball = rings(), NormBall("l1", 0.1)
        with pytest.raises(RequestError, match="leave 'min-samples-leaf' out"):
            AdditiveBoostingTrainer(dataset, ball, options(min_samples_leaf=4))
        for changes, message in (
            ({"min_samples_leaf": 4}, "additive models have leaves without rows; leave 'min-samples-leaf' out"),
            ({"refits": 1}, "additive models are fitted together in every round; leave 'refits' out"),
            ({"first_tree": "searched"}, "additive models test one feature each; leave 'first-tree' out"),
            ({"image_shifts": "1x3"}, "additive models learn from no shifted images; leave 'image-shifts' out"),
        ):
            with pytest.raises(RequestError, match=message):
                AdditiveBoostingTrainer(dataset, Ball(0.1), options(additive=True, **changes))
        droppable = fit_attack(parse_attack(b'[default]\nradius = 0.1\nmissing = "may appear"\n', "a"), dataset)
        with pytest.raises(PerturbationError, match='additive models do not know missing = "may appear"'):
            AdditiveBoostingTrainer(dataset, droppable, options(additive=True))
        with pytest.raises(RequestError, match="leave 'boost' out"):
            AdditiveBoostingTrainer(dataset, ball, options()).observe(None)  # type: ignore[arg-type]
        with pytest.raises(PerturbationError, match=r"row 0, x\[0\] = .* does not lie in \[0.136962, 0.5\]"):
            AdditiveBoostingTrainer(dataset, NormBall("l1", 0.1, Ball(0.5, 0.0, 0.5)), options())
        with pytest.raises(RequestError, match="a boosted model cannot be trained for the norm l1, only for linf;"):
            BoostingTrainer(dataset, ball, options())
        with pytest.raises(RequestError, match="one norm at a time"):
            NormBall("l1", 0.1, NormBall("l2", 0.1))
        assert as_perturbation(ball).describe() == "l1 0.1"
