"""The comparison's columns: their headings, units, and cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from edgefl.report.grid import Cell, Grid, Head
from edgefl.report.quantities import Unit, limit, unit_for
from edgefl.report.rows import Row, notes
from edgefl.report.statistics import Estimate

MISSING = "–"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        group: what is measured (``accuracy``, ``down``).
        detail: its kind and unit.
        cell: returns the cell of a row in this column.
        text: whether the column contains words and is aligned to the left.
        section: a table is split between sections first.
    """

    group: str
    detail: str
    cell: Callable[[Row], Cell]
    text: bool = False
    section: Literal["names", "outcome", "cost"] = "cost"

    @property
    def header(self) -> str:
        """Both parts of the header on one line, the unit after a comma."""
        return self.head.line

    @property
    def head(self) -> Head:
        """The header in two parts."""
        return Head(self.group, self.detail, self.text)


def columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of these rows; a column without any figure is omitted.

    All rows of a column have the same unit, so that the numbers are easy to compare.
    """
    found = [Column("method", "", lambda row: Cell(row.label), text=True, section="names")]
    if len({row.run for row in rows}) > 1:
        found.insert(0, Column("run", "", lambda row: Cell(row.run), text=True, section="names"))
    if any(row.final is not None for row in rows):
        percent = Unit("%", 0.01, 1)
        accuracies = sorted({accuracy for row in rows for accuracy in row.targets})
        outcome = [
            _figure("accuracy", "final", percent, lambda row: row.final),
            _figure("accuracy", "best", percent, lambda row: row.best),
            *(_further(key, percent) for key in dict.fromkeys(key for row in rows for key in row.further)),
            *(_target(accuracy, rows) for accuracy in accuracies),
        ]
        found += [replace(column, section="outcome") for column in outcome]
    seconds, traffic = _unit(rows, "seconds", lambda row: row.seconds), _traffic_unit(rows)
    found += [
        _figure("time", "", seconds, lambda row: row.seconds),
        _figure("rounds", "", Unit("", 1.0, 0), lambda row: row.rounds),
        _figure("down", "", traffic, lambda row: row.bytes_down),
        _figure("up", "", traffic, lambda row: row.bytes_up),
        _figure("wasted", "", traffic, lambda row: row.bytes_wasted),
        _figure("energy", "", _unit(rows, "joules", lambda row: row.joules), lambda row: row.joules),
    ]
    waiting = _unit(rows, "seconds", lambda row: max(row.exposed_seconds, row.hidden_seconds))
    found += [
        _figure("exposed", "", waiting, lambda row: row.exposed_seconds),
        _figure("hidden", "", waiting, lambda row: row.hidden_seconds),
        Column("stopped", "by", _stop, text=True),
    ]
    return found


def comparison_grid(rows: Sequence[Row]) -> Grid:
    """The comparison as plain cells."""
    found = columns(rows)
    cells = [[column.cell(row) for column in found] for row in rows]
    return Grid([column.head for column in found], cells, notes(rows))


def _unit(rows: Sequence[Row], dimension: str, figure: Callable[[Row], Estimate | None]) -> Unit:
    return unit_for([value.mean for row in rows if (value := figure(row)) is not None], dimension)


def _traffic_unit(rows: Sequence[Row]) -> Unit:
    return unit_for([max(row.bytes_down.mean, row.bytes_up.mean) for row in rows], "bytes")


def _further(key: tuple[str, str], unit: Unit) -> Column:
    return _figure(*key, unit, lambda row: row.further.get(key))


def _figure(group: str, kind: str, unit: Unit, figure: Callable[[Row], Estimate | None]) -> Column:
    def cell(row: Row) -> Cell:
        value = figure(row)
        if value is None:
            return Cell(MISSING)
        return Cell(unit.number(value.mean), unit.spread(value))

    return Column(group, ", ".join(part for part in (kind, unit.symbol) if part), cell)


def _target(accuracy: float, rows: Sequence[Row]) -> Column:
    found = [row.targets[accuracy] for row in rows if accuracy in row.targets]
    unit = unit_for([value.mean.mean if value.mean else value.median or 0.0 for value in found], "seconds")

    def cell(row: Row) -> Cell:
        target = row.targets.get(accuracy)
        if target is None:
            return Cell(MISSING)
        if target.mean is not None:
            return Cell(unit.number(target.mean.mean), unit.spread(target.mean))
        if target.reached == 0:
            return Cell("never")
        median = f"median {unit.number(target.median)}" if target.median is not None else ""
        return Cell(f"{target.reached}/{target.seeds}", median)

    return Column(f"to {limit(accuracy, 'fraction')}", unit.symbol, cell)


def _stop(row: Row) -> Cell:
    if len(row.stops) == 1:
        return Cell(row.stops[0][0])
    first, *rest = (f"{reason} {count}/{row.seeds}" for reason, count in row.stops)
    return Cell(first + ",", ", ".join(rest))
