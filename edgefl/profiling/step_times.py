"""Read measured step times from CSV and add them to a profile, where they take precedence over its roofline."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.cost import CostModel
from edgefl.errors import UserError, nearest
from edgefl.fleet import DeviceProfile, step_signature
from edgefl.models.registry import build_model
from edgefl.plain_file import read_plain_text
from edgefl.scenario.named_step import read_shape, read_step
from edgefl.validation import validated

REQUIRED = ("model", "method", "batch")
TIMES = {"milliseconds": 1e-3, "seconds": 1.0}
"""Columns of times, of which a table has exactly one, and their units in seconds."""
OPTIONAL = {"shape": "3x32x32", "classes": "10", "alpha": "", "settings": ""}
"""Optional columns and their default values."""

MAXIMUM_BYTES = 2**22


@dataclass(frozen=True)
class StepTime:
    """One row of the table.

    Attributes:
        line: its line number in the file, from 1.
        signature: the step's signature in profiles.
        text: a description of the step.
        seconds: the measured time.
    """

    line: int
    signature: str
    text: str
    seconds: float


def read_step_times(file: Path) -> list[StepTime]:
    """Read the rows of a CSV file with a header.

    Columns: ``model``, ``method``, ``batch``, and ``milliseconds`` or ``seconds``; ``shape`` (3x32x32), ``classes``
    (10), ``alpha`` (all blocks) and ``settings`` (``PATH=VALUE`` as for ``--set``, separated by semicolons) are
    optional.

    Raises:
        UserError: the file cannot be read, a column is missing or unknown, or a row contains no valid step or
            time; the message gives the line.
    """
    rows, unit = _rows(file)
    costs: dict[tuple[Any, ...], CostModel] = {}
    return [_step_time(file, line, row, unit, costs) for line, row in rows]


def with_step_times(profile: DeviceProfile, times: Sequence[StepTime], name: str, source: str) -> dict[str, Any]:
    """Return a profile as plain data with the measured times of the steps in the table.

    For a step that is in the table several times, nominal is the median, and low and high are the extremes. Measured
    steps of the profile that are not in the table keep their times.
    """
    measured: dict[str, list[StepTime]] = {}
    for time in times:
        measured.setdefault(time.signature, []).append(time)
    data: dict[str, Any] = profile.model_dump(mode="json", exclude_none=True)
    kept = [row for row in data["compute"]["measured_steps"] if row["signature"] not in measured]
    made = [
        {"signature": signature, "step": rows[0].text, "seconds": _seconds([row.seconds for row in rows])}
        for signature, rows in measured.items()
    ]
    data["name"] = name
    data["compute"]["measured_steps"] = [*kept, *made]
    data["provenance"]["sources"] = [*data["provenance"]["sources"], source]
    data["provenance"]["derivation"]["compute.measured_steps"] = "median of the table's times, between least and most"
    validated(DeviceProfile, data)
    return data


def _seconds(values: Sequence[float]) -> float | dict[str, float]:
    if len(values) == 1:
        return values[0]
    return {"low": min(values), "nominal": statistics.median(values), "high": max(values)}


def _rows(file: Path) -> tuple[list[tuple[int, dict[str, str]]], str]:
    """Return the rows that are not empty, by column, and the name of the column of times."""
    text = read_plain_text(file, MAXIMUM_BYTES, what="a table")
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        unit = _unit(header, str(file))
        rows = []
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise UserError(
                    f"line {reader.line_num}: expected {len(header)} values, found {len(row)}", file=str(file)
                )
            named = zip(header, (cell.strip() for cell in row), strict=True)
            rows.append((reader.line_num, {**OPTIONAL, **{name: cell for name, cell in named if cell}}))
    except csv.Error as error:
        raise UserError(f"line {reader.line_num}: expected CSV: {error}", file=str(file)) from None
    if not rows:
        raise UserError("expected at least one row below the header", file=str(file))
    return rows, unit


def _unit(header: Sequence[str], file: str) -> str:
    valid = [*REQUIRED, *TIMES, *OPTIONAL]
    for column in header:
        if column not in valid:
            raise UserError(f"unknown column '{column}'; {nearest(column, valid)}", file=file)
        if header.count(column) > 1:
            raise UserError(f"expected the column '{column}' once", file=file)
    for column in REQUIRED:
        if column not in header:
            raise UserError(f"expected a column '{column}', found: {', '.join(header) or 'nothing'}", file=file)
    units = [column for column in TIMES if column in header]
    if len(units) != 1:
        raise UserError("expected one column of times, 'milliseconds' or 'seconds'", file=file)
    return units[0]


def _step_time(
    file: Path, line: int, row: Mapping[str, str], unit: str, costs: dict[tuple[Any, ...], CostModel]
) -> StepTime:
    try:
        _complete(row, (*REQUIRED, unit))
        seconds = TIMES[unit] * _positive(row[unit], unit, "the number alone, its unit is the column's name")
        batch, classes = _whole(row, "batch"), _whole(row, "classes")
        changes = [each.strip() for each in row["settings"].split(";") if each.strip()]
        spec, (method,) = read_step(row["model"], row["method"], changes)
        key = (spec, row["shape"], classes)
        if key not in costs:
            costs[key] = CostModel(build_model(spec, read_shape(row["shape"], field="shape"), classes))
        model = costs[key]
        step = model.cost(method, _alpha(row, model.model.depth), batch)
    except UserError as error:
        place = f"line {line}, {error.field}" if error.field else f"line {line}"
        raise UserError(error.message, field=place, file=str(file)) from None
    text = f"{row['model']}, {row['method']}, batch {batch}" + "".join(f", {change}" for change in changes)
    return StepTime(line, step_signature(step.operators), text, seconds)


def _complete(row: Mapping[str, str], columns: Sequence[str]) -> None:
    for column in columns:
        if column not in row:
            raise UserError("expected a value, found none", field=column)


def _alpha(row: Mapping[str, str], depth: int) -> int:
    """Return how many of the last blocks are received; all if the row does not give it."""
    alpha = _whole(row, "alpha") if row["alpha"] else depth
    if alpha > depth:
        raise UserError(f"expected at most the model's {depth} blocks, found {alpha}", field="alpha")
    return alpha


def _positive(text: str, column: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        raise UserError(f"expected a number above 0 ({what}), found '{text}'", field=column)
    return number


def _whole(row: Mapping[str, str], column: str) -> int:
    number = _positive(row[column], column, "a whole one")
    if number != int(number):
        raise UserError(f"expected a whole number, found '{row[column]}'", field=column)
    return int(number)
