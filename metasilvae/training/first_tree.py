"""The first tree of a boosted model, if it is searched for.

Boosting grows its trees split by split. Where single splits gain nothing, as with labels that depend on two features
together, it cannot start. A search for one tree finds such splits. Its tree then becomes the first round: the splits
stay, and leaves get the scores that boosting fits. Tuning decides whether this pays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.model import MISSING_RIGHT, Model
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.boosted_trees import MOST_THRESHOLDS, BoostedTree, FloatArray, IntArray, Tests
from metasilvae.training.checkpoint.files import damaged, take_array
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.options import BoostingOptions

# Rows that the tree is searched on, with more features the smaller number; its leaves are fitted on all rows.
MOST_ROWS = 30_000
FEWEST_ROWS = 12_000
MOST_VALUES = 1_000_000


@dataclass(frozen=True)
class FirstTree:
    """The splits of a tree, in pre-order.

    Attributes
    ----------
    feature : int32 array, shape (n_nodes,)
        -1 marks a leaf.
    threshold : float64 array, shape (n_nodes,)
    left, right : int32 arrays, shape (n_nodes,)
    direction : int32 array, shape (n_nodes,)
        Where missing values go, as in a model.
    """

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    direction: IntArray

    @classmethod
    def of(cls, model: Model) -> FirstTree:
        nodes = model.nodes
        names = "feature", "threshold", "left", "right", "leaf"
        return cls(*(np.ascontiguousarray(nodes[name]) for name in names))

    def add_thresholds(self, thresholds: list[FloatArray], doubled: IntArray, n_most: int) -> list[FloatArray]:
        """Thresholds of each column with those of the tree; others are left out where they would be too many."""
        found = list(thresholds)
        for column in np.unique(self.feature[self.feature >= 0]):
            # The copy of a doubled column needs one more.
            room = min(n_most, MOST_THRESHOLDS - int(np.isin(column, doubled)))
            needed = np.unique(self.threshold[self.feature == column])
            # Beyond all values: the split tells missing values alone, which the copy knows.
            needed = spread(needed[needed < np.finfo(np.float64).max], room)
            others = spread(np.setdiff1d(thresholds[column], needed), room - len(needed))
            found[column] = np.union1d(needed, others)
        return found

    def coded(self, tests: Tests) -> BoostedTree:
        """The same splits by numbers of thresholds, the nearest ones if some were left out; all scores are 0."""
        feature = self.feature.copy()
        inner = np.flatnonzero(feature >= 0)
        doubled = inner[np.isin(feature[inner], tests.doubled) & (self.direction[inner] == MISSING_RIGHT)]
        feature[doubled] = tests.n_columns + np.searchsorted(tests.doubled, feature[doubled])
        code = np.full(len(feature), -1, dtype=np.int32)
        for node in inner:
            known = tests.thresholds[feature[node]]
            code[node] = min(np.searchsorted(known, self.threshold[node]), len(known) - 1)
        return BoostedTree(feature, code, self.left, self.right, np.zeros(len(feature)))

    @property
    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("feature", "threshold", "left", "right", "direction")}

    @classmethod
    def read(cls, document: dict[str, Any], n_columns: int) -> FirstTree:
        feature, left, right, direction = (
            take_array(document, name, "<i4") for name in ("feature", "left", "right", "direction")
        )
        threshold = take_array(document, "threshold", "<f8")
        n_nodes, place = len(feature), np.arange(len(feature))
        if not n_nodes or any(len(each) != n_nodes for each in (threshold, left, right, direction)):
            raise damaged("the first tree is not complete")
        inner = feature >= 0
        children = np.concatenate([left[inner], right[inner]])
        is_sound = (feature < n_columns).all() and (children > np.tile(place[inner], 2)).all()
        if not is_sound or not np.array_equal(np.sort(children), place[1:]) or not np.isfinite(threshold[inner]).all():
            raise damaged("the first tree is none")
        return cls(feature, threshold, left, right, direction)


def spread(values: FloatArray, n_most: int) -> FloatArray:
    """Some of the values, evenly from the first to the last one."""
    if len(values) <= n_most:
        return values
    return values[np.rint(np.linspace(0, len(values) - 1, n_most)).astype(np.intp)]


def search_tree(
    dataset: Dataset,
    perturbation: Perturbation,
    options: BoostingOptions,
    is_stopped: Callable[[], bool],
    is_trial: bool = False,
) -> FirstTree | None:
    """The tree that a search without tuning finds, for the same weights; None if it was stopped."""
    n_most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_VALUES // dataset.n_features))
    if dataset.n_samples > n_most:
        order = np.random.default_rng([options.tree.seed, 11]).permutation(dataset.n_samples)
        rows: NDArray[np.intp] = np.sort(order[:n_most])
        dataset = dataset.subset(rows)
    of_tree = options.first_tree_options(dataset.n_samples, dataset.n_features, is_trial)
    trainer = TreeTrainer(dataset, perturbation, of_tree, 1)
    for _ in trainer.run():
        if is_stopped():
            trainer.stop()
            return None
    return FirstTree.of(trainer.model)
