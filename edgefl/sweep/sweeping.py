"""Run a sweep or a search, in worker processes or on Ray, and write its table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from filelock import FileLock, Timeout

from edgefl.errors import UserError
from edgefl.files import aside, read_json, write_file
from edgefl.hardware import cores
from edgefl.record.names import SWEEP, SWEEP_LOCK, SWEEP_TABLE
from edgefl.record.tables import write_parquet
from edgefl.sweep.jobs import Done, Job, Search, check_folder, run_job
from edgefl.sweep.over_ray import run_all_on_ray
from edgefl.sweep.table import figures_by_method, is_done, sweep_table
from edgefl.training.parallel.worker_pool import PoolBroken, WorkerPool


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        path: its folder.
        table: the content of ``sweep.parquet``.
        failures: why jobs failed, by job id.
    """

    path: Path
    table: pa.Table
    failures: dict[str, str]


def sweep(
    jobs: Sequence[Job],
    out: Path,
    *,
    processes: int | None = None,
    cluster: bool = False,
    done: Callable[[Job, str | None, int], None] | None = None,
) -> SweepResult:
    """Run all jobs that are not finished, and write the table.

    Jobs that finished earlier are included; an interrupted job is resumed.

    Args:
        jobs: see :func:`~edgefl.sweep.jobs.jobs_of`.
        out: the sweep's folder; new, empty, or that of the same sweep.
        processes: how many jobs run at the same time; by default as many as there are processors.
        cluster: run them on a Ray cluster; the table is the same as with local processes.
        done: called with each finished job, why it failed or ``None``, and how many jobs remain.
    """
    with _taken(out, list(dict.fromkeys(job.id for job in jobs))):
        return _Sweep(out, processes, done, cluster=cluster).all_at_once(jobs)


def search(
    steps: Search,
    identity: Sequence[str],
    out: Path,
    *,
    processes: int | None = None,
    cluster: bool = False,
    done: Callable[[Job, str | None, int], None] | None = None,
) -> SweepResult:
    """Run the jobs that a search yields, step by step, and write the table of all jobs.

    A search uses only results on disk, so after an interruption it yields the same jobs again, and jobs that already
    finished or paused are not run again.

    Args:
        steps: yields jobs, and receives the figures of each.
        identity: texts that identify this search.
        out: the search's folder; new, empty, or that of the same search.
        processes: as for :func:`sweep`.
        cluster: as for :func:`sweep`.
        done: the same; a job may also have paused, and the remaining ones are those of the step.
    """
    with _taken(out, list(identity)):
        return _Sweep(out, processes, done, cluster=cluster).step_by_step(steps)


class _Sweep:
    """Jobs in one folder."""

    def __init__(
        self, out: Path, processes: int | None, done: Callable[[Job, str | None, int], None] | None, *, cluster: bool
    ) -> None:
        self._out = out
        self._folder = out / "jobs"
        self._processes = processes
        self._cluster = cluster
        self._done = done
        self._failures: dict[str, str] = {}

    def all_at_once(self, jobs: Sequence[Job]) -> SweepResult:
        self._run(jobs)
        return self._result(jobs)

    def step_by_step(self, steps: Search) -> SweepResult:
        asked: dict[str, Job] = {}
        try:
            jobs = next(steps)
            while True:
                self._run(jobs)
                asked |= {job.id: replace(job, pause=None) for job in jobs}
                jobs = steps.send([figures_by_method(job, self._folder / job.id) for job in jobs])
        except StopIteration:
            return self._result(list(asked.values()))

    def _run(self, jobs: Sequence[Job]) -> None:
        unique = {job.id: job for job in jobs}
        for id, job in unique.items():
            check_folder(job, self._folder / id)
        left = {id: job for id, job in unique.items() if not is_done(job, self._folder / id)}

        def one_done(job: Job, failure: str | None) -> None:
            left.pop(job.id)
            if failure is not None:
                self._failures[job.id] = failure
            if self._done is not None:
                self._done(job, failure, len(left))

        if self._cluster:
            run_all_on_ray(list(left.values()), self._folder, self._processes, one_done)
        else:
            run_all(list(left.values()), self._folder, self._processes or cores(), one_done)

    def _result(self, jobs: Sequence[Job]) -> SweepResult:
        table = sweep_table(jobs, self._folder)
        write_parquet(table, self._out / SWEEP_TABLE)
        return SweepResult(self._out, table, self._failures)


def run_all(jobs: Sequence[Job], folder: Path, processes: int, done: Done) -> None:
    """Run the jobs in worker processes with one thread each; if a process dies, only its job fails.

    One job per processor does not slow down the others then.

    Args:
        jobs: the jobs to run.
        folder: contains a run directory for each job, named by its id.
        processes: how many run at the same time.
        done: called with each finished job.
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


@contextmanager
def _taken(out: Path, ids: list[str]) -> Iterator[None]:
    """Lock the folder of a sweep for this process."""
    lock = FileLock(out / SWEEP_LOCK)
    try:
        _holds_sweep(out, ids)  # write nothing into a folder with other contents; checked again under the lock
        out.mkdir(parents=True, exist_ok=True)
        with lock.acquire(timeout=0):
            if not _holds_sweep(out, ids):
                (out / "jobs").mkdir(exist_ok=True)
                write_file(out / SWEEP, json.dumps({"jobs": ids}))
            lock.acquire()  # until the sweep ends
    except Timeout:
        raise UserError("another process is working in this folder", file=f"--out {out}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot be used: {reason}", file=f"--out {out}") from None
    try:
        yield
        (out / SWEEP_LOCK).unlink()  # nothing is left to do
    finally:
        lock.release()


def _holds_sweep(out: Path, ids: list[str]) -> bool:
    """Whether the folder contains this sweep; if not, it is empty or does not exist."""
    state = out / SWEEP
    if state.exists():
        if read_json(state) != {"jobs": ids}:
            raise UserError("this folder contains another sweep; choose another folder", file=f"--out {out}")
        return True
    left = {SWEEP_LOCK, "jobs", aside(state).name}  # left by a process that was killed before the sweep began
    if out.exists() and (not out.is_dir() or not set(os.listdir(out)) <= left or _holds_jobs(out)):
        raise UserError("expected a new or empty folder, or the folder of the same sweep", file=f"--out {out}")
    return False


def _holds_jobs(out: Path) -> bool:
    """Whether there are jobs; a killed process may leave the jobs folder empty."""
    jobs = out / "jobs"
    return jobs.exists() and bool(os.listdir(jobs))
