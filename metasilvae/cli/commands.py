"""What all commands share: options in groups, phrases of several words, verbosity, and errors in plain words.

`Command` and `CommandGroup` take the place of click's classes, `option` that of ``click.option``.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import shlex
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import click

from metasilvae.cli.interrupts import Terminated, raising_terminated
from metasilvae.errors import MetasilvaeError, MetasilvaeWarning, RequestError, RequestWarning
from metasilvae.io.inputs import protect_inputs
from metasilvae.io.storage import STANDARD_STREAM, is_standard_output
from metasilvae.output.text.terminal import Verbosity, get_verbosity, set_verbosity, tell, tell_details, tell_error

INTERRUPTED = 128 + signal.SIGINT
# Standard output is a pipe that was closed: end quietly, with the code that a shell gives for this signal.
UNREAD = 128 + getattr(signal, "SIGPIPE", 13)
# Parameters that name outputs: /dev/stdout means the same there as -.
OUTPUT_PARAMETERS = frozenset(
    {"output", "log", "table", "plot", "counterexamples", "save_scale", "train_output", "test_output"}
)
# Separates the words of a phrase after they were joined.
SEPARATOR = "\x1f"
# Keys of a context's `meta`: the context of the innermost command that refused a request, and the arguments as typed.
_REFUSING = f"{__name__}.refusing"
_ARGUMENTS = f"{__name__}.arguments"

# Groups of options, in the order of the help.
MAIN = "Options"
THREAT_MODEL = "Threat model (what to withstand)"
OBJECTIVE = "Objective (what to train for)"
REGULARIZATION = "Model size and regularization"
ENSEMBLES = "Ensembles"
SEARCH = "Search and stopping"
BUDGET = "Search budget"
OUTPUT = "Output"
RESULTS = "Output and reproducibility"
CLUSTER = "Cluster"
DATA_FORMAT = "Data format"
GENERAL = "General"
COMPATIBILITY = "Options of the C programs"
_GROUPS = (
    MAIN, THREAT_MODEL, OBJECTIVE, REGULARIZATION, ENSEMBLES, SEARCH, BUDGET, OUTPUT, RESULTS, CLUSTER, DATA_FORMAT,
    GENERAL, COMPATIBILITY,
)  # fmt: skip
# Characters that names of options may take before their help starts on a line of its own.
_WIDEST_NAME = 31


class Option(click.Option):
    """An option that belongs to a group; ranges of numbers are not part of its help."""

    def __init__(self, *args: Any, group: str = MAIN, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group
        if self.metavar is None and isinstance(self.type, click.types.IntParamType):
            self.metavar = "N"
        if self.metavar is None and isinstance(self.type, click.types.FloatParamType):
            self.metavar = "X"

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


def option(*names: str, group: str = MAIN, **settings: Any) -> Callable[[Any], Any]:
    """Declare an option of a group."""
    return click.option(*names, cls=Option, group=group, **settings)


def option_group(group: str, *options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Apply several option decorators and put the options into a group."""

    def decorate(command: Any) -> Any:
        for each in reversed(options):
            command = each(command)
            command.__click_params__[-1].group = group
        return command

    return decorate


class WordsType(click.ParamType):
    """Type of an option whose value is typed as several arguments, as the C programs have it."""

    def words_after(self, first: str) -> int:
        """How many arguments after the given one belong to the option."""
        raise NotImplementedError

    @staticmethod
    def split(value: str) -> list[str]:
        return value.split(SEPARATOR) if SEPARATOR in value else value.split()


def _set_level(level: Verbosity, ctx: click.Context, param: click.Parameter, is_set: bool) -> None:
    if not is_set:
        return
    if get_verbosity() not in (Verbosity.NORMAL, level):
        raise click.UsageError("--quiet and --verbose exclude each other; give one of them")
    set_verbosity(level)


_VERBOSITY_OPTIONS = [
    Option(
        [short, name], is_flag=True, expose_value=False, group=GENERAL, help=text, callback=partial(_set_level, level)
    )
    for short, name, level, text in (
        ("-q", "--quiet", Verbosity.QUIET, "Do not print summaries, warnings and progress."),
        ("-v", "--verbose", Verbosity.VERBOSE, "Print options, timing and tracebacks too."),
    )
]


class _WithVerbosity(click.Command):
    """Adds -q and -v before -h."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *params, last = super().get_params(ctx)
        return [*params, *_VERBOSITY_OPTIONS, last]


class Command(_WithVerbosity):
    """A command whose help lists options in groups, and whose phrases may be typed as separate words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        openers = {
            name: parameter.type
            for parameter in self.params
            if isinstance(parameter.type, WordsType)
            for name in parameter.opts
        }
        try:
            return super().parse_args(ctx, _join_words(args, openers))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in _GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups[getattr(parameter, "group", GENERAL)].append(record)
        names = [name for rows in groups.values() for name, _ in rows]
        width = max(len(name) for name in names if len(name) <= _WIDEST_NAME)
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    # Padding aligns the help texts of all groups.
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=width)

    def invoke(self, ctx: click.Context) -> Any:
        given = {
            name: value
            for name, value in ctx.params.items()
            if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        }
        tell_details(f"options: {', '.join(f'{name}={value!r}' for name, value in given.items())}")
        for name in OUTPUT_PARAMETERS.intersection(ctx.params):
            if isinstance(ctx.params[name], str) and is_standard_output(ctx.params[name]):
                ctx.params[name] = STANDARD_STREAM
        started = time.perf_counter()
        try:
            return super().invoke(ctx)
        finally:
            tell_details(f"{ctx.command_path}: {time.perf_counter() - started:.2f} s")


def command_line(ctx: click.Context) -> str:
    """What was typed to run a `Command`, quoted for a shell."""
    return shlex.join([*ctx.command_path.split(), *ctx.meta[_ARGUMENTS]])


def _join_words(args: Sequence[str], openers: Mapping[str, WordsType]) -> list[str]:
    joined: list[str] = []
    rest = list(args)
    while rest:
        argument = rest.pop(0)
        name, has_value, value = argument.partition("=")
        if argument == "--":
            return [*joined, argument, *rest]
        if name not in openers or (not has_value and not rest):
            joined.append(argument)
            continue
        first = value if has_value else rest.pop(0)
        wanted = rest[: openers[name].words_after(first)]
        # A word such as --jobs begins the next option: then this one is incomplete, which its type reports.
        words = list(takewhile(lambda word: not word.startswith("--"), wanted))
        joined += [name, SEPARATOR.join([first, *words])]
        del rest[: len(words)]
    return joined


class FailedRun(click.ClickException):
    """A data or run-time error: one line on standard error, exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        tell_error(f"error: {self.format_message()}")


class WarningPrinter:
    """Prints each warning once, on standard error."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, message: Warning | str, *args: object, **kwargs: object) -> None:
        if str(message) not in self.seen:
            self.seen.add(str(message))
            told = str(message)
            if isinstance(message, RequestWarning):
                told = _name_options(told, click.get_current_context(silent=True))
            tell(f"warning: {told}")


class CommandGroup(_WithVerbosity, click.Group):
    """A group of commands that turns errors into messages and exit codes.

    Parameters
    ----------
    sections : mapping
        Title of each section of the help to its commands: name to (module of this package, function in it, summary).
        They are imported when they are run, so that the help of the program is shown at once.
    """

    command_class = Command

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str, str]]] | None = None, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.sections = sections or {}
        self._lazy = {name: place for commands in self.sections.values() for name, place in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, function, _ = self._lazy[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
        if close and close[0] != args[0]:
            ctx.fail(f"No such command {args[0]!r}; did you mean {close[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.sections:
            super().format_commands(ctx, formatter)
        width = max(map(len, self._lazy), default=0)
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, (_, _, summary) in commands.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if parent is None:
            set_verbosity(Verbosity.NORMAL)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:  # while help is printed
            raise click.exceptions.Exit(UNREAD) from None

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.parent is not None:
            try:
                return super().invoke(ctx)
            except RequestError:
                ctx.meta[_REFUSING] = self._context_below(ctx)
                raise
        with warnings.catch_warnings(), protect_inputs():
            warnings.simplefilter("always", MetasilvaeWarning)
            warnings.showwarning = WarningPrinter()
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except KeyboardInterrupt:
                raise click.Abort() from None
            except Exception as error:
                if isinstance(error, BrokenPipeError):
                    raise click.exceptions.Exit(UNREAD) from None
                if os.environ.get("METASILVAE_TRACEBACK") or get_verbosity() is Verbosity.VERBOSE:
                    traceback.print_exc()
                fault = _as_click_error(error)
                if isinstance(fault, click.UsageError):
                    refusing = ctx.meta.get(_REFUSING) or self._context_below(ctx)
                    fault = click.UsageError(_name_options(fault.message, refusing), refusing)
                raise fault from None

    def _context_below(self, ctx: click.Context) -> click.Context | None:
        """A context of the command that was called, which knows its name."""
        command = self.get_command(ctx, ctx.invoked_subcommand) if ctx.invoked_subcommand else None
        return None if command is None else click.Context(command, parent=ctx, info_name=ctx.invoked_subcommand)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            with raising_terminated():
                exit_code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except Terminated as signalled:
            tell("terminated")
            exit_code = signalled.exit_code
        except click.ClickException as error:
            _show(error)
            exit_code = error.exit_code
        except click.Abort:
            tell("interrupted")
            exit_code = INTERRUPTED
        except OSError as error:
            _as_click_error(error).show()
            exit_code = FailedRun.exit_code
        _drop_unwritten_output()
        sys.exit(exit_code or 0)


def _name_options(message: str, ctx: click.Context | None) -> str:
    """A message of the library, whose 'parameters' become --options of the command that was called."""
    options = (
        {} if ctx is None else {name.removeprefix("--"): name for each in ctx.command.params for name in each.opts}
    )

    def name(found: re.Match[str]) -> str:
        word, *rest = found[1].split(" ")
        return " ".join([options[word], *rest]) if word in options else found[0]

    return re.sub(r"'([a-z][a-z -]*)'", name, message)


def _show(error: click.ClickException) -> None:
    """A usage error as one line that names where help is; everything else, and help that was asked for, as it is."""
    if not isinstance(error, click.UsageError) or isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    message = re.sub(
        r"\. \(Did you mean one of: (.*)\?\)$", r"; did you mean \1?", " ".join(error.format_message().split())
    )
    stop = "" if message.endswith((".", "?")) else "."
    command = error.ctx.command_path if error.ctx is not None else "metasilvae"
    tell_error(f"error: {message}{stop} See {command} -h")


def _as_click_error(error: Exception) -> click.ClickException:
    if isinstance(error, RequestError):
        return click.UsageError(str(error))
    if isinstance(error, OSError) and error.filename is None:
        # The library names its files; what is left is help and the like, printed by click.
        return FailedRun(f"standard output: cannot be written: {error.strerror or error}")
    if isinstance(error, MetasilvaeError | OSError):
        return FailedRun(str(error))
    if isinstance(error, MemoryError):
        return FailedRun(f"not enough memory ({str(error) or 'allocation failed'}); use fewer rows or jobs")
    return FailedRun(
        f"internal error: {type(error).__name__}: {error}; this is a bug in metasilvae, please report it "
        "(--verbose shows where)"
    )


def _drop_unwritten_output() -> None:
    """Python would try at its end to write again what standard output did not take, and complain again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
