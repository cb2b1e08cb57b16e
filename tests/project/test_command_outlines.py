"""Commands in running text that leave something out: every command, option and value that they name exists."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from support.documented import (
    DOCUMENTS,
    Command,
    find_command,
    find_spans,
    is_outline,
    is_placeholder,
    list_quoted,
    read_document,
)
from support.script_parsers import SCRIPTS, options_of_script

from metasilvae.cli import main

# Options of other programs.
FOREIGN = {"--requeue", "--partition", "--array", "--mem"}


def options_of(command: click.Command) -> dict[str, click.Parameter]:
    context = click.Context(command, parent=click.Context(main, **main.context_settings))
    params = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    return {name: param for param in params for name in [*param.opts, *param.secondary_opts]}


def list_fragments() -> list[Command]:
    """Outlines of commands in running text, with the name of the program or without."""
    found = [command for command in list_quoted() if is_outline(command.text)]
    for document in DOCUMENTS:
        for span in dict.fromkeys(find_spans(read_document(document))):
            if re.match(r"[a-z]+( [a-z]+)? (-|\[?[A-Z][A-Z/]*\b)", span) and find_command(span.split()[:1])[1] == []:
                found.append(Command(document, f"metasilvae {span}"))
    return found


FRAGMENTS = list_fragments()


@pytest.mark.parametrize("text", list(dict.fromkeys(command.text for command in FRAGMENTS)))
def test_an_outline_names_what_exists(text: str) -> None:
    program, *words = shlex.split(text.partition(" | ")[0])
    if program != "metasilvae":
        assert {word for word in words if word.startswith("--")} <= options_of_script(program)
        return
    command, rest = find_command(words)
    options = options_of(command)
    rest = [word.strip("[]") for word in rest]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            assert is_placeholder(word), word
            continue
        assert word in options, word
        if rest and not getattr(options[word], "is_flag", False) and not is_placeholder(rest[0]):
            value = rest.pop(0)
            is_repeatable = getattr(options[word], "multiple", False)
            options[word].type_cast_value(click.Context(command), (value,) if is_repeatable else value)


def test_outlines_are_found() -> None:
    assert len(FRAGMENTS) >= 100


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_in_the_text_exist(document: str) -> None:
    known = set(FOREIGN)
    commands = [main]
    for command in commands:
        known |= set(options_of(command))
        if isinstance(command, click.Group):
            context = click.Context(command)
            commands += filter(None, (command.get_command(context, name) for name in command.list_commands(context)))
    for script in SCRIPTS:
        known |= options_of_script(script)
    for span in find_spans(read_document(document)):
        for option in re.findall(r"(?:^|(?<=\s))--[a-z][a-z0-9-]*", span):
            assert option in known, span
