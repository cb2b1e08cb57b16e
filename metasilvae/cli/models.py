"""Commands about model files: info, similarity, diff, simplify, assemble, disassemble."""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from metasilvae.analysis.difference import DifferenceStatus, compare_models, count_unequal_rows
from metasilvae.analysis.simplification import simplify as simplify_model
from metasilvae.analysis.summaries import count_equal_predictions, summarize_model
from metasilvae.cli.commands import BUDGET, Command, option
from metasilvae.cli.inputs import load_data_for, load_feature_names, load_models_and_data
from metasilvae.cli.parameters import (
    DomainChoice,
    PositiveNumber,
    check_files,
    domain_options,
    format_option,
    jobs_option,
    model_data_options,
    output_option,
    plain_option,
    voting_option,
)
from metasilvae.cli.progress import follow_rows
from metasilvae.errors import MetasilvaeWarning, OutputError
from metasilvae.formats.silva_models import write_model
from metasilvae.interop.models import load_model
from metasilvae.io.storage import STANDARD_STREAM, TEMPORARY_PREFIX, commit, prepare_folder, staging, write_output
from metasilvae.model import NO_DESCRIPTION, Model, count_leaves, join_trees, match_features, share_encoding
from metasilvae.output.text.models import COMPARISON_FORMATS, SIMILARITY_FORMATS, SUMMARY_FORMATS, ComparisonReport
from metasilvae.output.text.terminal import print_summary
from metasilvae.prediction import check_missing, check_width
from metasilvae.verification.budget import Budget
from metasilvae.verification.requirements import RequirementResult

EXIT_CODES = {
    DifferenceStatus.EQUAL: RequirementResult.HOLDS,
    DifferenceStatus.DIFFERENT: RequirementResult.VIOLATED,
    DifferenceStatus.UNDECIDED: RequirementResult.UNDECIDED,
}
TREE_PATTERN = "tree-*.silva"


@click.command(cls=Command)
@click.argument("model")
@click.argument("data", required=False)
@option("--per-tree", is_flag=True, help="Show each tree of a forest too.")
@format_option(SUMMARY_FORMATS, "Format of the summary.")
@output_option
@model_data_options
def info(model: str, data: str | None, output_format: str, per_tree: bool, output: str, **data_options: Any) -> None:
    """Show size and shape of MODEL: leaves, depth, samples and entropy of the leaves, tested features.

    The text begins in silva's tree-info format. DATA is optional and only gives the names of the features.

    \b
    Example:
      metasilvae info model.silva
      metasilvae info forest.silva train.csv --per-tree --format json
    """
    check_files([model, data], [output])
    loaded = load_model(model)
    feature_names = load_feature_names(loaded, data, data_options)
    trees = [summarize_model(loaded.tree(position)) for position in range(loaded.n_trees)] if per_tree else []
    write_output(output, SUMMARY_FORMATS[output_format](summarize_model(loaded), trees, feature_names))


@click.command(cls=Command)
@click.argument("models", nargs=-1, required=True, metavar="MODEL MODEL...")
@click.argument("data")
@voting_option
@format_option(SIMILARITY_FORMATS, "text: one line for two models, a table for more; json: matrices.")
@output_option
@jobs_option
@model_data_options
def similarity(
    models: tuple[str, ...],
    data: str,
    voting: str | None,
    output_format: str,
    output: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Fraction of the rows of DATA with equal predictions of two models; a table for more than two.

    Predictions are sets of labels, compared by the names of the labels.

    \b
    Example:
      metasilvae similarity a.silva b.silva test.csv
    """
    if len(models) < 2:
        raise click.UsageError("two models and a data set are needed, as in: similarity a.silva b.silva test.csv")
    check_files([*models, data], [output])
    loaded, dataset = load_models_and_data(models, data, data_options)
    equal = count_equal_predictions(loaded, dataset, voting=voting, jobs=jobs)
    write_output(output, SIMILARITY_FORMATS[output_format](loaded, dataset, equal, voting))


@click.command(cls=Command)
@click.argument("first")
@click.argument("second")
@click.argument("data", required=False)
@domain_options
@option("--exit-code", is_flag=True, help="Exit with 3 if predictions differ, with 4 if that is undecided.")
@voting_option
@option("--max-regions", type=click.IntRange(min=0), default=10, help="Maximum number of regions to list.")
@format_option(COMPARISON_FORMATS, "Format of the report.")
@option(
    "--time-limit",
    type=PositiveNumber(),
    default=60,
    metavar="SECONDS",
    group=BUDGET,
    help="Time limit of the search in forests; inf for no limit.",
)
@option(
    "--max-steps",
    type=click.IntRange(min=1),
    group=BUDGET,
    help="Limit of search steps, which is the same on every machine.  [default: none]",
)
@output_option
@jobs_option
@model_data_options
@click.pass_context
def diff(
    ctx: click.Context,
    first: str,
    second: str,
    data: str | None,
    domain: DomainChoice,
    max_regions: int,
    output_format: str,
    time_limit: float,
    max_steps: int | None,
    exit_code: bool,
    voting: str | None,
    output: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Find the exact regions in which the models FIRST and SECOND predict differently, or prove that there are none.

    DATA is optional: it gives the names of the features, and the fraction of its rows with different predictions is
    reported. Forests are compared tree by tree, which may prove them equal; else a complete search decides, which can
    take long: with a limit, or after Ctrl-C, the result may be undecided.

    \b
    Examples:
      metasilvae diff old.silva new.silva
      metasilvae diff old.silva new.silva test.csv --domain train.csv --exit-code
    """
    domain.check()
    check_files([first, second, data, domain.data], [output])
    one, other = share_encoding(load_model(first), load_model(second))
    models = one, match_features(other, one)
    dataset = None if data is None else load_data_for(models[0], data, data_options)
    unequal = None
    if dataset is not None:
        check_width(models[1], dataset)
        check_missing(models[1], dataset)
        unequal = count_unequal_rows(*models, dataset, voting, jobs)
    within = domain.read(models[0], data_options)
    samples = None if dataset is None else dataset.X
    budget = Budget(time_limit, max_steps)
    is_long = max(model.n_trees for model in models) > 1
    with follow_rows(100, budget, is_long=is_long, phase="comparing", unit="%") as work:
        comparison = compare_models(
            *models, within, voting=voting, max_regions=max_regions, samples=samples,
            budget=budget, stop=work.stop, on_fraction=work.reach,
        )  # fmt: skip
    write_output(output, COMPARISON_FORMATS[output_format](ComparisonReport(comparison, dataset, unequal)))
    ctx.exit(work.exit_code or (EXIT_CODES[comparison.result] if exit_code else 0))


@click.command(cls=Command)
@click.argument("model")
@domain_options
@voting_option
@output_option
@plain_option
@model_data_options
def simplify(
    model: str, domain: DomainChoice, voting: str | None, output: str, plain: bool, **data_options: Any
) -> None:
    """Remove branches of MODEL that are unreachable, redundant or outside a domain, without changing a prediction.

    Predictions are proved to be equal for all samples, or for all samples of the domain; `metasilvae diff` with the
    same options repeats the proof. For a forest, --voting decides what must be equal: with average, leaves are merged
    only if their distributions are equal.

    \b
    Examples:
      metasilvae simplify model.silva -o small.silva
      metasilvae simplify model.silva -o small.silva --domain train.csv --margin 0.1
    """
    domain.check()
    check_files([model, domain.data], [output])
    loaded = load_model(model)
    within = domain.read(loaded, data_options)
    simple = simplify_model(loaded, within, voting=voting)
    write_model(simple, output, plain=plain)
    before, after = (f"{count_leaves(each.n_leaves)}, depth {each.max_depth}" for each in (loaded, simple))
    print_summary(
        f"{before} -> {after}; predictions are proved equal for {within.description}", err=output == STANDARD_STREAM
    )


@click.command(cls=Command)
@click.argument("output")
@click.argument("trees", nargs=-1, required=True, metavar="TREE...")
@option("--force", is_flag=True, help="Overwrite OUTPUT if it exists.")
@plain_option
def assemble(output: str, trees: tuple[str, ...], force: bool, plain: bool) -> None:
    """Join each TREE, in the given order, into the forest OUTPUT.

    All trees must have the same features, labels and kind of leaves. A forest contributes all of its trees. Where all
    trees have names of features, these must be the same, in any order; --plain joins trees by position.

    \b
    Example:
      metasilvae assemble forest.silva tree-*.silva
    """
    if not force and output != STANDARD_STREAM and Path(output).is_file():
        raise OutputError(f"{output}: exists already; name the forest before its trees, or overwrite it with --force")
    check_files(trees, [output])
    models = [load_model(tree) for tree in trees]
    if plain:
        models = [replace(model, description=NO_DESCRIPTION) for model in models]
    write_model(join_trees(models, output), output, plain=plain)


@click.command(cls=Command)
@click.argument("forest")
@click.argument("folder")
@option("--force", is_flag=True, help="Overwrite existing trees in FOLDER.")
@plain_option
def disassemble(forest: str, folder: str, force: bool, plain: bool) -> None:
    """Write each tree of FOREST into FOLDER, as tree-000.silva, tree-001.silva and so on.

    FOLDER is created if it does not exist. `assemble` joins the trees again.

    \b
    Example:
      metasilvae disassemble forest.silva trees/
    """
    model = load_model(forest)
    is_new = not Path(folder).exists()
    target = prepare_folder(folder)
    width = max(3, len(str(model.n_trees - 1)))
    paths = [target / f"tree-{position:0{width}}.silva" for position in range(model.n_trees)]
    there = set(target.glob(TREE_PATTERN))
    if there and not force:
        raise OutputError(f"{folder}: holds {len(there)} trees already; choose another folder, or --force to overwrite")
    check_files([forest], [str(path) for path in paths])
    try:
        _write_trees(model, target, [path.name for path in paths], plain)
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


def _write_trees(model: Model, target: Path, names: list[str], plain: bool) -> None:
    """All trees of a forest, or none."""
    with staging(target, f"{TEMPORARY_PREFIX}{os.getpid()}") as place:
        for position, name in enumerate(names):
            write_model(model.tree(position), str(place / name), plain=plain)
    commit(place, names)
