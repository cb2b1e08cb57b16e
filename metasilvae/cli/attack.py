"""``metasilvae attack``: write and check attack files."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.commands import CommandGroup, option
from metasilvae.cli.parameters import ColumnList, check_files, data_options, output_option, refuse_two_pipes
from metasilvae.formats.datasets import read_dataset
from metasilvae.io.storage import STANDARD_STREAM, write_output
from metasilvae.output.text.datasets import describe_attack
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack, read_attack
from metasilvae.perturbations.attack_templates import DEFAULT_NOISE, TEMPLATES, join_rows, write_template


@click.group(cls=CommandGroup)
def attack() -> None:
    """Write and check attack files, which define the allowed changes per column (the threat model).

    \b
    Example:
      metasilvae attack template train.csv -o attack.toml
    """


@attack.command(short_help="Write an attack file to edit.")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@option(
    "--preset",
    type=click.Choice(list(TEMPLATES)),
    default="plain",
    metavar="NAME",
    help="What the file allows: plain, fairness-cat, fairness-noise or fairness-noise-cat.",
)
@option("--protected", type=ColumnList(), default=(), help="Protected columns, which may take any of their values.")
@option("--one-hot", "groups", type=ColumnList(), multiple=True, help="Columns of a one-hot group; repeatable.")
@option("--noise", default=DEFAULT_NOISE, metavar="R", help="Radius of numbers, or % of range or value.")
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
    """Write a commented attack file for the columns of DATA, to be edited.

    Ranges and values are those of all files together: name every file that the attack is to be used on.

    Presets: plain moves every numeric value a little; fairness-cat lets only protected columns change, to any value
    that they have in DATA; fairness-noise moves all numeric columns but the protected ones; fairness-noise-cat
    combines both.

    \b
    Examples:
      metasilvae attack template train.csv -o attack.toml
      metasilvae attack template train.csv test.csv --preset fairness-cat --protected sex,age -o fair.toml
    """
    check_files(data, [output])
    first = read_dataset(data[0], **data_options)
    others = [read_dataset(source, encoding=first.encoding, maker=data[0], **data_options) for source in data[1:]]
    dataset = join_rows([first, *others])
    text = "".join(write_template(dataset, preset, protected, groups, noise))
    # Refuse what does not fit before it is written.
    fit_attack(parse_attack(text.encode(), "the template"), dataset).boxes(dataset)
    write_output(output, [text])


@attack.command(short_help="Check an attack file and describe what it allows.")
@click.argument("file")
@click.argument("data")
@data_options
def check(file: str, data: str, **data_options: Any) -> None:
    """Describe the changes that the attack FILE allows per column of DATA, and check that its rows satisfy the rules.

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
