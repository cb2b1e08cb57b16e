"""What lies beside a checkpoint: the log of its run, files of killed runs, the lock of a run in progress."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import finish, start
from support.training_commands import DATA, SHORT, TREE, die_after, model, records, train, wait_for_change

from metasilvae.errors import OutputError
from metasilvae.io import locks
from metasilvae.io.storage import open_output, temporary_prefix
from metasilvae.training.checkpoint.files import pack, unpack
from metasilvae.training.checkpoint.runs import Checkpoint


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ended after three steps, with its checkpoint and its log."""
    with monkeypatch.context() as patch:
        die_after(patch, 3)
        train(*TREE, "--checkpoint", "run.ck", "--every", "1", "--log", "log.jsonl", code=130)


# Models


@pytest.mark.parametrize("count", [0, 2**62])
def test_a_forged_checkpoint_does_not_cost_the_model_that_is_there(count: int) -> None:
    train(*TREE, "--checkpoint", "run.ck")
    document = unpack(Path("run.ck").read_bytes())
    trees = document["results"][0]["trees"]
    trees["counts"] = np.full_like(trees["counts"], count)
    Path("run.ck").write_bytes(pack(document))
    before = model()
    found = train(*TREE, "--resume", "run.ck", code=1)
    assert found.stderr.startswith("error: run.ck: the checkpoint is damaged or cut short (")
    assert model() == before


# Logs


@pytest.mark.usefixtures("killed")
def test_a_log_of_another_run_is_not_touched() -> None:
    text = Path("log.jsonl").read_text()
    train("--epsilon", "0.3", "--seed", "4", *SHORT, "--log", "near.jsonl")
    near = Path("near.jsonl").read_text()
    assert [(each["phase"], each["step"]) for each in records("near.jsonl")[:3]] == [
        (each["phase"], each["step"]) for each in records()
    ]
    first, rest = text.split("\n", 1)
    for other in ("", "precious\n" * 9, "[]\n" * 9, "x" * 99999, text.replace('"seed": 4', '"seed": 5'), near,
                  near.split("\n", 1)[0] + "\n" + rest, rest + first + "\n"):  # fmt: skip
        Path("other.jsonl").write_text(other)
        found = train(*TREE, "--resume", "run.ck", "--log", "other.jsonl", code=1)
        assert found.stderr.startswith("error: other.jsonl: is not the log of the run in run.ck, whose first 3 steps ")
        assert Path("other.jsonl").read_text() == other


@pytest.mark.usefixtures("killed")
def test_a_log_that_is_missing_begins_where_the_run_goes_on() -> None:
    found = train(*TREE, "--resume", "run.ck", "--log", "rest.jsonl")
    assert found.stderr == "warning: rest.jsonl: is missing; the log begins after the 3 steps of run.ck\n"
    assert records("rest.jsonl")[0]["step"] == 3


@pytest.mark.usefixtures("killed")
def test_a_log_on_standard_output_is_not_missed() -> None:
    found = train(*TREE, "--resume", "run.ck", "--log", "-")
    assert "is missing; the log begins" not in found.stderr
    assert [json.loads(line)["step"] for line in found.stdout.splitlines()][:2] == [3, 4]


# Files of runs that were killed


def hidden() -> list[str]:
    return [path.name for path in Path().iterdir() if path.name.startswith(".")]


def leave_half(path: str) -> str:
    """What a kill in the middle of writing leaves; its name."""
    with open_output(path) as stream:
        stream.write(b"half")
        (name,) = set(hidden()) - set(KEPT)
        os.link(name, "kept")
    os.rename("kept", name)
    Path(path).unlink()
    return name


KEPT = [".metasilvae-abc", ".metasilvae-", f"{temporary_prefix(Path('other.ck'))}x"]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_kill_left_of_a_checkpoint_goes(is_first: bool) -> None:
    if not is_first:
        train(*TREE, "--checkpoint", "run.ck")
        Path("run.ck").rename("safe")
    for name in KEPT:
        Path(name).touch()
    left = leave_half("run.ck")
    assert left in hidden()
    if not is_first:
        Path("safe").rename("run.ck")
    train(*TREE, "--checkpoint", "run.ck", "--resume", "auto")
    assert sorted(hidden()) == sorted(KEPT)


# Locks


def lock_name(path: str) -> str:
    return f"{temporary_prefix(Path(path))}lock"


@pytest.mark.usefixtures("killed")
def test_a_checkpoint_is_for_one_run_at_a_time() -> None:
    before = Path("run.ck").read_bytes()
    os.symlink("run.ck", "link.ck")
    left = f"{temporary_prefix(Path('run.ck'))}half"
    Path(left).touch()
    with open(lock_name("run.ck"), "wb") as stream:
        locks.fcntl.flock(stream, locks.fcntl.LOCK_EX)
        for path in ("run.ck", "link.ck"):
            found = train(*TREE, "--resume", path, code=1)
            what = f"{path}: is in use by another run, which holds {lock_name('run.ck')}"
            assert found.stderr == f"error: {what}; wait until it ends, or use another name\n"
        assert Path("run.ck").read_bytes() == before
        assert sorted(hidden()) == sorted([left, lock_name("run.ck")])
    train(*TREE, "--resume", "run.ck")
    assert hidden() == []


def test_a_run_holds_its_lock_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    write, n_tried = Checkpoint.write, []

    def try_too(self: Checkpoint) -> None:
        write(self)
        with pytest.raises(OutputError, match="is in use"), locks.lock("run.ck"):
            pass
        n_tried.append(1)

    monkeypatch.setattr(Checkpoint, "write", try_too)
    train(*TREE, "--checkpoint", "run.ck", "--every", "20")
    assert len(n_tried) > 1
    assert hidden() == []


def test_two_runs_that_start_together(tmp_path: Path) -> None:
    long = ["--max-iteration", "60", "--patience", "0", "--checkpoint", "run.ck"]
    both = [
        start("train", DATA, f"{seed}.silva", "--epsilon", "0.1", "--seed", seed, *SHORT, *long, cwd=tmp_path)
        for seed in ("1", "2")
    ]
    found = [finish(process) for process in both]
    assert sorted(code for code, _, _ in found) == [0, 1]
    seed = 1 if found[0][0] == 0 else 2
    (err,) = (err for code, _, err in found if code == 1)
    assert err.startswith(("error: run.ck: is in use by another run", "error: run.ck: exists already"))
    words = ["--epsilon", "0.1", "--seed", str(seed), *SHORT, *long[:-2]]
    train(*words, "--resume", "run.ck")
    assert model() == Path(f"{seed}.silva").read_bytes()


def test_a_kill_releases_the_lock(tmp_path: Path) -> None:
    words = [*TREE, "--max-iteration", "2000", "--patience", "0", "--checkpoint", "run.ck", "--every", "1"]
    process = start("train", DATA, "model.silva", *words, cwd=tmp_path)
    wait_for_change(tmp_path / "run.ck", b"", process)
    assert "is in use" in train(*words, "--resume", "auto", code=1).stderr
    process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    assert lock_name("run.ck") in hidden()
    train(*words, "--resume", "auto", "--time-limit", "0.01")
    assert hidden() == []


def test_a_lock_that_went_away_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run before removes its lock between our opening and our locking."""
    usual, calls = locks.fcntl.flock, []

    def lose(handle: int, kind: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            Path(lock_name("run.ck")).unlink()
        usual(handle, kind)

    monkeypatch.setattr(locks.fcntl, "flock", lose)
    with locks.lock("run.ck") as is_held:
        assert is_held
        assert hidden() == [lock_name("run.ck")]
    assert (len(calls), hidden()) == (2, [])


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, None])
def test_where_locks_are_not_known_the_run_goes_on(number: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        assert number is not None
        raise OSError(number, os.strerror(number))

    if number is None:
        monkeypatch.setattr(locks, "fcntl", None)
    else:
        monkeypatch.setattr(locks.fcntl, "flock", refuse)
    left = f"{temporary_prefix(Path('run.ck'))}of-another"
    Path(left).touch()
    train(*TREE, "--checkpoint", "run.ck", "--every", "3")
    train(*TREE, "--checkpoint", "run.ck", "--resume", "auto")
    assert hidden() == [left]
