"""How often models answer the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.evaluation import classify
from metasilvae.model import Model


def count_equal_answers(
    models: Sequence[Model], dataset: Dataset, *, voting: str | None = None, jobs: int | None = None
) -> NDArray[np.int64]:
    """Number of rows on which each pair of models answers the same set of labels, shape (n_models, n_models).

    Labels are compared by name, because models may order them differently.
    """
    number_of: dict[frozenset[str], int] = {}
    answers = np.empty((len(models), dataset.n_samples), dtype=np.int32)
    for row, model in zip(answers, models, strict=True):
        table = classify(model, dataset, voting=voting, jobs=jobs)
        named = [frozenset(model.labels[label] for label in labels) for labels in table.sets]
        common = np.array([number_of.setdefault(labels, len(number_of)) for labels in named], dtype=np.int32)
        row[:] = common[table.ids]
    equal = np.empty((len(models), len(models)), dtype=np.int64)
    for first in range(len(models)):
        equal[first] = (answers == answers[first]).sum(axis=1)
    return equal
