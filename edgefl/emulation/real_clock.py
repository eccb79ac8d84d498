"""The world's clock in an emulation: its events happen when the machine's clock reaches them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from simpy.core import EmptySchedule

from edgefl.emulation.nodes import EmulationFailed
from edgefl.simulation.clock import Clock

if TYPE_CHECKING:
    from edgefl.emulation.testbed import Testbed

PATIENCE = 120.0
"""Seconds of the machine without any report, while bytes should move, after which an emulation gives up."""

LONG_STEP = 0.02
"""Seconds of the machine for a step of the world, beyond which the clock stands still meanwhile."""


class RealClock(Clock):
    """Virtual seconds are real seconds divided by the dilation.

    The world's own work (aggregation, evaluation, training) takes time that no device of the scenario spends. While no
    transfer is in progress, or if it takes longer than :data:`LONG_STEP`, the clock stands still meanwhile.

    Attributes:
        dilation: real seconds for one second of the scenario.
        late: for each event how many real seconds after its moment it was processed.
        paused: real seconds in which the clock stood still.
        paused_while_sending: those of them in which transfers went on.
    """

    def __init__(self, dilation: float, reporter: Testbed) -> None:
        super().__init__()
        self.dilation = dilation
        self._reporter = reporter
        self._last_report = time.monotonic()
        self.late: list[float] = []
        self.paused = self.paused_while_sending = 0.0
        self._origin = math.nan

    def virtual(self, machine: float) -> float:
        """The scenario's time at a time of the machine."""
        return (machine - self._origin - self.paused) / self.dilation

    def step(self) -> None:
        """Wait for the next event or report, and process it."""
        if math.isnan(self._origin):
            self._reporter.begin()
            self._origin = time.monotonic() - self._now * self.dilation
        while True:
            self._reporter.wait(0.0)
            due, reported = self.peek(), self._reporter.earliest()
            if reported is not None and self.virtual(reported) <= due:
                self._now = max(self._now, self.virtual(reported))
                self._work(self._reporter.handle)
                return
            ahead = (due - self.virtual(time.monotonic())) * self.dilation
            if ahead <= 0.0:
                self.late.append(-ahead)
                self._work(super().step)
                return
            if not self._reporter.under_way:
                self._last_report = time.monotonic()
            if due == math.inf and (not self._reporter.under_way or self._reporter.blocked):
                raise EmptySchedule
            if self._reporter.wait(min(ahead, PATIENCE)):
                self._last_report = time.monotonic()
            elif self._reporter.under_way and time.monotonic() - self._last_report > PATIENCE:
                if self._reporter.stuck():
                    raise EmulationFailed(f"no byte has arrived for {PATIENCE:g} s")
                self._last_report = time.monotonic()

    def _work(self, do: Callable[[], None]) -> None:
        sending = self._reporter.under_way
        began = time.monotonic()
        try:
            do()
        finally:
            spent = time.monotonic() - began
            self._last_report += spent
            if not sending or spent > LONG_STEP:
                self.paused += spent
                if sending:
                    self.paused_while_sending += spent
