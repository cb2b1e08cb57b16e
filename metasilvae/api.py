"""The library in a few functions; docs/api.md shows them at work.

They put together what the modules below offer; whoever needs more control (progress, limits, executors) uses those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.fitness import fitness_from_weights
from metasilvae.forest_options import ForestOptions, forest_options_for
from metasilvae.forest_verification import Limits
from metasilvae.imports.naming import name_classes
from metasilvae.model import Model
from metasilvae.outcome import Outcome
from metasilvae.perturbation import Ball, Perturbation
from metasilvae.radius import Radii
from metasilvae.radius import find_radii as _find_radii
from metasilvae.trainers import make_trainer
from metasilvae.training_options import PRESETS, TrainingOptions, options_for
from metasilvae.verification import Witness, ask
from metasilvae.verification import find_witnesses as _find_witnesses
from metasilvae.verification import verify as _verify


def make_dataset(
    X: ArrayLike, y: ArrayLike, feature_names: Sequence[str] | None = None, source: str = "<memory>"
) -> Dataset:
    """A data set from arrays.

    Parameters
    ----------
    X : array of numbers, shape (n_samples, n_features)
        Finite.
    y : array, shape (n_samples,)
        Labels of any kind; they are known by their text, whole numbers without a point.
    feature_names : sequence of str or None
    source : str
        Name for messages and reports.
    """
    values, labels = np.ascontiguousarray(X, dtype=np.float64), np.asarray(y)
    if values.ndim != 2 or labels.shape != values.shape[:1] or not values.size:
        raise DataError(
            f"{source}: X has the shape {values.shape} and y {labels.shape}; expected (n_samples, n_features) and "
            "(n_samples,), with at least one sample and one feature"
        )
    if not np.isfinite(values).all():
        raise DataError(f"{source}: X holds values that are infinite or no numbers")
    texts = name_classes(labels)
    names = tuple(dict.fromkeys(texts))
    code = {name: number for number, name in enumerate(names)}
    codes = np.array([code[text] for text in texts], dtype=np.int32)
    return Dataset(values, codes, names, None if feature_names is None else tuple(feature_names), source)


def as_perturbation(epsilon: float | Perturbation) -> Perturbation:
    """A number is the radius of a ball in the maximum norm."""
    if isinstance(epsilon, Real):
        return Ball(float(epsilon))
    if not hasattr(epsilon, "boxes"):
        raise RequestError(f"epsilon is {epsilon!r}; expected a number or a perturbation such as Ball(0.1)")
    return cast(Perturbation, epsilon)


def choose_options(
    preset: str = "default",
    *,
    trees: int | None = None,
    weights: dict[str, float] | None = None,
    **changes: Any,
) -> TrainingOptions | ForestOptions:
    """Options of a tree, or of a forest of `trees` trees, by the name of a preset.

    Parameters
    ----------
    weights : dict or None
        What is trained for, such as ``{"accuracy": 0.9, "stability": 0.1}``.
    **changes
        Fields of `TrainingOptions`; for a forest also `method` and `row_sample`. None leaves the preset's value.
    """
    if preset not in PRESETS:
        raise RequestError(f"preset {preset!r}: choose among {', '.join(PRESETS)}")
    if weights is not None:
        changes["fitness"] = fitness_from_weights(weights)
    try:
        return options_for(preset, **changes) if trees is None else forest_options_for(preset, trees, **changes)
    except TypeError as error:
        raise RequestError(str(error)) from None


def train(
    dataset: Dataset,
    epsilon: float | Perturbation,
    options: TrainingOptions | ForestOptions | None = None,
    *,
    jobs: int | None = None,
    **choices: Any,
) -> Model:
    """Train a tree or a forest to the end.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    epsilon : float or Perturbation
        What the model is to withstand.
    options : TrainingOptions, ForestOptions or None
        None makes them by `choose_options` from the keywords that are left.
    jobs : int or None
        Threads; None means all available cores. The model does not depend on it.
    """
    if options is not None and choices:
        raise RequestError(f"options are given, and so are {', '.join(choices)}; give one of them")
    chosen = choose_options(**choices) if options is None else options
    trainer = make_trainer(dataset, as_perturbation(epsilon), chosen, jobs)
    for _ in trainer.run():
        pass
    return trainer.model


def verify(
    model: Model,
    dataset: Dataset,
    epsilon: float | Perturbation,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
) -> Outcome:
    """Decide for each sample whether a perturbation can change the answer.

    Parameters
    ----------
    limits : Limits or None
        What may be spent on one sample by a forest; None decides every one, however long it takes.
    """
    return _verify(ask(model, dataset, as_perturbation(epsilon), voting=voting), jobs, limits=limits)


def find_witnesses(
    model: Model,
    dataset: Dataset,
    epsilon: float | Perturbation,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
) -> Iterator[Witness]:
    """For each unstable sample a perturbed one that gets another answer."""
    question = ask(model, dataset, as_perturbation(epsilon), voting=voting)
    return _find_witnesses(question, _verify(question, jobs, limits=limits), jobs)


def find_radii(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
) -> Radii:
    """For each sample the largest radius at which the answer cannot change, in multiples of the perturbation."""
    unit = Ball(1.0) if perturbation is None else perturbation
    return _find_radii(ask(model, dataset, unit, voting=voting), jobs, limits=limits)
