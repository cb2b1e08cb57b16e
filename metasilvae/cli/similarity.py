"""``metasilvae similarity``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import load_data_for
from metasilvae.cli.parameters import data_options, jobs_option, output_option, refuse_two_pipes, voting_option
from metasilvae.formats.silva_models import read_model
from metasilvae.report.similarities import SIMILARITY_FORMATS
from metasilvae.similarity import count_equal_answers
from metasilvae.storage import check_output, write_output


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
    equal = count_equal_answers(loaded, dataset, voting=voting, jobs=jobs)
    write_output(output, SIMILARITY_FORMATS[similarity_format](loaded, dataset, equal))
