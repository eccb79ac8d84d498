"""Threads of an app and the simulated world take turns: exactly one of them runs at any time.

A thread of the app runs until it calls something that takes virtual time. It then waits for an event of the world, and
the next thread runs. When every thread waits, the world runs until one of their events happens. So the order of all
actions is the same in each run.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from edgefl.simulation.clock import Clock

PATIENCE_SECONDS = 60.0
"""Seconds of the wall clock after which the watchdog names the code in which a thread still is."""


class AppStopped(BaseException):
    """Raised in an app's thread when the run ends before the app: at a budget, for example."""


@dataclass(eq=False)
class _Turn:
    """One thread of the app.

    Attributes:
        name: for the watchdog.
        go: released when it may run.
        done: triggers when it has ended.
        error: what it raised.
    """

    name: str
    done: simpy.Event
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    ended: bool = False
    error: BaseException | None = None


class Baton:
    """Passes the right to run between the world and the threads of an app.

    Args:
        env: the world's clock.
        warn: called by the watchdog with a sentence.
    """

    def __init__(self, env: Clock, warn: Callable[[str], None]) -> None:
        self._env = env
        self._warn = warn
        self._ready: deque[_Turn] = deque()
        self._turns: list[_Turn] = []
        self._back = threading.Semaphore(0)
        self._current: _Turn | None = None
        self._stopping = False
        self._awake = env.event()

    def start(self, name: str, act: Callable[[], object]) -> simpy.Event:
        """Add a thread that executes ``act``; it runs when it is its turn. The event triggers when it has ended."""
        turn = _Turn(name, self._env.event())

        def live() -> None:
            turn.go.acquire()
            try:
                if not self._stopping:
                    act()
            except AppStopped:
                pass
            except BaseException as error:  # noqa: BLE001  (the world raises it)
                turn.error = error
            turn.ended = True
            self._back.release()

        turn.thread = threading.Thread(target=live, name=name, daemon=True)
        turn.thread.start()
        self._turns.append(turn)
        self._ready.append(turn)
        return turn.done

    def holds(self) -> bool:
        """Whether the calling thread is the app's thread that runs now."""
        return self._current is not None and threading.current_thread() is self._current.thread

    def check(self) -> None:
        """Check that the run goes on.

        Raises:
            AppStopped: it has ended.
        """
        if self._stopping:
            raise AppStopped

    def wait(self, event: simpy.Event) -> Any:
        """Let the world run until the event has happened; called by the app's thread that runs now.

        Raises:
            AppStopped: the run has ended.
        """
        turn = self._current
        assert turn is not None
        if not (self._stopping or event.callbacks is None):
            # SimPy's AnyOf would undo the callbacks of the conditions in it, so each event wakes its thread itself.
            event.callbacks.append(lambda _: self._wake(turn))
            self._back.release()
            turn.go.acquire()
        self.check()
        return event.value

    def play(self) -> Generator[simpy.Event, object, None]:
        """Run the threads, as a process of the world, until all of them have ended.

        Raises:
            BaseException: the error that a thread ended with.
        """
        while self._turns:
            while self._ready:
                self._run(self._ready.popleft())
            if self._turns:
                self._awake = self._env.event()
                yield self._awake

    def _wake(self, turn: _Turn) -> None:
        self._ready.append(turn)
        if not self._awake.triggered:
            self._awake.succeed()

    def stop(self) -> None:
        """End all threads: each one gets :class:`AppStopped` where it waits."""
        self._stopping = True
        for turn in list(self._turns):
            if not turn.ended:
                self._take_turn(turn)
        self._turns.clear()
        self._ready.clear()

    def _run(self, turn: _Turn) -> None:
        self._take_turn(turn)
        if turn.ended:
            self._turns.remove(turn)
            if turn.error is not None:
                raise turn.error
            turn.done.succeed()

    def _take_turn(self, turn: _Turn) -> None:
        self._current = turn
        turn.go.release()
        while not self._back.acquire(timeout=PATIENCE_SECONDS):
            self._warn(f"the app's thread '{turn.name}' has not returned for {PATIENCE_SECONDS:g} s; {_place(turn)}")
        self._current = None


def _place(turn: _Turn) -> str:
    """The code in which a thread is."""
    frame = sys._current_frames().get(turn.thread.ident or 0) if turn.thread is not None else None
    if frame is None:
        return "it has no frame"
    last = traceback.extract_stack(frame)[-1]
    return f"it is in {last.name}, {last.filename}, line {last.lineno}"
