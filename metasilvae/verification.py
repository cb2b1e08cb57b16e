"""Proving, for each row, whether a perturbation can change the answer, and showing how where it can.

A single tree is decided at once: the answer for a row can change if and only if its box reaches a leaf with another
answer (see verification/reach.pyx). A forest needs a search for each row (metasilvae.forest_verification).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.verification import reach
from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.forest_verification import Limits, decide_rows
from metasilvae.matching import check_width, match_labels
from metasilvae.model import AnswerTable, LabelSet, Model
from metasilvae.outcome import Outcome, Stability
from metasilvae.parallel import over_rows
from metasilvae.perturbation import Boxes, OneHotGroups, Perturbation
from metasilvae.prediction import predict
from metasilvae.voting import choose_voting

# Witnesses held in memory at a time.
WITNESS_BATCH = 1024


@dataclass(frozen=True)
class Question:
    """One model on one data set under one perturbation; checked to fit together when made by `ask`."""

    model: Model
    dataset: Dataset
    true_labels: NDArray[np.int32]
    boxes: Boxes
    groups: OneHotGroups
    voting: str

    @cached_property
    def searched(self) -> Model:
        """The model as kernels search it: thresholds on values that features can take, no contradictory branches."""
        return self.boxes.domains.restrict(self.model).feasible

    def subset(self, rows: NDArray[np.intp]) -> Question:
        """The same question about some rows only, which keep their numbers."""
        dataset, boxes = self.dataset.subset(rows), self.boxes.subset(rows)
        if self.boxes.low_center is self.dataset.X:
            boxes = replace(boxes, low_center=dataset.X, high_center=dataset.X)
        return replace(self, dataset=dataset, true_labels=self.true_labels[rows], boxes=boxes)


def ask(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation,
    *,
    voting: str | None = None,
    tiers: Sequence[int] | None = None,
) -> Question:
    """Put a question together, or say why its parts do not fit.

    Parameters
    ----------
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    tiers : sequence of int or None
        Number of each feature's one-hot group, 0 for none.
    """
    check_width(model, dataset)
    boxes = perturbation.boxes(dataset)
    if tiers is not None and boxes.groups.n_groups:
        raise RequestError(f"{perturbation.describe()} has one-hot groups of its own; leave the tiers out")
    return Question(
        model,
        dataset,
        match_labels(model, dataset),
        boxes,
        boxes.groups if tiers is None else OneHotGroups.of_tiers(tiers, dataset.n_features),
        choose_voting(model, voting),
    )


def verify(
    question: Question,
    jobs: int | None = None,
    *,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Outcome:
    """Decide every row.

    Parameters
    ----------
    jobs : int or None
        Threads; None means all available cores. The verdicts do not depend on it.
    limits : Limits or None
        What may be spent on one row of a forest; None decides every row, however long it takes.
    stop : threading.Event or None
        Once set, the rows of a forest that are left stay undecided.
    on_rows : function
        Called with the number of rows that were decided or given up since the last call, by any thread.
    """
    model, X = question.searched, question.dataset.X
    start = time.perf_counter()
    answers = predict(model, X, question.voting, jobs)
    is_known = question.true_labels >= 0
    is_correct = is_known & (answers.only_label[answers.ids] == question.true_labels)
    if model.n_trees == 1:
        stability = _check_tree(question, answers, jobs)
        on_rows(len(X))
        return Outcome(answers, is_correct, stability, time.perf_counter() - start)
    found = decide_rows(
        model, question.boxes, question.groups, question.voting, answers,
        limits=limits or Limits(), jobs=jobs, stop=stop, on_rows=on_rows,
    )  # fmt: skip
    _refuse_inadmissible(question, np.flatnonzero(~found.is_admissible))
    return Outcome(
        answers,
        is_correct,
        found.stability,
        time.perf_counter() - start,
        found.reasons,
        found.leaves,
        found.row_seconds,
    )


def _check_tree(question: Question, answers: AnswerTable, jobs: int | None) -> NDArray[np.uint8]:
    tree, X = question.searched, question.dataset.X
    if question.groups.n_groups:
        rows = np.arange(len(X), dtype=np.int64)
        found = _search(question, answers.ids, rows, np.empty((3, 0, X.shape[1])), jobs)
        _refuse_inadmissible(question, rows[found == SearchStatus.INADMISSIBLE])
        return np.where(found == SearchStatus.FOUND, Stability.UNSTABLE, Stability.STABLE).astype(np.uint8)
    stability = np.empty(len(X), dtype=np.uint8)

    def check(first: int, last: int) -> None:
        reach.check_stability(
            tree.nodes, tree.leaf_answers.ids, tree.max_depth, *question.boxes.arrays, answers.ids,
            first, last, stability,
        )  # fmt: skip

    over_rows(check, len(X), jobs)
    return stability


@dataclass(frozen=True)
class Witness:
    """A perturbed sample that gets another answer.

    Attributes
    ----------
    row : int
    point : float64 array, shape (n_features,)
        Inside the box of the row; for a tree as near to the sample as possible in the maximum norm, for a forest as
        near as the leaves that were found allow.
    lower, upper : float64 arrays, shape (n_features,)
        The part of the row's box in which every sample gets this other answer for the same reason.
    answer, perturbed_answer : tuple of int
        Label sets for the sample and for the point.
    """

    row: int
    point: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    answer: LabelSet
    perturbed_answer: LabelSet


def find_witnesses(question: Question, outcome: Outcome, jobs: int | None = None) -> Iterator[Witness]:
    """A witness for every unstable row, in order; each is classified again before it is handed out."""
    unstable = np.flatnonzero(outcome.stability == Stability.UNSTABLE)
    for start in range(0, len(unstable), WITNESS_BATCH):
        rows = unstable[start : start + WITNESS_BATCH].astype(np.int64)
        regions = np.empty((3, len(rows), question.dataset.n_features))
        if question.model.n_trees > 1:
            _fill_regions(question, outcome, rows, regions, jobs)
        else:
            _search(question, outcome.answers.ids, rows, regions, jobs)
        points, lowers, uppers = regions
        perturbed = predict(question.model, points, question.voting)
        for item, row in enumerate(rows):
            answer = outcome.answers.sets[outcome.answers.ids[row]]
            perturbed_answer = perturbed.sets[perturbed.ids[item]]
            if answer == perturbed_answer or not _is_allowed(question, row, points[item]):
                raise AssertionError(f"row {row}: the witness does not bear out the verdict UNSTABLE")
            yield Witness(int(row), points[item], lowers[item], uppers[item], answer, perturbed_answer)


def _is_allowed(question: Question, row: int, point: NDArray[np.float64]) -> bool:
    """Whether the perturbation can turn a row into a point."""
    lower, upper = question.boxes.bounds(row)
    domains = question.boxes.domains
    return (
        bool((lower <= point).all() and (point <= upper).all())
        and all(domains.holds(feature, point[[feature]]).all() for feature in domains.features)
        and all(sorted(point[group]) == [0] * (len(group) - 1) + [1] for group in question.groups.lists)
    )


def _search(
    question: Question,
    expected: NDArray[np.int32],
    rows: NDArray[np.int64],
    regions: NDArray[np.float64],
    jobs: int | None,
) -> NDArray[np.uint8]:
    tree = question.searched
    right_starts = question.boxes.domains.right_starts(tree)
    found = np.empty(len(rows), dtype=np.uint8)

    def search(first: int, last: int) -> None:
        reach.find_witnesses(
            tree.nodes, tree.leaf_answers.ids, tree.max_depth, *question.boxes.arrays,
            question.groups.members, question.groups.starts, right_starts,
            question.dataset.X, expected, rows, first, last, found, *regions,
        )  # fmt: skip

    over_rows(search, len(rows), jobs)
    return found


def _fill_regions(
    question: Question,
    outcome: Outcome,
    rows: NDArray[np.int64],
    regions: NDArray[np.float64],
    jobs: int | None,
) -> None:
    forest, leaves = question.searched, outcome.witness_leaves
    assert leaves is not None
    right_starts = question.boxes.domains.right_starts(forest)

    def fill(first: int, last: int) -> None:
        reach.fill_regions(
            forest.nodes, forest.parents, forest.leaf_nodes, *question.boxes.arrays,
            question.groups.members, question.groups.starts, right_starts,
            question.dataset.X, leaves, rows, first, last, *regions,
        )  # fmt: skip

    over_rows(fill, len(rows), jobs)


def _refuse_inadmissible(question: Question, rows: NDArray[np.int64]) -> None:
    if len(rows):
        raise PerturbationError(
            f"{question.dataset.source}: row {question.dataset.number_of(rows[0])}: no point of its box has one-hot "
            "groups (in each tier one feature 1, the others 0); check --tiers, or enlarge the perturbation"
        )
