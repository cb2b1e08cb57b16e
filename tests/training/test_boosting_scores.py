"""Samples that boosted trees are grown on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.boosted_trees import Derivatives
from metasilvae.training.boosting import BoostingTrainer
from metasilvae.training.boosting_scores import draw_samples, find_chances
from metasilvae.training.options import boosting_options_for

sizes = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, 50.0, 2.0**24]), min_size=1, max_size=60).map(np.array)


@given(sizes, st.floats(0.01, 1))
def test_chances_add_up(sizes: np.ndarray, fraction: float) -> None:
    wanted = max(1.0, fraction * len(sizes))
    chances = find_chances(sizes, wanted)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert (chances[sizes == 0] == 0).all()
    assert chances.sum() == pytest.approx(min(wanted, np.count_nonzero(sizes)))
    # Proportional to the sizes, unless they are certain.
    uncertain = (chances < 1) & (sizes > 0)
    if uncertain.any():
        rates = chances[uncertain] / sizes[uncertain]
        assert rates == pytest.approx(np.full(len(rates), rates[0]))
        assert (sizes[chances == 1] * rates[0] >= 1 - 1e-9).all()


def test_sums_are_kept_on_average() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.random(400) ** 6 * 2**24).astype(np.int32) for _ in range(4)]
    parts[0] *= -1
    loss = Derivatives(*parts)
    n_drawn, sums = [], []
    for _ in range(300):
        rows, drawn, divisor = draw_samples(loss, 0.2, rng)
        assert divisor == 1
        assert (np.diff(rows) > 0).all()
        n_drawn.append(len(rows))
        sums.append([int(part[rows].sum()) for part in vars(drawn).values()])
    assert np.mean(n_drawn) == pytest.approx(80, abs=2)
    expected = np.array([part.sum() for part in parts])
    errors = np.std(sums, axis=0) / np.sqrt(len(sums))
    assert (np.abs(np.mean(sums, axis=0) - expected) < 4 * errors).all()
    # Sampling by size is more exact than a uniform sample would be.
    uniform = [sum(part[rng.random(400) < 0.2].sum() / 0.2 for part in parts[1:]) for _ in range(300)]
    assert np.std(np.sum(sums, axis=1) - np.sum(sums, axis=1).mean()) < np.std(uniform)


def test_large_samples_are_certain_and_enlarged_derivatives_fit() -> None:
    largest = 2**24
    sizes = np.array([largest, largest, *[1] * 98], dtype=np.int32)
    loss = Derivatives(sizes, sizes, np.zeros(100, dtype=np.int32), np.zeros(100, dtype=np.int32))
    rows, drawn, divisor = draw_samples(loss, 0.1, np.random.default_rng(0))
    assert {0, 1} <= set(rows.tolist())
    assert len(rows) < 30
    assert divisor == 1
    assert drawn.own_gradient[0] == largest
    assert (drawn.own_gradient[rows[2:]] == round(196 / 8 / 2)).all()


@pytest.mark.parametrize("fraction", [0.01, 0.001, 1e-5])
def test_derivatives_of_samples_that_stand_for_very_many_others(fraction: float) -> None:
    n_samples = 400_000
    sign = np.where(np.random.default_rng(0).random(n_samples) < 0.5, -1, 1)
    loss = Derivatives(*((part * 2**24 * sign**is_first).astype(np.int32) for part, is_first in (
        (0.375, 1), (0.1875, 0), (0.125, 1), (0.0625, 0)
    )))  # fmt: skip
    rows, drawn, divisor = draw_samples(loss, fraction, np.random.default_rng(1))
    assert len(rows) == pytest.approx(fraction * n_samples, rel=0.2, abs=5)
    # All samples are as likely as each other.
    for part, enlarged in zip(vars(loss).values(), vars(drawn).values(), strict=True):
        assert enlarged.dtype == np.int32
        assert enlarged[rows] * divisor == pytest.approx(part[rows] / fraction, rel=1e-6)
    assert (divisor > 1) == (0.375 * 2**24 / fraction >= 2**31)


def test_a_tree_of_few_samples_of_very_many() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((60_000, 2))
    dataset = Dataset(X, (X[:, 0] > 0.5).astype(np.int32), ("a", "b"))
    options = boosting_options_for("fast", 3, row_sample=0.001, min_samples_leaf=1, refits=0)
    records = list(BoostingTrainer(dataset, Ball(0.01), options).run())
    assert records[-1].accuracy > 0.98


def test_a_loss_without_slope_has_no_samples() -> None:
    none = np.zeros(5, dtype=np.int32)
    rows, *_ = draw_samples(Derivatives(none, none, none, none), 0.5, np.random.default_rng(0))
    assert len(rows) == 0
