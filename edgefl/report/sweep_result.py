"""A finished sweep as one run for each of its settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefl.errors import UserError
from edgefl.record import SeedPaths
from edgefl.record.names import SWEEP_TABLE
from edgefl.record.tables import read_settings
from edgefl.report.rows import short_paths
from edgefl.report.run_result import RunResult
from edgefl.wording import grouped


class SettingResult(RunResult):
    """The result of one setting of a sweep: the runs of its jobs, one or more seeds each, combined.

    ``name`` is the setting as text, such as ``lr=0.05``, ``folder`` the sweep's.
    """

    def __init__(self, name: str, setting: Mapping[str, Any], runs: Sequence[RunResult], folder: Path) -> None:
        self.setting = dict(setting)
        first = runs[0]
        self.path, self.given = first.path, folder
        self.summary = {**first.summary, "scenario": name}
        every = [(label, each, run) for run in runs for label, results in run.results.items() for each in results]
        by_label = grouped((label, each) for label, each, _ in every)
        self.results = {label: tuple(sorted(found, key=lambda each: each.seed)) for label, found in by_label.items()}
        self.scenario = first.scenario
        self._runs = {(label, each.seed): run for label, each, run in every}

    @property
    def names(self) -> tuple[str, str, str]:
        """See :class:`RunResult`; the folder is the sweep's."""
        return self.name, f"{self.given.resolve().name}: {self.name}", f"{self.given}: {self.name}"

    def of(self, label: str, seed: int) -> SeedPaths:
        return self._runs[label, seed].of(label, seed)


def results_in(path: Path, *, together: bool = True) -> list[RunResult]:
    """The run of a run directory; of a sweep's folder, one for each setting, or unless ``together`` for each job."""
    file = path / SWEEP_TABLE
    if not file.is_file():
        return [RunResult(path)]

    def named(setting: Mapping[str, Any]) -> str:
        short = short_paths(list(setting))
        texts = [each if isinstance(each, str) else json.dumps(each, default=str) for each in setting.values()]
        return ", ".join(map("=".join, zip(short.values(), texts, strict=True))) or path.resolve().name

    jobs = grouped((named(setting), (setting, job)) for job, setting in read_settings(file).items())
    if not jobs:
        raise UserError("expected the jobs of a sweep, found none", file=str(file))
    runs = {name: [RunResult(path / "jobs" / job) for _, job in of] for name, of in jobs.items()}
    if not together:
        return [run for each in runs.values() for run in each]
    return [SettingResult(name, jobs[name][-1][0], each, path) for name, each in runs.items()]
