"""While an app runs, ``time.sleep`` and the timestamps of messages are virtual; other clocks are not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from edgefl.flower.baton import Baton
from edgefl.simulation.clock import Clock

BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)
"""Messages carry times of the calendar; a time of 0 would need fewer bytes than a real one."""


class AppTime:
    """The time in which an app lives.

    ``time.sleep`` in a thread of the ``ServerApp`` lets the world run for that long. In a ``ClientApp`` the seconds are
    added to the client's work. All other threads really sleep.
    """

    def __init__(self) -> None:
        self._world: tuple[Clock, Baton] | None = None
        self._really = time.sleep
        self._in_client: int | None = None
        self._slept = 0.0

    def begins(self, env: Clock, baton: Baton) -> None:
        """The world and the app's threads exist now."""
        self._world = env, baton

    @property
    def env(self) -> Clock:
        """The world's clock."""
        return self._both[0]

    @property
    def baton(self) -> Baton:
        """Runs the app's threads."""
        return self._both[1]

    @property
    def _both(self) -> tuple[Clock, Baton]:
        assert self._world is not None, "the app runs before its world exists"
        return self._world

    def sleep(self, seconds: float) -> None:
        """Replaces ``time.sleep``."""
        if self._in_client == threading.get_ident():
            self._slept += max(0.0, float(seconds))
        elif self._world is not None and self.baton.holds():
            self.baton.wait(self.env.timeout(max(0.0, float(seconds))))
        else:
            self._really(seconds)

    def now(self) -> datetime:
        """The timestamp of a message; a run begins at :data:`BEGINNING`."""
        return BEGINNING + timedelta(seconds=0.0 if self._world is None else self.env.now)

    @contextmanager
    def in_client(self) -> Iterator[list[float]]:
        """The calling thread executes a ``ClientApp``; afterwards the list contains the seconds that it slept."""
        self._in_client, self._slept = threading.get_ident(), 0.0
        slept: list[float] = []
        try:
            yield slept
        finally:
            slept.append(self._slept)
            self._in_client = None


@contextmanager
def virtual_time(clock: AppTime) -> Iterator[None]:
    """Make sleeping and messages' timestamps virtual within the block, also for code that it imports."""
    import flwr.app.message.message as messages
    import flwr.serverapp.strategy.strategy_utils as sampling

    with all_replaced((time, "sleep", clock.sleep), (messages, "now", clock.now), (sampling, "sleep", clock.sleep)):
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of a module or class has another value within the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def all_replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Several attributes; see :func:`replaced`."""
    with ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(replaced(owner, name, value))
        yield
