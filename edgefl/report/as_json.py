"""The tables as JSON: base units, full precision, ``null`` where there is no figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgefl.report.paper import paper_rows
from edgefl.report.published import comparisons, orderings, shortened
from edgefl.report.published_table import published_records
from edgefl.report.rows import Row, comparison_rows, notes, run_names
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate, TimeToTarget
from edgefl.report.sweep_result import SettingResult
from edgefl.report.verdict import verdict

SCHEMA = 1
"""Increased when a key is renamed or changes its meaning; new keys do not increase it."""

_IN_SUMMARY = {"personalised": "personalisation", "by images": "cumulative", "worst tenth": "worst_tenth"}
"""Names in ``summary.json`` that differ from the table's headings."""


def comparison_json(runs: Sequence[RunResult]) -> str:
    """The comparison: a row for each run and method, and each run's verdict."""
    rows = comparison_rows(*runs)
    described = [_run(name, run) for name, run in zip(run_names(runs), runs, strict=True)]
    return _text({"runs": described, "rows": [_row(row) for row in rows], "notes": notes(rows)})


def paper_json(runs: Sequence[RunResult], at: Sequence[int] = ()) -> str:
    """A paper's layout: smoothed accuracy at rounds, and rounds to each target."""
    return _text(
        {
            "runs": _all_named(runs),
            "rows": [
                {
                    "run": row.run,
                    "method": row.label,
                    "seeds": row.seeds,
                    "rounds": row.ended,
                    "rounds_without_update": _figure(row.compared.without_update),
                    "refused": _figure(row.compared.refused),
                    "accuracy_ema": [{"round": round, **_of(value)} for round, value in row.at.items()],
                    "targets": [{"accuracy": goal, **_to(found, "rounds")} for goal, found in row.to.items()],
                }
                for row in paper_rows(runs, at)
            ],
        }
    )


def published_json(runs: Sequence[RunResult]) -> str:
    """Each run's published numbers and ours, and whether the paper's order holds."""
    named = list(zip(run_names(runs), runs, strict=True))
    orders = [{"run": name, "sentences": orderings(comparisons(run))} for name, run in named]
    remarks = [f"{name}: {note}" for name, run in named if (note := shortened(run))]
    return _text({"runs": _all_named(runs), "rows": published_records(runs), "orders": orders, "notes": remarks})


def _named(name: str, run: RunResult) -> dict[str, str]:
    """The run's name, which depends on the other runs shown, and its path, which does not."""
    return {"run": name, "path": str(run.given)}


def _all_named(runs: Sequence[RunResult]) -> list[dict[str, str]]:
    return [_named(name, run) for name, run in zip(run_names(runs), runs, strict=True)]


def _run(name: str, run: RunResult) -> dict[str, Any]:
    setting = {"setting": run.setting} if isinstance(run, SettingResult) else {}
    return {**_named(name, run), **setting, "verdict": verdict(run).split("\n")}


def _row(row: Row) -> dict[str, Any]:
    record: dict[str, Any] = {
        "run": row.run,
        "method": row.label,
        "seeds": row.seeds,
        "accuracy": {"final": _figure(row.final), "best": _figure(row.best)},
    }
    for (group, kind), value in row.further.items():
        record.setdefault(_IN_SUMMARY.get(group, group), {})[_IN_SUMMARY.get(kind, kind)] = _figure(value)
    record |= {
        "targets": [{"accuracy": goal, **_to(found, "seconds")} for goal, found in row.targets.items()],
        "seconds": _figure(row.seconds),
        "rounds": _figure(row.rounds),
        "rounds_without_update": _figure(row.without_update),
        "refused": _figure(row.refused),
        "bytes": {
            "down": _figure(row.bytes_down),
            "up": _figure(row.bytes_up),
            "wasted": _figure(row.bytes_wasted),
        },
        "joules": _figure(row.joules),
        "communication": {
            "exposed_seconds": _figure(row.exposed_seconds),
            "hidden_seconds": _figure(row.hidden_seconds),
        },
    }
    if row.down_actual is not None:
        record["blocks"] = {
            "actual": _figure(row.down_actual),
            "uniform": _figure(row.down_uniform),
            "front_age": _figure(row.front_age),
        }
    record["stop"] = [
        {"reason": reason, "seeds": count, "message": row.messages.get(reason)} for reason, count in row.stops
    ]
    return record


def _figure(value: Estimate | None) -> dict[str, float | None] | None:
    return None if value is None else _of(value)


def _of(value: Estimate | None) -> dict[str, float | None]:
    return {"mean": value and value.mean, "half_width": value and value.half_width}


def _to(found: TimeToTarget, unit: str) -> dict[str, Any]:
    return {"reached": found.reached, unit: _figure(found.mean), "median": found.median}


def _text(record: dict[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, **record}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
