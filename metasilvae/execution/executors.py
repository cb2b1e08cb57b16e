"""Whole tasks (trees, seeds, pieces of a verification) on threads of this process or on the workers of a Dask cluster.

The seam is `concurrent.futures.Executor`: work is written as functions of picklable arguments and given to `submit`.
What many tasks need, such as a data set, goes through `share` once and then stands among the arguments. A task depends
on its arguments alone, never on where it runs, so results do not depend on the number of workers.

On a cluster a task whose worker is lost runs again on another one, and so does the sending of shared data: both are
tasks to Dask, which knows how to repeat them.

Values on their way to the workers of a cluster.
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


class SharedPayload:
    """A value packed small; a worker process opens it once and keeps it as long as it keeps the parcel."""

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
    """Writes float64 arrays that hold small whole numbers only, such as pixels, in an eighth of their size."""

    def reducer_override(self, obj: object) -> Any:
        if type(obj) is np.ndarray and obj.dtype == np.float64 and obj.flags.c_contiguous and obj.ndim:
            with np.errstate(invalid="ignore"):
                narrow = obj.astype(np.uint8)
            # Bit by bit: -0.0 is a value of its own.
            if np.array_equal(narrow.astype(np.float64).view(np.uint64), obj.view(np.uint64)):
                return _widen, (narrow,)
        return NotImplemented


def _widen(narrow: NDArray[np.uint8]) -> NDArray[np.float64]:
    return narrow.astype(np.float64)


T = TypeVar("T")
# Seconds until a scheduler that does not answer is given up.
CONNECT_TIMEOUT = 5.0
# How often a task is tried again that has failed by itself, say for want of memory; a lost worker does not count here.
RETRIES = 2
# Packages that should be alike on both sides.
COMPARED_PACKAGES = ("python", "numpy", "dask", "distributed")

_task = threading.local()


def should_stop() -> bool:
    """Whether the task that asks should end early, because the user has interrupted or nobody waits for it any more.

    Long tasks ask now and then. It costs next to nothing, and is False outside of a task.
    """
    asks: Callable[[], bool] | None = getattr(_task, "should_stop", None)
    return asks is not None and asks()


class TaskExecutor(Executor):
    """An executor with two additions: data for many tasks, and an end before the end.

    Attributes
    ----------
    is_stopped : bool
        Whether `stop` was called.
    """

    def __init__(self) -> None:
        self._futures: list[Future[Any]] = []
        self.is_stopped = False

    def share(self, value: T) -> T:
        """Something to pass to tasks in place of `value`, which they receive; each worker is sent it once."""
        return value

    def stop(self) -> None:
        """Cancel the tasks that wait and tell those that run; may be called from a signal handler."""
        self.is_stopped = True
        for future in self._futures:
            future.cancel()

    def _keep(self, future: Future[T]) -> Future[T]:
        """Remember a task, to cancel it; a stop may have come while it was submitted."""
        self._futures.append(future)
        if self.is_stopped:
            future.cancel()
        return future


class LocalExecutor(TaskExecutor):
    """Threads of this process; kernels release the GIL. A running task that is told to stop still gives its result."""

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
        # A task, unlike scattered data, is run again when the workers that hold its result are lost.
        return cast(T, self._client.submit(_hand_over, SharedPayload.of(value), pure=False))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._keep(self._executor.submit(_call_on_worker, VERSION, fn, kwargs, *args))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self.stop()
        self._executor.shutdown(wait)


def _hand_over(parcel: SharedPayload) -> SharedPayload:
    return parcel


def _call_on_worker(version: str, fn: Callable[..., T], kwargs: dict[str, Any], *args: Any) -> T:
    if version != VERSION:
        raise ClusterError(
            f"a worker has metasilvae {VERSION} installed, this is {version}; install the same version on all workers"
        )
    _task.should_stop = _make_abandonment_check()
    return fn(*(arg.open() if isinstance(arg, SharedPayload) else arg for arg in args), **kwargs)


def _make_abandonment_check() -> Callable[[], bool]:
    """Whether the scheduler has taken this task back: it was cancelled, or the program that gave it is gone."""
    from distributed import get_worker

    worker = get_worker()
    tasks, key = worker.state.tasks, worker.get_current_task()

    def is_abandoned() -> bool:
        task = tasks.get(key)
        return task is None or task.state in ("cancelled", "released", "forgotten")

    return is_abandoned


@contextlib.contextmanager
def open_executor(scheduler: str | None = None, jobs: int | None = None) -> Iterator[TaskExecutor]:
    """An executor for whole tasks; leaving it early cancels what is not done.

    Parameters
    ----------
    scheduler : str or None
        Address of a Dask scheduler, such as ``tcp://host:8786``, or the scheduler file that it wrote; None means
        threads of this process.
    jobs : int or None
        Threads; None means one for each available core. The workers of a cluster have their own number.
    """
    opened = _local(jobs) if scheduler is None else _connected(scheduler)
    with opened as executor:
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
    # Its messages are for the log of a service; what the user must know is an error here.
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
            # Nothing is left to do unless something went wrong.
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
        raise ClusterError(f"{scheduler}: is not a scheduler file; expected what `dask scheduler` writes") from None


def _connect(distributed: Any, address: str) -> Any:
    try:
        distributed.comm.get_address_host(address)  # a client that fails by a malformed address leaves threads behind
        with warnings.catch_warnings():
            # A table of all packages; `_check_cluster` says in a line what matters.
            warnings.simplefilter("ignore")
            return distributed.Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False, name="metasilvae")
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ClusterError(
            f"{address}: no Dask scheduler answers there ({reason}); check the address, "
            "such as tcp://host:8786, and that `dask scheduler` is running"
        ) from None


def _check_cluster(client: Any, address: str) -> None:
    """Tell about what may surprise: nobody to do the work, or other versions there."""
    versions = client.get_versions()
    ours = _compared(versions["client"])
    workers = [_compared(found) for found in versions["workers"].values() if found]
    others = [name for name in ours if any(found.get(name) != ours[name] for found in workers)]
    if not workers:
        warnings.warn(f"{address}: has no workers yet; waiting for the first one", MetasilvaeWarning, stacklevel=2)
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
    """What an error of the cluster means to the user; None for errors of the work itself."""
    if isinstance(error, distributed.KilledWorker):
        return (
            f"{address}: a task was given up because each worker that ran it was lost, perhaps for want of memory; "
            "give workers more memory or fewer threads (dask worker --nthreads, --memory-limit)"
        )
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "metasilvae":
        return f"{address}: metasilvae is not installed on a worker; install the same version on all workers"
    if isinstance(error, CancelledError) and not executor.is_stopped:
        return f"{address}: the connection to the scheduler was lost; what was not done is lost too, start again"
    return None


def run_all(
    executor: TaskExecutor,
    function: Callable[..., T],
    arguments: Sequence[tuple[Any, ...]],
    on_done: Callable[[], object] = lambda: None,
) -> list[T | None]:
    """Results of ``function(*each)`` for all tuples of arguments, in order; `on_done` is called for each in turn.

    After a stop of the executor, None stands for those that were not done.
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
    """An event for the work of a task that is also set when the task should end early."""

    def is_set(self) -> bool:
        return super().is_set() or should_stop()
