"""``metasilvae plot convergence``, ``weights`` and ``variance``: pictures of trainings."""

from __future__ import annotations

import click

from metasilvae.cli.parameters import refuse_two_pipes, shared_options
from metasilvae.cli.plot_output import Picture, plot_options
from metasilvae.formats.study_tables import read_table
from metasilvae.formats.training_logs import read_log
from metasilvae.plots.convergence import X_AXES, draw_convergence
from metasilvae.plots.studies import ROW_KINDS, choose_rows, draw_variance, draw_weights

table_options = shared_options(
    click.argument("tables", nargs=-1, required=True, metavar="TABLE..."),
    click.option("--rows", type=click.Choice(ROW_KINDS), help="Whose figures.  [default: test, where there are any]"),
)


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--x", "x_axis", type=click.Choice(X_AXES), default=X_AXES[0], help="What goes to the right.")
@plot_options
def convergence(logs: tuple[str, ...], x_axis: str, output: str, plot_format: str | None, title: str | None) -> None:
    """Draw how phi, accuracy, stability and size of the best tree changed in training.

    LOG is a file of `train --log`; several ones, or several seeds, are drawn over each other. The figures are those of
    the training rows, with the boxes of the training. The phases of the training are grey bands, or marks where they
    start. Phi of the best tree may fall from one phase to the next: after the rehearsal boxes are larger, and leaves
    cost something.

    \b
    Examples:
      metasilvae plot convergence training.jsonl -o convergence.svg
      metasilvae plot convergence default.jsonl paper.jsonl --x steps -o both.png
    """
    refuse_two_pipes(*logs)
    picture = Picture(output, plot_format, logs)
    picture.write(draw_convergence([run for log in logs for run in read_log(log)], x_axis, title))


@click.command()
@table_options
@plot_options
def weights(tables: tuple[str, ...], rows: str | None, output: str, plot_format: str | None, title: str | None) -> None:
    """Draw accuracy and stability over the weight of accuracy.

    TABLE is a file of `train --table`, or any CSV with the columns w_acc, accuracy and stability (or test_accuracy and
    test_stability), and set where there are several. Of trainings with the same weight and set the median is drawn,
    with the quartiles as a band.

    \b
    Example:
      metasilvae plot weights weight-*.csv -o weights.svg
    """
    refuse_two_pipes(*tables)
    picture = Picture(output, plot_format, tables)
    studies = [read_table(table) for table in tables]
    picture.write(draw_weights(studies, choose_rows(studies, rows), title))


@click.command()
@table_options
@plot_options
def variance(
    tables: tuple[str, ...], rows: str | None, output: str, plot_format: str | None, title: str | None
) -> None:
    """Draw how much accuracy, stability, phi and size depend on the seed.

    TABLE is a file of `train --seeds A..B --table`, or any CSV with the columns accuracy, stability, phi and leaves (or
    test_accuracy and so on), and set where there are several. Each set, with each of its weights if they differ, is a
    box: median, quartiles, least and greatest, with a dot for each seed.

    \b
    Examples:
      metasilvae plot variance seeds.csv -o variance.svg
      metasilvae plot variance wine.csv iris.csv --rows training -o variance.png
    """
    refuse_two_pipes(*tables)
    picture = Picture(output, plot_format, tables)
    studies = [read_table(table) for table in tables]
    picture.write(draw_variance(studies, choose_rows(studies, rows), title))
