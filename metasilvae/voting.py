"""How the trees of a forest are counted. The answer is the set of labels with the largest score.

Scores are compared as exact numbers: they are added up in float64, and where two of them come closer than rounding
can move them, the sums are formed again as fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import RequestError
from metasilvae.model import LeafKind, Model

_ROUNDING = 2.0**-52


def _vote_max(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Each tree gives one vote to each label of its answer."""
    answers = model.leaf_answers
    is_member = np.zeros((len(answers.sets), model.n_labels), dtype=np.int32)
    for number, label_set in enumerate(answers.sets):
        is_member[number, list(label_set)] = 1
    votes = np.zeros((len(leaves), model.n_labels), dtype=np.int32)
    for tree in range(leaves.shape[1]):
        votes += is_member[answers.ids[leaves[:, tree]]]
    return np.asarray(votes == votes.max(axis=1, keepdims=True))


def _vote_average(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Each tree adds the class distribution of its leaf."""
    totals = model.leaf_values.sum(axis=1, dtype=np.float64)

    @cache
    def exact_total(leaf: int) -> int:
        return sum(model.leaf_values[leaf].tolist())

    def distribution(leaf: int, label: int) -> Fraction:
        return Fraction(int(model.leaf_values[leaf, label]), exact_total(leaf))

    return _largest_sums(model.leaf_values / totals[:, None], leaves, distribution)


def _vote_softargmax(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Each tree adds the scores of its leaf; the soft maximum is monotone, so the largest sum wins."""

    def score(leaf: int, label: int) -> Fraction:
        return Fraction(float(model.leaf_values[leaf, label]))

    return _largest_sums(model.leaf_values, leaves, score)


def _largest_sums(
    terms: NDArray[np.float64], leaves: NDArray[np.int32], exact_term: Callable[[int, int], Fraction]
) -> NDArray[np.bool_]:
    n_samples, n_trees = leaves.shape
    sums = np.zeros((n_samples, terms.shape[1]))
    sizes = np.zeros(n_samples)
    largest_size = np.abs(terms).max(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        for tree in range(n_trees):
            sums += terms[leaves[:, tree]]
            sizes += largest_size[leaves[:, tree]]
        # Each of the n_trees additions is off by at most one rounding of the running size; so is each term, whose
        # divisor is a sum over the labels.
        slack = 2 * (n_trees + terms.shape[1] + 1) * _ROUNDING * sizes
        largest = sums.max(axis=1)
        is_best: NDArray[np.bool_] = sums == largest[:, None]
        # Sums that overflow are never told apart by float64.
        is_close = (sums >= (largest - slack)[:, None]) | ~np.isfinite(sizes)[:, None]
    for row in np.flatnonzero(is_close.sum(axis=1) > 1):
        candidates = np.flatnonzero(is_close[row])
        exact = {
            label: sum((exact_term(leaf, label) for leaf in leaves[row].tolist()), Fraction(0))
            for label in candidates.tolist()
        }
        winners = [label for label, total in exact.items() if total == max(exact.values())]
        is_best[row] = False
        is_best[row, winners] = True
    return is_best


VOTINGS: dict[str, tuple[LeafKind, Callable[[Model, NDArray[np.int32]], NDArray[np.bool_]]]] = {
    "max": (LeafKind.COUNTS, _vote_max),
    "average": (LeafKind.COUNTS, _vote_average),
    "softargmax": (LeafKind.SCORES, _vote_softargmax),
}
DEFAULT_VOTING = {LeafKind.COUNTS: "max", LeafKind.SCORES: "softargmax"}


def choose_voting(model: Model, requested: str | None) -> str:
    """The voting scheme to use: the one asked for if it fits the leaves, or the usual one for them."""
    if requested is None:
        return DEFAULT_VOTING[model.leaf_kind]
    kind, _ = VOTINGS[requested]
    if kind is not model.leaf_kind:
        fitting = " or ".join(name for name, (k, _) in VOTINGS.items() if k is model.leaf_kind)
        raise RequestError(
            f"voting '{requested}' does not fit {model.source}: its leaves are {model.leaf_kind.value} leaves; "
            f"use --voting {fitting}, or leave the option out"
        )
    return requested


def count_votes(model: Model, leaves: NDArray[np.int32], voting: str) -> NDArray[np.bool_]:
    """Which labels each sample's trees elect.

    Parameters
    ----------
    leaves : int32 array, shape (n_samples, n_trees)
        Leaf of each tree for each sample.

    Returns
    -------
    bool array, shape (n_samples, n_labels)
    """
    _, count = VOTINGS[voting]
    return count(model, leaves)
