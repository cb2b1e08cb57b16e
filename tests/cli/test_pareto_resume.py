"""`train --pareto` where a run is resumed, or where the disk is full: no archive is lost, and none is left in parts."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.command import run
from support.training_commands import DATA, SHORT, TREE, archive, die_after, train

from metasilvae.errors import OutputError
from metasilvae.io import storage
from metasilvae.training import pareto

KEEPING = [*TREE, "--pareto", "trees", "--checkpoint", "run.ck", "--resume", "auto"]
OTHER = ["--epsilon", "0.1", "--seed", "5", *SHORT]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fail_at(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, number: int, error: BaseException) -> None:
    """Let the given call of a function fail."""
    usual, counter = getattr(module, name), itertools.count(1)

    def fail(*arguments: Any, **choices: Any) -> Any:
        if next(counter) == number:
            raise error
        return usual(*arguments, **choices)

    monkeypatch.setattr(module, name, fail)


def fail_in_writing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    fail_at(monkeypatch, pareto, "write_model", number, OutputError("the disk is full"))


def fail_in_moving(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The process ends when a tree is to move to its place."""
    usual, counter = os.replace, itertools.count(1)

    def move(source: Any, target: Any) -> None:
        if Path(target).parent == Path("trees") and next(counter) == number:
            raise KeyboardInterrupt
        usual(source, target)

    monkeypatch.setattr(storage.os, "replace", move)


@pytest.mark.parametrize("what", ["whole", "without index", "damaged index", "other version"])
def test_an_archive_of_another_run_is_not_touched(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("train", DATA, "other.silva", *OTHER, "--pareto", "trees")
    index = Path("trees/index.json")
    if what == "without index":
        index.unlink()
    elif what == "damaged index":
        index.write_text("{")
    elif what == "other version":
        index.write_text(json.dumps({**json.loads(index.read_text()), "format": "metasilvae archive 0"}))
    before = archive()
    found = min(before)
    with monkeypatch.context() as patch:
        die_after(patch, 3)
        train(*TREE, "--pareto", "mine", "--checkpoint", "run.ck", "--every", "1", code=130)
    result = train(*KEEPING, code=1)
    message = f"trees: is not empty ({found}); an archive needs a new or an empty folder, or the one of this run"
    assert result.stderr == f"error: {message}\n"
    assert archive() == before


def test_trees_that_came_while_the_run_was_training_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    run("train", DATA, "other.silva", *OTHER, "--pareto", "other")
    write = pareto.write_archive

    def write_too_late(folder: str, *arguments: Any, **choices: Any) -> int:
        shutil.copytree("other", folder, dirs_exist_ok=True)
        return write(folder, *arguments, **choices)

    monkeypatch.setattr("metasilvae.training.runs.write_archive", write_too_late)
    assert "trees: is not empty (index.json)" in train(*TREE, "--pareto", "trees", code=1).stderr
    assert Path("model.silva").exists()
    assert archive() == {path.name: path.read_bytes() for path in Path("other").iterdir()}


def test_the_name_of_the_data_and_the_time_limit_may_change() -> None:
    train(*TREE, "--pareto", "trees", "--checkpoint", "run.ck")
    before = {name: content for name, content in archive().items() if name != "index.json"}
    run("data", "convert", DATA, "rows.csv")
    words = [*TREE, "--time-limit", "1000", "--pareto", "trees", "--resume", "run.ck"]
    run("train", "rows.csv", "model.silva", *words)
    after = archive()
    assert json.loads(after.pop("index.json"))["data"] == "rows.csv"
    assert after == before


def test_a_refused_checkpoint_makes_no_folder() -> None:
    train(*OTHER, "--pareto", "trees", "--checkpoint", "run.ck")
    result = train(*TREE, "--pareto", "new", "--resume", "run.ck", code=1)
    assert "was written with" in result.stderr
    assert not Path("new").exists()


# A full disk


@pytest.mark.parametrize("number", [1, 3])
def test_what_does_not_fit_is_removed(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*TREE, "--pareto", "trees"]
    with monkeypatch.context() as patch:
        fail_in_writing(patch, number)
        assert train(*words, code=1).stderr == "error: the disk is full\n"
    assert archive() == {}
    train(*words)
    assert "index.json" in archive()


def test_a_message_names_the_tree_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: object, path: str, *, plain: bool) -> None:
        raise OutputError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr(pareto, "write_model", fail)
    result = train(*TREE, "--pareto", "trees", code=1)
    assert result.stderr == "error: trees/tree-000.silva: cannot be written: No space left on device\n"


def test_a_complete_archive_outlives_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    train(*KEEPING)
    before = archive()
    with monkeypatch.context() as patch:
        fail_in_writing(patch, 2)
        assert train(*KEEPING, code=1).stderr == "error: the disk is full\n"
    assert archive() == before


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("is_moving", [False, True])
def test_a_kill_while_an_archive_is_written(is_moving: bool, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    train(*KEEPING)
    expected = archive()
    shutil.rmtree("trees")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_try_to_discard", lambda place: None)
        if is_moving:
            fail_in_moving(patch, number)
        else:
            fail_at(patch, pareto, "write_model", number, KeyboardInterrupt())
        train(*KEEPING, code=130)
    (left,) = Path("trees").glob(".metasilvae-*")
    assert left.is_dir()
    assert len(list(Path("trees").iterdir())) == (number if is_moving else 1)
    train(*KEEPING)
    assert archive() == expected
