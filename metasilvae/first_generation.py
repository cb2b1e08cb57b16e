"""The trees that a genetic search starts from: a single leaf, greedily grown trees, or trees of a file."""

from __future__ import annotations

from collections.abc import Callable

from metasilvae._core.training import evolution
from metasilvae.dataset import Dataset
from metasilvae.errors import ModelError, RequestError
from metasilvae.individuals import as_individual
from metasilvae.model import Model
from metasilvae.training_options import TrainingOptions

# First trees are small, so that a good one is there at once.
FIRST_SPLITS = 8
# Large samples take long to grow their largest trees; one of this size comes before.
MEDIUM_SPLITS = 64
# Makes a tree, in the room that one thread has for it.
TreeMaker = Callable[[evolution.Workspace], evolution.Individual]


def blank(samples: evolution.TrainingSet) -> TreeMaker:
    """A single leaf that holds every sample."""
    return lambda bench: evolution.Individual(samples).become_leaf(bench)


def plan_sizes(n_samples: int, options: TrainingOptions) -> list[tuple[float, int]]:
    """Criterion and number of splits of each greedily grown tree, in the order of growth."""
    most = max(1, n_samples // options.min_samples_leaf)
    largest = min(options.seed_leaves or max(2 * FIRST_SPLITS, most // 8), most, options.max_leaves) - 1
    small = min(FIRST_SPLITS, largest)
    medium = min(MEDIUM_SPLITS, largest)
    first, *others = options.blends
    # One small tree comes at once, then medium ones, one of them for accuracy alone if that is among the criteria; then
    # the large ones, which are better, and at last variety.
    plan = [(first, small), (first, medium), *((blend, medium) for blend in others if blend == 0 and medium < largest)]
    plan += [(blend, largest) for blend in options.blends]
    return list(dict.fromkeys([*plan, *((blend, small) for blend in others)]))


def plan_trees(
    samples: evolution.TrainingSet, objective: evolution.Objective, options: TrainingOptions
) -> list[TreeMaker]:
    """What makes the first trees that the options ask for."""
    if not options.greedy:
        return [blank(samples)]
    return [_grower(samples, objective, options, blend, size) for blend, size in plan_sizes(samples.n_samples, options)]


def _grower(
    samples: evolution.TrainingSet,
    objective: evolution.Objective,
    options: TrainingOptions,
    blend: float,
    n_splits: int,
) -> TreeMaker:
    def grow(bench: evolution.Workspace) -> evolution.Individual:
        tree = evolution.Individual(samples).become_leaf(bench)
        if n_splits > 0:
            tree.grow(0, objective, bench, by_score=False, reach=blend, impurity=options.impurity, n_splits=n_splits)
        tree.trim(objective, bench)
        return tree

    return grow


def take_trees(
    forest: Model,
    dataset: Dataset,
    samples: evolution.TrainingSet,
    objective: evolution.Objective,
    options: TrainingOptions,
) -> list[TreeMaker]:
    """What makes the trees of a forest, with class counts of the samples; those with too many leaves are left out."""
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
            f"{forest.source}: each of its trees has more than {options.max_leaves} leaves; raise --max-leaves or "
            "start from smaller trees"
        )

    def taker(tree: Model) -> TreeMaker:
        return lambda bench: as_individual(tree, samples, objective, bench)

    return [taker(tree) for tree in small]
