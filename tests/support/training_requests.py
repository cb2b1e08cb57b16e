"""What options of `train` mean for the library."""

from __future__ import annotations

import click

from metasilvae.cli.commands import Command
from metasilvae.cli.training_parameters import read_request, training_options


def request(*arguments: str):
    """What a command line asks for."""
    found = []

    @click.command(cls=Command)
    @training_options
    def parse(**options) -> None:
        found.append(read_request("rows.csv", {}, **options))

    parse.main(list(arguments), standalone_mode=False)
    return found[0]
