"""`train --checkpoint` and `--resume`: the files, the log, the messages; and processes that are killed."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from support.command import run
from support.processes import finish, start
from support.training_commands import DATA, SHORT, TREE, archive, die_after, model, records, train, wait_for_change

from metasilvae.cli.interrupts import Interrupts
from metasilvae.training.checkpoint.runs import Checkpoint

FOREST = ["--epsilon", "0.1", "--trees", "5", "--preset", "fast"]
STUDY = ["--epsilon", "0.1", "--seeds", "1..3", *SHORT, "--validation", "0.2"]
KINDS = {"tree": TREE, "forest": FOREST, "study": STUDY}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    note, counter = Checkpoint.note, itertools.count(1)

    def note_and_signal(self: Checkpoint, *arguments: Any) -> None:
        note(self, *arguments)
        if next(counter) == n_steps:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Checkpoint, "note", note_and_signal)


# Resuming


@pytest.mark.parametrize("kind", KINDS)
def test_model_and_log_are_those_of_one_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train(*KINDS[kind], "--log", "log.jsonl")
    expected, steps = model(), records()
    keeping = ["--checkpoint", "run.ck", "--resume", "auto", "--every", "3", "--log", "log.jsonl"]
    for n_writes in (1, 1, 2, 9):
        Path("model.silva").unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            die_after(patch, n_writes)
            found = run("train", DATA, "model.silva", *KINDS[kind], *keeping, code=None)
        assert Path("run.ck").exists()
        assert (found.exit_code == 0) == Path("model.silva").exists()
    train(*KINDS[kind], *keeping)
    assert model() == expected
    assert records() == steps
    assert json.loads(Path("model.silva.manifest.json").read_text())["starts"] == 5


def test_a_finished_run_gives_its_model_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in KINDS.values():
        out = train(*words, "--checkpoint", "run.ck").stdout
        expected = model()
        with monkeypatch.context() as patch:
            patch.setattr("metasilvae.training.runs.make_trainer", None)
            again = train(*words, "--resume", "run.ck")
        assert model() == expected
        assert again.stdout == out
        Path("run.ck").unlink()


def test_threads_and_names_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    train(*TREE)
    expected = model()
    run("data", "convert", DATA, "rows.csv")
    with monkeypatch.context() as patch:
        die_after(patch, 4)
        train(*TREE, "--checkpoint", "run.ck", "--every", "2", "--jobs", "1", code=130)
    words = ["rows.csv", "other.silva", *TREE, "--resume", "run.ck", "--jobs", "2", "--test", "builtin:iris/test"]
    run("train", *words, "--checkpoint", "next.ck", "--every", "1", "--no-manifest")
    assert Path("other.silva").read_bytes() == expected
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith("other")) == ["other.silva"]
    assert Path("next.ck").exists()


def test_a_shard_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*STUDY, "--shard", "2/2"]
    train(*words)
    expected = model()
    with monkeypatch.context() as patch:
        die_after(patch, 12)
        train(*words, "--checkpoint", "run.ck", "--every", "1", code=130)
    train(*words, "--resume", "run.ck")
    assert model() == expected
    found = train(*STUDY, "--shard", "1/2", "--resume", "run.ck", code=1)
    assert found.stderr.startswith("error: run.ck: was written with --seeds 2,3, this run has 1; ")


@pytest.mark.parametrize("words", [TREE, ["--epsilon", "0.1", "--validation", "0.2", *SHORT[:-1]]], ids=len)
def test_an_archive_of_trees_is_resumed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run("train", DATA, "expected.silva", *words, "--pareto", "trees")
    expected = archive()
    shutil.rmtree("trees")
    keeping = [*words, "--pareto", "trees", "--checkpoint", "run.ck", "--resume", "auto"]
    for n_writes in (2, 3, 1):
        with monkeypatch.context() as patch:
            die_after(patch, n_writes)
            train(*keeping, "--every", "3", code=130)
        assert archive() == {}
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        train(*keeping, code=143)
    assert archive() != {}
    Path("trees/tree-999.silva").write_text("left over from a larger archive")
    Path("trees/.metasilvae-abc").write_text("left over from a write that was killed")
    for _ in range(2):
        train(*keeping)
        assert archive() == expected
        assert model() == Path("expected.silva").read_bytes()
    found = train(*words, "--resume", "run.ck", code=1)
    assert "was written with --pareto yes, this run has no" in found.stderr
    Path("trees/other").touch()
    assert "trees: is not empty (other)" in train(*keeping, code=1).stderr


def test_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    train(*TREE)
    expected = model()
    limited = [*TREE, "--time-limit", "1e-6"]
    out = train(*limited, "--checkpoint", "run.ck").stdout
    assert "stopped: reached the time limit" in out
    early = model()
    train(*limited, "--resume", "run.ck")
    assert model() == early
    train(*TREE, "--resume", "run.ck")
    assert model() == expected


def test_a_signal_keeps_where_the_run_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in KINDS.values():
        train(*words, "--log", "log.jsonl")
        expected, steps = model(), records()
        keeping = ["--checkpoint", "run.ck", "--resume", "auto", "--log", "log.jsonl"]
        with monkeypatch.context() as patch:
            interrupt_after(patch, 4)
            found = train(*words, *keeping, code=143)
        assert found.stderr.splitlines()[-1].endswith("written to model.silva; --resume run.ck continues")
        train(*words, *keeping)
        assert model() == expected
        assert records() == steps
        Path("run.ck").unlink()


# Messages


def test_files_that_are_there_already_are_not_replaced() -> None:
    Path("run.ck").write_text("precious")
    found = train(*TREE, "--checkpoint", "run.ck", code=1)
    message = "error: run.ck: exists already; resume it with --resume auto, or give the checkpoint another name\n"
    assert found.stderr == message
    found = train(*TREE, "--checkpoint", "run.ck", "--resume", "auto", code=1)
    assert found.stderr.startswith("error: run.ck: is not a checkpoint of metasilvae; ")
    assert Path("run.ck").read_text() == "precious"
    assert not Path("model.silva").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--every", "3"], 2, "--every is for checkpoints; name a file for them with --checkpoint"),
        (["--resume", "auto"], 2, "--resume auto uses the file of --checkpoint; name one"),
        (["--checkpoint", "-"], 2, "a checkpoint is written repeatedly; give the name of a file, not -"),
        (["--resume", "-"], 2, "a checkpoint is written repeatedly"),
        (["--checkpoint", ""], 2, "the name of the checkpoint is empty; give the name of a file"),
        (["--resume", ""], 2, "the name of the checkpoint is empty; give the name of a file"),
        (["--checkpoint", "."], 1, "error: .: is a folder; give a file name inside it"),
        (["--checkpoint", ".", "--resume", "auto"], 1, "error: .: is a folder; give a file name inside it"),
        (["--checkpoint", os.devnull], 1, "is a device or a pipe; give the checkpoint the name of a file"),
        (["--resume", "absent.ck"], 1, "absent.ck: no such file"),
        (["--checkpoint", "gone/run.ck"], 1, "gone/run.ck: the folder "),
        (["--checkpoint", "model.silva"], 2, "two results would be written to model.silva"),
        (["--checkpoint", "model.silva.manifest.json"], 2, "two results would be written to model.silva.manifest.json"),
        (
            ["--checkpoint", "trees/run.ck", "--pareto", "trees"],
            2,
            "trees is for the trees of --pareto; write ",
        ),
        (["--checkpoint", "run.ck", "--every", "0"], 2, "'--every'"),
    ],
)
def test_requests_that_make_no_sense(words: list[str], code: int, message: str) -> None:
    found = train("--epsilon", "0.1", *words, code=code)
    assert message in found.stderr
    assert list(Path().iterdir()) == []


def test_other_options_are_named() -> None:
    train(*TREE, "--checkpoint", "run.ck")
    before = Path("run.ck").read_bytes()
    for words, message in (
        (["--epsilon", "0.2", "--seed", "4", *SHORT], "with perturbation l_inf 0.1, this is l_inf 0.2; "),
        ([*TREE, "--elitism", "2"], "with --elitism 4, this run has 2; "),
        (["--epsilon", "0.1", *SHORT], "with --seed 4, this run has 0; "),
        ([*TREE, "--trees", "3"], "with --trees none, this run has 3; "),
    ):
        found = train(*words, "--resume", "run.ck", code=1)
        assert found.stderr.startswith(f"error: run.ck: was written {message}")
        assert len(found.stderr.splitlines()) == 1
    found = run("train", "builtin:wine/train", "model.silva", *TREE, "--resume", "run.ck", code=1)
    assert "was written with data with 120 rows, builtin:wine/train has " in found.stderr
    assert Path("run.ck").read_bytes() == before


def test_a_checkpoint_that_cannot_be_written_does_not_cost_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("keep").mkdir()
    interrupts = Interrupts.__enter__

    def lose_folder(self: Interrupts) -> Interrupts:
        shutil.rmtree("keep")
        return interrupts(self)

    monkeypatch.setattr(Interrupts, "__enter__", lose_folder)
    found = train(*TREE, "--checkpoint", "keep/run.ck", "--every", "1")
    assert "training continues without a new checkpoint" in found.stderr
    assert found.stderr.count("warning") == 1
    assert Path("model.silva").exists()


# Manifests


def test_the_manifest_tells_how_a_model_was_made() -> None:
    train(*STUDY, "--test", "builtin:iris/test")
    text = Path("model.silva.manifest.json").read_text()
    found = json.loads(text)
    assert text == json.dumps(found, indent=1, sort_keys=True) + "\n"
    assert found["format"] == "metasilvae manifest 1"
    assert found["command"] == shlex.join(
        ["metasilvae", "train", DATA, "model.silva", *STUDY, "--test", "builtin:iris/test"]
    )
    assert found["seeds"] == [1, 2, 3]
    assert [each["seed"] for each in found["runs"]] == [1, 2, 3]
    assert found["options"]["max-iteration"] == 8
    assert found["options"]["validation"] == 0.2
    assert found["perturbation"]["description"] == "l_inf 0.1"
    assert (found["data"]["rows"], found["data"]["features"], found["data"]["classes"]) == (120, 4, 3)
    assert found["test_data"]["rows"] == 30
    assert set(found["versions"]) == {"metasilvae", "numpy", "python"}
    (best,) = found["model"]["seeds"]
    run_of_best = next(each for each in found["runs"] if each["seed"] == best)
    assert run_of_best["leaves"] == found["model"]["leaves"]
    assert 0.8 < run_of_best["test"]["accuracy"] <= 1
    assert run_of_best["held_out"]["rows"] == 24


def test_the_model_does_not_depend_on_the_manifest() -> None:
    train(*TREE)
    with_manifest, manifest = model(), json.loads(Path("model.silva.manifest.json").read_text())
    shutil.copy("model.silva.manifest.json", "kept.json")
    train(*TREE, "--no-manifest")
    assert model() == with_manifest
    assert Path("model.silva.manifest.json").read_bytes() == Path("kept.json").read_bytes()
    train(*TREE)
    again = json.loads(Path("model.silva.manifest.json").read_text())
    times = {"started", "ended", "seconds", "runs"}
    assert {k: v for k, v in again.items() if k not in times} == {k: v for k, v in manifest.items() if k not in times}


def test_no_manifest_where_there_is_no_file() -> None:
    found = run("train", DATA, "-", *TREE)
    assert found.stdout.startswith("classifier-decision-tree")
    run("train", DATA, os.devnull, *TREE)
    run("train", DATA, "other.silva", *TREE, "--no-manifest")
    assert [path.name for path in Path().iterdir()] == ["other.silva"]


def test_a_manifest_that_cannot_be_written_is_known_before_training() -> None:
    Path("model.silva.manifest.json").mkdir()
    found = train(*TREE, code=1)
    assert found.stderr == "error: model.silva.manifest.json: is a folder; give a file name inside it\n"
    assert not Path("model.silva").exists()


# Processes that are killed


@pytest.mark.parametrize(
    ("kind", "jobs"),
    [
        ("tree", "1"),
        ("tree", "2"),
        ("forest", "2"),
        ("study", "1"),
    ],
)
def test_killed_again_and_again(kind: str, jobs: str, tmp_path: Path) -> None:
    many = {
        "tree": ["--max-iteration", "60", "--patience", "0"],
        "forest": ["--trees", "40"],
        "study": ["--seeds", "1..9"],
    }
    options = [*KINDS[kind], *many[kind], "--jobs", jobs]
    run("train", DATA, "expected.silva", *options, "--no-manifest")
    keeping = ["--checkpoint", "run.ck", "--resume", "auto", "--every", "1", "--log", "log.jsonl"]
    path = tmp_path / "run.ck"
    n_killed = 0
    for pause in (0.0, 0.01, 0.03):
        before = path.read_bytes() if path.exists() else b""
        process = start("train", DATA, "model.silva", *options, *keeping, cwd=tmp_path)
        wait_for_change(path, before, process)
        time.sleep(pause)
        process.kill()
        code, _, err = finish(process)
        assert err == ""
        n_killed += code == -signal.SIGKILL
        if n_killed == 1:
            assert not (tmp_path / "model.silva").exists()
    assert n_killed > 0
    code, _, err = finish(start("train", DATA, "model.silva", *options, *keeping, cwd=tmp_path))
    assert (code, err) == (0, "")
    assert model() == Path("expected.silva").read_bytes()
    steps = [(each["seed"], each["phase"], each["step"]) for each in records()]
    assert len(set(steps)) == len(steps)
    assert list(tmp_path.glob(".metasilvae-*")) == []
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "model.silva").stat().st_mode)


def test_the_kind_of_the_model_is_the_first_difference(tmp_path: Path) -> None:
    words = ["train", "builtin:iris/train", tmp_path / "m.silva", "--epsilon", 0.1, "--preset", "fast"]
    checkpoint = tmp_path / "run.ck"
    run(*words, "--checkpoint", checkpoint)
    for option, value in (("--boost", 5), ("--trees", 3)):
        found = run(*words, option, value, "--resume", checkpoint, code=1)
        assert f"was written with {option} none, this run has {value}" in found.stderr
