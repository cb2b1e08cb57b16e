"""A real Dask cluster of processes, and tasks for its workers: they find this module by PYTHONPATH."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metasilvae.execution.executors import should_stop

PATIENCE = 120.0


class Cluster:
    """A scheduler and workers, each a process of its own without anyone who would start it again."""

    def __init__(self, folder: Path, n_workers: int, **environment: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONWARNINGS": "ignore", **environment}
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment["PYTHONPATH"] = os.pathsep.join(paths)
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen] = []
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", self.file)
        # The file is there before its content.
        wait_until(lambda: self.file.exists() and self.file.read_text().rstrip().endswith("}"))
        self.address: str = json.loads(self.file.read_text())["address"]
        self.workers = [self.add_worker() for _ in range(n_workers)]
        wait_until(lambda: sum("Registered to" in log.read_text() for log in folder.glob("worker-*.log")) == n_workers)

    def start(self, kind: str, *arguments: object) -> subprocess.Popen:
        line = [sys.executable, "-m", "dask", kind, *map(str, arguments)]
        with (self.folder / f"{kind}-{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(line, cwd=self.folder, stdout=log, stderr=log, env=self.environment)
        self.processes.append(process)
        return process

    def add_worker(self) -> subprocess.Popen:
        options = ("--no-nanny", "--nthreads", 1, "--no-dashboard", "--host", "127.0.0.1")
        return self.start("worker", "--scheduler-file", self.file, *options)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@contextlib.contextmanager
def running_cluster(folder: Path, n_workers: int = 2, **environment: str) -> Iterator[Cluster]:
    pytest.importorskip("distributed", reason="needs dask[distributed]")
    cluster = Cluster(folder, n_workers, **environment)
    try:
        yield cluster
    finally:
        cluster.close()


def wait_until(holds, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def add_up(numbers: list[int], number: int, *, factor: int = 1) -> int:
    return factor * (sum(numbers) + number)


def tell_identity(value: object) -> tuple[int, int]:
    return os.getpid(), id(value)


def fail(error: Exception) -> None:
    raise error


def note_and_wait(folder: str, number: int) -> int:
    """Leaves a note of the process it runs in, and waits for a file named go."""
    Path(folder, f"begun-{number}-{os.getpid()}").touch()
    wait_until(Path(folder, "go").exists)
    return number


def work_until_stopped(folder: str) -> str:
    Path(folder, "begun").touch()
    wait_until(should_stop)
    Path(folder, "ended").touch()
    return "as far as it got"


def kill_own_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
