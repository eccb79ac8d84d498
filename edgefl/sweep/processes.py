"""Run jobs in worker processes with one thread each, so that one job per processor does not slow down the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edgefl.sweep.jobs import Job, run_job
from edgefl.training.parallel.worker_pool import PoolBroken, WorkerPool

Done = Callable[[Job, str | None], None]


def run_all(jobs: Sequence[Job], folder: Path, processes: int, done: Done) -> None:
    """Run the jobs; if a process dies, only its job fails.

    Args:
        jobs: the jobs to run.
        folder: contains a run directory for each job, named by its id.
        processes: how many run at the same time.
        done: called with each finished job, and why it failed or ``None``.
    """
    left = dict(enumerate(jobs))

    def finished(number: int, failure: str | None) -> None:
        done(left.pop(number), failure)

    try:
        _run(left, folder, processes, finished)
    except PoolBroken:
        # Run each remaining job alone to find the one whose process dies.
        for number in list(left):
            try:
                _run({number: left[number]}, folder, 1, finished)
            except PoolBroken:
                finished(number, "its process died, possibly because memory ran out")


def _run(jobs: dict[int, Job], folder: Path, processes: int, finished: Callable[[int, str | None], None]) -> None:
    if not jobs:
        return
    pool = WorkerPool(min(processes, len(jobs)))
    try:
        calls = [(number, (run_job, (job, folder / job.id))) for number, job in jobs.items()]
        pool.each(calls, finished, pool.size)
    finally:
        pool.close()  # unfinished run directories can be resumed, so the processes need not finish
