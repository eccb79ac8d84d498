"""Capacity traces from tables with named columns, and the columns of published data sets."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field

from edgefl.errors import UserError, nearest
from edgefl.network.processes import StepTrace
from edgefl.options import Options
from edgefl.units import UNITS
from edgefl.validation import shown

_RATES = UNITS["bits_per_second"]
_LATEST = 1e15
"""Larger numbers are no times; their differences would be rounded."""

TimeFormat = Literal["s", "ms", "iso", "YYYY.MM.DD_HH.MM.SS"]


def _known_unit(unit: str) -> str:
    if unit not in _RATES:
        raise ValueError(f"unknown unit '{unit}'; {nearest(unit, _RATES)}")
    return unit


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int)]
"""What a cell contains; a whole number may be written without quotes."""
Names = Annotated[tuple[str, ...], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]


class TraceColumns(Options):
    """The columns of a CSV file with a header; other columns are not read."""

    time: str = Field(description="The column of the times.")
    time_format: TimeFormat = Field(
        "s", description="s or ms: numbers; iso or YYYY.MM.DD_HH.MM.SS: dates with times, in UTC if no zone is given."
    )
    rate: str = Field(description="The column of the rates.")
    unit: Annotated[str, AfterValidator(_known_unit), Field(json_schema_extra={"enum": sorted(_RATES)})] = Field(
        description="The unit of the rates, such as Mbit/s or kB/s."
    )
    group: Names = Field((), description="The columns that distinguish traces; none: the file is one trace.")
    missing: tuple[Text, ...] = Field(
        (), description="Texts in the rate's column that mean no measurement; the rate before it stays valid."
    )
    where: dict[str, Text] = Field({}, description="Column to text: only rows with these texts are read.")


CSV = TraceColumns(time="seconds", rate="bits_per_second", unit="bit/s")
"""The format ``csv``."""

PRESETS: Mapping[str, TraceColumns] = {
    "csv": CSV,
    # The columns of 01-Throughput/data.csv of 5Gophers 1.0 (Narayanan et al., WWW 2020).
    "5gophers": TraceColumns(
        time="seq_num",
        rate="throughput_mbps",
        unit="Mbit/s",
        group=("protocol", "carrier", "num_tcp_conn", "server_location", "run_num"),
    ),
    # The README of Lumos5G 1.0 (Narayanan et al., IMC 2020) lists the columns.
    "lumos5g": TraceColumns(
        time="seq_num",
        rate="Throughput",
        unit="Mbit/s",
        group=("mobility_mode", "trajectory_direction", "run_num"),
    ),
    # G-NetTrack logs of Raca et al., MMSys 2020. In state I nothing is downloaded, so the rate is no capacity.
    "ucc5g": TraceColumns(
        time="Timestamp",
        time_format="YYYY.MM.DD_HH.MM.SS",
        rate="DL_bitrate",
        unit="kbit/s",
        missing=("-",),
        where={"State": "D"},
    ),
}
"""Tables whose columns are known, by the name of their format."""


class _Rows(NamedTuple):
    seconds: list[float]
    bits_per_second: list[float]


def read_table(text: str, columns: TraceColumns) -> dict[str, StepTrace]:
    """The traces in a table, in the order of their first rows; each is looped at its end.

    A rate is valid from its row's time to the next row's, and the last for as long as the one before it. Rows with
    equal times share the time to the next one equally, in their order: the clock was coarser than the measurement.
    Times may begin at any value: the first becomes 0.

    Args:
        text: CSV with a header.
        columns: the columns that are read.

    Returns:
        The traces by the texts of their group's columns, joined by ``/``; without a group, one named ''.

    Raises:
        UserError: a missing column or value, text that is not a number or a time, a negative rate, times that fall, or
            a trace of fewer than two times.

    >>> table = "run,t,mbps" + chr(10) + chr(10).join(["a,0,1", "a,1,-", "a,2,3", "b,7,4", "b,7,2", "b,8,6"])
    >>> columns = TraceColumns(time="t", rate="mbps", unit="Mbit/s", group="run", missing=["-"])
    >>> a, b = read_table(table, columns).values()
    >>> [a.value(t) / 1e6 for t in (0, 1, 2, 3.9)], [b.value(t) / 1e6 for t in (0, 0.5, 1, 1.9)], b.period
    ([1.0, 1.0, 3.0, 3.0], [4.0, 2.0, 6.0, 6.0], 2.0)
    """
    found: dict[str, _Rows] = {}
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(rows, [])
        where = {_position(header, name): value for name, value in columns.where.items()}
        group = [_position(header, name) for name in columns.group]
        time, rate = _position(header, columns.time), _position(header, columns.rate)
        last = max([time, rate, *group, *where])
        seconds_of, scale = _TIMES[columns.time_format], _RATES[columns.unit]
        for row in rows:
            if not row:
                continue
            if len(row) <= last:
                _refuse(rows.line_num, f"expected a value in the column '{header[last]}', found the end of the line")
            if where and any(row[position].strip() != value for position, value in where.items()):
                continue
            name = "/".join([row[position].strip() for position in group])
            trace = found.get(name) or found.setdefault(name, _Rows([], []))
            if row[rate].strip() in columns.missing:
                continue
            seconds = _read(rows.line_num, columns.time, row[time], seconds_of, _EXPECTED[columns.time_format])
            if trace.seconds and seconds < trace.seconds[-1]:
                earlier = f"found {shown(row[time].strip())} after a later one"
                _refuse(rows.line_num, f"{columns.time}: expected times that do not fall within a trace, {earlier}")
            trace.seconds.append(seconds)
            trace.bits_per_second.append(scale * _read(rows.line_num, columns.rate, row[rate], _rate, _A_RATE))
    except csv.Error as error:
        _refuse(rows.line_num + 1, f"expected CSV: {error}")
    if not found:
        raise UserError("expected rows below the header, found none")
    return {name: _steps(name, trace) for name, trace in found.items()}


def _steps(name: str, rows: _Rows) -> StepTrace:
    counts = Counter(rows.seconds)
    if len(counts) < 2:
        of = f" of the trace '{name}'" if name else ""
        raise UserError(f"expected rates at two times or more{of}, found {len(counts)}")
    times = list(counts)
    lengths = [later - earlier for earlier, later in itertools.pairwise(times)]
    lengths.append(lengths[-1])
    starts: list[float] = []
    for (time, count), length in zip(counts.items(), lengths, strict=True):
        starts += [time - times[0] + length * number / count for number in range(count)]
    return StepTrace(starts, rows.bits_per_second, period=times[-1] - times[0] + lengths[-1])


def _position(header: Sequence[str], name: str) -> int:
    names = [each.strip() for each in header]
    if not any(names):
        raise UserError("expected a header with the names of columns, found none")
    if names.count(name) != 1:
        hint = f"found {names.count(name)}" if name in names else nearest(name, filter(None, names))
        raise UserError(f"expected one column '{name}' in the header; {hint}")
    return names.index(name)


def _read(line: int, column: str, text: str, read: Callable[[str], float], expected: str) -> float:
    try:
        return read(text.strip())
    except (ValueError, OverflowError):
        _refuse(line, f"{column}: expected {expected}, found {shown(text.strip())}")


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or "_" in text:
        raise ValueError
    return number


def _rate(text: str) -> float:
    number = _number(text)
    if number < 0:
        raise ValueError
    return number


def _seconds(text: str) -> float:
    number = _number(text)
    if abs(number) > _LATEST:
        raise ValueError
    return number


def _date(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_TIMES: Mapping[TimeFormat, Callable[[str], float]] = {
    "s": _seconds,
    "ms": lambda text: _seconds(text) / 1000.0,
    "iso": _date,
    "YYYY.MM.DD_HH.MM.SS": lambda text: datetime.strptime(f"{text}+0000", "%Y.%m.%d_%H.%M.%S%z").timestamp(),
}
"""From a cell to seconds."""
_EXPECTED: Mapping[TimeFormat, str] = {
    "s": "a number of seconds",
    "ms": "a number of milliseconds",
    "iso": "a date with a time as 2020-02-13T13:57:29",
    "YYYY.MM.DD_HH.MM.SS": "a time as 2020.02.13_13.57.29",
}
_A_RATE = "a number of at least 0, or one of the texts in missing"


def _refuse(line: int, message: str) -> NoReturn:
    raise UserError(f"line {line}: {message}")
