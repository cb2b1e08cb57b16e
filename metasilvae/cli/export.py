"""``metasilvae export``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import load_feature_names
from metasilvae.cli.parameters import data_options, output_option, refuse_two_pipes, voting_option
from metasilvae.errors import RequestError
from metasilvae.export import EXPORTERS, PREDICTOR_EXPORTERS
from metasilvae.formats.silva_models import read_model
from metasilvae.storage import check_output, write_output
from metasilvae.voting import choose_voting


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
