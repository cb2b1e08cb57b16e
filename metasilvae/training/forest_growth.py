"""Growing the trees of a forest for the votes that they cast together.

Each tree is grown on rows drawn with weights: rows on which the forest so far is wrong, or can be made wrong within
their boxes, are drawn more often. Trees are grown in small batches, the same ones for any number of workers, and the
growth of one tree is a task that depends on its arguments alone, so that any worker can do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Enlarged, Perturbation
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.forest_votes import Counts, GrowingForest
from metasilvae.training.interactions import Interaction
from metasilvae.training.large import make_single_tree_trainer
from metasilvae.training.options import ForestOptions, TrainingOptions
from metasilvae.training.population import list_interactions
from metasilvae.training.protocol import Trainer, TrainerGroup
from metasilvae.training.samples import give_directions

# Margins are counted as if a forest had no more trees than this.
COUNTED_TREES = 12
LARGEST_EXPONENT = 500.0


@dataclass(frozen=True)
class TreeTask:
    """One tree to grow.

    Attributes
    ----------
    options : TrainingOptions
        Options with the seed of the tree.
    rows : intp array
        Rows to train on, increasing; a row may occur several times.
    features : int32 array
        Features that the tree may test, increasing.
    is_single : bool
        Whether the tree is the whole result, found as without a forest.
    interactions : tuple of Interaction or None
        Features that trees of its initial population begin with, by their numbers in the data set; None looks for them.
        A single tree looks for them in any case.
    """

    options: TrainingOptions
    rows: NDArray[np.intp]
    features: NDArray[np.int32]
    is_single: bool = False
    interactions: tuple[Interaction, ...] | None = None


def grow_tree(dataset: Dataset, perturbation: Perturbation, task: TreeTask, group: TrainerGroup | None = None) -> Model:
    """Do a task on one thread; if the group is stopped, the best tree so far."""
    part = Dataset(
        np.ascontiguousarray(dataset.X[np.ix_(task.rows, task.features)]), dataset.y[task.rows], dataset.labels,
        source=dataset.source, indicators=None if dataset.indicators is None else dataset.indicators[task.features],
        missing_columns=dataset.columns_with_missing[task.features],
        weights=None if dataset.weights is None else dataset.weights.subset(task.rows),
    )  # fmt: skip
    those = part, perturbation.for_features(task.features), task.options, 1
    trainer: Trainer
    if task.is_single:
        trainer = make_single_tree_trainer(*those)
    else:
        parts = None if task.interactions is None else [each.among(task.features) for each in task.interactions]
        trainer = TreeTrainer(*those, interactions=None if parts is None else [each for each in parts if each])
    tree = (group or TrainerGroup()).run(trainer)
    nodes = tree.nodes.copy()
    inner = nodes["feature"] >= 0
    nodes["feature"][inner] = task.features[nodes["feature"][inner]]
    tree = replace(tree, nodes=nodes, n_features=dataset.n_features)
    return give_directions(tree) if dataset.columns_with_missing.any() else tree


def plan_tree(
    options: ForestOptions,
    number: int,
    rows: NDArray[np.intp],
    weights: NDArray[np.float64] | None,
    n_features: int,
    time_limit: float,
    interactions: tuple[Interaction, ...] | None = None,
) -> TreeTask:
    """The task of one tree; its random draws depend on the seed and on the number of the tree alone.

    Parameters
    ----------
    rows : intp array
        Rows to draw from, increasing.
    weights : float64 array or None
        Weights of these rows; None draws all with the same probability, none of them twice.
    interactions : tuple of Interaction or None
        See `TreeTask`.
    """
    rng = np.random.default_rng(np.random.SeedSequence(options.tree.seed, spawn_key=(number,)))
    seed = int(rng.integers(2**63 - 1))
    if options.is_single:
        # The same tree as without a forest.
        seed = options.tree.seed
    n_drawn = options.features_per_tree(n_features)
    features = np.sort(rng.permutation(n_features)[:n_drawn]).astype(np.int32)
    n_rows = max(1, round(options.row_fraction * len(rows)))
    order = rng.permutation(len(rows))
    drawn = order[:n_rows] if weights is None else order[draw_evenly(weights[order], n_rows, rng.random())]
    fixed: dict[str, Any] = {"validation": 0.0, "allowed_features": 0, "target": np.inf}
    is_tuned = options.is_single and options.tree.tune
    tree = replace(options.tree, seed=seed, time_limit=time_limit, tune=is_tuned, **fixed)
    return TreeTask(tree, np.sort(rows[drawn]), features, options.is_single, interactions)


def draw_evenly(weights: NDArray[np.float64], n_drawn: int, start: float) -> NDArray[np.intp]:
    """Draw positions in proportion to weights, each as often as expected, up to one more or less.

    Parameters
    ----------
    start : float
        A random number from 0 to 1.
    """
    reached = np.cumsum(weights)
    places = (start + np.arange(n_drawn)) / n_drawn * reached[-1]
    return np.asarray(np.minimum(np.searchsorted(reached, places, side="right"), len(weights) - 1))


def weigh_rows(votes: GrowingForest, options: ForestOptions) -> NDArray[np.float64]:
    """Weight of each row for the next tree: the smaller the margin by which the forest is correct, the larger."""
    # In a large forest a few hard rows would take all the weight.
    unit = options.strength * min(1.0, COUNTED_TREES / votes.n_trees)

    def doubt(margins: Counts) -> NDArray[np.float64]:
        return np.asarray(1 / (1 + np.exp(np.minimum(unit * margins, LARGEST_EXPONENT))))

    return options.focus * doubt(votes.worst_margins) + (1 - options.focus) * doubt(votes.own_margins)


# Trees that are grown at the same time for the same forest; more of them differ too little.
LARGEST_BATCH = 4


def split_into_batches(numbers: Sequence[int], is_reweighted: bool) -> list[Sequence[int]]:
    """Tree numbers in batches: small ones first, so that a usable forest exists early."""
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
    interact: bool = True,
) -> Iterator[tuple[Model, GrowingForest]]:
    """Yield each tree together with the votes of the forest up to it.

    Parameters
    ----------
    rows : intp array
        Rows to train on, increasing.
    numbers : sequence of int
        Numbers of the trees; the random draws of a tree depend on its number.
    grow : function
        Does the tasks of a batch and returns the trees in their order; fewer if it was stopped.
    interact : bool
        Whether to look for features that tell something only together.
    """
    learned = dataset if len(rows) == dataset.n_samples else dataset.subset(rows)
    forest = GrowingForest(learned, Enlarged(perturbation, options.tree.training_epsilon_factor), jobs)
    # Drawn rows tell no more than all of them.
    interactions = list_interactions(learned, options.tree) if interact and not options.is_single else ()
    weights = None
    for batch in split_into_batches(numbers, options.is_reweighted):
        tasks = [
            plan_tree(options, number, rows, weights, dataset.n_features, seconds_left(), interactions)
            for number in batch
        ]
        n_before = forest.n_trees
        for tree in grow(tasks):
            forest.add(tree)
            yield tree, forest
        if forest.n_trees < n_before + len(tasks):
            return
        if options.is_reweighted:
            weights = weigh_rows(forest, options)
