"""What a ``ServerApp`` asks of the world, and, in a replay, its stand-in: each call is a decision in the log.

The log has everything that a replay needs to make the same calls again. The items of these decisions are:

- ``round``: the next messages begin a round;
- ``selection``: messages are sent, each one with its client, the bytes of its parts and its seconds to live;
- ``wait``: a thread waits for the replies to ``all`` or to ``any`` of some messages, or until a time-out;
- ``pull``: the thread gets the replies that are there, ``got``, each one with its outcome; with ``gives_up`` it will
  not ask for the others again;
- ``sleep``, and ``nodes``: which nodes are ``absent``;
- ``start``, ``join`` and ``end`` of the app's threads.

Messages are named by client and number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import simpy

from edgefl.errors import UserError
from edgefl.flower.baton import Baton
from edgefl.flower.course import AppCourse
from edgefl.flower.exchange import Exchange
from edgefl.flower.messages import Letter
from edgefl.simulation.world import World

MOST_IDLE_SLEEPS = 100_000
"""Sleeps of a ServerApp in a row while no message is in progress; a day in steps of a second has 86,400."""


class AppThread(NamedTuple):
    """A thread of the app.

    Attributes:
        number: counts the threads from 0.
        done: triggers when it has ended.
    """

    number: int
    done: simpy.Event


class Calls:
    """The calls of one run; each method is called by the app's thread that runs now.

    Args:
        world: the world of the run.
        baton: says which of the app's threads runs.
        course: the course of the run.
    """

    def __init__(self, world: World, baton: Baton, course: AppCourse) -> None:
        self._world, self._baton, self._course = world, baton, course
        self._sleeps = 0

    def nodes(self) -> list[bool]:
        """Whether each client's device is available now."""
        there = [bool(each) for each in self._world.presence.available()]
        absent = [client for client, present in enumerate(there) if not present]
        self._log("nodes", **({"absent": absent} if absent else {}))
        return there

    def begin_round(self) -> None:
        """The messages that are sent next begin a round."""

        def act() -> None:
            self._course.log("round")
            self._course.begin_round()

        self._baton.in_world(act)

    def push(self, letters: Sequence[Letter]) -> list[Exchange]:
        """Send messages together; each node handles one message after another."""

        def act() -> list[Exchange]:
            if self._world.stopped.triggered:
                self._baton.end()
                return []
            return self._course.push(letters)

        return self._baton.in_world(act)

    def wait(self, exchanges: Sequence[Exchange], *, until: str, timeout: float | None = None) -> None:
        """Wait for the replies to ``all`` or ``any`` of these messages, or until the time-out."""
        env = self._world.env
        self._log("wait", until=until, messages=_names(exchanges), **({} if timeout is None else {"timeout": timeout}))
        replied = [each.replied for each in exchanges]
        complete: simpy.Event = env.all_of(replied) if until == "all" else env.any_of(replied)
        if timeout is not None:
            complete = complete | self._world.alarm(timeout)
        self._baton.wait(complete)

    def pull(self, exchanges: Sequence[Exchange], *, gives_up: bool = False) -> list[Exchange]:
        """Get the replies that are there and were not pulled before, in the order of their arrival."""
        there = [each for each in exchanges if each.outcome is not None and not each.pulled]
        found = sorted(there, key=lambda each: (each.replied_at, each.job.id.client, each.job.id.dispatch))

        def act() -> None:
            self._course.pulled(found)
            got = [[each.client, each.job.id.dispatch, each.outcome] for each in found]
            self._course.log("pull", messages=_names(exchanges), got=got, gives_up=gives_up)

        self._baton.in_world(act)
        for exchange in exchanges if gives_up else ():
            if not exchange.pulled:
                exchange.given_up = True
        return found

    def sleep(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            UserError: the app has only slept for too often.
        """
        self._sleeps = self._sleeps + 1 if self._course.idle else 0
        if self._sleeps > MOST_IDLE_SLEEPS:
            self._baton.fail(
                UserError(
                    f"the ServerApp has slept {MOST_IDLE_SLEEPS} times, until "
                    f"{self._world.now:.6g} s of virtual time, while no message was in progress, and seems to "
                    "wait for something that does not happen; budgets.seconds ends such a run without an error",
                    field="flower.app",
                )
            )
        self.let_pass(seconds)

    def wait_for_nodes(self, seconds: float) -> None:
        """Let time pass because the app wants more nodes.

        Raises:
            UserError: there will never be more.
        """
        presence = self._world.presence
        if self._course.idle and presence.next_arrival() == np.inf:
            there = np.count_nonzero(presence.available())
            self._baton.fail(
                UserError(
                    f"the app waits for more nodes than will ever be available: {there} of {self._world.setup.clients} "
                    "are there; change its number of nodes, or data.clients",
                    field="flower.app",
                )
            )
        self.let_pass(seconds)

    def let_pass(self, seconds: float) -> None:
        """Let time pass."""
        self._log("sleep", seconds=seconds)
        self._baton.wait(self._world.env.timeout(seconds))

    def start(self, name: str, act: Callable[[], object]) -> AppThread:
        """Start a thread of the app, or the first one, which is the ``ServerApp``'s."""

        def live() -> None:
            act()
            self._log("end")

        number = self._baton.started
        if number:
            self._log("start", starts=number)
        return AppThread(number, self._baton.start(name, live))

    def join(self, threads: Sequence[AppThread]) -> None:
        """Wait for the end of these threads."""
        self._log("join", threads=[each.number for each in threads])
        self._baton.wait(self._world.env.all_of([each.done for each in threads]))

    def _log(self, what: str, **facts: object) -> None:
        self._baton.in_world(lambda: self._course.log(what, **facts))


def finite(timeout: float | None) -> float | None:
    """A time-out that is not negative; None for an infinite one.

    Raises:
        ValueError: it is not a number.
    """
    if timeout is not None and math.isnan(timeout):
        raise ValueError("expected a number of seconds as timeout, found nan")
    return None if timeout is None or timeout == math.inf else max(0.0, timeout)


def _names(exchanges: Sequence[Exchange]) -> list[list[int]]:
    return [[each.client, each.job.id.dispatch] for each in exchanges]
