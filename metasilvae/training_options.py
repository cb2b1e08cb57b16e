"""Everything that can be chosen about a training run, and the presets."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from metasilvae._core.training import evolution
from metasilvae.errors import RequestError
from metasilvae.fitness import PAPER_FITNESS, Fitness

SELECTIONS = tuple(evolution.SELECTIONS)
MUTATIONS = tuple(evolution.MUTATIONS)
MUTATION_PROBABILITIES = ("constant", "encourage-variance")
IMPURITIES = tuple(evolution.IMPURITIES)
# Shares of the impurity of reach sets in the criterion by which trees are grown: from accuracy to stability.
BLENDS = (0.3, 0.1, 0.0, 1.0, 0.05, 0.2, 0.5, 0.02)

LARGEST = 2**30
# Of leaves, and of splits above one.
NO_LIMIT = 2**20
# Names on the command line, where they differ.
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


@dataclass(frozen=True)
class TrainingOptions:
    """Options of one training run.

    Attributes
    ----------
    fitness : Fitness
        What the tree is trained for.
    seed : int
        The same seed gives the same tree, byte for byte, for any number of jobs.
    rehearse : bool
        Choose radius_factor, caution and leaf_cost by held-out samples first, see metasilvae.rehearsal; the values
        given here are not used then.
    radius_factor : float
        The boxes of training are larger by this factor than those to be certified.
    caution : float
        Share of the weight of correct samples that the search gives to robust ones instead: a sample that is correct
        with its whole box says more about new samples than one that is just correct.
    greedy : bool
        Start from greedily grown trees; else from single leaves.
    blends : tuple of float
        Criteria of growth, see `BLENDS`.
    seed_leaves : int
        Leaves of the largest greedily grown tree; 0 chooses by the number of samples.
    leaf_cost : float
        What a leaf must gain, in samples.
    min_samples_leaf, max_leaves, max_depth : int
    allowed_features : int
        Number of features drawn for the tree; 0 means all.
    population, initial_population : int
        Trees in a generation, and in the first one: the best of those made or read, repeated if they are fewer.
    generations, elitism : int
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
        Passes over all inner nodes of the best trees at the end, each moving tests to their best places.
    validation : float
        Share of the samples that is held out to choose among the best trees.
    """

    fitness: Fitness = PAPER_FITNESS
    seed: int = 0
    rehearse: bool = True
    radius_factor: float = 1.15
    caution: float = 0.2
    greedy: bool = True
    blends: tuple[float, ...] = BLENDS
    seed_leaves: int = 0
    leaf_cost: float = 1.0
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

    def price_of_leaf(self, n_samples: int) -> float:
        """What a leaf takes off the fitness."""
        correct, stable, robust = self.fitness.weights
        return self.leaf_cost * max(correct + robust, stable, 0.0) / n_samples

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
        if not self.blends or not all(0 <= blend <= 1 for blend in self.blends):
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
    ("radius_factor", 0, LARGEST),
    ("leaf_cost", 0, LARGEST),
    ("caution", 0, 1),
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
)


# Values that a rehearsal chooses.
REHEARSED = frozenset({"radius_factor", "caution", "leaf_cost"})
# What each preset changes against the defaults above.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "fast": {"rehearse": False, "generations": 0, "blends": BLENDS[:4], "polish": 1},
    "best": {"generations": 400, "patience": 100, "population": 64, "initial_population": 64},
    # The genetic algorithm of the paper, with the parameters of the authors' program.
    "paper": {
        "rehearse": False,
        "greedy": False,
        "radius_factor": 1.0,
        "caution": 0.0,
        "leaf_cost": 0.0,
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
    # A plain decision tree for comparison: grown by Gini until nothing is gained, whatever becomes of stability.
    "cart": {
        "rehearse": False,
        # Without boxes every sample is stable, so that accuracy alone decides.
        "radius_factor": 0.0,
        "caution": 0.0,
        "blends": (0.0,),
        "seed_leaves": LARGEST,
        "leaf_cost": 0.0,
        "min_samples_leaf": 1,
        "generations": 0,
        "polish": 0,
    },
}


def options_for(preset: str, **changes: Any) -> TrainingOptions:
    """Options of a preset with changes; a change that is None is left out.

    Whoever sets a value that a rehearsal would choose wants no rehearsal, unless it is asked for too.
    """
    chosen = {name: value for name, value in changes.items() if value is not None}
    if REHEARSED & set(chosen):
        chosen.setdefault("rehearse", False)
    unknown = set(chosen) - {field.name for field in fields(TrainingOptions)}
    if unknown:
        raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
    return replace(TrainingOptions(), **{**PRESETS[preset], **chosen})
