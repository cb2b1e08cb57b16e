"""``metasilvae report``."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
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
    require_option,
    voting_option,
)
from metasilvae.errors import RequestError, shorten
from metasilvae.interop.models import load_model
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.html.content import PageContent
from metasilvae.output.html.document import write_page
from metasilvae.output.text.terminal import RowBar, print_summary, tell
from metasilvae.perturbations.boxes import BoxFile
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.requirements import Requirement, check_requirements, combine
from metasilvae.verification.targets import find_label


@click.command(cls=Command)
@click.argument("model")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@perturbation_options()
@option(
    "--target",
    metavar="LABEL",
    help="Show the nearest change that gives a row this label (a counterfactual explanation), for the rows that need "
    "the smallest ones.",
)
@option("--output", "-o", required=True, metavar="FILE", group=OUTPUT, help="HTML file, - for standard output.")
@require_option
@option(
    "--date",
    metavar="DATE",
    group=OUTPUT,
    help="Date on the page; none leaves it out.  [default: that of SOURCE_DATE_EPOCH, if set, or today, UTC]",
)
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
    target: str | None,
    output: str,
    requirements: tuple[str, ...],
    date: str | None,
    n_fragile: int,
    voting: str | None,
    budget: Budget,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Write an HTML report about MODEL on each DATA.

    The page shows the model as a drawing that can be zoomed and folded, its metrics, the ceiling that no model can
    exceed, the verdicts of `verify`, the stability curve over all epsilon, the confusion matrix, the most fragile
    rows with adversarial examples, and the features driving instability; with --target, changes that lead to a
    wanted label. It is a single file that loads nothing from the network; the same inputs and the same --date give
    the same page. Requirements are checked on each DATA and stand on top. The search budget holds for each search.
    Ctrl-C stops and writes the page with what is known.

    \b
    Examples:
      metasilvae report model.silva train.csv test.csv --epsilon 0.1 -o report.html
      metasilvae report model.silva test.csv --epsilon 0.1 -o report.html --require 'recall[*]>=0.6'
      metasilvae report model.silva test.csv --norm l1 --epsilon 0.5 --target virginica -o report.html
    """
    required = [Requirement.parse(text) for text in requirements]
    written_on = _choose_date(date)
    chosen = threat.require(model, *data)
    if isinstance(chosen, BoxFile) and len(data) > 1:
        raise click.UsageError("--perturbation from-file has the boxes of one data set; give one DATA")
    check_files([model, *data, threat.attack], [output], chosen)
    loaded = load_model(model)
    wanted = None if target is None else find_label(loaded, target)
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
                assess(query, allowed, jobs, n_fragile=n_fragile, target=wanted, budget=budget, stop=stop, watch=_watch)
            )
    checked = [check_requirements(required, each.query, each.outcome, each.query.rank_labels) for each in assessments]
    content = PageContent(
        loaded, assessments, command_line(ctx), _list_versions(), bool(interrupts.received), checked, written_on,
        n_fragile,
    )  # fmt: skip
    write_output(output, write_page(content))
    if interrupts.received:
        tell("interrupted; the page shows what is known")
    if output != STANDARD_STREAM:
        for assessment in assessments:
            print_summary(_summarize(assessment))
    for assessment, results in zip(assessments, checked, strict=True):
        for each in results:
            tell(f"{assessment.query.dataset.source}: required {each.sentence}")
    if output != STANDARD_STREAM:
        print_summary(f"open {output} in a browser")
    ctx.exit(interrupts.exit_code or combine(each.result for results in checked for each in results))


def _choose_date(wanted: str | None) -> str | None:
    """The date on the page, None for none; by convention SOURCE_DATE_EPOCH makes results reproducible."""
    if wanted is not None:
        return None if wanted.strip().lower() in ("", "none") else wanted
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    except (ValueError, OverflowError, OSError):
        raise RequestError(
            f"SOURCE_DATE_EPOCH is {shorten(epoch)}; expected a number of seconds since 1970, or unset it"
        ) from None
    return f"{moment:%Y-%m-%d}"


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
