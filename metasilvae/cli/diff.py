"""``metasilvae diff``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.domains import check_domain, domain_options, read_domain
from metasilvae.cli.inputs import load_data_for
from metasilvae.cli.parameters import (
    PositiveNumber,
    check_outputs,
    data_options,
    jobs_option,
    output_option,
    refuse_two_pipes,
    voting_option,
)
from metasilvae.cli.row_work import follow_rows
from metasilvae.comparison import Result, compare, count_unequal_rows
from metasilvae.forest_verification import Limits
from metasilvae.formats.silva_models import read_model
from metasilvae.gates import GateResult
from metasilvae.matching import check_width
from metasilvae.report.comparisons import COMPARISON_FORMATS, ComparisonReport
from metasilvae.storage import write_output

EXIT_CODES = {
    Result.EQUAL: GateResult.HOLDS,
    Result.DIFFERENT: GateResult.VIOLATED,
    Result.UNDECIDED: GateResult.UNDECIDED,
}


@click.command()
@click.argument("first")
@click.argument("second")
@click.argument("data", required=False)
@domain_options
@click.option("--max-regions", type=click.IntRange(min=0), default=10, help="Regions to show; all are counted.")
@click.option(
    "--format", "report_format", type=click.Choice(list(COMPARISON_FORMATS)), default="text", help="Form of the report."
)
@click.option(
    "--time-limit",
    type=PositiveNumber(),
    default=60,
    metavar="SECONDS",
    help="For the search in forests; what is not decided by then is undecided. inf for no limit.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="The same as a number of steps of the search, which is the same on every machine.  [default: none]",
)
@click.option("--exit-code", is_flag=True, help="Exit with 3 if the answers differ, with 4 if that is undecided.")
@voting_option
@output_option
@jobs_option
@data_options
@click.pass_context
def diff(
    ctx: click.Context,
    first: str,
    second: str,
    data: str | None,
    domain: str | None,
    margin: float | None,
    bounds: tuple[float, float] | None,
    max_regions: int,
    report_format: str,
    time_limit: float,
    max_steps: int | None,
    exit_code: bool,
    voting: str | None,
    output: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """The exact regions in which the models FIRST and SECOND answer differently, or a proof that there are none.

    DATA is optional: it gives the features names, and the share of its rows with different answers is reported.
    Forests are compared tree by tree, which may prove them equal; else samples are tried, then a complete search
    decides. It can take long: within its limits, or after Ctrl-C, the question may stay undecided.

    \b
    Examples:
      metasilvae diff old.silva new.silva
      metasilvae diff old.silva new.silva test.csv --domain train.csv --exit-code
    """
    check_domain(domain, margin, bounds)
    inputs = [name for name in (first, second, data, domain) if name is not None]
    refuse_two_pipes(*inputs)
    check_outputs([output], inputs)
    models = read_model(first), read_model(second)
    dataset = None if data is None else load_data_for(models[0], data, data_options)
    unequal = None
    if dataset is not None:
        for model in models:
            check_width(model, dataset)
        unequal = count_unequal_rows(*models, dataset, voting, jobs)
    within = read_domain(models[0], domain, margin, bounds, data_options)
    samples = None if dataset is None else dataset.X
    limits = Limits(time_limit, max_steps)
    is_long = max(model.n_trees for model in models) > 1
    with follow_rows(100, limits, is_long=is_long, name="compare", unit="%") as work:
        comparison = compare(
            *models, within, voting=voting, max_regions=max_regions, samples=samples,
            limits=limits, stop=work.stop, on_share=work.reach,
        )  # fmt: skip
    write_output(output, COMPARISON_FORMATS[report_format](ComparisonReport(comparison, dataset, unequal)))
    ctx.exit(work.exit_code or (EXIT_CODES[comparison.result] if exit_code else 0))
