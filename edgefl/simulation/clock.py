"""SimPy's environment, for one run of a world."""

import heapq
import itertools
import math
from collections.abc import Generator
from typing import Any

import simpy
from simpy.core import EmptySchedule, StopSimulation

from edgefl.units import slack

ProcessGenerator = Generator[simpy.Event, Any, Any]


def _raise(process: simpy.Event) -> None:
    if isinstance(process.value, BaseException):
        raise process.value


class Clock(simpy.Environment):
    """Runs events until one of them stops the run, until no events are left, or until one raises an error.

    SimPy reports "no events are left" as a ``RuntimeError``, which callbacks raise too, and passes on the error of a
    process as a copy, ``type(error)(*error.args)``, which not every class of errors supports. In this environment the
    end of all events is a return value, and the first error of a process or a callback ends the run as it was raised.

    >>> clock = Clock()
    >>> stop = clock.event()
    >>> def life():
    ...     yield clock.timeout(3)
    ...     stop.succeed("done")
    >>> process = clock.process(life())
    >>> clock.run_until(stop), clock.now
    ('done', 3.0)
    >>> clock.run_until(clock.event()) is None
    True
    """

    def __init__(self) -> None:
        super().__init__(0.0)
        self._numbers = itertools.count()
        self._alarms: list[tuple[float, bool, int, simpy.Event]] = []
        self._due: list[tuple[bool, int, float, simpy.Event]] = []
        self._instant = self._until = math.inf  # begin and end of the instant of the next alarm

    def process(self, generator: ProcessGenerator) -> simpy.Process:
        process = simpy.Process(self, generator)
        process.callbacks.append(_raise)
        return process

    def alarm(self, delay: float, *, last: bool = False) -> simpy.Event:
        """An event ``delay`` seconds from now, after everything else of that instant.

        Events up to :func:`~edgefl.units.slack` later belong to the instant. Alarms of one instant ring in the order in
        which they were set, those that are ``last`` after all others.
        """
        bell = self.event()
        bell._ok, bell._value = True, None
        heapq.heappush(self._alarms, (self.now + delay, last, next(self._numbers), bell))
        self._look_ahead()
        return bell

    def peek(self) -> float:
        return min(super().peek(), self._instant)

    def step(self) -> None:
        if self._until == math.inf or not self._until < super().peek():
            super().step()
            return
        while self._alarms and self._alarms[0][0] <= self._until:
            moment, last, number, bell = heapq.heappop(self._alarms)
            heapq.heappush(self._due, (last, number, moment, bell))
        _, _, moment, bell = heapq.heappop(self._due)
        self._now = max(self._now, moment)
        self._look_ahead()
        callbacks, bell.callbacks = bell.callbacks, None  # type: ignore[assignment]
        for callback in callbacks or ():
            callback(bell)

    def _look_ahead(self) -> None:
        if not self._due:
            self._instant = self._alarms[0][0] if self._alarms else math.inf
            self._until = self._instant + slack(self._instant)

    def run_until(self, stop: simpy.Event) -> Any:
        """Process events until ``stop`` is, and return its value; ``None`` if none are left before that."""
        assert stop.callbacks is not None
        stop.callbacks.append(StopSimulation.callback)
        try:
            while True:
                self.step()
        except StopSimulation as end:
            return end.args[0]
        except EmptySchedule:
            return None
