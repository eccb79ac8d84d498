"""Jobs over the machines of a Ray cluster, each in a process of its own with one thread."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from edgefl.durable_file import durable_folder, make_folder, write_durably
from edgefl.sweep.jobs import Job, run_job
from edgefl.sweep.processes import Done

Files = Mapping[str, bytes]
"""What a folder holds, by path below it."""


class Returned(NamedTuple):
    """What a worker says of a job: why it failed if it did, and its run directory where only the worker has it."""

    failure: str | None
    files: Files | None


def run_all_on_ray(jobs: Sequence[Job], folder: Path, at_once: int | None, done: Done) -> None:
    """Run the jobs; one whose worker or machine is lost is gone on with by another.

    Where a worker sees ``folder`` (on this machine, or on a shared disk) it works there, and an interrupted job is
    gone on with from its last checkpoint. Else run directories travel to the worker and back, and a lost worker's job
    starts again from what had come back.

    Args:
        jobs: what to run.
        folder: holds a run directory for each job, by its id.
        at_once: how many run at a time; as many as the cluster has processors if not given.
        done: told of each finished job, and why it failed if it did.

    Raises:
        UserError: Ray is not installed, or its cluster cannot be used.
    """
    if not jobs:
        return
    from edgefl.training.device import choose_device
    from edgefl.training.ray.cluster import joined, needs

    ray = joined()
    work = ray.remote(**needs(ray, choose_device(jobs[0].device)))(run_there)
    make_folder(folder)
    sign = folder.parent / f"shared-{uuid.uuid4().hex}"
    sign.touch()
    waiting = list(jobs)
    running: dict[Any, Job] = {}
    try:
        while waiting or running:
            while waiting and (at_once is None or len(running) < at_once):
                job = waiting.pop(0)
                place = folder / job.id
                running[work.remote(job, place.absolute(), sign.absolute(), _read(place))] = job
            (ready,), _ = ray.wait(list(running), num_returns=1)
            job = running.pop(ready)
            done(job, _taken(ray, ready, folder / job.id))
    finally:
        sign.unlink(missing_ok=True)


def run_there(job: Job, place: Path, sign: Path, files: Files) -> Returned:
    """Run a job on a worker.

    Args:
        job: the job.
        place: its run directory on the machine that asks.
        sign: a file that is seen where ``place`` is.
        files: what ``place`` holds.
    """
    import torch

    torch.set_num_threads(1)
    if sign.exists():
        return Returned(run_job(job, place), None)
    with tempfile.TemporaryDirectory() as own:
        here = Path(own) / job.id
        if files:
            _write(files, here)
        failure = run_job(job, here)
        return Returned(failure, _read(here))


def _taken(ray: Any, reference: Any, place: Path) -> str | None:
    """Why a job failed, if it did; its run directory is in place then, wherever it was made."""
    try:
        returned: Returned = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return f"{type(error.cause).__name__}: {error.cause}"
    except ray.exceptions.RayError as error:
        return f"its worker was lost again and again, perhaps for want of memory ({type(error).__name__})"
    if returned.files:
        with durable_folder(place) as whole:
            _write(returned.files, whole)
            shutil.rmtree(place, ignore_errors=True)
    return returned.failure


def _read(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if _is_file(path)}


def _is_file(path: Path) -> bool:
    """Whether a file lies there, rather than a link to one elsewhere."""
    return path.is_file() and not path.is_symlink()


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        make_folder(path.parent)
        write_durably(path, content)
