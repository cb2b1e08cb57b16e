"""``metasilvae evaluate`` and ``metasilvae predict``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from metasilvae.cli.commands import OUTPUT, THREAT_MODEL, Command, option
from metasilvae.cli.inputs import choose_norm, fit_perturbation, load_model_and_data, load_models_and_data
from metasilvae.cli.parameters import (
    budget_options,
    check_files,
    format_option,
    jobs_option,
    model_data_options,
    norm_option,
    output_option,
    refuse_two_pipes,
    repeatable_attack_option,
    voting_option,
)
from metasilvae.cli.progress import follow_models, trace_curves
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
from metasilvae.perturbations.norms import NORMS, SHARED_NORMS, NormBall
from metasilvae.prediction import predict_proba
from metasilvae.verification.budget import Budget
from metasilvae.verification.ceiling import find_ceiling
from metasilvae.verification.metrics import Evaluation, classify, confusion
from metasilvae.verification.metrics import evaluate as evaluate_model


@click.command(cls=Command)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.argument("data")
@option(
    "--epsilon",
    "epsilons",
    multiple=True,
    metavar="E",
    group=THREAT_MODEL,
    help="Maximum change of each feature, or with --norm limit of the total change; repeatable.",
)
@norm_option
@repeatable_attack_option
@option(
    "--confusion",
    "wants_confusion",
    is_flag=True,
    help="Add the confusion matrix, or for more than 100 labels a list of mistakes.",
)
@option(
    "--per-class",
    "wants_classes",
    is_flag=True,
    help="Add recall, precision, F1, stability, robust accuracy and ROC AUC of each class, and their means over "
    "classes; as csv, the table of classes alone.",
)
@option(
    "--ceiling",
    "wants_ceiling",
    is_flag=True,
    help="Add the robust accuracy that no model can exceed on these rows, and the share of it that each model reaches.",
)
@option(
    "--curve",
    "wants_curve",
    is_flag=True,
    help="Stability and robust accuracy over all epsilon, or over all multiples of an --attack: quantiles of the "
    "certified radii as a table, all steps as csv or json.",
)
@option(
    "--plot", metavar="FILE", group=OUTPUT, help="With --curve, plot the curves (.png, .svg or .pdf; needs matplotlib)."
)
@voting_option
@format_option(EVALUATION_FORMATS, "Format of the table.")
@output_option
@budget_options
@jobs_option
@model_data_options
@click.pass_context
def evaluate(
    ctx: click.Context,
    models: tuple[str, ...],
    data: str,
    epsilons: tuple[str, ...],
    norm: str | None,
    attacks: tuple[str, ...],
    wants_confusion: bool,
    wants_classes: bool,
    wants_ceiling: bool,
    wants_curve: bool,
    plot: str | None,
    voting: str | None,
    output_format: str,
    output: str,
    budget: Budget,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Compare accuracy, stability, robust accuracy and size of each MODEL on DATA.

    Robust accuracy is the fraction of rows that are correct and stable; stability and robust accuracy need at least
    one --epsilon or --attack. Rows of a forest that are not decided within the search budget count as unstable and
    are shown as no_info. Ctrl-C stops and reports what is decided.

    \b
    Examples:
      metasilvae evaluate a.silva b.silva test.csv --epsilon 0.05 --epsilon 0.1
      metasilvae evaluate a.silva b.silva test.csv --epsilon 0.1 --ceiling
      metasilvae evaluate a.silva b.silva test.csv --norm l2 --epsilon 0.1 --epsilon 0.2
      metasilvae evaluate a.silva b.silva test.csv --epsilon 0.1 --per-class
      metasilvae evaluate a.silva b.silva test.csv --curve --plot curves.png
    """
    if wants_confusion and output_format == "csv":
        raise click.UsageError("--confusion makes tables of different widths, which one CSV cannot hold; use json")
    if wants_curve and (epsilons or wants_confusion or wants_classes):
        raise click.UsageError(
            "--curve covers every epsilon and has no table of classes; leave --epsilon, --confusion and --per-class out"
        )
    if wants_ceiling and wants_classes and output_format == "csv":
        raise click.UsageError("--per-class writes the table of classes as csv, which has no --ceiling; use json")
    if wants_ceiling and (wants_curve or not (epsilons or attacks)):
        raise click.UsageError("--ceiling is for one or more --epsilon or --attack, without --curve")
    if plot is not None and not wants_curve:
        raise click.UsageError("--plot draws curves; add --curve")
    plot_format = None if plot is None else choose_plot_format(plot)
    inputs = [*models, data, *attacks]
    refuse_two_pipes(*inputs)
    rules = [read_attack(attack) for attack in attacks]
    total = norm if norm in SHARED_NORMS else None
    if total is not None and not (epsilons or wants_curve):
        raise click.UsageError(f"--norm {total} needs --epsilon E, the limit of {NORMS[total]}, or --curve")
    if total is not None and wants_ceiling:
        raise click.UsageError(f"the ceiling is known for --norm linf, not for {total}; leave --ceiling out")
    perturbations: list[Perturbation] = []
    if total is None:
        perturbations = [parse_perturbation(("l_inf", epsilon)) for epsilon in epsilons]
    check_files(inputs, [output, plot])
    loaded, dataset = load_models_and_data(models, data, data_options)
    fitted = [fit_perturbation(each, dataset) for each in rules]
    if total is not None:
        fitted = _limit_total(total, epsilons, fitted)
    if wants_curve:
        curves, exit_code = trace_curves(loaded, dataset, fitted, voting, jobs, budget)
        if plot is not None and plot_format is not None:
            write_output(plot, render(draw_curves(curves), plot_format))
        write_output(output, CURVE_FORMATS[output_format](curves))
        ctx.exit(exit_code)
    perturbations += fitted
    evaluations: list[Evaluation] = []
    with follow_models(loaded, dataset, len(perturbations), budget) as work:
        for model in loaded:
            evaluations += evaluate_model(
                model, dataset, perturbations, voting=voting, jobs=jobs, budget=budget,
                stop=work.stop, on_rows=work.advance,
            )  # fmt: skip
            if work.is_interrupted:
                break
    tables = []
    for model in loaded if wants_confusion else ():
        predictions = classify(model, dataset, voting=voting, jobs=jobs)
        tables.append(ConfusionTable(model, dataset, confusion(model, dataset, predictions)))
    n_wanted = len(loaded) * max(len(perturbations), 1)
    if work.is_interrupted:
        n_complete = sum(not each.is_interrupted for each in evaluations)
        tell(f"interrupted; {n_complete} of {n_wanted} evaluations are complete")
    ceilings = [(each, find_ceiling(dataset, each)) for each in perturbations] if wants_ceiling else []
    report = EvaluationReport(evaluations, tables, n_wanted - len(evaluations), ceilings, wants_classes)
    write_output(output, EVALUATION_FORMATS[output_format](report))
    ctx.exit(work.exit_code)


def _limit_total(norm: str, epsilons: Sequence[str], attacks: Sequence[Perturbation]) -> list[Perturbation]:
    """Each limit of the total change within each attack; without limits, all distances."""
    found: list[Perturbation] = []
    sizes: Sequence[str | None] = epsilons or [None]
    allowed: Sequence[Perturbation | None] = attacks or [None]
    for epsilon, attack in itertools.product(sizes, allowed):
        ball = choose_norm(norm, epsilon, None) or NormBall(norm)
        assert isinstance(ball, NormBall)
        found.append(replace(ball, within=attack))
    return found


@click.command(cls=Command)
@click.argument("model")
@click.argument("data")
@option(
    "--proba",
    "wants_probabilities",
    is_flag=True,
    help="Add the probability of each label, by the same voting as the prediction; as csv (the default then) or jsonl.",
)
@voting_option
@option(
    "--format",
    "output_format",
    type=click.Choice(list(PREDICTION_FORMATS)),
    group=OUTPUT,
    help="text: one prediction per line; csv, jsonl: with row number and, if known, true label.  [default: text; csv "
    "with --proba]",
)
@output_option
@jobs_option
@model_data_options
def predict(
    model: str,
    data: str,
    wants_probabilities: bool,
    voting: str | None,
    output_format: str | None,
    output: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Predict the label of each row of DATA with MODEL.

    A prediction is a set of labels: where counts or votes tie, all tied labels are given, joined by commas.

    \b
    Example:
      metasilvae predict model.silva test.csv --format csv --output predictions.csv
      metasilvae predict model.silva values.csv --label-column none
      metasilvae predict model.silva test.csv --proba -o probabilities.csv
    """
    if wants_probabilities and output_format == "text":
        raise click.UsageError("--proba adds a column for each label; use --format csv or jsonl")
    check_files([model, data], [output])
    loaded, dataset = load_model_and_data(model, data, data_options, needs_labels=False)
    predictions = classify(loaded, dataset, voting=voting, jobs=jobs)
    if not wants_probabilities:
        write_output(output, PREDICTION_FORMATS[output_format or "text"](loaded, dataset, predictions))
        return
    probabilities = predict_proba(loaded, dataset.X, voting, jobs)
    write_output(output, PREDICTION_FORMATS[output_format or "csv"](loaded, dataset, predictions, probabilities))
