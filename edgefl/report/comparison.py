"""The comparison of runs as a table: a row for each run and method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgefl.report.figures import COST, FIGURES, OUTCOME, Figure, nested
from edgefl.report.grid import (
    Cell,
    Grid,
    Head,
    Table,
    estimate_data,
    estimate_record,
    latex,
    layout,
    markdown,
    target_data,
    target_record,
    written,
)
from edgefl.report.html import render
from edgefl.report.paired import difference_data
from edgefl.report.quantities import limit, unit_for
from edgefl.report.rows import Row, comparison_rows, described, dimension_of, notes
from edgefl.report.run_record import RunRecord
from edgefl.report.verdict import verdict, verdicts

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MISSING = "–"


def comparison(*runs: RunRecord) -> Table:
    """The methods of one or several runs, with every figure of the summaries, and each run's verdict."""
    rows = comparison_rows(*runs)
    shown = [
        {**each, "verdict": verdict(run).split("\n"), "differences": difference_data(run)}
        for each, run in zip(described(runs), runs, strict=True)
    ]
    data = {"runs": shown, "rows": [_data(row) for row in rows], "notes": notes(rows)}
    return Table(comparison_grid(rows), _records(rows), data, verdicts(runs))


def comparison_table(*runs: RunRecord, width: int | None = None) -> RichTable:
    """The methods of one or several runs, with every figure of the summaries.

    Args:
        runs: finished runs.
        width: columns of the terminal; ``None`` for the actual width.
    """
    if width is None:
        from rich.console import Console

        width = Console().width
    return layout(comparison_grid(comparison_rows(*runs)), width)


def as_markdown(rows: Sequence[Row]) -> str:
    """The comparison in GitHub's Markdown, with the notes below it."""
    return markdown(comparison_grid(rows))


def as_latex(rows: Sequence[Row]) -> str:
    """The comparison as a ``tabular`` for the booktabs package, with the notes as comments above it."""
    return latex(comparison_grid(rows))


def as_html(rows: Sequence[Row]) -> str:
    """A plain HTML table with the notes below it; every text is escaped."""
    return render("comparison.html.jinja", compared=comparison_grid(rows))


def as_csv(rows: Sequence[Row]) -> str:
    """Comma-separated values for machines: base units, full precision, an empty field where there is no figure.

    Each quantity has two columns, its mean and the half width of its 95 % interval; each target has four: the mean
    time with its half width, the number of seeds that reached it, and the median over all seeds.
    """
    return written(_records(rows))


def comparison_grid(rows: Sequence[Row]) -> Grid:
    """The comparison as plain cells; a column without any figure is omitted.

    All rows of a column have the same unit, so that the numbers are easy to compare.
    """
    several = len({row.run for row in rows}) > 1
    columns = [
        *([_Column(Head("run", text=True), [Cell(row.run) for row in rows])] * several),
        _Column(Head("method", text=True), [Cell(row.label) for row in rows]),
        *(_figure(figure, rows, "outcome") for figure in OUTCOME if any(row[figure.path] for row in rows)),
        *(_target(goal, rows) for goal in sorted({goal for row in rows for goal in row.targets})),
        *(_figure(figure, rows, "cost") for figure in COST if figure.head and (not figure.rare or _any(figure, rows))),
        _Column(Head("stopped", "by", text=True, section="cost"), [_stop(row) for row in rows]),
    ]
    cells = [list(row) for row in zip(*(column.cells for column in columns), strict=True)]
    return Grid([column.head for column in columns], cells, notes(rows))


def _any(figure: Figure, rows: Sequence[Row]) -> bool:
    """Whether the figure is not 0 in some row."""
    return any(value.mean for row in rows if (value := row[figure.path]))


class _Column(NamedTuple):
    head: Head
    cells: list[Cell]


def _figure(figure: Figure, rows: Sequence[Row], section: str) -> _Column:
    alike = [other.path for other in FIGURES if other.part == figure.part and other.head]
    unit = unit_for(
        [value.mean for row in rows for path in alike if (value := row[path])], dimension_of(figure, rows[0])
    )
    group, detail = figure.head or ("", "")
    if figure.part == "metric":
        group = rows[0].metric.word
    values = [row[figure.path] for row in rows]
    cells = [Cell(unit.number(value.mean), unit.spread(value)) if value else Cell(MISSING) for value in values]
    return _Column(Head(group, ", ".join(filter(None, (detail, unit.symbol))), section=section), cells)


def _target(goal: float, rows: Sequence[Row]) -> _Column:
    found = [row.targets.get(goal) for row in rows]
    unit = unit_for([each.mean.mean if each.mean else each.median or 0.0 for each in found if each], "seconds")
    cells = []
    for each in found:
        if each is None:
            cells.append(Cell(MISSING))
        elif each.mean is not None:
            cells.append(Cell(unit.number(each.mean.mean), unit.spread(each.mean)))
        elif each.reached == 0:
            cells.append(Cell("never"))
        else:
            median = f"median {unit.number(each.median)}" if each.median is not None else ""
            cells.append(Cell(f"{each.reached}/{each.seeds}", median))
    return _Column(Head(f"to {limit(goal, rows[0].metric.dimension)}", unit.symbol, section="outcome"), cells)


def _stop(row: Row) -> Cell:
    if len(row.stops) == 1:
        return Cell(row.stops[0][0])
    first, *rest = (f"{reason} {count}/{row.seeds}" for reason, count in row.stops)
    return Cell(first + ",", ", ".join(rest))


def _records(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Records for CSV; a figure that no method has is omitted."""
    figures = [figure for figure in FIGURES if any(figure.path in row.figures for row in rows)]
    found = []
    for row in rows:
        record: dict[str, object] = {"run": row.run, "method": row.label, "seeds": row.seeds}
        for figure in figures:
            record |= estimate_record(figure.name, row[figure.path])
        for goal, target in row.targets.items():
            record |= target_record(f"seconds_to_{goal:g}", target)
        found.append(record | {"stop": " ".join(f"{reason}:{count}" for reason, count in row.stops)})
    return found


def _data(row: Row) -> dict[str, object]:
    """A row for JSON, with the figures in the same places as in ``summary.json``."""

    def figures(of: Sequence[Figure]) -> dict[str, object]:
        return nested({each.path: estimate_data(row[each.path]) for each in of if each.path in row.figures})

    return {
        "run": row.run,
        "method": row.label,
        "seeds": row.seeds,
        **figures(OUTCOME),
        "targets": [{row.metric.name: goal, **target_data(found, "seconds")} for goal, found in row.targets.items()],
        **figures(COST),
        "stop": [
            {"reason": reason, "seeds": count, "message": row.messages.get(reason)} for reason, count in row.stops
        ],
    }
