"""Run jobs on the machines of a Ray cluster, each in its own process with one thread."""

import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from edgefl.files import write_file, writing_folder
from edgefl.sweep.jobs import Done, Job, run_job

Files = Mapping[str, bytes]
"""The contents of the files of a folder, by path relative to it."""


Returned = tuple[str | None, Files | None]
"""What a worker returns: why the job failed or ``None``, and its run directory if only the worker has it."""


def run_all_on_ray(jobs: Sequence[Job], folder: Path, at_once: int | None, done: Done) -> None:
    """Run the jobs; if a worker or its machine is lost, another worker continues its job.

    If a worker has access to ``folder`` (on the same machine or a shared disk), it writes there, and an interrupted job
    continues from its last checkpoint. Otherwise run directories are copied to the worker and back, and the job of a
    lost worker starts again from the last copy returned. ``at_once`` jobs run at the same time, by default as many as
    the cluster has processors.
    """
    if not jobs:
        return
    from edgefl.training.engine_spec import choose_device
    from edgefl.training.engines.ray import connected, needs

    ray = connected()
    work = ray.remote(**needs(ray, choose_device(jobs[0].device)))(run_there)
    folder.mkdir(parents=True, exist_ok=True)
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
    """Run a job on a worker; ``place`` is its run directory, with ``files``, on the machine that submits the job.

    The file ``sign`` exists only where ``place`` is accessible.
    """
    import torch

    torch.set_num_threads(1)
    if sign.exists():
        return run_job(job, place), None
    with tempfile.TemporaryDirectory() as own:
        here = Path(own) / job.id
        if files:
            _write(files, here)
        return run_job(job, here), _read(here)


def _taken(ray: Any, reference: Any, place: Path) -> str | None:
    """Return why a job failed, or ``None``, after copying its run directory to ``place`` if the worker returned it."""
    try:
        failure, files = cast("Returned", ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        return f"{type(error.cause).__name__}: {error.cause}"
    except ray.exceptions.RayError as error:
        return f"its worker was lost repeatedly, possibly because memory ran out ({type(error).__name__})"
    if files:
        with writing_folder(place) as whole:
            _write(files, whole)
            shutil.rmtree(place, ignore_errors=True)
    return failure


def _read(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
