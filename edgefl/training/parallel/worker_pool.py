"""Worker processes; they are new processes, not forks, because a fork can block on this process's threads."""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from multiprocessing.util import Finalize
from typing import Any

from edgefl.errors import EdgeflError, first_line
from edgefl.torch_settings import INTRA_OP_THREADS
from edgefl.training.engine_spec import keep_freed_memory

_IDLE_SECONDS = 60
"""After so long without work, worker processes end; the next call starts new ones."""

_WATCH_SECONDS = 0.25

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(INTRA_OP_THREADS))
"""Set only in the worker processes' environment: libraries start no threads that busy-wait on the others' cores."""

_NO_RESTART = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e15"}
"""With psutil installed, loky takes a step's memory above 300 MB for a leak and starts the worker process anew."""

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class PoolBroken(EdgeflError):  # noqa: N818  (what happened to it)
    """A worker process ended during its work (killed, or out of memory), or could not start."""


class WorkerPool:
    """A pool of worker processes; each runs one call at a time with one intra-op thread.

    They start in the background, which takes some seconds, mostly for importing torch. They end after a minute without
    work, and when this process ends for any reason. They keep none of its files open and ignore Ctrl-C. A script needs
    no ``if __name__ == "__main__"``, and may send its own functions and objects.
    """

    def __init__(self, size: int, modules: Collection[str] = ()) -> None:
        """``modules``: what every worker process imports before it is ready."""
        from loky import ProcessPoolExecutor
        from loky.backend import get_context

        self.size = size
        self.broken = False
        try:
            self._executor = ProcessPoolExecutor(
                size,
                timeout=_IDLE_SECONDS,
                context=get_context("loky"),
                initializer=_begin,
                initargs=(os.getpid(), tuple(modules)),
                env=_ONE_THREAD | _NO_RESTART,
            )
            self._first = self._submit(os.getpid, ())
        except (OSError, NotImplementedError, AssertionError) as error:  # AssertionError: this process may start none
            raise PoolBroken(f"cannot start a worker process: {error}") from None
        _pools.add(self)
        _close_at_exit()

    @property
    def ready(self) -> bool:
        """True if worker processes have started."""
        return self._first.done() and bool(self._result(self._first))

    def each(
        self,
        following: Callable[[], int | None],
        call: Callable[[int], Call],
        done: Callable[[int, Any], None],
        at_once: int,
        here: Callable[[int], None] | None = None,
    ) -> None:
        """Make the calls whose numbers ``following`` returns, each in the next free worker process.

        Where that is ``None``, there is none before a running one ends. A ``call`` is requested when it can be
        submitted; at most ``at_once`` are, including those that wait for a worker process. ``done`` is called with a
        call's number and result, in this thread, while other calls are running. ``here`` makes calls in this thread
        while all worker processes are busy.

        Raises:
            PoolBroken: a worker process ended; the pool is closed.
            BaseException: the exception of the failed call with the lowest number, raised in the worker or by ``done``;
                running calls are finished, and no new ones are started.
        """
        running: dict[Future[Any], int] = {}
        failures: dict[int, BaseException] = {}

        def submit(most: int) -> None:
            while not failures and len(running) < most and (number := following()) is not None:
                running[self._submit(*call(number))] = number

        try:
            while True:
                submit(min(self.size, at_once))
                own = None if here is None or failures else following()
                submit(at_once)
                if here is not None and own is not None:
                    try:
                        here(own)
                    except Exception as error:  # noqa: BLE001  (raised below, like those of the others)
                        failures[own] = error
                elif not running:
                    break
                seconds = None if own is None else 0
                for future in wait(running, timeout=seconds, return_when=FIRST_COMPLETED).done:
                    number = running.pop(future)
                    try:
                        done(number, self._result(future))
                    except PoolBroken:
                        raise
                    except Exception as error:  # noqa: BLE001  (raised below, once the others are done)
                        failures[number] = error
        except BaseException:
            # A killed process or Ctrl-C, for example: the results of the running calls are lost.
            self.close()
            raise
        if failures:
            raise failures[min(failures)]

    def close(self) -> None:
        """End the worker processes immediately; the pool must not be used again."""
        if not self.broken:
            self.broken = True
            self._executor.shutdown(wait=True, kill_workers=True)

    @staticmethod
    def _result(future: Future[Any]) -> Any:
        try:
            return future.result()
        except CancelledError:
            raise PoolBroken("the worker pool was closed") from None
        except BaseException as error:
            if isinstance(error, BrokenExecutor) or type(error).__module__.startswith("loky."):
                raise PoolBroken(first_line(error).partition(". ")[0].rstrip(".")) from None
            raise

    def _submit(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        try:
            with _ctrl_c_held_back():  # a worker process that starts here inherits the mask, until it ignores Ctrl-C
                future: Future[Any] = self._executor.submit(function, *arguments)
        except (RuntimeError, OSError) as error:  # broken executors and those that were shut down raise RuntimeError
            self.close()
            raise PoolBroken(first_line(error).partition(". ")[0].rstrip(".")) from None
        return future


_shared: WorkerPool | None = None
_lock = threading.Lock()
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@cache
def _close_at_exit() -> None:
    """Called after loky has registered its own function, so that this one runs first.

    Loky's waits until workers that still start have imported PyTorch.
    """
    Finalize(None, close_pools, exitpriority=100)  # such processes skip the function below
    threading._register_atexit(close_pools)  # type: ignore[attr-defined]  # as loky does


def close_pools() -> None:
    """End all worker processes of this process; without this call they end after a minute, or with it."""
    while _pools:
        _pools.pop().close()


def shared_pool(workers: int, *, begin: bool = True, modules: Collection[str] = ()) -> WorkerPool | None:
    """The pool of this process, which all engines use; a new one, or ``None``, if there is none of that size.

    Of two ``workers``, this process is one, so that only one has to start; more keep it busy with their results.
    """
    size = 1 if workers == 2 else workers
    global _shared  # noqa: PLW0603  (one for the process)
    with _lock:
        if _shared is None or _shared.broken or _shared.size != size:
            if not begin:
                return None
            # A pool of another size ends when no engine holds it, or after a minute without work.
            _shared = WorkerPool(size, modules)
        return _shared


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, modules: Collection[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    keep_freed_memory()
    import torch

    from edgefl.training.parallel import pool_worker  # noqa: F401  (so that no job waits for it)

    for name in modules:
        with suppress(Exception):  # whatever needs it says so
            import_module(name)
    torch.set_num_threads(INTRA_OP_THREADS)
    # The executor runs the garbage collector every second: exclude the objects that are loaded already.
    gc.freeze()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)
