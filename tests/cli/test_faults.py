"""A disk that is full, a folder that is read-only, an end by a signal: one clear line, and nothing half-written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command import run

OLD = "what was there before\n"
# Commands that write a file, and the file.
WRITING = {
    "train": ("train ROWS out.silva --max-iteration 1 --epsilon 0.1", "out.silva"),
    "verify": ("verify TREE ROWS --epsilon 0.1 -o out.txt", "out.txt"),
    "verify --counterexamples": ("verify TREE ROWS --epsilon 0.1 --counterexamples out.txt", "out.txt"),
    "predict": ("predict TREE ROWS -o out.txt", "out.txt"),
    "packed": ("predict TREE ROWS -o out.txt.gz", "out.txt.gz"),
    "evaluate": ("evaluate TREE ROWS -o out.txt", "out.txt"),
    "explain": ("explain TREE ROWS --epsilon 0.1 -o out.txt", "out.txt"),
    "info": ("info TREE -o out.txt", "out.txt"),
    "diff": ("diff TREE TREE -o out.txt", "out.txt"),
    "simplify": ("simplify TREE -o out.silva", "out.silva"),
    "assemble": ("assemble --force out.silva TREE TREE", "out.silva"),
    "export": ("export TREE --to json -o out.json", "out.json"),
    "data convert": ("data convert ROWS out.svm", "out.svm"),
    "data convert --save-scale": ("data convert ROWS - --to csv --scale minmax --save-scale out.json", "out.json"),
    "data split": ("data split ROWS --train-output out.csv --test-output rest.csv", "out.csv"),
    "attack template": ("attack template ROWS -o out.toml", "out.toml"),
}


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """What a full disk does to a file, without a disk: Python ignores the signal, and writing fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def folder(tree: str, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(line: str, tree: str, rows: str) -> list[str]:
    return [{"TREE": tree, "ROWS": rows}.get(word, word) for word in line.split()]


@pytest.mark.parametrize("name", WRITING)
def test_a_full_disk(name: str, tree: str, rows: str, folder: Path) -> None:
    line, output = WRITING[name]
    (folder / output).write_text(OLD)
    before = sorted(os.listdir(folder))
    with no_file_may_grow():
        result = run(*words_of(line, tree, rows), code=1)
    assert result.stderr.splitlines()[-1] == f"error: {output}: cannot be written: File too large"
    assert (folder / output).read_text() == OLD
    assert sorted(os.listdir(folder)) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_log_that_does_not_fit_does_not_end_the_training(rows: str, folder: Path) -> None:
    line = f"train {rows} out.silva --max-iteration 2 --epsilon 0.1 --log"
    result = run(*line.split(), "/dev/full")
    lost = "warning: /dev/full: cannot be written: No space left on device; the training continues without it"
    assert result.stderr.splitlines() == [lost]
    tree = (folder / "out.silva").read_bytes()
    assert run(*line.split(), "log.jsonl").stderr == ""
    assert (folder / "out.silva").read_bytes() == tree


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB; only administrators can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
    if made.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_full_in_the_middle(tree: str, folder: Path, small_disk: Path) -> None:
    many = folder / "many.csv"
    many.write_text("a,0.1,0.1\n" * 100_000)
    output = small_disk / "answers.txt"
    output.write_text(OLD)
    result = run("predict", tree, many, "-o", output, code=1)
    assert result.stderr == f"error: {output}: cannot be written: No space left on device\n"
    assert os.listdir(small_disk) == ["answers.txt"]
    assert output.read_text() == OLD


@pytest.mark.skipif(os.geteuid() == 0, reason="an administrator may write everywhere")
def test_a_read_only_folder(tree: str, rows: str, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    result = run("predict", tree, rows, "-o", closed / "answers.txt", code=1)
    assert result.stderr == f"error: {closed}/answers.txt: cannot be written: Permission denied\n"


def test_a_read_only_disk(tree: str, rows: str, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    result = run("predict", tree, rows, "-o", small_disk / "answers.txt", code=1)
    assert result.stderr == f"error: {small_disk}/answers.txt: cannot be written: Read-only file system\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_end_while_writing(number: signal.Signals, folder: Path) -> None:
    program = f"""
        import os
        from metasilvae.cli import main
        from metasilvae.output.text import evaluations
        def hesitate(*arguments):
            yield "half of a result"
            os.kill(os.getpid(), {int(number)})
            yield "the other half"
        evaluations.PREDICTION_FORMATS["text"] = hesitate
        main(["predict", "tree.silva", "rows.csv", "-o", "answers.txt"])
    """
    before = sorted(os.listdir(folder))
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup, for one, leaves a signal ignored
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (128 + number, "terminated\n")
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    "line",
    ["info gone.silva", "predict TREE gone.csv", "verify TREE ROWS --perturbation from-file gone.txt",
     "verify TREE ROWS --attack gone.toml", "verify TREE ROWS --epsilon 0.1 --feature-weights gone.txt",
     "train gone.csv out.silva --epsilon 0.1", "train ROWS out.silva --epsilon 0.1 --test gone.csv",
     "data check gone.csv"],
)  # fmt: skip
def test_a_vanished_input(line: str, tree: str, rows: str, folder: Path) -> None:
    before = sorted(os.listdir(folder))
    result = run(*words_of(line, tree, rows), code=1)
    assert len(result.stderr.splitlines()) <= 1
    assert "no such file" in result.stderr + result.stdout
    assert sorted(os.listdir(folder)) == before
