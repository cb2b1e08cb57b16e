"""A complete search, within limits, for samples that two forests answer differently.

The search itself is model/difference.pyx.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.common.status import SearchStatus
from metasilvae._core.model import difference as kernel
from metasilvae.forest_verification import INTERRUPTED, STEPS, STEPS_PER_SLICE, TIMEOUT, Limits
from metasilvae.model import Model, join_trees
from metasilvae.voting import VOTINGS

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Findings:
    """What a search found.

    Attributes
    ----------
    box : pair of float64 arrays, shape (n_features,), or None
        Closed bounds of a box in which the answers differ everywhere.
    reason : str or None
        Why the search ended before it could decide; None if it has decided.
    n_steps : int
        Boxes looked at.
    """

    box: tuple[FloatArray, FloatArray] | None
    reason: str | None
    n_steps: int


def search_difference(
    first: Model,
    second: Model,
    votings: tuple[str, str],
    lower: FloatArray,
    upper: FloatArray,
    is_equal: Callable[[int], bool],
    differs_in: Callable[[FloatArray, FloatArray], bool],
    *,
    limits: Limits,
    stop: threading.Event | None = None,
    on_share: Callable[[float], object] = lambda share: None,
) -> Findings:
    """Search for a box in which two forests answer differently.

    Parameters
    ----------
    lower, upper : float64 arrays, shape (n_features,)
        Where to search.
    is_equal : function of a position
        Whether the trees at this position contribute the same to the votes everywhere between lower and upper.
    differs_in : function of bounds
        Whether the exact answers differ in a box that no test divides.
    limits : Limits
        For the whole search.
    stop : threading.Event or None
        Ends the search once set.
    on_share : function
        Called with the part of the search that is done, from 0 to 1.
    """
    start = time.perf_counter()
    models = _name_alike(first.feasible, second.feasible)
    units, slack = _score(models, votings)
    kind = first.leaf_kind
    joined = join_trees(
        [replace(model, leaf_values=part, leaf_kind=kind) for model, part in zip(models, units, strict=True)]
    )
    is_known = np.array([[label in model.labels for label in joined.labels] for model in (first, second)])
    search = kernel.DifferenceSearch(
        joined.nodes, joined.roots, first.n_trees, joined.max_depth,
        _find_shared(models, units, votings, is_equal), joined.leaf_values, is_known.astype(np.uint8), slack,
        lower, upper,
    )  # fmt: skip
    while True:
        left = STEPS_PER_SLICE if limits.steps is None else limits.steps - search.n_steps
        found = search.advance(min(STEPS_PER_SLICE, left))
        on_share(search.done)
        if found == SearchStatus.ABSENT:
            return Findings(None, None, search.n_steps)
        if found in (SearchStatus.FOUND, SearchStatus.CANDIDATE):
            box = search.box[0].copy(), search.box[1].copy()
            if differs_in(*box):
                return Findings(box, None, search.n_steps)
            assert found == SearchStatus.CANDIDATE
        if stop is not None and stop.is_set():
            return Findings(None, INTERRUPTED, search.n_steps)
        if limits.steps is not None and search.n_steps >= limits.steps:
            return Findings(None, STEPS, search.n_steps)
        if limits.seconds is not None and time.perf_counter() - start >= limits.seconds:
            return Findings(None, TIMEOUT, search.n_steps)


def _name_alike(first: Model, second: Model) -> tuple[Model, Model]:
    """The same trees with the labels of both; nothing is ever counted for a label that a model does not know."""
    labels = tuple(dict.fromkeys([*first.labels, *second.labels]))

    def rename(model: Model) -> Model:
        values = np.zeros((model.n_leaves, len(labels)), dtype=model.leaf_values.dtype)
        values[:, [labels.index(label) for label in model.labels]] = model.leaf_values
        return replace(model, leaf_values=values, labels=labels)

    return rename(first), rename(second)


def _score(models: tuple[Model, Model], votings: tuple[str, str]) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Scores of the leaves of each model in whole numbers, in the same unit if they vote alike; and slacks of sums."""
    if votings[0] == votings[1]:
        scores = VOTINGS[votings[0]].score(join_trees(models))
        units = np.split(scores.units, [models[0].n_leaves])
        errors = [scores.error, scores.error]
    else:
        each = [VOTINGS[voting].score(model) for model, voting in zip(models, votings, strict=True)]
        units, errors = [scores.units for scores in each], [scores.error for scores in each]
    slack = [2 * error * model.n_trees for error, model in zip(errors, models, strict=True)]
    return units, np.array(slack, dtype=np.int64)


def _find_shared(
    models: tuple[Model, Model],
    units: list[NDArray[np.int64]],
    votings: tuple[str, str],
    is_equal: Callable[[int], bool],
) -> NDArray[np.uint8]:
    """Which trees have a counterpart in the other model: the same tree anywhere, or an equal one at the same place."""
    is_shared = [np.zeros(model.n_trees, dtype=np.uint8) for model in models]
    if votings[0] != votings[1]:
        return np.concatenate(is_shared)
    keys = [
        [_key_of(model, part, position) for position in range(model.n_trees)]
        for model, part in zip(models, units, strict=True)
    ]
    common = Counter(keys[0]) & Counter(keys[1])
    for flags, own in zip(is_shared, keys, strict=True):
        left = common.copy()
        for position, key in enumerate(own):
            flags[position] = left[key] > 0
            left[key] -= 1
    for position in range(min(models[0].n_trees, models[1].n_trees)):
        if not is_shared[0][position] and not is_shared[1][position] and is_equal(position):
            is_shared[0][position] = is_shared[1][position] = 1
    return np.concatenate(is_shared)


def _key_of(model: Model, units: NDArray[np.int64], position: int) -> Hashable:
    """Something that is the same for the same tests in the same places with the same scores."""
    tree = replace(model, leaf_values=units).tree(position)
    return tree.nodes["feature"].tobytes(), tree.nodes["threshold"].tobytes(), tree.leaf_values.tobytes()
