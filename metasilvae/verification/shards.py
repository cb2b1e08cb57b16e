"""Shards: a verification divided into parts, and their results joined into those of one run over all rows.

The parts are tasks of an executor (`verify_in_pieces`), or jobs of a batch array, each of which writes a file that
``metasilvae merge`` reads. A shard's file has a note with fingerprints of the model, the data and the perturbation, so
that files of different runs are not merged, whatever their names are.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.execution.executors import Abandonment, TaskExecutor, run_all
from metasilvae.io.memory import JSON_EXPANSION
from metasilvae.io.storage import display_name, read_source
from metasilvae.model import LabelSet, PredictionTable
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.radius import Radii
from metasilvae.verification.verdicts import Outcome, Verdict
from metasilvae.verification.verifier import verify

T = TypeVar("T")
# Rows of a task if they are few; a forest may need a second for a row, and a task should be done in a minute.
ROWS_PER_PIECE = 16
# More tasks than this keep the scheduler busier than the workers.
MOST_PIECES = 1024
# Formats of files that can be merged.
MERGEABLE_FORMATS = ("jsonl", "json")
VERDICTS, RADII = "verdicts", "radii"
_MOST_LISTED = 8
_SYNTAX = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
_STABILITY = {verdict.word: verdict.stability for verdict in Verdict}
# Upper limit for numbers of rows, features, trees and shards in files.
_MOST = 2**53
_ROW_KINDS = {"row": int, "label": str, "prediction": list}
_SUMMARY_KINDS = {"model": str, "data": str, "perturbation": str, "voting": str, "seconds": float}
_NOTE_KINDS = {
    **dict.fromkeys(("number", "count", "n_rows", "n_features", "n_trees", "n_leaves", "max_depth"), int),
    **dict.fromkeys(("model", "data", "perturbation", "content"), str),
    "limits": dict,
    "is_forest": bool,
}


@dataclass(frozen=True)
class Shard:
    """The part `number` of `count`, counted from 1."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise RequestError(f"there is no shard {self.number} of {self.count}; shards are counted from 1 to N")

    @classmethod
    def parse(cls, text: str) -> Shard:
        found = _SYNTAX.fullmatch(text.strip())
        if found is None:
            raise RequestError(f"shard {text!r} is not understood; write I/N, for example 3/50")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def take_items(self, items: Sequence[T], what: str = "items") -> Sequence[T]:
        """This shard's items, which are consecutive."""
        self._check(len(items), what)
        return items[(self.number - 1) * len(items) // self.count : self.number * len(items) // self.count]

    def take_rows(self, n_rows: int) -> NDArray[np.intp]:
        """This shard's rows, one in every `count`, so that consecutive hard rows are distributed evenly."""
        self._check(n_rows, "rows")
        return np.arange(self.number - 1, n_rows, self.count, dtype=np.intp)

    def _check(self, n_items: int, what: str) -> None:
        if self.count > n_items:
            raise RequestError(f"{n_items} {what} cannot be divided into {self.count} shards; use at most {n_items}")


def plan_pieces(n_rows: int) -> list[Shard]:
    """Pieces that depend on the number of rows alone, not on the number of workers."""
    n_pieces = min(-(-n_rows // ROWS_PER_PIECE), MOST_PIECES)
    return [Shard(number + 1, n_pieces) for number in range(n_pieces)]


def verify_in_pieces(
    query: VerificationQuery,
    executor: TaskExecutor,
    budget: Budget | None = None,
    on_rows: Callable[[int], object] = lambda count: None,
) -> Outcome:
    """The same as `metasilvae.verification.verifier.verify`, in tasks; `seconds` is the total time of all tasks.

    Once the executor is stopped, rows of unfinished tasks stay undecided if they need a search.
    """
    n_rows = query.dataset.n_samples
    pieces = plan_pieces(n_rows)
    shared = executor.share(query)
    # Pieces are of equal size but for one row.
    tasks = [(shared, piece, budget) for piece in pieces]
    results = run_all(executor, _verify_piece, tasks, lambda: on_rows(n_rows // len(pieces)))
    rows = [piece.take_rows(n_rows) for piece in pieces]
    outcomes = [
        _give_up(query.subset(places)) if outcome is None else outcome
        for places, outcome in zip(rows, results, strict=True)
    ]
    return join_outcomes(rows, outcomes)


def _verify_piece(query: VerificationQuery, piece: Shard, budget: Budget | None) -> Outcome:
    part = query.subset(piece.take_rows(query.dataset.n_samples))
    return verify(part, 1, budget=budget, stop=Abandonment())


def _give_up(query: VerificationQuery) -> Outcome:
    """The results that need no search."""
    stopped = threading.Event()
    stopped.set()
    return verify(query, 1, stop=stopped)


def join_outcomes(rows: Sequence[NDArray[np.intp]], outcomes: Sequence[Outcome]) -> Outcome:
    """Join outcomes; `rows` holds the row numbers of each of them."""
    return Outcome(**_join(rows, outcomes))


def join_radii(rows: Sequence[NDArray[np.intp]], radii: Sequence[Radii]) -> Radii:
    """Join certified radii in the same way."""
    return Radii(**_join(rows, radii))


def _join(rows: Sequence[NDArray[np.intp]], outcomes: Sequence[Outcome | Radii]) -> dict[str, Any]:
    numbers: dict[LabelSet, int] = {}
    ids: list[NDArray[np.int32]] = []
    reasons: dict[int, str] = {}
    for places, outcome in zip(rows, outcomes, strict=True):
        own_numbers = [numbers.setdefault(label_set, len(numbers)) for label_set in outcome.predictions.sets]
        ids.append(np.array(own_numbers, dtype=np.int32)[outcome.predictions.ids])
        reasons |= {int(places[row]): reason for row, reason in outcome.reasons.items()}
    predictions = PredictionTable(tuple(numbers), _place(rows, ids))
    names = outcomes[0].array_names
    arrays = {name: _place(rows, [getattr(outcome, name) for outcome in outcomes]) for name in names}
    seconds = sum(outcome.seconds for outcome in outcomes)
    return {"predictions": predictions, "seconds": seconds, "reasons": dict(sorted(reasons.items())), **arrays}


def _place(rows: Sequence[NDArray[np.intp]], parts: Sequence[np.ndarray]) -> np.ndarray:
    """One array of all parts, with each item at its row."""
    whole = np.empty((sum(map(len, rows)), *parts[0].shape[1:]), dtype=parts[0].dtype)
    for places, part in zip(rows, parts, strict=True):
        whole[places] = part
    return whole


@dataclass(frozen=True)
class ShardNote:
    """The run that a shard belongs to.

    Attributes
    ----------
    number, count : int
    n_rows, n_features : int
        Of all shards together.
    model, data, perturbation : str
        Fingerprints.
    limits : dict
        Budget for each row, because verdicts may depend on it.
    is_forest, n_trees, n_leaves, max_depth
        Of the model.
    content : str
        `VERDICTS` or `RADII`.
    """

    number: int
    count: int
    n_rows: int
    n_features: int
    model: str
    data: str
    perturbation: str
    limits: dict[str, float]
    is_forest: bool
    n_trees: int
    n_leaves: int
    max_depth: int
    content: str = VERDICTS

    @classmethod
    def of(cls, query: VerificationQuery, shard: Shard, limits: dict[str, float], content: str = VERDICTS) -> ShardNote:
        """The note for a shard of a query for all rows."""
        model, dataset = query.model, query.dataset
        perturbation = replace(query.boxes, groups=query.groups).fingerprint(dataset)
        sizes = (shard.number, shard.count, dataset.n_samples, dataset.n_features)
        facts = (model.is_forest, model.n_trees, model.n_leaves, model.max_depth)
        return cls(*sizes, model.fingerprint, dataset.fingerprint, perturbation, limits, *facts, content)


@dataclass(frozen=True)
class MergedModel:
    """The model of all shards, as far as their files describe it."""

    source: str
    labels: tuple[str, ...]
    is_forest: bool
    n_trees: int
    n_leaves: int
    max_depth: int


@dataclass(frozen=True)
class MergedQuery:
    """The query of all shards; the samples themselves are unknown and replaced by zeros."""

    model: MergedModel
    dataset: Dataset
    voting: str


@dataclass(frozen=True)
class ShardFile:
    """Content of a shard's file."""

    name: str
    note: ShardNote
    summary: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def shard(self) -> Shard:
        return Shard(self.note.number, self.note.count)


def read_shard(source: str) -> ShardFile:
    """Read a file that ``verify --shard`` wrote, as JSON lines or as one document."""
    name = display_name(source)
    try:
        text = read_source(source, JSON_EXPANSION).decode()
        if text.startswith("{\n"):
            summary = json.loads(text)
            rows = summary.pop("rows")
        else:
            *rows, last = [json.loads(line) for line in text.splitlines()]
            summary = last["summary"]
        _check_kinds(summary, _SUMMARY_KINDS)
        for row in rows:
            _check_kinds(row, _ROW_KINDS)
        note = ShardNote(**summary["shard"]) if "shard" in summary else None
        if note is not None:
            _check_kinds(asdict(note), _NOTE_KINDS)
            Shard(note.number, note.count)
        is_valid = {VERDICTS: _has_verdict, RADII: _has_radius}[VERDICTS if note is None else note.content]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, RequestError):
        raise DataError(
            f"{name}: is not a complete file of a shard; expected a file that `metasilvae verify --shard I/N` wrote"
        ) from None
    if note is None:
        raise DataError(f"{name}: holds the results of all rows, not of a shard; `verify --shard I/N` writes shards")
    shard = ShardFile(name, note, summary, rows)
    expected = range(note.number - 1, note.n_rows, note.count)
    is_complete = len(rows) == len(expected) and [row["row"] for row in rows] == list(expected)
    if not is_complete or not all(is_valid(row) and isinstance(row.get("reason", ""), str) for row in rows):
        raise DataError(
            f"{name}: its {len(rows)} rows are not those of shard {shard.shard} of {note.n_rows} rows; verify it again"
        )
    return shard


def _has_verdict(row: dict[str, Any]) -> bool:
    verdict = row.get("verdict")
    return isinstance(verdict, str) and verdict in _STABILITY


def _has_radius(row: dict[str, Any]) -> bool:
    """Whether a row has a radius, not above its upper bound; null stands for infinity."""
    radius = row.get("radius", math.nan)
    bounds = [math.inf if value is None else value for value in (radius, row.get("at_most", radius))]
    return all(type(bound) is float or (type(bound) is int and bound <= _MOST) for bound in bounds) and (
        0 <= bounds[0] <= bounds[1]
    )


def _check_kinds(document: Any, kinds: Mapping[str, type]) -> None:
    """Refuse values of another type and impossible numbers."""
    for key, kind in kinds.items():
        value: Any = document[key]
        is_absurd = isinstance(value, int) and not 0 <= value <= _MOST
        is_odd_list = isinstance(value, list) and not (value and all(type(item) is str for item in value))
        if type(value) is not kind or is_absurd or is_odd_list:
            raise TypeError(key)


def merge_shards(shards: Sequence[ShardFile]) -> tuple[MergedQuery, str, Outcome | Radii]:
    """The query, the perturbation, and the outcome or certified radii of all rows; shards may come in any order."""
    shards = sorted(shards, key=lambda shard: shard.note.number)
    _check_fit(shards)
    first = shards[0]
    note, summary = first.note, first.summary
    labels = tuple(dict.fromkeys(_labels_in(shards)))
    place = {label: position for position, label in enumerate(labels)}
    rows = [shard.shard.take_rows(note.n_rows) for shard in shards]
    found = (
        join_radii(rows, [_radii_of(shard, place) for shard in shards])
        if note.content == RADII
        else join_outcomes(rows, [_outcome_of(shard, place) for shard in shards])
    )
    y = np.empty(note.n_rows, dtype=np.int32)
    for places, shard in zip(rows, shards, strict=True):
        y[places] = [place[row["label"]] for row in shard.rows]
    X = np.broadcast_to(np.float64(0), (note.n_rows, note.n_features))
    model = MergedModel(summary["model"], labels, note.is_forest, note.n_trees, note.n_leaves, note.max_depth)
    query = MergedQuery(model, Dataset(X, y, labels, None, summary["data"]), summary["voting"])
    return query, summary["perturbation"], found


def _labels_in(shards: Iterable[ShardFile]) -> Iterable[str]:
    for shard in shards:
        for row in shard.rows:
            yield row["label"]
            yield from row["prediction"]


def _predictions_of(shard: ShardFile, place: dict[str, int]) -> tuple[PredictionTable, NDArray[np.bool_]]:
    sets: dict[LabelSet, int] = {}
    predictions = [tuple(place[label] for label in row["prediction"]) for row in shard.rows]
    ids = np.array([sets.setdefault(prediction, len(sets)) for prediction in predictions], dtype=np.int32)
    is_correct = np.array([row["prediction"] == [row["label"]] for row in shard.rows], dtype=np.bool_)
    return PredictionTable(tuple(sets), ids), is_correct


def _reasons_of(shard: ShardFile) -> dict[int, str]:
    return {position: row["reason"] for position, row in enumerate(shard.rows) if "reason" in row}


def _outcome_of(shard: ShardFile, place: dict[str, int]) -> Outcome:
    stability = np.array([_STABILITY[row["verdict"]] for row in shard.rows], dtype=np.uint8)
    return Outcome(
        *_predictions_of(shard, place), stability, seconds=shard.summary["seconds"], reasons=_reasons_of(shard)
    )


def _radii_of(shard: ShardFile, place: dict[str, int]) -> Radii:
    def numbers(values: Iterable[float | None]) -> NDArray[np.float64]:
        return np.array([np.inf if value is None else value for value in values], dtype=np.float64)

    lower = numbers(row["radius"] for row in shard.rows)
    upper = numbers(row.get("at_most", row["radius"]) for row in shard.rows)
    return Radii(
        *_predictions_of(shard, place), lower, upper, seconds=shard.summary["seconds"], reasons=_reasons_of(shard)
    )


def _check_fit(shards: Sequence[ShardFile]) -> None:
    """Refuse files that are not all shards of one run, each once."""
    first = shards[0]
    differences = {
        "content": "holds another kind of results than",
        "count": "belongs to another number of shards than",
        "model": "was verified with another model than",
        "data": "was verified on other data than",
        "perturbation": "was verified under another perturbation than",
        "limits": "was verified with other limits than",
    }
    for shard in shards[1:]:
        for name, difference in differences.items():
            if getattr(first.note, name) != getattr(shard.note, name):
                raise DataError(f"{shard.name}: {difference} {first.name}; merge shards of one run")
        if shard.summary["voting"] != first.summary["voting"]:
            raise DataError(
                f"{shard.name}: was verified with another voting than {first.name}; merge shards of one run"
            )
    by_number: dict[int, str] = {}
    for shard in shards:
        if shard.note.number in by_number:
            raise DataError(
                f"{shard.name}: is shard {shard.shard} like {by_number[shard.note.number]}; give each shard once"
            )
        by_number[shard.note.number] = shard.name
    n_missing = first.note.count - len(by_number)
    if n_missing:
        # A damaged file may announce very many shards, so only the first missing ones are enumerated.
        missing = (str(number) for number in range(1, first.note.count + 1) if number not in by_number)
        listed = ", ".join(islice(missing, _MOST_LISTED))
        listed += f" and {n_missing - _MOST_LISTED} more" if n_missing > _MOST_LISTED else ""
        raise DataError(f"{n_missing} of {first.note.count} shards are missing: {listed}; verify them, then merge all")
