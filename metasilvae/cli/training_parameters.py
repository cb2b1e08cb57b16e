"""The options of ``metasilvae train`` and what they mean for the library."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.api import choose_options
from metasilvae.cli.commands import (
    COMPATIBILITY,
    ENSEMBLES,
    OBJECTIVE,
    REGULARIZATION,
    RESULTS,
    SEARCH,
    THREAT_MODEL,
    option,
    option_group,
)
from metasilvae.cli.inputs import Chosen, NormChoice, fit_perturbation
from metasilvae.cli.parameters import (
    Phrase,
    PositiveNumber,
    ThreatModel,
    attack_option,
    data_options,
    jobs_option,
    list_choices,
    plain_option,
    scheduler_option,
    shard_option,
    shared_options,
)
from metasilvae.datasets.splitting import SPLITS
from metasilvae.errors import MetasilvaeWarning, RequestError
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import PERTURBATIONS, Ball
from metasilvae.perturbations.norms import NORMS
from metasilvae.training.boosted_trees import MOST_THRESHOLDS
from metasilvae.training.checkpoint.runs import SECONDS_BETWEEN
from metasilvae.training.options import (
    FIRST_TREES,
    IMPURITIES,
    METHODS,
    MUTATION_PROBABILITIES,
    MUTATIONS,
    PRESETS,
    SELECTIONS,
    TUNED,
    BoostingOptions,
    TrainingOptions,
)
from metasilvae.training.runs import TrainingRequest
from metasilvae.training.weights import ClassWeight, parse_class_weight
from metasilvae.verification.objective import LINEAR_WORDS, WEIGHT_NAMES, Fitness, fitness_from_weights, parse_linear

DEFAULTS = TrainingOptions()
BOOSTING = BoostingOptions(DEFAULTS)
# The C program's name for a mutation.
MUTATION_ALIASES = {"Z": "grow-or-prune"}
MOST_SEEDS = 100_000
_FRACTION = click.FloatRange(0, 1)
_COUNT = click.IntRange(min=0)
_SIZE = click.IntRange(min=1)
_SEED_RANGE = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")


def _preset_option(names: str, field: str, kind: Any, text: str = "") -> Callable[[Any], Any]:
    """An option that changes a field of the preset if it is given; the help shows its value in the default preset."""
    value = getattr(DEFAULTS, field)
    shown = f"{value:g}" if isinstance(value, float) else value
    if field in TUNED:
        shown = f"tuned; else {shown}"
    metavar = "N" if isinstance(kind, click.IntRange) else "P" if "probability" in names else "X"
    if isinstance(kind, click.Choice):
        metavar, text = "NAME", f"{text}{list_choices(kind.choices)}."
    return option(names, field, type=kind, metavar=metavar, help=f"{text}  [default: {shown}]")


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


training_options = shared_options(
    option_group(
        THREAT_MODEL,
        option("--epsilon", metavar="E", help="Maximum change of each feature, or in the --norm."),
        option(
            "--norm",
            type=click.Choice(list(NORMS)),
            metavar="NAME",
            help="What epsilon limits: linf, each change; l1, their sum; l2, the distance; l0, their number.  "
            "[default: linf]",
        ),
        option(
            "--perturbation",
            type=Phrase({name: words for name, words in PERTURBATIONS.items() if name != "from-file"}),
            metavar="KIND ...",
            help="l_inf E, or l_inf-clip-all E MIN MAX to stay in [MIN, MAX].",
        ),
    ),
    attack_option,
    option_group(
        OBJECTIVE,
        option(
            "--weight",
            "weights",
            multiple=True,
            metavar="NAME=W",
            help="Weight of accuracy, stability, robust_accuracy or a verdict in phi; repeatable.  "
            "[default: accuracy=0.9 stability=0.1]",
        ),
        option(
            "--class-weight",
            metavar="WEIGHTS",
            help="Weights of classes: balanced, or LABEL=W,LABEL=W; 1 for others.",
        ),
        _preset_option("--robust-weight", "robust_weight", _FRACTION, "Weight moved to robust accuracy."),
        _preset_option(
            "--training-epsilon-factor",
            "training_epsilon_factor",
            click.FloatRange(min=0),
            "Train with epsilon times this factor.",
        ),
    ),
    option_group(
        REGULARIZATION,
        option("--max-depth", type=_COUNT, help="Maximum depth.  [default: no limit; boosted: tuned]"),
        option("--max-leaves", type=_SIZE, help="Maximum number of leaves.  [default: no limit]"),
        _preset_option("--min-samples-leaf", "min_samples_leaf", _SIZE, "Minimum samples per leaf; boosted: 1."),
        _preset_option(
            "--leaf-penalty", "leaf_penalty", click.FloatRange(min=0), "Complexity penalty per leaf, in rows."
        ),
        option(
            "--tune/--no-tune",
            default=None,
            help="Tune leaf penalty, epsilon factor and robust weight by cross-validation.  "
            "[default: tune, unless one of them is set]",
        ),
        option(
            "--split",
            type=click.Choice(SPLITS),
            metavar="NAME",
            help=f"Tuning splits: {list_choices(SPLITS)} of rows.  [default: auto]",
        ),
    ),
    option_group(
        ENSEMBLES,
        option(
            "--trees",
            type=_SIZE,
            help="Forest of N trees, best an odd number.",
        ),
        option("--boost", type=_SIZE, help="Boosted model of at most N rounds."),
        option(
            "--forest-method",
            type=click.Choice(METHODS),
            metavar="NAME",
            help=f"{list_choices(METHODS)}. reweighted: focus on rows that the forest so far gets wrong or unstable.  "
            "[default: auto]",
        ),
        option(
            "--row-sample",
            type=click.FloatRange(0, 1, min_open=True),
            metavar="FRACTION",
            help="Rows per tree.  [default: 1; independent: 0.7; boosted: fewer]",
        ),
        option(
            "--feature-sample",
            type=click.FloatRange(0, 1, min_open=True),
            metavar="FRACTION",
            help="Features for each boosted level.  [default: fewer above 16]",
        ),
        option(
            "--learning-rate",
            type=click.FloatRange(0, 1, min_open=True),
            metavar="X",
            help=f"Factor of the scores of each boosted tree.  [default: {BOOSTING.learning_rate:g}]",
        ),
        option(
            "--thresholds",
            type=click.IntRange(1, MOST_THRESHOLDS),
            help=f"Thresholds per feature in boosting, at most.  [default: {BOOSTING.thresholds}]",
        ),
        option(
            "--score-penalty",
            type=click.FloatRange(min=0),
            metavar="X",
            help=f"L2 penalty on boosted scores, in rows.  [default: {BOOSTING.score_penalty:g}]",
        ),
        option(
            "--tolerance",
            type=_FRACTION,
            metavar="X",
            help="Boosting gives up unstable rows, 0 to 1.  [default: tuned]",
        ),
        option(
            "--refits",
            type=click.IntRange(min=0),
            metavar="N",
            help="Refits of boosted leaves.  [default: 3, 0 if few or noisy rows]",
        ),
        option(
            "--refit-penalty",
            type=click.FloatRange(min=0),
            metavar="X",
            help="Penalty of refits.  [default: score penalty / learning rate]",
        ),
        option(
            "--first-tree",
            type=click.Choice(list(FIRST_TREES)),
            metavar="NAME",
            help=f"First boosted tree: {list_choices(list(FIRST_TREES))} for.  [default: tuned]",
        ),
        option(
            "--image-shifts",
            metavar="HEIGHTxWIDTH",
            help="Boosting also learns from images shifted by a pixel.",
        ),
        option("--additive", is_flag=True, default=None, help="Boost one tree for each feature."),
    ),
    option_group(
        SEARCH,
        option(
            "--preset",
            type=click.Choice(list(PRESETS)),
            default="default",
            metavar="NAME",
            help=f"{list_choices(list(PRESETS))}.",
        ),
        option("--time-limit", type=PositiveNumber(), metavar="SECONDS", help="Stop after this time."),
        option("--target", type=float, metavar="PHI", help="Stop when phi in training reaches this."),
        _preset_option("--patience", "patience", _COUNT, "Stop after N generations or rounds without gain."),
        _preset_option("--polish", "polish", _COUNT, "Passes of local search over the best trees."),
        _preset_option("--criterion", "impurity", click.Choice(IMPURITIES), "Impurity: "),
        _preset_option("--tournament-size", "tournament_size", _SIZE, "Trees per tournament."),
        _preset_option(
            "--crossover-probability", "crossover", _FRACTION, "Probability that offspring have two parents."
        ),
        option(
            "--validation",
            type=click.FloatRange(0, 0.9),
            metavar="FRACTION",
            help="Fraction of rows held out for model selection.  [default: 0]",
        ),
    ),
    option_group(
        RESULTS,
        option("--seed", type=_COUNT, help="Random seed; the same seed gives the same model.  [default: 0]"),
        option("--seeds", type=SeedList(), help="Train once per seed, show the spread, keep the best."),
    ),
    option_group(
        COMPATIBILITY,
        option(
            "--fitness",
            type=Phrase({"linear": LINEAR_WORDS}),
            metavar="linear E W1 .. W9",
            help="Epsilon, then weights of correct, wrong, stable, unstable, no-info, robust, fragile, vulnerable and "
            "broken rows.",
        ),
        _preset_option("--max-iteration", "generations", _COUNT, "Maximum number of generations."),
        option(
            "--population-generator",
            type=Phrase({"greedy": (), "blank": (), "from-forest": ("PATH",)}),
            metavar="KIND",
            help="greedy, blank or from-forest PATH.  [default: greedy]",
        ),
        _preset_option("--population-initial-size", "initial_population", _SIZE, "Size of the initial population."),
        _preset_option("--population-max-size", "population", _SIZE, "Size of later populations."),
        option(
            "--population-next-size",
            type=click.Choice(["constant"]),
            default="constant",
            metavar="NAME",
            help="constant.",
            show_default=False,
        ),
        _preset_option("--elitism", "elitism", _COUNT, "Best trees copied to the next generation."),
        _preset_option("--select", "selection", click.Choice(SELECTIONS)),
        option(
            "--crossover",
            "crossover_kind",
            type=click.Choice(["one-point"]),
            default="one-point",
            metavar="NAME",
            help="one-point.",
            show_default=False,
        ),
        _preset_option("--mutation", "mutation", click.Choice([*MUTATIONS, *MUTATION_ALIASES])),
        _preset_option("--mutation-base-probability", "mutation_probability", _FRACTION, "Probability of mutation."),
        _preset_option("--mutation-probability", "mutation_probability_rule", click.Choice(MUTATION_PROBABILITIES)),
        _preset_option(
            "--split-search-aggressiveness",
            "aggressiveness",
            click.FloatRange(0, 1, min_open=True),
            "Fraction of features that a mutation tries.",
        ),
        option(
            "--allowed-features",
            type=Phrase({"all": (), "uniform": ("N",)}),
            metavar="KIND",
            help="all, or uniform N for each tree.  [default: all; forest: fewer]",
        ),
    ),
)

# Options of a run as a whole: its files, and where it is computed.
run_options = shared_options(
    option_group(
        RESULTS,
        option("--test", metavar="FILE", help="Evaluate the model on this data too."),
        option("--table", metavar="FILE", help="Write the metrics of each seed (.csv, .json)."),
        option("--log", metavar="FILE", help="Write the progress as JSON lines."),
        option("--pareto", metavar="DIR", help="Save all Pareto-optimal trees; see `metasilvae pareto`."),
        option("--checkpoint", metavar="FILE", help="Save the state regularly, so that --resume can continue."),
        option(
            "--every", type=_SIZE, help=f"Save the checkpoint every N steps.  [default: every {SECONDS_BETWEEN:g} s]"
        ),
        option("--resume", metavar="FILE|auto", help="Continue from a checkpoint; auto: if there is one."),
        option("--no-manifest", is_flag=True, help="Do not write OUTPUT.manifest.json (provenance)."),
        plain_option,
    ),
    scheduler_option,
    shard_option("Train the I-th of N parts of the trees or seeds."),
    data_options,
    jobs_option,
)


def read_request(
    data: str,
    files: dict[str, Any],
    *,
    epsilon: str | None,
    norm: str | None,
    perturbation: tuple[str, ...] | None,
    attack: str | None,
    weights: tuple[str, ...],
    class_weight: str | None,
    fitness: tuple[str, ...] | None,
    preset: str,
    seed: int | None,
    seeds: tuple[int, ...] | None,
    population_generator: tuple[str, ...] | None,
    population_next_size: str,
    crossover_kind: str,
    mutation: str | None,
    allowed_features: tuple[str, ...] | None,
    trees: int | None,
    boost: int | None,
    forest_method: str | None,
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
    kind = "forest" if trees is not None else "tree" if boost is None else "model"
    chosen, goal = _read_goal(kind, ThreatModel(epsilon, perturbation, attack, norm), weights, fitness)
    generator, *path = population_generator or (None,)
    if trees is not None and generator == "from-forest":
        raise click.UsageError("--trees grows a new forest; leave --trees or --population-generator from-forest out")
    options = choose_options(
        preset,
        seed=seed,
        trees=trees,
        boost=boost,
        fitness=goal,
        mutation=MUTATION_ALIASES.get(mutation, mutation) if mutation else None,
        greedy=None if generator is None else generator == "greedy",
        allowed_features=None if allowed_features is None else _read_allowed(allowed_features),
        method=forest_method,
        **changes,
    )
    # An attack is known after the columns of the data.
    withstood = partial(fit_perturbation, chosen) if isinstance(chosen, AttackRules | NormChoice) else chosen
    start = path[0] if path else None
    others = () if attack is None else (attack,)
    parsed = None if class_weight is None else _parse_class_weight(class_weight)
    return TrainingRequest(
        data, withstood, options, seeds=seeds, start=start, other_inputs=others, class_weight=parsed, **files
    )


def _parse_class_weight(text: str) -> ClassWeight:
    try:
        return parse_class_weight(text)
    except RequestError as error:
        raise click.UsageError(f"--class-weight: {error}") from None


def _read_goal(
    kind: str,
    threat: ThreatModel,
    weights: tuple[str, ...],
    fitness: tuple[str, ...] | None,
) -> tuple[Chosen, Fitness | None]:
    """What to withstand and what to train for; a fitness of None is that of the preset."""
    if fitness is not None:
        given = {**{f"--{name}": value for name, value in vars(threat).items()}, "--weight": weights}
        for name, value in given.items():
            if value:
                raise click.UsageError(f"--fitness holds epsilon and all weights; leave {name} or --fitness out")
        radius, goal = parse_linear(fitness[1:])
        return Ball(radius), goal
    threat.require_epsilon()
    chosen = threat.choose()
    if chosen is None:
        warnings.warn(
            f"no --epsilon is given: the {kind} is trained for accuracy alone, as if every value were exact",
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
