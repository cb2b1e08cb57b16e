"""Rows distributed to threads. Kernels release the GIL; results do not depend on the number of threads."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
MIN_ROWS_PER_CHUNK = 256
MAX_ROWS_PER_CHUNK = 65536
# Longest time that a thread waits before it checks the deadline again, in seconds.
LONGEST_WAIT = 3600.0


def available_cores() -> int:
    """Cores this process may use; a batch system may grant fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def over_rows(work: Callable[[int, int], object], n_rows: int, jobs: int | None = None) -> None:
    """Call ``work(start, stop)`` for consecutive pieces that cover all rows.

    Parameters
    ----------
    jobs : int or None
        Number of threads; None means one for each available core.
    """
    jobs = available_cores() if jobs is None else jobs
    n_chunks = max(1, min(4 * jobs, n_rows // MIN_ROWS_PER_CHUNK)) if jobs > 1 else 1
    # Interrupts are handled between two chunks.
    n_chunks = max(n_chunks, -(-n_rows // MAX_ROWS_PER_CHUNK))
    starts = [n_rows * chunk // n_chunks for chunk in range(n_chunks + 1)]
    if jobs == 1 or n_chunks == 1:
        for start, stop in itertools.pairwise(starts):
            work(start, stop)
        return
    pool = ThreadPoolExecutor(jobs)
    try:
        for done in [pool.submit(work, start, stop) for start, stop in itertools.pairwise(starts)]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def run_workers(work: Callable[[], object], n_items: int, jobs: int | None, stop: threading.Event) -> None:
    """Call ``work()`` on several threads, each of which processes items until none is left.

    Parameters
    ----------
    jobs : int or None
        Number of threads, at most `n_items`; None means one for each available core.
    stop : threading.Event
        Set when a thread fails, so that the others end early.
    """
    jobs = min(available_cores() if jobs is None else jobs, n_items)
    if jobs <= 1:
        work()
        return
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in [pool.submit(work) for _ in range(jobs)]:
                done.result()
        except BaseException:
            stop.set()
            raise


def wait_for(task: futures.Future[T], deadline: float, hurry: Callable[[], object]) -> T:
    """Result of a task; `hurry` is called at the deadline (of time.perf_counter) and must make the task end early."""
    while True:
        left = deadline - time.perf_counter()
        try:
            return task.result(timeout=min(max(left, 0.0), LONGEST_WAIT))
        except futures.TimeoutError:
            if left <= 0:
                hurry()
                return task.result()
