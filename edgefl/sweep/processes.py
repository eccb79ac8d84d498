"""Run jobs in local processes with one thread each, so that one job per processor does not slow down the others."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from edgefl.sweep.jobs import Job, run_job

Done = Callable[[Job, str | None], None]


def run_all(jobs: Sequence[Job], folder: Path, processes: int, done: Done) -> None:
    """Run the jobs; if a process dies, only its job fails.

    Args:
        jobs: the jobs to run.
        folder: contains a run directory for each job, named by its id.
        processes: how many run at the same time.
        done: called with each finished job, and why it failed or ``None``.
    """
    left = {job.id: job for job in jobs}

    def finished(job: Job, failure: str | None) -> None:
        left.pop(job.id)
        done(job, failure)

    if not _run(list(left.values()), folder, processes, finished):
        # A process died, which breaks the whole pool. Run each remaining job alone to find the one that fails.
        for job in list(left.values()):
            if not _run([job], folder, 1, finished):
                finished(job, "its process died, possibly because memory ran out")


def _run(jobs: Sequence[Job], folder: Path, processes: int, done: Done) -> bool:
    """Run the jobs in a pool; return false if a process of the pool died."""
    if not jobs:
        return True
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(jobs)), context, initializer=_begin)
    try:
        futures = {pool.submit(run_job, job, folder / job.id): job for job in jobs}
        for future in _as_completed(futures):
            done(futures[future], future.result())
    except BrokenProcessPool:
        return False
    except BaseException:
        # Their run directories can be resumed, so the processes need not finish.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return True


def _as_completed(futures: Iterable[Future[str | None]]) -> Iterator[Future[str | None]]:
    """Yield futures as they complete; successful ones before those whose process died."""
    waiting = set(futures)
    while waiting:
        ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from sorted(ready, key=lambda future: future.exception() is not None)


def _begin() -> None:
    """Use one thread for arithmetic, and exit when the parent process ends."""
    import torch

    torch.set_num_threads(1)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
