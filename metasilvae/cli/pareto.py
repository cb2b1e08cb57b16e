"""``metasilvae pareto``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from metasilvae.cli.commands import OUTPUT, Command, option
from metasilvae.cli.inputs import fit_perturbation, load_data_for
from metasilvae.cli.parameters import (
    ThreatModel,
    ball_options,
    check_files,
    format_option,
    jobs_option,
    list_choices,
    model_data_options,
    plain_option,
)
from metasilvae.formats.silva_models import write_model
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.plots.canvas import choose_plot_format, render
from metasilvae.output.plots.curves import draw_archive
from metasilvae.output.text.terminal import Verbosity, get_verbosity, tell
from metasilvae.output.text.trainings import ARCHIVE_FORMATS, ArchiveReport
from metasilvae.training.pareto import INDEX, MEASURES, SIZES, measure, pick, read_archive
from metasilvae.verification.requirements import Requirement, RequirementResult

# silva's name is accepted too.
ALIASES = {"robustness": "robust_accuracy"}


@click.command(cls=Command)
@click.argument("folder", metavar="DIR")
@option(
    "--pick",
    "requirements",
    multiple=True,
    metavar="REQUIREMENT",
    help="Pick the best tree that meets this, such as 'stability>=0.9' or 'leaves<=20'; repeatable.",
)
@option(
    "--by",
    type=click.Choice([*MEASURES, *ALIASES]),
    metavar="NAME",
    help=f"Metric to pick the best tree by: {list_choices(MEASURES)}.  [default: accuracy]",
)
@option(
    "--output", "-o", metavar="FILE", group=OUTPUT, help="Copy the picked tree to this file, - for standard output."
)
@plain_option
@option("--data", metavar="FILE", help="Evaluate the trees on this data.")
@ball_options
@option("--plot", metavar="FILE", group=OUTPUT, help="Plot accuracy against stability (.png, .svg or .pdf).")
@format_option(ARCHIVE_FORMATS, "Format of the table.")
@jobs_option
@model_data_options
@click.pass_context
def pareto(
    ctx: click.Context,
    folder: str,
    requirements: tuple[str, ...],
    by: str | None,
    output: str | None,
    plain: bool,
    data: str | None,
    threat: ThreatModel,
    plot: str | None,
    output_format: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """List the Pareto-optimal trees that `train --pareto DIR` saved, plot them, or pick one.

    No other tree of the run is at least as accurate, as stable and as small. The metrics are those of the training
    rows, or of the rows that --validation held out; --data evaluates the trees on other rows. If no tree meets the
    requirements of --pick, the exit code is 3.

    \b
    Examples:
      metasilvae pareto trees/ --plot trees.png
      metasilvae pareto trees/ --pick 'stability>=0.9' --pick 'leaves<=20' -o chosen.silva
      metasilvae pareto trees/ --data test.csv --epsilon 0.1
    """
    required = [Requirement.parse(text, SIZES) for text in requirements]
    chooses = bool(required) or by is not None
    if output is not None and not chooses:
        raise click.UsageError("-o copies the picked tree; say which one with --pick or --by")
    if data is None and threat != ThreatModel():
        raise click.UsageError("--epsilon and --attack are for the rows of --data; give --data FILE, or leave them out")
    plot_format = None if plot is None else choose_plot_format(plot)
    allowed = threat.choose(data)
    archive = read_archive(folder)
    if data is not None and allowed is None:
        raise click.UsageError(f"--data needs --epsilon or --attack; the trees were trained for {archive.perturbation}")
    paths = [archive.path(position) for position in range(len(archive.files))]
    check_files([*paths, f"{folder}/{INDEX}", data, threat.attack], [output, plot])

    if data is not None and archive.files:
        models = [archive.read_tree(position) for position in range(len(archive.files))]
        dataset = load_data_for(models[0], data, data_options)
        assert allowed is not None
        attacker = fit_perturbation(allowed, dataset)
        archive = replace(
            archive,
            data=dataset.source,
            rows="rows",
            perturbation=attacker.describe(),
            metrics=[measure(model, dataset, attacker, jobs) for model in models],
        )
    by = by or "accuracy"
    picked = pick(archive.metrics, required, ALIASES.get(by, by), archive.fitness) if chooses else None
    report = ArchiveReport(archive, picked)
    if plot is not None and plot_format is not None:
        write_output(plot, render(draw_archive(report), plot_format))
    if chooses and picked is None:
        wanted = " and ".join(requirement.text for requirement in required)
        found = f"no tree in {folder} satisfies {wanted}" if archive.files else f"there is no tree in {folder}"
        tell(found)
        ctx.exit(RequirementResult.VIOLATED)
    if output is not None and picked is not None:
        write_model(archive.read_tree(picked), output, plain=plain)
    if output is None or get_verbosity() is not Verbosity.QUIET:
        click.echo(ARCHIVE_FORMATS[output_format](report), nl=False, err=output == STANDARD_STREAM)
