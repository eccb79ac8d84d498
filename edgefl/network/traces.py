"""Capacity traces from files: Mahimahi packet-delivery traces, tables, and logs of bytes and milliseconds."""

import bisect
import itertools
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from edgefl.csv_table import CsvTable, csv_table
from edgefl.device_capacity import read_capacities
from edgefl.errors import Note, UserError, locating, nearest
from edgefl.files import read_text
from edgefl.network.processes import StepTrace
from edgefl.options import Options
from edgefl.units import UNITS, meant
from edgefl.validation import shown

_RATES = UNITS["bits_per_second"]
TimeFormat = Literal["s", "ms", "us", "ns", "min", "h", "day", "iso", "YYYY.MM.DD_HH.MM.SS", "YYYYMMDDHHMMSS"]


def _known_unit(unit: str) -> str:
    if unit not in _RATES:
        raise ValueError(f"unknown unit '{unit}'; {meant(unit, 'bits_per_second')}")
    return unit


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | int) else value


Text = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int)]
"""A cell; a whole number may be written without quotes."""
Names = Annotated[tuple[Text, ...], BeforeValidator(_as_list, json_schema_input_type=Text | list[Text])]


class TraceColumns(Options):
    """The columns of a table, by name or, in one without a header, by number; other columns are not read."""

    time: Text = Field(description="The column of the times.")
    time_format: TimeFormat = Field(
        "s",
        description="s, ms, us, ns, min, h or day: numbers; iso, YYYY.MM.DD_HH.MM.SS or YYYYMMDDHHMMSS (iperf 2): "
        "dates with times, in UTC if no zone is given.",
    )
    rate: Text = Field(description="The column of the rates.")
    unit: Annotated[str, AfterValidator(_known_unit), Field(json_schema_extra={"enum": sorted(_RATES)})] = Field(
        description="The unit of the rates, such as Mbit/s or kB/s."
    )
    group: Names = Field((), description="The columns that distinguish traces; none: the file is one trace.")
    missing: tuple[Text, ...] = Field(
        (), description="Texts in the rate's column that mean no measurement; the rate before it stays valid."
    )
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


def read_table(table: CsvTable, columns: TraceColumns) -> dict[str, StepTrace]:
    """The traces in a table, in the order of their first rows; each is looped at its end.

    A rate is valid from its row's time to the next row's, and the last for as long as the one before it. Rows with
    equal times share the time to the next one in the table equally, in their order: the clock was coarser than the
    measurement. If that next row is skipped, their mean is valid after it. Times may begin at any value: the first
    becomes 0. Times that cannot be meant are refused (:func:`_check_times`).

    Returns:
        The traces by the texts of their group's columns, joined by ``/``; without a group, one named ''.

    >>> table = "run,t,mbps" + chr(10) + chr(10).join(["a,0,1", "a,1,-", "a,2,3", "b,7,4", "b,7,2", "b,8,6"])
    >>> columns = TraceColumns(time="t", rate="mbps", unit="Mbit/s", group="run", missing=["-"])
    >>> a, b = read_table(csv_table(table), columns).values()
    >>> [a.value(t) / 1e6 for t in (0, 1, 2, 3.9)], [b.value(t) / 1e6 for t in (0, 0.5, 1, 1.9)], b.period
    ([1.0, 1.0, 3.0, 3.0], [4.0, 2.0, 6.0, 6.0], 2.0)
    """
    header, places = table.header, {name: _position(table, name) for name in columns.read}
    where = {places[name]: value for name, value in columns.where.items()}
    time, rate, last = places[columns.time], places[columns.rate], max(places.values())
    found: dict[str, tuple[list[float], list[float]]] = {}
    clocks: dict[str, list[float]] = {}
    firsts: dict[str, Decimal] = {}
    date_of, expected_time = _DATES.get(columns.time_format, (None, f"a number in {columns.time_format}"))
    factor, scale = _UNITS.get(columns.time_format, (Decimal(1),))[0], _RATES[columns.unit]
    rate_of, number_of = table.numbers(rate), table.numbers(time)
    for line, row in table.rows:
        if len(row) <= last:
            _refuse(line, f"expected a value in the column '{header[last]}', found the end of the line")
        name = "/".join([row[places[column]] for column in columns.group])
        try:
            moment = factor * number_of(row[time]) if date_of is None else Decimal(date_of(row[time]))
        except (ValueError, OverflowError):
            moment = Decimal("nan")
        if moment.is_finite():
            firsts.setdefault(name, moment)
        # The difference is exact: float64 has no nanoseconds of the year 2026.
        seconds = float(moment - firsts.get(name, 0))
        clock = clocks.setdefault(name, [])
        clock.append(seconds)
        if any(row[position] != value for position, value in where.items()):
            continue
        times, rates = found.get(name) or found.setdefault(name, ([], []))
        if row[rate] in columns.missing:
            continue
        if not math.isfinite(seconds):
            _refuse(line, f"{columns.time}: expected {expected_time}, found {shown(row[time])}")
        if times and seconds < times[-1]:
            earlier = f"found {shown(row[time])} after a later one"
            _refuse(line, f"{columns.time}: expected times that do not fall within a trace, {earlier}")
        number = float(rate_of(row[rate]))
        if not number >= 0:
            expected = "a number of at least 0, or one of the texts in missing"
            _refuse(line, f"{columns.rate}: expected {expected}, found {shown(row[rate])}")
        times.append(seconds)
        rates.append(scale * number)
    if not found:
        chosen = " and ".join(f"{name} {value}" for name, value in columns.where.items())
        raise UserError(f"expected rows {f'with {chosen}' if chosen else 'below the header'}, found none")
    for name, trace in found.items():
        doubt = _check_times(columns, name, float(firsts.get(name, 0)), clocks[name], trace)
        if doubt and name == next(iter(found)):
            warnings.warn(doubt, Note, stacklevel=1)
    return {name: _steps(name, *trace, clocks[name]) for name, trace in found.items()}


def _steps(name: str, seconds: list[float], rates: list[float], clock: list[float]) -> StepTrace:
    counts = Counter(seconds)
    if len(counts) < 2:
        of = f" of the trace '{name}'" if name else ""
        raise UserError(f"expected rates at two times or more{of}, found {len(counts)}")
    times = list(counts)
    lengths = [later - earlier for earlier, later in itertools.pairwise(times)]
    lengths.append(lengths[-1])
    moments = sorted({moment for moment in clock if math.isfinite(moment)})
    starts, steps, place = [], [], 0
    for (time, count), length in zip(counts.items(), lengths, strict=True):
        following = bisect.bisect_right(moments, time)
        shared = min(moments[following] - time if following < len(moments) else length, length)
        starts += [time - times[0] + shared * number / count for number in range(count)]
        steps += rates[place : place + count]
        if count > 1 and shared < length:
            starts.append(time - times[0] + shared)
            steps.append(sum(rates[place : place + count]) / count)
        place += count
    return StepTrace(starts, steps, period=times[-1] - times[0] + lengths[-1])


LATEST = 1e10
"""Seconds since 1970, in the year 2286; no clock is later."""

USUAL_STEP, LONG_STEP = 60.0, 600.0
"""Seconds: a longer step is mentioned; a still longer one is one of :data:`_STEPS`, or has another unit."""

RARE = 100.0
"""A step that is so many times the median one is a gap."""

_STEPS = [900.0, 1200.0, 1800.0, *(3600.0 * hours for hours in range(1, 25))]
_UNITS: Mapping[TimeFormat, tuple[Decimal, str]] = {
    "ns": (Decimal("1e-9"), r"ns|nsecs?|nano\w*"),
    "us": (Decimal("1e-6"), r"[uµμ]s|[uµμ]secs?|mi[ck]ro\w*"),
    "ms": (Decimal("1e-3"), r"ms|msecs?|mill?i\w*"),
    "s": (Decimal(1), r"s|secs?|seconde?s?|sekunden?|segundos?"),
    "min": (Decimal(60), r"mins?|minut\w*"),
    "h": (Decimal(3600), r"h|hrs?|hours?|stunden?|heures?|horas?"),
    "day": (Decimal(86400), r"(?<!of )(?:days?|tage?|jours?|dias?)"),
}
"""Seconds of each unit, and the words for it in the names of columns."""


def _check_times(
    columns: TraceColumns, name: str, first: float, clock: list[float], trace: tuple[list[float], list[float]]
) -> str | None:
    """Refuse times that cannot be meant: of another unit, or a trace that is mostly gaps, or ends with a summary.

    ``first`` is the first time in seconds, ``clock`` are those of all rows since then, also of those that are skipped;
    ``trace`` are times and rates of the others. Returns a doubt, if there is one.
    """
    times, rates = trace
    moments = sorted({moment for moment in clock if math.isfinite(moment)})
    if len(moments) < 2 or not times:
        return None
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    usual = median(gaps)
    equal = {time for time, count in Counter(times).items() if count > 1}
    shared = max((gap for gap, moment in zip(gaps, moments, strict=False) if moment in equal), default=0.0)
    refused, hint = _other_format(columns, first, moments, usual) if columns.time_format in _UNITS else (False, None)
    if not refused and shared > USUAL_STEP:
        refused, hint = True, f"rows of one time would share {_shown(shared)}; give each row its own time"
    elif not refused and _summary(times, rates, usual):
        refused, hint = True, "the last row has the mean or the sum of all rates: remove a summary at the end"
    elif not refused and sum(gap for gap in gaps if gap > max(RARE * usual, USUAL_STEP)) > moments[-1] / 2:
        refused = True
        hint = "most of the trace would be gaps; make a trace of each part (group), or remove a summary at the end"
    if refused:
        of = f" of the trace '{name}'" if name else ""
        period, longest = moments[-1] - moments[0] + gaps[-1], max(gaps)
        found = f"a period{of} of {_shown(period)}, steps of {_shown(usual)} and a longest gap of {_shown(longest)}"
        raise UserError(f"{columns.time}: found {found}, which cannot be meant: {hint}")
    if len(rates) > 5 and min(rates) < 0.9 * max(rates) and math.isclose(rates[-1], fmean(rates[:-1]), rel_tol=1e-3):
        return f"{columns.rate}: the last rate is the mean of the others; remove the row if it is a summary"
    return hint and f"{columns.time}: steps of {_shown(usual)}; {hint}"


def _summary(times: list[float], rates: list[float], usual: float) -> bool:
    """True if the last row, or both last ones, have the sum of all rates, or their mean at a time like no other."""
    steps = [later - earlier for earlier, later in itertools.pairwise(times)]
    odd = [step < 0.01 * usual or step > 10 * usual for step in steps]
    for rows in range(max(5, len(rates) - 2), len(rates)):
        before, total = rates[:rows], sum(rates[:rows])
        likely = [total] * (total > 3 * max(before)) + [total / rows] * (odd[rows - 1] and not any(odd[: rows - 1]))
        if min(before) < 0.9 * max(before) and all(any(abs(r - t) < 0.05 * t for t in likely) for r in rates[rows:]):
            return True
    return False


def _shown(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds < 1e4 else f"{seconds:.0f} s"


def _other_format(columns: TraceColumns, first: float, moments: list[float], usual: float) -> tuple[bool, str | None]:
    """What numbers of the columns' unit seem to be, and whether that is certain."""
    form, factor = columns.time_format, float(_UNITS[columns.time_format][0])
    words = " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-zµμ]+", columns.time)).lower()
    named = next((unit for unit, (_, names) in _UNITS.items() if re.search(rf"\b(?:{names})\b", words)), None)
    if named not in {None, form}:
        return True, f"they are {named} by the name of the column (time_format: {named})"
    dates = _dates([round((first + moment) / factor) for moment in moments], usual / factor)
    if dates is not None:
        return True, dates
    units = {unit: float(scale) / factor for unit, (scale, _) in _UNITS.items() if scale <= 1 or unit in {form, named}}

    def possible(unit: TimeFormat, longest: float) -> bool:
        step = units[unit] * usual
        known = unit == named or any(abs(step - each) <= 0.01 * each for each in _STEPS)
        return step >= LEAST_CHANGE_SECONDS and (step <= longest or known) and units[unit] * first <= LATEST

    dated = [unit for unit in units if units[unit] * first >= 1e9 and possible(unit, LONG_STEP)]
    likely = dated or [unit for unit in units if possible(unit, USUAL_STEP)]
    other = likely[-1] if likely and form not in likely else None
    certain = not possible(form, LONG_STEP) or (bool(dated) and usual < 0.01)
    minutes, milliseconds = 1440 * usual, 1000 * usual
    if form == "s" and 3e4 < first < 8e4 and abs(minutes - max(1, round(minutes))) < 1e-3 < milliseconds % 1 < 0.999:
        return False, "are they days of a spreadsheet? (time_format: day)"
    if (other is None and not certain) or (usual < LEAST_CHANGE_SECONDS and not dated):
        return False, None
    if not certain:
        return False, f"are the times {other}? (time_format: {other})" if usual % 60 else None
    meant = ""
    if other is not None:
        period = units[other] * (moments[-1] - moments[0] + moments[-1] - moments[-2])
        meant = f"they seem to be {other} (time_format: {other}), with a period of {_shown(period)}; if not, "
    return True, f"{meant}write dates (time_format: iso)"


def _dates(numbers: list[int], usual: float) -> str | None:
    """What whole numbers are that were written as dates or as a clock."""
    if _is_date(numbers[0]) and _is_date(numbers[-1]):
        known = "YYYYMMDDHHMMSS" if numbers[0] > 1e13 else "iso, as 2020-02-13T13:57:29"
        return f"they seem to be dates (time_format: {known})"
    jumps = {later // 100 - earlier // 100 for earlier, later in itertools.pairwise(numbers)}
    long = numbers[-1] // 100 - numbers[0] // 100 > 1
    if long and usual < 40 and jumps <= {0, 1, 41} and all(number % 100 < 60 for number in numbers):
        return "they seem to be hours, minutes and seconds of a clock; write dates (time_format: iso)"
    return None


def _is_date(number: int) -> bool:
    """True for a date of the years 1970 to 2099 as one number, with or without hours, minutes and seconds."""
    for form in ("%Y%m%d", "%Y%m%d%H", "%Y%m%d%H%M", "%y%m%d%H%M%S", "%Y%m%d%H%M%S"):
        try:
            found = datetime.strptime(str(number), form)
        except ValueError:
            continue
        if 1970 <= found.year < 2100 and found.strftime(form) == str(number):
            return True
    return False


def _position(table: CsvTable, name: str) -> int:
    if not table.header:
        raise UserError("expected a header with the names of columns, found none")
    if not table.named and name not in table.header:
        first = ", ".join(table.rows[0][1][:3])
        raise UserError(
            f"expected a header with a column '{name}', found only numbers in the first line ({first}); "
            f"name the columns by their numbers, such as {EXAMPLE}"
        )
    count = table.header.count(name)
    if count != 1:
        hint = f"found {count}" if count else nearest(name, filter(None, table.header))
        raise UserError(f"expected one column '{name}' in the header; {hint}; or name columns, as in {EXAMPLE}")
    return table.header.index(name)


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
LEAST_CHANGE_SECONDS = 1e-3
"""Mean time between two changes of a capacity; with less, simulating the changes takes longer than all else."""
MOST_INTERVALS = 10_000_000
"""Intervals of a trace; 10 million floats have 80 MB."""
RATES = (1.0, 1e15)
"""The least and the greatest rate other than 0, bit/s: with less, one transfer would outlast every number of rounds."""

_WHOLE = re.compile(r"[0-9]{1,15}")


def read_traces(
    file: str | Path, form: str | TraceColumns, *, every: float = 1.0, scale: float = 1.0
) -> dict[str, StepTrace]:
    """The traces in a file, with every rate multiplied by ``scale``, by the name of their group ('' for only one).

    ``form`` is the name of the file's format, or its columns; ``every`` is that of :func:`read_mahimahi`.
    """
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
        return {"": _six_columns(_text(file))}
    if form == "fedscale":
        kilobits = read_capacities(file, "communication")
        return {name: StepTrace([0.0], [1000.0 * rate], period=1.0) for name, rate in kilobits.items()}
    columns = PRESETS[form] if isinstance(form, str) else form
    numbered = all(map(str.isdigit, columns.read))
    return read_table(csv_table(_text(file), numbered=numbered), columns)


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

    A line ``t`` is spread over the interval that ends at ``t``, so that the bits passed by the end of each interval
    equal the count of lines so far. The period is the last line, as in Mahimahi; a line 0 counts at the end of a loop.

    The intervals are ``every`` seconds long, a multiple of 1 ms; the last one may be shorter. The millisecond of the
    trace is exact, at 1000 changes a second; 0.1 s or 1 s is sufficient for transfers of seconds.

    Raises:
        UserError: a missing file, or one that is not such a trace.
    """
    step = round(min(every, 1e9) * 1000)
    if step < 1 or abs(step - every * 1000) > 1e-9:
        raise UserError(f"expected an interval that is a multiple of 1 ms, found {every} s")
    words = [line.strip() for line in _text(file).splitlines() if line.strip()]
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
    """A log without header of which each line gives, in columns 5 and 6, bytes and the milliseconds they took.

    The other columns may be ``NOFIX``. Time between lines that columns 6 do not count is not part of the trace.
    """
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


def _text(file: str | Path) -> str:
    return read_text(file, what="a trace")
