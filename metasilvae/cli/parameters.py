"""Parameter types, options that several commands share, and checks of the files that commands read and write."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from metasilvae.analysis.difference import InputBox
from metasilvae.cli.commands import (
    BUDGET,
    CLUSTER,
    DATA_FORMAT,
    GENERAL,
    MAIN,
    OUTPUT,
    THREAT_MODEL,
    WordsType,
    option,
    option_group,
)
from metasilvae.cli.inputs import Chosen, choose_perturbation, load_data_for
from metasilvae.errors import RequestError
from metasilvae.formats.datasets import INPUT_FORMATS
from metasilvae.formats.schema_files import read_schema
from metasilvae.formats.tables import DEFAULT_TABLE, UNKNOWN_CHOICES, TableOptions
from metasilvae.io.storage import STANDARD_STREAM
from metasilvae.io.storage import check_outputs as check_outputs
from metasilvae.model import Model
from metasilvae.perturbations.boxes import PERTURBATION_ALIASES, PERTURBATIONS, BoxFile
from metasilvae.perturbations.norms import NORMS, SHARED_NORMS
from metasilvae.verification.budget import Budget
from metasilvae.verification.shards import Shard
from metasilvae.voting import VOTINGS

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")


class Phrase(WordsType):
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
        return len(self.forms.get(self.aliases.get(first, first), ()))

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "[" + "|".join(" ".join((key, *words)) for key, words in self.forms.items()) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        parts = self.split(value)
        keyword = self.aliases.get(parts[0], parts[0]) if parts else ""
        if keyword not in self.forms:
            self.fail(f"{parts[0] if parts else ''!r} is not one of {', '.join(self.forms)}.", param, ctx)
        words = self.forms[keyword]
        if len(parts) - 1 != len(words):
            wanted = " ".join((keyword, *words))
            self.fail(f"{' '.join(parts)!r}: expected {wanted!r}.", param, ctx)
        return (keyword, *parts[1:])


class CountedList(WordsType):
    """A number N followed by N numbers, as in ``--tiers 4 0 1 1 0``."""

    name = "list"

    def words_after(self, first: str) -> int:
        return int(first) if first.isascii() and first.isdigit() and len(first) < 9 else 0

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N T1 .. TN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = self.split(value)
        if not parts or not all(map(_WHOLE_NUMBER.fullmatch, parts)):
            self.fail(f"{' '.join(parts)!r}: expected the number of values, then the values.", param, ctx)
        count, *items = map(int, parts)
        if count != len(items):
            self.fail(f"{count} numbers announced, {len(items)} follow.", param, ctx)
        return tuple(items)


class NumberRange(click.FloatRange):
    """A number between bounds, possibly infinite."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class PositiveNumber(NumberRange):
    """A number above 0, possibly infinite."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)


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


def list_choices(names: Iterable[str]) -> str:
    """Names in a sentence of the help."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def shared_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Apply several option decorators, shown in the help in the given order."""

    def decorate(command: Any) -> Any:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


def bundle_options(
    name: str, kind: Callable[..., Any], values: Sequence[str], *options: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Apply options whose values reach the command as one argument, `name`: what `kind` makes of them."""

    def decorate(command: Any) -> Any:
        @functools.wraps(command)
        def call(*args: Any, **given: Any) -> Any:
            bundled = kind(*(given.pop(value) for value in values))
            return command(*args, **{name: bundled}, **given)

        return shared_options(*options)(call)

    return decorate


def format_option(formats: Mapping[str, object], text: str = "Format of the result.") -> Callable[[Any], Any]:
    """``--format``, which reaches the command as ``output_format``."""
    return option(
        "--format", "output_format", type=click.Choice(list(formats)), default="text", group=OUTPUT, help=text
    )


require_option = option(
    "--require",
    "requirements",
    multiple=True,
    metavar="REQUIREMENT",
    group=OUTPUT,
    help="Required metric, such as 'stability>=0.8', 'balanced_accuracy>=0.7', of one class 'recall[yes]>=0.6' or of "
    "each 'f1[*]>=0.5'; repeatable. Exit code 0: all are met, 3: one is violated, 4: one is undecided.",
)


def most_fragile_option(default: int) -> Callable[[Any], Any]:
    text = "Number of most fragile rows to list."
    return option("--most-fragile", "n_fragile", type=click.IntRange(0), default=default, group=OUTPUT, help=text)


@dataclass(frozen=True)
class ThreatModel:
    """The options that say what may be perturbed, as they were given."""

    epsilon: str | None = None
    perturbation: tuple[str, ...] | None = None
    attack: str | None = None
    norm: str | None = None

    @property
    def has_total(self) -> bool:
        """Whether the total change is limited, in a norm other than the maximum norm."""
        return self.norm in SHARED_NORMS

    def choose(self, *inputs: str | None) -> Chosen | None:
        """What the options mean, None if none is given; `inputs` are the other files that the command reads."""
        refuse_two_pipes(*inputs, self.attack)
        return choose_perturbation(self.epsilon, self.perturbation, self.attack, self.norm)

    def require(self, *inputs: str | None) -> Chosen:
        """The same; that nothing may be perturbed is refused."""
        self.require_epsilon()
        chosen = self.choose(*inputs)
        if chosen is None:
            raise click.UsageError("say what may be perturbed: --epsilon E, --perturbation or --attack FILE")
        return chosen

    def require_epsilon(self) -> None:
        """Refuse a norm of the total change without its limit."""
        if self.has_total and self.epsilon is None:
            raise click.UsageError(f"--norm {self.norm} needs --epsilon E, the limit of {NORMS[self.norm or '']}")


epsilon_option = option("--epsilon", metavar="E", group=THREAT_MODEL, help="Maximum change of each feature.")
attack_option = option(
    "--attack", metavar="FILE", group=THREAT_MODEL, help="Allowed changes per column; see `metasilvae attack`."
)
repeatable_attack_option = option(
    "--attack", "attacks", multiple=True, metavar="FILE", group=THREAT_MODEL,
    help="Allowed changes per column; repeatable.",
)  # fmt: skip


norm_option = option(
    "--norm",
    type=click.Choice(list(NORMS)),
    group=THREAT_MODEL,
    help="What --epsilon limits: linf, the change of each feature; l1, the sum of all changes; l2, the Euclidean "
    "distance; l0, the number of changed features. An --attack says what may change within that limit.  "
    "[default: linf]",
)


def perturbation_options(default: str = "", *, has_norm: bool = True) -> Callable[[Any], Any]:
    """The ways to say what may be perturbed, as `threat`; `default` stands in the help."""
    return bundle_options(
        "threat",
        ThreatModel,
        ("epsilon", "perturbation", "attack", *(["norm"] if has_norm else [])),
        option(
            "--epsilon",
            metavar="E",
            group=THREAT_MODEL,
            help="Maximum change of each feature; the same as --perturbation l_inf E."
            + (" With --norm, the limit of the total change." if has_norm else ""),
        ),
        *([norm_option] if has_norm else []),
        option(
            "--perturbation",
            type=Phrase(PERTURBATIONS, PERTURBATION_ALIASES),
            metavar="KIND ...",
            group=THREAT_MODEL,
            help="l_inf E; l_inf-clip-all E MIN MAX, which stays in [MIN, MAX]; or from-file PATH, with a box for "
            f"each row.{default}",
        ),
        attack_option,
    )


# With --epsilon and --attack only, for pictures and archives.
ball_options = bundle_options(
    "threat",
    lambda epsilon, attack: ThreatModel(epsilon, None, attack),
    ("epsilon", "attack"),
    epsilon_option,
    attack_option,
)
voting_option = option(
    "--voting", type=click.Choice(list(VOTINGS)), metavar="NAME",
    help=f"How a forest votes: {list_choices(VOTINGS)}.  [default: that of MODEL, or by the kind of its leaves]",
)  # fmt: skip
budget_options = bundle_options(
    "budget",
    Budget,
    ("sample_timeout", "sample_steps"),
    option(
        "--sample-timeout", type=PositiveNumber(), metavar="SECONDS", group=BUDGET,
        help="Time limit per row of a forest; rows not decided by then are NO-INFO.  [default: none]",
    ),
    option(
        "--sample-steps", type=click.IntRange(min=1), group=BUDGET,
        help="Limit of search steps per row, which is the same on every machine.  [default: none]",
    ),
)  # fmt: skip
jobs_option = option(
    "--jobs", type=click.IntRange(min=1), group=GENERAL,
    help="Threads; results do not depend on it.  [default: all cores]",
)  # fmt: skip
scheduler_option = option(
    "--scheduler",
    metavar="ADDRESS",
    group=CLUSTER,
    help="Address (tcp://host:8786) or file of a Dask scheduler.",
)


def shard_option(what: str) -> Callable[[Any], Any]:
    """An option for the jobs of a batch array; `what` says what is divided."""
    return option("--shard", type=ShardNumber(), group=CLUSTER, help=what)


output_option = option(
    "--output", "-o", default="-", metavar="FILE", group=OUTPUT, help="Output file, - for standard output."
)

plain_option = option(
    "--plain", is_flag=True, group=OUTPUT,
    help="Leave out the line with names, voting and provenance.",
)  # fmt: skip

reading_options = option_group(
    DATA_FORMAT,
    option(
        "--input-format", type=click.Choice(INPUT_FORMATS), default="auto", metavar="NAME",
        help="csv, libsvm, binary or parquet.",
    ),
    option(
        "--label-column", default="first", metavar="COLUMN", help="first, last, none, a name or a number (CSV)."
    ),
    option("--header/--no-header", default=None, help="Whether CSV starts with column names.  [default: detected]"),
)  # fmt: skip
features_option = option(
    "--features",
    "n_features",
    type=click.IntRange(min=1),
    group=DATA_FORMAT,
    help="Number of features of LIBSVM data.  [default: detected]",
)


class ColumnList(click.ParamType):
    """Names or numbers of columns, separated by commas."""

    name = "columns"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "COL,COL,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        columns = tuple(part.strip() for part in value.split(","))
        if not all(columns):
            self.fail(f"{value!r}: expected names or numbers of columns, separated by commas.", param, ctx)
        return columns


class TokenList(click.ParamType):
    """Texts separated by commas; an empty one stands for empty cells."""

    name = "tokens"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "TEXT,TEXT,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(part.strip() for part in value.split(",")))


def read_column_options(
    schema: str | None,
    categorical: Sequence[tuple[str, ...]],
    ignored: Sequence[tuple[str, ...]],
    ids: Sequence[tuple[str, ...]],
    missing: tuple[str, ...] | None,
    min_category_count: int,
    unknown: str,
) -> TableOptions:
    """What the options say about columns; those of the command line come before those of the schema."""
    options = DEFAULT_TABLE if schema is None else read_schema(schema)
    return replace(
        options,
        categorical=sum(categorical, ()),
        ignored=sum(ignored, ()),
        ids=sum(ids, ()),
        missing=options.missing if missing is None else missing,
        min_category_count=min_category_count,
        unknown=unknown,
    )


_id_option = option(
    "--id", "ids", type=ColumnList(), multiple=True, group=DATA_FORMAT,
    help="Columns that identify rows in results; no features.",
)  # fmt: skip
# For data whose columns get their types from the rows: they make models.
data_options = shared_options(
    reading_options,
    features_option,
    bundle_options(
        "columns",
        read_column_options,
        ("schema", "categorical", "ignored", "ids", "missing", "min_category_count", "unknown"),
        option("--schema", metavar="FILE", group=DATA_FORMAT, help="Types of columns; see `data schema`."),
        option(
            "--categorical", type=ColumnList(), multiple=True, group=DATA_FORMAT,
            help="Columns that are categories, such as codes.",
        ),
        option(
            "--ignore", "ignored", type=ColumnList(), multiple=True, group=DATA_FORMAT,
            help="Columns that are no features, such as note_*.",
        ),
        _id_option,
        option(
            "--missing", type=TokenList(), group=DATA_FORMAT,
            help="Cells without a value.  [default: empty, ?, NA, NaN, null]",
        ),
        option(
            "--min-category-count", type=click.IntRange(min=1), default=1, group=DATA_FORMAT,
            help="Join rarer categories as (other).",
        ),
        option(
            "--unknown", type=click.Choice(UNKNOWN_CHOICES), default="error", group=DATA_FORMAT,
            help="Categories not in the training data.",
        ),
    ),
)  # fmt: skip
# For data that a model reads, which knows the types of columns.
model_data_options = shared_options(
    reading_options,
    features_option,
    bundle_options("columns", lambda ids: replace(DEFAULT_TABLE, ids=sum(ids, ())), ("ids",), _id_option),
)


def refuse_two_pipes(*sources: str | None) -> None:
    """Standard input can be read once only."""
    if sum(source == STANDARD_STREAM for source in sources) > 1:
        raise click.UsageError("standard input (-) can be used for one of the files only")


def check_files(inputs: Sequence[str | None], outputs: Sequence[str | None], chosen: Chosen | None = None) -> None:
    """Refuse what cannot be read or written together; None is no file, a perturbation may come from one."""
    found = [name for name in inputs if name is not None]
    if isinstance(chosen, BoxFile):
        found.append(chosen.path)
    refuse_two_pipes(*found)
    check_outputs([name for name in outputs if name is not None], found)


@dataclass(frozen=True)
class DomainChoice:
    """The options that say for which samples something is to hold."""

    data: str | None
    margin: float | None
    bounds: tuple[float, float] | None

    def check(self) -> None:
        if self.data is not None and self.bounds is not None:
            raise click.UsageError("--domain and --bounds both restrict the samples; give one of them")
        if self.margin is not None and self.data is None:
            raise click.UsageError("--margin widens the ranges of --domain DATA; add it")

    def read(self, model: Model, data_options: dict[str, Any]) -> InputBox:
        if self.data is not None:
            dataset = load_data_for(model, self.data, data_options)
            return InputBox.around(dataset, self.margin or 0.0)
        if self.bounds is not None:
            return InputBox.between(*self.bounds, model.n_features)
        return InputBox.everything(model.n_features)


domain_options = bundle_options(
    "domain",
    DomainChoice,
    ("domain", "margin", "bounds"),
    option("--domain", metavar="DATA", group=MAIN, help="Only samples within the range of each feature in this data."),
    option(
        "--margin",
        type=click.FloatRange(min=0),
        metavar="E",
        help="With --domain, widen the ranges by E on both sides.",
    ),
    option("--bounds", type=float, nargs=2, metavar="MIN MAX", help="Only samples with all values in this range."),
)
