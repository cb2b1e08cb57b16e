"""Whole tasks on threads and on a real cluster of processes."""

from __future__ import annotations

import builtins
import os
import signal
import socket
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from support import remote_tasks as tasks
from support.remote_tasks import Cluster, running_cluster, wait_until

from metasilvae.errors import ClusterError, DataError, MetasilvaeWarning
from metasilvae.execution import executors
from metasilvae.execution.executors import open_executor, run_all, should_stop

T = TypeVar("T")
WHERE = ["here", "cluster"]


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "here" else request.getfixturevalue("cluster").address


everywhere = pytest.mark.parametrize("address", WHERE, indirect=True)


@everywhere
def test_results_come_in_order_and_shared_data_arrives(address: str | None) -> None:
    with open_executor(address, jobs=2) as executor:
        numbers = executor.share(list(range(100)))
        done: list[int] = []
        results = run_all(executor, tasks.add_up, [(numbers, n) for n in range(20)], lambda: done.append(1))
        assert results == [4950 + n for n in range(20)]
        assert len(done) == 20
        assert executor.submit(tasks.add_up, numbers, 1, factor=2).result() == 9902


@everywhere
def test_an_error_of_a_task_is_raised_as_it_was(address: str | None) -> None:
    with pytest.raises(DataError, match=r"^rows\.csv: is odd$"), open_executor(address, jobs=2) as executor:
        executor.submit(tasks.fail, DataError("rows.csv: is odd")).result()


@everywhere
def test_running_tasks_hear_of_a_stop_and_waiting_ones_never_run(address: str | None, tmp_path: Path) -> None:
    with open_executor(address, jobs=1) as executor:
        running = executor.submit(tasks.work_until_stopped, str(tmp_path))
        wait_until((tmp_path / "begun").exists)
        executor.stop()
        wait_until((tmp_path / "ended").exists)
        if address is None:
            assert running.result() == "as far as it got"
        else:
            with pytest.raises(CancelledError):
                running.result()
    assert not should_stop()


@everywhere
def test_leaving_early_stops_what_runs(address: str | None, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_executor(address, jobs=1) as executor:  # noqa: PT012
        executor.submit(tasks.work_until_stopped, str(tmp_path))
        waiting = [executor.submit(tasks.note_and_wait, str(tmp_path), number) for number in range(8)]
        wait_until((tmp_path / "begun").exists)
        (tmp_path / "go").touch()
        raise KeyboardInterrupt
    assert all(future.done() for future in waiting)
    wait_until((tmp_path / "ended").exists)


def test_any_executor_serves_for_tasks_without_shared_data() -> None:
    with ThreadPoolExecutor(2) as executor:
        assert run_all(executor, tasks.add_up, [([1], 2), ([3], 4)]) == [3, 7]


def test_a_worker_opens_shared_data_once(cluster: Cluster) -> None:
    with open_executor(cluster.address) as executor:
        value = executor.share(np.zeros(1000))
        found = set(run_all(executor, tasks.tell_identity, [(value,)] * 30))
    assert len(found) == len({process for process, _ in found}) <= 2


def test_a_killed_worker_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """The new worker is killed while it holds a task, and perhaps the only copy of the shared data."""
    victim = cluster.add_worker()
    with open_executor(cluster.address) as executor:
        numbers = executor.share([1, 2, 3])
        futures = [executor.submit(tasks.note_and_wait, str(tmp_path), number) for number in range(6)]
        sums = [executor.submit(tasks.add_up, numbers, number) for number in range(6)]
        wait_until(lambda: any(tmp_path.glob(f"begun-*-{victim.pid}")))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        (tmp_path / "go").touch()
        assert [future.result() for future in futures] == list(range(6))
        assert [future.result() for future in sums] == [6, 7, 8, 9, 10, 11]
    lost = {path.name.split("-")[1] for path in tmp_path.glob(f"begun-*-{victim.pid}")}
    again = {path.name.split("-")[1] for path in tmp_path.glob("begun-*") if not path.name.endswith(f"-{victim.pid}")}
    assert lost <= again


@pytest.mark.slow
def test_all_workers_lost_and_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the shared data are sent again. Then all is lost."""
    monkeypatch.setattr(executors, "CONNECT_TIMEOUT", 2.0)
    with running_cluster(tmp_path, n_workers=1) as cluster, open_executor(cluster.address) as executor:
        numbers = executor.share([1, 2, 3])
        assert executor.submit(tasks.add_up, numbers, 0).result() == 6
        cluster.workers[0].kill()
        cluster.workers[0].wait()
        cluster.add_worker()
        assert executor.submit(tasks.add_up, numbers, 1).result() == 7
        waiting = executor.submit(tasks.note_and_wait, str(tmp_path), 0)
        cluster.close()
        with pytest.raises(CancelledError):
            waiting.result()


def call(address: str, function: Callable[..., T], *arguments: object) -> T:
    with open_executor(address) as executor:
        return executor.submit(function, *arguments).result()


class TestTrouble:
    def test_a_task_that_kills_its_workers_is_given_up(self, tmp_path: Path) -> None:
        with (
            running_cluster(tmp_path, 1, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as cluster,
            pytest.raises(ClusterError, match=r"given up because each worker that ran it was lost"),
        ):
            call(cluster.address, tasks.kill_own_worker)

    def test_another_version_on_the_workers(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(executors, "VERSION", "99.1")
        with pytest.raises(ClusterError, match=r"a worker has metasilvae .* installed, this is 99\.1; install the"):
            call(cluster.address, os.getpid)

    def test_a_worker_without_metasilvae(self, cluster: Cluster) -> None:
        error = ModuleNotFoundError("No module named 'metasilvae'", name="metasilvae")
        with pytest.raises(ClusterError, match="metasilvae is not installed on a worker"):
            call(cluster.address, tasks.fail, error)

    def test_nobody_predictions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("distributed", reason="needs dask[distributed]")
        monkeypatch.setattr(executors, "CONNECT_TIMEOUT", 0.2)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(ClusterError, match=r"^tcp://[0-9.:]+: no Dask scheduler responds \(.*\); check"):
                call(address, os.getpid)

    @pytest.mark.parametrize("address", ["", "nonsense://x:1", "tcp://", "localhost", "tcp://localhost:x"])
    def test_addresses_that_are_none(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("distributed", reason="needs dask[distributed]")
        monkeypatch.setattr(executors, "CONNECT_TIMEOUT", 0.2)
        with pytest.raises(ClusterError, match="no Dask scheduler responds"):
            call(address, os.getpid)

    def test_scheduler_files(self, cluster: Cluster, tmp_path: Path) -> None:
        assert call(str(cluster.file), tasks.add_up, [1], 2) == 3
        with pytest.raises(ClusterError, match=r"absent\.json: no such scheduler file; is the scheduler running\?"):
            call(str(tmp_path / "absent.json"), os.getpid)
        (tmp_path / "odd.json").write_text("[]")
        with pytest.raises(ClusterError, match=r"odd\.json: is not a scheduler file"):
            call(str(tmp_path / "odd.json"), os.getpid)

    def test_no_workers_yet(self, tmp_path: Path) -> None:
        with (  # noqa: PT031
            running_cluster(tmp_path, n_workers=0) as cluster,
            pytest.warns(MetasilvaeWarning, match="has no workers yet; waiting for one"),
            open_executor(cluster.address) as executor,
        ):
            future = executor.submit(os.getpid)
            worker = cluster.add_worker()
            assert future.result() == worker.pid

    def test_other_packages_on_the_workers_are_told_in_a_line(self) -> None:
        def versions(**changes: str) -> dict[str, object]:
            return {
                "host": {"python": changes.get("python", "3.11.2.final.0")},
                "packages": {"numpy": changes.get("numpy", "2.0"), "dask": "1", "distributed": "1"},
            }

        class Client:
            def get_versions(self) -> dict[str, object]:
                return {"client": versions(), "workers": {"a": versions(), "b": versions(numpy="1.26")}}

        with pytest.warns(MetasilvaeWarning, match=r"^x: workers have other versions of numpy than this machine; "):
            executors._check_cluster(Client(), "x")
        Client.get_versions = lambda self: {"client": versions(), "workers": {"a": versions()}}  # type: ignore[method-assign]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            executors._check_cluster(Client(), "x")

    def test_dask_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        usual = builtins.__import__

        def refuse(name: str, *rest: object) -> object:
            if name in ("dask", "distributed"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return usual(name, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(builtins, "__import__", refuse)
        with pytest.raises(ClusterError, match=r"^--scheduler needs Dask .*; `pip install 'metasilvae\[dask\]'`"):
            call("tcp://127.0.0.1:1", os.getpid)


def test_the_seam_is_the_standard_one() -> None:
    from concurrent.futures import Executor

    work: Callable[[], int] = os.getpid
    with open_executor(None, 1) as executor:
        assert isinstance(executor, Executor)
        assert list(executor.map(abs, [-1, 2])) == [1, 2]
        assert executor.submit(work).result() == os.getpid()
