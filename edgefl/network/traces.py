"""Capacity traces from files: Mahimahi packet-delivery traces and CSV."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Literal

import numpy as np

from edgefl.errors import UserError
from edgefl.network.processes import StepTrace
from edgefl.plain_file import read_plain_text

MAHIMAHI_PACKET_BITS = 1500 * 8
"""The bits of one line of a Mahimahi trace: one packet of 1500 bytes (Winstein et al., NSDI 2013)."""

MAXIMUM_BYTES = 64 * 2**20
MAXIMUM_INTERVALS = 10_000_000
LEAST_PERIOD = 1e-6
"""Seconds. A shorter trace would change its capacity so often that simulated time hardly advances."""
RATES = (1.0, 1e15)
"""The least and the greatest rate other than 0, bit/s: with less, one transfer would outlast every number of rounds."""


def read_trace(file: str | Path, form: Literal["mahimahi", "csv"], *, every: float, scale: float) -> StepTrace:
    """The trace in a file, with every rate multiplied by ``scale``.

    Args:
        file: the trace.
        form: its format.
        every: of :func:`read_mahimahi`.
        scale: the factor.

    Raises:
        UserError: a missing file, one that is not such a trace, a period below 1 µs, or a scaled rate that is neither 0
            nor between 1 bit/s and 10^15 bit/s.
    """
    trace = read_csv(file) if form == "csv" else read_mahimahi(file, every=every)
    if trace.period < LEAST_PERIOD:
        raise UserError(f"expected a period of 1 µs or more, found {trace.period:g} s", file=str(file))
    rates = [rate * scale for rate in trace.rates]
    least, greatest = RATES
    for rate in rates:
        if rate != 0.0 and not least <= rate <= greatest:
            times = f", with the scale {scale:g}" if scale != 1.0 else ""
            message = f"expected rates of 0, or from {least:g} to {greatest:g} bit/s, found {rate:g}{times}"
            raise UserError(message, file=str(file))
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
    if period > MAXIMUM_INTERVALS * step:
        raise UserError(
            f"expected at most {MAXIMUM_INTERVALS:,} intervals of {every:g} s, found a trace of {period / 1000:g} s; "
            "use a longer interval (every)",
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
    begin at any value: the first becomes 0.

    Raises:
        UserError: a missing file, a missing column, a value that is not a number, or times that do not rise.
    """
    rows = csv.DictReader(_text(file).splitlines())
    times: list[float] = []
    rates: list[float] = []
    try:
        for row in rows:
            times.append(float(row["seconds"]))
            rates.append(float(row["bits_per_second"]))
    except KeyError as error:
        found = ", ".join(rows.fieldnames or ())
        raise UserError(f"expected a column {error}, found {found or 'nothing'}", file=str(file)) from None
    except csv.Error as error:
        raise UserError(f"line {rows.line_num + 1}: expected CSV: {error}", file=str(file)) from None
    except (TypeError, ValueError) as error:
        raise UserError(f"line {rows.line_num}: expected two numbers ({error})", file=str(file)) from None
    if len(times) < 2:
        raise UserError(f"expected at least two rows, found {len(times)}", file=str(file))
    period = times[-1] - times[0] + times[-1] - times[-2]
    try:
        return StepTrace([time - times[0] for time in times], rates, period=period)
    except UserError as error:
        raise error.located(file=str(file)) from None


def _text(file: str | Path) -> str:
    return read_plain_text(file, MAXIMUM_BYTES, what="a trace")
