"""Capacity traces from files: Mahimahi packet-delivery traces, tables, and logs of bytes and milliseconds."""

import bisect
import itertools
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
from pydantic import AfterValidator, Field

from edgefl.csv_table import CsvTable, Names, Text, csv_table
from edgefl.device_capacity import read_capacities
from edgefl.errors import Note, UserError, locating
from edgefl.files import read_text
from edgefl.network.trace_times import LEAST_CHANGE_SECONDS, TIME_UNITS, Clock, TimeFormat
from edgefl.options import Options
from edgefl.step_trace import StepTrace
from edgefl.units import UNITS, meant
from edgefl.validation import shown

_RATES = UNITS["bits_per_second"]


def _known_unit(unit: str) -> str:
    if unit not in _RATES:
        raise ValueError(f"unknown unit '{unit}'; {meant(unit, 'bits_per_second')}")
    return unit


class TraceColumns(Options):
    """The columns of a table, by name or, in one without a header, by number; other columns are not read."""

    time: Text = Field(description="The column of the times.")
    time_format: TimeFormat = Field("s", description="A unit, or a form of dates with times, in UTC by default.")
    rate: Text = Field(description="The column of the rates.")
    unit: Annotated[str, AfterValidator(_known_unit), Field(json_schema_extra={"enum": sorted(_RATES)})] = Field(
        description="The unit of the rates, such as Mbit/s or kB/s."
    )
    group: Names = Field((), description="The columns that distinguish traces; none: the file is one trace.")
    missing: tuple[Text, ...] = Field((), description="Texts that mean no measurement; the rate before stays valid.")
    where: dict[str, Text] = Field({}, description="Column to text: only rows with these texts are read.")

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def read(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (self.time, self.rate, *self.group, *self.where)


EXAMPLE = "{time: 1, rate: 2, unit: Mbit/s}"
CSV = TraceColumns(time="seconds", rate="bits_per_second", unit="bit/s")

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
        time="seq_num", rate="Throughput", unit="Mbit/s", group=("mobility_mode", "trajectory_direction", "run_num")
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


@dataclass
class _Rows:
    """The rows of one trace: seconds since its first one, and rates, in bit/s."""

    first: Decimal | None = None
    clock: set[float] = field(default_factory=set)  # the seconds of all rows, also of those that are not read
    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def read_table(table: CsvTable, columns: TraceColumns) -> dict[str, StepTrace]:
    """The traces in a table, in the order of their first rows; each is looped at its end.

    A rate is valid from its row's time to the next row's, and the last for as long as the one before it. Rows with
    equal times share the time to the next one in the table equally, in their order: the clock was coarser than the
    measurement. If that next row is skipped, their mean is valid after it. Times may begin at any value: the first
    becomes 0. Times that cannot be meant are refused (:mod:`edgefl.network.trace_times`).

    Returns:
        The traces by the texts of their group's columns, joined by ``/``; without a group, one named ''.

    >>> table = "run,t,mbps" + chr(10) + chr(10).join(["a,0,1", "a,1,-", "a,2,3", "b,7,4", "b,7,2", "b,8,6"])
    >>> columns = TraceColumns(time="t", rate="mbps", unit="Mbit/s", group="run", missing=["-"])
    >>> a, b = read_table(csv_table(table), columns).values()
    >>> [a.value(t) / 1e6 for t in (0, 1, 2, 3.9)], [b.value(t) / 1e6 for t in (0, 0.5, 1, 1.9)], b.period
    ([1.0, 1.0, 3.0, 3.0], [4.0, 2.0, 6.0, 6.0], 2.0)
    """
    places = {name: table.place(name, EXAMPLE) for name in columns.read}
    where = {places[name]: value for name, value in columns.where.items()}
    time, rate, last = places[columns.time], places[columns.rate], max(places.values())
    groups: dict[str, _Rows] = {}
    found: dict[str, _Rows] = {}  # those of which rows are read
    date_of, expected_time = _DATES.get(columns.time_format, (None, f"a number in {columns.time_format}"))
    factor, scale = TIME_UNITS.get(columns.time_format, (Decimal(1),))[0], _RATES[columns.unit]
    rate_of, number_of = table.numbers(rate), table.numbers(time)
    for line, row in table.rows:
        if len(row) <= last:
            _refuse(line, f"expected a value in the column '{table.header[last]}', found the end of the line")
        name = "/".join([row[places[column]] for column in columns.group])
        rows = groups.setdefault(name, _Rows())
        try:
            moment = factor * number_of(row[time]) if date_of is None else Decimal(date_of(row[time]))
        except (ValueError, OverflowError):
            moment = Decimal("nan")
        if moment.is_finite() and rows.first is None:
            rows.first = moment
        # The difference is exact: float64 has no nanoseconds of the year 2026.
        seconds = float(moment - (rows.first or 0))
        if math.isfinite(seconds):
            rows.clock.add(seconds)
        if any(row[position] != value for position, value in where.items()):
            continue
        found.setdefault(name, rows)
        if row[rate] in columns.missing:
            continue
        if not math.isfinite(seconds):
            _refuse(line, f"{columns.time}: expected {expected_time}, found {shown(row[time])}")
        if rows.times and seconds < rows.times[-1]:
            earlier = f"found {shown(row[time])} after a later one"
            _refuse(line, f"{columns.time}: expected times that do not fall within a trace, {earlier}")
        number = float(rate_of(row[rate]))
        if not number >= 0:
            expected = "a number of at least 0, or one of the texts in missing"
            _refuse(line, f"{columns.rate}: expected {expected}, found {shown(row[rate])}")
        rows.times.append(seconds)
        rows.rates.append(scale * number)
    if not found:
        chosen = " and ".join(f"{name} {value}" for name, value in columns.where.items())
        raise UserError(f"expected rows {f'with {chosen}' if chosen else 'below the header'}, found none")
    first = next(iter(found))
    return {name: _trace(columns, name, rows, doubts=name == first) for name, rows in found.items()}


def _trace(columns: TraceColumns, name: str, rows: _Rows, *, doubts: bool) -> StepTrace:
    of, moments = f" of the trace '{name}'" if name else "", sorted(rows.clock)
    clock = Clock(columns.time, columns.time_format, float(rows.first or 0), moments)
    if (refusal := clock.refused(rows.times, rows.rates)) is not None:
        raise UserError(f"{columns.time}: found a period{of} of {refusal}")
    if doubts and (doubt := clock.doubted(rows.rates)):
        warnings.warn(doubt, Note, stacklevel=1)
    counts = Counter(rows.times)
    if len(counts) < 2:
        raise UserError(f"expected rates at two times or more{of}, found {len(counts)}")
    times = list(counts)
    lengths = [later - earlier for earlier, later in itertools.pairwise(times)]
    lengths.append(lengths[-1])
    starts, steps, place = [], [], 0
    for (time, count), length in zip(counts.items(), lengths, strict=True):
        following = bisect.bisect_right(moments, time)
        shared = min(moments[following] - time if following < len(moments) else length, length)
        starts += [time - times[0] + shared * number / count for number in range(count)]
        steps += rows.rates[place : place + count]
        if count > 1 and shared < length:
            starts.append(time - times[0] + shared)
            steps.append(sum(rows.rates[place : place + count]) / count)
        place += count
    return StepTrace(starts, steps, period=times[-1] - times[0] + lengths[-1])


def _date(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _stamp(form: str) -> Callable[[str], float]:
    return lambda text: datetime.strptime(f"{text}+0000", f"{form}%z").timestamp()


def _compact(text: str) -> float:
    whole, _, fraction = text.partition(".")
    return _stamp("%Y%m%d%H%M%S")(whole) + float(f"0.{fraction or 0}")


_DATES: Mapping[TimeFormat, tuple[Callable[[str], float], str]] = {
    "iso": (_date, "a date with a time as 2020-02-13T13:57:29"),
    "YYYY.MM.DD_HH.MM.SS": (_stamp("%Y.%m.%d_%H.%M.%S"), "a time as 2020.02.13_13.57.29"),
    "YYYYMMDDHHMMSS": (_compact, "a time as 20200213135729"),
}


def _refuse(line: int, message: str) -> NoReturn:
    raise UserError(f"line {line}: {message}")


MAHIMAHI_PACKET_BITS = 1500 * 8
"""One packet of 1500 bytes for each line (Winstein et al., NSDI 2013)."""

SIX_COLUMNS = ("hsdpa", "ghent4g")
"""Formats of logs with six columns: Norway's 3G network (Riiser et al., MMSys 2013), Ghent's 4G networks (van der Hooft
et al., IEEE Communications Letters 2016)."""
MOST_INTERVALS = 10_000_000
"""Intervals of a trace; 10 million floats have 80 MB."""
RATES = (1.0, 1e15)
"""The least and the greatest rate other than 0, bit/s: with less, one transfer would outlast every number of rounds."""

_WHOLE = re.compile(r"[0-9]{1,15}")


def read_traces(
    file: str | Path, form: str | TraceColumns, *, every: float = 1.0, scale: float = 1.0
) -> dict[str, StepTrace]:
    """A file's traces by group (or ''), in a format or columns, with rates times ``scale``; ``every``: of mahimahi."""
    try:
        stamp = (found := os.stat(file)).st_mtime_ns, found.st_size
    except OSError:
        stamp = (0, 0)  # reading it says why
    with locating(file=str(file)):
        return {name: _scaled(trace, scale) for name, trace in _read(str(file), stamp, form, every).items()}


@lru_cache(maxsize=256)
def _read(file: str, _stamp: tuple[int, int], form: str | TraceColumns, every: float) -> Mapping[str, StepTrace]:
    """The traces of a file, which all methods and seeds share; ``_stamp`` tells its versions apart."""
    if form == "mahimahi":
        return {"": read_mahimahi(file, every=every)}
    if form in SIX_COLUMNS:
        return {"": _six_columns(read_text(file, what="a trace"))}
    if form == "fedscale":
        kilobits = read_capacities(file, "communication")
        return {name: StepTrace([0.0], [1000.0 * rate], period=1.0) for name, rate in kilobits.items()}
    columns = PRESETS[form] if isinstance(form, str) else form
    numbered = all(map(str.isdigit, columns.read))
    return read_table(csv_table(read_text(file, what="a trace"), numbered=numbered), columns)


def _scaled(trace: StepTrace, scale: float) -> StepTrace:
    if trace.period < LEAST_CHANGE_SECONDS * len(trace.times) * (1 - 1e-9):
        mean = trace.period / len(trace.times)
        raise UserError(f"expected intervals of 1 ms or more in the mean, found {1000 * mean:g} ms")
    rates = [rate * scale for rate in trace.rates]
    least, greatest = RATES
    for rate in rates:
        if rate != 0.0 and not least <= rate <= greatest:
            times = f", with the scale {scale:g}" if scale != 1.0 else ""
            raise UserError(f"expected rates of 0, or from {least:g} to {greatest:g} bit/s, found {rate:g}{times}")
    return trace.scaled(scale)


def read_mahimahi(file: str | Path, *, every: float = 1e-3) -> StepTrace:
    """A Mahimahi trace: each line is the millisecond at which one packet of 1500 bytes may leave; looped at its end.

    A line ``t`` is spread over the interval that ends at ``t``. The period is the last line; a line 0 counts at the end
    of a loop. Intervals have ``every`` seconds, in ms; 1 ms is exact, 0.1 s enough for transfers of seconds.
    """
    step = round(min(every, 1e9) * 1000)
    if step < 1 or abs(step - every * 1000) > 1e-9:
        raise UserError(f"expected an interval that is a multiple of 1 ms, found {every} s")
    words = [line.strip() for line in read_text(file, what="a trace").splitlines() if line.strip()]
    wrong = next((word for word in words if not re.fullmatch(r"[+-]?\d{1,15}", word, re.ASCII)), None)
    if wrong is not None:
        message = f"expected one whole millisecond of at most 15 digits a line, found {shown(wrong)}"
        raise UserError(f"{message}; a table needs a format, such as {EXAMPLE}", file=str(file))
    stamps = np.array([int(word) for word in words], dtype=np.int64)
    if not len(stamps) or stamps[0] < 0 or stamps[-1] == 0 or (np.diff(stamps) < 0).any():
        raise UserError("expected milliseconds that never fall and end above 0", file=str(file))
    period = int(stamps[-1])
    if period > MOST_INTERVALS * step:
        raise UserError(
            f"expected at most {MOST_INTERVALS:,} intervals of {every:g} s, "
            f"found a trace of {period / 1000:g} s; use a longer interval (every)",
            file=str(file),
        )
    stamps[stamps == 0] = period
    starts = np.arange(0, period, step)
    packets = np.bincount((stamps - 1) // step, minlength=len(starts))
    lengths = np.minimum(starts + step, period) - starts
    rates = packets * (MAHIMAHI_PACKET_BITS * 1000.0) / lengths
    return StepTrace((starts / 1000.0).tolist(), rates.tolist(), period=period / 1000.0)


def _six_columns(text: str) -> StepTrace:
    """A log whose columns 5 and 6 are bytes and the milliseconds that they took; other time is left out."""
    starts, rates, passed = [], [], 0
    for number, line in enumerate(text.splitlines(), start=1):
        if cells := line.split():
            count, milliseconds = cells[4:6] if len(cells) == 6 else ("", "")
            if not (_WHOLE.fullmatch(count) and _WHOLE.fullmatch(milliseconds) and int(milliseconds)):
                expected = "expected six columns, the fifth a number of bytes, the sixth of milliseconds above 0"
                raise UserError(f"line {number}: {expected}, found {shown(line.strip())}")
            starts.append(passed / 1000.0)
            rates.append(int(count) * 8000.0 / int(milliseconds))
            passed += int(milliseconds)
    if not starts:
        raise UserError("expected lines of six columns, found none")
    return StepTrace(starts, rates, period=passed / 1000.0)
