"""A finished sweep, read as one run for each of its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.errors import UserError
from edgefl.report.run_result import RunResult
from edgefl.report.summary import SeedResult

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "sweep.parquet"


class SettingResult(RunResult):
    """What one setting of a sweep found: the runs of its seeds together.

    Args:
        name: the setting, as ``training.local.lr=0.05``.
        setting: the same, as the value of each path that the sweep varied.
        runs: its jobs' runs, one or more seeds each.
        folder: the sweep's.

    Attributes:
        setting: as given.
    """

    def __init__(self, name: str, setting: Mapping[str, Any], runs: Sequence[RunResult], folder: Path) -> None:
        self.setting = dict(setting)
        first = runs[0]
        self.path, self.given = first.path, folder
        self.summary = {**first.summary, "scenario": name}
        self.results: dict[str, tuple[SeedResult, ...]] = {
            label: tuple(sorted((each for run in runs for each in run.results.get(label, ())), key=_seed))
            for label in dict.fromkeys(label for run in runs for label in run.results)
        }
        self.scenario: dict[str, Any] = first.scenario
        self._runs = {(label, each.seed): run for run in runs for label in run.results for each in run.results[label]}

    def rounds_of(self, label: str, seed: int) -> pa.Table:
        """See :class:`RunResult`."""
        return self._runs.get((label, seed), next(iter(self._runs.values()))).rounds_of(label, seed)


def _as_said(value: Any) -> Any:
    """Numbers of a column are all of one type; whole ones were hardly said with a decimal."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _seed(result: SeedResult) -> int:
    return result.seed


def results_in(path: Path, *, together: bool = True) -> list[RunResult]:
    """The run of a run directory; of a sweep's folder, one for each setting that has finished jobs.

    Args:
        path: what ``edgefl simulate`` or ``edgefl sweep`` wrote.
        together: the seeds of a setting are one result; else every job's run is one.

    Raises:
        UserError: the folder is neither, or not finished.
    """
    if not (path / TABLE).is_file():
        return [RunResult(path)]
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path / TABLE)
        varied = table.column_names[1 : table.column_names.index("method")]
        rows = table.select(["job", *varied]).to_pylist()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UserError(f"cannot be read: {str(error).splitlines()[0]}", file=str(path / TABLE)) from None
    settings: dict[str, dict[str, Any]] = {}
    jobs: dict[str, list[str]] = {}
    for row in rows:
        job = row.pop("job")
        setting = {name: _as_said(value) for name, value in row.items()}
        said = (f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in setting.items())
        name = ", ".join(said) or path.resolve().name
        settings[name] = setting
        if job not in jobs.setdefault(name, []):
            jobs[name].append(job)
    runs = {name: [RunResult(path / "jobs" / job) for job in named] for name, named in jobs.items()}
    if not together:
        return [run for each in runs.values() for run in each]
    return [SettingResult(name, settings[name], each, path) for name, each in runs.items()]
