"""``metasilvae import``."""

from __future__ import annotations

import warnings
from typing import Any

import click

from metasilvae.cli.inputs import load_data_for
from metasilvae.cli.parameters import check_outputs, data_options, refuse_two_pipes
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.silva_models import write_model
from metasilvae.imports import READERS, Imported, ImportOptions, compare, import_file
from metasilvae.imports.imported import MOST_LEVELS
from metasilvae.matching import check_width
from metasilvae.report.imports import describe_import
from metasilvae.report.row_bars import RowBar
from metasilvae.storage import STANDARD_STREAM


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
            comparison = compare(imported, None if dataset is None else dataset.X, on_share=bar.reach)
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
