"""Growing one tree of a forest, as a task that any worker can do: it depends on its arguments alone."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.ensemble_votes import Counts, GrowingForest
from metasilvae.forest_options import ForestOptions
from metasilvae.model import Model
from metasilvae.perturbation import Perturbation
from metasilvae.training import Trainer
from metasilvae.training_options import TrainingOptions

# Margins are counted as if a forest had no more trees than this.
COUNTED_TREES = 12
LARGEST_EXPONENT = 500.0


class Stoppable:
    """Ends all trainers that run under it, from any thread; those that come later end at once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: list[Trainer] = []
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True
        for trainer in list(self._running):
            trainer.stop()

    def run(self, trainer: Trainer) -> Model:
        with self._lock:
            self._running.append(trainer)
        if self.is_stopped:
            trainer.stop()
        for _ in trainer.run():
            pass
        with self._lock:
            self._running.remove(trainer)
        return trainer.model


@dataclass(frozen=True)
class TreeTask:
    """One tree to grow.

    Attributes
    ----------
    options : TrainingOptions
        With the seed of the tree.
    rows : intp array
        Of the data set, increasing; a row may occur several times.
    features : int32 array
        That the tree may test, increasing.
    """

    options: TrainingOptions
    rows: NDArray[np.intp]
    features: NDArray[np.int32]


def grow_tree(
    dataset: Dataset, perturbation: Perturbation, task: TreeTask, stoppable: Stoppable | None = None
) -> Model:
    """Do a task on one thread; when stopped, the best tree so far."""
    part = Dataset(
        np.ascontiguousarray(dataset.X[np.ix_(task.rows, task.features)]), dataset.y[task.rows], dataset.labels,
        source=dataset.source,
    )  # fmt: skip
    tree = (stoppable or Stoppable()).run(Trainer(part, perturbation.for_features(task.features), task.options, 1))
    nodes = tree.nodes.copy()
    inner = nodes["feature"] >= 0
    nodes["feature"][inner] = task.features[nodes["feature"][inner]]
    return replace(tree, nodes=nodes, n_features=dataset.n_features)


def plan_tree(
    options: ForestOptions,
    number: int,
    rows: NDArray[np.intp],
    weights: NDArray[np.float64] | None,
    n_features: int,
    time_limit: float,
) -> TreeTask:
    """The task of one tree; what it draws depends on the seed and on the number of the tree alone.

    Parameters
    ----------
    rows : intp array
        Rows to draw from, increasing.
    weights : float64 array or None
        Of these rows; None means that all are drawn alike, none of them twice.
    """
    rng = np.random.default_rng(np.random.SeedSequence(options.tree.seed, spawn_key=(number,)))
    seed = int(rng.integers(2**63 - 1))
    n_drawn = options.features_per_tree(n_features)
    features = np.sort(rng.permutation(n_features)[:n_drawn]).astype(np.int32)
    n_rows = max(1, round(options.share_of_rows * len(rows)))
    order = rng.permutation(len(rows))
    drawn = order[:n_rows] if weights is None else order[draw_evenly(weights[order], n_rows, rng.random())]
    fixed: dict[str, Any] = {"rehearse": False, "validation": 0.0, "allowed_features": 0, "target": np.inf}
    tree = replace(options.tree, seed=seed, time_limit=time_limit, **fixed)
    return TreeTask(tree, np.sort(rows[drawn]), features)


def draw_evenly(weights: NDArray[np.float64], n_drawn: int, start: float) -> NDArray[np.intp]:
    """Positions drawn in proportion to weights, each as often as expected, up to one more or less.

    Parameters
    ----------
    start : float
        From 0 to 1, drawn at random.
    """
    reached = np.cumsum(weights)
    places = (start + np.arange(n_drawn)) / n_drawn * reached[-1]
    return np.asarray(np.minimum(np.searchsorted(reached, places, side="right"), len(weights) - 1))


def weigh_rows(votes: GrowingForest, options: ForestOptions) -> NDArray[np.float64]:
    """Weight of each row for the next tree: the less sure the forest is to be right about it, the more."""
    # In a large forest a few hard rows would take all the weight.
    unit = options.strength * min(1.0, COUNTED_TREES / votes.n_trees)

    def doubt(margins: Counts) -> NDArray[np.float64]:
        return np.asarray(1 / (1 + np.exp(np.minimum(unit * margins, LARGEST_EXPONENT))))

    return options.focus * doubt(votes.worst_margins) + (1 - options.focus) * doubt(votes.own_margins)
