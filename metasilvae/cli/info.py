"""``metasilvae info``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import load_feature_names
from metasilvae.cli.parameters import data_options, output_option, refuse_two_pipes
from metasilvae.formats.silva_models import read_model
from metasilvae.model_summary import summarize
from metasilvae.report.summaries import SUMMARY_FORMATS
from metasilvae.storage import check_output, write_output


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
    trees = [summarize(loaded.tree(position)) for position in range(loaded.n_trees)] if per_tree else []
    write_output(output, SUMMARY_FORMATS[summary_format](summarize(loaded), trees, feature_names))
