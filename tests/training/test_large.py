"""Training with very many samples: the search on a part, and what all samples add."""

from __future__ import annotations

import numpy as np
import pytest

from metasilvae.dataset import Dataset
from metasilvae.formats.silva_models import format_model
from metasilvae.perturbations.boxes import Ball
from metasilvae.training import large
from metasilvae.training.large import LargeTreeTrainer, make_single_tree_trainer
from metasilvae.training.options import options_for
from metasilvae.training.protocol import finish
from metasilvae.verification.metrics import evaluate


def noisy(n: int, noise: float, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 6))
    y = (X[:, 0] > 0.5) ^ (X[:, 1] > 0.4) ^ (rng.random(n) < noise)
    return Dataset(X, y.astype(np.int32), ("no", "yes"))


def test_held_out_samples_keep_noise_from_becoming_leaves() -> None:
    dataset, fresh = noisy(6000, 0.3), noisy(4000, 0.3, seed=1)
    options = options_for("fast", pretune=False)
    trainer = LargeTreeTrainer(dataset, Ball(0.01), options, sample_size=2000)
    records = list(trainer.run())
    assert [records[0].phase, records[-1].phase] == ["sample", "local search"]
    assert len(records) <= trainer.n_steps
    plain = finish(make_single_tree_trainer(dataset, Ball(0.01), options))
    found = trainer.model
    # The leaves count all samples, not only those of the part.
    assert found.leaf_values.sum() == dataset.n_samples
    assert found.n_leaves <= 12 < plain.n_leaves
    phi = [evaluate(model, fresh, [Ball(0.01)])[0].phi(options.fitness) for model in (found, plain)]
    assert phi[0] > phi[1]
    assert phi[0] > 0.68


def test_the_same_tree_for_any_number_of_jobs() -> None:
    def train(jobs: int) -> str:
        return format_model(finish(LargeTreeTrainer(noisy(900, 0.1), Ball(0.01), options_for("fast"), jobs, 300)))

    assert train(1) == train(3)


def test_only_very_many_samples_are_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = noisy(300, 0.1)
    make = make_single_tree_trainer
    assert not isinstance(make(dataset, Ball(0.01), options_for("fast")), LargeTreeTrainer)
    monkeypatch.setattr(large, "VERY_MANY_SAMPLES", 200)
    monkeypatch.setattr(LargeTreeTrainer.__init__, "__defaults__", (1, 100))
    assert isinstance(make(dataset, Ball(0.01), options_for("fast")), LargeTreeTrainer)
    # Not where rows are held out so that few are left, nor for other algorithms.
    for options in (options_for("fast", validation=0.5), options_for("cart"), options_for("paper")):
        assert not isinstance(make(dataset, Ball(0.01), options), LargeTreeTrainer)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_may_alternate_from_row_to_row(n_classes: int) -> None:
    """A part of the samples at equal distances would be of one class."""
    n_samples = n_classes * 8192
    y = np.arange(n_samples) % n_classes
    X = np.random.default_rng(0).random((n_samples, 12))
    X[:, 5] = y + 0.8 * X[:, 5]
    dataset = Dataset(X, y.astype(np.int32), ("a", "b", "c")[:n_classes])
    found = evaluate(finish(make_single_tree_trainer(dataset, Ball(0.01), options_for("fast"))), dataset, [])
    assert found[0].accuracy == 1
