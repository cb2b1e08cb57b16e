"""Boosting on images and their shifts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metasilvae.dataset import Dataset, RowWeights
from metasilvae.datasets.images import ImageSize
from metasilvae.errors import DataError, RequestError
from metasilvae.perturbations.boxes import Ball, Boxes
from metasilvae.perturbations.domains import FeatureDomains
from metasilvae.training.boosting import Booster, BoostingTrainer, CodedRows, Rows
from metasilvae.training.options import BoostingOptions, boosting_options_for
from metasilvae.training.protocol import finish
from metasilvae.training.shifted_rows import refuse_unshiftable, shift_rows

SIZE = ImageSize(3, 4)
BALL = Ball(0.05, 0.0, 1.0)


def images(n: int, seed: int = 0, n_labels: int = 3) -> Dataset:
    """Rows whose label is the column of the picture that is bright."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_labels, n).astype(np.int32)
    pictures = 0.4 * rng.random((n, 3, 4))
    pictures[np.arange(n), :, y] += 0.5
    return Dataset(pictures.reshape(n, 12), y, tuple("abcd"[:n_labels]))


def copies_of(dataset: Dataset) -> Dataset:
    """The same with all copies, made in the plain way."""
    X = np.concatenate([dataset.X, *SIZE.shifts(dataset.X)])
    weights = dataset.weights
    if weights is not None:
        weights = replace(weights, numbers=np.tile(weights.numbers, 5))
    return replace(dataset, X=X, y=np.tile(dataset.y, 5), weights=weights)


def options(**changes: Any) -> BoostingOptions:
    return boosting_options_for("fast", 6, **{"image_shifts": "3x4", "max_depth": 3, **changes})


@pytest.mark.parametrize("factor", [1.0, 1.3])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_copies_are_learned_from_as_if_they_were_rows(factor: float, n_labels: int) -> None:
    dataset, held = images(80, n_labels=n_labels), images(30, 1, n_labels)
    numbers = np.random.default_rng(2).integers(1, 5, 80).astype(np.int32)
    dataset = replace(dataset, weights=RowWeights(numbers, 1.0, "given"))
    chosen = options(training_epsilon_factor=factor)
    tested = Rows(held, BALL.boxes(held))
    coded = CodedRows.of(Rows(dataset, BALL.boxes(dataset)), tested, chosen, 1)
    every = copies_of(dataset)
    enlarged = Rows(every, BALL.boxes(every)).enlarged(factor)
    expected = coded.tests.code(enlarged.dataset, enlarged.boxes)
    for found, wanted in zip(coded.learned.arrays, expected.arrays, strict=True):
        assert (found == wanted).all()
    assert coded.tested is not None
    assert coded.tested.n_samples == held.n_samples
    # The model is the one of a table that holds the copies.
    plain = CodedRows(factor, coded.tests, expected, coded.tested)
    boosters = [
        Booster(rows, held, codes, each)
        for rows, codes, each in ((dataset, coded, chosen), (every, plain, replace(chosen, image_shifts=None)))
    ]
    for booster in boosters:
        booster.base = boosters[0].base
        for scores in booster._all_scores:
            for part in scores.sums:
                part[:] = booster.base[:, None]
        for _ in range(3):
            booster.add_round(booster.grow_round())
    for one, other in zip(*(booster.rounds for booster in boosters), strict=True):
        for tree, same in zip(one, other, strict=True):
            assert (tree.feature == same.feature).all()
            assert (tree.value == same.value).all()
    assert boosters[0].learned.fractions == boosters[1].learned.fractions


def test_no_copy_of_a_row_that_is_learned_from_is_held_out() -> None:
    dataset = images(100)
    trainer = BoostingTrainer(dataset, BALL, options(validation=0.3))
    finish(trainer)
    coded = trainer._coded
    assert coded is not None
    assert coded.tested is not None
    n_learned = len(trainer._rows)
    assert coded.tested.n_samples == 100 - n_learned
    assert coded.learned.n_samples == 5 * n_learned
    learned = copies_of(dataset.subset(trainer._rows))
    assert (coded.learned.own == coded.tests.code(learned, BALL.boxes(learned)).own).all()


def test_tuning_tests_on_images_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    make = CodedRows.of.__func__  # type: ignore[attr-defined]

    def watch(cls: Any, learned: Rows, tested: Rows | None, *others: Any) -> CodedRows:
        coded: CodedRows = make(cls, learned, tested, *others)
        if tested is not None:
            assert coded.tested is not None
            sizes.append((coded.learned.n_samples / learned.dataset.n_samples, coded.tested.n_samples))
            assert coded.tested.n_samples == tested.dataset.n_samples
        return coded

    monkeypatch.setattr(CodedRows, "of", classmethod(watch))
    trainer = BoostingTrainer(images(60), BALL, boosting_options_for("default", 2, image_shifts="3x4"))
    finish(trainer)
    assert trainer.candidate is not None
    assert {factor for factor, _ in sizes} == {5.0}


def test_shifted_images_are_recognized_better() -> None:
    train, test = images(60, n_labels=3), images(400, 5, 3)
    right = np.concatenate(list(SIZE.shifts(test.X))[:2])
    moved = Dataset(right, np.tile(test.y, 2), test.labels)
    accuracies = []
    for shifts in (None, "3x4"):
        trainer = BoostingTrainer(train, BALL, options(image_shifts=shifts))
        finish(trainer)
        coded, booster = trainer._coded, trainer._booster
        assert coded is not None
        assert booster is not None
        own = Booster(
            train,
            moved,
            replace(coded, tested=coded.tests.code(moved, BALL.boxes(moved))),
            options(image_shifts=shifts),
        )
        for trees in booster.rounds:
            own.add_round(trees)
        assert own.tested is not None
        accuracies.append(own.tested.fractions[0])
    assert accuracies[1] > accuracies[0] + 0.05


@pytest.mark.parametrize(
    "change",
    [
        lambda boxes: replace(boxes, high_center=boxes.high_center + 1),
        lambda boxes: replace(boxes, domains=FeatureDomains(listed={2: (0.0, 1.0)})),
        lambda boxes: replace(boxes, domains=FeatureDomains(whole=frozenset({3}))),
        lambda boxes: replace(boxes, droppable=np.ones(boxes.low_center.shape, dtype=np.uint8)),
    ],
)
def test_boxes_that_a_shifted_image_does_not_have(change: Any) -> None:
    dataset = images(5)
    boxes: Boxes = Ball(0.1).boxes(dataset)
    refuse_unshiftable(dataset, boxes, SIZE)
    refuse_unshiftable(dataset, replace(boxes, domains=FeatureDomains(whole=frozenset(range(12)))), SIZE)
    with pytest.raises(RequestError, match="leave out 'image-shifts'"):
        refuse_unshiftable(dataset, change(boxes), SIZE)


def test_a_shifted_image_outside_of_the_range_of_a_column() -> None:
    dataset = images(5)
    maximum = np.ones(12)
    maximum[0] = 0.0
    X = dataset.X.copy()
    X[:, 0] = 0.0
    dataset = replace(dataset, X=X)
    boxes = replace(Ball(0.0).boxes(dataset), maximum=maximum)
    with pytest.raises(DataError, match=r"row 0, shifted by a pixel, has .* in x\[0\], where the perturbation allows"):
        list(shift_rows(dataset, boxes, SIZE))


def test_a_wrong_size_is_refused_before_training() -> None:
    with pytest.raises(DataError, match="has 12 features, and an image of 4x4 has 16"):
        BoostingTrainer(images(20), BALL, options(image_shifts="4x4"))
    with pytest.raises(RequestError, match="'4 by 4' is no size of images"):
        options(image_shifts="4 by 4")
