"""``metasilvae report``."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import numpy as np

from metasilvae._version import VERSION
from metasilvae.analysis.assessment import Assessment, assess
from metasilvae.cli.inputs import choose_perturbation, fit_perturbation, load_data_for
from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.parameters import (
    PhraseCommand,
    budget_options,
    check_outputs,
    command_line,
    data_options,
    jobs_option,
    perturbation_options,
    refuse_two_pipes,
    voting_option,
)
from metasilvae.formats.silva_models import read_model
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.html.content import PageContent
from metasilvae.output.html.document import write_page
from metasilvae.output.text.terminal import RowBar, tell
from metasilvae.perturbations.boxes import BoxFile
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query


@click.command(cls=PhraseCommand)
@click.argument("model")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@perturbation_options()
@click.option("--output", "-o", required=True, metavar="FILE", help="Where to write the page, - for standard output.")
@click.option("--most-fragile", "n_fragile", type=click.IntRange(min=0), default=10, help="Rows to show one by one.")
@voting_option
@budget_options
@jobs_option
@data_options
@click.pass_context
def report(
    ctx: click.Context,
    model: str,
    data: tuple[str, ...],
    epsilon: str | None,
    perturbation: tuple[str, ...] | None,
    attack: str | None,
    output: str,
    n_fragile: int,
    voting: str | None,
    sample_timeout: float | None,
    sample_steps: int | None,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Write one HTML page about MODEL on each DATA, to be read in a browser.

    The page has a drawing of the model to move in and to fold, key figures, the verdicts of `verify`, the stability
    curve for all epsilon, confusions, the most fragile rows with what changes, the features behind it, and how it was
    made. It is one file that loads nothing from anywhere, and without a date: the same inputs give the same page.
    The budget holds for each search about a row of a forest. Ctrl-C ends the search and writes the page with what is
    known.

    \b
    Example:
      metasilvae report model.silva train.csv test.csv --epsilon 0.1 -o report.html
    """
    inputs = [model, *data, *([] if attack is None else [attack])]
    refuse_two_pipes(*inputs)
    chosen = choose_perturbation(epsilon, perturbation, attack)
    if chosen is None:
        raise click.UsageError("say what may be perturbed: --epsilon E, --perturbation or --attack FILE")
    if isinstance(chosen, BoxFile):
        if len(data) > 1:
            raise click.UsageError("--perturbation from-file has the boxes of one data set; give one DATA")
        inputs.append(chosen.path)
        refuse_two_pipes(*inputs)
    check_outputs([output], inputs)
    loaded = read_model(model)
    queries = []
    for source in data:
        dataset = load_data_for(loaded, source, data_options)
        allowed = fit_perturbation(chosen, dataset)
        queries.append((make_query(loaded, dataset, allowed, voting=voting), allowed))

    budget, stop = Budget(sample_timeout, sample_steps), threading.Event()
    assessments: list[Assessment] = []
    with Interrupts() as interrupts:
        interrupts.stop = stop.set
        for query, allowed in queries:
            assessments.append(
                assess(query, allowed, jobs, n_fragile=n_fragile, budget=budget, stop=stop, watch=_watch)
            )
    content = PageContent(loaded, assessments, command_line(ctx), _list_versions(), bool(interrupts.received))
    write_output(output, write_page(content))
    if interrupts.received:
        tell("interrupted; the page shows what is known")
    if output != STANDARD_STREAM:
        for assessment in assessments:
            click.echo(_summarize(assessment))
        click.echo(f"open {output} in a browser")
    ctx.exit(interrupts.exit_code)


def _summarize(assessment: Assessment) -> str:
    counts = assessment.outcome.counts
    shares = {"accuracy": counts.accuracy, "stability": counts.stability, "robustness": counts.robustness}
    listed = ", ".join(f"{name} {100 * float(share):.2f} %" for name, share in shares.items())
    undecided = f" ({counts.no_info} rows undecided)" if counts.no_info else ""
    return f"{assessment.query.dataset.source}: {listed}{undecided}"


@contextmanager
def _watch(what: str, n_rows: int) -> Iterator[Callable[[int], object]]:
    with RowBar(n_rows, what=what) as bar:
        yield bar.advance


def _list_versions() -> dict[str, str]:
    return {
        "metasilvae": VERSION,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
