"""While an app runs, ``time.sleep`` and dates of messages are virtual, and global generators are seeded."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import numpy as np
import torch

from edgefl.flower.thread_scheduler import ThreadScheduler
from edgefl.randomness import integer_seed
from edgefl.simulation.clock import Clock

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


class TimedRun(Protocol):
    """A run whose time an app's clock shows; both calls let time pass."""

    env: Clock
    threads: ThreadScheduler

    def sleep(self, seconds: float) -> None: ...

    def wait_for_nodes(self, seconds: float) -> None: ...


class AppTime:
    """The clock of an app.

    ``time.sleep`` in a thread of the ``ServerApp`` lets the world run for that long. In a ``ClientApp`` the seconds are
    added to the client's work. All other threads really sleep. ``run`` is None before the app's world exists.

    ``called``: the ``ClientApp`` called the app's own function for its last message; a mod may answer without it.
    """

    def __init__(self) -> None:
        self.run: TimedRun | None = None
        self.called = False
        self._in_client: int | None = None
        self._slept = 0.0

    @property
    def running(self) -> TimedRun:
        assert self.run is not None, "the app runs before its world exists"
        return self.run

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``."""
        in_client = self._in_client == threading.get_ident()
        if not in_client and not self._is_servers_turn():
            _really(seconds)
        elif not 0.0 <= seconds < math.inf:
            raise ValueError(f"expected seconds of sleep that are not negative, found {seconds}")
        elif in_client:
            self._slept += seconds
        else:
            self.running.sleep(float(seconds))

    def sleep_for_nodes(self, seconds: float) -> None:
        """Sleep because too few nodes are available; UserError if there will never be more."""
        if self._is_servers_turn():
            self.running.wait_for_nodes(seconds)
        else:
            self.sleep(seconds)

    def _is_servers_turn(self) -> bool:
        return self.run is not None and self.run.threads.holds()

    def now(self) -> datetime:
        """The timestamp of a message; a run begins at :data:`BEGINNING`."""
        return date_at(0.0 if self.run is None else self.run.env.now)

    @contextmanager
    def in_client(self) -> Iterator[list[float]]:
        """The calling thread executes a ``ClientApp``; afterwards the list contains the seconds that it slept."""
        self._in_client, self._slept, self.called = threading.get_ident(), 0.0, False
        slept: list[float] = []
        try:
            yield slept
        finally:
            slept.append(self._slept)
            self._in_client = None

    def noting_calls(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Flower's function ``make``, which puts mods around an app's own function, with a note of that one's calls."""

        def made(own: Callable[..., Any], mods: Any) -> Any:
            def noted(*arguments: Any) -> Any:
                self.called = True
                return own(*arguments)

            return make(noted, mods)

        return made


@contextmanager
def virtual_time(clock: AppTime) -> Iterator[None]:
    """Make sleeping and messages' timestamps virtual within the block, also for code that it imports."""
    import flwr.app.message.message as messages
    import flwr.clientapp.client_app as clients
    import flwr.serverapp.strategy.strategy_utils as sampling

    with replaced(
        (sys.modules[__name__], "_present", clock),
        (time, "sleep", sleep),
        (messages, "now", clock.now),
        (sampling, "sleep", clock.sleep_for_nodes),
        (clients, "make_ffn", clock.noting_calls(clients.make_ffn)),
    ):
        yield


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Attributes of modules or classes (owner, name, value) have other values within the block."""
    with ExitStack() as stack:
        for owner, name, value in changes:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


@contextmanager
def seeded(seed: int, purpose: str, *ids: int | str) -> Iterator[None]:
    """Within the block the global generators begin with a seed of their own; afterwards they continue as before.

    >>> with seeded(0, "demo"):
    ...     one = random.random()
    >>> with seeded(0, "demo"):
    ...     one == random.random()
    True
    """
    before = random.getstate(), np.random.get_state()  # noqa: NPY002  (apps use it)
    # PyTorch seeds its GPU generators, too; without a GPU in use there are no states to keep.
    gpus = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)  # type: ignore[no-untyped-call]
    number = integer_seed(seed, purpose, *ids)
    with torch.random.fork_rng(gpus):
        random.seed(number)
        np.random.seed(number % 2**32)  # noqa: NPY002
        torch.manual_seed(number)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
