"""What only real processes show: pipes, signals, exit codes, what is imported."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import HARD_FOREST, ROWS, TREE
from support.processes import COMMAND, finish, start

PREDICTIONS = "a\na,bb\nbb,c\na,bb,c\nbb,c\na\na\n"


@pytest.fixture
def folder(tree: str, rows: str, tmp_path: Path) -> Path:
    return tmp_path


def test_python_m_metasilvae(folder: Path) -> None:
    code, out, err = finish(start("--version", cwd=folder))
    assert (code, err) == (0, "")
    assert out.startswith("metasilvae ")
    code, out, err = finish(start("-h", cwd=folder))
    assert (code, err) == (0, "")
    assert out.startswith("Usage: metasilvae [OPTIONS]")


def test_the_installed_script(folder: Path) -> None:
    script = Path(sys.executable).with_name("metasilvae")
    if not script.exists():
        pytest.skip("metasilvae is not installed beside this Python")
    found = subprocess.run([script, "predict", "tree.silva", "rows.csv"], cwd=folder, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, PREDICTIONS)


def test_help_imports_nothing_heavy(folder: Path) -> None:
    program = """
        import sys
        from metasilvae.cli import main
        try:
            main(["--help"], prog_name="metasilvae")
        except SystemExit as end:
            assert end.code == 0, end.code
        heavy = {"numpy", "tqdm", "sklearn", "matplotlib"} & set(sys.modules)
        ours = {name for name in sys.modules if name.startswith(("metasilvae.cli.", "metasilvae._core."))}
        ours -= {"metasilvae.cli.commands", "metasilvae.cli.interrupts"}
        sys.exit(f"imported {sorted(heavy | ours)}" if heavy | ours else 0)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=folder, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")


def test_data_from_a_pipe(folder: Path) -> None:
    assert finish(start("predict", "tree.silva", "-", cwd=folder, stdin=subprocess.PIPE), ROWS) == (0, PREDICTIONS, "")


def test_a_model_from_a_pipe(folder: Path) -> None:
    assert finish(start("predict", "-", "rows.csv", cwd=folder, stdin=subprocess.PIPE), TREE) == (0, PREDICTIONS, "")


def test_a_file_as_standard_input(folder: Path) -> None:
    with (folder / "rows.csv").open() as stdin:
        assert finish(start("predict", "tree.silva", "-", cwd=folder, stdin=stdin)) == (0, PREDICTIONS, "")


def test_inputs_that_can_be_read_only_once(folder: Path) -> None:
    for name in ("model.fifo", "data.fifo"):
        os.mkfifo(folder / name)
    process = start("verify", "model.fifo", "data.fifo", "--epsilon", "0.1", "--format", "jsonl", cwd=folder)
    (folder / "model.fifo").write_text(TREE)
    (folder / "data.fifo").write_text(ROWS)
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert out.count("BROKEN") == 4


def test_one_command_into_another(folder: Path) -> None:
    """The report of verify, read by a script that knows silva's columns."""
    verify = start("verify", "tree.silva", "rows.csv", "--epsilon", "0.1", cwd=folder)
    awk = subprocess.run(
        ["awk", 'NR > 1 && $1 != "[SUMMARY]" {print $4, $5, $6}'], stdin=verify.stdout, capture_output=True, text=True
    )
    assert finish(verify)[0] == 0
    assert awk.stdout.splitlines()[:2] == ["a a ROBUST", "bb a,bb BROKEN"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["verify", "tree.silva", "rows.csv"], 0),
        (["verify", "tree.silva", "absent.csv"], 1),
        (["verify", "rows.csv", "tree.silva"], 1),
        (["verify", "tree.silva", "rows.csv", "--fuzz"], 2),
        (["verify", "tree.silva", "rows.csv", "--epsilon", "x"], 2),
        (["verify", "tree.silva", "rows.csv", "--require", "accuracy>=0.1"], 0),
        (["verify", "tree.silva", "rows.csv", "--require", "accuracy>=0.9"], 3),
        ([], 2),
        (["-h"], 0),
    ],
)
def test_exit_codes(folder: Path, arguments: list[str], code: int) -> None:
    found, _, err = finish(start(*arguments, cwd=folder))
    assert found == code
    assert "Traceback" not in err
    if code == 1:
        assert len(err.splitlines()) == 1
        assert err.startswith("error: ")


def test_undecided_requirements_end_with_4(folder: Path) -> None:
    (folder / "hard.silva").write_text(HARD_FOREST)
    words = ["hard.silva", "rows.csv", "--epsilon", "9", "--sample-steps", "1", "--require", "stability>=1"]
    code, out, err = finish(start("verify", *words, cwd=folder))
    assert code == 4
    assert err.splitlines()[-1] == "required stability>=1: undecided (stability is between 0 and 1)"
    assert "NO-INFO" in out


def test_a_reader_who_has_seen_enough(folder: Path) -> None:
    (folder / "many.csv").write_text("a,0.1,0.1\n" * 50_000)
    process = start("verify", "tree.silva", "many.csv", cwd=folder)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("Classifier")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=120) == 128 + signal.SIGPIPE
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["-h"], ["verify", "-h"], ["data", "-h"], ["predict", "tree.silva", "rows.csv"]])
def test_a_pipe_without_a_reader(folder: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code, _, err = finish(start(*arguments, cwd=folder, stdout=writing))
    finally:
        os.close(writing)
    assert (code, err) == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["-h"],
        ["verify", "-h"],
        ["verify", "tree.silva", "rows.csv"],
        ["predict", "tree.silva", "rows.csv"],
        ["evaluate", "tree.silva", "rows.csv", "--format", "json"],
    ],
    ids=" ".join,
)
def test_standard_output_is_full(folder: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = finish(start(*arguments, cwd=folder, stdout=full))
    assert (code, err) == (1, "error: standard output: cannot be written: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_an_output_device_is_full(folder: Path) -> None:
    code, out, err = finish(start("predict", "tree.silva", "rows.csv", "-o", "/dev/full", cwd=folder))
    assert (code, out, err) == (1, "", "error: /dev/full: cannot be written: No space left on device\n")


def test_closed_streams(folder: Path) -> None:
    def run(redirection: str, *arguments: str) -> tuple[int, str]:
        line = ["sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND, *arguments]
        found = subprocess.run(line, cwd=folder, capture_output=True, text=True)
        return found.returncode, found.stderr

    assert run(">&-", "predict", "tree.silva", "rows.csv") == (
        1,
        "error: standard output is closed; name a file to write to\n",
    )
    assert run("<&-", "predict", "tree.silva", "-") == (
        1,
        "error: <stdin>: standard input is closed; give a path or pipe a file in\n",
    )
    assert run(">&-", "predict", "tree.silva", "rows.csv", "-o", "answers.txt") == (0, "")
    assert (folder / "answers.txt").read_text() == PREDICTIONS


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A shell makes background jobs ignore interrupts, and they pass that on; a handler is not passed on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_interrupt(folder: Path) -> None:
    """While data is awaited: one line, exit code 130, the old result untouched and no part of a new one."""
    (folder / "answers.txt").write_text("old")
    before = sorted(os.listdir(folder))
    process = start("predict", "tree.silva", "-", "-o", "answers.txt", cwd=folder, stdin=subprocess.PIPE)
    assert process.stdin is not None
    # More than any buffer holds, so that the command is certainly reading when this returns.
    process.stdin.write("a,0.1,0.1\n" * 200_000)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    # A signal that comes just before a read is noticed when the read ends.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("a,0.1,0.1\n" * 200_000)
        process.stdin.flush()
    process.wait(timeout=120)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None
    assert finish(process) == (130, "", "interrupted\n")
    assert (folder / "answers.txt").read_text() == "old"
    assert sorted(os.listdir(folder)) == before


@pytest.mark.usefixtures("_interruptible")
def test_interrupt_while_writing(folder: Path) -> None:
    program = """
        import os, signal
        from metasilvae.cli import main
        from metasilvae.output.text import evaluations
        def hesitate(*arguments):
            yield "half of a result"
            os.kill(os.getpid(), signal.SIGINT)
            yield "the other half"
        evaluations.PREDICTION_FORMATS["text"] = hesitate
        main(["predict", "tree.silva", "rows.csv", "-o", "answers.txt"])
    """
    before = sorted(os.listdir(folder))
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=folder, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (130, "interrupted\n")
    assert sorted(os.listdir(folder)) == before


def test_the_traceback_on_request(folder: Path) -> None:
    arguments = ["predict", "tree.silva", "absent.csv"]
    code, _, err = finish(start(*arguments, cwd=folder, environment={"METASILVAE_TRACEBACK": "1"}))
    assert code == 1
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-1] == "error: absent.csv: no such file; check the path"


def test_shell_completion(folder: Path) -> None:
    code, script, _ = finish(start(cwd=folder, environment={"_METASILVAE_COMPLETE": "bash_source"}))
    assert code == 0
    assert "complete -o nosort -F _metasilvae_completion metasilvae" in script
    words = {"_METASILVAE_COMPLETE": "bash_complete", "COMP_WORDS": "metasilvae ver", "COMP_CWORD": "1"}
    assert finish(start(cwd=folder, environment=words))[1] == "plain,verify\n"


def test_odd_characters_on_a_narrow_terminal(folder: Path) -> None:
    (folder / "tree.silva").write_text(TREE.replace("bb", "bü"))
    (folder / "rows.csv").write_text(ROWS.replace("bb", "bü"))
    environment = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    code, _, err = finish(
        start("verify", "tree.silva", "rows.csv", "--require", "accuracy<=1", cwd=folder, environment=environment)
    )
    assert (code, err) == (0, "required accuracy<=1: holds (accuracy is 0.285714)\n")
