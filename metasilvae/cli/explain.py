"""``metasilvae explain``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.analysis.explanation import count_searches, explain_outcome
from metasilvae.analysis.sufficiency import find_sufficient
from metasilvae.cli.commands import Command, option
from metasilvae.cli.inputs import fit_perturbation, load_model_and_data
from metasilvae.cli.parameters import (
    ThreatModel,
    budget_options,
    check_files,
    format_option,
    jobs_option,
    model_data_options,
    most_fragile_option,
    output_option,
    perturbation_options,
    voting_option,
)
from metasilvae.cli.progress import follow_rows
from metasilvae.cli.spaces import SpaceChoice, space_options
from metasilvae.io.storage import write_output
from metasilvae.output.text.explanations import EXPLANATION_FORMATS, ExplanationReport
from metasilvae.output.text.sufficiency import SUFFICIENCY_FORMATS
from metasilvae.output.text.terminal import tell
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify


@click.command(cls=Command)
@click.argument("model")
@click.argument("data")
@perturbation_options()
@option(
    "--sufficient", is_flag=True,
    help="For each row, a smallest set of columns that alone guarantees its prediction, whatever the others are.",
)  # fmt: skip
@space_options
@most_fragile_option(5)
@voting_option
@format_option(EXPLANATION_FORMATS, "Format of the report.")
@output_option
@budget_options
@jobs_option
@model_data_options
@click.pass_context
def explain(
    ctx: click.Context,
    model: str,
    data: str,
    threat: ThreatModel,
    sufficient: bool,
    space: SpaceChoice,
    n_fragile: int,
    voting: str | None,
    output_format: str,
    output: str,
    budget: Budget,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Find the features and thresholds that make rows of DATA unstable, and the features to freeze.

    For each unstable row: the nearest adversarial example, the tests that it flips, and a smallest set of features
    that make the row stable when they are frozen, that is, kept at their values. Adversarial examples of a forest
    need not be nearest; the search budget holds for each search. Ctrl-C stops and reports what is found.

    With --sufficient: for each row a smallest set of columns that guarantees its prediction, proved for all values of
    the other columns, or for those of --domain or --bounds.

    \b
    Examples:
      metasilvae explain model.silva test.csv --epsilon 0.1
      metasilvae explain model.silva test.csv --sufficient --domain train.csv
    """
    space.check()
    if sufficient:
        if threat != ThreatModel():
            raise click.UsageError("--sufficient needs no perturbation: the other columns may have any value")
        explain_sufficient(ctx, model, data, space, voting, output_format, output, budget, jobs, data_options)
        return
    if space != SpaceChoice():
        raise click.UsageError("--domain and --bounds belong to --sufficient")
    chosen = threat.require(model, data)
    check_files([model, data, threat.attack], [output], chosen)
    loaded, dataset = load_model_and_data(model, data, data_options)
    allowed = fit_perturbation(chosen, dataset)
    query = make_query(loaded, dataset, allowed, voting=voting)
    with follow_rows(dataset.n_samples, budget, is_long=loaded.n_trees > 1) as verifying:
        outcome = verify(query, jobs, budget=budget, stop=verifying.stop, on_rows=verifying.advance)
    with follow_rows(count_searches(query, outcome), budget, phase="explaining", unit="searches") as explaining:
        if verifying.is_interrupted:
            explaining.stop.set()
        explanation = explain_outcome(
            query, outcome, jobs, budget=budget, stop=explaining.stop, on_searches=explaining.advance
        )
    report = ExplanationReport(explanation, allowed.describe(), n_fragile)
    if verifying.is_interrupted or explaining.is_interrupted:
        n_known = len(explanation.rows) - explanation.n_interrupted
        tell(f"interrupted; {n_known} of {len(explanation.rows)} unstable rows are fully explained")
    write_output(output, EXPLANATION_FORMATS[output_format](report))
    ctx.exit(verifying.exit_code or explaining.exit_code)


def explain_sufficient(
    ctx: click.Context,
    model: str,
    data: str,
    space: SpaceChoice,
    voting: str | None,
    output_format: str,
    output: str,
    budget: Budget,
    jobs: int | None,
    data_options: dict[str, Any],
) -> None:
    """The report of ``--sufficient``."""
    check_files([model, data, space.domain], [output])
    loaded, dataset = load_model_and_data(model, data, data_options)
    loaded, inputs = space.read(loaded, data_options)
    with follow_rows(dataset.n_samples, budget, phase="explaining") as work:
        found = find_sufficient(
            loaded, dataset, inputs, voting=voting, jobs=jobs, budget=budget, stop=work.stop, on_rows=work.advance
        )
    if work.is_interrupted:
        tell(f"interrupted; {len(found.reasons)} of {dataset.n_samples} rows are explained")
    write_output(output, SUFFICIENCY_FORMATS[output_format](found))
    ctx.exit(work.exit_code)
