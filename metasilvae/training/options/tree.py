"""Options of training runs for single trees, their presets, and the interface that the options of all models have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Protocol

from metasilvae._core.training import evolution
from metasilvae.datasets.splitting import MANY_SAMPLES, SPLITS
from metasilvae.errors import RequestError
from metasilvae.training.options.rules import (
    check_kinds,
    public_name,
    refuse_foreign,
    refuse_tuning,
    refuse_unknown,
    settle_tuning,
    warn_of_split,
)
from metasilvae.verification.objective import PAPER_FITNESS, Fitness
from metasilvae.verification.shards import Shard

SELECTIONS = tuple(evolution.SELECTIONS)
MUTATIONS = tuple(evolution.MUTATIONS)
MUTATION_PROBABILITIES = ("constant", "encourage-variance")
IMPURITIES = tuple(evolution.IMPURITIES)
# Weights of the impurity of reach sets in the criterion by which trees are grown, from accuracy (0) to stability (1).
BLENDS = (0.3, 0.1, 0.0, 1.0, 0.05, 0.2, 0.5, 0.02)

MOST_BLENDS: int = evolution.MOST_BLENDS

LARGEST = 2**30
# Maximum depth and maximum number of leaves that mean no limit.
NO_LIMIT = 2**20


class Options(Protocol):
    """What the options of trees, of forests and of boosted models have in common.

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
        Criteria of greedy growth, see `BLENDS`; at most `MOST_BLENDS`.
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
        return {public_name(name): as_json(value) for name, value in found.items()}

    @property
    def growth_criteria(self) -> list[tuple[str, float]]:
        """Impurity and weight of reach sets of each criterion by which trees are grown."""
        return [(self.impurity, blend) for blend in dict.fromkeys(self.blends)]

    def price_of_leaf(self, n_samples: float) -> float:
        """What a leaf subtracts from the fitness."""
        correct, stable, robust = self.fitness.weights
        return self.leaf_penalty * max(correct + robust, stable, 0.0) / n_samples

    def __post_init__(self) -> None:
        check_kinds(self)
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                what = (
                    f"at least {low:g}" if high in (math.inf, LARGEST) and value < low else f"from {low:g} to {high:g}"
                )
                raise RequestError(f"{public_name(name)} is {value:g}, it must be {what}")
        for name, choices in _CHOICES:
            if getattr(self, name) not in choices:
                raise RequestError(f"{name.replace('_', '-')} must be one of {', '.join(choices)}")
        if not 0 < self.aggressiveness <= 1:
            raise RequestError("split-search-aggressiveness must be more than 0 and at most 1")
        if not self.blends or not all(0 <= blend <= 1 for blend in self.blends):
            raise RequestError("blends must be numbers from 0 to 1")
        if len(self.growth_criteria) > MOST_BLENDS:
            raise RequestError(f"blends are {len(self.growth_criteria)} numbers, at most {MOST_BLENDS} are possible")
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
# Trees of an ensemble must differ: of up to so many features each tree uses all, of more a part.
ALWAYS_ALL_FEATURES = 16
# Where samples are few, a short search for each tree of a forest costs little and pays.
FEW_SAMPLES = 3000
# The same for the first tree of boosting in trials, by rows times features.
FEW_VALUES = 250_000
SHORT_SEARCH: dict[str, Any] = {"generations": 10, "population": 12, "initial_population": 12, "elitism": 2}


def options_for(preset: str, **changes: Any) -> TrainingOptions:
    """Options of a preset with changes; a change that is None is ignored.

    Setting any of `TUNED`, or a population that is not grown greedily, disables tuning; `tune` must not be set too.
    Setting any of `TUNED` or the criteria of growth disables `pretune`, unless it is set too.
    """
    chosen = {name: value for name, value in changes.items() if value is not None}
    refuse_foreign("tree", chosen)
    refuse_tuning(chosen, preset, TUNED & set(PRESETS[preset]))
    settle_tuning(chosen, list_fixed(chosen))
    options = make_tree_options(preset, chosen)
    warn_of_split(chosen, is_tuned=options.tune, quick_from=MANY_SAMPLES if options.pretune else None)
    return options


def list_fixed(chosen: dict[str, Any]) -> list[str]:
    """The options given for trees that tuning would choose, or that it cannot work with."""
    return [*sorted(TUNED & set(chosen)), *(["greedy"] if chosen.get("greedy") is False else [])]


def make_tree_options(preset: str, chosen: dict[str, Any]) -> TrainingOptions:
    """Options of a preset with changes that do not contradict each other."""
    refuse_unknown(chosen, TrainingOptions.__dataclass_fields__)
    quick = {"pretune": False} if {*TUNED, "blends"} & set(chosen) else {}
    return replace(TrainingOptions(), **{**PRESETS[preset], **quick, **chosen})
