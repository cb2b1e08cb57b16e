"""Prediction, and the checks that a data set fits a model."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.model import predict as kernel
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError, list_some, shorten
from metasilvae.execution.threads import over_rows
from metasilvae.model import Model, PredictionTable
from metasilvae.voting import VOTINGS, choose_voting, count_votes


def find_leaves(model: Model, X: NDArray[np.float64], jobs: int | None = 1) -> NDArray[np.int32]:
    """Leaf of each tree that each sample falls into, shape (n_samples, n_trees)."""
    leaves = np.empty((len(X), model.n_trees), dtype=np.int32)

    def fill(start: int, stop: int) -> None:
        kernel.fill_leaves(model.nodes, model.roots, X, model.has_directions, start, stop, leaves)

    over_rows(fill, len(X), jobs)
    return leaves


def predict(model: Model, X: NDArray[np.float64], voting: str | None = None, jobs: int | None = 1) -> PredictionTable:
    """Prediction of the model for each sample: a set of labels, because votes and counts can tie.

    Parameters
    ----------
    X : float64 array, C-contiguous, shape (n_samples, n_features)
        With every feature that the model tests. Missing values (NaN) go where the splits send them; `check_missing`
        refuses those of which the model does not say where.
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    jobs : int or None
        Threads; None means all available cores.
    """
    voting = choose_voting(model, voting)
    leaves = find_leaves(model, X, jobs)
    if model.n_trees == 1:
        predictions = model.leaf_predictions
        return PredictionTable(predictions.sets, predictions.ids[leaves[:, 0]])
    return PredictionTable.of_best(count_votes(model, leaves, voting))


def predict_proba(
    model: Model, X: NDArray[np.float64], voting: str | None = None, jobs: int | None = 1
) -> NDArray[np.float64]:
    """Probability of each label for each sample, shape (n_samples, n_labels); rows sum to one.

    For a tree these are the class fractions in its leaf; for a forest the fractions of its votes (max) or the mean of
    the class fractions (average); for a boosted model the soft maximum of its scores, with two labels the sigmoid of
    their difference. Parameters are those of `predict`.
    """
    return VOTINGS[choose_voting(model, voting)].share(model, find_leaves(model, X, jobs))


def rank_labels(
    model: Model, X: NDArray[np.float64], voting: str | None = None, jobs: int | None = 1
) -> NDArray[np.float64]:
    """Numbers that order samples as the probability of each label does, shape (n_samples, n_labels).

    Those of a boosted model are log odds, because probabilities near 1 are rounded.
    """
    return VOTINGS[choose_voting(model, voting)].rank(model, find_leaves(model, X, jobs))


def align(model: Model, dataset: Dataset) -> Dataset:
    """The data set with the features of the model, in its order: by name if both have names, else by position.

    Columns that the model does not have are left out with a warning; missing ones are refused, and so are missing
    values that the model has no direction for. Data without names get those of the model.
    """
    names = model.description.feature_names
    if names is None or dataset.feature_names is None:
        check_width(model, dataset)
        if names is not None and len(names) == dataset.n_features:
            dataset = replace(dataset, feature_names=names)
    else:
        dataset = align_names(names, model.source, dataset)
    check_missing(model, dataset)
    return dataset


def align_names(names: tuple[str, ...], owner: str, dataset: Dataset) -> Dataset:
    """The same for names of features; `owner` is what has them, for messages."""
    if names == dataset.feature_names or dataset.feature_names is None:
        return dataset
    return dataset.take_features(find_columns(names, owner, dataset), names)


def find_columns(names: tuple[str, ...], owner: str, dataset: Dataset, *, warns_of_others: bool = True) -> list[int]:
    """Positions of the named columns of a data set; those that are left over cause a warning."""
    places: dict[str, list[int]] = {}
    for feature, name in enumerate(dataset.feature_names or ()):
        places.setdefault(name, []).append(feature)
    missing = [name for name in names if name not in places]
    if missing:
        raise ModelError(_describe_missing(missing, names, owner, dataset))
    twice = [name for name in names if len(places[name]) > 1]
    if twice:
        raise ModelError(
            f"{dataset.source}: {len(places[twice[0]])} columns are called {shorten(twice[0])}, which {owner} needs; "
            "rename all but one"
        )
    own = set(names)
    extra = [name for name in places if name not in own]
    if extra and warns_of_others:
        which = "1 column is" if len(extra) == 1 else f"{len(extra)} columns are"
        warnings.warn(
            f"{dataset.source}: {which} ignored, which {owner} does not have: "
            f"{list_some([shorten(name) for name in extra])}",
            MetasilvaeWarning,
            stacklevel=4,
        )
    return [places[name][0] for name in names]


def _describe_missing(missing: list[str], names: tuple[str, ...], owner: str, dataset: Dataset) -> str:
    listed = list_some([shorten(name) for name in missing])
    if dataset.label_name in missing:
        hint = f"{shorten(dataset.label_name)} was read as the label; name the label column with --label-column"
    elif len(missing) < len(names):
        hint = "add them, or correct the header"
    else:
        hint = (
            f"its columns are {list_some([shorten(name) for name in dataset.feature_names or ()])}; rename them, or "
            "leave out the names on one side (--plain models have none) to match columns by position"
        )
    return f"{dataset.source}: lacks {len(missing)} of the {len(names)} columns of {owner}: {listed}; {hint}"


def check_width(model: Model, dataset: Dataset) -> None:
    """Refuse data without a feature that the model tests, or with more features than the model declares."""
    if dataset.n_features == model.n_features:
        return
    widest = int(model.tested_features.max(initial=-1))
    if dataset.n_features > model.n_features or widest >= dataset.n_features:
        raise ModelError(
            f"{dataset.source} has {dataset.n_features} features, {model.source} expects {model.n_features}; "
            "check that they belong together and that --label-column is correct"
        )
    warnings.warn(
        f"{model.source} declares {model.n_features} features, {dataset.source} has {dataset.n_features}; "
        "the data have every feature that the model tests",
        MetasilvaeWarning,
        stacklevel=2,
    )


def check_missing(model: Model, dataset: Dataset) -> None:
    """Refuse missing values of features that the model has no directions for."""
    if not dataset.has_missing:
        return
    n_shared = min(model.n_features, dataset.n_features)
    is_refused = np.ones(dataset.n_features, dtype=np.bool_)
    is_refused[:n_shared] = ~model.takes_missing[:n_shared]
    refused = np.isnan(dataset.X[:, is_refused])
    if refused.any():
        row, place = np.argwhere(refused)[0]
        feature = dataset.feature_name(int(np.flatnonzero(is_refused)[place]))
        what = f"has no direction for missing values of {feature}" if model.has_directions else "takes none"
        raise ModelError(
            f"{dataset.source}: row {dataset.number_of(int(row))}: {feature} is missing, and {model.source} {what}; "
            "fill the missing values in, or use a model that takes them (docs/formats.md)"
        )


def match_labels(model: Model, dataset: Dataset) -> NDArray[np.int32]:
    """True label of each sample as a position in the model's labels, -1 where it is not known."""
    if not dataset.has_labels:
        return np.full(dataset.n_samples, -1, dtype=np.int32)
    position = {label: number for number, label in enumerate(model.labels)}
    translation = np.array([position.get(label, -1) for label in dataset.labels], dtype=np.int32)
    if dataset.n_labels and (translation < 0).all():
        raise ModelError(
            f"no label of {dataset.source} ({list_some(dataset.labels)}) is known to {model.source} "
            f"({list_some(model.labels)}); check that they belong together and that --label-column is correct"
        )
    true_labels = translation[dataset.y]
    if (true_labels < 0).any():
        unknown = [label for label, number in zip(dataset.labels, translation, strict=True) if number < 0]
        warnings.warn(
            f"{int((true_labels < 0).sum())} rows of {dataset.source} have labels that {model.source} does not know "
            f"({list_some(unknown)}); they count as wrong",
            MetasilvaeWarning,
            stacklevel=2,
        )
    return true_labels
