"""Trees of a genetic search: the initial population and the hall of fame.

A search starts from a single leaf, from greedily grown trees, or from the trees of a model. It keeps the best trees in
a hall of fame; local search improves them at the end, and held-out rows choose among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.errors import ModelError, RequestError
from metasilvae.model import Model
from metasilvae.prediction import find_leaves
from metasilvae.training.interactions import Interaction, find_interactions
from metasilvae.training.options import TrainingOptions
from metasilvae.training.samples import as_individual

# Trees that local search improves at the end, and among which held-out rows choose.
HALL_OF_FAME_SIZE = 4


@dataclass(frozen=True)
class HallOfFameEntry:
    """A tree with its score on the training samples and, where rows are held out, its fitness there."""

    tree: Any
    score: float
    held_out: float

    @property
    def _rank(self) -> tuple[float, float, int]:
        return self.held_out, self.score, -self.tree.n_leaves

    def beats(self, other: HallOfFameEntry) -> bool:
        return self._rank > other._rank


class HallOfFame:
    """The best few of the trees that were offered.

    Without held-out rows these are the tree with the best score and the best ones before it. With held-out rows they
    are the trees with the best fitness there, whatever their score: the best score may be due to overfitting.

    Parameters
    ----------
    score : function
        Score of a tree on the training samples.
    held_out : function or None
        Fitness of a tree on rows that were held out.
    """

    def __init__(self, score: Callable[[Any], float], held_out: Callable[[Any], float] | None = None) -> None:
        self._score = score
        self._held_out = held_out
        self._seen: dict[tuple[int, ...], None] = {}
        self._kept: list[HallOfFameEntry] = []

    @property
    def chosen(self) -> HallOfFameEntry:
        return self._kept[0]

    @property
    def trees(self) -> list[Any]:
        """Best first."""
        return [entry.tree for entry in self._kept]

    @property
    def seen(self) -> list[tuple[int, ...]]:
        """Counts of all trees that were offered: correct, stable and robust samples, and leaves."""
        return list(self._seen)

    def resume(self, trees: list[Any], seen: list[tuple[int, ...]]) -> None:
        """Continue from the `trees` and `seen` of another hall of fame."""
        self._seen = dict.fromkeys(seen)
        self._kept = [self._judge(tree) for tree in trees]

    def offer(self, tree: Any) -> None:
        """Keep a tree if it is among the best; it is copied, because trees of a population are overwritten."""
        # Trees with the same counts are nearly the same tree, and would crowd out the others.
        counts = (*tree.counts, tree.n_leaves)
        if counts in self._seen:
            return
        self._seen[counts] = None
        newcomer = self._judge(tree)
        place = 0
        while place < len(self._kept) and not newcomer.beats(self._kept[place]):
            place += 1
        if place == 0 or (self._held_out is not None and place < HALL_OF_FAME_SIZE):
            copy = type(tree)(tree.samples).become(tree)
            self._kept.insert(place, HallOfFameEntry(copy, newcomer.score, newcomer.held_out))
            del self._kept[HALL_OF_FAME_SIZE:]

    def _judge(self, tree: Any) -> HallOfFameEntry:
        return HallOfFameEntry(tree, self._score(tree), 0.0 if self._held_out is None else self._held_out(tree))


def count_again(model: Model, dataset: Dataset) -> Model:
    """The same tests with the class counts, or sums of weights, of other samples, which must reach every leaf."""
    leaves = find_leaves(model, dataset.X)[:, 0].astype(np.int64)
    n_counts = model.n_leaves * model.n_labels
    weights = None if dataset.weights is None else dataset.weights.numbers
    # Sums of whole numbers below 2**53 are exact.
    counts = np.bincount(leaves * model.n_labels + dataset.y, weights, n_counts).reshape(-1, model.n_labels)
    return replace(model, leaf_values=counts.astype(np.int64))


# The first tree of the initial population is small, so that there is a useful one at once.
FIRST_SPLITS = 8
# With many samples the largest trees take long to grow; trees of this size come before them.
MEDIUM_SPLITS = 64
# Growth of a large tree ends when so many times the splits do not make a better tree.
STAGE_FACTOR = 4
# Splits by which a leaf of a given tree is continued.
DEEPENING_SPLITS = 16
# Criteria by which a tree that begins with an interaction is continued, at most.
INTERACTION_CRITERIA = 3
# Makes a tree in the workspace of a thread.
TreeMaker = Callable[[Any], Any]


def blank(samples: Any) -> TreeMaker:
    """Makes a single leaf that holds every sample."""
    return lambda workspace: kernel.Individual(samples).become_leaf(workspace)


def plan_sizes(n_samples: int, options: TrainingOptions) -> list[tuple[tuple[str, float], int]]:
    """Criterion and number of splits of each greedily grown tree, in the order of growth."""
    most = max(1, n_samples // options.min_samples_leaf)
    largest = min(options.seed_leaves or max(2 * FIRST_SPLITS, most // 8), most, options.max_leaves) - 1
    small = min(FIRST_SPLITS, largest)
    medium = min(MEDIUM_SPLITS, largest)
    first, *others = options.growth_criteria
    # One small tree comes first, then medium ones, one of them for accuracy alone if that is among the criteria; then
    # the large ones, which are better, and at last small ones for variety.
    plan = [(first, small), (first, medium), *((each, medium) for each in others if each[1] == 0 and medium < largest)]
    plan += [(each, largest) for each in options.growth_criteria]
    return list(dict.fromkeys([*plan, *((each, small) for each in others)]))


class Grower:
    """Grows trees of several sizes by one criterion; a larger tree continues the growth of a smaller one.

    Parameters
    ----------
    samples, objective
        Of the kernels. The objective decides between equal splits.
    impurity : str
    blend : float
        Weight of the impurity of reach sets.
    """

    def __init__(self, samples: Any, objective: Any, impurity: str, blend: float) -> None:
        self.samples = samples
        self._objective = objective
        self._impurity = impurity
        self._blend = blend
        self._growth: Any = None
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End the work under way; the grower is not to be used again."""
        self._objective.stop()

    def forget(self) -> None:
        """Free the memory of the growth; it begins anew if another tree is wanted."""
        self._growth = None

    def make(self, n_splits: int, may_stop: bool, objective: Any, workspace: Any) -> Any:
        """A tree of up to n_splits splits, trimmed for an objective.

        With `may_stop`, growth ends when STAGE_FACTOR times the splits do not make a better tree.
        """
        with self._lock:
            if self._growth is None:
                self._growth = kernel.GreedyGrowth(
                    self.samples, self._objective, workspace, reach=self._blend, impurity=self._impurity
                )
            size = min(n_splits, MEDIUM_SPLITS) if may_stop else n_splits
            best = self._take(size, objective, workspace)
            while size < n_splits:
                size = min(STAGE_FACTOR * size, n_splits)
                larger = self._take(size, objective, workspace)
                if larger.fitness(objective) <= best.fitness(objective):
                    break
                best = larger
            return best

    def _take(self, n_splits: int, objective: Any, workspace: Any) -> Any:
        self._growth.extend(n_splits, workspace)
        tree = self._growth.take(n_splits, workspace)
        tree.trim(objective, workspace)
        return tree


Growers = dict[tuple[str, float], Grower]


def plan_trees(growers: Growers, objective: Any, options: TrainingOptions, keep_growth: bool) -> list[TreeMaker]:
    """Makers of the initial population that the options ask for, with a grower for each criterion.

    Unless growth is kept for another trainer, it is forgotten after the last tree of a criterion.
    """
    n_samples = next(iter(growers.values())).samples.n_samples
    plan = plan_sizes(n_samples, options)
    last = {criterion: number for number, (criterion, _) in enumerate(plan)}

    def make(number: int, criterion: tuple[str, float], size: int, workspace: Any) -> Any:
        grower = growers[criterion]
        tree = grower.make(size, size > MEDIUM_SPLITS and not options.seed_leaves, objective, workspace)
        if number == last[criterion] and not keep_growth:
            grower.forget()
        return tree

    return [partial(make, number, criterion, size) for number, (criterion, size) in enumerate(plan)]


def list_interactions(dataset: Dataset, options: TrainingOptions) -> tuple[Interaction, ...]:
    """Features to begin with, if there are any; none if trees are not grown, or if their size is given."""
    return find_interactions(dataset) if options.greedy and not options.seed_leaves else ()


def start_tree(interaction: Interaction, samples: Any, objective: Any, workspace: Any) -> Any:
    """The tree of all cells of an interaction, with its thresholds moved to where they are best."""
    tree = kernel.Individual(samples).take_nodes(*interaction.nodes(), objective, workspace)
    tree.improve_locally(objective, workspace)
    return tree


def plan_starts(
    interactions: Sequence[Interaction], samples: Any, objective: Any, options: TrainingOptions
) -> list[TreeMaker]:
    """Makers of trees that begin with interactions and are continued at their leaves by several criteria.

    Interactions of features that the objective does not allow are left out.
    """

    def make(interaction: Interaction, impurity: str, blend: float, workspace: Any) -> Any:
        tree = start_tree(interaction, samples, objective, workspace)
        return tree.deepen(DEEPENING_SPLITS, objective, workspace, reach=blend, impurity=impurity)

    return [
        partial(make, interaction, *criterion)
        for interaction in interactions
        if interaction.n_cells <= options.max_leaves and np.isin(interaction.features, objective.features).all()
        for criterion in options.growth_criteria[:INTERACTION_CRITERIA]
    ]


def take_trees(
    forest: Model,
    dataset: Dataset,
    samples: Any,
    objective: Any,
    options: TrainingOptions,
    deepening: Sequence[float] = (),
) -> list[TreeMaker]:
    """Makers of the trees of a forest, with class counts of the samples; trees with too many leaves are ignored.

    For each criterion in `deepening` the first tree is also continued at its leaves.
    """
    if forest.n_features != dataset.n_features:
        raise ModelError(
            f"{forest.source}: its trees have {forest.n_features} features, {dataset.source} has {dataset.n_features}; "
            "start from trees for the same data"
        )
    if not set(forest.labels) & set(dataset.labels):
        raise ModelError(
            f"{forest.source}: none of its labels occurs in {dataset.source}; start from trees for the same data"
        )
    trees = [forest.tree(position) for position in range(forest.n_trees)]
    small = [tree for tree in trees if tree.n_leaves <= options.max_leaves]
    if not small:
        raise RequestError(
            f"{forest.source}: each of its trees has more than {options.max_leaves} leaves; raise 'max-leaves' or "
            "start from smaller trees"
        )
    makers = [partial(as_individual, tree, samples, objective) for tree in small]
    return [*makers, *(partial(_deepen, makers[0], objective, options.impurity, blend) for blend in deepening)]


def _deepen(make: TreeMaker, objective: Any, impurity: str, blend: float, workspace: Any) -> Any:
    tree = make(workspace)
    tree.trim(objective, workspace)
    return tree.deepen(DEEPENING_SPLITS, objective, workspace, reach=blend, impurity=impurity)
