"""A verification query: one model, one data set and one perturbation that fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import ModelError, PerturbationError, RequestError
from metasilvae.model import Model, PredictionTable
from metasilvae.perturbations.boxes import Boxes, Perturbation
from metasilvae.perturbations.groups import TableGroups
from metasilvae.prediction import align, match_labels, predict, rank_labels
from metasilvae.voting import choose_voting


@dataclass(frozen=True)
class VerificationQuery:
    """One model on one data set under one perturbation; `make_query` checks that they fit together."""

    model: Model
    dataset: Dataset
    true_labels: NDArray[np.int32]
    boxes: Boxes
    groups: TableGroups
    voting: str

    @property
    def has_missing(self) -> bool:
        """Whether values are missing or may become so."""
        return self.dataset.has_missing or self.boxes.droppable is not None

    @cached_property
    def searched(self) -> Model:
        """The model as kernels search it: thresholds on values that features can take, no contradictory branches.

        Where no value is or may become missing, branches that only missing values take are left out.
        """
        model = self.model if self.has_missing else self.model.without_directions
        return self.boxes.domains.restrict(model).feasible

    def classify(self, jobs: int | None) -> tuple[PredictionTable, NDArray[np.bool_]]:
        """The prediction for each unperturbed sample, and whether it is correct."""
        predictions = predict(self.searched, self.dataset.X, self.voting, jobs)
        return predictions, predictions.are_correct(self.true_labels)

    def rank_labels(self, jobs: int | None = 1) -> NDArray[np.float64]:
        """Scores of the labels for the unperturbed samples, see `metasilvae.prediction.rank_labels`."""
        return rank_labels(self.model, self.dataset.X, self.voting, jobs)

    def subset(self, rows: NDArray[np.intp]) -> VerificationQuery:
        """The same query for some rows only, which keep their numbers."""
        dataset, boxes = self.dataset.subset(rows), self.boxes.subset(rows)
        if self.boxes.low_center is self.dataset.X:
            boxes = replace(boxes, low_center=dataset.X, high_center=dataset.X)
        return replace(self, dataset=dataset, true_labels=self.true_labels[rows], boxes=boxes)


def make_query(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation,
    *,
    voting: str | None = None,
    tiers: Sequence[int] | None = None,
) -> VerificationQuery:
    """Make a query, or raise an error that says why its parts do not fit together.

    Parameters
    ----------
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    tiers : sequence of int or None
        Number of each feature's one-hot group, 0 for none; in the order of the model's features.
    """
    dataset = align(model, dataset)
    boxes = perturbation.boxes(dataset)
    if tiers is not None and boxes.groups.n_groups:
        raise RequestError(f"{perturbation.describe()} has one-hot groups of its own; leave the tiers out")
    groups = boxes.groups if tiers is None else TableGroups.of_tiers(tiers, dataset.n_features)
    _check_dropping(model, dataset, boxes)
    if dataset.has_missing and np.isnan(dataset.X[:, groups.members]).any():
        row, place = np.argwhere(np.isnan(dataset.X[:, groups.members]))[0]
        raise PerturbationError(
            f"{dataset.source}: row {dataset.number_of(int(row))}: "
            f"{dataset.feature_name(int(groups.members[place]))} is missing and belongs to a one-hot group; give "
            "missing values a column of their own in the group, or leave the group out"
        )
    return VerificationQuery(model, dataset, match_labels(model, dataset), boxes, groups, choose_voting(model, voting))


def _check_dropping(model: Model, dataset: Dataset, boxes: Boxes) -> None:
    """Refuse an attacker who drops values that the model has no direction for."""
    if boxes.droppable is None:
        return
    is_refused = np.array(boxes.droppable.any(axis=0))
    n_shared = min(model.n_features, dataset.n_features)
    is_refused[:n_shared] &= ~model.takes_missing[:n_shared]
    if is_refused.any():
        feature = dataset.feature_name(int(np.argmax(is_refused)))
        raise ModelError(
            f"{model.source} does not say where missing values of {feature} go, and the attack lets them appear; "
            'write missing = "stays" for this column, or use a model that takes missing values (docs/formats.md)'
        )
