"""What goes wrong around a training, in a process of its own: the model is not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import run

from metasilvae.errors import OutputError
from metasilvae.formats.silva_models import read_model
from metasilvae.training import runs

QUICK = ["builtin:iris/train", "tree.silva", "--epsilon", "0.1", "--preset", "fast", "--no-manifest"]
ENDLESS = ["builtin:iris/train", "tree.silva", "--epsilon", "0.1", "--no-tune", "--max-iteration", "10000000"]
needs_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")


def train(folder: Path, *words: str, **streams: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "metasilvae", "train", *words], cwd=folder, **streams)  # type: ignore[call-overload,no-any-return]


@needs_full_device
def test_a_warning_that_cannot_be_told_does_not_end_the_training(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = train(tmp_path, *QUICK, "--log", "/dev/full", stdout=subprocess.DEVNULL, stderr=full)
        assert process.wait() == 0
    read_model(str(tmp_path / "tree.silva"))


def test_a_log_that_nobody_reads_any_more_does_not_end_the_training(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = train(tmp_path, *QUICK, "--log", "-", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, err = process.communicate()
    assert process.returncode == 0
    assert b"cannot be written: Broken pipe; the training continues without it" in err
    read_model(str(tmp_path / "tree.silva"))


@pytest.fixture
def _not_ignored() -> Iterator[None]:
    """A process that ignores the signal, as under nohup, would hand that on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal on this system")
@pytest.mark.usefixtures("_not_ignored")
def test_a_terminal_that_goes_leaves_the_best_tree(tmp_path: Path) -> None:
    process = train(tmp_path, *ENDLESS, "--log", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGHUP
    assert b"the best tree so far was written to tree.silva" in err
    read_model(str(tmp_path / "tree.silva"))


def test_a_model_that_cannot_be_written_any_more_is_saved_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "rescue"))
    (tmp_path / "rescue").mkdir()
    output = str(tmp_path / "tree.silva")
    usual = runs.write_model

    def write_model(model: object, path: str, *, plain: bool) -> None:
        if path == output:
            raise OutputError(f"{path}: cannot be written: the disk is gone")
        usual(model, path, plain=plain)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "write_model", write_model)
    result = run("train", QUICK[0], output, *QUICK[2:], code=1)
    (rescued,) = (tmp_path / "rescue").glob("*/tree.silva")
    assert result.stderr == (
        f"error: {output}: cannot be written: the disk is gone; the model was saved as {rescued}\n"
    )
    read_model(str(rescued))
    assert not Path(output).exists()


def test_nowhere_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_model(model: object, path: str, *, plain: bool) -> None:
        raise OutputError(f"{path}: cannot be written: no disk at all")

    monkeypatch.setattr(runs, "write_model", write_model)
    output = tmp_path / "tree.silva"
    result = run("train", QUICK[0], output, *QUICK[2:], code=1)
    assert result.stderr == f"error: {output}: cannot be written: no disk at all\n"


def test_a_manifest_of_the_model_before_is_pointed_out(tmp_path: Path) -> None:
    output = tmp_path / "tree.silva"
    run("train", QUICK[0], output, *QUICK[2:-1])
    result = run("train", QUICK[0], output, *QUICK[2:], "--seed", "1")
    assert "tree.silva.manifest.json: describes the model that was here before" in result.stderr
