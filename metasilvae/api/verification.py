"""Predictions of rows, and what can be proved about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae.api.data import as_perturbation, encode_frame, expect, finite_table, name_columns
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.frames import encode_rows, is_frame
from metasilvae.model import Model, PredictionTable
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.prediction import align, check_missing
from metasilvae.prediction import predict as _predict
from metasilvae.prediction import predict_proba as _predict_proba
from metasilvae.verification.budget import Budget
from metasilvae.verification.ceiling import Ceiling
from metasilvae.verification.ceiling import find_ceiling as _find_ceiling
from metasilvae.verification.metrics import Evaluation
from metasilvae.verification.metrics import evaluate as _evaluate
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import Radii
from metasilvae.verification.radius import find_radii as _find_radii
from metasilvae.verification.targets import TargetResults, find_changes, find_label
from metasilvae.verification.targets import find_targets as _find_targets
from metasilvae.verification.verdicts import Outcome
from metasilvae.verification.verifier import Witness
from metasilvae.verification.verifier import find_witnesses as _find_witnesses
from metasilvae.verification.verifier import verify as _verify


def predict(model: Model, X: ArrayLike, voting: str | None = None, *, jobs: int | None = None) -> PredictionTable:
    """Prediction of the model for each sample: a set of labels, because votes and counts can tie.

    Parameters
    ----------
    X : array of numbers, shape (n_samples, n_features)
        Finite; NaN where a value is missing, for models with directions. The columns of a DataFrame are matched to the
        features of the model by name, if both have names. A model that was imported with categories takes the columns
        that its library takes.
    voting : str or None
        ``max``, ``average`` or ``softargmax``; None means that of the model, or chooses by the kind of leaves.
    """
    return _predict(model, _rows_for(model, X), voting, jobs)


def predict_proba(
    model: Model, X: ArrayLike, voting: str | None = None, *, jobs: int | None = None
) -> NDArray[np.float64]:
    """Probability of each label of the model for each sample, shape (n_samples, n_labels); rows sum to one.

    For a tree these are the class fractions in its leaf; for a forest the fractions of its votes (``max``) or the mean
    of the class fractions (``average``); for a boosted model the soft maximum of its scores. Parameters are those of
    `predict`.
    """
    return _predict_proba(model, _rows_for(model, X), voting, jobs)


def _rows_for(model: Model, X: ArrayLike) -> NDArray[np.float64]:
    """The features of a model, of an array or a DataFrame."""
    expect(model=model)
    if model.encoding is not None:
        if model.encoding.has_sets:
            return encode_rows(X, "X", model.encoding, model.source).X
        if not is_frame(X):
            raise DataError(f"X is no DataFrame; {model.source} needs the columns of a table by name")
        return encode_frame(X, "X", encoding=model.encoding).X
    values, names = finite_table(X, "X"), name_columns(X)
    dataset = Dataset(values, np.zeros(len(values), dtype=np.int32), (), names, "X")
    if names is not None and model.description.feature_names is not None:
        return align(model, dataset).X
    if values.shape[1] != model.n_features:
        raise DataError(f"X has {values.shape[1]} features, {model.source} has {model.n_features}")
    check_missing(model, dataset)
    return values


def evaluate(
    model: Model,
    dataset: Dataset,
    epsilons: Sequence[float | Perturbation | AttackRules] = (),
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> list[Evaluation]:
    """Evaluate under each perturbation, or accuracy alone where none is given.

    Parameters
    ----------
    budget : Budget or None
        What may be spent on one sample by a forest; None decides every one, however long it takes.
    """
    expect(model=model, dataset=dataset, budget=budget)
    perturbations = [as_perturbation(epsilon, dataset) for epsilon in epsilons]
    return _evaluate(model, dataset, perturbations, voting=voting, jobs=jobs, budget=budget)


def find_ceiling(dataset: Dataset, epsilon: float | Perturbation) -> Ceiling:
    """The accuracy and robust accuracy that no model can exceed on labelled samples.

    Two samples with different labels and a common perturbation cannot both be robust.
    """
    expect(dataset=dataset)
    if not dataset.has_labels:
        raise DataError(f"{dataset.source}: has no labels; a ceiling is about the predictions of labels")
    return _find_ceiling(dataset, as_perturbation(epsilon))


def verify(
    model: Model,
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Outcome:
    """Decide for each sample whether a perturbation can change the prediction.

    Parameters
    ----------
    budget : Budget or None
        What may be spent on one sample by a forest; None decides every one, however long it takes.
    """
    expect(model=model, dataset=dataset, budget=budget)
    return _verify(make_query(model, dataset, as_perturbation(epsilon, dataset), voting=voting), jobs, budget=budget)


def find_witnesses(
    model: Model,
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Iterator[Witness]:
    """For each unstable sample a perturbed one that has another prediction."""
    expect(model=model, dataset=dataset, budget=budget)
    query = make_query(model, dataset, as_perturbation(epsilon, dataset), voting=voting)
    return _find_witnesses(query, _verify(query, jobs, budget=budget), jobs)


def find_radii(
    model: Model,
    dataset: Dataset,
    perturbation: float | Perturbation | AttackRules | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Radii:
    """For each sample the largest radius at which the prediction cannot change, in multiples of the perturbation."""
    expect(model=model, dataset=dataset, budget=budget)
    unit = as_perturbation(1.0 if perturbation is None else perturbation, dataset)
    return _find_radii(make_query(model, dataset, unit, voting=voting), jobs, budget=budget)


def find_targets(
    model: Model,
    dataset: Dataset,
    target: str,
    perturbation: float | Perturbation | AttackRules | None = None,
    *,
    nearest: bool = False,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> TargetResults:
    """Decide for each sample whether an allowed change gives it a label.

    Parameters
    ----------
    target : str
        The label; a sample gets it if it is the only label of its prediction.
    perturbation : float, Perturbation, AttackRules or None
        Allowed changes; ``NormBall("l1", 0.3)`` limits their sum. None means balls in the maximum norm, for `nearest`.
    nearest : bool
        Whether to find the nearest such change at any distance.
    """
    return _search_targets(model, dataset, target, perturbation, nearest, voting, jobs, budget)[1]


def find_counterfactuals(
    model: Model,
    dataset: Dataset,
    target: str,
    perturbation: float | Perturbation | AttackRules | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Iterator[Witness]:
    """For each sample that can get a label, the nearest change that gives it; `find_targets` describes the rest."""
    query, results = _search_targets(model, dataset, target, perturbation, True, voting, jobs, budget)
    return find_changes(query, results)


def _search_targets(
    model: Model,
    dataset: Dataset,
    target: str,
    perturbation: float | Perturbation | AttackRules | None,
    nearest: bool,
    voting: str | None,
    jobs: int | None,
    budget: Budget | None,
) -> tuple[VerificationQuery, TargetResults]:
    expect(model=model, dataset=dataset, budget=budget)
    if perturbation is None and not nearest:
        raise RequestError("find_targets needs a perturbation, the allowed changes, or nearest=True")
    allowed = as_perturbation(1.0 if perturbation is None else perturbation, dataset)
    query = make_query(model, dataset, allowed, voting=voting)
    return query, _find_targets(query, find_label(model, target), jobs, is_nearest=nearest, budget=budget)
