"""When a device can take part: always, according to a trace of real devices, or in a synthetic daily rhythm."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl import limits
from edgefl.errors import UserError
from edgefl.fleet.windows import Windows
from edgefl.input_file import InputFile, digest_of_file, find_input
from edgefl.json_file import read_json
from edgefl.options import Options
from edgefl.units import Seconds

DAY = 86400.0


class Always(Options):
    """The device can always take part."""

    kind: Literal["always"] = Field(default="always", description="always: it can always take part")


class Trace(Options):
    """Each device follows one row of a trace of real devices, with its own start time."""

    kind: Literal["trace"] = Field(description="trace: intervals recorded from real devices")
    file: InputFile = Field(description="JSON: one {duration, active, inactive, finish_time} for each recorded device.")
    shift: bool = Field(default=True, description="Each device starts at a random time within its row's period.")

    def windows(self, clients: int, draws: np.random.Generator) -> tuple[Windows, NDArray[np.int64], NDArray[Any]]:
        """The windows, each client's row in them, and the seconds by which its clock is ahead of the run's clock.

        Rows are assigned without repetition as long as there are enough.

        Raises:
            UserError: the file cannot be read or is not such a trace.
        """
        windows = read_trace(self.file)
        count = len(windows.periods)
        decks = [draws.permutation(count) for _ in range(-(-clients // count))]
        rows = np.concatenate(decks)[:clients].astype(np.int64)
        shifts = draws.random(clients) * windows.periods[rows]
        return windows, rows, shifts if self.shift else np.zeros(clients)


class Diurnal(Options):
    """A synthetic daily rhythm: each device can take part once a day, around the same hour.

    It is not based on a measurement. The defaults reflect that phones are mostly idle, charged and on Wi-Fi at night.
    """

    kind: Literal["diurnal"] = Field(description="diurnal: a seeded synthetic daily rhythm, not a measurement")
    share: float = Field(default=0.35, gt=0, le=0.9, description="Part of the day that a device can take part.")
    peak: Seconds = Field(
        default=2 * 3600.0, description="Time of day around which most devices can take part; the run starts at 0."
    )
    spread: Seconds = Field(default=3 * 3600.0, description="Standard deviation of this time between devices.")
    wander: Seconds = Field(
        default=3600.0, description="Standard deviation of both ends of the interval from day to day."
    )
    days: int = Field(default=7, ge=1, le=366, description="Number of days that are drawn; then they repeat.")

    def windows(self, clients: int, draws: np.random.Generator) -> tuple[Windows, NDArray[np.int64], NDArray[Any]]:
        """As :meth:`Trace.windows`; every client has its own row."""
        # In a device's local day the window is around noon, so that midnight does not cut it.
        middle = DAY * (np.arange(self.days) + 0.5)
        ends = middle + self.share * DAY / 2 + self.wander * draws.standard_normal((clients, self.days))
        starts = middle - self.share * DAY / 2 + self.wander * draws.standard_normal((clients, self.days))
        edges = DAY * np.arange(self.days)
        starts = np.clip(starts, edges, edges + DAY)
        ends = np.clip(np.maximum(ends, starts), edges, edges + DAY)
        windows = Windows(
            starts.ravel(),
            ends.ravel(),
            np.arange(clients + 1, dtype=np.int64) * self.days,
            np.full(clients, self.days * DAY),
        )
        shifts = DAY / 2 - self.peak + self.spread * draws.standard_normal(clients)
        return windows, np.arange(clients, dtype=np.int64), shifts


AnyAvailability = Annotated[Always | Trace | Diurnal, Field(discriminator="kind")]
"""A group's ``availability``."""


def read_trace(file: str) -> Windows:
    """An availability trace in the form that FedScale documents.

    The file contains one object for each device, in a list or under any keys: ``active`` and ``inactive`` are the
    seconds at which the device becomes available and unavailable, in turn, within ``finish_time`` seconds, after which
    the trace repeats; ``duration`` is the total available time. A file that is not found is searched in the folder
    EDGEFL_DATA.

    Raises:
        UserError: the file cannot be read or is not such a trace; the message contains file and device.
    """
    path = find_input(file)
    return _read(str(path), digest_of_file(path))


@lru_cache(maxsize=4)
def _read(path: str, _digest: str) -> Windows:
    """The trace in a file; the digest is part of the cache key because the file may change during the process."""
    data = read_json(path, maximum=limits.AVAILABILITY_BYTES)
    devices = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
    if not devices:
        raise UserError("expected a list or a mapping of devices, found none", file=path)
    return Windows.of([_row(path, str(name), device) for name, device in devices.items()])


def _row(path: str, name: str, device: Any) -> tuple[list[float], list[float], float]:
    try:
        period = _seconds(device["finish_time"])
        starts, ends = ([_seconds(each) for each in device[key]] for key in ("active", "inactive"))
    except (KeyError, TypeError):
        raise UserError(
            "expected {duration, active: [seconds, …], inactive: [seconds, …], finish_time: seconds}",
            file=path,
            field=name,
        ) from None
    turns = [moment for pair in zip(starts, ends, strict=False) for moment in pair]
    if len(starts) != len(ends) or any(a > b for a, b in zip([0.0, *turns], [*turns, period], strict=True)):
        raise UserError(
            "expected as many times in active as in inactive, alternating and ascending, within finish_time",
            file=path,
            field=name,
        )
    if period < limits.LEAST_AVAILABILITY_SECONDS:
        raise UserError(
            f"expected a finish_time of {limits.LEAST_AVAILABILITY_SECONDS:g} s or more, found {period:g}",
            file=path,
            field=name,
        )
    return starts, ends, period


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)
