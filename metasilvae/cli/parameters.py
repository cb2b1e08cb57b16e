"""Parameter types and options that several commands share.

The C programs let the words of one option follow each other as separate arguments (``--perturbation l_inf 0.1``);
click knows only a fixed number of values. `Phrase` describes such an option, and `PhraseCommand` glues its words
together before click sees them.

Options that say for which samples something is to hold.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import click

from metasilvae.analysis.difference import Domain
from metasilvae.cli.inputs import load_data_for
from metasilvae.errors import RequestError
from metasilvae.io.storage import STANDARD_STREAM
from metasilvae.io.storage import check_outputs as check_outputs
from metasilvae.model import Model
from metasilvae.perturbations.boxes import PERTURBATION_ALIASES, PERTURBATIONS
from metasilvae.prediction import check_width
from metasilvae.verification.shards import Shard
from metasilvae.voting import VOTINGS

SEPARATOR = "\x1f"
# Under which a context keeps the arguments as they were typed.
_ARGUMENTS = "metasilvae.arguments"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")


class Phrase(click.ParamType):
    """A keyword followed by a number of words that depends on the keyword.

    Parameters
    ----------
    forms : mapping from keyword to the names of the words that follow it
    aliases : other spellings of keywords
    """

    name = "phrase"

    def __init__(self, forms: Mapping[str, Sequence[str]], aliases: Mapping[str, str] | None = None) -> None:
        self.forms = forms
        self.aliases = aliases or {}

    def words_after(self, first: str) -> int:
        """How many arguments after the given one belong to the option."""
        return len(self.forms.get(self.aliases.get(first, first), ()))

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "[" + "|".join(" ".join((key, *words)) for key, words in self.forms.items()) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        parts = value.split(SEPARATOR) if SEPARATOR in value else value.split()
        keyword = self.aliases.get(parts[0], parts[0]) if parts else ""
        if keyword not in self.forms:
            self.fail(f"{value.split(SEPARATOR)[0]!r} is not one of {', '.join(self.forms)}.", param, ctx)
        words = self.forms[keyword]
        if len(parts) - 1 != len(words):
            wanted = " ".join((keyword, *words))
            self.fail(f"{' '.join(parts)!r}: expected {wanted!r}.", param, ctx)
        return (keyword, *parts[1:])


class CountedList(click.ParamType):
    """A number N followed by N numbers, as in ``--tiers 4 0 1 1 0``."""

    name = "list"

    def words_after(self, first: str) -> int:
        return int(first) if first.isascii() and first.isdigit() and len(first) < 9 else 0

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N T1 .. TN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = value.split(SEPARATOR) if SEPARATOR in value else value.split()
        if not parts or not all(map(_WHOLE_NUMBER.fullmatch, parts)):
            self.fail(
                f"{' '.join(parts)!r}: expected whole numbers, the first one telling how many follow.", param, ctx
            )
        count, *items = map(int, parts)
        if count != len(items):
            self.fail(f"{count} numbers announced, {len(items)} follow.", param, ctx)
        return tuple(items)


class PositiveNumber(click.FloatRange):
    """A number above 0; infinity is one, not-a-number is none."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class ShardNumber(click.ParamType):
    """One part of several, such as ``3/50``."""

    name = "shard"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "I/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        try:
            return value if isinstance(value, Shard) else Shard.parse(value)
        except RequestError as error:
            self.fail(f"{error}.", param, ctx)


class PhraseCommand(click.Command):
    """A command whose phrase options may be typed as separate words; `command_line` gives the words back."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        openers = {
            name: parameter.type
            for parameter in self.params
            if isinstance(parameter.type, Phrase | CountedList)
            for name in parameter.opts
        }
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, _glue(args, openers))


def command_line(ctx: click.Context) -> str:
    """What was typed to run a `PhraseCommand`, quoted for a shell."""
    return shlex.join([*ctx.command_path.split(), *ctx.meta[_ARGUMENTS]])


def _glue(args: Sequence[str], openers: Mapping[str, Phrase | CountedList]) -> list[str]:
    glued: list[str] = []
    rest = list(args)
    while rest:
        argument = rest.pop(0)
        option, has_value, value = argument.partition("=")
        if argument == "--":
            return [*glued, argument, *rest]
        if option not in openers or (not has_value and not rest):
            glued.append(argument)
            continue
        first = value if has_value else rest.pop(0)
        wanted = rest[: openers[option].words_after(first)]
        # A word such as --jobs begins the next option: then this one is incomplete, which its type reports.
        words = list(takewhile(lambda word: not word.startswith("--"), wanted))
        glued += [option, SEPARATOR.join([first, *words])]
        del rest[: len(words)]
    return glued


def shared_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Apply several option decorators, shown in the help in the given order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


INPUT_FORMATS = ("auto", "csv", "libsvm", "binary")

reading_options = shared_options(
    click.option("--input-format", type=click.Choice(INPUT_FORMATS), default="auto", help="Format of the data file."),
    click.option(
        "--label-column",
        default="first",
        metavar="first|last|NAME|N|none",
        help="Column of the labels in CSV data; N counts from 1; none (predict only): all columns are values.",
    ),
    click.option("--header/--no-header", default=None, help="CSV data starts with column names.  [default: detected]"),
)
data_options = shared_options(
    reading_options,
    click.option("--features", "n_features", type=click.IntRange(min=1), help="Number of features of LIBSVM data."),
)


def perturbation_options(default: str = "") -> Callable[[Any], Any]:
    """The three ways to say what may be perturbed; `default` stands in the help."""
    return shared_options(
        click.option(
            "--epsilon", metavar="E", help="Perturb every feature by at most E (the same as --perturbation l_inf E)."
        ),
        click.option(
            "--perturbation",
            type=Phrase(PERTURBATIONS, PERTURBATION_ALIASES),
            help="What an attacker may do to a row: a ball of radius E, the same cut to [MIN, MAX], or a box for each "
            f"row from a file.{default}",
        ),
        attack_option,
    )


attack_option = click.option(
    "--attack",
    metavar="FILE",
    help="What may become of each column, instead of --epsilon; `metasilvae attack template` writes a file to edit.",
)
voting_option = click.option(
    "--voting", type=click.Choice(list(VOTINGS)), help="How trees are counted.  [default: by the kind of leaves]"
)
budget_options = shared_options(
    click.option(
        "--sample-timeout",
        type=PositiveNumber(),
        metavar="SECONDS",
        help="Time limit for each row of a forest; rows not decided by then are NO-INFO.  [default: none]",
    ),
    click.option(
        "--sample-steps",
        type=click.IntRange(min=1),
        metavar="N",
        help="The same as a number of steps of the search, which is the same on every machine.  [default: none]",
    ),
)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Threads; the result does not depend on it.  [default: all available cores]",
)
scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on this Dask cluster: tcp://host:8786, or the file that its scheduler wrote.",
)


def shard_option(what: str) -> Callable[[Any], Any]:
    """An option for the jobs of a batch array; `what` says what is divided."""
    return click.option("--shard", type=ShardNumber(), help=f"As the I-th of N jobs (I counts from 1), {what}.")


output_option = click.option(
    "--output", "-o", default="-", metavar="FILE", help="Where to write the result, - for standard output."
)


def refuse_two_pipes(*sources: str | None) -> None:
    """Standard input can be read once only."""
    if sum(source == STANDARD_STREAM for source in sources) > 1:
        raise click.UsageError("standard input (-) can be used for one of the files only")


domain_options = shared_options(
    click.option("--domain", metavar="DATA", help="Only samples in the range that each feature has in this data set."),
    click.option(
        "--margin", type=click.FloatRange(min=0), metavar="E", help="With --domain, ranges wider by E on both sides."
    ),
    click.option(
        "--bounds", type=float, nargs=2, metavar="MIN MAX", help="Only samples with all values in this range."
    ),
)


def check_domain(domain: str | None, margin: float | None, bounds: tuple[float, float] | None) -> None:
    if domain is not None and bounds is not None:
        raise click.UsageError("--domain and --bounds both say which samples count; give one of them")
    if margin is not None and domain is None:
        raise click.UsageError("--margin widens the ranges of --domain DATA; add it")


def read_domain(
    model: Model,
    domain: str | None,
    margin: float | None,
    bounds: tuple[float, float] | None,
    data_options: dict[str, Any],
) -> Domain:
    """The samples that the options describe."""
    if domain is not None:
        dataset = load_data_for(model, domain, data_options)
        check_width(model, dataset)
        return Domain.around(dataset, margin or 0.0)
    if bounds is not None:
        return Domain.between(*bounds, model.n_features)
    return Domain.everything(model.n_features)
