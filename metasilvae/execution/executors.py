"""Executors for whole tasks (trees, seeds, pieces of a verification): threads of this process, or a Dask cluster.

The interface is `concurrent.futures.Executor`: work is written as functions of picklable arguments and passed to
`submit`. Data that many tasks need, such as a data set, goes through `share` once and is then passed as an argument. A
task depends on its arguments alone, so results do not depend on the number of workers.

If a worker of a cluster is lost, Dask repeats its tasks on another one; sending shared data is a task, too.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pickle
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from metasilvae._version import VERSION
from metasilvae.errors import ClusterError, MetasilvaeWarning
from metasilvae.execution.threads import available_cores

T = TypeVar("T")
# Seconds to wait for a scheduler.
CONNECT_TIMEOUT = 5.0
# How often a failed task is repeated, for example after running out of memory; lost workers do not count.
RETRIES = 2
# Packages that should have the same version on both sides.
COMPARED_PACKAGES = ("python", "numpy", "dask", "distributed")

_task = threading.local()


def should_stop() -> bool:
    """Whether the current task should end early, because the user interrupted or nobody waits for it.

    Long tasks call this regularly; it is cheap, and False outside of a task.
    """
    check: Callable[[], bool] | None = getattr(_task, "should_stop", None)
    return check is not None and check()


class TaskExecutor(Executor):
    """An executor that can share data among tasks and can be stopped early.

    Attributes
    ----------
    is_stopped : bool
        Whether `stop` was called.
    """

    def __init__(self) -> None:
        self._futures: list[Future[Any]] = []
        self.is_stopped = False

    def share(self, value: T) -> T:
        """A handle to pass to tasks, which receive `value`; it is sent to each worker once."""
        return value

    def stop(self) -> None:
        """Cancel waiting tasks and signal running ones to end; may be called from a signal handler."""
        self.is_stopped = True
        for future in self._futures:
            future.cancel()

    def _keep(self, future: Future[T]) -> Future[T]:
        """Register a task for `stop`, which may have been called while it was submitted."""
        self._futures.append(future)
        if self.is_stopped:
            future.cancel()
        return future


class LocalExecutor(TaskExecutor):
    """Threads of this process; kernels release the GIL. A running task that is stopped still returns its result."""

    def __init__(self, jobs: int | None = None) -> None:
        super().__init__()
        self._pool = ThreadPoolExecutor(available_cores() if jobs is None else jobs)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._keep(self._pool.submit(self._call, fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def _call(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        _task.should_stop = lambda: self.is_stopped
        return fn(*args, **kwargs)


class ClusterExecutor(TaskExecutor):
    """The workers of a Dask cluster; `client` is a connected `distributed.Client`."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client
        self._executor = client.get_executor(pure=False, retries=RETRIES)

    def share(self, value: T) -> T:
        # Unlike scattered data, a task is repeated if the workers that hold its result are lost.
        return cast(T, self._client.submit(_return_payload, SharedPayload.of(value), pure=False))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._keep(self._executor.submit(_call_on_worker, VERSION, fn, kwargs, *args))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self.stop()
        self._executor.shutdown(wait)


class SharedPayload:
    """A compressed value; a worker process decompresses it once and keeps it as long as the payload."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._lock = threading.Lock()
        self._opened: list[Any] = []

    @classmethod
    def of(cls, value: object) -> SharedPayload:
        stream = io.BytesIO()
        _Packer(stream, protocol=5).dump(value)
        return cls(zlib.compress(stream.getbuffer(), 1))

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedPayload, (self._packed,)

    def __sizeof__(self) -> int:
        return len(self._packed)

    def open(self) -> Any:
        with self._lock:
            if not self._opened:
                self._opened.append(pickle.loads(zlib.decompress(self._packed)))
            return self._opened[0]


class _Packer(pickle.Pickler):
    """Packs float64 arrays of small whole numbers, such as pixels, into an eighth of their size."""

    def reducer_override(self, obj: object) -> Any:
        if type(obj) is np.ndarray and obj.dtype == np.float64 and obj.flags.c_contiguous and obj.ndim:
            with np.errstate(invalid="ignore"):
                narrow = obj.astype(np.uint8)
            # Compared bit by bit, because -0.0 is another value than 0.0.
            if np.array_equal(narrow.astype(np.float64).view(np.uint64), obj.view(np.uint64)):
                return _widen, (narrow,)
        return NotImplemented


def _widen(narrow: NDArray[np.uint8]) -> NDArray[np.float64]:
    return narrow.astype(np.float64)


def _return_payload(payload: SharedPayload) -> SharedPayload:
    return payload


def _call_on_worker(version: str, fn: Callable[..., T], kwargs: dict[str, Any], *args: Any) -> T:
    if version != VERSION:
        raise ClusterError(
            f"a worker has metasilvae {VERSION} installed, this is {version}; install the same version on all workers"
        )
    _task.should_stop = _make_abandonment_check()
    return fn(*(arg.open() if isinstance(arg, SharedPayload) else arg for arg in args), **kwargs)


def _make_abandonment_check() -> Callable[[], bool]:
    """A function that checks whether this task was cancelled, or the program that submitted it has ended."""
    from distributed import get_worker

    worker = get_worker()
    tasks, key = worker.state.tasks, worker.get_current_task()

    def is_abandoned() -> bool:
        task = tasks.get(key)
        return task is None or task.state in ("cancelled", "released", "forgotten")

    return is_abandoned


@contextlib.contextmanager
def open_executor(scheduler: str | None = None, jobs: int | None = None) -> Iterator[TaskExecutor]:
    """An executor for whole tasks; leaving the context early cancels unfinished tasks.

    Parameters
    ----------
    scheduler : str or None
        Address of a Dask scheduler, such as ``tcp://host:8786``, or its scheduler file; None means threads of this
        process.
    jobs : int or None
        Threads; None means one for each available core. Ignored for a cluster.
    """
    with _local(jobs) if scheduler is None else _connected(scheduler) as executor:
        yield executor


@contextlib.contextmanager
def _local(jobs: int | None) -> Iterator[TaskExecutor]:
    executor = LocalExecutor(jobs)
    try:
        yield executor
    except BaseException:
        executor.stop()
        raise
    finally:
        executor.shutdown()


@contextlib.contextmanager
def _connected(scheduler: str) -> Iterator[TaskExecutor]:
    try:
        import dask
        import distributed
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"--scheduler needs Dask ({error.name} is not installed); `pip install 'metasilvae[dask]'` installs it"
        ) from None
    # Its log messages are for services; errors that matter to the user are raised here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    address = _read_address(scheduler)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        client = _connect(distributed, address)
        executor = ClusterExecutor(client)
        try:
            _check_cluster(client, address)
            yield executor
        except Exception as error:
            found = _explain(distributed, executor, error, address)
            if found is None:
                raise
            raise ClusterError(found) from None
        finally:
            executor.stop()
            client.close(timeout=CONNECT_TIMEOUT)


def _read_address(scheduler: str) -> str:
    """The address itself, or the one in a scheduler file."""
    path = Path(scheduler)
    if "://" in scheduler or not (path.suffix == ".json" or path.is_file()):
        return scheduler
    try:
        return str(json.loads(path.read_text())["address"])
    except FileNotFoundError:
        raise ClusterError(f"{scheduler}: no such scheduler file; is the scheduler running?") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ClusterError(f"{scheduler}: is not a scheduler file; expected one that `dask scheduler` wrote") from None


def _connect(distributed: Any, address: str) -> Any:
    try:
        distributed.comm.get_address_host(address)  # a client with a malformed address would leave threads behind
        with warnings.catch_warnings():
            # The client warns with a table of all packages; `_check_cluster` warns in one line.
            warnings.simplefilter("ignore")
            return distributed.Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False, name="metasilvae")
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ClusterError(
            f"{address}: no Dask scheduler responds ({reason}); check the address, "
            "such as tcp://host:8786, and that `dask scheduler` is running"
        ) from None


def _check_cluster(client: Any, address: str) -> None:
    """Warn if there are no workers, or if they have other versions."""
    versions = client.get_versions()
    ours = _compared(versions["client"])
    workers = [_compared(found) for found in versions["workers"].values() if found]
    others = [name for name in ours if any(found.get(name) != ours[name] for found in workers)]
    if not workers:
        warnings.warn(f"{address}: has no workers yet; waiting for one", MetasilvaeWarning, stacklevel=2)
    elif others:
        warnings.warn(
            f"{address}: workers have other versions of {', '.join(others)} than this machine; "
            "install the same ones if tasks fail",
            MetasilvaeWarning,
            stacklevel=2,
        )


def _compared(versions: dict[str, Any]) -> dict[str, str]:
    found = {**versions.get("host", {}), **versions.get("packages", {})}
    return {name: str(found[name]).removesuffix(".final.0") for name in COMPARED_PACKAGES if found.get(name)}


def _explain(distributed: Any, executor: ClusterExecutor, error: Exception, address: str) -> str | None:
    """The message for an error of the cluster; None for errors of the work itself."""
    if isinstance(error, distributed.KilledWorker):
        return (
            f"{address}: a task was given up because each worker that ran it was lost, perhaps out of memory; "
            "give workers more memory or fewer threads (dask worker --nthreads, --memory-limit)"
        )
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "metasilvae":
        return f"{address}: metasilvae is not installed on a worker; install the same version on all workers"
    if isinstance(error, CancelledError) and not executor.is_stopped:
        return f"{address}: the connection to the scheduler was lost with all unfinished tasks; start again"
    return None


def run_all(
    executor: TaskExecutor,
    function: Callable[..., T],
    arguments: Sequence[tuple[Any, ...]],
    on_done: Callable[[], object] = lambda: None,
) -> list[T | None]:
    """Results of ``function(*each)`` for all tuples of arguments, in order; `on_done` is called after each.

    Once the executor is stopped, the results of unfinished tasks are None.
    """
    futures = [executor.submit(function, *each) for each in arguments]
    results: list[T | None] = []
    for future in futures:
        try:
            results.append(future.result())
        except CancelledError:
            if not executor.is_stopped:
                raise
            results.append(None)
        on_done()
    return results


class Abandonment(threading.Event):
    """An event that is also set when the current task should end early."""

    def is_set(self) -> bool:
        return super().is_set() or should_stop()
