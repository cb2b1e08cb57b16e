"""Measure the overhead of a Dask cluster: an empty task, size and transfer of the data, a tree.

    python scripts/bench_cluster.py [--workers N] [--tasks N] [--trees N] [--epsilon E] [--scheduler ADDRESS] [DATA]

Without an address a cluster of N worker processes with one thread each is started on this machine; its scheduler is
then part of this process, so that the work of this process is that of the scheduler and of the command together. DATA
is what trees are trained on (shipped digits unless given); a tree is one of `--preset fast`.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator

from metasilvae.execution.executors import SharedPayload, TaskExecutor, open_executor, run_all
from metasilvae.formats.datasets import read_dataset
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.options import options_for
from metasilvae.training.runs import train_once


def tell_memory() -> float:
    """Peak memory of the worker in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def touch(value: object) -> int:
    return os.getpid()


@contextlib.contextmanager
def scheduler_at(address: str | None, workers: int) -> Iterator[str]:
    if address is not None:
        yield address
        return
    from distributed import LocalCluster

    quiet = logging.CRITICAL + 1
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=quiet) as cluster:
        yield cluster.scheduler_address


def measure(executor: TaskExecutor, arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    run_all(executor, os.getpid, [()] * 20)
    start, worked = time.perf_counter(), time.process_time()
    run_all(executor, os.getpid, [()] * arguments.tasks)
    spent, worked = time.perf_counter() - start, time.process_time() - worked
    yield f"{arguments.tasks} empty tasks", f"{spent:.2f} s, {1000 * spent / arguments.tasks:.2f} ms each"
    yield "work of this process", f"{1000 * worked / arguments.tasks:.2f} ms for each task"

    dataset = read_dataset(arguments.data)
    start = time.perf_counter()
    parcel = SharedPayload.of(dataset)
    packed = time.perf_counter() - start
    start = time.perf_counter()
    parcel.open()
    opened = time.perf_counter() - start
    yield "data", f"{dataset.n_samples} x {dataset.n_features}, {dataset.X.nbytes / 1e6:.1f} MB in memory"
    yield "data on the way", f"{sys.getsizeof(parcel) / 1e6:.1f} MB, packed in {packed:.2f} s, opened in {opened:.2f} s"

    start = time.perf_counter()
    shared = executor.share(dataset)
    run_all(executor, touch, [(shared,)] * 4 * arguments.workers)
    yield f"data to {arguments.workers} workers", f"{time.perf_counter() - start:.2f} s"

    options = [options_for("fast", seed=seed) for seed in range(arguments.trees)]
    if options:
        start = time.perf_counter()
        found = run_all(executor, train_once, [(shared, Ball(arguments.epsilon), each) for each in options])
        spent = time.perf_counter() - start
        own = sum(each.seconds for each in found)
        yield f"{len(found)} trees", f"{spent:.2f} s, {own / len(found):.2f} s each on its worker"
    memory = run_all(executor, tell_memory, [()] * 4 * arguments.workers)
    yield "memory of a worker", f"at most {max(memory):.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="builtin:digits/train", metavar="DATA")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--trees", type=int, default=4)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--scheduler", metavar="ADDRESS")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with scheduler_at(arguments.scheduler, arguments.workers) as address, open_executor(address) as executor:
        for name, figure in measure(executor, arguments):
            print(f"{name:22} {figure}", flush=True)


if __name__ == "__main__":
    main()
