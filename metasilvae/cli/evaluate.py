"""``metasilvae evaluate``.

``metasilvae predict``.
"""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import fit_perturbation, load_data_for, load_model_and_data
from metasilvae.cli.parameters import (
    budget_options,
    check_outputs,
    data_options,
    jobs_option,
    output_option,
    refuse_two_pipes,
    voting_option,
)
from metasilvae.cli.progress import follow_models, trace_curves
from metasilvae.formats.silva_models import read_model
from metasilvae.io.storage import write_output
from metasilvae.output.plots.canvas import choose_plot_format, render
from metasilvae.output.plots.curves import draw_curves
from metasilvae.output.text.evaluations import (
    CURVE_FORMATS,
    EVALUATION_FORMATS,
    PREDICTION_FORMATS,
    ConfusionTable,
    EvaluationReport,
)
from metasilvae.output.text.terminal import tell
from metasilvae.perturbations.attack_files import read_attack
from metasilvae.perturbations.boxes import Perturbation, parse_perturbation
from metasilvae.verification.budget import Budget
from metasilvae.verification.metrics import Evaluation, classify, confusion
from metasilvae.verification.metrics import evaluate as evaluate_model


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.argument("data")
@click.option("--epsilon", "epsilons", multiple=True, metavar="E", help="Radius to verify stability for; repeatable.")
@click.option("--attack", "attacks", multiple=True, metavar="FILE", help="The same for an attack file; repeatable.")
@click.option(
    "--confusion",
    "wants_confusion",
    is_flag=True,
    help="Add the table of true labels against answers, or (of more than 100) a list of mistakes.",
)
@click.option(
    "--curve",
    "wants_curve",
    is_flag=True,
    help="Stability and robustness for all epsilon at once, or for all multiples of an --attack: quantiles of the "
    "radii as a table, all steps as csv, json.",
)
@click.option("--plot", metavar="FILE", help="With --curve, draw the curves (.png, .svg or .pdf; needs matplotlib).")
@voting_option
@click.option(
    "--format",
    "table_format",
    type=click.Choice(list(EVALUATION_FORMATS)),
    default="text",
    help="Form of the table.",
)
@output_option
@budget_options
@jobs_option
@data_options
@click.pass_context
def evaluate(
    ctx: click.Context,
    models: tuple[str, ...],
    data: str,
    epsilons: tuple[str, ...],
    attacks: tuple[str, ...],
    wants_confusion: bool,
    wants_curve: bool,
    plot: str | None,
    voting: str | None,
    table_format: str,
    output: str,
    sample_timeout: float | None,
    sample_steps: int | None,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Accuracy, stability, robustness and size of each MODEL on DATA.

    Stability and robustness need at least one --epsilon or --attack. Efficiency is the metric divided by the number of
    leaves. Rows of a forest that are not decided within the limits count as not stable and are shown as no_info. Ctrl-C
    ends the search and reports what is decided.

    \b
    Examples:
      metasilvae evaluate a.silva b.silva test.csv --epsilon 0.05 --epsilon 0.1
      metasilvae evaluate a.silva b.silva test.csv --curve --plot curves.png
    """
    if wants_confusion and table_format == "csv":
        raise click.UsageError("--confusion makes tables of different widths, which one CSV cannot hold; use json")
    if wants_curve and (epsilons or wants_confusion):
        raise click.UsageError(
            "--curve covers every epsilon and has no confusions; leave --epsilon and --confusion out"
        )
    if plot is not None and not wants_curve:
        raise click.UsageError("--plot draws curves; add --curve")
    plot_format = None if plot is None else choose_plot_format(plot)
    inputs = [*models, data, *attacks]
    refuse_two_pipes(*inputs)
    rules = [read_attack(attack) for attack in attacks]
    perturbations: list[Perturbation] = [parse_perturbation(("l_inf", epsilon)) for epsilon in epsilons]
    check_outputs([output, *([] if plot is None else [plot])], inputs)
    loaded = [read_model(model) for model in models]
    # Sparse data are as wide as the widest model; the models are checked against them one by one.
    dataset = load_data_for(max(loaded, key=lambda model: model.n_features), data, data_options)
    budget = Budget(sample_timeout, sample_steps)
    fitted = [fit_perturbation(each, dataset) for each in rules]
    if wants_curve:
        curves, exit_code = trace_curves(loaded, dataset, fitted, voting, jobs, budget)
        if plot is not None and plot_format is not None:
            write_output(plot, render(draw_curves(curves), plot_format))
        write_output(output, CURVE_FORMATS[table_format](curves))
        ctx.exit(exit_code)
    perturbations += fitted
    evaluations: list[Evaluation] = []
    tables: list[ConfusionTable] = []
    with follow_models(loaded, dataset, len(perturbations), budget) as work:
        for model in loaded:
            evaluations += evaluate_model(
                model, dataset, perturbations, voting=voting, jobs=jobs, budget=budget,
                stop=work.stop, on_rows=work.advance,
            )  # fmt: skip
            if work.is_interrupted:
                break
    if wants_confusion:
        for model in loaded:
            predictions = classify(model, dataset, voting=voting, jobs=jobs)
            tables.append(ConfusionTable(model, dataset, confusion(model, dataset, predictions)))
    n_wanted = len(loaded) * max(len(perturbations), 1)
    if work.is_interrupted:
        n_complete = sum(not each.is_interrupted for each in evaluations)
        tell(f"interrupted; {n_complete} of {n_wanted} evaluations are complete")
    report = EvaluationReport(evaluations, tables, n_wanted - len(evaluations))
    write_output(output, EVALUATION_FORMATS[table_format](report))
    ctx.exit(work.exit_code)


@click.command()
@click.argument("model")
@click.argument("data")
@voting_option
@click.option(
    "--format",
    "prediction_format",
    type=click.Choice(list(PREDICTION_FORMATS)),
    default="text",
    help="text: one answer a line; csv and jsonl: with row number and, where there is one, true label.",
)
@output_option
@jobs_option
@data_options
def predict(
    model: str,
    data: str,
    voting: str | None,
    prediction_format: str,
    output: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Classify each row of DATA with MODEL.

    An answer is a set of labels: where counts or votes tie, all tied labels are given, joined by commas.

    \b
    Example:
      metasilvae predict model.silva test.csv --format csv --output answers.csv
      metasilvae predict model.silva values.csv --label-column none
    """
    refuse_two_pipes(model, data)
    check_outputs([output], [model, data])
    loaded, dataset = load_model_and_data(model, data, data_options, needs_labels=False)
    predictions = classify(loaded, dataset, voting=voting, jobs=jobs)
    write_output(output, PREDICTION_FORMATS[prediction_format](loaded, dataset, predictions))
