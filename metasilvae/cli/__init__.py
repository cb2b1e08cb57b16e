"""The command line: a thin skin over the library. A command loads, calls and prints.

Commands are imported when they are run, so that ``metasilvae --help`` answers at once.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import click

from metasilvae._version import VERSION
from metasilvae.cli.interrupts import Terminated, raising_terminated
from metasilvae.errors import MetasilvaeError, MetasilvaeWarning, RequestError
from metasilvae.output.text.terminal import tell

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}
INTERRUPTED = 128 + signal.SIGINT
# The reader of a pipe has seen enough: quiet, with the code that the shell gives to programs that this signal ends.
UNREAD = 128 + getattr(signal, "SIGPIPE", 13)
# Where the context of the innermost command is kept that refused a request.
REFUSING = f"{__name__}.refusing"
# Name: (module of this package, function in it, line for the overview).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "train": ("train", "train", "Train a decision tree or a forest that is accurate and stable."),
    "pareto": ("pareto", "pareto", "List, plot and pick trees that one training run kept."),
    "verify": ("verify", "verify", "Prove for each row whether a perturbation can change the answer."),
    "merge": ("verify", "merge", "Join the verdicts of shards into one report."),
    "explain": ("explain", "explain", "Which features and thresholds make rows unstable."),
    "evaluate": ("evaluate", "evaluate", "Table of accuracy, stability, robustness and size of models."),
    "report": ("report", "report", "One page for the browser: drawing, figures, verdicts, curve, fragile rows."),
    "plot": ("plot", "plot", "Draw models, trainings and studies."),
    "predict": ("evaluate", "predict", "Classify the rows of a data set."),
    "info": ("models", "info", "Size and shape of a model."),
    "similarity": ("models", "similarity", "Share of rows on which two models answer the same."),
    "diff": ("models", "diff", "Exact regions in which two models answer differently."),
    "simplify": ("models", "simplify", "Remove branches that make no difference."),
    "assemble": ("models", "assemble", "Join trees into a forest."),
    "disassemble": ("models", "disassemble", "Take a forest apart into its trees."),
    "import": ("interop", "import_", "Turn a model of another library into silva's format."),
    "export": ("interop", "export", "Write a model for other programs, libraries and people."),
    "attack": ("attack", "attack", "Write and check files that say what may be perturbed."),
    "data": ("data", "data", "Check, convert, split, list and fetch data sets."),
}


class FailedRun(click.ClickException):
    """A data or run-time error: one line on standard error, exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        tell(f"error: {self.format_message()}")


class WarningPrinter:
    """Prints each warning once, on standard error."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, message: Warning | str, *args: object, **kwargs: object) -> None:
        if str(message) not in self.seen:
            self.seen.add(str(message))
            tell(f"warning: {message}")


class CommandGroup(click.Group):
    """A group whose commands are imported when used, and which speaks plainly when something fails."""

    def __init__(self, *args: Any, lazy_commands: Mapping[str, tuple[str, str, str]] | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.lazy_commands = lazy_commands or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy_commands, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy_commands:
            return super().get_command(ctx, cmd_name)
        module, function, _ = self.lazy_commands[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
        if close and close[0] != args[0]:
            ctx.fail(f"No such command {args[0]!r}; did you mean {close[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.lazy_commands:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in self.lazy_commands.items()])

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:  # while help is printed
            raise click.exceptions.Exit(UNREAD) from None

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.parent is not None:
            try:
                return super().invoke(ctx)
            except RequestError:
                ctx.meta[REFUSING] = self._context_below(ctx)
                raise
        with warnings.catch_warnings():
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
                if os.environ.get("METASILVAE_TRACEBACK"):
                    traceback.print_exc()
                fault = _as_click_error(error)
                if isinstance(fault, click.UsageError):
                    fault.ctx = ctx.meta.get(REFUSING) or self._context_below(ctx)
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


def _show(error: click.ClickException) -> None:
    """A usage error as one line that names where help is; help that was asked for, and everything else, as it is."""
    if not isinstance(error, click.UsageError) or isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    message = " ".join(error.format_message().split())
    stop = "" if message.endswith((".", "?")) else "."
    command = error.ctx.command_path if error.ctx is not None else "metasilvae"
    tell(f"error: {message}{stop} See {command} -h")


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
        f"internal fault: {type(error).__name__}: {error}; this is a bug in metasilvae, please report it "
        "(METASILVAE_TRACEBACK=1 shows where)"
    )


def _drop_unwritten_output() -> None:
    """What standard output could not take, Python would try to write again at its end, and complain again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


@click.group(cls=CommandGroup, lazy_commands=COMMANDS, context_settings=CONTEXT_SETTINGS)
@click.version_option(VERSION, prog_name="metasilvae", message="%(prog)s %(version)s")
def main() -> None:
    """Decision trees that are accurate and provably hard to fool.

    Train, verify and evaluate decision trees in silva's text format on CSV or LIBSVM data. Paths may be "-" for
    standard input or output, compressed files, shipped data sets such as builtin:wine/test, or fetched ones such as
    cache:mnist/test.
    """
    # Labels and column names may hold characters that the terminal cannot show.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
