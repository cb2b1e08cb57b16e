"""``metasilvae import`` and ``metasilvae export``: models of other libraries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from metasilvae.cli.commands import Command, option
from metasilvae.cli.inputs import load_data_for, load_feature_names
from metasilvae.cli.parameters import check_files, model_data_options, output_option, plain_option, voting_option
from metasilvae.errors import RequestError
from metasilvae.formats.silva_models import as_plain, write_model
from metasilvae.interop.exports import EXPORTERS, PREDICTOR_EXPORTERS
from metasilvae.interop.imports import READERS, ImportOptions, check_import, import_file
from metasilvae.interop.imports.comparison import MAX_ROWS
from metasilvae.interop.models import load_model
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.text.models import describe_import
from metasilvae.output.text.terminal import RowBar, print_summary
from metasilvae.voting import choose_voting

SILVA = "silva"


@click.command("import", cls=Command)
@click.argument("source")
@click.argument("output")
@option("--from", "kind", type=click.Choice(list(READERS)), help="Format of SOURCE.  [default: detected]")
@option("--check", "data", metavar="DATA", help="Compare the predictions on this data too.")
@option("--compare/--no-compare", "is_compared", default=True, help="Compare predictions with the library of SOURCE.")
@option(
    "--max-rows",
    type=click.IntRange(min=8),
    default=MAX_ROWS,
    help="Most rows beside thresholds to compare; of large models a random part of the thresholds is compared.",
)
@option("--labels", metavar="A,B,...", help="Names of the labels, in their order in SOURCE.")
@option("--feature-names", metavar="A,B,...", help="Names of the features, in their order in SOURCE.")
@option("--base-score", metavar="X[,X...]", help="base_score of XGBoost, for dumps, which do not hold it.")
@option(
    "--leaves",
    type=click.Choice(["auto", "counts", "scores"]),
    default="auto",
    help="Values of leaves; auto: counts if SOURCE has them.",
)
@option("--trust", is_flag=True, help="Load SOURCE even if it can run code (joblib, pickle).")
@plain_option
@model_data_options
def import_(
    source: str,
    output: str,
    kind: str | None,
    data: str | None,
    is_compared: bool,
    max_rows: int,
    labels: str | None,
    feature_names: str | None,
    base_score: str | None,
    leaves: str,
    trust: bool,
    plain: bool,
    **data_options: Any,
) -> None:
    """Convert SOURCE, a model of another library, to OUTPUT in silva's format.

    \b
    joblib, skops   a fitted tree, forest or boosting classifier of scikit-learn
    xgboost         JSON or UBJ
    xgboost-dump    text or JSON of dump_model; needs --base-score and --labels, and --features N if
                    not all features are tested
    lightgbm        text
    catboost        JSON
    onnx            a TreeEnsembleClassifier

    If the library is installed, its predictions are compared with those of the new model on the data of --check, on
    random rows and on rows on both sides of every threshold; if they differ, nothing is written. docs/import.md
    describes how the models of each library are converted. Other commands take SOURCE itself, too, if it needs no
    options.

    \b
    Example:
      metasilvae import model.json model.silva --check test.csv
      metasilvae import forest.joblib forest.silva --trust --labels benign,malignant
      metasilvae import dump.txt model.silva --base-score 0.5 --labels benign,malignant
    """
    check_files([source, data], [output])
    imported = import_file(
        source,
        kind,
        ImportOptions(
            None if labels is None else tuple(labels.split(",")),
            leaves,
            trust,
            None if feature_names is None else tuple(feature_names.split(",")),
            data_options["n_features"],
            None if base_score is None else _parse_numbers(base_score),
        ),
        check=False,
    )
    dataset = None
    if data is not None:
        dataset = load_data_for(imported.model, data, data_options, needs_labels=False)
    if is_compared:
        with RowBar(100, phase="comparing predictions", unit="%") as bar:
            imported = check_import(imported, dataset, max_rows, bar.reach)
    write_model(imported.model, output, plain=plain)
    print_summary(describe_import(imported, output, plain), err=output == STANDARD_STREAM)


def _parse_numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a number, or several with commas between them", param_hint="--base-score"
        ) from None


@click.command(cls=Command)
@click.argument("model")
@option("--to", "target", type=click.Choice([*EXPORTERS, *PREDICTOR_EXPORTERS]), required=True, help="Format to write.")
@option("--data", metavar="FILE", help="Data whose column names become feature names, if MODEL has none.")
@voting_option
@output_option
@plain_option
@model_data_options
def export(
    model: str, target: str, data: str | None, voting: str | None, output: str, plain: bool, **data_options: Any
) -> None:
    """Convert MODEL to another format.

    \b
    dot           a drawing for Graphviz
    json          everything, as flat lists of nodes: a split has feature (from 0), threshold, left
                  and right (positions in the list), a leaf has values and prediction
    text          an indented tree to read
    silva         MODEL itself; --data and --voting add names and voting, --plain leaves both out
    c, python     source code with exactly the predictions of MODEL
    onnx          for runtimes of ONNX, float inputs; equal for all float32 rows, up to rounded sums
    onnx-double   the same with double inputs; equal for all rows, up to rounded sums
    joblib,skops  a fitted classifier of scikit-learn; equal for all float32 rows

    Formats that predict (from c on) use --voting for forests. Names are those of MODEL, or of --data.

    \b
    Example:
      metasilvae export model.silva --to dot | dot -Tsvg > model.svg
      metasilvae export model.silva --to text --data train.csv
      metasilvae export forest.silva --to c --voting average --output forest.c
    """
    if plain and target != SILVA:
        raise RequestError(f"--plain is for --to {SILVA}; leave it out")
    if plain and (voting is not None or data is not None):
        raise RequestError("--plain leaves names and voting out; leave out --plain, or --data and --voting")
    if voting is not None and target in EXPORTERS and target != SILVA:
        raise RequestError(f"--voting has no effect on {target}, which has all trees; leave it out")
    check_files([model, data], [output])
    loaded = load_model(model)
    feature_names = load_feature_names(loaded, data, data_options)
    if plain:
        loaded, feature_names = as_plain(loaded), None
    elif voting is not None and target == SILVA:
        description = replace(loaded.description, voting=choose_voting(loaded, voting))
        loaded = replace(loaded, description=description)
    if target in EXPORTERS:
        write_output(output, EXPORTERS[target](loaded, feature_names))
    else:
        write_output(output, PREDICTOR_EXPORTERS[target](loaded, feature_names, choose_voting(loaded, voting)))
