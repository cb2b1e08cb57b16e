"""Voting: how the trees of a forest are counted. The prediction is the set of labels with the largest score.

Scores are compared exactly: they are added in float64, and where two sums differ by less than the rounding error, they
are added again as fractions. Searches add whole numbers instead (`Scores`) and use fractions in the same cases.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import MetasilvaeWarning, RequestError
from metasilvae.model import LeafKind, Model

_ROUNDING = 2.0**-52
# Sums of scores, and differences of sums, stay below two to this power plus one.
_SUM_BITS = 60
_FRACTION_BITS = 44
ExactTerm = Callable[[int, int], Fraction]


@dataclass(frozen=True)
class Scores:
    """The term that each leaf adds to the score of each label, in whole numbers.

    Attributes
    ----------
    units : int64 array, shape (n_leaves, n_labels)
        The unit depends on the voting scheme; sums over all trees do not overflow.
    error : int
        No exact score is farther from its whole number than this; 0 if they are the same.
    scale : Fraction
        Whole numbers for an exact score of 1.
    exact : function of leaf and label
        The exact scores.
    """

    units: NDArray[np.int64]
    error: int
    scale: Fraction
    exact: ExactTerm


def _vote_max(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Each tree gives one vote to each label of its prediction."""
    is_member = model.leaf_predictions.memberships(model.n_labels)
    votes = np.zeros((len(leaves), model.n_labels), dtype=np.int32)
    for tree in range(leaves.shape[1]):
        votes += is_member[model.leaf_predictions.ids[leaves[:, tree]]]
    return np.asarray(votes == votes.max(axis=1, keepdims=True))


def _score_votes(model: Model) -> Scores:
    units = model.leaf_predictions.memberships(model.n_labels)[model.leaf_predictions.ids].astype(np.int64)
    return Scores(units, 0, Fraction(1), lambda leaf, label: Fraction(int(units[leaf, label])))


def _vote_average(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Each tree adds the class distribution of its leaf."""
    return _largest_sums(_fractions(model), leaves, _exact_fractions(model))


def _fractions(model: Model) -> NDArray[np.float64]:
    totals = model.leaf_values.sum(axis=1, dtype=np.float64)
    return np.asarray(model.leaf_values / totals[:, None])


def _share_votes(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.float64]:
    """Fractions of the votes; of a single tree, class fractions in its leaf."""
    if model.n_trees == 1:
        return _share_fractions(model, leaves)
    return _normalize(_add_up(_score_votes(model).units.astype(np.float64), leaves))


def _share_fractions(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.float64]:
    """The mean of the class distributions of the leaves; without any sample, a leaf has all classes alike."""
    with np.errstate(invalid="ignore"):
        fractions = _fractions(model)
    # Not divided by its sum, which is rounded: equal fractions stay equal.
    sums = _add_up(np.where(np.isnan(fractions), 1 / model.n_labels, fractions), leaves)
    return np.asarray(sums / leaves.shape[1])


def _share_scores(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.float64]:
    """The soft maximum of the summed scores; scores that are class distributions are averaged instead."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _add_up(model.leaf_values, leaves)
        if holds_distributions(model):
            return _normalize(sums)
        shares = np.exp(sums - sums.max(axis=1, keepdims=True))
    overflowed = np.flatnonzero(~np.isfinite(sums).all(axis=1))
    shares[overflowed] = _vote_softargmax(model, leaves[overflowed])
    return _normalize(shares)


def _rank_scores(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.float64]:
    """Log odds of each label: they order samples as its probability does, and are not rounded to 1."""
    shares = _share_scores(model, leaves)
    if holds_distributions(model) or model.n_labels == 1:
        return shares
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sums = _add_up(model.leaf_values, leaves)
        odds = np.empty_like(sums)
        for label in range(model.n_labels):
            # Sorted, so that labels in another order give the same number.
            others = np.sort(np.delete(sums, label, axis=1), axis=1)
            largest = others[:, -1]
            odds[:, label] = sums[:, label] - largest - np.log(np.exp(others - largest[:, None]).sum(axis=1))
        # Sums that overflow: the odds of their probabilities, which are 0 or 1.
        is_finite = np.isfinite(sums).all(axis=1, keepdims=True)
        return np.where(is_finite, odds, np.log(shares) - np.log1p(-shares))


def holds_distributions(model: Model) -> bool:
    """Whether the scores of every leaf are a class distribution, as in forests with weights that are imported.

    Libraries store it as it is, or divided by the number of trees.
    """
    if model.leaf_kind is not LeafKind.SCORES or (model.leaf_values < 0).any():
        return False
    with np.errstate(over="ignore"):
        totals = model.leaf_values.sum(axis=1)
    return any(bool(np.allclose(totals, total, rtol=1e-5, atol=0)) for total in (1.0, 1 / model.n_trees))


def _add_up(terms: NDArray[np.float64], leaves: NDArray[np.int32]) -> NDArray[np.float64]:
    sums = np.zeros((len(leaves), terms.shape[1]))
    for tree in range(leaves.shape[1]):
        sums += terms[leaves[:, tree]]
    return sums


def _normalize(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _exact_fractions(model: Model) -> ExactTerm:
    @cache
    def exact_total(leaf: int) -> int:
        return sum(model.leaf_values[leaf].tolist())

    return lambda leaf, label: Fraction(int(model.leaf_values[leaf, label]), exact_total(leaf))


def _score_fractions(model: Model) -> Scores:
    bits = min(_FRACTION_BITS, _SUM_BITS - model.n_trees.bit_length())
    units = np.rint(_fractions(model) * 2.0**bits).astype(np.int64)
    # A fraction is off by one rounding of its count, of the quotient and of each addition to its divisor, all of them
    # at most 2**-53 of it; n_labels + 2 such steps of 2**44 units, and half a unit for the whole number.
    return Scores(units, 1 + (model.n_labels + 2) // 256, Fraction(2**bits), _exact_fractions(model))


def _vote_softargmax(model: Model, leaves: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Each tree adds the scores of its leaf; the soft maximum is monotone, so the largest sum wins."""
    return _largest_sums(model.leaf_values, leaves, _exact_values(model))


def _exact_values(model: Model) -> ExactTerm:
    return lambda leaf, label: Fraction(float(model.leaf_values[leaf, label]))


def _score_values(model: Model) -> Scores:
    values = model.leaf_values
    _, exponent = np.frexp(np.abs(values).max())
    shift = _SUM_BITS - model.n_trees.bit_length() - int(exponent)
    with np.errstate(under="ignore"):
        scaled = np.ldexp(values, shift)
    whole = np.rint(scaled)
    is_exact = bool((np.ldexp(whole, -shift) == values).all())
    return Scores(whole.astype(np.int64), 0 if is_exact else 1, Fraction(2) ** shift, _exact_values(model))


def _largest_sums(terms: NDArray[np.float64], leaves: NDArray[np.int32], exact_term: ExactTerm) -> NDArray[np.bool_]:
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
        # Sums that overflow cannot be compared in float64.
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


@dataclass(frozen=True)
class VotingScheme:
    """A way to count.

    Attributes
    ----------
    leaf_kind : LeafKind
        The kind of leaves it fits.
    count : function
        The winning labels of samples, given their leaves.
    score : function
        Scores for searches.
    share : function
        Probabilities of the labels of samples, given their leaves.
    rank : function
        Numbers that order samples as the probability of each label does, in finer steps where that is rounded.
    """

    leaf_kind: LeafKind
    count: Callable[[Model, NDArray[np.int32]], NDArray[np.bool_]]
    score: Callable[[Model], Scores]
    share: Callable[[Model, NDArray[np.int32]], NDArray[np.float64]]
    rank: Callable[[Model, NDArray[np.int32]], NDArray[np.float64]]


VOTINGS: dict[str, VotingScheme] = {
    "max": VotingScheme(LeafKind.COUNTS, _vote_max, _score_votes, _share_votes, _share_votes),
    "average": VotingScheme(LeafKind.COUNTS, _vote_average, _score_fractions, _share_fractions, _share_fractions),
    "softargmax": VotingScheme(LeafKind.SCORES, _vote_softargmax, _score_values, _share_scores, _rank_scores),
}
DEFAULT_VOTING = {LeafKind.COUNTS: "max", LeafKind.SCORES: "softargmax"}


def choose_voting(model: Model, requested: str | None) -> str:
    """The requested voting scheme if it fits the leaves, or that of the model, or the default one for its leaves.

    A request that contradicts the description of the model causes a warning.
    """
    if requested is None:
        return model.description.voting or DEFAULT_VOTING[model.leaf_kind]
    if requested not in VOTINGS:
        raise RequestError(f"voting {requested!r}: choose among {', '.join(VOTINGS)}")
    if VOTINGS[requested].leaf_kind is not model.leaf_kind:
        fitting = " or ".join(name for name, scheme in VOTINGS.items() if scheme.leaf_kind is model.leaf_kind)
        raise RequestError(
            f"voting '{requested}' does not fit {model.source}: its leaves are {model.leaf_kind.value} leaves; "
            f"use --voting {fitting}, or leave the option out"
        )
    own = model.description.voting
    if own not in (None, requested) and model.n_trees > 1:
        message = f"{model.source}: its trees vote by {own}; --voting {requested} asks for another prediction"
        warnings.warn(message, MetasilvaeWarning, stacklevel=3)
    return requested


def count_votes(model: Model, leaves: NDArray[np.int32], voting: str) -> NDArray[np.bool_]:
    """Which labels win for each sample.

    Parameters
    ----------
    leaves : int32 array, shape (n_samples, n_trees)
        Leaf of each tree for each sample.

    Returns
    -------
    bool array, shape (n_samples, n_labels)
    """
    return VOTINGS[voting].count(model, leaves)
