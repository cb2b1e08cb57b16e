"""The same commands on one machine, on a Dask cluster and as jobs of an array give the same bytes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pytest
from support.command import HARD_FOREST, run, write
from support.hard_searches import write_endless_search
from support.processes import finish, start
from support.remote_tasks import Cluster, wait_until
from support.training_commands import die_after

from metasilvae.execution import executors
from metasilvae.execution.executors import LocalExecutor
from metasilvae.formats.silva_models import format_model, read_model
from metasilvae.output.text.terminal import RowBar
from metasilvae.output.text.trainings import ProgressBar
from metasilvae.training.protocol import Progress

TRAINING = ["builtin:iris/train", "--epsilon", "0.1"]


@pytest.fixture
def observer(cluster: Cluster) -> Any:
    """A client of its own that sees what the workers do."""
    distributed = pytest.importorskip("distributed", reason="needs dask[distributed]")
    with distributed.Client(cluster.address, set_as_default=False) as client:
        yield client


def trained(*options: object, output: Path) -> bytes:
    run("train", TRAINING[0], output, *TRAINING[1:], *options)
    return output.read_bytes()


def test_seeds_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    options = ["--seeds", "1..5", "--validation", "0.2", "--no-tune"]
    expected = trained(*options, output=tmp_path / "here.silva")
    assert trained(*options, "--scheduler", cluster.address, output=tmp_path / "there.silva") == expected


def test_a_forest_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    options = ["--trees", "6", "--no-tune", "--validation", "0.2"]
    expected = trained(*options, output=tmp_path / "here.silva")
    assert trained(*options, "--scheduler", cluster.address, output=tmp_path / "there.silva") == expected


@pytest.mark.parametrize("options", [["--seeds", "1..3"], ["--trees", "4"]])
def test_a_table_with_missing_values_and_class_weights_on_a_cluster(
    options: list[str], cluster: Cluster, tmp_path: Path
) -> None:
    words = ["--attack", write(tmp_path, "attack.toml", '[default]\nradius = "2% of range"\nmissing = "may appear"\n')]
    words += ["--label-column", "species", "--class-weight", "balanced", "--preset", "fast", *options]
    run("train", "builtin:penguins/train", tmp_path / "here.silva", *words)
    run("train", "builtin:penguins/train", tmp_path / "there.silva", *words, "--scheduler", cluster.address)
    assert (tmp_path / "here.silva").read_bytes() == (tmp_path / "there.silva").read_bytes()


@pytest.mark.parametrize("options", [["--seeds", "1..4", "--no-tune"], ["--trees", "6", "--preset", "fast"]])
def test_a_checkpoint_goes_to_a_cluster_and_back(
    options: list[str], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained(*options, output=tmp_path / "here.silva")
    keeping = [*TRAINING[1:], *options, "--checkpoint", tmp_path / "run.ck", "--resume", "auto", "--every", "1"]
    output = tmp_path / "there.silva"
    for place in ([], ["--scheduler", cluster.address]):
        with monkeypatch.context() as patch:
            die_after(patch, 2)
            run("train", TRAINING[0], output, *keeping, *place, code=130)
    for place in (["--scheduler", cluster.address], [], ["--scheduler", "nobody:1"]):
        run("train", TRAINING[0], output, *keeping, *place)
        assert output.read_bytes() == expected


def test_rows_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    trained("--preset", "fast", output=tmp_path / "t.silva")
    options = ["verify", tmp_path / "t.silva", "builtin:iris/train", "--epsilon", "0.3", "--format", "csv"]
    expected = run(*options)
    assert run(*options, "--scheduler", cluster.file).stdout == expected.stdout
    assert expected.stdout.count("FRAGILE") > 3


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_nothing(cluster: Cluster, observer: Any, tmp_path: Path) -> None:
    options = ["builtin:digits/train", "t.silva", "--epsilon", "1", "--no-tune", "--seeds", "1..12"]
    options += ["--max-iteration", "12", "--patience", "0"]
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    code, _, _ = finish(start("train", *options, cwd=tmp_path / "here"))
    assert code == 0
    victim = cluster.add_worker()
    wait_until(lambda: victim.pid in observer.run(os.getpid).values())
    address = next(name for name, process in observer.run(os.getpid).items() if process == victim.pid)
    process = start("train", *options, "--scheduler", cluster.address, cwd=tmp_path / "there")
    # On a fast machine the others may have done everything before it gets a task.
    wait_until(lambda: observer.processing().get(address) or process.poll() is not None)
    victim.kill()
    victim.wait()
    code, _, err = finish(process)
    assert (code, err) == (0, "")
    assert (tmp_path / "here/t.silva").read_bytes() == (tmp_path / "there/t.silva").read_bytes()


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGKILL, -9, "")]
)
def test_an_interrupt_ends_the_tasks(
    cluster: Cluster, observer: Any, tmp_path: Path, number: int, code: int, message: str
) -> None:
    endless = ["--epsilon", "1", "--max-iteration", "1000000", "--patience", "0", "--seeds", "1..9"]
    process = start("train", "builtin:digits/train", "t.silva", *endless, "--scheduler", cluster.address, cwd=tmp_path)
    wait_until(lambda: all(observer.processing().values()))
    process.send_signal(number)
    assert finish(process) == (code, "", message)
    assert not (tmp_path / "t.silva").exists()
    # Each worker has one thread; that it answers shows that its task has ended.
    workers = list(observer.processing())
    found = [observer.submit(os.getpid, workers=[worker], pure=False) for worker in workers]
    assert len({future.result(timeout=120) for future in found}) == len(workers)


def test_an_interrupt_keeps_the_seeds_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Future):
        def result(self, timeout: float | None = None) -> None:
            signal.raise_signal(signal.SIGINT)
            raise CancelledError

    class TwoTasks(LocalExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
            return super().submit(fn, *args, **kwargs) if len(self._futures) < 2 else Interrupted()

    @contextlib.contextmanager
    def open_executor(scheduler: str) -> Iterator[LocalExecutor]:
        assert scheduler == "x:1"
        yield TwoTasks(1)

    monkeypatch.setattr("metasilvae.training.runs.open_executor", open_executor)
    options = ["--epsilon", "0.1", "--preset", "fast", "--seeds", "1..3", "--scheduler", "x:1"]
    found = run("train", TRAINING[0], tmp_path / "t.silva", *options, code=130)
    assert (
        f"interrupted with 2 of 3 seeds finished; the best tree so far was written to {tmp_path}/t.silva\n"
        == found.stderr
    )
    assert "2 seeds" in found.stdout


def test_an_interrupt_keeps_the_rows_that_are_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker takes the pieces in turn; the third one ends because it is told to, the fourth is not begun."""

    @contextlib.contextmanager
    def open_executor(scheduler: str) -> Iterator[LocalExecutor]:
        assert scheduler == "x:1"
        yield LocalExecutor(1)

    monkeypatch.setattr("metasilvae.execution.executors.open_executor", open_executor)
    monkeypatch.setattr("metasilvae.verification.shards.ROWS_PER_PIECE", 1)
    signals = iter([None, signal.SIGINT])
    monkeypatch.setattr(
        RowBar, "advance", lambda self, n_rows: [signal.raise_signal(s) for s in [next(signals, None)] if s]
    )
    search = write_endless_search(tmp_path, [0.1, 0.2, 0.4, 0.45])
    found = run("verify", *search, "--epsilon", "0.2", "--format", "csv", "--scheduler", "x:1", code=130)
    assert [line.split(",")[3:] for line in found.stdout.splitlines()[1:]] == [
        ["ROBUST", ""], ["ROBUST", ""], ["NO-INFO", "interrupted"], ["NO-INFO", "interrupted"],
    ]  # fmt: skip
    assert found.stderr == "interrupted; 2 of 4 rows are decided\n"


@pytest.mark.parametrize(
    "options", [["--radius"], ["--target", "b", "--radius"], ["--target", "b", "--epsilon", "0.2"]]
)
def test_radii_and_targets_on_a_cluster(options: list[str], cluster: Cluster, tmp_path: Path) -> None:
    forest = write(tmp_path, "forest.silva", HARD_FOREST)
    rows = write(tmp_path, "rows.csv", "".join(f"a,{number / 40},{number / 80}\n" for number in range(40)))
    words = ["verify", forest, rows, *options, "--format", "csv"]
    assert run(*words, "--scheduler", cluster.address).stdout == run(*words).stdout


def test_an_interrupt_ends_searches_on_a_cluster(cluster: Cluster, observer: Any, tmp_path: Path) -> None:
    search = write_endless_search(tmp_path, [0.4] * 64)
    words = ["--epsilon", "0.2", "--format", "csv", "--scheduler", cluster.address]
    process = start("verify", *search, *words, cwd=tmp_path)
    wait_until(lambda: all(observer.processing().values()))
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, err) == (130, "interrupted; 0 of 64 rows are decided\n")
    assert out.splitlines()[1:] == [f"{row},a,a,NO-INFO,interrupted" for row in range(64)]
    # Each worker has one thread; that it answers shows that its search has ended.
    workers = list(observer.processing())
    predictions = [observer.submit(os.getpid, workers=[worker], pure=False) for worker in workers]
    assert len({prediction.result(timeout=120) for prediction in predictions}) == len(workers)


def test_an_interrupt_keeps_the_trees_that_are_done(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = ProgressBar.show

    def interrupt(self: ProgressBar, progress: Progress) -> None:
        show(self, progress)
        if (progress.phase, progress.step) == ("tree", 4):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "show", interrupt)
    words = [*TRAINING[1:], "--trees", "500", "--no-tune", "--scheduler", cluster.address]
    found = run("train", TRAINING[0], tmp_path / "f.silva", *words, code=130)
    model = read_model(str(tmp_path / "f.silva"))
    assert 5 <= model.n_trees < 500
    assert (
        found.stderr == f"interrupted; the forest of {model.n_trees} trees so far was written to {tmp_path}/f.silva\n"
    )


def test_nobody_predictions(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs dask[distributed]")
    monkeypatch.setattr(executors, "CONNECT_TIMEOUT", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        found = run("verify", tree, rows, "--scheduler", address, code=1)
    assert found.stderr.startswith(f"error: {address}: no Dask scheduler responds (")
    assert len(found.stderr.splitlines()) == 1


def test_contradictions() -> None:
    found = run("train", "x.csv", "y", "--epsilon", "1", "--scheduler", "z:1", "--log", "l", code=2)
    assert "--log follows a training in this process" in found.stderr
    found = run("train", "x.csv", "y", "--epsilon", "1", "--shard", "1/2", code=2)
    assert "give several --seeds, or the number of --trees" in found.stderr
    found = run("train", "x.csv", "y", "--epsilon", "1", "--seeds", "1..3", "--shard", "1/4", code=2)
    assert "3 seeds cannot be divided into 4 shards" in found.stderr


class TestShardsOfTrain:
    def test_they_hold_the_trees_of_their_seeds(self, tmp_path: Path) -> None:
        parts = [tmp_path / f"part-{number}.silva" for number in (1, 2)]
        for number, part in enumerate(parts, 1):
            found = run(
                "train", TRAINING[0], part, *TRAINING[1:], "--no-tune", "--seeds", "3..5", "--shard", f"{number}/2"
            )
            assert found.exit_code == 0
        run("assemble", tmp_path / "forest.silva", *parts)
        forest = read_model(str(tmp_path / "forest.silva"))
        assert (read_model(str(parts[0])).n_trees, read_model(str(parts[1])).n_trees) == (1, 2)
        for position, seed in enumerate((3, 4, 5)):
            alone = trained("--no-tune", "--seed", seed, output=tmp_path / "alone.silva")
            assert format_model(forest.tree(position), plain=True).encode() == alone.rpartition(b"# metasilvae ")[0]

    def test_a_report_of_a_share(self, tmp_path: Path) -> None:
        options = ["--preset", "fast", "--seeds", "1..4", "--shard", "2/2"]
        found = run("train", TRAINING[0], tmp_path / "p.silva", *TRAINING[1:], *options)
        assert "2 seeds" in found.stdout
        assert f"kept all 2 trees in {tmp_path / 'p.silva'}" in found.stdout

    def test_on_a_cluster(self, cluster: Cluster, tmp_path: Path) -> None:
        options = ["--no-tune", "--seeds", "1..4", "--shard", "2/2"]
        expected = trained(*options, output=tmp_path / "here.silva")
        assert trained(*options, "--scheduler", cluster.address, output=tmp_path / "there.silva") == expected
