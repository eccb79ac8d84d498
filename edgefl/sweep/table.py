"""The results of a sweep as one tidy table: one row for each job, method and seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from edgefl.experiment.pausing import read_pauses
from edgefl.record import RunPaths
from edgefl.record.paths import is_interrupted
from edgefl.record.summary import SeedResult, is_summary, read_summary
from edgefl.record.tables import sweep_row, table_of
from edgefl.sweep.jobs import Job


def sweep_table(jobs: Sequence[Job], folder: Path) -> pa.Table:
    """Return the table of all finished or paused jobs in a folder, in the order of settings, methods and seeds."""
    paths = list(dict.fromkeys(path for job in jobs for path in job.setting))
    columns = {path: _column([job.setting.get(path) for job in jobs]) for path in paths}
    rows = []
    for number, job in enumerate(jobs):
        given = {path: column[number] for path, column in columns.items()}
        figures = figures_by_method(job, folder / job.id)
        rows += [sweep_row(job.id, given, label, each) for label, found in figures.items() for each in found]
    order = {label: place for place, label in enumerate(dict.fromkeys(row["method"] for row in rows))}
    settings = [dict(job.setting) for job in jobs]
    place = {job.id: settings.index(setting) for job, setting in zip(jobs, settings, strict=True)}
    rows.sort(key=lambda row: (place[row["job"]], order[row["method"]]))  # stable: seeds keep their order
    return table_of(rows)


def is_done(job: Job, folder: Path) -> bool:
    """Whether a job is finished, or has reached its pause."""
    if is_summary(RunPaths(folder).summary) and not is_interrupted(folder):
        return True
    name = job.pause and job.pause.name
    return name is not None and all(
        name in read_pauses(RunPaths(folder).of(label, job.seed).pauses) for label in job.methods
    )


def figures_by_method(job: Job, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of each method in a job's run directory: at its end, at ``job.pause`` or at its last pause.

    A job that ended before its pause has only its final figures, and a job that failed before its pause has none. If
    ``job.pause`` is not given, the last pause that the job reached counts.
    """
    found = {}
    summary = RunPaths(folder).summary
    ended = read_summary(summary)[1].methods if is_summary(summary) else {}
    for label in job.methods:
        pauses = read_pauses(RunPaths(folder).of(label, job.seed).pauses)
        if job.pause is not None and job.pause.name in pauses:
            found[label] = [pauses[job.pause.name]]
        elif label in ended:
            found[label] = [figures_of(entry) for entry in ended[label]]
        elif pauses and job.pause is None:
            found[label] = [list(pauses.values())[-1]]
    return found


def _column(values: list[Any]) -> list[Any]:
    """Return numbers as floats if all values are numbers, else all values as text, so that a column has one type."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values]
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def figures_of(entry: SeedResult) -> dict[str, Any]:
    """Return one run's entry in a summary as the columns of a row."""
    row: dict[str, Any] = {
        "seed": entry.seed,
        "stop": entry.stop.reason,
        "rounds": entry.rounds,
        "rounds_without_update": entry.rounds_without_update,
        "refused": entry.refused,
        "seconds": entry.seconds,
        **{f"accuracy_{name}": getattr(entry.accuracy, name) for name in ("final", "best", "ema")},
        **{f"metric_{name}": getattr(entry.metric, name) for name in ("final", "best", "ema")},
        **{f"bytes_{name}": getattr(entry.bytes, name) for name in ("down", "up", "wasted")},
        "flops": entry.flops,
        "joules": entry.joules,
    }
    for target in entry.targets:
        row[f"seconds_to_{target.value:g}"] = target.seconds
        row[f"bytes_to_{target.value:g}"] = target.bytes
    for budget in entry.budgets:
        row[f"{entry.metric.name}_within_{budget.kind}"] = budget.metric
    return row
