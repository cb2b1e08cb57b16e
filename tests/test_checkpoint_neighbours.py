"""What lies beside a checkpoint: the log of its run, files of killed runs, the lock of one that is going on."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli_checkpoint import SHORT, TREE, die_after, records, train


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ended after three steps, with its checkpoint and its log."""
    with monkeypatch.context() as patch:
        die_after(patch, 3)
        train(*TREE, "--checkpoint", "run.ck", "--every", "1", "--log", "log.jsonl", code=130)


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
    assert found.stderr == "warning: rest.jsonl: is not there; the log begins after the 3 steps of run.ck\n"
    assert records("rest.jsonl")[0]["step"] == 3


@pytest.mark.usefixtures("killed")
def test_a_log_on_standard_output_is_not_missed() -> None:
    assert "is not there" not in train(*TREE, "--resume", "run.ck", "--log", "-").stderr
