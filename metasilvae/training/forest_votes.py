"""Votes of a growing forest for each sample, and the lower bounds of its metrics that follow from them.

Each tree gives one vote to each label of its prediction (voting `max`). The labels that a tree may predict somewhere in
a box are found exactly and cheaply. The votes that are certain for one label, minus those that are possible for
another, bound the margin between the two in the whole box. The bound is sound: a sample that it calls stable is stable.
It is not complete, because the worst points of the trees need not coincide.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.verification import reach
from metasilvae.dataset import Dataset
from metasilvae.encoding import LARGEST_NUMBER as LARGEST
from metasilvae.execution.threads import over_rows
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, LeafKind, Model, PredictionTable
from metasilvae.perturbations.boxes import Boxes, Perturbation
from metasilvae.prediction import find_leaves, match_labels, predict
from metasilvae.training.samples import POWERS
from metasilvae.verification.verdicts import Outcome, Stability

Counts = NDArray[np.int32]
FloatArray = NDArray[np.float64]
# By this fraction the budget of a norm is larger, against the rounding of sums of costs.
ROUNDING = 1e-9
# A margin over rivals where there are none.
NO_RIVAL = 2**30


@dataclass(frozen=True)
class Ballots:
    """Votes of one tree on some samples.

    Attributes
    ----------
    cast : uint8 array, shape (n_samples, n_labels)
        1 for each label that is predicted for the sample itself.
    possible : uint8 array, shape (n_samples, n_labels)
        1 for each label that is predicted for some point of the sample's box.
    """

    cast: NDArray[np.uint8]
    possible: NDArray[np.uint8]

    @property
    def sure(self) -> NDArray[np.uint8]:
        """1 for the label that is the only prediction in the whole box, if there is one."""
        return np.asarray(self.possible * (self.possible.sum(axis=1, keepdims=True) == 1), dtype=np.uint8)


def poll(tree: Model, dataset: Dataset, boxes: Boxes, jobs: int | None = 1) -> Ballots:
    """The votes of one tree."""
    tree = boxes.domains.restrict(tree).feasible
    values = tree.leaf_values
    votes = np.ascontiguousarray(values == values.max(axis=1, keepdims=True), dtype=np.uint8)
    if boxes.limit is not None:
        return Ballots(votes[find_leaves(tree, dataset.X, jobs)[:, 0]], _reach_in_norm(tree, votes, dataset, boxes))
    possible = np.empty((dataset.n_samples, tree.n_labels), dtype=np.uint8)
    right_starts = boxes.domains.right_starts(tree)

    def fill(start: int, stop: int) -> None:
        reach.fill_reached_labels(
            tree.nodes, votes, tree.max_depth, *boxes.arrays, boxes.dropping, right_starts, start, stop, possible
        )

    over_rows(fill, dataset.n_samples, jobs)
    return Ballots(votes[find_leaves(tree, dataset.X, jobs)[:, 0]], possible)


def _reach_in_norm(tree: Model, votes: NDArray[np.uint8], dataset: Dataset, boxes: Boxes) -> NDArray[np.uint8]:
    """Labels that each sample can get under a limit of the total change; by rounding, rarely some more."""
    limit = boxes.limit
    assert limit is not None
    power = POWERS[limit.norm]
    lower, upper = boxes.all_bounds
    possible = np.zeros((dataset.n_samples, tree.n_labels), dtype=np.uint8)

    def pay(feature: int, sizes: FloatArray) -> FloatArray:
        """Costs of changes as parts of the budget; what lies on the right side already changes by less than 0."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            costs = limit.costs[feature] * (np.ones(len(sizes)) if power == 0 else np.clip(sizes, 0.0, LARGEST))
            parts = costs / limit.epsilon
            return np.where((sizes < 0) | (costs == 0), 0.0, parts if power < 2 else parts * parts)

    # Each node with the samples that reach it, what they pay, and what of it they pay in each feature.
    todo: list[tuple[int, NDArray[np.intp], FloatArray, dict[int, FloatArray]]] = [
        (int(tree.roots[0]), np.arange(dataset.n_samples), np.zeros(dataset.n_samples), {})
    ]
    while todo:
        place, rows, total, paid = todo.pop()
        threshold, feature, left, right, leaf = tree.nodes[place].item()
        if feature < 0:
            possible[rows] |= votes[leaf]
            continue
        values = dataset.X[rows, feature]
        with np.errstate(over="ignore"):
            distances = values - threshold
        before = paid.get(feature, np.zeros(len(rows)))
        is_missing = np.isnan(values)
        # On the right side a value that equals the threshold must change, by next to nothing.
        is_right = values > threshold
        sides = (
            (left, MISSING_LEFT, np.where(is_right, distances, -1.0), lower[rows, feature] <= threshold),
            (right, MISSING_RIGHT, np.where(is_right, -1.0, -distances), upper[rows, feature] > threshold),
        )
        for child, direction, sizes, is_allowed in sides:
            now = np.maximum(before, pay(feature, sizes))
            cost = total - before + now
            reached = np.where(is_missing, leaf == direction, is_allowed & (cost <= 1 + ROUNDING))
            now, cost = np.where(is_missing, 0.0, now), np.where(is_missing, total, cost)
            if reached.any():
                others = {f: each[reached] for f, each in paid.items()}
                todo.append((child, rows[reached], cost[reached], {**others, feature: now[reached]}))
    return possible


@dataclass(frozen=True)
class Certainty:
    """What is proven about a forest on some samples.

    Attributes
    ----------
    is_correct : bool array, shape (n_samples,)
        The prediction is the true label and no other one.
    is_stable : bool array, shape (n_samples,)
        No point of the box has another prediction; False means that this is not proven.
    """

    is_correct: NDArray[np.bool_]
    is_stable: NDArray[np.bool_]
    dataset: Dataset

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Fractions of correct, stable and robust samples; of their weights if they have some."""
        total, both = self.dataset.total_weight, self.is_correct & self.is_stable
        correct, stable, robust = (self.dataset.count(each) for each in (self.is_correct, self.is_stable, both))
        return correct / total, stable / total, robust / total


class GrowingForest:
    """Votes of a forest that gets one tree after another.

    Parameters
    ----------
    dataset : Dataset
        Samples, with the labels that the trees know.
    perturbation : Perturbation
    jobs : int or None
        Threads.

    Attributes
    ----------
    n_trees : int
    """

    def __init__(self, dataset: Dataset, perturbation: Perturbation, jobs: int | None = 1) -> None:
        self._dataset = dataset
        self._boxes = perturbation.boxes(dataset)
        self._jobs = jobs
        self.n_trees = 0
        self._cast, self._sure, self._possible = np.zeros((3, dataset.n_samples, dataset.n_labels), dtype=np.int32)

    def add(self, tree: Model) -> None:
        ballots = poll(tree, self._dataset, self._boxes, self._jobs)
        self._cast += ballots.cast
        self._sure += ballots.sure
        self._possible += ballots.possible
        self.n_trees += 1

    @property
    def own_margins(self) -> Counts:
        """Votes for the true label minus those for its strongest rival, shape (n_samples,)."""
        return _margins(self._cast, self._cast, self._dataset.y)

    @property
    def worst_margins(self) -> Counts:
        """Lower bounds of the same at the worst point of each box."""
        return _margins(self._sure, self._possible, self._dataset.y)

    @property
    def predictions(self) -> PredictionTable:
        """Labels with most votes."""
        return PredictionTable.of_best(self._cast == self._cast.max(axis=1, keepdims=True))

    @property
    def certainty(self) -> Certainty:
        predictions = self._cast.argmax(axis=1).astype(np.int32)
        # A certain vote is a cast vote, so a positive certain margin makes the prediction unique.
        is_stable = _margins(self._sure, self._possible, predictions) > 0
        return Certainty(self.own_margins > 0, is_stable, self._dataset)


def bound(model: Model, dataset: Dataset, perturbation: Perturbation, jobs: int | None = 1) -> Outcome:
    """Verdicts on a forest, as far as its votes or scores tree by tree prove them; all others are unknown.

    Leaves with counts vote by `max`, scores are added. Labels of the data set that the model does not know count as
    wrong.
    """
    if model.leaf_kind is LeafKind.SCORES:
        return _bound_scores(model, dataset, perturbation, jobs)
    start = time.perf_counter()
    true_labels = match_labels(model, dataset)
    votes = GrowingForest(replace(dataset, y=np.maximum(true_labels, 0), labels=model.labels), perturbation, jobs)
    for position in range(model.n_trees):
        votes.add(model.tree(position))
    found = votes.certainty
    stability = np.where(found.is_stable, Stability.STABLE, Stability.UNKNOWN).astype(np.uint8)
    is_correct = found.is_correct & (true_labels >= 0)
    return Outcome(votes.predictions, is_correct, stability, seconds=time.perf_counter() - start)


def _bound_scores(model: Model, dataset: Dataset, perturbation: Perturbation, jobs: int | None) -> Outcome:
    """A row is stable if no rival of its label can get ahead of it, even if each tree is attacked by itself."""
    start = time.perf_counter()
    true_labels = match_labels(model, dataset)
    predictions = predict(model, dataset.X, jobs=jobs)
    boxes = perturbation.boxes(dataset)
    searched = boxes.domains.restrict(model).feasible
    right_starts = boxes.domains.right_starts(searched)
    only = predictions.only_label[predictions.ids]
    # Sums are off by at most one rounding of the running size for each tree, and each difference by one.
    slack = 2 * (model.n_trees + 1) * 2.0**-52 * 2 * np.abs(model.leaf_values).max() * model.n_trees
    is_stable = np.zeros(dataset.n_samples, dtype=np.bool_)
    for label in np.unique(only[only >= 0]).tolist():
        rows = np.flatnonzero(only == label)
        lead = np.ascontiguousarray(searched.leaf_values - searched.leaf_values[:, [label]])
        most = _find_most(searched, lead, boxes, right_starts, rows, jobs)
        most[:, label] = -np.inf
        is_stable[rows] = most.max(axis=1) < -slack
    stability = np.where(is_stable, Stability.STABLE, Stability.UNKNOWN).astype(np.uint8)
    return Outcome(predictions, predictions.are_correct(true_labels), stability, seconds=time.perf_counter() - start)


def _find_most(
    model: Model, values: NDArray[np.float64], boxes: Boxes, right_starts: NDArray[np.float64], rows: NDArray[np.intp],
    jobs: int | None,
) -> NDArray[np.float64]:  # fmt: skip
    """The sum over all trees of the largest value of a leaf that the box of a row reaches, by row and label."""
    low_center, high_center, down, up, minimum, maximum = boxes.arrays
    low = low_center[rows]
    centers = low, low if high_center is low_center else high_center[rows]
    dropping = boxes.dropping[rows] if len(boxes.dropping) else boxes.dropping
    least, most = np.empty((2, len(rows), values.shape[1]))

    def fill(first: int, last: int) -> None:
        reach.fill_score_bounds(
            model.nodes, model.roots, values, model.max_depth, *centers, down, up, minimum, maximum, dropping,
            right_starts, first, last, least, most,
        )  # fmt: skip

    over_rows(fill, len(rows), jobs)
    return most


def _margins(of_label: Counts, of_rivals: Counts, labels: NDArray[np.int32]) -> Counts:
    """Votes for the given label of each sample minus those for its strongest rival."""
    rows = np.arange(len(labels))
    rivals = of_rivals.copy()
    rivals[rows, labels] = -NO_RIVAL
    return np.asarray(of_label[rows, labels] - rivals.max(axis=1))
