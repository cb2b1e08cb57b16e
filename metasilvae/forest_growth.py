"""Growing a forest batch by batch, each batch with regard to the forest before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.ensemble_votes import GrowingForest
from metasilvae.forest_options import ForestOptions
from metasilvae.model import Model
from metasilvae.perturbation import Enlarged, Perturbation
from metasilvae.tree_tasks import TreeTask, plan_tree, weigh_rows

# Trees that are grown at the same time for the same forest; more of them differ too little.
LARGEST_BATCH = 4


def split_into_batches(numbers: Sequence[int], is_reweighted: bool) -> list[Sequence[int]]:
    """Tree numbers in batches: small ones first, so that a forest to look at is there soon."""
    if not is_reweighted:
        return [numbers]
    batches, start = [], 0
    while start < len(numbers):
        size = min(LARGEST_BATCH, max(1, start))
        batches.append(numbers[start : start + size])
        start += size
    return batches


def grow_forest(
    dataset: Dataset,
    perturbation: Perturbation,
    options: ForestOptions,
    rows: NDArray[np.intp],
    numbers: Sequence[int],
    grow: Callable[[list[TreeTask]], Iterable[Model]],
    seconds_left: Callable[[], float],
    jobs: int | None = 1,
) -> Iterator[tuple[Model, GrowingForest]]:
    """Yield each tree together with the votes of the forest up to it.

    Parameters
    ----------
    rows : intp array
        Rows to learn from, increasing.
    numbers : sequence of int
        Of the trees; a number stands for what is drawn for the tree.
    grow : function
        Does the tasks of a batch and gives the trees in their order; fewer if it was stopped.
    """
    learned = dataset if len(rows) == dataset.n_samples else dataset.subset(rows)
    forest = GrowingForest(learned, Enlarged(perturbation, options.tree.radius_factor), jobs)
    weights = None
    for batch in split_into_batches(numbers, options.is_reweighted):
        tasks = [plan_tree(options, number, rows, weights, dataset.n_features, seconds_left()) for number in batch]
        n_before = forest.n_trees
        for tree in grow(tasks):
            forest.add(tree)
            yield tree, forest
        if forest.n_trees < n_before + len(tasks):
            return
        if options.is_reweighted:
            weights = weigh_rows(forest, options)
