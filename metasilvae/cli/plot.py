"""``metasilvae plot``: pictures of models, trainings and studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from metasilvae.cli.commands import OUTPUT, CommandGroup, option
from metasilvae.cli.inputs import fit_perturbation, load_data_for, load_models_and_data
from metasilvae.cli.parameters import (
    ThreatModel,
    ball_options,
    budget_options,
    bundle_options,
    check_files,
    jobs_option,
    model_data_options,
    reading_options,
    repeatable_attack_option,
    shared_options,
    voting_option,
)
from metasilvae.cli.progress import trace_curves
from metasilvae.formats.training_records import read_log, read_table
from metasilvae.interop.models import load_model
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.plots.canvas import ENDINGS, PLOT_FORMATS, choose_plot_format, render
from metasilvae.output.plots.curves import draw_archive, draw_curves
from metasilvae.output.plots.regions import choose_features, choose_plane, draw_regions, survey
from metasilvae.output.plots.trainings import (
    ROW_KINDS,
    X_AXES,
    choose_rows,
    draw_convergence,
    draw_objective_weights,
    draw_variance,
)
from metasilvae.output.plots.trees import DIRECTIONS, MOST_LEAVES_DOWN, draw_tree, gather_facts
from metasilvae.output.text.trainings import ArchiveReport
from metasilvae.perturbations.attack_files import read_attack
from metasilvae.perturbations.boxes import Ball, parse_perturbation
from metasilvae.training.pareto import INDEX, read_archive
from metasilvae.verification.budget import Budget

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@click.group(cls=CommandGroup)
def plot() -> None:
    """Plot models, training runs and studies as SVG, PNG or PDF.

    The same input gives the same file, byte for byte. Needs matplotlib: pip install 'metasilvae[plot]'.

    \b
    Example:
      metasilvae plot tree model.silva train.csv -o tree.svg
    """


@dataclass(frozen=True)
class Picture:
    """Where a picture goes, and its title."""

    output: str
    plot_format: str | None
    title: str | None

    def check(self, *inputs: str | None) -> None:
        """Refuse what cannot be written before anything is computed."""
        if self.output == STANDARD_STREAM and self.plot_format is None:
            raise click.UsageError(f"standard output has no suffix; add --format {'|'.join(PLOT_FORMATS)}")
        choose_plot_format(self.output, self.plot_format)
        check_files(inputs, [self.output])

    def write(self, figure: Figure) -> None:
        write_output(self.output, render(figure, choose_plot_format(self.output, self.plot_format)))


picture_options = bundle_options(
    "picture",
    Picture,
    ("output", "plot_format", "title"),
    option(
        "--output",
        "-o",
        required=True,
        metavar="FILE",
        group=OUTPUT,
        help=f"Picture to write ({ENDINGS}), - for standard output.",
    ),
    option(
        "--format",
        "plot_format",
        type=click.Choice(list(PLOT_FORMATS)),
        group=OUTPUT,
        help="Format of the picture.  [default: by the suffix]",
    ),
    option("--title", metavar="TEXT", group=OUTPUT, help="Title of the picture."),
)
table_options = shared_options(
    click.argument("tables", nargs=-1, required=True, metavar="TABLE..."),
    option("--rows", type=click.Choice(ROW_KINDS), help="Rows to show metrics of.  [default: test, if there are any]"),
)


@plot.command(short_help="Plot a decision tree.")
@click.argument("model")
@click.argument("data", required=False)
@option("--epsilon", metavar="E", help="With DATA, count the rows within E of each threshold.")
@option("--tree", "position", type=click.IntRange(min=0), metavar="N", help="Tree of a forest, counted from 0.")
@option(
    "--max-depth",
    type=click.IntRange(min=0),
    metavar="N",
    help="Fold nodes below this depth.  [default: as much as fits on a page]",
)
@option(
    "--direction",
    type=click.Choice(DIRECTIONS),
    help=f"Direction of growth.  [default: down; right for more than {MOST_LEAVES_DOWN} leaves]",
)
@picture_options
@model_data_options
def tree(
    model: str,
    data: str | None,
    epsilon: str | None,
    position: int | None,
    max_depth: int | None,
    direction: str | None,
    picture: Picture,
    **data_options: Any,
) -> None:
    """Plot MODEL, a tree or one tree of a forest.

    Leaves have the colour of their prediction, bars show the classes of the training rows, and leaves their counts in
    the order of the legend. With DATA, features have names, and each box shows the number of rows that reach it and
    the margin: the distance of the nearest of them from the threshold. Thresholds are rounded to 6 digits. Of a tree
    with many leaves the branches with the most rows are shown, and the others folded; --max-depth decides otherwise.

    \b
    Examples:
      metasilvae plot tree model.silva test.csv --epsilon 0.1 -o tree.svg
      metasilvae plot tree forest.silva --tree 3 --max-depth 4 -o tree.png
      metasilvae plot tree model.silva -o - --format svg > tree.svg
    """
    if epsilon is not None and data is None:
        raise click.UsageError("--epsilon counts rows near a threshold; give DATA")
    ball = None if epsilon is None else parse_perturbation(("l_inf", epsilon))
    picture.check(model, data)
    loaded = load_model(model)
    if loaded.n_trees > 1 and position is None:
        raise click.UsageError(f"{loaded.source} is a forest of {loaded.n_trees} trees; choose one with --tree N")
    if (position or 0) >= loaded.n_trees:
        raise click.UsageError(f"--tree {position}: {loaded.source} has the trees 0 to {loaded.n_trees - 1}")
    dataset = None if data is None else load_data_for(loaded, data, data_options)
    radius = ball.epsilon if isinstance(ball, Ball) else None
    place = None if loaded.n_trees == 1 else (position or 0, loaded.n_trees)
    facts = gather_facts(loaded.tree(position or 0), dataset, radius, max_depth, place)
    picture.write(draw_tree(facts, direction, picture.title))


@plot.command(short_help="Plot decision regions in the plane of two features.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.argument("data")
@ball_options
@option(
    "--features",
    "wanted",
    nargs=2,
    metavar="I J",
    help="The two features, by name or number from 0.  [default: the most important ones that may change]",
)
@option(
    "--row",
    type=int,
    metavar="N",
    help="Row whose values the other features have.  [default: medians and most frequent categories; a row, if the "
    "prediction is the same everywhere there]",
)
@option("--max-rows", type=click.IntRange(min=1), default=1000, metavar="N", help="Maximum number of rows to draw.")
@voting_option
@picture_options
@budget_options
@jobs_option
@reading_options
def regions(
    models: tuple[str, ...],
    data: str,
    threat: ThreatModel,
    wanted: tuple[str, str] | None,
    row: int | None,
    max_rows: int,
    voting: str | None,
    picture: Picture,
    budget: Budget,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Plot the decision regions of each MODEL in the plane of two features, with rows of DATA and their perturbations.

    Regions and verdicts are exact: a cross marks a row with a wrong prediction, a thick box (where boxes are crowded,
    a black edge) an unstable one. If a model tests other features too, the picture is a slice: these are fixed at the
    values of a row or at typical ones. Rows are verified with all their own values. Accuracy and stability are those
    of all rows; for a forest, of the rows that are drawn, and the picture says so. Rows far away from all others, or
    with a missing value of one of the two features, are not drawn.

    \b
    Examples:
      metasilvae plot regions cart.silva ours.silva builtin:circle/train --epsilon 0.02 -o circle.svg
      metasilvae plot regions builtin:iris/tree.silva builtin:iris/test --features petal_length petal_width -o iris.png
      metasilvae plot regions wine.silva builtin:wine/test --features 0 6 --row 17 -o slice.pdf
    """
    picture.check(*models, data, threat.attack)
    chosen = threat.choose(*models, data)
    loaded, dataset = load_models_and_data(models, data, data_options)
    allowed = None if chosen is None else fit_perturbation(chosen, dataset)
    features = choose_features(loaded, dataset, wanted, allowed)
    plane = choose_plane(dataset, features, row, allowed or Ball(0.0), loaded, voting)
    drawn = None
    if dataset.n_samples > max_rows:
        rows = np.linspace(0, dataset.n_samples - 1, max_rows).round().astype(np.intp)
        drawn = np.unique([*rows, *([] if plane.row is None else [plane.row])])
    panels = [
        survey(model, dataset, plane, allowed, drawn=drawn, voting=voting, jobs=jobs, budget=budget) for model in loaded
    ]
    picture.write(draw_regions(panels, picture.title))


@plot.command(short_help="Plot stability and robust accuracy over epsilon.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.argument("data")
@repeatable_attack_option
@voting_option
@picture_options
@budget_options
@jobs_option
@model_data_options
@click.pass_context
def curve(
    ctx: click.Context,
    models: tuple[str, ...],
    data: str,
    attacks: tuple[str, ...],
    voting: str | None,
    picture: Picture,
    budget: Budget,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Plot stability and robust accuracy of each MODEL on DATA over all epsilon, or all multiples of an --attack.

    The curves are exact, as those of `evaluate --curve`, which prints them. Where the search budget or Ctrl-C ends the
    search for the certified radius of a row, they are lower bounds, and the picture says so.

    \b
    Example:
      metasilvae plot curve cart.silva ours.silva builtin:circle/test -o curves.svg
    """
    picture.check(*models, data, *attacks)
    rules = [read_attack(attack) for attack in attacks]
    loaded, dataset = load_models_and_data(models, data, data_options)
    fitted = [fit_perturbation(each, dataset) for each in rules]
    curves, exit_code = trace_curves(loaded, dataset, fitted, voting, jobs, budget)
    picture.write(draw_curves(curves, picture.title))
    ctx.exit(exit_code)


@plot.command(short_help="Plot Pareto-optimal trees of a training run.")
@click.argument("folder", metavar="DIR")
@picture_options
def pareto(folder: str, picture: Picture) -> None:
    """Plot the Pareto-optimal trees of `train --pareto DIR`: accuracy against stability, larger marks for larger trees.

    `metasilvae pareto DIR --plot FILE` marks the tree that it picks too, and can evaluate the trees on other rows.

    \b
    Example:
      metasilvae plot pareto trees/ -o trees.svg
    """
    archive = read_archive(folder)
    paths = [archive.path(position) for position in range(len(archive.files))]
    picture.check(*paths, f"{folder}/{INDEX}")
    picture.write(draw_archive(ArchiveReport(archive), picture.title))


@plot.command(short_help="Plot metrics over the course of training.")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@option("--x", "x_axis", type=click.Choice(X_AXES), default=X_AXES[0], help="Horizontal axis.")
@picture_options
def convergence(logs: tuple[str, ...], x_axis: str, picture: Picture) -> None:
    """Plot phi, accuracy, stability and size of the best tree over the course of training.

    LOG is a file of `train --log`; several logs or seeds are drawn over each other. Metrics are those of the training
    rows under the perturbation of training. Phases are grey bands, or marks where they start. Phi of the best tree
    may fall from one phase to the next: after tuning, epsilon can be larger and each leaf has a penalty.

    \b
    Examples:
      metasilvae plot convergence training.jsonl -o convergence.svg
      metasilvae plot convergence default.jsonl paper.jsonl --x steps -o both.png
    """
    picture.check(*logs)
    picture.write(draw_convergence([run for log in logs for run in read_log(log)], x_axis, picture.title))


@plot.command("objective-weights", short_help="Plot metrics over the weight of accuracy.")
@table_options
@picture_options
def objective_weights(tables: tuple[str, ...], rows: str | None, picture: Picture) -> None:
    """Plot accuracy and stability over the weight of accuracy in the objective.

    TABLE is a file of `train --table`, or any CSV with the columns w_acc, accuracy and stability (or test_accuracy and
    test_stability), and set if there are several data sets. For equal weight and set, the median and the quartiles (a
    band) are drawn.

    \b
    Example:
      metasilvae plot objective-weights weight-*.csv -o weights.svg
    """
    picture.check(*tables)
    studies = [read_table(table) for table in tables]
    picture.write(draw_objective_weights(studies, choose_rows(studies, rows), picture.title))


@plot.command(short_help="Plot metrics over random seeds.")
@table_options
@picture_options
def variance(tables: tuple[str, ...], rows: str | None, picture: Picture) -> None:
    """Plot how accuracy, stability, phi and size vary with the seed.

    TABLE is a file of `train --seeds A..B --table`, or any CSV with the columns accuracy, stability, phi and leaves (or
    test_accuracy and so on), and set if there are several data sets. Each set, with each of its weights if they
    differ, is a box (median, quartiles, minimum and maximum) with a dot for each seed.

    \b
    Examples:
      metasilvae plot variance seeds.csv -o variance.svg
      metasilvae plot variance wine.csv iris.csv --rows training -o variance.png
    """
    picture.check(*tables)
    studies = [read_table(table) for table in tables]
    picture.write(draw_variance(studies, choose_rows(studies, rows), picture.title))
