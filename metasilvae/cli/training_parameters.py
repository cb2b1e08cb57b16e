"""The options of ``metasilvae train`` and what they mean for the library."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.cli.inputs import choose_perturbation, fit_perturbation
from metasilvae.cli.parameters import Phrase, PositiveNumber, attack_option, shared_options
from metasilvae.errors import MetasilvaeWarning
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import PERTURBATIONS, Ball, Perturbation
from metasilvae.training.options import (
    IMPURITIES,
    METHODS,
    MUTATION_PROBABILITIES,
    MUTATIONS,
    PRESETS,
    SELECTIONS,
    TUNED,
    Options,
    TrainingOptions,
    forest_options_for,
    options_for,
)
from metasilvae.training.runs import TrainingRequest
from metasilvae.verification.objective import LINEAR_WORDS, WEIGHT_NAMES, Fitness, fitness_from_weights, parse_linear

DEFAULTS = TrainingOptions()
# The C program's name for a mutation.
MUTATION_ALIASES = {"Z": "grow-or-prune"}
MOST_SEEDS = 100_000
_SEED_RANGE = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")


def _option(names: str, field: str, kind: Any, text: str, shown: object = None) -> Callable[[Any], Any]:
    """An option that changes a field of the preset if it is given."""
    value = getattr(DEFAULTS, field) if shown is None else shown
    shown = f"{value:g}" if isinstance(value, float) else value
    return click.option(names, field, type=kind, help=f"{text}  [preset default: {shown}]")


class SeedList(click.ParamType):
    """Seeds such as ``1..20``, ``1,2,5`` or ``0,10..12``."""

    name = "seeds"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "A..B|A,B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        seeds: dict[int, None] = {}
        for part in value.split(","):
            found = _SEED_RANGE.fullmatch(part.strip())
            if found is None:
                self.fail(f"{value!r}: expected whole numbers such as 1..20 or 1,2,5.", param, ctx)
            first = int(found[1])
            last = int(found[2] or first)
            if not 0 <= last - first < MOST_SEEDS:
                self.fail(f"{part.strip()!r}: a range goes from a number to a larger one.", param, ctx)
            for seed in range(first, last + 1):
                if seed in seeds:
                    self.fail(f"{value!r}: names seed {seed} twice; the same seed gives the same model.", param, ctx)
                seeds[seed] = None
        return tuple(seeds)


_PROBABILITY = click.FloatRange(0, 1)
_COUNT = click.IntRange(min=0)
_SIZE = click.IntRange(min=1)

training_options = shared_options(
    click.option("--epsilon", metavar="E", help="Perturbation to withstand: every value moves by at most E."),
    click.option(
        "--perturbation",
        type=Phrase({name: words for name, words in PERTURBATIONS.items() if name != "from-file"}),
        help="The same, or a ball that is cut to [MIN, MAX].",
    ),
    attack_option,
    click.option(
        "--weight",
        "weights",
        multiple=True,
        metavar="NAME=W",
        help="What the tree is trained for: weight of accuracy, stability, robustness or a verdict; repeatable.  "
        "[default: accuracy=0.9 stability=0.1]",
    ),
    click.option(
        "--fitness",
        type=Phrase({"linear": LINEAR_WORDS}),
        metavar="linear E W1 .. W9",
        help="Epsilon and the weights of correct, wrong, stable, unstable, no-info, robust, fragile, vulnerable and "
        "broken rows, instead of --epsilon and --weight.",
    ),
    click.option(
        "--preset", type=click.Choice(list(PRESETS)), default="default", help="What the other options start from."
    ),
    click.option("--seed", type=_COUNT, help="The same seed gives the same tree, byte for byte.  [default: 0]"),
    click.option(
        "--seeds", type=SeedList(), help="Train once for each seed, show the spread and keep the best model."
    ),
    click.option("--trees", type=_SIZE, metavar="N", help="Train a forest of N trees that vote."),
    click.option(
        "--forest-method",
        type=click.Choice(METHODS),
        help="reweighted: trees look at rows on which the forest so far is wrong or unstable; independent: each by "
        "itself.  [default: auto, which tunes both; presets paper and cart: independent]",
    ),
    click.option(
        "--row-sample",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="SHARE",
        help="Rows drawn for each tree of a forest.  [default: 1 if reweighted, 0.7 if independent]",
    ),
    click.option(
        "--time-limit",
        type=PositiveNumber(),
        metavar="SECONDS",
        help="Stop after so many seconds, with each seed of --seeds.",
    ),
    click.option("--target", type=float, metavar="PHI", help="Stop when the fitness in training reaches this."),
    _option("--patience", "patience", _COUNT, "Stop after so many generations without improvement; 0: never."),
    _option("--max-iteration", "generations", _COUNT, "Number of generations."),
    click.option(
        "--validation",
        type=click.FloatRange(0, 0.9),
        metavar="SHARE",
        help="Hold out this share of the rows to choose among the best trees.  [default: 0]",
    ),
    click.option("--max-depth", type=_COUNT, help="Most splits above a leaf.  [default: no limit]"),
    click.option("--max-leaves", type=_SIZE, help="Most leaves of the tree.  [default: no limit]"),
    _option("--min-samples-leaf", "min_samples_leaf", _SIZE, "Fewest training rows in a leaf."),
    click.option(
        "--tune/--no-tune",
        default=None,
        help="Tune leaf penalty, training-epsilon factor and robust weight by cross-validation on subsamples first.  "
        "[default: tune, unless one of them is given; greedy populations only]",
    ),
    _option("--leaf-penalty", "leaf_penalty", click.FloatRange(min=0), "How many rows a leaf must gain."),
    _option(
        "--training-epsilon-factor", "training_epsilon_factor", click.FloatRange(min=0),
        "Train with epsilon multiplied by this factor.",
    ),
    _option(
        "--robust-weight", "robust_weight", _PROBABILITY,
        "Fraction of the accuracy weight that moves to robust accuracy.",
    ),
    _option("--criterion", "impurity", click.Choice(IMPURITIES), "Impurity that growth lowers."),
    click.option(
        "--population-generator",
        type=Phrase({"greedy": (), "blank": (), "from-forest": ("PATH",)}),
        help="First trees: grown greedily, single leaves, or the trees of a file.  [preset default: greedy]",
    ),
    _option("--population-initial-size", "initial_population", _SIZE, "Trees in the first generation."),
    _option("--population-max-size", "population", _SIZE, "Trees in each further generation."),
    click.option(
        "--population-next-size", type=click.Choice(["constant"]), default="constant", help="How populations grow."
    ),
    _option("--elitism", "elitism", _COUNT, "Best trees that each generation takes over."),
    _option("--select", "selection", click.Choice(SELECTIONS), "How parents are chosen."),
    _option("--tournament-size", "tournament_size", _SIZE, "Trees in a tournament."),
    click.option(
        "--crossover",
        "crossover_kind",
        type=click.Choice(["one-point"]),
        default="one-point",
        help="How trees are crossed: a subtree of one takes the place of a subtree of the other.",
    ),
    _option("--crossover-probability", "crossover", _PROBABILITY, "Share of offspring that have two parents."),
    _option(
        "--mutation",
        "mutation",
        click.Choice([*MUTATIONS, *MUTATION_ALIASES]),
        "How offspring change; Z is grow-or-prune.",
    ),
    _option("--mutation-base-probability", "mutation_probability", _PROBABILITY, "Share of offspring that change."),
    _option(
        "--mutation-probability",
        "mutation_probability_rule",
        click.Choice(MUTATION_PROBABILITIES),
        "encourage-variance: the less, the more the fitness of a population varies.",
    ),
    _option(
        "--split-search-aggressiveness",
        "aggressiveness",
        click.FloatRange(0, 1, min_open=True),
        "Share of the features that a mutation looks at.",
    ),
    click.option(
        "--allowed-features",
        type=Phrase({"all": (), "uniform": ("N",)}),
        help="Features that may be tested: all, or N drawn at random for each tree.  [default: all; in a forest 16 and "
        "a quarter of the others]",
    ),
    _option("--polish", "polish", _COUNT, "Passes over the best trees at the end."),
)  # fmt: skip


def read_request(
    data: str,
    files: dict[str, Any],
    *,
    epsilon: str | None,
    perturbation: tuple[str, ...] | None,
    attack: str | None,
    weights: tuple[str, ...],
    fitness: tuple[str, ...] | None,
    preset: str,
    seed: int | None,
    seeds: tuple[int, ...] | None,
    population_generator: tuple[str, ...] | None,
    population_next_size: str,
    crossover_kind: str,
    mutation: str | None,
    allowed_features: tuple[str, ...] | None,
    tune: bool | None,
    trees: int | None,
    forest_method: str | None,
    row_sample: float | None,
    **changes: Any,
) -> TrainingRequest:
    """Turn the values of `training_options` into a request; contradictions are wrong usage.

    Parameters
    ----------
    data : str
        Source of the training rows.
    files : dict
        Other fields of the request.
    """
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed and --seeds exclude each other; give one of them")
    chosen, goal = _read_goal(trees is not None, epsilon, perturbation, attack, weights, fitness)
    generator, *path = population_generator or (None,)
    fixed = [f"--{name.replace('_', '-')}" for name in sorted(TUNED) if changes[name] is not None]
    if generator not in (None, "greedy"):
        fixed.append(f"--population-generator {generator}")
    if tune and fixed:
        raise click.UsageError(f"--tune and {fixed[0]} exclude each other; leave one of them out")
    if trees is None:
        for name, value in (("--forest-method", forest_method), ("--row-sample", row_sample)):
            if value is not None:
                raise click.UsageError(f"{name} is for forests; give the number of trees with --trees")
    elif generator == "from-forest":
        raise click.UsageError("--trees grows a new forest; leave --trees or --population-generator from-forest out")
    make_options: Callable[..., Options] = options_for
    if trees is not None:
        make_options = partial(forest_options_for, n_trees=trees, method=forest_method, row_sample=row_sample)
    options = make_options(
        preset,
        fitness=goal,
        mutation=MUTATION_ALIASES.get(mutation, mutation) if mutation else None,
        greedy=None if generator is None else generator == "greedy",
        allowed_features=None if allowed_features is None else _read_allowed(allowed_features),
        tune=False if fixed else tune,
        seed=seed,
        **changes,
    )
    # An attack is known after the columns of the data.
    withstood = partial(fit_perturbation, chosen) if isinstance(chosen, AttackRules) else chosen
    start = path[0] if path else None
    others = () if attack is None else (attack,)
    return TrainingRequest(data, withstood, options, seeds=seeds, start=start, other_inputs=others, **files)


def _read_goal(
    is_forest: bool,
    epsilon: str | None,
    perturbation: tuple[str, ...] | None,
    attack: str | None,
    weights: tuple[str, ...],
    fitness: tuple[str, ...] | None,
) -> tuple[Perturbation | AttackRules, Fitness | None]:
    """What to withstand and what to train for; a fitness of None is that of the preset."""
    if fitness is not None:
        given = {"--epsilon": epsilon, "--perturbation": perturbation, "--attack": attack, "--weight": weights}
        for name, value in given.items():
            if value:
                raise click.UsageError(f"--fitness holds epsilon and all weights; leave {name} or --fitness out")
        radius, goal = parse_linear(fitness[1:])
        return Ball(radius), goal
    chosen = choose_perturbation(epsilon, perturbation, attack)
    if chosen is None:
        warnings.warn(
            f"no --epsilon is given: the {'forest' if is_forest else 'tree'} is trained for accuracy alone, as if "
            "every value were exact",
            MetasilvaeWarning,
            stacklevel=2,
        )
    return chosen or Ball(0), _read_weights(weights) if weights else None


def _read_weights(weights: tuple[str, ...]) -> Fitness:
    found: dict[str, float] = {}
    for text in weights:
        name, _, value = text.partition("=")
        number = parse_number(value.strip().encode(errors="surrogateescape"))
        if number is None:
            raise click.UsageError(
                f"--weight {text!r}: expected NAME=NUMBER, for instance accuracy=0.9; the names are "
                f"{', '.join(WEIGHT_NAMES)}"
            )
        if name.strip() in found:
            raise click.UsageError(f"--weight: the weight of {name.strip()} is given twice")
        found[name.strip()] = number
    return fitness_from_weights(found)


def _read_allowed(phrase: tuple[str, ...]) -> int:
    keyword, *words = phrase
    if keyword == "all":
        return 0
    if not (words[0].isascii() and words[0].isdigit() and 0 < int(words[0][:10]) < 2**30):
        raise click.UsageError(f"--allowed-features uniform {words[0]!r}: expected a whole number from 1 on")
    return int(words[0])
