"""``metasilvae train``: options to a request, a call of the library, a report."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import click

from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.parameters import (
    PhraseCommand,
    command_line,
    data_options,
    jobs_option,
    refuse_two_pipes,
    scheduler_option,
    shard_option,
    shared_options,
)
from metasilvae.cli.progress import follow_rows
from metasilvae.cli.training_parameters import read_request, training_options
from metasilvae.formats.training_records import choose_table_format
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.model import name_kind
from metasilvae.output.text.tables import TABLE_FORMATS
from metasilvae.output.text.terminal import tell
from metasilvae.output.text.trainings import ProgressBar, describe_archive, describe_study, describe_training
from metasilvae.training.checkpoint.runs import SECONDS_BETWEEN
from metasilvae.training.protocol import Progress
from metasilvae.training.runs import TrainingMonitor, TrainingOutcome, run_training
from metasilvae.verification.budget import Budget
from metasilvae.verification.shards import Shard

checkpoint_options = shared_options(
    click.option(
        "--checkpoint",
        metavar="FILE",
        help="Keep in this new file what is done, so that --resume can go on after a crash or a kill: steps of a tree, "
        "trees of a forest, seeds.",
    ),
    click.option(
        "--every",
        type=click.IntRange(min=1),
        metavar="N",
        help="Write the checkpoint after every N steps (a first tree, a generation, a trial, a tree of a forest).  "
        f"[default: every {SECONDS_BETWEEN:g} seconds]",
    ),
    click.option(
        "--resume",
        metavar="FILE|auto",
        help="Go on from this checkpoint, with the data and options of its run (only --time-limit of a single run may "
        "change), to the same model byte for byte; auto: from the file of --checkpoint, if it is there.",
    ),
)


# Options that are fields of the request, and those that say how data are read.
REQUESTED = ("output", "test", "log", "pareto", "checkpoint", "every", "resume", "jobs", "scheduler", "shard")
READING = ("input_format", "label_column", "header", "n_features")


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


@click.command(cls=PhraseCommand)
@click.argument("training_set")
@click.argument("output")
@training_options
@click.option("--test", metavar="FILE", help="Report on these rows too, at the end; they decide nothing.")
@click.option("--log", metavar="FILE", help="Write one line of JSON for each step.")
@click.option("--table", metavar="FILE", help="Write the figures of each seed (.csv or .json), for `plot variance`.")
@click.option(
    "--pareto",
    metavar="DIR",
    help="Keep all trees that no other one beats in accuracy, stability and size in this new or empty folder; the "
    "pareto command lists them and picks one.",
)
@checkpoint_options
@click.option("--no-manifest", is_flag=True, help="Leave out OUTPUT.manifest.json, which tells how OUTPUT was made.")
@jobs_option
@scheduler_option
@shard_option("train only this part of the trees, or of the seeds with a tree for each; assemble joins the parts")
@data_options
@click.pass_context
def train(ctx: click.Context, training_set: str, table: str | None, no_manifest: bool, **options: Any) -> None:
    """Train a decision tree or a forest on TRAINING_SET and write it to OUTPUT.

    The tree is to be right on many rows, and to stay with its answer when values are perturbed. Held-out rows choose
    how careful to be; then greedily grown trees are the first generation of a genetic search that scores each change
    exactly. Ctrl-C writes the best tree so far, and with --checkpoint what --resume needs to go on.

    With --trees a forest is trained for the votes of all its trees: each further tree looks more at the rows on which
    the forest so far is wrong or can be made wrong. Ctrl-C writes the trees so far.

    Presets: fast grows and polishes trees, best searches longer than default, paper is the genetic algorithm as
    published, cart is an ordinary decision tree. Other options change a preset; what they are in the default one is
    shown.

    \b
    Examples:
      metasilvae train builtin:wine/train wine.silva --epsilon 0.1 --test builtin:wine/test
      metasilvae train data.csv forest.silva --epsilon 0.1 --trees 50
      metasilvae train data.csv - --epsilon 0.1 | metasilvae verify - test.csv --epsilon 0.1
      metasilvae train data.csv best.silva --epsilon 0.1 --validation 0.2 --seeds 1..10 --table seeds.csv
      metasilvae train data.csv best.silva --epsilon 0.1 --validation 0.2 --pareto trees/
      metasilvae train data.csv tree.silva --epsilon 0.1 --checkpoint tree.checkpoint --resume auto
      metasilvae train data.csv best.silva --epsilon 0.1 --seeds 1..10 --scheduler tcp://host:8786
      metasilvae train data.csv part-03.silva --epsilon 0.1 --seeds 1..50 --shard 3/10
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
        click.echo(describe_study(outcome.runs, outcome.kept), err=to_stderr)
    if len(outcome.kept) == 1:
        click.echo(describe_training(outcome.kept[0]), err=to_stderr, nl=False)
    if pareto is not None:
        click.echo(describe_archive(pareto, len(outcome.archive)), err=to_stderr)
    if outcome.is_interrupted:
        tell(_describe_interrupt(outcome, request.shard))
    ctx.exit(monitor.interrupts.exit_code)


def _describe_interrupt(outcome: TrainingOutcome, shard: Shard | None) -> str:
    name = "standard output" if outcome.output == STANDARD_STREAM else outcome.output
    after = f" after {len(outcome.runs)} of {outcome.n_seeds} seeds" if outcome.n_seeds > 1 else ""
    what = "the best tree so far was" if shard is None else "the trees so far were"
    if len(outcome.kept) == 1 and outcome.kept[0].model.is_forest:
        what = f"the {name_kind(True, outcome.kept[0].model.n_trees)} so far was"
    onward = "" if outcome.checkpoint is None else f"; --resume {outcome.checkpoint} continues"
    return f"interrupted{after}; {what} written to {name}{onward}"
