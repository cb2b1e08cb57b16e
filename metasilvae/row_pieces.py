"""A verification in pieces: rows are shared out to tasks, and what they find is put together again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.execution import Abandonment, TaskExecutor, run_all
from metasilvae.forest_verification import Limits
from metasilvae.model import AnswerTable, LabelSet
from metasilvae.outcome import Outcome
from metasilvae.radius import Radii
from metasilvae.sharding import Shard
from metasilvae.verification import Question, verify

# Rows of a task if they are few; a forest may need a second for a row, and a task should be done in a minute.
ROWS_PER_PIECE = 16
# More tasks than this keep the scheduler busier than the workers.
MOST_PIECES = 1024


def plan_pieces(n_rows: int) -> list[Shard]:
    """Pieces that depend on the number of rows alone, not on who works on them."""
    n_pieces = min(-(-n_rows // ROWS_PER_PIECE), MOST_PIECES)
    return [Shard(number + 1, n_pieces) for number in range(n_pieces)]


def verify_in_pieces(
    question: Question,
    executor: TaskExecutor,
    limits: Limits | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Outcome:
    """The same as `metasilvae.verification.verify`, by tasks; its time is that of all tasks together.

    Once the executor is stopped, rows whose tasks are not done stay undecided, as far as they need a search.
    """
    n_rows = question.dataset.n_samples
    pieces = plan_pieces(n_rows)
    shared = executor.share(question)
    # Pieces are of equal size but for one row.
    tasks = [(shared, piece, limits) for piece in pieces]
    results = run_all(executor, _verify_piece, tasks, lambda: on_rows(n_rows // len(pieces)))
    rows = [piece.take_rows(n_rows) for piece in pieces]
    outcomes = [
        _give_up(question.subset(places)) if outcome is None else outcome
        for places, outcome in zip(rows, results, strict=True)
    ]
    return join_outcomes(rows, outcomes)


def _verify_piece(question: Question, piece: Shard, limits: Limits | None) -> Outcome:
    part = question.subset(piece.take_rows(question.dataset.n_samples))
    return verify(part, 1, limits=limits, stop=Abandonment())


def _give_up(question: Question) -> Outcome:
    """What can be said without a search."""
    stopped = threading.Event()
    stopped.set()
    return verify(question, 1, stop=stopped)


def join_outcomes(rows: Sequence[NDArray[np.intp]], outcomes: Sequence[Outcome]) -> Outcome:
    """Put outcomes together; `rows` tells for each of them where its rows belong, and all together are 0, 1, 2 ..."""
    return Outcome(**_join(rows, outcomes))


def join_radii(rows: Sequence[NDArray[np.intp]], radii: Sequence[Radii]) -> Radii:
    """The same for radii."""
    return Radii(**_join(rows, radii))


def _join(rows: Sequence[NDArray[np.intp]], outcomes: Sequence[Outcome | Radii]) -> dict[str, Any]:
    numbers: dict[LabelSet, int] = {}
    ids: list[NDArray[np.int32]] = []
    reasons: dict[int, str] = {}
    for places, outcome in zip(rows, outcomes, strict=True):
        own_numbers = [numbers.setdefault(label_set, len(numbers)) for label_set in outcome.answers.sets]
        ids.append(np.array(own_numbers, dtype=np.int32)[outcome.answers.ids])
        reasons |= {int(places[row]): reason for row, reason in outcome.reasons.items()}
    answers = AnswerTable(tuple(numbers), _place(rows, ids))
    arrays = {
        each.name: _place(rows, [getattr(outcome, each.name) for outcome in outcomes])
        for each in fields(outcomes[0])
        if isinstance(getattr(outcomes[0], each.name), np.ndarray)
    }
    seconds = sum(outcome.seconds for outcome in outcomes)
    return {"answers": answers, "seconds": seconds, "reasons": dict(sorted(reasons.items())), **arrays}


def _place(rows: Sequence[NDArray[np.intp]], parts: Sequence[np.ndarray]) -> np.ndarray:
    """One array of the parts, with each item at its row."""
    whole = np.empty((sum(map(len, rows)), *parts[0].shape[1:]), dtype=parts[0].dtype)
    for places, part in zip(rows, parts, strict=True):
        whole[places] = part
    return whole
