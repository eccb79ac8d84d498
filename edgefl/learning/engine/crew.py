"""Copies of this process that work side by side, for work of which the interpreter's lock would let one thread run."""

from __future__ import annotations

import gc
import os
import select
import signal
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from types import MappingProxyType
from typing import Any

from edgefl.learning.engine.process_copy import CrewLost, copy_process, pickled, received, send

_QUEUED_BYTES = 1 << 16
"""The longest request that a copy is sent before it is done with another; a socket takes it without being read."""


class Errand:
    """A request that a copy was given, or is about to be.

    Args:
        slot: where its tensors lie meanwhile.
        taken: makes of the answer, in that slot, what is kept.

    Attributes:
        done: whether the answer was taken.
        answer: what was kept of it.
        failure: what was raised instead.
    """

    __slots__ = ("answer", "done", "failure", "slot", "taken")

    def __init__(self, slot: int, taken: Callable[[Any, int], Any]) -> None:
        self.slot = slot
        self.taken: Callable[[Any, int], Any] | None = taken
        self.done = False
        self.answer: Any = None
        self.failure: Exception | None = None

    def forget(self) -> None:
        """The answer will not be asked for."""
        self.taken = None

    def end(self, answer: Any, *, sound: bool) -> None:
        """The answer has come; or, in its place, what was raised."""
        self.done = True
        if not sound:
            self.failure = answer
            return
        try:
            self.answer = None if self.taken is None else self.taken(answer, self.slot)
        except Exception as error:  # noqa: BLE001  (whoever wants the answer is told)
            self.failure = error

    def show(self, watching: Callable[[Any], None]) -> None:
        """Show the answer that was taken; what is raised at that is the request's failure."""
        try:
            watching(self.answer)
        except Exception as error:  # noqa: BLE001  (whoever wants the answer is told)
            self.failure = error


def as_it_is(_number: int, answer: Any, _slot: int) -> Any:
    """What is kept of an answer that needs no slot."""
    return answer


def slots(size: int) -> int:
    """How many requests so many copies may hold, with one that is made meanwhile, for whichever is free next."""
    return 2 * size + 1


class Crew:
    """Some copies of this process, each of which answers requests until it is dismissed.

    A copy has all that the process had when it was copied, for nothing, so only requests and answers travel: as
    pickles, between this process and its own copies alone. A copy ends with this process, however that ends, holds
    none of its files open, and leaves Ctrl-C to it.

    Args:
        size: how many.
        serve: makes an answer of a request; called in the copies.

    Attributes:
        size: as given.

    Raises:
        CrewLost: the process cannot be copied.
    """

    def __init__(self, size: int, serve: Callable[[Any], Any]) -> None:
        self.size = size
        self._ends: list[Connection[Any, Any]] = []
        self._under_way: dict[Connection[Any, Any], deque[Errand]] = {}
        self._free = list(range(slots(size)))
        self._poll = select.poll()
        self._taking = False
        processes: list[int] = []
        self._dismiss = weakref.finalize(self, _dismissed, os.getpid(), processes, self._ends)
        # What is loaded stays shared: the copies' collectors need not touch it.
        gc.freeze()
        try:
            for _ in range(size):
                here, there = Pipe()
                self._ends.append(here)
                processes.append(copy_process(there, serve))
                there.close()
        except OSError as error:
            self.dismiss()
            raise CrewLost(f"this process cannot be copied: {error}") from None
        finally:
            gc.unfreeze()
        for end in self._ends:
            self._under_way[end] = deque()
            self._poll.register(end, select.POLLIN)

    def dismiss(self) -> None:
        """End the copies; the crew is not used again."""
        self._dismiss()

    @property
    def idle(self) -> bool:
        """Whether a copy has nothing to do; answers that are there by now are taken.

        Raises:
            CrewLost: a copy ended.
        """
        return 0 in self._held()

    @property
    def busy(self) -> bool:
        """Whether a copy has something to do; answers that are there by now are taken.

        Raises:
            CrewLost: a copy ended.
        """
        return any(self._held())

    def begin(self, request: Callable[[int], Any], taken: Callable[[Any, int], Any]) -> Errand:
        """Give a request to a copy while one is :attr:`idle`; whoever wants its answer asks for :meth:`answers`.

        Args:
            request: makes the request, in a slot that no other holds until its answer is taken.
            taken: makes of the answer, in that slot, what is kept.

        Raises:
            CrewLost: a copy ended, or the request cannot travel.
        """
        with self._whole():
            errand = Errand(self._free.pop(), taken)
            self._give(self._least_busy(), errand, pickled(request(errand.slot)))
        return errand

    def settle(self, begun: Iterable[Errand], patience: float | None = None) -> None:
        """Wait until none of these requests is under way, whatever came of them.

        Raises:
            CrewLost: a copy ended or is stuck.
        """
        with self._whole():
            while not all(errand.done for errand in begun):
                self._wait(patience)

    def answers(
        self,
        order: Sequence[int],
        request: Callable[[int, int], Any],
        taken: Callable[[int, Any, int], Any] = as_it_is,
        patience: float | None = None,
        begun: Mapping[int, Errand] = MappingProxyType({}),
        *,
        alike: bool = False,
    ) -> dict[int, Any]:
        """The answers to some requests, each given to whoever is free.

        What ``serve`` or ``taken`` raises leaves the crew as it was; whatever else goes wrong dismisses it.

        Args:
            order: the requests' numbers, as they are to be taken up.
            request: makes request ``number``, in a slot that no other holds until its answer is taken; slots count from
                0 to ``slots(size) - 1``.
            taken: makes of request ``number``'s answer, in a slot, what is given back.
            patience: seconds without any answer after which a copy is taken for stuck; ``None``: never.
            begun: by other numbers, requests that were begun before.
            alike: all of them take as long, so that a copy may be given its next one while it has yet to end one; else
                it might wait behind a long one while another copy is free.

        Raises:
            CrewLost: a copy ended or is stuck, or a request or an answer cannot travel.
            Exception: what was raised for the lowest of the requests that failed; no new ones are then handed out.
        """
        with self._whole():
            errands = self._errands(deque(order), request, taken, patience, dict(begun), alike=alike)
        failures = {number: each.failure for number, each in errands.items() if each.failure is not None}
        if failures:
            raise failures[min(failures)]
        return {number: each.answer for number, each in errands.items()}

    def _errands(
        self,
        waiting: deque[int],
        request: Callable[[int, int], Any],
        taken: Callable[[int, Any, int], Any],
        patience: float | None,
        errands: dict[int, Errand],
        *,
        alike: bool,
    ) -> dict[int, Errand]:
        """All ``errands`` that were begun, by their numbers; none of them is still under way."""
        prepared: list[tuple[int, Errand, bytes]] = []

        def failed() -> bool:
            return any(each.failure is not None for each in errands.values())

        def hand_out() -> None:
            while not failed():
                if not prepared and waiting and self._free:
                    number, slot = waiting.popleft(), self._free.pop()
                    errand = Errand(slot, partial(taken, number))
                    prepared.append((number, errand, pickled(request(number, slot))))
                if not prepared:
                    return
                number, errand, content = prepared[0]
                end = self._least_busy()
                held = len(self._under_way[end])
                # The last ones go to whoever is free first, also where all are alike.
                queues = alike and held == 1 and len(waiting) >= self.size and len(content) <= _QUEUED_BYTES
                if held and not queues:
                    return
                prepared.clear()
                errands[number] = errand
                self._give(end, errand, content)

        hand_out()
        while any(not each.done for each in errands.values()) or ((waiting or prepared) and not failed()):
            self._wait(patience, hand_out)
        self._free.extend(errand.slot for _, errand, _ in prepared)
        return errands

    def _held(self) -> list[int]:
        """How many requests each copy holds by now."""
        with self._whole():
            self._take_what_came(0)
        return [len(held) for held in self._under_way.values()]

    def _least_busy(self) -> Connection[Any, Any]:
        return min(self._ends, key=lambda end: len(self._under_way[end]))

    def _give(self, end: Connection[Any, Any], errand: Errand, content: bytes) -> None:
        send(end, content)
        self._under_way[end].append(errand)

    def _wait(self, patience: float | None, hand_out: Callable[[], None] = lambda: None) -> None:
        if not self._take_what_came(patience, hand_out):
            raise CrewLost(f"no worker process has answered for {patience:.0f} s")

    def _take_what_came(self, patience: float | None, hand_out: Callable[[], None] = lambda: None) -> bool:
        """Take the answers that come within so many seconds, and have the next requests handed out.

        Whoever takes an answer may ask how busy the copies are; nothing else is taken meanwhile.

        Returns:
            Whether one came.
        """
        if self._taking:
            return False
        ready = {number for number, _ in self._poll.poll(None if patience is None else 1000 * patience)}
        self._taking = True
        try:
            self._take([end for end in self._ends if end.fileno() in ready], hand_out)
        finally:
            self._taking = False
        return bool(ready)

    def _take(self, ready: Sequence[Connection[Any, Any]], hand_out: Callable[[], None]) -> None:
        for end in ready:
            sound, answer = received(end)
            errand = self._under_way[end].popleft()
            if sound:
                hand_out()  # so that the copy has something to do while its answer is taken
            errand.end(answer, sound=sound)
            self._free.append(errand.slot)
            hand_out()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Whatever goes wrong within dismisses the crew."""
        if not self._dismiss.alive:
            raise CrewLost("the copies were dismissed")
        try:
            yield
        except BaseException:
            self.dismiss()
            raise


def _dismissed(owner: int, processes: Sequence[int], ends: Sequence[Connection[Any, Any]]) -> None:
    if os.getpid() != owner:
        return  # a copy lets go of a crew that is not its own
    for end in ends:
        end.close()
    for process in processes:
        # Where nobody is to be told of children, the system forgets a copy as soon as it has ended.
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
