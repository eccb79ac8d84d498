"""While an app runs, ``time.sleep`` and the timestamps of messages are virtual; other clocks are not.

An app that reads one of :data:`REAL_CLOCKS` gets a warning. ``datetime.now`` belongs to a type that cannot be changed.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

from edgefl.flower.baton import Baton
from edgefl.simulation.clock import Clock

if TYPE_CHECKING:
    from edgefl.flower.calls import Calls

BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)
"""Messages carry times of the calendar; a time of 0 would need fewer bytes than a real one."""


LAST_SECOND = (datetime.max.replace(tzinfo=UTC) - BEGINNING).total_seconds() - 1
"""The calendar has no later times; the world's clock has."""


def date_at(seconds: float) -> datetime:
    """The date of a virtual time; after the end of the calendar it is the last one."""
    return BEGINNING + timedelta(seconds=min(seconds, LAST_SECOND))


_really = time.sleep
_present: AppTime | None = None


def sleep(seconds: float) -> None:
    """Replaces ``time.sleep`` while an app runs; modules that import it keep it, and sleep really afterwards."""
    (_really if _present is None else _present.sleep)(seconds)


REAL_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
"""Functions of the module ``time`` that an app may mistake for virtual ones."""


def _reading(name: str) -> Callable[[], Any]:
    """Replaces a function of :data:`REAL_CLOCKS` while an app runs; see :func:`sleep`."""
    really: Callable[[], Any] = getattr(time, name)

    def read() -> Any:
        if _present is not None:
            _present.was_read(name, sys._getframe(1))
        return really()

    return read


_READINGS = [(time, name, _reading(name)) for name in REAL_CLOCKS]


class AppTime:
    """The clock of an app.

    ``time.sleep`` in a thread of the ``ServerApp`` lets the world run for that long. In a ``ClientApp`` the seconds are
    added to the client's work. All other threads really sleep.

    Args:
        is_app: whether a file contains code of the app.
    """

    def __init__(self, is_app: Callable[[str], bool] = lambda _: False) -> None:
        self._is_app = is_app
        self._warned = False
        self._world: tuple[Clock, Baton] | None = None
        self._calls: Calls | None = None
        self._in_client: int | None = None
        self._slept = 0.0

    def begins(self, env: Clock, baton: Baton, calls: Calls) -> None:
        """The world and the app's threads exist now, and their calls."""
        self._world, self._calls = (env, baton), calls

    def was_read(self, name: str, frame: FrameType) -> None:
        """A real clock was read there: warn once, if it is the app that did it."""
        file = frame.f_code.co_filename
        if not self._warned and self._is_app(file):
            self._warned = True
            warnings.warn(
                f"the app reads a real clock: time.{name}, {file}, line {frame.f_lineno}; only time.sleep is virtual",
                stacklevel=3,
            )

    def stop(self) -> None:
        """The run has ended, maybe by an error: end the app's threads."""
        if self._world is not None:
            self.baton.stop()

    @property
    def env(self) -> Clock:
        """The world's clock."""
        return self._both[0]

    @property
    def baton(self) -> Baton:
        """Runs the app's threads."""
        return self._both[1]

    @property
    def calls(self) -> Calls:
        """The calls of the app's threads."""
        assert self._calls is not None, "the app runs before its world exists"
        return self._calls

    @property
    def _both(self) -> tuple[Clock, Baton]:
        assert self._world is not None, "the app runs before its world exists"
        return self._world

    def sleep(self, seconds: float) -> None:
        """Sleep as ``time.sleep`` does.

        Raises:
            ValueError: a thread of the app sleeps for seconds that are negative or not finite.
            UserError: the app does nothing else.
        """
        in_client = self._in_client == threading.get_ident()
        if not in_client and not self.holds():
            _really(seconds)
        elif not 0.0 <= seconds < math.inf:
            raise ValueError(f"expected seconds of sleep that are not negative, found {seconds}")
        elif in_client:
            self._slept += seconds
        else:
            self.calls.sleep(float(seconds))

    def sleep_for_nodes(self, seconds: float) -> None:
        """Sleep because too few nodes are available.

        Raises:
            UserError: there will never be more.
        """
        if self.holds():
            self.calls.wait_for_nodes(seconds)
        else:
            self.sleep(seconds)

    def holds(self) -> bool:
        """Whether the calling thread is the ``ServerApp``'s that runs now."""
        return self._world is not None and self.baton.holds()

    def now(self) -> datetime:
        """The timestamp of a message; a run begins at :data:`BEGINNING`."""
        return date_at(0.0 if self._world is None else self.env.now)

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

    with all_replaced(
        (sys.modules[__name__], "_present", clock),
        (time, "sleep", sleep),
        (messages, "now", clock.now),
        (sampling, "sleep", clock.sleep_for_nodes),
        *_READINGS,
    ):
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
