"""SimPy's environment, for one run of a world."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy
from simpy.core import EmptySchedule, StopSimulation

ProcessGenerator = Generator[simpy.Event, Any, Any]


class Clock(simpy.Environment):
    """Runs events until one of them stops the run, until no events are left, or until one raises an error.

    SimPy reports "no events are left" as a ``RuntimeError``, which callbacks raise too, and replaces the error of a
    process by a copy, ``type(error)(*error.args)``, which not every class of errors supports. In this environment the
    end of all events is a return value, and the original error is raised.

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
        self._raised: Exception | None = None

    def process(self, generator: ProcessGenerator) -> simpy.Process:
        """A process of this environment."""
        return simpy.Process(self, self._remembering(generator))

    def run_until(self, stop: simpy.Event) -> Any:
        """Process events until ``stop`` is processed.

        Returns:
            The value of ``stop``; ``None`` if no events are left before that.

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
        except Exception as error:
            if self._raised is None or self._raised is error:
                raise
            raise self._raised from self._raised.__cause__

    def _remembering(self, generator: ProcessGenerator) -> ProcessGenerator:
        """The same process; the environment keeps the first error that any process raises."""
        try:
            return (yield from generator)
        except Exception as error:
            self._raised = self._raised or error
            raise
