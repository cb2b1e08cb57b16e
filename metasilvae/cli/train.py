"""``metasilvae train``: options to a request, a call of the library, a report."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import click

from metasilvae.cli.commands import Command, command_line
from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.parameters import refuse_two_pipes
from metasilvae.cli.progress import follow_rows
from metasilvae.cli.training_parameters import read_request, run_options, training_options
from metasilvae.formats.training_records import choose_table_format
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.model import name_kind
from metasilvae.output.text.tables import TABLE_FORMATS
from metasilvae.output.text.terminal import print_summary, tell
from metasilvae.output.text.trainings import ProgressBar, describe_archive, describe_study, describe_training
from metasilvae.training.protocol import Progress, StopReason
from metasilvae.training.runs import TrainingMonitor, TrainingOutcome, run_training
from metasilvae.verification.budget import Budget
from metasilvae.verification.shards import Shard

# Options that are fields of the request, and those that say how data are read.
REQUESTED = ("output", "test", "log", "pareto", "checkpoint", "every", "resume", "jobs", "scheduler", "shard", "plain")
READING = ("input_format", "label_column", "header", "n_features", "columns")


class CommandMonitor(TrainingMonitor):
    """Shows a bar on a terminal; the first signal stops the run with the best model so far."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = Interrupts()
        self._bar = ProgressBar()

    def __enter__(self) -> CommandMonitor:
        self.interrupts.__enter__()
        return self

    def __exit__(self, *arguments: object) -> None:
        self.interrupts.__exit__(*arguments)

    def attach(self, stop: Callable[[], object] | None) -> None:
        super().attach(stop)
        # Before there is anything to keep, a signal ends the program at once.
        self.interrupts.stop = self.stop

    def start(self, n_steps: int, title: str, n_done: int = 0) -> None:
        self._bar.start(n_steps, title, n_done)

    def report(self, seed: int, progress: Progress) -> None:
        self._bar.show(progress)

    def advance(self) -> None:
        self._bar.advance()

    def end(self) -> None:
        self._bar.close()

    @contextlib.contextmanager
    def follow_rows(self, n_rows: int, seconds: float) -> Iterator[tuple[threading.Event, Callable[[int], object]]]:
        with follow_rows(n_rows, Budget(seconds)) as work:
            yield work.stop, work.advance


@click.command(cls=Command)
@click.argument("training_set")
@click.argument("output")
@training_options
@run_options
@click.pass_context
def train(ctx: click.Context, training_set: str, table: str | None, no_manifest: bool, **options: Any) -> None:
    """Train a decision tree, a forest or a boosted model on TRAINING_SET and write it to OUTPUT.

    Maximizes phi, a weighted sum of accuracy and stability: the fraction of rows that are classified correctly, and
    the fraction whose prediction provably no allowed perturbation changes. Greedily grown trees start a genetic
    search that evaluates every change exactly. Defaults are those of --preset default: fast only grows and improves
    trees, best searches longer, paper is the published algorithm, cart an ordinary decision tree. Ctrl-C writes the
    best model so far.

    \b
    Examples:
      metasilvae train builtin:wine/train wine.silva --epsilon 0.1 --test builtin:wine/test
      metasilvae train data.csv forest.silva --epsilon 0.1 --trees 51 --time-limit 600
      metasilvae train data.csv boosted.silva --epsilon 0.1 --boost 200
      metasilvae train data.csv - --epsilon 0.1 | metasilvae verify - test.csv --epsilon 0.1
      metasilvae train data.csv best.silva --epsilon 0.1 --seeds 1..10 --table seeds.csv
      metasilvae train data.csv tree.silva --epsilon 0.1 --checkpoint tree.checkpoint --resume auto
    """
    files = {name: options.pop(name) for name in REQUESTED}
    output, log, pareto = files["output"], files["log"], files["pareto"]
    generator = options["population_generator"] or ()
    refuse_two_pipes(training_set, files["test"], options["attack"], *generator[1:])
    table_format = None if table is None else choose_table_format(table)
    files |= {
        "manifest": not no_manifest,
        "reading": {name: options.pop(name) for name in READING},
        "other_outputs": () if table is None else (table,),
        "command": command_line(ctx),
    }
    request = read_request(training_set, files, **options)
    monitor = CommandMonitor()
    outcome = run_training(request, monitor)
    if not outcome.runs:
        raise click.Abort()
    if table is not None and table_format is not None:
        write_output(table, TABLE_FORMATS[table_format](outcome.records))
    to_stderr = STANDARD_STREAM in (output, log)
    if outcome.n_seeds > 1:
        print_summary(describe_study(outcome.runs, outcome.kept) + "\n", err=to_stderr)
    if len(outcome.kept) == 1:
        print_summary(describe_training(outcome.kept[0]), err=to_stderr)
    if pareto is not None:
        print_summary(describe_archive(pareto, len(outcome.archive)), err=to_stderr)
    if outcome.is_interrupted:
        tell(_describe_interrupt(outcome, request.shard))
    ctx.exit(monitor.interrupts.exit_code)


def _describe_interrupt(outcome: TrainingOutcome, shard: Shard | None) -> str:
    name = "standard output" if outcome.output == STANDARD_STREAM else outcome.output
    n_finished = sum(run.stop_reason is not StopReason.INTERRUPTED for run in outcome.runs)
    after = f" with {n_finished} of {outcome.n_seeds} seeds finished" if outcome.n_seeds > 1 else ""
    what = "the best tree so far was" if shard is None else "the models so far were"
    if len(outcome.kept) == 1 and outcome.kept[0].model.is_forest:
        what = f"the {name_kind(True, outcome.kept[0].model.n_trees)} so far was"
    onward = "" if outcome.checkpoint is None else f"; --resume {outcome.checkpoint} continues"
    return f"interrupted{after}; {what} written to {name}{onward}"
