"""``metasilvae diff``.

``metasilvae assemble`` and ``metasilvae disassemble``.

``metasilvae similarity``.

``metasilvae simplify``.

``metasilvae info``.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path
from typing import Any

import click

from metasilvae.analysis.difference import DifferenceStatus, compare_models, count_unequal_rows
from metasilvae.analysis.simplification import simplify as simplify_model
from metasilvae.analysis.summaries import count_equal_predictions, summarize_model
from metasilvae.cli.inputs import load_data_for, load_feature_names
from metasilvae.cli.parameters import (
    PositiveNumber,
    check_domain,
    check_outputs,
    data_options,
    domain_options,
    jobs_option,
    output_option,
    read_domain,
    refuse_two_pipes,
    voting_option,
)
from metasilvae.cli.progress import follow_rows
from metasilvae.errors import MetasilvaeWarning, OutputError
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.io.storage import (
    STANDARD_STREAM,
    TEMPORARY_PREFIX,
    check_output,
    commit,
    prepare_folder,
    staging,
    write_output,
)
from metasilvae.model import Model, count_leaves, join_trees
from metasilvae.output.text.models import COMPARISON_FORMATS, SIMILARITY_FORMATS, SUMMARY_FORMATS, ComparisonReport
from metasilvae.prediction import check_width
from metasilvae.verification.budget import Budget
from metasilvae.verification.requirements import RequirementResult

EXIT_CODES = {
    DifferenceStatus.EQUAL: RequirementResult.HOLDS,
    DifferenceStatus.DIFFERENT: RequirementResult.VIOLATED,
    DifferenceStatus.UNDECIDED: RequirementResult.UNDECIDED,
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
    budget = Budget(time_limit, max_steps)
    is_long = max(model.n_trees for model in models) > 1
    with follow_rows(100, budget, is_long=is_long, name="compare", unit="%") as work:
        comparison = compare_models(
            *models, within, voting=voting, max_regions=max_regions, samples=samples,
            budget=budget, stop=work.stop, on_fraction=work.reach,
        )  # fmt: skip
    write_output(output, COMPARISON_FORMATS[report_format](ComparisonReport(comparison, dataset, unequal)))
    ctx.exit(work.exit_code or (EXIT_CODES[comparison.result] if exit_code else 0))


TREE_PATTERN = "tree-*.silva"


@click.command()
@click.argument("output")
@click.argument("trees", nargs=-1, required=True, metavar="TREE...")
@click.option("--force", is_flag=True, help="Overwrite OUTPUT if it exists.")
def assemble(output: str, trees: tuple[str, ...], force: bool) -> None:
    """Join each TREE, in the given order, into the forest OUTPUT.

    All trees must have the same features, the same labels and the same kind of leaves. A forest among them contributes
    all of its trees.

    \b
    Example:
      metasilvae assemble forest.silva tree-*.silva
    """
    refuse_two_pipes(*trees)
    if not force and output != STANDARD_STREAM and Path(output).is_file():
        raise OutputError(f"{output}: exists already; the forest comes first, then its trees; --force overwrites")
    check_outputs([output], trees)
    write_model(join_trees([read_model(tree) for tree in trees], output), output)


@click.command()
@click.argument("forest")
@click.argument("folder")
@click.option("--force", is_flag=True, help="Overwrite trees that are in FOLDER already.")
def disassemble(forest: str, folder: str, force: bool) -> None:
    """Write each tree of FOREST into FOLDER, as tree-000.silva, tree-001.silva and so on.

    FOLDER is made if it does not exist. `assemble` joins the trees again.

    \b
    Example:
      metasilvae disassemble forest.silva trees/
    """
    model = read_model(forest)
    is_new = not Path(folder).exists()
    target = prepare_folder(folder)
    width = max(3, len(str(model.n_trees - 1)))
    paths = [target / f"tree-{position:0{width}}.silva" for position in range(model.n_trees)]
    there = set(target.glob(TREE_PATTERN))
    if there and not force:
        raise OutputError(f"{folder}: holds {len(there)} trees already; choose another folder, or --force to overwrite")
    check_outputs([str(path) for path in paths], [forest])
    try:
        _write_trees(model, target, [path.name for path in paths])
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                target.rmdir()
        raise
    others = there.difference(paths)
    if others:
        warnings.warn(
            f"{folder}: {len(others)} older trees are there too ({min(others).name}); remove them before assembling",
            MetasilvaeWarning,
            stacklevel=2,
        )


def _write_trees(model: Model, target: Path, names: list[str]) -> None:
    """All trees of a forest, or none."""
    with staging(target, f"{TEMPORARY_PREFIX}{os.getpid()}") as place:
        for position, name in enumerate(names):
            write_model(model.tree(position), str(place / name))
    commit(place, names)


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL MODEL...")
@click.argument("data")
@voting_option
@click.option(
    "--format",
    "similarity_format",
    type=click.Choice(list(SIMILARITY_FORMATS)),
    default="text",
    help="text: one line for two models, a table for more; json: matrices of rows and shares.",
)
@output_option
@jobs_option
@data_options
def similarity(
    models: tuple[str, ...],
    data: str,
    voting: str | None,
    similarity_format: str,
    output: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Share of the rows of DATA on which two models answer the same; a table for more than two.

    Answers are sets of labels, compared by the names of the labels.

    \b
    Example:
      metasilvae similarity a.silva b.silva test.csv
    """
    if len(models) < 2:
        raise click.UsageError("two models and a data set are needed, as in: similarity a.silva b.silva test.csv")
    refuse_two_pipes(*models, data)
    check_output(output)
    loaded = [read_model(model) for model in models]
    # Sparse data are as wide as the widest model; the models are checked against them one by one.
    dataset = load_data_for(max(loaded, key=lambda model: model.n_features), data, data_options)
    equal = count_equal_predictions(loaded, dataset, voting=voting, jobs=jobs)
    write_output(output, SIMILARITY_FORMATS[similarity_format](loaded, dataset, equal))


@click.command()
@click.argument("model")
@domain_options
@voting_option
@output_option
@data_options
def simplify(
    model: str,
    domain: str | None,
    margin: float | None,
    bounds: tuple[float, float] | None,
    voting: str | None,
    output: str,
    **data_options: Any,
) -> None:
    """Remove branches of MODEL that are unreachable, redundant or outside a domain, without changing one answer.

    That the answers stay the same is proved for all samples, or for all samples of the domain; `metasilvae diff` with
    the same options repeats the proof. For a forest, --voting says what must stay the same: with average, leaves are
    joined only if their distributions are equal.

    \b
    Examples:
      metasilvae simplify model.silva -o small.silva
      metasilvae simplify model.silva -o small.silva --domain train.csv --margin 0.1
    """
    check_domain(domain, margin, bounds)
    inputs = [name for name in (model, domain) if name is not None]
    refuse_two_pipes(*inputs)
    check_outputs([output], inputs)
    loaded = read_model(model)
    within = read_domain(loaded, domain, margin, bounds, data_options)
    simple = simplify_model(loaded, within, voting=voting)
    write_model(simple, output)
    before, after = (f"{count_leaves(each.n_leaves)}, depth {each.max_depth}" for each in (loaded, simple))
    click.echo(
        f"{before} -> {after}; the answers are proved equal for {within.description}",
        err=output == STANDARD_STREAM,
    )


@click.command()
@click.argument("model")
@click.argument("data", required=False)
@click.option(
    "--format", "summary_format", type=click.Choice(list(SUMMARY_FORMATS)), default="text", help="Form of the summary."
)
@click.option("--per-tree", is_flag=True, help="Add the same figures for each tree of a forest.")
@output_option
@data_options
def info(model: str, data: str | None, summary_format: str, per_tree: bool, output: str, **data_options: Any) -> None:
    """Size and shape of MODEL: leaves, heights, samples and entropy of the leaves, tested features.

    All figures come from the model file. DATA is optional and only gives the names of the features.

    \b
    Example:
      metasilvae info model.silva
      metasilvae info forest.silva train.csv --per-tree --format json
    """
    refuse_two_pipes(model, data)
    check_output(output)
    loaded = read_model(model)
    feature_names = load_feature_names(loaded, data, data_options)
    trees = [summarize_model(loaded.tree(position)) for position in range(loaded.n_trees)] if per_tree else []
    write_output(output, SUMMARY_FORMATS[summary_format](summarize_model(loaded), trees, feature_names))
