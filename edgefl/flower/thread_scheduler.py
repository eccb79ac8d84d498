"""Threads of an app and the simulated world take turns: exactly one of them runs at any time.

A thread of the app runs until a call takes virtual time. It then waits for an event of the world, and the next thread
runs. When every thread waits, the world runs until one of their events happens. So all runs have one order.

What an app's thread asks of the world (:meth:`ThreadScheduler.in_world`) happens in the world's thread. So an error of
a listener or of a file ends the run, and the app cannot catch it.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import simpy

from edgefl.simulation.clock import Clock

Result = TypeVar("Result")


class AppStopped(BaseException):
    """Raised in an app's thread when the run ends before the app: at a budget, for example."""


class AppRaised(Exception):  # noqa: N818  (an envelope)
    """Carries the error that a thread of an app ended with, so that it is not mistaken for an error of the world."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@dataclass(eq=False)
class _Turn:
    done: simpy.Event
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    ended: bool = False
    error: BaseException | None = None


class ThreadScheduler:
    """Lets the world and the threads of an app take turns."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._ready: deque[_Turn] = deque()
        self._turns: list[_Turn] = []
        self._back = threading.Semaphore(0)
        self._current: _Turn | None = None
        self._stopping = False
        self._failure: Exception | None = None
        self._asked: Callable[[], object] | None = None
        self._awake = env.event()

    def start(self, name: str, act: Callable[[], object]) -> simpy.Event:
        """Add a thread that executes ``act``; it runs when it is its turn. The event triggers when it has ended."""
        turn = _Turn(self._env.event())

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
        """True if the calling thread is the app's thread that runs now."""
        return self._current is not None and threading.current_thread() is self._current.thread

    def check(self) -> None:
        """Raise AppStopped if the run has ended."""
        if self._stopping:
            raise AppStopped

    def in_world(self, act: Callable[[], Result]) -> Result:
        """Execute ``act``, and raise its errors, in the world's thread; AppStopped here if the run has ended."""
        self.check()
        turn = self._current
        assert turn is not None
        results: list[Result] = []
        self._asked = lambda: results.append(act())
        self._back.release()
        turn.go.acquire()
        self.check()
        return results[0]

    def fail(self, error: Exception) -> NoReturn:
        """Raise an error in a thread of the app, and in the world when it is its turn, even if the app catches it."""
        self._failure = self._failure or error
        raise error

    def end(self) -> None:
        self._stopping = True

    def wait(self, event: simpy.Event) -> Any:
        """Let the world run until the event has happened; AppStopped if the run has ended."""
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
        """Run the threads, as a process of the world, until all have ended; AppRaised if one ended with an error."""
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
        """End all threads where they wait; one that still runs (after Ctrl-C) ends when it next calls edgefl."""
        self._stopping = True
        running = self._current
        for turn in self._turns:
            if not turn.ended and turn is not running:
                self._take_turn(turn)
        self._turns.clear()
        self._ready.clear()

    def _run(self, turn: _Turn) -> None:
        self._take_turn(turn)
        if turn.ended:
            self._turns.remove(turn)
        if self._failure is not None:
            raise self._failure
        if turn.error is not None:
            raise AppRaised(turn.error)
        if turn.ended:
            turn.done.succeed()

    def _take_turn(self, turn: _Turn) -> None:
        """Let it run until it waits, and do what it asks of the world meanwhile."""
        while True:
            self._current = turn
            turn.go.release()
            self._back.acquire()
            self._current = None
            if self._asked is None:
                break
            act, self._asked = self._asked, None
            act()
        if turn.ended and turn.thread is not None:
            turn.thread.join()
