"""Samples that a boosted tree is grown on: those that the loss depends on most.

After a few rounds most samples have a small derivative, because the model is sure of them. A tree that is grown on a
sample of the others is almost as good, as long as the values of its leaves are fitted on all samples afterwards
(`metasilvae.training.boosting_polish`).
"""

from __future__ import annotations

import numpy as np

from metasilvae.training.boosted_trees import Derivatives, FloatArray, IntArray


def draw_samples(loss: Derivatives, fraction: float, rng: np.random.Generator) -> tuple[IntArray, Derivatives]:
    """Draw a fraction of the samples, those with large derivatives more often.

    The derivatives of each drawn sample are divided by its probability, so that sums over the drawn samples are
    those over all samples on average.

    Returns
    -------
    rows : int32 array
        The drawn samples, increasing.
    loss : Derivatives
        Of all samples; those of the drawn ones are enlarged.
    """
    parts = (loss.own_gradient, loss.own_hessian, loss.gradient, loss.hessian)
    sizes = np.sum([np.abs(part, dtype=np.float64) for part in parts], axis=0)
    chances = find_chances(sizes, max(1.0, fraction * len(sizes)))
    rows = np.flatnonzero(rng.random(len(sizes)) < chances).astype(np.int32)
    factors = np.ones(len(sizes))
    factors[rows] = 1 / chances[rows]
    return rows, Derivatives(*(np.rint(part * factors).astype(np.int32) for part in parts))


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
