"""``metasilvae import`` and ``metasilvae export``: models of other libraries."""

from __future__ import annotations

import warnings
from typing import Any

import click

from metasilvae.cli.commands import Command, option
from metasilvae.cli.inputs import load_data_for, load_feature_names
from metasilvae.cli.parameters import check_files, model_data_options, output_option, voting_option
from metasilvae.errors import MetasilvaeWarning, RequestError
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.interop.exports import EXPORTERS, PREDICTOR_EXPORTERS
from metasilvae.interop.imports import READERS, Imported, ImportOptions, compare_with_library, import_file
from metasilvae.interop.imports.imported import MOST_LEVELS
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.text.models import describe_import
from metasilvae.output.text.terminal import RowBar, print_summary
from metasilvae.prediction import check_width
from metasilvae.voting import choose_voting


@click.command("import", cls=Command)
@click.argument("source")
@click.argument("output")
@option("--from", "kind", type=click.Choice(list(READERS)), help="Format of SOURCE.  [default: detected]")
@option("--check", "data", metavar="DATA", help="Compare the predictions on this data too.")
@option("--compare/--no-compare", "is_compared", default=True, help="Compare predictions with the library of SOURCE.")
@option("--labels", metavar="A,B,...", help="Names of the labels, in their order in SOURCE.")
@option(
    "--leaves",
    type=click.Choice(["auto", "counts", "scores"]),
    default="auto",
    help="Values of leaves; auto: counts if SOURCE has them.",
)
@option("--trust", is_flag=True, help="Load SOURCE even if it can run code (joblib, pickle).")
@model_data_options
def import_(
    source: str,
    output: str,
    kind: str | None,
    data: str | None,
    is_compared: bool,
    labels: str | None,
    leaves: str,
    trust: bool,
    **data_options: Any,
) -> None:
    """Convert SOURCE, a model of another library, to OUTPUT in silva's format.

    \b
    joblib, skops   a fitted tree, forest or boosting classifier of scikit-learn
    xgboost         JSON or UBJ
    lightgbm        text
    catboost        JSON
    onnx            a TreeEnsembleClassifier

    If the library is installed, its predictions are compared with those of the new model on the data of --check, on
    random rows and on rows on both sides of every threshold; if they differ, nothing is written. docs/import.md
    describes how the models of each library are converted.

    \b
    Example:
      metasilvae import model.json model.silva --check test.csv
      metasilvae import forest.joblib forest.silva --trust --labels benign,malignant
    """
    check_files([source, data], [output])
    names = None if labels is None else tuple(labels.split(","))
    imported = import_file(source, kind, ImportOptions(names, leaves, trust))
    dataset = None
    if data is not None:
        dataset = load_data_for(imported.model, data, data_options, needs_labels=False)
        check_width(imported.model, dataset)
    comparison = None
    if is_compared:
        with RowBar(100, phase="comparing predictions", unit="%") as bar:
            comparison = compare_with_library(imported, None if dataset is None else dataset.X, on_fraction=bar.reach)
    if is_compared and comparison is None:
        warnings.warn(
            f"{source}: not compared with its library, {_why_not_compared(imported)}", MetasilvaeWarning, stacklevel=2
        )
    write_model(imported.model, output)
    print_summary(describe_import(imported, comparison, output), err=output == STANDARD_STREAM)


def _why_not_compared(imported: Imported) -> str:
    if imported.is_too_deep:
        return f"which could crash on trees of more than {MOST_LEVELS} levels; try predict on rows of your own"
    return f"which is not installed; pip install 'metasilvae[{imported.extra}]'"


@click.command(cls=Command)
@click.argument("model")
@option("--to", "target", type=click.Choice([*EXPORTERS, *PREDICTOR_EXPORTERS]), required=True, help="Format to write.")
@option("--data", metavar="FILE", help="Data whose column names become feature names.")
@voting_option
@output_option
@model_data_options
def export(model: str, target: str, data: str | None, voting: str | None, output: str, **data_options: Any) -> None:
    """Convert MODEL to another format.

    \b
    dot           a drawing for Graphviz
    json          everything, as flat lists of nodes: a split has feature (from 0), threshold, left
                  and right (positions in the list), a leaf has values and prediction
    text          an indented tree to read
    c, python     source code with exactly the predictions of MODEL
    onnx          for runtimes of ONNX, float inputs; equal for all float32 rows, up to rounded sums
    onnx-double   the same with double inputs; equal for all rows, up to rounded sums
    joblib,skops  a fitted classifier of scikit-learn; equal for all float32 rows

    Formats that predict (from c on) use --voting for forests.

    \b
    Example:
      metasilvae export model.silva --to dot | dot -Tsvg > model.svg
      metasilvae export model.silva --to text --data train.csv
      metasilvae export forest.silva --to c --voting average --output forest.c
    """
    if voting is not None and target in EXPORTERS:
        raise RequestError(f"--voting has no effect on {target}, which has all trees; leave it out")
    check_files([model, data], [output])
    loaded = read_model(model)
    feature_names = load_feature_names(loaded, data, data_options)
    if target in EXPORTERS:
        write_output(output, EXPORTERS[target](loaded, feature_names))
    else:
        write_output(output, PREDICTOR_EXPORTERS[target](loaded, feature_names, choose_voting(loaded, voting)))
