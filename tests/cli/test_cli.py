"""What all commands have in common."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.command import run

from metasilvae.cli import COMMANDS, main
from metasilvae.errors import MetasilvaeWarning

ROOT = Path(__file__).parents[2]


def commands() -> Iterator[tuple[str, ...]]:
    """Names of all commands, those inside groups with the name of the group in front."""

    def walk(group: click.Group, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        context = click.Context(group)
        for name in group.list_commands(context):
            try:
                command = group.get_command(context, name)
            except ModuleNotFoundError:
                continue
            yield (*names, name)
            if isinstance(command, click.Group):
                yield from walk(command, (*names, name))

    return walk(main, ())


NAMES = list(commands())
# A group only lists its commands.
LEAVES = [names for names in NAMES if not any(other[:-1] == names for other in NAMES)]


def test_every_command_can_be_imported() -> None:
    assert {names[0] for names in NAMES} == set(COMMANDS)


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("names", [(), *NAMES], ids=" ".join)
def test_help(names: tuple[str, ...], option: str) -> None:
    assert run(*names, option).stdout.startswith(f"Usage: {' '.join(('metasilvae', *names))} ")


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_help_closes_with_an_example(names: tuple[str, ...]) -> None:
    text = run(*names, "-h").stdout
    description = text.split("\nOptions:\n")[0]
    paragraphs = description.rstrip().split("\n\n")
    assert re.match(r"\s+Examples?:\n", paragraphs[-1]), paragraphs[-1]
    for line in paragraphs[-1].splitlines()[1:]:
        assert f"metasilvae {' '.join(names)}" in line or line.startswith("      ")


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_defaults_are_shown(names: tuple[str, ...]) -> None:
    text = re.sub(r"\s+", " ", run(*names, "-h").stdout)
    command = main
    for name in names:
        command = command.get_command(click.Context(command), name)
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_flag and isinstance(parameter.default, str | int):
            assert re.search(rf"\[default: ([^]]*; )?{re.escape(str(parameter.default))}[];]", text), parameter.name


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_every_command_is_in_the_readme(names: tuple[str, ...]) -> None:
    assert f"`{' '.join(names)}" in (ROOT / "README.md").read_text()


def test_the_overview_has_a_line_for_each_command() -> None:
    text = run("-h").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w", text, re.MULTILINE)


def test_version() -> None:
    from metasilvae import __version__

    assert run("--version").stdout == f"metasilvae {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["--nonsense"], "--nonsense"),
        (["verify"], "Missing argument 'MODEL'"),
        (["verify", "m"], "Missing argument 'DATA'"),
        (["verify", "m", "d", "e"], "unexpected extra argument (e)"),
        (["verify", "m", "d", "--fuzz"], "--fuzz"),
        (["verify", "m", "d", "--format", "xml"], "'xml' is not one of 'text'"),
        (["verify", "m", "d", "--jobs", "0"], "0 is not in the range x>=1"),
        (["verify", "m", "d", "--jobs"], "requires an argument"),
        (["predict", "-", "-"], "standard input (-) can be used for one of the files only"),
        (["evaluate", "-", "a", "-"], "standard input (-) can be used for one of the files only"),
        (["evaluate", "d"], "Missing argument"),
        (["evaluate", "m", "d", "--epsilon", "-1"], "epsilon is -1; it must be finite and not negative"),
        (["evaluate", "m", "d", "--epsilon", "1e999"], "is not a number"),
        (["predict", "m", "d", "--input-format", "xls"], "'xls' is not one of"),
        (["predict", "m", "d", "--features", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    assert message in re.sub(r"\s+", " ", run(*arguments, code=2).stderr)


def test_a_warning_is_told_once(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from metasilvae.cli import evaluate

    def warn_twice(*arguments: object, **options: object) -> None:
        for _ in range(2):
            warnings.warn("something odd", MetasilvaeWarning, stacklevel=2)
        raise SystemExit

    monkeypatch.setattr(evaluate, "load_model_and_data", warn_twice)
    assert run("predict", tree, rows).stderr == "warning: something odd\n"


def test_a_fault_of_ours_is_one_line(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from metasilvae.cli import evaluate

    def stumble(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(evaluate, "load_model_and_data", stumble)
    assert run("predict", tree, rows, code=1, may_be_faulty=True).stderr == (
        "error: internal fault: ZeroDivisionError: by zero; this is a bug in metasilvae, please report it "
        "(METASILVAE_TRACEBACK=1 shows where)\n"
    )


def test_out_of_memory_is_one_line(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from metasilvae.cli import evaluate

    def want_too_much(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(evaluate, "load_model_and_data", want_too_much)
    assert run("predict", tree, rows, code=1).stderr.startswith("error: not enough memory (allocation failed)")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["trian"], "No such command 'trian'; did you mean train? See metasilvae -h"),
        (["xyz"], "No such command 'xyz'. See metasilvae -h"),
        (["predict"], "Missing argument 'MODEL'. See metasilvae predict -h"),
    ],
)
def test_usage_errors_take_one_line(arguments: list[str], line: str) -> None:
    assert run(*arguments, code=2).stderr == f"error: {line}\n"
