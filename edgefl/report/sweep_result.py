"""A finished sweep as one run for each of its settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefl.errors import UserError
from edgefl.record import SeedPaths
from edgefl.record.names import SWEEP_TABLE
from edgefl.record.summary import SeedResult
from edgefl.report.rows import short_paths
from edgefl.report.run_result import RunResult


class SettingResult(RunResult):
    """The result of one setting of a sweep: the runs of its jobs, one or more seeds each, combined.

    ``name`` is the setting as text, such as ``lr=0.05``, ``folder`` the sweep's.
    """

    def __init__(self, name: str, setting: Mapping[str, Any], runs: Sequence[RunResult], folder: Path) -> None:
        self.setting = dict(setting)
        first = runs[0]
        self.path, self.given = first.path, folder
        self.summary = {**first.summary, "scenario": name}
        self.results: dict[str, tuple[SeedResult, ...]] = {
            label: tuple(
                sorted((each for run in runs for each in run.results.get(label, ())), key=lambda each: each.seed)
            )
            for label in dict.fromkeys(label for run in runs for label in run.results)
        }
        self.scenario: dict[str, Any] = first.scenario
        self._runs = {(label, each.seed): run for run in runs for label in run.results for each in run.results[label]}

    @property
    def names(self) -> tuple[str, str, str]:
        """See :class:`RunResult`; the folder is the sweep's."""
        return self.name, f"{self.given.resolve().name}: {self.name}", f"{self.given}: {self.name}"

    def of(self, label: str, seed: int) -> SeedPaths:
        return self._runs[label, seed].of(label, seed)


def results_in(path: Path, *, together: bool = True) -> list[RunResult]:
    """The run of a run directory; for a sweep's folder, one run for each setting that has finished jobs.

    Unless ``together``, each job's run is one.
    """
    file = path / SWEEP_TABLE
    if not file.is_file():
        return [RunResult(path)]
    from edgefl.record.tables import read_settings

    settings: dict[str, dict[str, Any]] = {}
    jobs: dict[str, list[str]] = {}
    for job, setting in read_settings(file).items():
        short = short_paths(list(setting))
        values = (value if isinstance(value, str) else json.dumps(value, default=str) for value in setting.values())
        name = ", ".join(f"{short[each]}={value}" for each, value in zip(setting, values, strict=True))
        name = name or path.resolve().name
        settings[name] = setting
        jobs.setdefault(name, []).append(job)
    if not jobs:
        raise UserError("expected the jobs of a sweep, found none", file=str(file))
    runs = {name: [RunResult(path / "jobs" / job) for job in named] for name, named in jobs.items()}
    if not together:
        return [run for each in runs.values() for run in each]
    return [SettingResult(name, settings[name], each, path) for name, each in runs.items()]
