"""Samples that boosted trees are grown on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metasilvae.training.boosted_trees import Derivatives
from metasilvae.training.boosting_scores import draw_samples, find_chances

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
        rows, drawn = draw_samples(loss, 0.2, rng)
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
    rows, drawn = draw_samples(loss, 0.1, np.random.default_rng(0))
    assert {0, 1} <= set(rows.tolist())
    assert len(rows) < 30
    assert drawn.own_gradient[0] == largest
    assert (drawn.own_gradient[rows[2:]] == round(196 / 8 / 2)).all()


def test_a_loss_without_slope_has_no_samples() -> None:
    none = np.zeros(5, dtype=np.int32)
    rows, _ = draw_samples(Derivatives(none, none, none, none), 0.5, np.random.default_rng(0))
    assert len(rows) == 0
