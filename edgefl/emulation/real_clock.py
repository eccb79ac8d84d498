"""The world's clock in an emulation: its events happen when the machine's clock reaches them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from simpy.core import EmptySchedule

from edgefl.emulation.failure import EmulationFailed
from edgefl.emulation.history import History
from edgefl.record.events import Event
from edgefl.simulation.clock import Clock

PATIENCE = 120.0
"""Seconds of the machine without any report, while bytes should move, after which an emulation gives up."""

LONG_STEP = 0.02
"""Seconds of the machine for a step of the world, beyond which the clock stands still meanwhile."""


class Reporter(Protocol):
    """The real world, as the clock needs it."""

    def begin(self) -> None:
        """The clock is about to start."""

    def wait(self, seconds: float) -> bool:
        """Wait for reports, at most for these seconds; return whether there are any."""

    def earliest(self) -> float | None:
        """The machine's time of the earliest unread report, if there is one."""

    def handle(self) -> None:
        """Pass the earliest unread report to the world; the clock shows its moment."""

    @property
    def under_way(self) -> bool:
        """Whether transfers are in progress."""

    @property
    def blocked(self) -> bool:
        """Whether each transfer in progress waits for a link without capacity."""

    def stuck(self) -> bool:
        """Whether no byte has arrived since the last call, although links have capacity."""

    def repeat(self, row: Event) -> None:
        """Pass an end that was measured before to the world; the clock shows its moment."""

    def go_live(self) -> None:
        """The repetition is over, and the clock follows the machine's."""


class RealClock(Clock):
    """Virtual seconds are real seconds divided by the dilation.

    The world's own work (aggregation, evaluation, training) takes time that no device of the scenario spends. While no
    transfer is in progress, or if it takes longer than :data:`LONG_STEP`, the clock stands still meanwhile.

    Args:
        dilation: real seconds for one second of the scenario.
        reporter: the real world.
        history: measured rounds that are repeated first, without waiting; None for none.

    Attributes:
        dilation: real seconds for one second of the scenario.
        late: for each event how many real seconds after its moment it was processed.
        paused: real seconds in which the clock stood still.
        paused_while_sending: those of them in which transfers went on.
    """

    def __init__(self, dilation: float, reporter: Reporter, history: History | None = None) -> None:
        super().__init__()
        self._history = history
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
        """Wait for the next event or report, and process it.

        Raises:
            EmptySchedule: there is none: no transfer is in progress, or all of them are blocked permanently.
            EmulationFailed: nothing moves that should.
        """
        if self._history is not None and self._history.active:
            self._repeat(self._history)
            return
        self.start()
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

    def start(self) -> None:
        """Follow the machine's clock from now on; no effect if it does already."""
        if math.isnan(self._origin):
            self._reporter.begin()
            self._origin = time.monotonic() - self._now * self.dilation
            if self._history is not None:
                self._reporter.go_live()

    def _repeat(self, history: History) -> None:
        if history.comes_before(self.peek()):
            row = history.take()
            self._now = max(self._now, row.time)
            self._reporter.repeat(row)
        else:
            super().step()

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
