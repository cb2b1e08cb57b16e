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
from metasilvae.output.text.terminal import Verbosity, get_verbosity

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
    assert {names[0] for names in NAMES} == {name for section in COMMANDS.values() for name in section}


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("names", [(), *NAMES], ids=" ".join)
def test_help(names: tuple[str, ...], option: str) -> None:
    assert run(*names, option).stdout.startswith(f"Usage: {' '.join(('metasilvae', *names))} ")


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_help_closes_with_an_example(names: tuple[str, ...]) -> None:
    text = run(*names, "-h").stdout
    description = re.split(r"\n\w[^\n]*:\n", text)[0]
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
        if (
            isinstance(parameter, click.Option)
            and parameter.show_default is not False
            and not parameter.is_flag
            and isinstance(parameter.default, str | int)
        ):
            assert re.search(rf"\[default: ([^]]*; )?{re.escape(str(parameter.default))}[];]", text), parameter.name


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_every_command_is_in_the_readme(names: tuple[str, ...]) -> None:
    assert f"`{' '.join(names)}" in (ROOT / "README.md").read_text()


def test_the_overview_has_a_line_for_each_command() -> None:
    text = run("-h").stdout
    for title, section in COMMANDS.items():
        assert f"\n{title}:\n" in text
        for name in section:
            assert re.search(rf"^  {name} +\w", text, re.MULTILINE)


@pytest.mark.parametrize("names", LEAVES, ids=" ".join)
def test_help_has_no_noise(names: tuple[str, ...]) -> None:
    text = run(*names, "-h").stdout
    assert " RANGE" not in text
    assert not re.search(r"\[\d*<?=?x[<>]=?", text)
    assert not re.search("INTEGER|FLOAT", text)


def test_help_of_train_fits_two_screens() -> None:
    context = click.Context(main, info_name="metasilvae", terminal_width=100, **main.context_settings)
    train = main.get_command(context, "train")
    assert train is not None
    text = click.Context(train, parent=context, info_name="train").get_help()
    assert text.count("\n") <= 120
    assert max(map(len, text.splitlines())) <= 100
    titles = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert titles == [
        "Threat model (what to withstand)", "Objective (what to train for)", "Model size and regularization",
        "Ensembles", "Search and stopping", "Output and reproducibility", "Cluster", "Data format", "General",
        "Options of the C programs",
    ]  # fmt: skip


@pytest.mark.parametrize("place", [0, 1], ids=["before the command", "after it"])
class TestVerbosity:
    def run(self, place: int, level: str, *words: str, **settings: object) -> tuple[str, str]:
        arguments = [level, *words] if place == 0 else [words[0], level, *words[1:]]
        found = run(*arguments, **settings)  # type: ignore[arg-type]
        return found.stdout, found.stderr

    def test_quiet(self, place: int, tree: str, rows: str, tmp_path: Path) -> None:
        words = ["verify", tree, rows, "--epsilon", "0.1", "--output", str(tmp_path / "report.json")]
        assert "ROBUST" in run(*words).stdout
        assert self.run(place, "-q", *words) == ("", "")
        assert self.run(place, "--quiet", *words) == ("", "")

    def test_results_are_printed_in_any_case(self, place: int, tree: str, rows: str) -> None:
        out, err = self.run(place, "-q", "predict", tree, rows)
        assert (out, err) == (run("predict", tree, rows).stdout, "")

    def test_errors_are_printed_in_any_case(self, place: int, rows: str) -> None:
        assert self.run(place, "-q", "predict", "gone.silva", rows, code=1)[1].startswith("error: gone.silva")

    def test_warnings_are_silenced(self, place: int, tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from metasilvae.cli import evaluate

        def warn(*arguments: object, **options: object) -> None:
            warnings.warn("something odd", MetasilvaeWarning, stacklevel=2)
            raise SystemExit

        monkeypatch.setattr(evaluate, "load_model_and_data", warn)
        assert self.run(place, "-q", "predict", tree, rows) == ("", "")

    def test_verbose(self, place: int, tree: str, rows: str) -> None:
        err = self.run(place, "-v", "predict", tree, rows)[1]
        assert re.search(r"^options: .*model=", err)
        assert re.search(r"metasilvae predict: \d+\.\d+ s\n$", err)
        assert "Traceback" in self.run(place, "-v", "predict", "gone.silva", rows, code=1, may_be_faulty=True)[1]
        run("predict", tree, rows)
        assert get_verbosity() is Verbosity.NORMAL

    def test_both(self, place: int, tree: str, rows: str) -> None:
        words = ["-q", "predict", "-v", tree, rows] if place else ["-v", "-q", "predict", tree, rows]
        assert "--quiet and --verbose exclude each other" in run(*words, code=2).stderr


def test_version() -> None:
    from metasilvae import __version__

    for option in ("-V", "--version"):
        assert run(option).stdout == f"metasilvae {__version__}\n"


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
        "error: internal error: ZeroDivisionError: by zero; this is a bug in metasilvae, please report it "
        "(--verbose shows where)\n"
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
