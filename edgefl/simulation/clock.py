"""SimPy's environment, for one run of a world."""

from collections.abc import Generator
from typing import Any

import simpy
from simpy.core import EmptySchedule, StopSimulation
from simpy.events import EventPriority

ProcessGenerator = Generator[simpy.Event, Any, Any]
_AFTER_THE_NETWORK = EventPriority(3)  # the network settles an instant at priority 2


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

    def process(self, generator: ProcessGenerator) -> simpy.Process:
        process = simpy.Process(self, generator)
        process.callbacks.append(_raise)
        return process

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
