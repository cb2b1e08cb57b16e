"""``metasilvae explain``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.analysis.explanation import count_searches, explain_outcome
from metasilvae.cli.inputs import choose_perturbation, fit_perturbation, load_model_and_data
from metasilvae.cli.parameters import (
    PhraseCommand,
    budget_options,
    check_outputs,
    data_options,
    jobs_option,
    output_option,
    perturbation_options,
    refuse_two_pipes,
    voting_option,
)
from metasilvae.cli.progress import follow_rows
from metasilvae.io.storage import write_output
from metasilvae.output.text.explanations import EXPLANATION_FORMATS, ExplanationReport
from metasilvae.output.text.terminal import tell
from metasilvae.perturbations.boxes import BoxFile
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify


@click.command(cls=PhraseCommand)
@click.argument("model")
@click.argument("data")
@perturbation_options()
@click.option("--most-fragile", "n_fragile", type=click.IntRange(min=0), default=5, help="Rows to show one by one.")
@click.option(
    "--format",
    "report_format",
    type=click.Choice(list(EXPLANATION_FORMATS)),
    default="text",
    help="Form of the report.",
)
@voting_option
@output_option
@budget_options
@jobs_option
@data_options
@click.pass_context
def explain(
    ctx: click.Context,
    model: str,
    data: str,
    epsilon: str | None,
    perturbation: tuple[str, ...] | None,
    attack: str | None,
    n_fragile: int,
    report_format: str,
    voting: str | None,
    output: str,
    sample_timeout: float | None,
    sample_steps: int | None,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Which features and thresholds make rows of DATA unstable, and which features to freeze.

    For each unstable row the report knows the nearest perturbed row with another answer, the tests that it decides the
    other way, and a smallest set of features that, kept at their values, make the row stable. Perturbed rows of a
    forest need not be nearest; limits hold for each question that is asked about a row. Ctrl-C ends the search and
    reports what is found.

    \b
    Example:
      metasilvae explain model.silva test.csv --epsilon 0.1
    """
    inputs = [model, data, *([] if attack is None else [attack])]
    refuse_two_pipes(*inputs)
    chosen = choose_perturbation(epsilon, perturbation, attack)
    if chosen is None:
        raise click.UsageError("say what may be perturbed: --epsilon E, --perturbation or --attack FILE")
    if isinstance(chosen, BoxFile):
        inputs.append(chosen.path)
        refuse_two_pipes(*inputs)
    check_outputs([output], inputs)
    loaded, dataset = load_model_and_data(model, data, data_options)
    allowed = fit_perturbation(chosen, dataset)
    budget = Budget(sample_timeout, sample_steps)
    query = make_query(loaded, dataset, allowed, voting=voting)
    with follow_rows(dataset.n_samples, budget, is_long=loaded.n_trees > 1) as verifying:
        outcome = verify(query, jobs, budget=budget, stop=verifying.stop, on_rows=verifying.advance)
    with follow_rows(count_searches(query, outcome), budget, name="explain", unit="search") as explaining:
        if verifying.is_interrupted:
            explaining.stop.set()
        explanation = explain_outcome(
            query, outcome, jobs, budget=budget, stop=explaining.stop, on_searches=explaining.advance
        )
    report = ExplanationReport(explanation, allowed.describe(), n_fragile)
    if verifying.is_interrupted or explaining.is_interrupted:
        n_known = len(explanation.rows) - explanation.n_interrupted
        tell(f"interrupted; {n_known} of {len(explanation.rows)} unstable rows are fully explained")
    write_output(output, EXPLANATION_FORMATS[report_format](report))
    ctx.exit(verifying.exit_code or explaining.exit_code)
