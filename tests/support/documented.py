"""Finds the commands in the documents: in blocks, in the examples of the help, and between backticks in the text."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from metasilvae.cli import main

ROOT = Path(__file__).parents[2]
REFERENCE = "docs/commands.md"
DOCUMENTS = [
    *sorted(path.name for path in ROOT.glob("*.md")),
    "datasets/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
PROGRAMS = r"(?:metasilvae|python3?|make|pip|sh|bash|dask|srun|sbatch|salloc|\.venv/bin/\w+|scripts/[\w/]+\.(?:py|sh))"
# A line of any text that would be a command in a shell.
LOOKS_LIKE_A_COMMAND = re.compile(rf"^ *(?:\$ )?{PROGRAMS} ", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command line, and where it stands: a document, or a command whose help ends with it."""

    source: str
    text: str


def read_document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def find_blocks(text: str, kind: str) -> list[str]:
    """Contents of the blocks that are marked by a word."""
    return [content for found, content in BLOCK.findall(text) if found == kind]


def find_indented(text: str) -> list[str]:
    """Blocks that are set off by four blanks."""
    return INDENTED.findall(BLOCK.sub("", text))


def find_spans(text: str) -> list[str]:
    """What stands between backticks in the text, on one line each."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", INDENTED.sub("", BLOCK.sub("", text)))]


def split_commands(shell: str) -> list[str]:
    """The command lines of some shell, without comments."""
    lines = (re.sub(r"(^|\s+)#( .*)?$", "", line).strip() for line in shell.replace("\\\n", " ").splitlines())
    return [" ".join(line.split()) for line in lines if line]


def list_shown() -> list[Command]:
    """Commands in blocks that no session runs; a block that starts with the comment ``# NAME.sh`` is a file of one."""
    found = []
    for document in DOCUMENTS:
        text = read_document(document)
        blocks = [block for block in find_blocks(text, "sh") if not re.match(r"# \w+\.sh", block)]
        blocks += [block for block in find_indented(text) if LOOKS_LIKE_A_COMMAND.search(block)]
        blocks += [step for block in find_blocks(text, "yaml") for step in re.findall(r"- run: (.*)", block)]
        found += [Command(document, line) for block in blocks for line in split_commands(block)]
    return found


def list_examples() -> list[Command]:
    """Commands that close the help of a command."""
    found = []
    for section in re.split(r"^## (?=metasilvae)", read_document(REFERENCE), flags=re.MULTILINE)[1:]:
        name = section.partition("\n")[0]
        for examples in re.findall(r"^  Examples?:\n((?: {4}.*\n)+)", section, re.MULTILINE):
            found += [Command(name, line) for line in split_commands(examples)]
    return found


def list_quoted() -> list[Command]:
    """What stands in the text and starts with the name of a program."""
    return [
        Command(document, span)
        for document in DOCUMENTS
        for span in dict.fromkeys(find_spans(read_document(document)))
        if re.match(rf"{PROGRAMS} ", span)
    ]


def list_whole() -> list[Command]:
    """Those of them that can be run: neither the mere name of a command nor an outline."""
    return [command for command in list_quoted() if not is_outline(command.text)]


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of metasilvae that words begin with, and the other words."""
    command: click.Command = main
    for position, word in enumerate(words):
        further = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if further is None:
            return command, words[position:]
        command = further
    return command, []


def is_placeholder(word: str) -> bool:
    """Whether a word stands for others: ``MODEL``, ``[DATA]``, ``TREE...``, ``I/N``."""
    return re.fullmatch(r"\[?[A-Z][A-Z/]*(\.\.\.)?\]?|\.\.\.", word) is not None


def is_outline(text: str) -> bool:
    """Whether something is left out of a command, or a word stands for another one."""
    program, *words = shlex.split(text)
    if any(map(is_placeholder, words)):
        return True
    if program != "metasilvae":
        return False
    command, rest = find_command(words)
    if not rest or {"-h", "--version"} & set(rest):
        return not rest
    try:
        # As below the program itself: click keeps what it makes of a context, the names of the help option too.
        command.make_context(program, rest, click.Context(main, **main.context_settings))
    except click.MissingParameter:
        return True
    except click.UsageError:
        return False
    return False
