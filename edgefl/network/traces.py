"""Capacity traces from files: Mahimahi packet-delivery traces and CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from edgefl.errors import UserError
from edgefl.network.processes import StepTrace

MAHIMAHI_PACKET_BITS = 1500 * 8
"""The bits of one line of a Mahimahi trace: one packet of 1500 bytes (Winstein et al., NSDI 2013)."""


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
    step = round(every * 1000)
    if step < 1 or abs(step - every * 1000) > 1e-9:
        raise UserError(f"expected an interval that is a multiple of 1 ms, found {every} s")
    try:
        stamps = np.array([int(line) for line in _text(file).split()], dtype=np.int64)
    except ValueError as error:
        raise UserError(f"expected one whole millisecond a line ({error})", file=str(file)) from None
    if not len(stamps) or stamps[0] < 0 or stamps[-1] == 0 or (np.diff(stamps) < 0).any():
        raise UserError("expected milliseconds that never fall and end above 0", file=str(file))
    period = int(stamps[-1])
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
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"expected a readable text file ({error})", file=str(file)) from None
