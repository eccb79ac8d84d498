"""Capacity traces from files: Mahimahi packet-delivery traces, tables, and logs of bytes and milliseconds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from edgefl import limits
from edgefl.errors import UserError
from edgefl.network.processes import StepTrace
from edgefl.network.trace_table import CSV, PRESETS, TraceColumns, read_table
from edgefl.plain_file import read_plain_text
from edgefl.validation import shown

MAHIMAHI_PACKET_BITS = 1500 * 8
"""The bits of one line of a Mahimahi trace: one packet of 1500 bytes (Winstein et al., NSDI 2013)."""

SIX_COLUMNS = ("hsdpa", "ghent4g")
"""Formats of logs with six columns: Norway's 3G network (Riiser et al., MMSys 2013), Ghent's 4G networks (van der Hooft
et al., IEEE Communications Letters 2016)."""
RATES = (1.0, 1e15)
"""The least and the greatest rate other than 0, bit/s: with less, one transfer would outlast every number of rounds."""

_WHOLE = re.compile(r"[0-9]{1,15}")


def read_traces(
    file: str | Path, form: str | TraceColumns, *, every: float = 1.0, scale: float = 1.0
) -> dict[str, StepTrace]:
    """The traces in a file, with every rate multiplied by ``scale``.

    Args:
        file: the file.
        form: the name of its format, or its columns.
        every: of :func:`read_mahimahi`.
        scale: the factor.

    Returns:
        The traces by the name of their group; the name is empty if the file is one trace.

    Raises:
        UserError: a missing file, one that does not have the format, intervals below 1 ms in the mean, or a scaled
            rate that is neither 0 nor between 1 bit/s and 10^15 bit/s.
    """
    try:
        if form == "mahimahi":
            traces = {"": read_mahimahi(file, every=every)}
        elif form in SIX_COLUMNS:
            traces = {"": _six_columns(_text(file))}
        else:
            traces = read_table(_text(file), PRESETS[form] if isinstance(form, str) else form)
        return {name: _scaled(trace, scale) for name, trace in traces.items()}
    except UserError as error:
        raise error.located(file=str(file)) from None


def _scaled(trace: StepTrace, scale: float) -> StepTrace:
    if trace.period < limits.LEAST_CHANGE_SECONDS * len(trace.times) * (1 - 1e-9):
        mean = trace.period / len(trace.times)
        raise UserError(f"expected intervals of 1 ms or more in the mean, found {1000 * mean:g} ms")
    rates = [rate * scale for rate in trace.rates]
    least, greatest = RATES
    for rate in rates:
        if rate != 0.0 and not least <= rate <= greatest:
            times = f", with the scale {scale:g}" if scale != 1.0 else ""
            raise UserError(f"expected rates of 0, or from {least:g} to {greatest:g} bit/s, found {rate:g}{times}")
    return StepTrace(trace.times, rates, period=trace.period)


def read_mahimahi(file: str | Path, *, every: float = 1e-3) -> StepTrace:
    """A Mahimahi trace: each line is the millisecond at which one packet of 1500 bytes may leave; looped at its end.

    A line ``t`` is spread over the interval that ends at ``t``, so that the bits passed by the end of each interval
    equal the count of lines so far. The period is the last line, as in Mahimahi; a line 0 counts at the end of a loop.

    Args:
        file: the trace.
        every: length of the intervals, seconds (a multiple of 1 ms). The millisecond of the trace is exact, at 1000
            changes a second; 0.1 s or 1 s is sufficient for transfers of seconds. The last interval may be shorter.

    Raises:
        UserError: a missing file, or one that is not such a trace.
    """
    step = round(min(every, 1e9) * 1000)
    if step < 1 or abs(step - every * 1000) > 1e-9:
        raise UserError(f"expected an interval that is a multiple of 1 ms, found {every} s")
    words = _text(file).split()
    wrong = next((word for word in words if not re.fullmatch(r"[+-]?\d{1,15}", word, re.ASCII)), None)
    if wrong is not None:
        message = f"expected one whole millisecond of at most 15 digits a line, found '{wrong[:40]}'"
        raise UserError(message, file=str(file))
    stamps = np.array([int(word) for word in words], dtype=np.int64)
    if not len(stamps) or stamps[0] < 0 or stamps[-1] == 0 or (np.diff(stamps) < 0).any():
        raise UserError("expected milliseconds that never fall and end above 0", file=str(file))
    period = int(stamps[-1])
    if period > limits.TRACE_INTERVALS * step:
        raise UserError(
            f"expected at most {limits.TRACE_INTERVALS:,} intervals of {every:g} s, "
            f"found a trace of {period / 1000:g} s; use a longer interval (every)",
            file=str(file),
        )
    stamps[stamps == 0] = period
    starts = np.arange(0, period, step)
    packets = np.bincount((stamps - 1) // step, minlength=len(starts))
    lengths = np.minimum(starts + step, period) - starts
    rates = packets * (MAHIMAHI_PACKET_BITS * 1000.0) / lengths
    return StepTrace((starts / 1000.0).tolist(), rates.tolist(), period=period / 1000.0)


def read_csv(file: str | Path) -> StepTrace:
    """A CSV with the columns ``seconds`` and ``bits_per_second``; others are ignored; looped at its end.

    Each rate is valid from its row's time to the next row's, and the last for as long as the one before it. Times may
    begin at any value: the first becomes 0. See :func:`~edgefl.network.trace_table.read_table` for equal times.

    Raises:
        UserError: a missing file, a missing column, a value that is not a number, a negative rate, or times that fall.
    """
    try:
        return read_table(_text(file), CSV)[""]
    except UserError as error:
        raise error.located(file=str(file)) from None


def _six_columns(text: str) -> StepTrace:
    """A log without header of which each line gives, in columns 5 and 6, bytes and the milliseconds they took.

    The other columns, a time stamp, milliseconds since the start, latitude and longitude, are not read: they may be
    ``NOFIX``. Time between lines that columns 6 do not count is not part of the trace.

    Raises:
        UserError: a line without six columns, or without such numbers.
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
    return read_plain_text(file, limits.TRACE_BYTES, what="a trace")
