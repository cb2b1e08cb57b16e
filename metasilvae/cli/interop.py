"""``metasilvae import``.

``metasilvae export``.
"""

from __future__ import annotations

import warnings
from typing import Any

import click

from metasilvae.cli.inputs import load_data_for, load_feature_names
from metasilvae.cli.parameters import check_outputs, data_options, output_option, refuse_two_pipes, voting_option
from metasilvae.errors import MetasilvaeWarning, RequestError
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.interop.exports import EXPORTERS, PREDICTOR_EXPORTERS
from metasilvae.interop.imports import READERS, Imported, ImportOptions, compare_with_library, import_file
from metasilvae.interop.imports.imported import MOST_LEVELS
from metasilvae.io.storage import STANDARD_STREAM, check_output, write_output
from metasilvae.output.text.models import describe_import
from metasilvae.output.text.terminal import RowBar
from metasilvae.prediction import check_width
from metasilvae.voting import choose_voting


@click.command("import")
@click.argument("source")
@click.argument("output")
@click.option("--from", "kind", type=click.Choice(list(READERS)), help="What SOURCE is.  [default: detected]")
@click.option("--check", "data", metavar="DATA", help="Data to compare the answers on, too.")
@click.option("--compare/--no-compare", "is_compared", default=True, help="Compare with the library of SOURCE.")
@click.option("--labels", metavar="A,B,...", help="Names of the labels, in the order of SOURCE.")
@click.option(
    "--leaves",
    type=click.Choice(["auto", "counts", "scores"]),
    default="auto",
    help="What leaves hold; auto: counts where SOURCE has them.",
)
@click.option("--trust", is_flag=True, help="Load SOURCE even if that can run code hidden in it (joblib, pickle).")
@data_options
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
    """Turn a model of another library, SOURCE, into OUTPUT in silva's format.

    \b
    joblib, skops   a fitted tree, forest or boosting classifier of scikit-learn
    xgboost         JSON or UBJ
    lightgbm        text
    catboost        JSON
    onnx            a TreeEnsembleClassifier

    The library, where it is installed, and the new model are asked about DATA, random rows and rows on both sides of
    every threshold; if they disagree, nothing is written. docs/import.md says how each library is translated.

    \b
    Example:
      metasilvae import model.json model.silva --check test.csv
      metasilvae import forest.joblib forest.silva --trust --labels benign,malignant
    """
    refuse_two_pipes(source, data)
    check_outputs([output], [path for path in (source, data) if path is not None])
    names = None if labels is None else tuple(labels.split(","))
    imported = import_file(source, kind, ImportOptions(names, leaves, trust))
    dataset = None
    if data is not None:
        dataset = load_data_for(imported.model, data, data_options, needs_labels=False)
        check_width(imported.model, dataset)
    comparison = None
    if is_compared:
        with RowBar(100, what="compare", unit="%") as bar:
            comparison = compare_with_library(imported, None if dataset is None else dataset.X, on_fraction=bar.reach)
    if is_compared and comparison is None:
        warnings.warn(
            f"{source}: not compared with its library, {_tell_why(imported)}", MetasilvaeWarning, stacklevel=2
        )
    write_model(imported.model, output)
    click.echo(describe_import(imported, comparison, output), nl=False, err=output == STANDARD_STREAM)


def _tell_why(imported: Imported) -> str:
    """Why nothing was compared."""
    if imported.is_too_deep:
        return f"which could crash on trees of more than {MOST_LEVELS} levels; try predict on rows of your own"
    return f"which is not installed; pip install 'metasilvae[{imported.extra}]'"


@click.command()
@click.argument("model")
@click.option(
    "--to", "target", type=click.Choice([*EXPORTERS, *PREDICTOR_EXPORTERS]), required=True, help="Form to write."
)
@click.option("--data", metavar="FILE", help="Data whose column names become the names of the features.")
@voting_option
@output_option
@data_options
def export(model: str, target: str, data: str | None, voting: str | None, output: str, **data_options: Any) -> None:
    """Write MODEL in another form.

    \b
    dot           a drawing for Graphviz
    json          everything, as flat lists of nodes: a split has feature (from 0), threshold, left
                  and right (positions in the list), a leaf has values and answer
    text          an indented tree to read
    c, python     source code that answers as MODEL does, exactly
    onnx          for runtimes of ONNX, float inputs; equal for all float32 rows, up to rounded sums
    onnx-double   the same with double inputs; equal for all rows, up to rounded sums
    joblib,skops  a fitted classifier of scikit-learn; equal for all float32 rows

    --voting is needed for forests in the forms that answer, if it is not the usual one.

    \b
    Example:
      metasilvae export model.silva --to dot | dot -Tsvg > model.svg
      metasilvae export model.silva --to text --data train.csv
      metasilvae export forest.silva --to c --voting average --output forest.c
    """
    refuse_two_pipes(model, data)
    if voting is not None and target in EXPORTERS:
        raise RequestError(f"--voting has no effect on {target}, which shows all trees; leave it out")
    check_output(output)
    loaded = read_model(model)
    feature_names = load_feature_names(loaded, data, data_options)
    if target in EXPORTERS:
        write_output(output, EXPORTERS[target](loaded, feature_names))
    else:
        write_output(output, PREDICTOR_EXPORTERS[target](loaded, feature_names, choose_voting(loaded, voting)))
