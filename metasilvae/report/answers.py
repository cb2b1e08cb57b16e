"""Answers of a model, row by row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from metasilvae.dataset import Dataset
from metasilvae.model import AnswerTable, Model


def _named_sets(model: Model, answers: AnswerTable) -> list[list[str]]:
    return [[model.labels[label] for label in label_set] for label_set in answers.sets]


def write_text(model: Model, dataset: Dataset, answers: AnswerTable) -> str:
    lines = [",".join(labels) + "\n" for labels in _named_sets(model, answers)]
    return "".join(lines[number] for number in answers.ids.tolist())


def _records(model: Model, dataset: Dataset, answers: AnswerTable) -> Iterator[dict[str, Any]]:
    named = _named_sets(model, answers)
    pairs = zip(dataset.y.tolist(), answers.ids.tolist(), strict=True)
    for row, (label, number) in enumerate(pairs):
        true_label = {"label": dataset.labels[label]} if dataset.has_labels else {}
        yield {"row": row, **true_label, "answer": named[number]}


def write_csv(model: Model, dataset: Dataset, answers: AnswerTable) -> str:
    stream = io.StringIO()
    names = ["row", *(["label"] if dataset.has_labels else []), "answer"]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**record, "answer": ",".join(record["answer"])} for record in _records(model, dataset, answers))
    return stream.getvalue()


def write_jsonl(model: Model, dataset: Dataset, answers: AnswerTable) -> str:
    return "".join(json.dumps(record) + "\n" for record in _records(model, dataset, answers))


ANSWER_FORMATS: dict[str, Callable[[Model, Dataset, AnswerTable], str]] = {
    "text": write_text,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
