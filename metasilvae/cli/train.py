"""``metasilvae train``."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import click

from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.parameters import PhraseCommand, check_outputs, data_options, jobs_option, refuse_two_pipes
from metasilvae.cli.training_parameters import TrainingRequest, read_request, training_options
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, OutputError
from metasilvae.evaluation import evaluate
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import check_labels, format_model, parse_model, read_model, write_model
from metasilvae.rehearsal import make_trainer
from metasilvae.report.trainings import ProgressBar, ProgressLog, describe_study, describe_training
from metasilvae.seed_study import TrainedModel, choose_best, finish
from metasilvae.storage import STANDARD_STREAM, open_log


@click.command(cls=PhraseCommand)
@click.argument("training_set")
@click.argument("output")
@training_options
@click.option("--test", metavar="FILE", help="Report on these rows too, at the end; they decide nothing.")
@click.option("--log", metavar="FILE", help="Write one line of JSON for each step.")
@jobs_option
@data_options
@click.pass_context
def train(
    ctx: click.Context,
    training_set: str,
    output: str,
    test: str | None,
    log: str | None,
    jobs: int | None,
    input_format: str,
    label_column: str,
    header: bool | None,
    n_features: int | None,
    **options: Any,
) -> None:
    """Train a decision tree on TRAINING_SET and write it to OUTPUT.

    The tree is to be right on many rows, and to stay with its answer when values are perturbed. Held-out rows choose
    how careful to be; then greedily grown trees are the first generation of a genetic search that scores each change
    exactly. Ctrl-C writes the best tree so far.

    Presets: fast only grows trees, best searches longer than default, paper is the genetic algorithm as published,
    cart is an ordinary decision tree. Other options change a preset; what they are in the default one is shown.

    \b
    Examples:
      metasilvae train builtin:wine/train wine.silva --epsilon 0.1 --test builtin:wine/test
      metasilvae train data.csv - --epsilon 0.1 | metasilvae verify - test.csv --epsilon 0.1
      metasilvae train data.csv best.silva --epsilon 0.1 --validation 0.2 --seeds 1..20
    """
    request = read_request(**options)
    inputs = [name for name in (training_set, test, request.forest) if name is not None]
    refuse_two_pipes(*inputs)
    check_outputs([output, *([] if log is None else [log])], inputs)
    reading = {"input_format": input_format, "label_column": label_column, "header": header, "n_features": n_features}
    dataset = read_dataset(training_set, **reading)  # type: ignore[arg-type]
    check_labels(dataset.labels, dataset.source)
    test_rows = None if test is None else _read_test(test, dataset, reading)

    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        steps = None if log is None else ProgressLog(stack.enter_context(open_log(log)))
        runs = _train_all(request, dataset, test_rows, output, jobs, interrupts, steps)
    chosen = choose_best(runs)
    write_model(chosen.model, output)
    _check_figures(chosen, output, jobs)

    to_stderr = STANDARD_STREAM in (output, log)
    if len(request.seeds) > 1:
        click.echo(describe_study(runs, chosen), err=to_stderr)
    click.echo(describe_training(chosen), err=to_stderr, nl=False)
    if interrupts.received:
        name = "standard output" if output == STANDARD_STREAM else output
        after = f" after {len(runs)} of {len(request.seeds)} seeds" if len(request.seeds) > 1 else ""
        click.echo(f"interrupted{after}; the best tree so far was written to {name}", err=True)
    ctx.exit(interrupts.exit_code)


def _read_test(source: str, dataset: Dataset, reading: dict[str, Any]) -> Dataset:
    test = read_dataset(source, libsvm_width=dataset.n_features, **reading)
    if test.n_features != dataset.n_features:
        raise DataError(
            f"{test.source} has {test.n_features} features, {dataset.source} has {dataset.n_features}; "
            "check that they belong together"
        )
    if not set(test.labels) & set(dataset.labels):
        raise DataError(
            f"{test.source}: none of its labels occurs in {dataset.source}; check that they belong together"
        )
    return test


def _train_all(
    request: TrainingRequest,
    dataset: Dataset,
    test: Dataset | None,
    name: str,
    jobs: int | None,
    interrupts: Interrupts,
    log: ProgressLog | None,
) -> list[TrainedModel]:
    """One model for each seed, as far as no signal interrupts."""
    forest = None if request.forest is None else read_model(request.forest)
    bar = ProgressBar()
    runs: list[TrainedModel] = []
    for seed in request.seeds:
        start = time.perf_counter()
        trainer = make_trainer(dataset, request.perturbation, request.options_of(seed), jobs, forest)
        if interrupts.received:
            break
        interrupts.stop = trainer.stop
        bar.start(trainer.n_steps, f"seed {seed}")
        try:
            for progress in trainer.run():
                bar.show(progress)
                if log is not None:
                    log.write(seed, progress)
        finally:
            bar.close()
        runs.append(finish(trainer, time.perf_counter() - start, test, jobs, name))
        # Between two runs there is nothing to stop, but a result to keep.
        interrupts.stop = lambda: None
        if interrupts.received:
            break
    return runs


def _check_figures(run: TrainedModel, output: str, jobs: int | None) -> None:
    """What was written must be as good as what was trained."""
    is_file = output != STANDARD_STREAM and Path(output).is_file()
    again = read_model(output) if is_file else parse_model(format_model(run.model).encode(), output)
    assert run.training.perturbation is not None
    figures = evaluate(again, run.training.dataset, [run.training.perturbation], jobs=jobs)[0]
    if figures.tally != run.training.tally:
        raise OutputError(f"{output}: what was written does not score as it did in training; do not use it")
