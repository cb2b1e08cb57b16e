"""``metasilvae export``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import load_feature_names
from metasilvae.cli.parameters import data_options, output_option, refuse_two_pipes
from metasilvae.export import EXPORTERS
from metasilvae.formats.silva_models import read_model
from metasilvae.storage import check_output, write_output


@click.command()
@click.argument("model")
@click.option("--to", "target", type=click.Choice(list(EXPORTERS)), required=True, help="Form to write.")
@click.option("--data", metavar="FILE", help="Data whose column names become the names of the features.")
@output_option
@data_options
def export(model: str, target: str, data: str | None, output: str, **data_options: Any) -> None:
    """Write MODEL in another form.

    \b
    dot    a drawing for Graphviz
    json   everything, as flat lists of nodes: a split has feature (from 0), threshold, left
           and right (positions in the list), a leaf has values and answer
    text   an indented tree to read

    \b
    Example:
      metasilvae export model.silva --to dot | dot -Tsvg > model.svg
      metasilvae export model.silva --to text --data train.csv
    """
    refuse_two_pipes(model, data)
    check_output(output)
    loaded = read_model(model)
    feature_names = load_feature_names(loaded, data, data_options)
    write_output(output, EXPORTERS[target](loaded, feature_names))
