"""``metasilvae predict``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import load_model_and_data
from metasilvae.cli.parameters import (
    check_outputs,
    data_options,
    jobs_option,
    output_option,
    refuse_two_pipes,
    voting_option,
)
from metasilvae.evaluation import classify
from metasilvae.report.answers import ANSWER_FORMATS
from metasilvae.storage import write_output


@click.command()
@click.argument("model")
@click.argument("data")
@voting_option
@click.option(
    "--format",
    "answer_format",
    type=click.Choice(list(ANSWER_FORMATS)),
    default="text",
    help="text: one answer a line; csv and jsonl: with row number and, where there is one, true label.",
)
@output_option
@jobs_option
@data_options
def predict(
    model: str,
    data: str,
    voting: str | None,
    answer_format: str,
    output: str,
    jobs: int | None,
    **data_options: Any,
) -> None:
    """Classify each row of DATA with MODEL.

    An answer is a set of labels: where counts or votes tie, all tied labels are given, joined by commas.

    \b
    Example:
      metasilvae predict model.silva test.csv --format csv --output answers.csv
      metasilvae predict model.silva values.csv --label-column none
    """
    refuse_two_pipes(model, data)
    check_outputs([output], [model, data])
    loaded, dataset = load_model_and_data(model, data, data_options, needs_labels=False)
    answers = classify(loaded, dataset, voting=voting, jobs=jobs)
    write_output(output, ANSWER_FORMATS[answer_format](loaded, dataset, answers))
