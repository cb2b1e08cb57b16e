"""``metasilvae pareto``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from metasilvae.cli.inputs import choose_perturbation, fit_perturbation, load_data_for
from metasilvae.cli.parameters import attack_option, check_outputs, data_options, jobs_option, refuse_two_pipes
from metasilvae.formats.silva_models import write_model
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.plots.canvas import choose_plot_format, render
from metasilvae.output.plots.curves import draw_archive
from metasilvae.output.text.terminal import tell
from metasilvae.output.text.trainings import ARCHIVE_FORMATS, ArchiveReport
from metasilvae.training.pareto import INDEX, MEASURES, SIZES, measure, pick, read_archive
from metasilvae.verification.requirements import Gate, GateResult


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--pick",
    "requirements",
    multiple=True,
    metavar="REQUIREMENT",
    help="Show the best tree that satisfies this, for instance 'stability>=0.9' or 'leaves<=20'; repeatable.",
)
@click.option("--by", type=click.Choice(list(MEASURES)), help="What the best tree is the best in.  [default: accuracy]")
@click.option("--output", "-o", metavar="FILE", help="Copy the picked tree to this file, - for standard output.")
@click.option("--data", metavar="FILE", help="Compute the figures again on these rows.")
@click.option("--epsilon", metavar="E", help="With --data, every value moves by at most E.")
@attack_option
@click.option("--plot", metavar="FILE", help="Draw accuracy against stability (.png, .svg or .pdf; needs matplotlib).")
@click.option(
    "--format", "table_format", type=click.Choice(list(ARCHIVE_FORMATS)), default="text", help="Form of the table."
)
@jobs_option
@data_options
@click.pass_context
def pareto(
    ctx: click.Context,
    folder: str,
    requirements: tuple[str, ...],
    by: str | None,
    output: str | None,
    data: str | None,
    epsilon: str | None,
    attack: str | None,
    plot: str | None,
    table_format: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """List the trees that `train --pareto DIR` kept, plot them, or pick one of them.

    Of two trees in DIR, neither is as accurate, as stable and as small as the other one: each is the best for some
    purpose. The figures are those of the training rows, or of the rows that --validation held out. With --data they
    are computed again. If no tree satisfies what --pick asks for, the exit code is 3.

    \b
    Examples:
      metasilvae pareto trees/ --plot trees.png
      metasilvae pareto trees/ --pick 'stability>=0.9' --pick 'leaves<=20' -o chosen.silva
      metasilvae pareto trees/ --data test.csv --epsilon 0.1
    """
    gates = [Gate.parse(text, SIZES) for text in requirements]
    chooses = bool(gates) or by is not None
    if output is not None and not chooses:
        raise click.UsageError("-o copies the picked tree; say which one with --pick or --by")
    if data is None and (epsilon is not None or attack is not None):
        raise click.UsageError("--epsilon and --attack are for the rows of --data; give --data FILE, or leave them out")
    refuse_two_pipes(data, attack)
    plot_format = None if plot is None else choose_plot_format(plot)
    allowed = choose_perturbation(epsilon, None, attack)
    archive = read_archive(folder)
    if data is not None and allowed is None:
        raise click.UsageError(f"--data needs --epsilon or --attack; the trees were trained for {archive.perturbation}")
    paths = [archive.path(position) for position in range(len(archive.files))]
    sources = [path for path in (data, attack) if path is not None]
    outputs = [path for path in (output, plot) if path is not None]
    check_outputs(outputs, [*paths, f"{folder}/{INDEX}", *sources])

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
    picked = pick(archive.metrics, gates, by or "accuracy", archive.fitness) if chooses else None
    report = ArchiveReport(archive, picked)
    if plot is not None and plot_format is not None:
        write_output(plot, render(draw_archive(report), plot_format))
    if chooses and picked is None:
        wanted = " and ".join(gate.text for gate in gates)
        found = f"no tree in {folder} satisfies {wanted}" if archive.files else f"there is no tree in {folder}"
        tell(found)
        ctx.exit(GateResult.VIOLATED)
    if output is not None and picked is not None:
        write_model(archive.read_tree(picked), output)
    click.echo(ARCHIVE_FORMATS[table_format](report), nl=False, err=output == STANDARD_STREAM)
