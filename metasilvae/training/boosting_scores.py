"""Scores of samples by the trees of a boosted model, with their bounds in the boxes, and the loss of these scores.

The loss counts every sample twice: by its own scores, and by the worst ones that its box allows tree by tree.

After a few rounds most samples have a small derivative, because the model is sure of them. A tree that is grown on a
sample of the others is almost as good, as long as the values of its leaves are fitted on all samples afterwards
(`metasilvae.training.boosting_polish`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import RowWeights
from metasilvae.training.boosted_trees import UNIT, BoostedTree, Codes, Derivatives, FloatArray, IntArray

LARGEST_EXPONENT = 500.0
# Of a sample in the loss: derivatives are numbers of 32 bits, in units of 2**-24.
LARGEST_WEIGHT = 16.0
LARGEST_DERIVATIVE = np.iinfo(np.int32).max


class Scores:
    """Scores of samples by the trees so far, with their bounds in the boxes.

    With two classes there is one row of scores: those of the second label, relative to the first one.

    Attributes
    ----------
    own, lowest, highest : float64 arrays, shape (n_columns, n_samples)
    """

    def __init__(self, codes: Codes, y: NDArray[np.int32], base: FloatArray, weights: RowWeights | None = None) -> None:
        self.codes = codes
        self.y = y
        self.weights = weights
        self.own, self.lowest, self.highest = (np.repeat(base[:, None], len(y), axis=1) for _ in range(3))

    @property
    def sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.own, self.lowest, self.highest

    def add(self, tree: BoostedTree, column: int) -> None:
        self._add(tree, self.own[column], self.lowest[column], self.highest[column])

    def exchange(self, tree: BoostedTree, other: BoostedTree, column: int) -> None:
        """Take the scores of a tree off and add those of another one; scores are exact, so nothing of it is left."""
        gone, come = np.zeros((2, 3, len(self.y)))
        self._add(tree, *gone)
        self._add(other, *come)
        self.change(come - gone, column)

    def change(self, change: FloatArray, column: int) -> None:
        """Add to the scores of a label and to their lowest and highest ones, shape (3, n_samples)."""
        for part, each in zip(self.sums, change, strict=True):
            part[column] += each

    def _add(self, tree: BoostedTree, own: FloatArray, lowest: FloatArray, highest: FloatArray) -> None:
        if self.codes.exact is None:
            tree.add_to(self.codes, own, lowest, highest)
        else:
            self.codes.exact.add(tree, own, lowest, highest)

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Fractions of samples that are correct, and that the bounds prove to be stable and robust."""
        own, lowest, highest = self.own, self.lowest, self.highest
        if len(own) == 1:
            zero = np.zeros_like(own)
            own, lowest, highest = (np.concatenate([zero, each]) for each in (own, lowest, highest))
        samples = np.arange(len(self.y))
        best = own.argmax(axis=0)
        others, highest = own.copy(), highest.copy()
        others[best, samples] = highest[best, samples] = -np.inf
        is_correct = (best == self.y) & (own[best, samples] > others.max(axis=0))
        is_stable = lowest[best, samples] > highest.max(axis=0)
        fraction = np.mean if self.weights is None else self.weights.fraction
        return float(fraction(is_correct)), float(fraction(is_stable)), float(fraction(is_correct & is_stable))


def find_derivatives(scores: Scores, weights: tuple[float, float], tolerance: float = 0.0) -> list[Derivatives]:
    """Derivatives of the loss by each row of scores.

    Parameters
    ----------
    weights : pair of float
        Weights of the natural and of the certified part.
    tolerance : float
        Derivatives of the certified part are multiplied by this power of the probability of the true label: from 0,
        the logistic loss, to 1, the probability of another label, which gives up samples that are far from robust.
    """
    n_columns = len(scores.own)
    is_own = scores.y == 1 if n_columns == 1 else np.arange(n_columns)[:, None] == scores.y
    worst = np.where(is_own, scores.lowest, scores.highest)
    row_weights, _ = scale_weights(scores.weights)
    parts = []
    for weight, values, power in zip(weights, (scores.own, worst), (0.0, tolerance), strict=True):
        if n_columns == 1:
            share = 1 / (1 + np.exp(-values.clip(-LARGEST_EXPONENT, LARGEST_EXPONENT)))
            of_label = np.where(is_own, share, 1 - share)
        else:
            powers = np.exp(values - values.max(axis=0))
            share = powers / powers.sum(axis=0)
            of_label = share[scores.y, np.arange(len(scores.y))]
        factor = weight * of_label**power * row_weights
        parts += [_in_units(factor * (share - is_own)), _in_units(factor * share * (1 - share))]
    return [Derivatives(*(part[column] for part in parts)) for column in range(n_columns)]


def scale_weights(weights: RowWeights | None) -> tuple[FloatArray | float, float]:
    """Weights by their mean, divided by a power of two that keeps derivatives in 32 bits; and that number."""
    if weights is None:
        return 1.0, 1.0
    divisor = 2.0 ** max(0, math.ceil(math.log2(weights.by_mean.max() / LARGEST_WEIGHT)))
    return weights.by_mean / divisor, divisor


def _in_units(values: FloatArray) -> IntArray:
    return np.asarray(np.rint(values / UNIT), dtype=np.int32)


def draw_samples(loss: Derivatives, fraction: float, rng: np.random.Generator) -> tuple[IntArray, Derivatives, float]:
    """Draw a fraction of the samples, those with large derivatives more often.

    The derivatives of each drawn sample are divided by its probability, so that sums over the drawn samples are
    those over all samples on average. Where they become too large for 32 bits, all of them are divided by a power of
    two; a tree is the same if what is added to its second derivatives is divided by it too.

    Returns
    -------
    rows : int32 array
        The drawn samples, increasing.
    loss : Derivatives
        Of all samples; those of the drawn ones are enlarged.
    divisor : float
        By which all of them are divided; 1 unless a sample stands for very many others.
    """
    parts = (loss.own_gradient, loss.own_hessian, loss.gradient, loss.hessian)
    sizes = np.sum([np.abs(part, dtype=np.float64) for part in parts], axis=0)
    chances = find_chances(sizes, max(1.0, fraction * len(sizes)))
    rows = np.flatnonzero(rng.random(len(sizes)) < chances).astype(np.int32)
    factors = np.ones(len(sizes))
    factors[rows] = 1 / chances[rows]
    enlarged = [np.rint(part * factors) for part in parts]
    largest = max(float(np.abs(part).max(initial=0.0)) for part in enlarged)
    divisor = 1.0
    while largest / divisor > LARGEST_DERIVATIVE:
        divisor *= 2
    if divisor > 1:
        enlarged = [np.rint(part / divisor) for part in enlarged]
    return rows, Derivatives(*(part.astype(np.int32) for part in enlarged)), divisor


def find_chances(sizes: FloatArray, wanted: float) -> FloatArray:
    """Probabilities of samples, proportional to their sizes but at most 1, that add up to the wanted number.

    They add up to less if fewer samples have a size.
    """
    if wanted >= np.count_nonzero(sizes):
        return (sizes > 0).astype(np.float64)
    falling = -np.sort(-sizes)
    # If the largest samples are certain, these are the sums over the others.
    others = np.cumsum(falling[::-1])[::-1]
    n_certain = np.arange(len(sizes))
    is_enough = falling * (wanted - n_certain) <= others
    first = int(np.argmax(is_enough))
    return np.asarray(np.minimum(1.0, sizes * ((wanted - first) / others[first])))
