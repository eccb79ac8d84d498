"""A sweep from its first job to its table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from edgefl.errors import UserError
from edgefl.experiment.directory import is_interrupted, replace_file
from edgefl.experiment.sweep.jobs import Job
from edgefl.experiment.sweep.over_ray import run_all_on_ray
from edgefl.experiment.sweep.processes import processors, run_all
from edgefl.experiment.sweep.table import sweep_table

STATE = "sweep.json"
TABLE = "sweep.parquet"


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        path: its folder.
        table: what ``sweep.parquet`` holds.
        failures: why jobs failed, by their id.
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

    Jobs that were finished before count; an interrupted one goes on where it was.

    Args:
        jobs: see :func:`~edgefl.experiment.sweep.jobs.jobs_of`.
        out: the sweep's folder; new, empty, or that of the same sweep.
        processes: jobs at a time; as many as there are processors if not given.
        cluster: run them over a Ray cluster; the table is the same as over local processes.
        done: told of each job that finished, why it failed if it did, and how many are still to come.

    Raises:
        UserError: the folder holds something else, or there is no such cluster.
    """
    unique = {job.id: job for job in jobs}
    _take(out, list(unique))
    folder = out / "jobs"
    failures: dict[str, str] = {}
    left = {id: job for id, job in unique.items() if not _finished(folder / id)}

    def one_done(job: Job, failure: str | None) -> None:
        left.pop(job.id)
        if failure is not None:
            failures[job.id] = failure
        if done is not None:
            done(job, failure, len(left))

    if cluster:
        run_all_on_ray(list(left.values()), folder, processes, one_done)
    else:
        run_all(list(left.values()), folder, processes or processors(), one_done)
    table = sweep_table(jobs, folder)
    written = out / f"{TABLE}.unfinished"
    pq.write_table(table, written)
    written.replace(out / TABLE)
    return SweepResult(out, table, failures)


def _finished(folder: Path) -> bool:
    return (folder / "summary.json").exists() and not is_interrupted(folder)


def _take(out: Path, ids: list[str]) -> None:
    """Make the folder, or see that it holds this sweep."""
    state = out / STATE
    try:
        if state.exists():
            if json.loads(state.read_text(encoding="utf-8")) != {"jobs": ids}:
                raise UserError("this folder holds another sweep; choose another", file=f"--out {out}")
            return
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError("expected a new or an empty folder, or that of the same sweep", file=f"--out {out}")
        (out / "jobs").mkdir(parents=True)
        replace_file(state, json.dumps({"jobs": ids}))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot be used: {reason}", file=f"--out {out}") from None
