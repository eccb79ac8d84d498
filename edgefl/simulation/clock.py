"""SimPy's environment, for one run of a world."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy
from simpy.core import EmptySchedule, StopSimulation
from simpy.events import EventPriority

ProcessGenerator = Generator[simpy.Event, Any, Any]
_AFTER_THE_NETWORK = EventPriority(3)  # the network settles an instant at priority 2


class _Raised(Exception):  # noqa: N818  (an envelope)
    """Carries the error of a process through SimPy: a copy of it carries the same error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Clock(simpy.Environment):
    """Runs events until one of them stops the run, until no events are left, or until one raises an error.

    SimPy reports "no events are left" as a ``RuntimeError``, which callbacks raise too, and passes on the error of a
    process as a copy, ``type(error)(*error.args)``, which not every class of errors supports. In this environment the
    end of all events is a return value, and the original error is raised, also in a process that waits for another.

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

    def process(self, generator: ProcessGenerator) -> simpy.Process:
        return simpy.Process(self, _with_original_errors(generator))

    def alarm(self, delay: float) -> simpy.Event:
        """An event ``delay`` seconds from now, after everything else that happens at that instant."""
        bell = self.event()
        bell._ok, bell._value = True, None
        self.schedule(bell, _AFTER_THE_NETWORK, delay)
        return bell

    def run_until(self, stop: simpy.Event) -> Any:
        """Process events until ``stop`` is processed; return its value, or ``None`` if no events are left before that.

        Raises:
            Exception: what a callback or a process raised.
        """
        assert stop.callbacks is not None
        stop.callbacks.append(StopSimulation.callback)
        try:
            while True:
                self.step()
        except StopSimulation as end:
            return end.args[0]
        except EmptySchedule:
            return None
        except _Raised as raised:
            raise raised.error from raised.error.__cause__


def _with_original_errors(generator: ProcessGenerator) -> ProcessGenerator:
    """The same process; its errors leave it in an envelope, and those of other processes arrive without one."""
    resume, value = generator.send, None
    while True:
        try:
            event = resume(value)
        except StopIteration as end:
            return end.value
        except Exception as error:
            raise _Raised(error) from error
        try:
            resume, value = generator.send, (yield event)
        except Exception as error:  # noqa: BLE001  (the process handles it, or fails)
            resume, value = generator.throw, error.error if isinstance(error, _Raised) else error
