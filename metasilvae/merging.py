"""Verdict files of shards, joined into what one run over all rows would have found.

A shard's file carries a note of what it belongs to: fingerprints of the model, the data and the perturbation, so that
files that do not belong together are told apart whatever their names are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.fingerprints import of_boxes, of_dataset, of_model
from metasilvae.model import AnswerTable, LabelSet
from metasilvae.outcome import Outcome, Stability, Verdict
from metasilvae.row_pieces import join_outcomes
from metasilvae.sharding import Shard
from metasilvae.storage import display_name, read_source
from metasilvae.verification import Question

# Stability of each verdict.
_STABILITY = {
    Verdict.ROBUST.word: Stability.STABLE,
    Verdict.FRAGILE.word: Stability.UNSTABLE,
    Verdict.VULNERABLE.word: Stability.STABLE,
    Verdict.BROKEN.word: Stability.UNSTABLE,
    Verdict.NO_INFO.word: Stability.UNKNOWN,
}
# Formats that hold all that is needed to join them.
MERGEABLE_FORMATS = ("jsonl", "json")
_MOST_LISTED = 8


class ModelFacts(Protocol):
    """What reports say of a model."""

    @property
    def source(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def is_forest(self) -> bool: ...
    @property
    def n_trees(self) -> int: ...
    @property
    def n_leaves(self) -> int: ...
    @property
    def max_depth(self) -> int: ...


@dataclass(frozen=True)
class ShardNote:
    """Where a shard's verdicts belong.

    Attributes
    ----------
    number, count : int
    n_rows, n_features : int
        Of all shards together.
    model, data, perturbation : str
        Fingerprints.
    limits : dict
        Limits for each row, which verdicts may depend on.
    is_forest, n_trees, n_leaves, max_depth
        Of the model.
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

    @classmethod
    def of(cls, question: Question, shard: Shard, limits: dict[str, float]) -> ShardNote:
        """The note for a shard of a question about all rows."""
        model, dataset = question.model, question.dataset
        return cls(
            shard.number,
            shard.count,
            dataset.n_samples,
            dataset.n_features,
            of_model(model),
            of_dataset(dataset),
            of_boxes(replace(question.boxes, groups=question.groups), dataset),
            limits,
            model.is_forest,
            model.n_trees,
            model.n_leaves,
            model.max_depth,
        )


@dataclass(frozen=True)
class MergedModel:
    """The model that all shards are about, as far as they tell."""

    source: str
    labels: tuple[str, ...]
    is_forest: bool
    n_trees: int
    n_leaves: int
    max_depth: int


@dataclass(frozen=True)
class MergedQuestion:
    """What all shards are about; the samples themselves are not known and stand as zeros."""

    model: MergedModel
    dataset: Dataset
    voting: str


@dataclass(frozen=True)
class ShardFile:
    """What a shard's file holds."""

    name: str
    note: ShardNote
    summary: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def shard(self) -> Shard:
        return Shard(self.note.number, self.note.count)


def read_shard(source: str) -> ShardFile:
    """Read what ``verify --shard`` wrote, as JSON lines or as one document."""
    name = display_name(source)
    try:
        text = read_source(source).decode()
        if text.startswith("{\n"):
            summary = json.loads(text)
            rows = summary.pop("rows")
        else:
            *rows, last = [json.loads(line) for line in text.splitlines()]
            summary = last["summary"]
        note = ShardNote(**summary["shard"]) if "shard" in summary else None
        found = [(row["row"], row["label"], row["answer"], row["verdict"]) for row in rows]
        expected = [] if note is None else Shard(note.number, note.count).take_rows(note.n_rows).tolist()
    except (ValueError, KeyError, TypeError, RequestError):
        raise DataError(
            f"{name}: is not a whole verdict file; expected what `metasilvae verify --shard I/N` writes in full"
        ) from None
    if note is None:
        raise DataError(f"{name}: holds the verdicts of all rows, not of a shard; `verify --shard I/N` writes shards")
    shard = ShardFile(name, note, summary, rows)
    if [number for number, *_ in found] != expected or not {verdict for *_, verdict in found} <= set(_STABILITY):
        raise DataError(
            f"{name}: its {len(rows)} rows are not those of shard {shard.shard} of {note.n_rows} rows; verify it again"
        )
    return shard


def merge_shards(shards: Sequence[ShardFile]) -> tuple[MergedQuestion, str, Outcome]:
    """The question, the perturbation and the outcome for all rows; shards may come in any order."""
    shards = sorted(shards, key=lambda shard: shard.note.number)
    _check_fit(shards)
    first = shards[0]
    note, summary = first.note, first.summary
    labels = tuple(dict.fromkeys(_labels_in(shards)))
    place = {label: position for position, label in enumerate(labels)}
    rows = [shard.shard.take_rows(note.n_rows) for shard in shards]
    outcome = join_outcomes(rows, [_outcome_of(shard, place) for shard in shards])
    y = np.empty(note.n_rows, dtype=np.int32)
    for places, shard in zip(rows, shards, strict=True):
        y[places] = [place[row["label"]] for row in shard.rows]
    X = np.broadcast_to(np.float64(0), (note.n_rows, note.n_features))
    model = MergedModel(summary["model"], labels, note.is_forest, note.n_trees, note.n_leaves, note.max_depth)
    question = MergedQuestion(model, Dataset(X, y, labels, None, summary["data"]), summary["voting"])
    return question, summary["perturbation"], outcome


def _labels_in(shards: Iterable[ShardFile]) -> Iterable[str]:
    for shard in shards:
        for row in shard.rows:
            yield row["label"]
            yield from row["answer"]


def _outcome_of(shard: ShardFile, place: dict[str, int]) -> Outcome:
    sets: dict[LabelSet, int] = {}
    answers = [tuple(place[label] for label in row["answer"]) for row in shard.rows]
    ids = np.array([sets.setdefault(answer, len(sets)) for answer in answers], dtype=np.int32)
    return Outcome(
        AnswerTable(tuple(sets), ids),
        np.array([row["answer"] == [row["label"]] for row in shard.rows], dtype=np.bool_),
        np.array([_STABILITY[row["verdict"]] for row in shard.rows], dtype=np.uint8),
        shard.summary["seconds"],
        {position: row["reason"] for position, row in enumerate(shard.rows) if "reason" in row},
    )


def _check_fit(shards: Sequence[ShardFile]) -> None:
    """Refuse files that are not all shards of one run, each once."""
    first = shards[0]
    kinds = {
        "count": "is one of another number of shards",
        "model": "was verified with another model",
        "data": "was verified on other data",
        "perturbation": "was verified under another perturbation",
        "limits": "was verified with other limits",
    }
    for shard in shards[1:]:
        for each in fields(ShardNote):
            ours, theirs = getattr(first.note, each.name), getattr(shard.note, each.name)
            if each.name in kinds and ours != theirs:
                raise DataError(f"{shard.name}: {kinds[each.name]} than {first.name}; merge those of one run")
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
    missing = [number for number in range(1, first.note.count + 1) if number not in by_number]
    if missing:
        listed = ", ".join(map(str, missing[:_MOST_LISTED]))
        listed += f" and {len(missing) - _MOST_LISTED} more" if len(missing) > _MOST_LISTED else ""
        raise DataError(
            f"{len(missing)} of {first.note.count} shards are missing: {listed}; verify them, then merge all"
        )
