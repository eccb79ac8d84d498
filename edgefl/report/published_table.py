"""A run and its paper's numbers as plain cells and as records, from which all formats are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgefl.report.formats import plain_text, written
from edgefl.report.grid import Cell, Grid, Head
from edgefl.report.published import Comparison, cells, comparisons, orderings, shortened
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult


def published_grid(runs: Sequence[RunResult]) -> Grid:
    """Published numbers, ours and the gaps; below them whether the paper's order holds.

    Raises:
        UserError: a run's scenario has no published numbers.
    """
    several = len(runs) > 1
    heads = [Head("run", text=True)] * several + [Head("method", text=True), Head("metric", text=True)]
    heads += [Head("published"), Head("ours"), Head("gap"), Head("source", text=True)]
    rows, notes = [], []
    for name, run in zip(run_names(runs), runs, strict=True):
        found = comparisons(run)
        rows += [[*([Cell(name)] * several), *map(Cell, cells(each))] for each in found]
        note = shortened(run)
        start = f"{name}: " if several else ""
        notes += [f"{start}{line}" for line in [*([note] if note else []), *orderings(found)]]
    return Grid(heads, rows, notes)


def published_records(runs: Sequence[RunResult]) -> list[dict[str, object]]:
    """One record for each published number, in base units; ``None`` where there is no figure.

    Raises:
        UserError: a run's scenario has no published numbers.
    """
    return [_record(name, each) for name, run in zip(run_names(runs), runs, strict=True) for each in comparisons(run)]


def published_csv(runs: Sequence[RunResult]) -> str:
    """The records as comma-separated values.

    Raises:
        UserError: a run's scenario has no published numbers.
    """
    records = published_records(runs)
    return written(
        [
            {name: plain_text(value) if isinstance(value, str) else value for name, value in each.items()}
            for each in records
        ]
    )


def _record(run: str, found: Comparison) -> dict[str, object]:
    return {
        "run": run,
        "method": found.method,
        "metric": found.metric,
        "dimension": found.dimension,
        "published": found.published,
        "bound": found.bound,
        # Without a number, the paper gives only a rank.
        "rank": round(found.order) if found.published is None else None,
        "ours": _finite(found.ours),
        "gap": _finite(found.gap),
        "source": found.source,
    }


def _finite(value: float | None) -> float | None:
    """The value if it is finite, because JSON has no infinity or NaN, which a loss may be."""
    return value if value is not None and math.isfinite(value) else None
