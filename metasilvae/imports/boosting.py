"""What boosted trees of all libraries have in common: each adds to the score of one label.

With two labels there is one score only, and its sign decides: the first label has score 0 throughout, the second one
the library's. The answer at 0 is both labels, whichever of them the library takes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metasilvae.imports.builder import Nodes, single_leaf


def place_scores(values: NDArray[np.float64], column: int, n_columns: int) -> NDArray[np.float64]:
    """Scores of all labels, from those that a tree adds to one of the library's scores."""
    scores = np.zeros((len(values), max(2, n_columns)))
    scores[:, 1 if n_columns == 1 else column] = values
    return scores


def spread_scores(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of all labels, from those that the library keeps, shape (n_samples,) or (n_samples, n_columns)."""
    columns = np.asarray(raw, dtype=np.float64).reshape(len(raw), -1)
    if columns.shape[1] > 1:
        return columns
    return np.column_stack([np.zeros(len(columns)), columns[:, 0]])


def start_trees(base: NDArray[np.float64]) -> list[Nodes]:
    """What every sum starts from, as a tree of one leaf: added to a leaf of another tree it would be rounded."""
    return [single_leaf(spread_scores(base[None, :])[0].tolist())] if base.any() else []
