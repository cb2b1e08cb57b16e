"""Shards: a verification divided into parts, and their results joined into those of one run over all rows.

The parts are tasks of an executor (`search_in_pieces`), or jobs of a batch array, each of which writes a file that
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
from itertools import islice, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.execution.executors import Abandonment, TaskExecutor, run_all
from metasilvae.io.memory import JSON_EXPANSION
from metasilvae.io.storage import display_name, read_source
from metasilvae.model import LabelSet, PredictionTable
from metasilvae.verification.query import VerificationQuery
from metasilvae.verification.radius import Radii
from metasilvae.verification.targets import Change, TargetResults, TargetStatus
from metasilvae.verification.verdicts import Outcome, RowResults, Verdict

T = TypeVar("T")
R = TypeVar("R", bound=RowResults)
# Rows of a task if they are few; a forest may need a second for a row, and a task should be done in a minute.
ROWS_PER_PIECE = 16
# More tasks than this keep the scheduler busier than the workers.
MOST_PIECES = 1024
# Formats of files that can be merged.
MERGEABLE_FORMATS = ("jsonl", "json")
VERDICTS, RADII, TARGETS, NEAREST_TARGETS = "verdicts", "radii", "targets", "nearest targets"
_MOST_LISTED = 8
_SYNTAX = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
_STABILITY = {verdict.word: verdict.stability for verdict in Verdict}
# Upper limit for numbers of rows, features, trees and shards in files.
_MOST = 2**53
_STATUSES = {status.word: status for status in TargetStatus}
_ROW_KINDS = {"row": int, "prediction": list}
# What a row with a target may have besides the columns that identify it.
_TARGET_KEYS = {*_ROW_KINDS, "label", "target", "status", "distance", "at_least", "reason", "changes"}
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


def search_in_pieces(
    query: VerificationQuery,
    executor: TaskExecutor,
    search: Callable[..., R],
    on_rows: Callable[[int], object] = lambda count: None,
) -> R:
    """The results of a search for all rows, in tasks; `seconds` is the total time of all tasks.

    Once the executor is stopped, rows of unfinished tasks stay undecided if they need a search.

    Parameters
    ----------
    search : function of a query, and of `jobs` and `stop`
        Such as `metasilvae.verification.verifier.verify`; it must be possible to pickle it.
    """
    n_rows = query.dataset.n_samples
    pieces = plan_pieces(n_rows)
    shared = executor.share(query)
    # Pieces are of equal size but for one row.
    tasks = [(shared, piece, search) for piece in pieces]
    results = run_all(executor, _search_piece, tasks, lambda: on_rows(n_rows // len(pieces)))
    rows = [piece.take_rows(n_rows) for piece in pieces]
    stopped = threading.Event()
    stopped.set()
    # Of pieces that were not finished, the results that need no search.
    found: list[R] = [
        search(query.subset(places), jobs=1, stop=stopped) if result is None else result
        for places, result in zip(rows, results, strict=True)
    ]
    return join_results(rows, found)


def _search_piece(query: VerificationQuery, piece: Shard, search: Callable[..., R]) -> R:
    return search(query.subset(piece.take_rows(query.dataset.n_samples)), jobs=1, stop=Abandonment())


def join_results(rows: Sequence[NDArray[np.intp]], results: Sequence[R]) -> R:
    """Join results of parts; `rows` holds the row numbers of each of them."""
    numbers: dict[LabelSet, int] = {}
    ids: list[NDArray[np.int32]] = []
    reasons: dict[int, str] = {}
    for places, part in zip(rows, results, strict=True):
        own_numbers = [numbers.setdefault(label_set, len(numbers)) for label_set in part.predictions.sets]
        ids.append(np.array(own_numbers, dtype=np.int32)[part.predictions.ids])
        reasons |= {int(places[row]): reason for row, reason in part.reasons.items()}
    predictions = PredictionTable(tuple(numbers), _place(rows, ids))
    names = results[0].array_names
    arrays = {name: _place(rows, [getattr(part, name) for part in results]) for name in names}
    seconds = sum(part.seconds for part in results)
    return replace(
        results[0], predictions=predictions, seconds=seconds, reasons=dict(sorted(reasons.items())), **arrays
    )


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
        `VERDICTS`, `RADII`, `TARGETS` or `NEAREST_TARGETS`.
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
        is_valid = _CHECKS[VERDICTS if note is None else note.content]
        if note is not None and note.content in (TARGETS, NEAREST_TARGETS):
            _check_kinds(summary, {"target": str})
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
    return isinstance(row.get("label"), str) and isinstance(verdict, str) and verdict in _STABILITY


def _has_radius(row: dict[str, Any]) -> bool:
    """Whether a row has a radius, not above its upper bound; null stands for infinity."""
    radius = row.get("radius", math.nan)
    return isinstance(row.get("label"), str) and _are_ordered(radius, row.get("at_most", radius))


def _are_ordered(*numbers: Any) -> bool:
    """Whether values are increasing numbers from 0 on; null stands for infinity."""
    bounds = [math.inf if value is None else value for value in numbers]
    return all(type(bound) is float or (type(bound) is int and bound <= _MOST) for bound in bounds) and (
        bounds[0] >= 0 and all(low <= high for low, high in pairwise(bounds))
    )


def _has_target(row: dict[str, Any]) -> bool:
    """Whether a row has a status, and changes if it can get the label; the columns that identify it are texts."""
    status, changes = row.get("status"), row.get("changes", {})
    is_known = isinstance(status, str) and status in _STATUSES and isinstance(row.get("label", ""), str)
    ids = [value for key, value in row.items() if key not in _TARGET_KEYS]
    return (
        is_known
        and all(isinstance(value, str) for value in ids)
        and isinstance(changes, dict)
        and ("changes" in row) == (status == TargetStatus.REACHABLE.word)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in changes.values())
        and all(value is None or type(value) in (str, float, int) for pair in changes.values() for value in pair)
    )


def _has_distance(row: dict[str, Any]) -> bool:
    distance = row.get("distance", math.nan)
    return _has_target(row) and _are_ordered(row.get("at_least", distance), distance)


_CHECKS = {VERDICTS: _has_verdict, RADII: _has_radius, TARGETS: _has_target, NEAREST_TARGETS: _has_distance}


def _check_kinds(document: Any, kinds: Mapping[str, type]) -> None:
    """Refuse values of another type and impossible numbers."""
    for key, kind in kinds.items():
        value: Any = document[key]
        is_absurd = isinstance(value, int) and not 0 <= value <= _MOST
        is_odd_list = isinstance(value, list) and not (value and all(type(item) is str for item in value))
        if type(value) is not kind or is_absurd or is_odd_list:
            raise TypeError(key)


@dataclass(frozen=True)
class MergedShards:
    """What all shards of a run found.

    Attributes
    ----------
    results : Outcome, Radii or TargetResults
    changes : dict
        For rows that can get a wanted label, the columns that change.
    """

    query: MergedQuery
    perturbation: str
    results: Outcome | Radii | TargetResults
    changes: dict[int, list[Change]]


def merge_shards(shards: Sequence[ShardFile]) -> MergedShards:
    """The results of all rows; shards may come in any order."""
    shards = sorted(shards, key=lambda shard: shard.note.number)
    _check_fit(shards)
    first = shards[0]
    note, summary = first.note, first.summary
    labels = tuple(dict.fromkeys(_labels_in(shards)))
    place = {label: position for position, label in enumerate(labels)}
    rows = [shard.shard.take_rows(note.n_rows) for shard in shards]
    found: Outcome | Radii | TargetResults
    if note.content == VERDICTS:
        found = join_results(rows, [_outcome_of(shard, place) for shard in shards])
    elif note.content == RADII:
        found = join_results(rows, [_radii_of(shard, place) for shard in shards])
    else:
        found = join_results(rows, [_targets_of(shard, place) for shard in shards])
    by_row = {int(number): row for places, shard in zip(rows, shards, strict=True)
              for number, row in zip(places, shard.rows, strict=True)}  # fmt: skip
    in_order = [by_row[number] for number in range(note.n_rows)]
    has_labels = all("label" in row for row in in_order)
    y = np.array([place[row["label"]] if has_labels else 0 for row in in_order], dtype=np.int32)
    X = np.broadcast_to(np.float64(0), (note.n_rows, note.n_features))
    model = MergedModel(summary["model"], labels, note.is_forest, note.n_trees, note.n_leaves, note.max_depth)
    dataset = Dataset(X, y, labels if has_labels else (), None, summary["data"], ids=_ids_of(note, in_order))
    changes = {
        number: [(name, *pair) for name, pair in row["changes"].items()]
        for number, row in enumerate(in_order)
        if "changes" in row
    }
    return MergedShards(MergedQuery(model, dataset, summary["voting"]), summary["perturbation"], found, changes)


def _ids_of(note: ShardNote, rows: Sequence[dict[str, Any]]) -> tuple[tuple[str, NDArray[np.object_]], ...]:
    """Columns that identify rows, which only reports of targets hold."""
    if note.content not in (TARGETS, NEAREST_TARGETS):
        return ()
    names = [name for name in rows[0] if name not in _TARGET_KEYS]
    return tuple((name, np.array([row.get(name, "") for row in rows], dtype=np.object_)) for name in names)


def _labels_in(shards: Iterable[ShardFile]) -> Iterable[str]:
    for shard in shards:
        yield from [shard.summary["target"]] if "target" in shard.summary else []
        for row in shard.rows:
            yield from [row["label"]] if "label" in row else []
            yield from row["prediction"]


def _predictions_of(shard: ShardFile, place: dict[str, int]) -> tuple[PredictionTable, NDArray[np.bool_]]:
    sets: dict[LabelSet, int] = {}
    predictions = [tuple(place[label] for label in row["prediction"]) for row in shard.rows]
    ids = np.array([sets.setdefault(prediction, len(sets)) for prediction in predictions], dtype=np.int32)
    is_correct = np.array([row["prediction"] == [row.get("label")] for row in shard.rows], dtype=np.bool_)
    return PredictionTable(tuple(sets), ids), is_correct


def _reasons_of(shard: ShardFile) -> dict[int, str]:
    return {position: row["reason"] for position, row in enumerate(shard.rows) if "reason" in row}


def _outcome_of(shard: ShardFile, place: dict[str, int]) -> Outcome:
    stability = np.array([_STABILITY[row["verdict"]] for row in shard.rows], dtype=np.uint8)
    return Outcome(
        *_predictions_of(shard, place), stability, seconds=shard.summary["seconds"], reasons=_reasons_of(shard)
    )


def _as_numbers(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([np.inf if value is None else value for value in values], dtype=np.float64)


def _targets_of(shard: ShardFile, place: dict[str, int]) -> TargetResults:
    distances = at_least = None
    if shard.note.content == NEAREST_TARGETS:
        distances = _as_numbers(row["distance"] for row in shard.rows)
        at_least = _as_numbers(row.get("at_least", row["distance"]) for row in shard.rows)
    statuses = np.array([_STATUSES[row["status"]] for row in shard.rows], dtype=np.uint8)
    return TargetResults(
        *_predictions_of(shard, place), place[shard.summary["target"]], statuses, distances, at_least,
        seconds=shard.summary["seconds"], reasons=_reasons_of(shard),
    )  # fmt: skip


def _radii_of(shard: ShardFile, place: dict[str, int]) -> Radii:
    lower = _as_numbers(row["radius"] for row in shard.rows)
    upper = _as_numbers(row.get("at_most", row["radius"]) for row in shard.rows)
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
        for name in ("voting", "target"):
            if shard.summary.get(name) != first.summary.get(name):
                raise DataError(
                    f"{shard.name}: was verified with another {name} than {first.name}; merge shards of one run"
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
