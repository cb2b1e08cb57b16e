"""``metasilvae plot tree``, ``regions``, ``curve`` and ``pareto``: pictures of models.

Where a picture goes: options that all plots share.

``metasilvae plot convergence``, ``weights`` and ``variance``: pictures of trainings.

``metasilvae plot``: pictures of models, trainings and studies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from metasilvae.cli import CommandGroup
from metasilvae.cli.inputs import choose_perturbation, fit_perturbation, load_data_for
from metasilvae.cli.parameters import (
    attack_option,
    budget_options,
    check_outputs,
    data_options,
    jobs_option,
    reading_options,
    refuse_two_pipes,
    shared_options,
    voting_option,
)
from metasilvae.cli.progress import trace_curves
from metasilvae.formats.silva_models import read_model
from metasilvae.formats.training_records import read_log, read_table
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.plots.canvas import ENDINGS, PLOT_FORMATS, choose_plot_format, render
from metasilvae.output.plots.curves import draw_archive, draw_curves
from metasilvae.output.plots.regions import choose_features, choose_plane, draw_regions, survey
from metasilvae.output.plots.trainings import (
    ROW_KINDS,
    X_AXES,
    choose_rows,
    draw_convergence,
    draw_variance,
    draw_weights,
)
from metasilvae.output.plots.trees import DIRECTIONS, MOST_LEAVES_DOWN, draw_tree, gather_facts
from metasilvae.output.text.trainings import ArchiveReport
from metasilvae.perturbations.attack_files import read_attack
from metasilvae.perturbations.boxes import Ball, parse_perturbation
from metasilvae.training.pareto import INDEX, read_archive
from metasilvae.verification.budget import Budget

if TYPE_CHECKING:
    from matplotlib.figure import Figure
import click
import numpy as np

plot_options = shared_options(
    click.option(
        "--output", "-o", required=True, metavar="FILE", help=f"Picture to write ({ENDINGS}), - for standard output."
    ),
    click.option(
        "--format", "plot_format", type=click.Choice(list(PLOT_FORMATS)), help="Form of it.  [default: by the name]"
    ),
    click.option("--title", metavar="TEXT", help="What to write above the picture."),
)


class Picture:
    """A picture to be written; what cannot be, is refused before anything is computed."""

    def __init__(self, output: str, plot_format: str | None, inputs: Sequence[str]) -> None:
        if output == STANDARD_STREAM and plot_format is None:
            raise click.UsageError(f"standard output has no ending; add --format {'|'.join(PLOT_FORMATS)}")
        self._output = output
        self._format = choose_plot_format(output, plot_format)
        check_outputs([output], inputs)

    def write(self, figure: Figure) -> None:
        write_output(self._output, render(figure, self._format))


@click.command()
@click.argument("model")
@click.argument("data", required=False)
@click.option("--epsilon", metavar="E", help="With DATA, count the rows that a change by E takes across a threshold.")
@click.option("--tree", "position", type=click.IntRange(min=0), metavar="N", help="Tree of a forest, counted from 0.")
@click.option("--max-depth", type=click.IntRange(min=0), metavar="N", help="Fold what is deeper.  [default: nothing]")
@click.option(
    "--direction",
    type=click.Choice(DIRECTIONS),
    help=f"Where the tree grows to.  [default: down, with more than {MOST_LEAVES_DOWN} leaves right]",
)
@plot_options
@data_options
def tree(
    model: str,
    data: str | None,
    epsilon: str | None,
    position: int | None,
    max_depth: int | None,
    direction: str | None,
    output: str,
    plot_format: str | None,
    title: str | None,
    **data_options: Any,
) -> None:
    """Draw MODEL, a tree or one tree of a forest.

    Leaves have the colour of their answer, bars show the classes of the rows that the tree was trained on, and leaves
    their numbers in the order of the legend. With DATA, the columns have their names, and each box tells how many of
    its rows come there and the margin: how far the nearest of them is from the threshold. Thresholds are rounded to 6
    digits.

    \b
    Examples:
      metasilvae plot tree model.silva test.csv --epsilon 0.1 -o tree.svg
      metasilvae plot tree forest.silva --tree 3 --max-depth 4 -o tree.png
      metasilvae plot tree model.silva -o - --format svg > tree.svg
    """
    inputs = [model, *([] if data is None else [data])]
    refuse_two_pipes(*inputs)
    if epsilon is not None and data is None:
        raise click.UsageError("--epsilon counts rows that are close to a threshold; give DATA")
    ball = None if epsilon is None else parse_perturbation(("l_inf", epsilon))
    picture = Picture(output, plot_format, inputs)
    loaded = read_model(model)
    if loaded.n_trees > 1 and position is None:
        raise click.UsageError(f"{loaded.source} is a forest of {loaded.n_trees} trees; choose one with --tree N")
    if (position or 0) >= loaded.n_trees:
        raise click.UsageError(f"--tree {position}: {loaded.source} has the trees 0 to {loaded.n_trees - 1}")
    dataset = None if data is None else load_data_for(loaded, data, data_options)
    radius = ball.epsilon if isinstance(ball, Ball) else None
    place = None if loaded.n_trees == 1 else (position or 0, loaded.n_trees)
    facts = gather_facts(loaded.tree(position or 0), dataset, radius, max_depth, place)
    picture.write(draw_tree(facts, direction, title))


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.argument("data")
@click.option("--epsilon", metavar="E", help="Perturb every feature by at most E.")
@attack_option
@click.option(
    "--features",
    "wanted",
    nargs=2,
    metavar="I J",
    help="The two features, by name or by number from 0.  [default: the only two that are tested]",
)
@click.option("--row", type=int, metavar="N", help="Fix the other features at this row.  [default: at the medians]")
@click.option("--max-rows", type=click.IntRange(min=1), default=1000, metavar="N", help="Rows to draw, evenly chosen.")
@voting_option
@plot_options
@budget_options
@jobs_option
@reading_options
def regions(
    models: tuple[str, ...],
    data: str,
    epsilon: str | None,
    attack: str | None,
    wanted: tuple[str, str] | None,
    row: int | None,
    max_rows: int,
    voting: str | None,
    output: str,
    plot_format: str | None,
    title: str | None,
    sample_timeout: float | None,
    sample_steps: int | None,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Draw what each MODEL answers in the plane of two features, with rows of DATA and what may become of them.

    The regions are exact, and so is what is said of a row: a cross if its answer is wrong, a thick box if a
    perturbation can change it; where boxes are crowded they are thin, and such rows have a black edge. Where a model
    tests other features too, the picture is a slice: those are fixed, at a row or at the medians. Rows are judged with
    all their own values, and stand where the two features put them. Accuracy and stability are those of all rows; of a
    forest, those of the rows that are drawn, and the picture says so.

    \b
    Examples:
      metasilvae plot regions cart.silva ours.silva builtin:circle/train --epsilon 0.02 -o circle.svg
      metasilvae plot regions builtin:iris/tree.silva builtin:iris/test --features petal_length petal_width -o iris.png
      metasilvae plot regions wine.silva builtin:wine/test --features 0 6 --row 17 -o slice.pdf
    """
    inputs = [*models, data, *([] if attack is None else [attack])]
    refuse_two_pipes(*inputs)
    picture = Picture(output, plot_format, inputs)
    chosen = choose_perturbation(epsilon, None, attack)
    loaded = [read_model(model) for model in models]
    dataset = load_data_for(max(loaded, key=lambda each: each.n_features), data, data_options)
    features = choose_features(loaded, dataset, wanted)
    allowed = None if chosen is None else fit_perturbation(chosen, dataset)
    plane = choose_plane(dataset, features, row, allowed or Ball(0.0))
    drawn = None
    if dataset.n_samples > max_rows:
        rows = np.linspace(0, dataset.n_samples - 1, max_rows).round().astype(np.intp)
        drawn = np.unique([*rows, *([] if row is None else [row])])
    budget = Budget(sample_timeout, sample_steps)
    panels = [
        survey(model, dataset, plane, allowed, drawn=drawn, voting=voting, jobs=jobs, budget=budget) for model in loaded
    ]
    picture.write(draw_regions(panels, row, title))


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.argument("data")
@click.option("--attack", "attacks", multiple=True, metavar="FILE", help="Draw over multiples of it; repeatable.")
@voting_option
@plot_options
@budget_options
@jobs_option
@data_options
@click.pass_context
def curve(
    ctx: click.Context,
    models: tuple[str, ...],
    data: str,
    attacks: tuple[str, ...],
    voting: str | None,
    output: str,
    plot_format: str | None,
    title: str | None,
    sample_timeout: float | None,
    sample_steps: int | None,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Draw stability and robustness of each MODEL on DATA, for all epsilon, or for all multiples of an --attack.

    The curves are exact, as those of `evaluate --curve`, which prints them; where a limit or Ctrl-C ends the search for
    the radius of a row, they are lower bounds, and the picture says so.

    \b
    Example:
      metasilvae plot curve cart.silva ours.silva builtin:circle/test -o curves.svg
    """
    inputs = [*models, data, *attacks]
    refuse_two_pipes(*inputs)
    picture = Picture(output, plot_format, inputs)
    rules = [read_attack(attack) for attack in attacks]
    loaded = [read_model(model) for model in models]
    dataset = load_data_for(max(loaded, key=lambda each: each.n_features), data, data_options)
    fitted = [fit_perturbation(each, dataset) for each in rules]
    budget = Budget(sample_timeout, sample_steps)
    curves, exit_code = trace_curves(loaded, dataset, fitted, voting, jobs, budget)
    picture.write(draw_curves(curves, title))
    ctx.exit(exit_code)


@click.command()
@click.argument("folder", metavar="DIR")
@plot_options
def pareto(folder: str, output: str, plot_format: str | None, title: str | None) -> None:
    """Draw the trees that `train --pareto DIR` kept: accuracy against stability, larger marks for larger trees.

    `metasilvae pareto DIR --plot FILE` draws the same with the tree that it picks, or on other rows.

    \b
    Example:
      metasilvae plot pareto trees/ -o trees.svg
    """
    archive = read_archive(folder)
    paths = [archive.path(position) for position in range(len(archive.files))]
    picture = Picture(output, plot_format, [*paths, f"{folder}/{INDEX}"])
    picture.write(draw_archive(ArchiveReport(archive), title))


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
    start. Phi of the best tree may fall from one phase to the next: after the tuning boxes are larger, and leaves
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


@click.group(cls=CommandGroup)
def plot() -> None:
    """Draw models, trainings and studies, as SVG, PNG or PDF.

    The same input gives the same file, byte for byte. Needs matplotlib: pip install 'metasilvae[plot]'.

    \b
    Example:
      metasilvae plot tree model.silva train.csv -o tree.svg
    """


for command in (tree, regions, curve, pareto, convergence, weights, variance):
    plot.add_command(command)
