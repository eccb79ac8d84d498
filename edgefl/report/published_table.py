"""A run and its paper's numbers as plain cells and as records, from which all formats are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgefl.report.grid import Cell, Grid, Head, Table
from edgefl.report.published import Comparison, cells, comparisons, orderings, shortened
from edgefl.report.rows import described, run_names
from edgefl.report.run_result import RunResult


def published_table(runs: Sequence[RunResult]) -> Table:
    """Published numbers, ours and the gaps; below them whether the paper's order holds.

    Raises:
        UserError: a run's scenario has no published numbers.
    """
    several = len(runs) > 1
    heads = [Head("run", text=True)] * several + [Head("method", text=True), Head("metric", text=True)]
    heads += [Head("published"), Head("ours"), Head("gap"), Head("source", text=True)]
    rows, notes = [], []
    records: list[dict[str, object]] = []
    orders, remarks = [], []
    for name, run in zip(run_names(runs), runs, strict=True):
        found, start = comparisons(run), f"{name}: " if several else ""
        ordered = orderings(found)
        shorter = [note] if (note := shortened(run)) else []
        rows += [[*([Cell(name)] * several), *map(Cell, cells(each))] for each in found]
        notes += [f"{start}{line}" for line in [*shorter, *ordered]]
        records += [_record(name, each) for each in found]
        orders.append({"run": name, "sentences": ordered})
        remarks += [f"{name}: {line}" for line in shorter]
    data = {"runs": described(runs), "rows": records, "orders": orders, "notes": remarks}
    return Table(Grid(heads, rows, notes), records, data)


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
