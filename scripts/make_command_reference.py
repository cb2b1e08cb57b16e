"""Write docs/commands.md: the help of every command, in the order in which `metasilvae -h` lists them.

    python scripts/make_command_reference.py [--output FILE]

Lines have the width of a terminal of 80 columns, wherever the script runs. A test compares the file
with the help: run this after a change of an option.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import click

from metasilvae.cli import main as program

NAME = "metasilvae"
WIDTH = 80
OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
PREFACE = """\
# Commands

What `metasilvae COMMAND -h` prints, for every command. `scripts/make_command_reference.py` writes this page, and a test
keeps it up to date. The [README](../README.md) says what the commands are for, the [tutorial](tutorial.md) shows them
at work.
"""


def walk(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """A context for the command, then for each command below it."""
    # click knows the width of the terminal, if there is one; a context that says its own passes it on to those below.
    ctx = click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings)
    yield ctx
    if isinstance(command, click.Group):
        for below in command.list_commands(ctx):
            found = command.get_command(ctx, below)
            assert found is not None, below
            yield from walk(found, below, ctx)


def make_reference() -> str:
    """The text of docs/commands.md."""
    contexts = list(walk(program, NAME))
    paths = [ctx.command_path for ctx in contexts]
    contents = [f"- [`{path}`](#{path.replace(' ', '-')})" for path in paths]
    sections = [f"## {ctx.command_path}\n\n```text\n{ctx.get_help()}\n```" for ctx in contexts]
    return "\n".join([PREFACE, *contents]) + "\n\n" + "\n\n".join(sections) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    arguments.output.write_text(make_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
