"""Options of training runs and their presets, for single trees and for forests.

Both kinds of options have the interface `Options`, so that their callers need not distinguish them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, NoReturn, Protocol

from metasilvae._core.training import evolution
from metasilvae.datasets.images import ImageSize
from metasilvae.datasets.splitting import SPLITS
from metasilvae.errors import RequestError
from metasilvae.verification.objective import PAPER_FITNESS, Fitness
from metasilvae.verification.shards import Shard

SELECTIONS = tuple(evolution.SELECTIONS)
MUTATIONS = tuple(evolution.MUTATIONS)
MUTATION_PROBABILITIES = ("constant", "encourage-variance")
IMPURITIES = tuple(evolution.IMPURITIES)
# Weights of the impurity of reach sets in the criterion by which trees are grown, from accuracy (0) to stability (1).
BLENDS = (0.3, 0.1, 0.0, 1.0, 0.05, 0.2, 0.5, 0.02)
# The same for exponential loss, which counts a row that reaches both sides of a split on the worst side only.
LOSS = "exponential"
LOSS_BLENDS: tuple[float, ...] = ()

LARGEST = 2**30
# Maximum depth and maximum number of leaves that mean no limit.
NO_LIMIT = 2**20
# Names of options on the command line, where they differ from the fields.
PUBLIC_NAMES = {
    "population": "population-max-size",
    "initial_population": "population-initial-size",
    "generations": "max-iteration",
    "crossover": "crossover-probability",
    "mutation_probability": "mutation-base-probability",
    "mutation_probability_rule": "mutation-probability",
    "selection": "select",
    "impurity": "criterion",
    "aggressiveness": "split-search-aggressiveness",
    "fitness": "weight",
}


class Options(Protocol):
    """What options of trees and of forests have in common.

    Attributes
    ----------
    kind : str
        Name of the trainer, see metasilvae.training.runs.TRAINERS.
    is_divisible : bool
        Whether a cluster can divide one run into tasks.
    is_observable : bool
        Whether the run searches for one tree: observers see all trees of the search, and it can start from given trees.
    count_name : str
        Name of the option that asks for such a model; empty for a single tree.
    """

    kind: ClassVar[str]
    is_divisible: ClassVar[bool]
    is_observable: ClassVar[bool]
    count_name: ClassVar[str]

    @property
    def tree_options(self) -> TrainingOptions:
        """Options of a tree, with the seed of the run."""

    def with_seed(self, seed: int) -> Options:
        """The same options with another seed."""

    def take_shard(self, shard: Shard, seeds: Sequence[int] | None) -> tuple[Options, Sequence[int] | None]:
        """Options and seeds of one of several jobs that share the work; `seeds` is None unless several are given."""

    def describe(self) -> dict[str, Any]:
        """Values by their names on the command line, as JSON has them; the seed is left out."""


def as_json(value: Any) -> Any:
    """JSON has neither tuples nor infinite numbers; here the latter mean that there is no limit."""
    if isinstance(value, tuple):
        return [as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training run for one tree.

    Attributes
    ----------
    fitness : Fitness
        Weights of accuracy, stability and robust accuracy in the fitness.
    seed : int
        Seed of all random draws. The same seed gives the same tree, byte for byte, for any number of jobs.
    tune : bool
        Choose training_epsilon_factor, robust_weight and leaf_penalty by cross-validation first, see
        metasilvae.training.tuning; the values given here are ignored then.
    split : str
        How tuning splits the rows: "random"; "blocks" of rows that follow each other; "auto": blocks if rows look
        ordered in time, see metasilvae.datasets.splitting.
    training_epsilon_factor : float
        Train with the perturbation multiplied by this factor.
    robust_weight : float
        Fraction of the accuracy weight that moves to robust accuracy. A sample that is correct in its whole box is
        better evidence that the tree generalizes than one that is just correct.
    pretune : bool
        Without tuning and with many samples: choose between the robust weight and 0, and two of the criteria of growth,
        by a few small trees, see metasilvae.training.quick_choice.
    greedy : bool
        Start from greedily grown trees; otherwise from a single leaf.
    blends : tuple of float
        Criteria of greedy growth, see `BLENDS`.
    loss_blends : tuple of float
        More criteria, see `LOSS_BLENDS`.
    seed_leaves : int
        Leaves of the largest greedily grown tree; 0 chooses by the number of samples.
    leaf_penalty : float
        Complexity penalty of a leaf, as a number of samples.
    min_samples_leaf : int
        Minimum samples per leaf.
    max_leaves : int
        Maximum number of leaves.
    max_depth : int
        Maximum depth.
    allowed_features : int
        Number of features drawn for the tree; 0 means all.
    population : int
        Trees in a generation.
    initial_population : int
        Trees in the initial population: the best of those grown or read, repeated if they are fewer.
    generations : int
        Maximum number of generations.
    elitism : int
        Best trees that each generation takes over from the one before.
    patience : int
        Stop after so many generations without improvement; 0 means never.
    target : float
        Stop when this fitness is reached on the training samples.
    time_limit : float
        Stop after so many seconds; the result then depends on the machine.
    selection, tournament_size, crossover, mutation, mutation_probability, mutation_probability_rule, impurity,
    aggressiveness, split_by_score, max_burst
        Operators, see cython_ext/training/mutation.pxd.
    polish : int
        Passes of local search at the end, over all inner nodes of the best trees.
    validation : float
        Fraction of the samples that is held out to choose among the best trees.
    """

    kind: ClassVar[str] = "tree"
    is_divisible: ClassVar[bool] = False
    is_observable: ClassVar[bool] = True
    count_name: ClassVar[str] = ""

    fitness: Fitness = PAPER_FITNESS
    seed: int = 0
    tune: bool = True
    split: str = "auto"
    training_epsilon_factor: float = 1.0
    robust_weight: float = 0.2
    pretune: bool = False
    greedy: bool = True
    blends: tuple[float, ...] = BLENDS
    loss_blends: tuple[float, ...] = LOSS_BLENDS
    seed_leaves: int = 0
    leaf_penalty: float = 2.0
    min_samples_leaf: int = 3
    max_leaves: int = NO_LIMIT
    max_depth: int = NO_LIMIT
    allowed_features: int = 0
    population: int = 32
    initial_population: int = 32
    generations: int = 60
    elitism: int = 4
    patience: int = 30
    target: float = math.inf
    time_limit: float = math.inf
    selection: str = "tournament"
    tournament_size: int = 3
    crossover: float = 0.2
    mutation: str = "mixed"
    mutation_probability: float = 1.0
    mutation_probability_rule: str = "constant"
    impurity: str = "gini"
    aggressiveness: float = 1.0
    split_by_score: bool = True
    max_burst: int = 4
    polish: int = 4
    validation: float = 0.0

    @property
    def tree_options(self) -> TrainingOptions:
        return self

    def with_seed(self, seed: int) -> TrainingOptions:
        return replace(self, seed=seed)

    def take_shard(self, shard: Shard, seeds: Sequence[int] | None) -> tuple[TrainingOptions, Sequence[int]]:
        """One tree cannot be divided: each job trains those of some seeds."""
        if seeds is None:
            raise RequestError(
                "'shard' divides seeds or trees among jobs; give several 'seeds', or the number of 'trees' of a forest"
            )
        return self, shard.take_items(seeds, "seeds")

    def describe(self) -> dict[str, Any]:
        found = asdict(self)
        del found["seed"]
        found["population_generator"] = "greedy" if found.pop("greedy") else "blank"
        return {PUBLIC_NAMES.get(name, name.replace("_", "-")): as_json(value) for name, value in found.items()}

    @property
    def growth_criteria(self) -> list[tuple[str, float]]:
        """Impurity and weight of reach sets of each criterion by which trees are grown."""
        criteria = [(self.impurity, blend) for blend in self.blends] + [(LOSS, blend) for blend in self.loss_blends]
        return list(dict.fromkeys(criteria))

    def price_of_leaf(self, n_samples: float) -> float:
        """What a leaf subtracts from the fitness."""
        correct, stable, robust = self.fitness.weights
        return self.leaf_penalty * max(correct + robust, stable, 0.0) / n_samples

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                what = (
                    f"at least {low:g}" if high in (math.inf, LARGEST) and value < low else f"from {low:g} to {high:g}"
                )
                raise RequestError(f"{PUBLIC_NAMES.get(name, name.replace('_', '-'))} is {value:g}, it must be {what}")
        for name, choices in _CHOICES:
            if getattr(self, name) not in choices:
                raise RequestError(f"{name.replace('_', '-')} must be one of {', '.join(choices)}")
        if not 0 < self.aggressiveness <= 1:
            raise RequestError("split-search-aggressiveness must be more than 0 and at most 1")
        if not self.blends or not all(0 <= blend <= 1 for blend in (*self.blends, *self.loss_blends)):
            raise RequestError("blends must be numbers from 0 to 1")
        if self.elitism > self.population:
            raise RequestError(
                f"elitism is {self.elitism}, which exceeds the size of the population, {self.population}"
            )
        if not self.time_limit > 0:
            raise RequestError("time-limit must be more than 0 seconds")
        if math.isnan(self.target):
            raise RequestError("target is not a number")


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("training_epsilon_factor", 0, LARGEST),
    ("leaf_penalty", 0, LARGEST),
    ("robust_weight", 0, 1),
    ("crossover", 0, 1),
    ("mutation_probability", 0, 1),
    ("validation", 0, 0.9),
    ("seed", 0, 2**63 - 1),
    ("min_samples_leaf", 1, LARGEST),
    ("max_leaves", 1, LARGEST),
    ("max_depth", 0, LARGEST),
    ("seed_leaves", 0, LARGEST),
    ("allowed_features", 0, LARGEST),
    ("population", 1, LARGEST),
    ("initial_population", 1, LARGEST),
    ("generations", 0, LARGEST),
    ("elitism", 0, LARGEST),
    ("patience", 0, LARGEST),
    ("tournament_size", 1, LARGEST),
    ("max_burst", 1, LARGEST),
    ("polish", 0, LARGEST),
)
_CHOICES = (
    ("selection", SELECTIONS),
    ("mutation", MUTATIONS),
    ("mutation_probability_rule", MUTATION_PROBABILITIES),
    ("impurity", IMPURITIES),
    ("split", SPLITS),
)


# Options that tuning chooses.
TUNED = frozenset({"training_epsilon_factor", "robust_weight", "leaf_penalty"})
# Changes of each preset to the defaults above.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "fast": {"tune": False, "pretune": True, "generations": 0, "blends": BLENDS[:3], "polish": 1},
    "best": {"generations": 400, "patience": 100, "population": 64, "initial_population": 64},
    # The genetic algorithm of the paper, with the parameters of the authors' program.
    "paper": {
        "tune": False,
        "greedy": False,
        "training_epsilon_factor": 1.0,
        "robust_weight": 0.0,
        "leaf_penalty": 0.0,
        "min_samples_leaf": 1,
        "generations": 64,
        "elitism": 1,
        "patience": 0,
        "selection": "roulette-wheel",
        "crossover": 1.0,
        "mutation": "grow-or-prune",
        "impurity": "entropy",
        "aggressiveness": 0.01,
        "polish": 0,
    },
    # A plain decision tree for comparison: grown by Gini until nothing is gained, without regard to stability.
    "cart": {
        "tune": False,
        # Without boxes every sample is stable, so that accuracy alone decides.
        "training_epsilon_factor": 0.0,
        "robust_weight": 0.0,
        "blends": (0.0,),
        "seed_leaves": LARGEST,
        "leaf_penalty": 0.0,
        "min_samples_leaf": 1,
        "generations": 0,
        "polish": 0,
    },
}


def options_for(preset: str, **changes: Any) -> TrainingOptions:
    """Options of a preset with changes; a change that is None is ignored.

    Setting any of `TUNED`, or a population that is not grown greedily, disables tuning unless `tune` is set too.
    Setting any of `TUNED` or the criteria of growth disables `pretune` in the same way.
    """
    chosen = {name: value for name, value in changes.items() if value is not None}
    if TUNED & set(chosen) or chosen.get("greedy") is False:
        chosen.setdefault("tune", False)
    if {*TUNED, "blends"} & set(chosen):
        chosen.setdefault("pretune", False)
    unknown = set(chosen) - {field.name for field in fields(TrainingOptions)}
    if unknown:
        raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
    return replace(TrainingOptions(), **{**PRESETS[preset], **chosen})


# What a run has once, for a forest and for the single tree that may take its place.
_RUN_FIELDS = ("fitness", "seed", "split", "target", "time_limit", "validation")
# Names of options of a forest on the command line, where they differ from the fields; its trees have the others.
_FOREST_NAMES = {"n_trees": "trees", "method": "forest-method", "row_sample": "row-sample", "numbers": "shard"}
METHODS = ("auto", "reweighted", "independent")
# What tuning chooses where one tree is better than a forest.
SINGLE = "single"
MOST_TREES = 100_000
# Trees of a forest must differ: of up to so many features each tree uses all, of more a part.
ALWAYS_ALL_FEATURES = 16
# Independent trees differ by their rows too.
INDEPENDENT_ROW_SAMPLE = 0.7
# Changes of a preset for a tree in a forest. Many cheap trees beat few elaborate ones.
_CHEAP: dict[str, Any] = {
    "tune": True, "generations": 0, "polish": 1, "blends": (0.3,), "robust_weight": 0.2,
    "training_epsilon_factor": 1.15, "leaf_penalty": 1.0,
}  # fmt: skip
# Where samples are few, a short search for each tree costs little and pays.
FEW_SAMPLES = 3000
# The same for the first tree of boosting in trials, by rows times features.
FEW_VALUES = 250_000
_SEARCH: dict[str, Any] = {"generations": 10, "population": 12, "initial_population": 12, "elitism": 2}
_SEARCH_BLENDS = (0.3, 0.1, 0.0, 1.0)
FOREST_PRESETS: dict[str, dict[str, Any]] = {
    "default": _CHEAP,
    "fast": {**_CHEAP, "tune": False, "polish": 0},
    "best": {**_CHEAP, "generations": 30, "polish": 2, "population": 16, "initial_population": 16},
}


@dataclass(frozen=True)
class ForestOptions:
    """Options of a training run for a forest.

    Attributes
    ----------
    tree : TrainingOptions
        Options of each tree. Its seed is that of the forest, and `tune` asks for the tuning of the forest, which
        chooses among metasilvae.training.forest_tuning.CANDIDATES, and a single tree.
    n_trees : int
        Number of trees.
    method : str
        "reweighted": each tree is grown on rows drawn by the votes of the trees before it, see `strength` and `focus`.
        "independent": no tree depends on another one. "auto": what tuning chooses, otherwise "reweighted"; tuning may
        choose "single", one tree that is searched for as without a forest.
    row_sample : float
        Fraction of the rows drawn for each tree; 0 chooses by the method.
    strength : float
        How fast the weight of a row falls with the margin of votes by which the forest is correct.
    focus : float
        Fraction of that weight that is computed at the worst point of the row's box; the rest is computed at the row.
    numbers : tuple of int or None
        Numbers of the trees to grow, for a forest that several jobs share; None means all. Reweighted trees depend on
        those of their own job only.
    searches_if_few : bool
        Whether trees are found by a short genetic search if there are few samples.
    single : TrainingOptions or None
        Options of a single tree, which is the result if it is better than the forest on rows left out; None compares
        with no tree.
    """

    kind: ClassVar[str] = "forest"
    is_divisible: ClassVar[bool] = True
    is_observable: ClassVar[bool] = False
    count_name: ClassVar[str] = "trees"

    tree: TrainingOptions
    n_trees: int = 50
    method: str = "auto"
    row_sample: float = 0.0
    strength: float = 0.2
    focus: float = 1.0
    numbers: tuple[int, ...] | None = None
    searches_if_few: bool = False
    single: TrainingOptions | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.n_trees <= MOST_TREES:
            raise RequestError(f"trees is {self.n_trees}, it must be from 1 to {MOST_TREES}")
        if self.method not in (*METHODS, SINGLE):
            raise RequestError(f"forest-method must be one of {', '.join(METHODS)}")
        if not 0 <= self.row_sample <= 1:
            raise RequestError(f"row-sample is {self.row_sample:g}, it must be more than 0 and at most 1")
        if not 0 <= self.strength <= 100 or not 0 <= self.focus <= 1:
            raise RequestError("strength must be from 0 to 100, focus from 0 to 1")

    @property
    def tree_options(self) -> TrainingOptions:
        return self.tree

    def with_seed(self, seed: int) -> ForestOptions:
        return replace(self, tree=replace(self.tree, seed=seed))

    def take_shard(self, shard: Shard, seeds: Sequence[int] | None) -> tuple[ForestOptions, None]:
        """Each job grows some of the trees."""
        if seeds is not None:
            raise RequestError("'shard' divides seeds or the trees of a forest; leave out 'seeds' or 'trees'")
        return replace(self, numbers=tuple(shard.take_items(range(self.n_trees), "trees"))), None

    def describe(self) -> dict[str, Any]:
        own = {
            _FOREST_NAMES.get(field.name, field.name.replace("_", "-")): as_json(getattr(self, field.name))
            for field in fields(self)
            if field.name not in ("tree", "single")
        }
        return {**self.tree.describe(), **own, "compare-with-tree": self.single is not None}

    @property
    def is_single(self) -> bool:
        return self.method == SINGLE

    @property
    def is_reweighted(self) -> bool:
        return self.method not in ("independent", SINGLE)

    @property
    def row_fraction(self) -> float:
        """Fraction of the rows that is drawn for each tree."""
        return self.row_sample or (INDEPENDENT_ROW_SAMPLE if self.method == "independent" else 1.0)

    def features_per_tree(self, n_features: int) -> int:
        """Number of features drawn for each tree."""
        if self.tree.allowed_features:
            if self.tree.allowed_features > n_features:
                raise RequestError(
                    f"{self.tree.allowed_features} features are to be drawn for each tree, the data has {n_features}"
                )
            return self.tree.allowed_features
        if not self.tree.greedy or self.is_single:
            return n_features
        return min(n_features, ALWAYS_ALL_FEATURES) + max(0, n_features - ALWAYS_ALL_FEATURES) // 4

    def for_samples(self, n_samples: int) -> ForestOptions:
        """The same options, with those that depend on the number of samples."""
        if not self.searches_if_few or n_samples > FEW_SAMPLES:
            return self
        blends = tuple(dict.fromkeys((*self.tree.blends, *_SEARCH_BLENDS)))
        return replace(self, tree=replace(self.tree, blends=blends, **_SEARCH))

    def with_candidate(self, candidate: dict[str, Any]) -> ForestOptions:
        """The same options with other values of the forest or of its trees; a method that is fixed stays."""
        own = {name: value for name, value in candidate.items() if name in ("method", "strength", "focus")}
        if candidate.get("method") == SINGLE:
            assert self.single is not None
            of_run = {name: getattr(self.tree, name) for name in _RUN_FIELDS}
            tree = replace(self.single, **{**of_run, "tune": False, **_tree_part(candidate)})
            return replace(self, method=SINGLE, row_sample=1.0, tree=tree)
        if self.method != "auto":
            own.pop("method", None)
        return replace(self, tree=replace(self.tree, **_tree_part(candidate)), **own)


def _tree_part(candidate: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in candidate.items() if name in TrainingOptions.__dataclass_fields__}


def forest_options_for(
    preset: str, n_trees: int, method: str | None = None, row_sample: float | None = None, **changes: Any
) -> ForestOptions:
    """Options of a forest by the name of a preset, with changes for its trees; a change that is None is ignored.

    Setting any of `TUNED`, or a population that is not grown greedily, disables tuning unless `tune` is set too. If
    tuning is disabled, the forest is not compared with a single tree.
    """
    chosen = {name: value for name, value in changes.items() if value is not None}
    if TUNED & set(chosen):
        chosen.setdefault("tune", False)
    tune = PRESETS[preset].get("tune", True)
    tree = options_for(preset, **{"tune": tune, **FOREST_PRESETS.get(preset, {}), **chosen})
    usual = "auto" if preset in FOREST_PRESETS else "independent"
    searches = preset == "default" and not set(chosen) & {*_SEARCH, "blends"}
    chosen_method = usual if method is None else method
    is_compared = preset in FOREST_PRESETS and chosen_method == "auto" and chosen.get("tune") is not False
    single = options_for(preset, **chosen) if is_compared and tree.greedy else None
    return ForestOptions(tree, n_trees, chosen_method, row_sample or 0.0, searches_if_few=searches, single=single)


# Options of boosted models. The genetic search and its trees have others.
BOOSTING_FIELDS = (
    "fitness", "seed", "tune", "split", "training_epsilon_factor", "robust_weight", "max_depth", "min_samples_leaf",
    "patience", "target", "time_limit", "validation",
)  # fmt: skip
BOOSTING_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "fast": {"tune": False},
    "best": {"learning_rate": 0.05},
}
# Options that the tuning of boosting chooses.
BOOSTING_TUNED = frozenset({"training_epsilon_factor", "robust_weight", "max_depth", "tolerance", "first_tree"})
# How the first tree of a boosted model is made.
GROWN, SEARCHED_FOR = FIRST_TREES = ("grown", "searched")
# Values of the options above in boosting, where they differ from those of a single tree.
_BOOSTED_TREES: dict[str, Any] = {
    "training_epsilon_factor": 1.0, "robust_weight": 0.25, "max_depth": 6, "min_samples_leaf": 1,
}  # fmt: skip
MOST_ROUNDS = 100_000
# Passes that fit the leaves of all boosted trees again. With few rows nothing is gained by them.
REFITS = 3
# A boosted tree is grown on this fraction of the rows, and on all of them if they are few.
BOOSTED_ROW_SAMPLE = 0.3
ALWAYS_ALL_ROWS = 10_000


@dataclass(frozen=True)
class BoostingOptions:
    """Options of a training run for a boosted model.

    Attributes
    ----------
    tree : TrainingOptions
        Those of `BOOSTING_FIELDS` count. `patience` counts rounds and needs rows that `validation` holds out; `tune`
        asks for the tuning of boosting, which chooses among metasilvae.training.boosting.CANDIDATES.
    n_rounds : int
        Maximum number of rounds. A round adds one tree; with more than two classes, one for each class.
    learning_rate : float
        Factor of the scores of each tree (shrinkage).
    row_sample : float
        Fraction of the rows that is drawn for each tree to grow on; 0 chooses by their number.
    feature_sample : float
        Fraction of the features that is drawn for each level of a tree; 0 chooses by their number.
    thresholds : int
        Maximum number of thresholds of each feature.
    score_penalty : float
        L2 penalty on the scores of leaves, as a number of samples.
    tolerance : float
        How far the loss gives up samples that are far from robust: from 0, the logistic loss, to 1.
    refits : int or None
        Passes that fit the leaves of all trees again after the last round; None chooses by the number of rows, and
        tuning by its trials.
    refit_penalty : float or None
        Penalty of these passes, as a number of samples; None is `score_penalty` divided by `learning_rate`, since the
        scores of a tree are smaller by that factor.
    first_tree : str
        "grown" like all others, or "searched" for as a single tree would be, see metasilvae.training.first_tree.
    image_shifts : str or None
        Rows are images of this size, such as ``28x28`` (height and width, then channels if there are several), and each
        of them is learned from also shifted by one pixel in four directions.
    """

    kind: ClassVar[str] = "boosting"
    is_divisible: ClassVar[bool] = False
    is_observable: ClassVar[bool] = False
    count_name: ClassVar[str] = "boost"

    tree: TrainingOptions
    n_rounds: int = 100
    learning_rate: float = 0.1
    row_sample: float = 0.0
    feature_sample: float = 0.0
    thresholds: int = 255
    score_penalty: float = 1.0
    tolerance: float = 0.5
    refits: int | None = None
    refit_penalty: float | None = None
    first_tree: str = GROWN
    image_shifts: str | None = None

    def __post_init__(self) -> None:
        if self.first_tree not in FIRST_TREES:
            raise RequestError(f"first-tree is {self.first_tree!r}, it must be one of {', '.join(FIRST_TREES)}")
        for name, low, high in (
            ("n_rounds", 1, MOST_ROUNDS), ("learning_rate", 0, 1), ("row_sample", 0, 1), ("feature_sample", 0, 1),
            ("thresholds", 1, 255), ("score_penalty", 0, LARGEST), ("tolerance", 0, 1),
            ("refits", 0, MOST_ROUNDS), ("refit_penalty", 0, LARGEST),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{_boosting_name(name)} is {value:g}, it must be from {low} to {high}")
        if not self.learning_rate:
            raise RequestError("learning-rate is 0, it must be more than 0")
        if self.image_shifts is not None:
            ImageSize.parse(self.image_shifts)
        correct, stable, robust = self.tree.fitness.weights
        if correct < 0 or stable + robust < 0:
            raise RequestError(
                "boosting needs weights that reward accuracy, and stability or robust accuracy; leave out 'boost' or "
                "change the weights"
            )

    @property
    def tree_options(self) -> TrainingOptions:
        return self.tree

    @property
    def image_size(self) -> ImageSize | None:
        """Size of the images to be shifted, if rows are any."""
        return None if self.image_shifts is None else ImageSize.parse(self.image_shifts)

    @property
    def loss_weights(self) -> tuple[float, float]:
        """Weights of the natural and of the certified part of the loss; their sum is 1."""
        correct, stable, robust = self.tree.fitness.weights
        moved = self.tree.robust_weight * correct
        total = correct + stable + robust
        return (correct - moved) / total, (stable + robust + moved) / total

    def with_seed(self, seed: int) -> BoostingOptions:
        return replace(self, tree=replace(self.tree, seed=seed))

    def take_shard(self, shard: Shard, seeds: Sequence[int] | None) -> NoReturn:
        """A boosted model cannot be divided: each tree depends on those before it."""
        raise RequestError(
            "'shard' divides the trees of a forest or the seeds of single trees, and each tree of a boosted model "
            "depends on those before it; leave out 'shard' or 'boost', or give each job a seed of its own"
        )

    def describe(self) -> dict[str, Any]:
        of_tree = self.tree.describe()
        names = [PUBLIC_NAMES.get(name, name.replace("_", "-")) for name in BOOSTING_FIELDS if name != "seed"]
        own = {_boosting_name(field.name): getattr(self, field.name) for field in fields(self) if field.name != "tree"}
        return {**{name: of_tree[name] for name in names}, **own}

    def rows_per_tree(self, n_rows: int) -> float:
        """Fraction of the rows drawn for each tree."""
        return self.row_sample or min(1.0, max(BOOSTED_ROW_SAMPLE, ALWAYS_ALL_ROWS / n_rows))

    def refits_for(self, n_rows: int) -> int:
        """Number of passes after the last round."""
        return (REFITS if n_rows > FEW_SAMPLES else 0) if self.refits is None else self.refits

    @property
    def penalty_of_refits(self) -> float:
        """Penalty of the passes after the last round, as a number of samples."""
        return self.score_penalty / self.learning_rate if self.refit_penalty is None else self.refit_penalty

    def first_tree_options(self, n_rows: int, n_features: int, is_trial: bool) -> TrainingOptions:
        """Options of the search for the first tree; trials of tuning search less, least where there are many values."""
        least = max(self.tree.min_samples_leaf, TrainingOptions.min_samples_leaf)
        search: dict[str, Any] = PRESETS["default"]
        if is_trial:
            are_few = n_rows <= FEW_SAMPLES or n_rows * n_features <= FEW_VALUES
            search = {**PRESETS["fast"], **(_SEARCH if are_few else {})}
        own = {"fitness": self.tree.fitness, "seed": self.tree.seed, "min_samples_leaf": least, "tune": False}
        return TrainingOptions(**{**search, **own})

    def features_per_level(self, n_features: int) -> int:
        """Number of features drawn for each level of a tree."""
        if self.feature_sample:
            return max(1, round(self.feature_sample * n_features))
        return min(n_features, ALWAYS_ALL_FEATURES) + max(0, n_features - ALWAYS_ALL_FEATURES) // 8

    def with_candidate(self, candidate: dict[str, Any]) -> BoostingOptions:
        """The same options with other values of boosting or of its trees."""
        own = {name: value for name, value in candidate.items() if name not in BOOSTING_FIELDS}
        others = {name: value for name, value in candidate.items() if name in BOOSTING_FIELDS}
        return replace(self, tree=replace(self.tree, **others), **own)


def _boosting_name(field: str) -> str:
    return {"n_rounds": "boost"}.get(field, field.replace("_", "-"))


def boosting_options_for(preset: str, n_rounds: int, **changes: Any) -> BoostingOptions:
    """Options of a boosted model by the name of a preset, with changes; a change that is None is ignored.

    Setting any of `BOOSTING_TUNED` disables tuning.
    """
    if preset not in BOOSTING_PRESETS:
        raise RequestError(f"preset {preset!r} is for single trees and forests; leave out 'preset' or 'boost'")
    chosen = {name: value for name, value in changes.items() if value is not None}
    fixed = sorted(BOOSTING_TUNED & set(chosen))
    if fixed and chosen.get("tune"):
        raise RequestError(f"'tune' chooses '{_boosting_name(fixed[0])}'; leave out one of them")
    if fixed:
        chosen["tune"] = False
    own = {field.name for field in fields(BoostingOptions)} - {"tree", "n_rounds"}
    for name in chosen:
        if name in TrainingOptions.__dataclass_fields__ and name not in BOOSTING_FIELDS:
            public = {**PUBLIC_NAMES, "greedy": "population-generator"}.get(name, name.replace("_", "-"))
            raise RequestError(f"'{public}' is for the search for trees; leave out '{public}' or 'boost'")
        if name not in (*own, *BOOSTING_FIELDS):
            raise TypeError(f"no such option: {name}")
    values = {**_BOOSTED_TREES, **BOOSTING_PRESETS[preset], **chosen}
    tree = TrainingOptions(**{name: value for name, value in values.items() if name in BOOSTING_FIELDS})
    return BoostingOptions(tree, n_rounds, **{name: value for name, value in values.items() if name in own})
