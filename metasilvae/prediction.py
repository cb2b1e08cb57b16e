"""Classifying samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.model import predict as kernel
from metasilvae.model import AnswerTable, Model
from metasilvae.parallel import over_rows
from metasilvae.voting import choose_voting, count_votes


def find_leaves(model: Model, X: NDArray[np.float64], jobs: int | None = 1) -> NDArray[np.int32]:
    """Leaf of each tree that each sample falls into, shape (n_samples, n_trees)."""
    leaves = np.empty((len(X), model.n_trees), dtype=np.int32)
    over_rows(lambda start, stop: kernel.fill_leaves(model.nodes, model.roots, X, start, stop, leaves), len(X), jobs)
    return leaves


def predict(model: Model, X: NDArray[np.float64], voting: str | None = None, jobs: int | None = 1) -> AnswerTable:
    """Answer of the model for each sample: a set of labels, because votes and counts can tie.

    Parameters
    ----------
    X : float64 array, C-contiguous, shape (n_samples, n_features)
        With every feature that the model tests.
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    jobs : int or None
        Threads; None means all available cores.
    """
    voting = choose_voting(model, voting)
    leaves = find_leaves(model, X, jobs)
    if model.n_trees == 1:
        answers = model.leaf_answers
        return AnswerTable(answers.sets, answers.ids[leaves[:, 0]])
    return AnswerTable.of_best(count_votes(model, leaves, voting))
