"""Answers of a model, row by row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

from metasilvae.dataset import Dataset
from metasilvae.model import AnswerTable, Model


def _named_sets(model: Model, answers: AnswerTable) -> list[list[str]]:
    return [[model.labels[label] for label in label_set] for label_set in answers.sets]


def write_text(model: Model, dataset: Dataset, answers: AnswerTable) -> str:
    lines = [",".join(labels) + "\n" for labels in _named_sets(model, answers)]
    return "".join(lines[number] for number in answers.ids.tolist())


def write_csv(model: Model, dataset: Dataset, answers: AnswerTable) -> str:
    named = [",".join(labels) for labels in _named_sets(model, answers)]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["row", "label", "answer"])
    pairs = zip(dataset.y.tolist(), answers.ids.tolist(), strict=True)
    writer.writerows([row, dataset.labels[label], named[number]] for row, (label, number) in enumerate(pairs))
    return stream.getvalue()


def write_jsonl(model: Model, dataset: Dataset, answers: AnswerTable) -> str:
    named = _named_sets(model, answers)
    pairs = zip(dataset.y.tolist(), answers.ids.tolist(), strict=True)
    return "".join(
        json.dumps({"row": row, "label": dataset.labels[label], "answer": named[number]}) + "\n"
        for row, (label, number) in enumerate(pairs)
    )


ANSWER_FORMATS: dict[str, Callable[[Model, Dataset, AnswerTable], str]] = {
    "text": write_text,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
