"""Run a sweep or a search, in worker processes or on Ray, and write its table."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from edgefl.errors import UserError
from edgefl.files import read_json, write_file
from edgefl.hardware import cores
from edgefl.record import RunPaths
from edgefl.record.figures import at, flat
from edgefl.record.names import SWEEP, SWEEP_LOCK, SWEEP_TABLE
from edgefl.record.paths import is_interrupted
from edgefl.record.summary import SeedResult, is_summary, read_summary
from edgefl.record.tables import write_parquet
from edgefl.sweep.jobs import Done, Job, Search, check_folder, run_job
from edgefl.sweep.over_ray import run_all_on_ray
from edgefl.training.parallel.worker_pool import PoolBroken, WorkerPool


def sweep_table(jobs: Sequence[Job], folder: Path) -> pa.Table:
    """Return the table of all finished jobs, by settings, methods and seeds; a figure that a row lacks is null."""
    paths = list(dict.fromkeys(path for job in jobs for path in job.setting))
    columns = {path: _column([job.setting.get(path) for job in jobs]) for path in paths}
    rows = []
    for number, job in enumerate(jobs):
        given = {"job": job.id, **{path: column[number] for path, column in columns.items()}}
        rows += [{**given, "method": label, **found} for label, found in figures_by_method(job, folder).items()]
    order = {label: place for place, label in enumerate(dict.fromkeys(row["method"] for row in rows))}
    settings = [dict(job.setting) for job in jobs]
    place = {job.id: settings.index(setting) for job, setting in zip(jobs, settings, strict=True)}
    rows.sort(key=lambda row: (place[row["job"]], order[row["method"]]))  # stable: seeds keep their order
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def figures_by_method(job: Job, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the figures of each method of a job, whose run directory is in a folder; none of a job that failed."""
    summary = RunPaths(folder / job.id).summary
    ended = read_summary(summary)[1].methods if is_summary(summary) else {}
    return {label: figures_of(ended[label][0]) for label in job.methods if label in ended}


def _column(values: list[Any]) -> list[Any]:
    """Return numbers as floats if all values are numbers, else all values as text, so that a column has one type."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values]
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def figures_of(entry: SeedResult) -> dict[str, Any]:
    """Return one run's entry in a summary as the columns of a row."""
    places = [f"{of}.{name}" for of in ("accuracy", "metric") for name in ("final", "best", "ema")]
    row: dict[str, Any] = {"seed": entry.seed, "stop": entry.stop.reason}
    row |= {**{place.replace(".", "_"): at(entry, place) for place in places}, **flat(entry)}
    for target in entry.targets:
        row[f"seconds_to_{target.value:g}"] = target.seconds
        row[f"bytes_to_{target.value:g}"] = target.bytes
    for budget in entry.budgets:
        row[f"{entry.metric.name}_within_{budget.kind}"] = budget.metric
    return row


@dataclass(frozen=True)
class SweepResult:
    """The folder of a sweep, its jobs, the content of its ``sweep.parquet``, and why jobs failed, by their ids."""

    path: Path
    jobs: list[Job]
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
    """Run all jobs that are not finished, and write the table: a search of one step, identified by its jobs."""
    identity = list(dict.fromkeys(job.id for job in jobs))
    return search(_one_step(jobs), identity, out, processes=processes, cluster=cluster, done=done)


def _one_step(jobs: Sequence[Job]) -> Search:
    yield list(jobs)


def search(
    steps: Search,  # yields jobs, and receives the figures of each
    identity: Sequence[str],  # texts that identify this search
    out: Path,  # its folder; new, empty, or that of the same search
    *,
    processes: int | None = None,  # how many jobs run at the same time; by default as many as there are processors
    cluster: bool = False,  # run them on a Ray cluster; the table is the same as with local processes
    # called with each finished job, why it failed or None, and how many of the step remain
    done: Callable[[Job, str | None, int], None] | None = None,
) -> SweepResult:
    """Run the jobs that a search yields, step by step, and write the table of all jobs.

    A search uses only results on disk, so after an interruption it yields the same jobs again. Jobs that finished
    earlier are not run again; an interrupted one is resumed.
    """
    folder = out / "jobs"
    failures: dict[str, str] = {}
    asked: dict[tuple[str, str], Job] = {}

    def run(jobs: Sequence[Job]) -> list[dict[str, dict[str, Any]]]:
        unique = {job.id: job for job in jobs}
        for id, job in unique.items():
            check_folder(job, folder / id)
        ended = [id for id in unique if is_summary(RunPaths(folder / id).summary) and not is_interrupted(folder / id)]
        left = {id: job for id, job in unique.items() if id not in ended}

        def one_done(job: Job, failure: str | None) -> None:
            left.pop(job.id)
            if failure is not None:
                failures[job.id] = failure
            if done is not None:
                done(job, failure, len(left))

        execute = run_all_on_ray if cluster else run_all
        execute(list(left.values()), folder, processes, one_done)
        asked.update({(job.id, repr(job.setting)): job for job in jobs})
        return [figures_by_method(job, folder) for job in jobs]

    with _taken(out, list(identity)):
        with suppress(StopIteration):
            jobs = next(steps)
            while True:
                jobs = steps.send(run(jobs))
        every = list(asked.values())
        table = sweep_table(every, folder)
        write_parquet(table, out / SWEEP_TABLE)
    return SweepResult(out, every, table, failures)


def run_all(jobs: Sequence[Job], folder: Path, processes: int | None, done: Done) -> None:
    """Run the jobs in worker processes with one thread each; if a process dies, only its job fails.

    One job per processor does not slow down the others then. ``folder`` has their run directories, by job id.
    """
    left = dict(enumerate(jobs))

    def finished(number: int, failure: str | None) -> None:
        done(left.pop(number), failure)

    try:
        _run(left, folder, processes or cores(), finished)
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
        calls = {number: (run_job, (job, folder / job.id)) for number, job in jobs.items()}
        numbers = iter(list(jobs))  # of which finished ones are removed
        pool.each(lambda: next(numbers, None), calls.__getitem__, finished, pool.size)
    finally:
        pool.close()  # unfinished run directories can be resumed, so the processes need not finish


@contextmanager
def _taken(out: Path, ids: list[str]) -> Iterator[None]:
    lock, state = FileLock(out / SWEEP_LOCK), out / SWEEP

    def check() -> None:
        if state.exists() and read_json(state) != {"jobs": ids}:
            raise UserError("this folder contains another sweep; choose another folder", file=f"--out {out}")
        if not state.exists() and out.exists() and not set(os.listdir(out)) <= {SWEEP_LOCK}:
            raise UserError("expected a new or empty folder, or the folder of the same sweep", file=f"--out {out}")

    try:
        check()  # write nothing into a folder with other contents; checked again under the lock
        out.mkdir(parents=True, exist_ok=True)
        with lock.acquire(timeout=0):
            check()
            write_file(state, json.dumps({"jobs": ids}))
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
