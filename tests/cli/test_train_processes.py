"""Training in processes of its own: signals, pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import finish, start

from metasilvae.formats.silva_models import read_model
from metasilvae.model import name_kind

LEAF_HINT = (
    "warning: t.silva: is a single leaf: the training was interrupted before a tree was grown; give it more time\n"
)
ENDLESS = ["--epsilon", "1", "--max-iteration", "1000000", "--patience", "0"]


@pytest.mark.parametrize(
    ("number", "code", "n_records", "arguments"),
    [
        (signal.SIGINT, 130, 1, []),
        (signal.SIGINT, 130, 20, []),
        (signal.SIGINT, 130, 1, ["--no-tune"]),
        (signal.SIGINT, 130, 20, ["--no-tune", "--jobs", "2"]),
        (signal.SIGTERM, 143, 20, ["--no-tune", "--jobs", "1"]),
        (signal.SIGINT, 130, 1, ["--preset", "paper"]),
    ],
)
def test_a_signal_writes_the_best_tree_so_far(
    number: int, code: int, n_records: int, arguments: list[str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "log")
    process = start("train", "builtin:digits/train", "t.silva", *ENDLESS, *arguments, "--log", "log", cwd=tmp_path)
    # The log tells that training has begun; it must be read to its end, lest the program waits for its reader.
    with (tmp_path / "log").open() as log:
        records = [json.loads(log.readline()) for _ in range(n_records)]
        process.send_signal(number)
        records += [json.loads(line) for line in log]
    found, out, err = finish(process)
    model = read_model(str(tmp_path / "t.silva"))
    assert model.n_leaves == records[-1]["leaves"]
    # The paper's search begins with single leaves, the others with a grown tree.
    assert model.n_leaves > 1 or "paper" in arguments
    assert (found, err) == (
        code, f"{LEAF_HINT if model.n_leaves == 1 else ''}interrupted; the best tree so far was written to t.silva\n"
    )  # fmt: skip
    assert "stopped: interrupted" in out


@pytest.mark.parametrize(("n_records", "arguments"), [(1, []), (12, ["--no-tune"])])
def test_a_signal_writes_the_trees_so_far(n_records: int, arguments: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    process = start("train", "builtin:digits/train", "f.silva", "--epsilon", "1", "--trees", "5000", *arguments,
                    "--log", "log", cwd=tmp_path)  # fmt: skip
    with (tmp_path / "log").open() as log:
        records = [json.loads(log.readline()) for _ in range(n_records)]
        process.send_signal(signal.SIGTERM)
        records += [json.loads(line) for line in log]
    found, _, err = finish(process)
    model = read_model(str(tmp_path / "f.silva"))
    assert found == 143
    assert err == f"interrupted; the {name_kind(True, model.n_trees)} so far was written to f.silva\n"
    assert (model.n_trees, model.n_leaves) == (records[-1]["offspring"], records[-1]["leaves"])


def test_a_signal_during_tuning_writes_the_first_rounds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    process = start("train", "builtin:digits/train", "b.silva", "--epsilon", "1", "--boost", "500", "--log", "log",
                    cwd=tmp_path)  # fmt: skip
    with (tmp_path / "log").open() as log:
        records = [json.loads(log.readline())]
        process.send_signal(signal.SIGINT)
        records += [json.loads(line) for line in log]
    found, _, err = finish(process)
    model = read_model(str(tmp_path / "b.silva"))
    assert (found, err) == (130, f"interrupted; the {name_kind(True, model.n_trees)} so far was written to b.silva\n")
    assert {record["phase"] for record in records} == {"tuning"}
    assert (model.n_trees, model.n_leaves) == (records[-1]["offspring"], records[-1]["leaves"])
    assert model.n_leaves > model.n_trees


def test_a_signal_ends_a_study_over_seeds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    process = start("train", "builtin:digits/train", "-", *ENDLESS, "--seeds", "1..9", "--log", "log", cwd=tmp_path)
    with (tmp_path / "log").open() as log:
        log.readline()
        process.send_signal(signal.SIGINT)
        log.read()
    code, out, err = finish(process)
    assert code == 130
    assert err.endswith("interrupted with 0 of 9 seeds finished; the best tree so far was written to standard output\n")
    assert out.startswith("classifier-decision-tree 64 10\n")


def test_a_tree_goes_through_a_pipe_to_the_verifier(tmp_path: Path) -> None:
    train = start("train", "builtin:iris/train", "-", "--epsilon", "0.1", cwd=tmp_path)
    arguments = ["verify", "-", "builtin:iris/test", "--epsilon", "0.1", "--format", "jsonl"]
    verify = subprocess.run(
        [sys.executable, "-m", "metasilvae", *arguments], stdin=train.stdout, capture_output=True, text=True
    )
    code, _, err = finish(train)
    assert (code, verify.returncode, verify.stderr) == (0, 0, "")
    assert "accuracy" in err
    assert len([json.loads(line) for line in verify.stdout.splitlines()]) >= 30


def test_there_is_no_bar_without_a_terminal(tmp_path: Path) -> None:
    code, _, err = finish(start("train", "builtin:iris/train", "t.silva", "--epsilon", "0.1", cwd=tmp_path))
    assert (code, err) == (0, "")


def test_a_broken_option_is_told_before_the_data_are_read(tmp_path: Path) -> None:
    code, out, err = finish(start("train", "absent.csv", "t.silva", "--epsilon", "x", cwd=tmp_path))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: perturbation 'l_inf x'")
