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
from metasilvae.cli.commands import OUTPUT, Command, command_line, option
from metasilvae.cli.inputs import fit_perturbation, load_data_for
from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.parameters import (
    ThreatModel,
    budget_options,
    check_files,
    jobs_option,
    model_data_options,
    most_fragile_option,
    perturbation_options,
    voting_option,
)
from metasilvae.interop.models import load_model
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.html.content import PageContent
from metasilvae.output.html.document import write_page
from metasilvae.output.text.terminal import RowBar, print_summary, tell
from metasilvae.perturbations.boxes import BoxFile
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query


@click.command(cls=Command)
@click.argument("model")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@perturbation_options()
@option("--output", "-o", required=True, metavar="FILE", group=OUTPUT, help="HTML file, - for standard output.")
@most_fragile_option(10)
@voting_option
@budget_options
@jobs_option
@model_data_options
@click.pass_context
def report(
    ctx: click.Context,
    model: str,
    data: tuple[str, ...],
    threat: ThreatModel,
    output: str,
    n_fragile: int,
    voting: str | None,
    budget: Budget,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Write an HTML report about MODEL on each DATA.

    The page shows the model as a drawing that can be zoomed and folded, its metrics, the verdicts of `verify`, the
    stability curve over all epsilon, the confusion matrix, the most fragile rows with adversarial examples, and the
    features driving instability. It is a single file that loads nothing from the network; the same inputs give the
    same page. The search budget holds for each search. Ctrl-C stops and writes the page with what is known.

    \b
    Example:
      metasilvae report model.silva train.csv test.csv --epsilon 0.1 -o report.html
    """
    chosen = threat.require(model, *data)
    if isinstance(chosen, BoxFile) and len(data) > 1:
        raise click.UsageError("--perturbation from-file has the boxes of one data set; give one DATA")
    check_files([model, *data, threat.attack], [output], chosen)
    loaded = load_model(model)
    queries = []
    for source in data:
        dataset = load_data_for(loaded, source, data_options)
        allowed = fit_perturbation(chosen, dataset)
        queries.append((make_query(loaded, dataset, allowed, voting=voting), allowed))

    stop = threading.Event()
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
            print_summary(_summarize(assessment))
        print_summary(f"open {output} in a browser")
    ctx.exit(interrupts.exit_code)


def _summarize(assessment: Assessment) -> str:
    counts = assessment.outcome.counts
    metrics = {"accuracy": counts.accuracy, "stability": counts.stability, "robust accuracy": counts.robust_accuracy}
    listed = ", ".join(f"{name} {100 * float(value):.2f} %" for name, value in metrics.items())
    undecided = f" ({counts.no_info} rows undecided)" if counts.no_info else ""
    return f"{assessment.query.dataset.source}: {listed}{undecided}"


@contextmanager
def _watch(phase: str, n_rows: int) -> Iterator[Callable[[int], object]]:
    with RowBar(n_rows, phase=phase) as bar:
        yield bar.advance


def _list_versions() -> dict[str, str]:
    return {
        "metasilvae": VERSION,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
