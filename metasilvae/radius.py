"""For each row, the largest radius at which the answer cannot change, and what lies just beyond it.

The radius of a row is the largest float64 number r such that `metasilvae.verification.verify` finds the row stable
when all radii of the perturbation are multiplied by r (`metasilvae.perturbation.Enlarged`). With the next larger number
it finds the row unstable. Under ``Ball(1)`` that is the distance in the maximum norm; weights are radii other than 1.
Whole numbers move by the whole part of a multiple. An infinite radius stays infinite for every r but 0: where values
that may be swapped at will are enough to change the answer, the radius is 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.verification import radius as kernel
from metasilvae._core.verification import reach
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.forest_radius import find_breaking_radii
from metasilvae.forest_verification import Limits
from metasilvae.model import AnswerTable
from metasilvae.outcome import Outcome, Stability
from metasilvae.parallel import over_rows
from metasilvae.perturbation import Boxes
from metasilvae.prediction import predict
from metasilvae.verification import WITNESS_BATCH, Question, Witness, find_witnesses


@dataclass(frozen=True)
class Radii:
    """How far the answer for each row cannot change.

    Attributes
    ----------
    answers : AnswerTable
        Answer for each unperturbed row.
    is_correct : bool array, shape (n_samples,)
        Whether the answer is the true label and nothing else.
    lower : float64 array, shape (n_samples,)
        The largest radius at which the row was found stable; infinite if it is stable whatever the radius.
    upper : float64 array, shape (n_samples,)
        The radius is at most this: with the next larger number the row was found unstable.
    seconds : float
        Time of the analysis.
    reasons : dict
        For rows with lower < upper, why.
    witness_leaves : int32 array, shape (n_samples, n_trees), or None
        For rows of a forest with a finite upper bound, leaves that meet just beyond it.
    """

    answers: AnswerTable
    is_correct: NDArray[np.bool_]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    seconds: float
    reasons: dict[int, str] = field(default_factory=dict)
    witness_leaves: NDArray[np.int32] | None = None

    @property
    def n_samples(self) -> int:
        return len(self.lower)

    def subset(self, rows: NDArray[np.intp]) -> Radii:
        """The radii of some rows."""
        return replace(
            self,
            answers=AnswerTable(self.answers.sets, self.answers.ids[rows]),
            is_correct=self.is_correct[rows],
            lower=self.lower[rows],
            upper=self.upper[rows],
            reasons={item: self.reasons[row] for item, row in enumerate(rows.tolist()) if row in self.reasons},
            witness_leaves=None if self.witness_leaves is None else self.witness_leaves[rows],
        )

    @property
    def is_exact(self) -> NDArray[np.bool_]:
        return np.asarray(self.lower == self.upper)


def find_radii(
    question: Question,
    jobs: int | None = None,
    *,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Radii:
    """The radius of each row, in multiples of the radii of the question.

    Parameters
    ----------
    question : Question
        Under a perturbation with radii, the same for all rows.
    jobs : int or None
        Threads; None means all available cores. The radii do not depend on it.
    limits : Limits or None
        What may be spent on one row of a forest; None finds every radius exactly, however long it takes.
    stop : threading.Event or None
        Once set, the rows of a forest that are left get the bounds that are known.
    on_rows : function
        Called with the number of rows that are done since the last call, by any thread.
    """
    check_radii(question)
    model, X = question.searched, question.dataset.X
    start = time.perf_counter()
    answers = predict(model, X, question.voting, jobs)
    is_correct = (question.true_labels >= 0) & (answers.only_label[answers.ids] == question.true_labels)
    if model.n_trees > 1:
        found = find_breaking_radii(
            model, X, question.boxes, question.groups, question.voting, answers,
            limits=limits or Limits(), jobs=jobs, stop=stop, on_rows=on_rows,
        )  # fmt: skip
        return Radii(
            answers, is_correct, _just_below(found.at_least), _just_below(found.at_most), time.perf_counter() - start,
            found.reasons, found.leaves,
        )  # fmt: skip
    breaking = np.empty(len(X))
    groups = question.groups
    group_of = np.full(X.shape[1], -1, dtype=np.int32)
    group_of[groups.members] = np.repeat(np.arange(groups.n_groups, dtype=np.int32), np.diff(groups.starts))

    def fill(first: int, last: int) -> None:
        kernel.fill_breaking_radii(
            model.nodes, model.leaf_answers.ids, model.max_depth, X, *question.boxes.scale,
            groups.members, groups.starts, group_of, answers.ids, first, last, breaking,
        )  # fmt: skip

    over_rows(fill, len(X), jobs)
    on_rows(len(X))
    radii = _just_below(breaking)
    return Radii(answers, is_correct, radii, radii, time.perf_counter() - start)


def _just_below(breaking: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isinf(breaking), np.inf, np.nextafter(breaking, 0.0))


def find_nearest_witnesses(question: Question, radii: Radii, jobs: int | None = None) -> Iterator[Witness]:
    """For each row whose answer can change a nearest known perturbed sample with another answer, in order.

    It lies in the box with the smallest radius at which the row was found unstable, and is classified again before it
    is handed out.
    """
    finite = np.flatnonzero(np.isfinite(radii.upper))
    for start in range(0, len(finite), WITNESS_BATCH):
        rows = finite[start : start + WITNESS_BATCH]
        part = replace(question.subset(rows), boxes=boxes_at(question, rows, np.nextafter(radii.upper[rows], np.inf)))
        outcome = Outcome(
            AnswerTable(radii.answers.sets, radii.answers.ids[rows]),
            radii.is_correct[rows],
            np.full(len(rows), Stability.UNSTABLE, dtype=np.uint8),
            0.0,
            witness_leaves=None if radii.witness_leaves is None else radii.witness_leaves[rows],
        )
        for witness in find_witnesses(part, outcome, jobs):
            yield replace(witness, row=int(rows[witness.row]))


def boxes_at(question: Question, rows: NDArray[np.intp], radii: NDArray[np.float64]) -> Boxes:
    """The boxes of some rows, each with its own radius."""
    bounds = [question.boxes.bounds_times(row, radius) for row, radius in zip(rows, radii.tolist(), strict=True)]
    lower, upper = (np.array([pair[side] for pair in bounds]) for side in (0, 1))
    return question.boxes.with_bounds(lower, upper)


def has_radii(question: Question) -> bool:
    """Whether the perturbation of a question consists of radii that can be multiplied, the same for all rows."""
    boxes, X = question.boxes, question.dataset.X
    return boxes.low_center is X and boxes.high_center is X


def in_common_unit(question: Question) -> Question:
    """The question with radii of 1 if they are the same for all features: the radius of a row is then an epsilon."""
    boxes = question.boxes
    both = np.concatenate([boxes.radius_down, boxes.radius_up])
    if np.isinf(both[0]) or not (both == both[0]).all():
        return question
    ones = np.ones(len(boxes.radius_down))
    return replace(question, boxes=replace(boxes, radius_down=ones, radius_up=ones))


def check_radii(question: Question) -> None:
    """Refuse perturbations without radii, and samples that are not admissible themselves."""
    boxes, dataset = question.boxes, question.dataset
    if not has_radii(question):
        raise RequestError(
            "boxes from a file have no radii that could be multiplied; for radii, say what may be perturbed by "
            "--perturbation l_inf or --attack"
        )
    nothing = np.zeros(dataset.n_features)
    empty = reach.find_empty_box(dataset.X, dataset.X, nothing, nothing, boxes.minimum, boxes.maximum)
    if empty is not None:
        row, feature = empty
        raise PerturbationError(
            f"{dataset.source}: row {dataset.number_of(row)}, {dataset.feature_name(feature)} = "
            f"{dataset.X[row, feature]:g} does not lie in [{boxes.minimum[feature]:g}, {boxes.maximum[feature]:g}]; "
            "a radius needs rows that do: widen the range"
        )
    groups = question.groups
    for first, last in zip(groups.starts[:-1], groups.starts[1:], strict=True):
        values = dataset.X[:, groups.members[first:last]]
        is_one_hot = ((values == 0) | (values == 1)).all(axis=1) & ((values == 1).sum(axis=1) == 1)
        if not is_one_hot.all():
            raise PerturbationError(
                f"{dataset.source}: row {dataset.number_of(int(np.argmin(is_one_hot)))} is not one-hot in the features "
                f"{', '.join(map(str, groups.members[first:last]))}; check --tiers"
            )
