"""Worker processes: fresh ones, never forks of this process, whose threads a fork would wait for."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from edgefl.errors import EdgeflError
from edgefl.learning.engine.threads import INTRA_OP_THREADS

_IDLE_SECONDS = 60
"""Seconds without work after which worker processes end; the next call begins others."""

_WATCH_SECONDS = 0.25
"""How often a worker process looks whether the process that began it is still there."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(INTRA_OP_THREADS))
"""In the worker processes' environment alone: libraries begin no threads that wait for work on the others' cores."""

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` of mallopt(3)."""

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and its arguments."""


class PoolBroken(EdgeflError):  # noqa: N818  (what happened to it)
    """A worker process ended in the middle of its work (killed, or out of memory), is stuck, or could not begin."""


class WorkerPool:
    """Some worker processes, each of which does one call at a time with one intra-op thread.

    They begin in the background, which takes some seconds, most of them for importing torch. They end after a minute
    without work and with this process, however that ends; they hold none of its files open, and leave Ctrl-C to it. A
    script needs no ``if __name__ == "__main__"``, and may send functions and objects of its own.

    Args:
        size: how many.

    Attributes:
        size: as given.

    Raises:
        PoolBroken: the system lets no process begin.
    """

    def __init__(self, size: int) -> None:
        from loky import ProcessPoolExecutor
        from loky.backend import get_context

        self.size = size
        self._up = 0
        self._broken = False
        try:
            context = get_context("loky")
            self._begun = context.Semaphore(0)
            self._executor = ProcessPoolExecutor(
                size,
                timeout=_IDLE_SECONDS,
                context=context,
                initializer=_begin,
                initargs=(os.getpid(), self._begun),
                env=_ONE_THREAD,
            )
            self._submit(os.getpid, ())
        except (OSError, NotImplementedError) as error:
            raise PoolBroken(f"no worker process can begin: {error}") from None

    @property
    def broken(self) -> bool:
        """Whether it can do no more work."""
        return self._broken

    @property
    def ready(self) -> bool:
        """Whether all worker processes have begun.

        Raises:
            PoolBroken: one of them ended.
        """
        if self._up < self.size:
            self._submit(os.getpid, ())  # raises where one of them could not begin
            while self._begun.acquire(block=False):
                self._up += 1
        return self._up >= self.size

    def wait(self, seconds: float = 300) -> None:
        """Wait until it is :attr:`ready`.

        Raises:
            PoolBroken: one of them ended, or they are not there after so many seconds.
        """
        until = time.monotonic() + seconds
        while not self.ready:
            if time.monotonic() > until:
                self.close()
                raise PoolBroken(f"worker processes did not begin within {seconds:g} s")
            time.sleep(0.02)

    def each(
        self,
        calls: Iterable[tuple[int, Call]],
        done: Callable[[int, Any], None],
        at_once: int,
        patience: float | None = None,
    ) -> None:
        """Have calls done, each by whoever is free.

        Args:
            calls: with their numbers; the next one is asked for when it can be handed over.
            done: called with a call's number and its answer in this thread, while others are under way.
            at_once: how many calls may be under way, those that wait for a worker process included.
            patience: seconds without any answer after which a worker process is taken for stuck; ``None``: never.

        Raises:
            PoolBroken: a worker process ended or is stuck; the pool is closed.
            BaseException: what was raised for the lowest of the calls that failed, there or by ``done``; those under
                way are done, and no new ones are begun.
        """
        waiting = iter(calls)
        numbers: dict[Future[Any], int] = {}
        completed: SimpleQueue[Future[Any]] = SimpleQueue()
        failures: dict[int, BaseException] = {}

        def hand_over() -> None:
            for number, (function, arguments) in waiting:
                future = self._submit(function, arguments)
                numbers[future] = number
                future.add_done_callback(completed.put)
                return

        try:
            for _ in range(at_once):
                hand_over()
            while numbers:
                future = completed.get(timeout=patience)
                number, error = numbers.pop(future), _error_of(future)
                if error is None:
                    try:
                        done(number, future.result())
                    except Exception as raised:  # noqa: BLE001  (raised below, once the others are done)
                        error = raised
                if error is not None:
                    failures[number] = error
                if not failures:
                    hand_over()
        except Empty:
            self.close()
            raise PoolBroken(f"no worker process has answered for {patience:.0f} s") from None
        except BaseException:
            # Ctrl-C, for example: nobody takes the answers of the calls that are under way.
            self.close()
            raise
        if failures:
            raise failures[min(failures)]

    def close(self) -> None:
        """End the worker processes, whatever they do; the pool is not used again."""
        if not self._broken:
            self._broken = True
            self._executor.shutdown(wait=True, kill_workers=True)

    def _submit(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        try:
            with _ctrl_c_held_back():  # a worker process that begins here inherits that, until it ignores Ctrl-C
                future: Future[Any] = self._executor.submit(function, *arguments)
        except (RuntimeError, OSError) as error:  # broken executors and those that were shut down raise RuntimeError
            self.close()
            raise PoolBroken(_first_line(error)) from None
        return future


_shared: WorkerPool | None = None
_lock = threading.Lock()


def shared_pool(size: int) -> WorkerPool:
    """The pool of this process, which all engines use; one begins where there is none of that size.

    Raises:
        PoolBroken: the system lets no process begin.
    """
    global _shared  # noqa: PLW0603  (one for the process)
    with _lock:
        if _shared is None or _shared.broken or _shared.size != size:
            # One of another size ends when nobody holds it, or after a minute without work.
            _shared = WorkerPool(size)
        return _shared


def pool_at_hand(size: int) -> WorkerPool | None:
    """The pool of this process, if it has that size and is ready."""
    with _lock:
        pool = _shared
        if pool is None or pool.broken or pool.size != size:
            return None
        try:
            return pool if pool.ready else None
        except PoolBroken:
            return None


def close_pool() -> None:
    """End the worker processes of this process, if there are any; they would end by themselves after a minute."""
    global _shared
    with _lock:
        pool, _shared = _shared, None
    if pool is not None:
        pool.close()


def _error_of(future: Future[Any]) -> BaseException | None:
    """What the call raised, if it did.

    Raises:
        PoolBroken: it was not done.
    """
    try:
        error = future.exception()
    except CancelledError:
        raise PoolBroken("the worker pool was closed") from None
    if error is not None and (isinstance(error, BrokenExecutor) or type(error).__module__.startswith("loky.")):
        raise PoolBroken(_first_line(error)) from None
    return error


def _first_line(error: BaseException) -> str:
    """What an executor says, without its guesses of why."""
    return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, begun: Any) -> None:
    """What a worker process does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _compute_only()
    _keep_memory()
    import torch

    from edgefl.learning.engine import pool_worker  # noqa: F401  (so that no job waits for it)

    torch.set_num_threads(INTRA_OP_THREADS)
    # The executor has the collector run every second: what is loaded by now need not be looked through.
    gc.freeze()
    begun.release()


def _end_with(parent: int) -> None:
    """End this process when the one that began it has ended, in whatever manner."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


def _compute_only() -> None:
    """Tell the system, so that waking a worker process does not interrupt the process that has yet to wake others."""
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        return  # not Linux, or a container that forbids it; it costs a few milliseconds a call


def _keep_memory() -> None:
    """Keep memory that was let go for the next step: giving it back and taking it anew clears every page."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError, OSError):
        return  # not glibc's
    mallopt(_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
    mallopt(_TRIM_THRESHOLD, 1 << 30)
