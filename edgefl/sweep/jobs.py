"""The jobs of a sweep: one setting with one seed and all methods, in its own run directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.errors import EdgeflError, UserError
from edgefl.experiment.inputs import digest_of_scenario
from edgefl.experiment.pausing import Pause, Paused
from edgefl.experiment.run import resume, run
from edgefl.record import RunPaths
from edgefl.record.paths import is_interrupted
from edgefl.record.summary import is_summary, read_summary
from edgefl.scenario import Scenario, load_scenario, rehearse, resolve, with_overrides
from edgefl.scenario.loading import check
from edgefl.scenario.overrides import of_engine, parse_overrides
from edgefl.sweep.settings import Setting
from edgefl.yaml_file import read_yaml


@dataclass(frozen=True)
class Job:
    """One setting with one seed.

    Attributes:
        id: twelve hexadecimal digits, a hash of everything that it depends on; equal jobs share an id and run once.
        setting: the values that it changes in the scenario.
        seed: its seed.
        scenario: the whole scenario as plain data.
        methods: labels to run.
        device, train: as for :func:`edgefl.experiment.run`.
        pause: when to pause it; not part of the id.
    """

    id: str
    setting: Setting
    seed: int
    scenario: dict[str, Any]
    methods: tuple[str, ...]
    device: str
    train: bool
    pause: Pause | None = None


def jobs_of(
    path_or_name: str,
    changes: Sequence[str],
    settings: Sequence[Setting],
    *,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    device: str = "auto",
    engine: str | None = None,
    train: bool = True,
    option: str = "sweep:",
) -> list[Job]:
    """Return all jobs, setting by setting and seed by seed; every scenario is checked before the first job runs.

    Jobs run in parallel, so a job whose scenario has the engine ``auto`` or ``ray`` trains sequentially unless
    ``engine`` is given. ``option`` is where the settings' values were given, for messages.

    Raises:
        UserError: a setting does not fit the scenario.
    """
    jobs = []
    for setting in settings:
        texts = [f"{path}={json.dumps(value)}" for path, value in setting.items()]
        overrides = [*parse_overrides(changes), *parse_overrides(texts, option)]
        scenario = load_scenario(path_or_name, overrides)
        scenario = scenario.with_seeds(seeds) if seeds else scenario
        kind = scenario.training.engine.kind
        chosen = engine or ("sequential" if kind in {"auto", "ray"} else kind)
        scenario = with_overrides(scenario, of_engine(chosen))
        labels = tuple(scenario.method(label).label for label in methods or [each.label for each in scenario.methods])
        rehearse(scenario, file=path_or_name, overrides=overrides)
        for seed in scenario.seeds:
            data = {**resolve(scenario.with_seeds([seed])), "sweep": None}
            everything = json.dumps([data, labels, device, train], sort_keys=True)
            id = hashlib.blake2b(everything.encode(), digest_size=6).hexdigest()
            jobs.append(Job(id, setting, seed, data, labels, device, train))
    return jobs


def scenario_of(job: Job) -> Scenario:
    """Return the job's scenario."""
    return check(job.scenario, file=job.id)


def check_folder(job: Job, folder: Path) -> None:
    """Check that a folder is empty or contains the run of this job, finished or not.

    Raises:
        UserError: it contains the run of another scenario or of another schema, or a damaged one.
    """
    paths = RunPaths(folder)
    file = paths.scenario
    again = "delete this folder to run the job again"
    if file.exists():
        found = read_yaml(file)
        if not isinstance(found, dict) or digest_of_scenario(found) != digest_of_scenario(resolve(scenario_of(job))):
            raise UserError(f"expected the scenario of sweep job {job.id}, found another; {again}", file=str(file))
    if file.exists() and not is_summary(paths.summary) and not is_interrupted(folder):
        raise UserError(f"expected the results of sweep job {job.id}, found none; {again}", file=str(paths.summary))
    if is_summary(paths.summary):
        try:
            _, summary = read_summary(paths.summary)
        except UserError as error:
            raise UserError(f"{error.message.partition(';')[0]}; {again}", file=str(paths.summary)) from None
        done = {(label, result.seed) for label, results in summary.methods.items() for result in results}
        if not file.exists() or done != {(label, job.seed) for label in job.methods}:
            raise UserError(f"expected the results of sweep job {job.id}, found others; {again}", file=str(folder))


def run_job(job: Job, folder: Path) -> str | None:
    """Run or resume a job, unless it is finished.

    Args:
        job: the job.
        folder: its run directory.

    Returns:
        Why it failed, or ``None``. The run directory is complete even if one method failed.
    """
    try:
        if is_interrupted(folder):
            resume(folder, pause=job.pause)
        elif not is_summary(RunPaths(folder).summary):
            run(
                scenario_of(job),
                out=folder,
                methods=job.methods,
                device=job.device,
                train=job.train,
                pause=job.pause,
            )
    except Paused:
        return None
    except (EdgeflError, OSError) as error:
        return error.message if isinstance(error, UserError) else str(error)
    except Exception as error:  # noqa: BLE001  (the error of one job must not stop the others)
        return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
    return None
