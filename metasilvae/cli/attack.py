"""``metasilvae attack``: write and check attack files."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli import CommandGroup
from metasilvae.cli.parameters import check_outputs, data_options, output_option, refuse_two_pipes
from metasilvae.formats.datasets import read_dataset
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.text.datasets import describe_attack
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack, read_attack
from metasilvae.perturbations.attack_templates import DEFAULT_NOISE, TEMPLATES, join_rows, write_template


class ColumnList(click.ParamType):
    """Columns, separated by commas."""

    name = "columns"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "COL,COL,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        columns = tuple(part.strip() for part in value.split(","))
        if not all(columns):
            self.fail(f"{value!r}: expected names or numbers of columns, separated by commas.", param, ctx)
        return columns


@click.group(cls=CommandGroup)
def attack() -> None:
    """Write and check attack files, which say column by column what may be perturbed.

    \b
    Example:
      metasilvae attack template train.csv -o attack.toml
    """


@attack.command()
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--preset", type=click.Choice(list(TEMPLATES)), default="plain", help="What the file allows at first.")
@click.option("--protected", type=ColumnList(), default=(), help="Columns that may take any of their values.")
@click.option(
    "--one-hot", "groups", type=ColumnList(), multiple=True, help="Columns of a one-hot group; repeatable."
)  # fmt: skip
@click.option("--noise", default=DEFAULT_NOISE, metavar="R", help="Radius of numbers, or per cent of their range.")
@output_option
@data_options
def template(
    data: tuple[str, ...],
    preset: str,
    protected: tuple[str, ...],
    groups: tuple[tuple[str, ...], ...],
    noise: str,
    output: str,
    **data_options: Any,
) -> None:
    """Write an attack file for the columns of DATA, with comments, to be edited.

    Ranges and values are those of all files together: name every one whose rows the attack is for.

    Presets: plain moves every number a little; fairness-cat lets protected columns take any value that they take in
    DATA and nothing else change; fairness-noise moves numbers but not protected columns; fairness-noise-cat does both.

    \b
    Examples:
      metasilvae attack template train.csv -o attack.toml
      metasilvae attack template train.csv test.csv --preset fairness-cat --protected sex,age -o fair.toml
    """
    refuse_two_pipes(*data)
    check_outputs([output], data)
    dataset = join_rows([read_dataset(source, **data_options) for source in data])
    text = "".join(write_template(dataset, preset, protected, groups, noise))
    # What does not fit is said before it is written.
    fit_attack(parse_attack(text.encode(), "the template"), dataset).boxes(dataset)
    write_output(output, [text])


@attack.command()
@click.argument("file")
@click.argument("data")
@data_options
def check(file: str, data: str, **data_options: Any) -> None:
    """Say in words what the attack FILE allows for each column of DATA, and whether its rows obey the rules.

    \b
    Example:
      metasilvae attack check attack.toml train.csv
    """
    refuse_two_pipes(file, data)
    rules = read_attack(file)
    dataset = read_dataset(data, **data_options)
    fitted = fit_attack(rules, dataset)
    fitted.boxes(dataset)
    write_output(STANDARD_STREAM, describe_attack(fitted, dataset))
