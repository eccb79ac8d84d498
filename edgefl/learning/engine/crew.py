"""Copies of this process that work side by side, for work of which the interpreter's lock would let one thread run."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import torch

from edgefl.errors import EdgeflError

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` of mallopt(3)."""

_DIES_WITH_ITS_PARENT = 1
"""``PR_SET_PDEATHSIG`` of prctl(2)."""

_FOR_THE_PROCESS = (signal.SIGINT, signal.SIGTERM)
"""Signals that a copy takes otherwise than the process that was copied."""

AHEAD = 1
"""Requests that are made while all copies work, for whichever is free next."""


class CrewLost(EdgeflError):  # noqa: N818  (what happened to it)
    """A copy ended in the middle of its work (killed, or out of memory), is stuck, or cannot be told what to do."""


def can_be_copied() -> bool:
    """Whether this process can be copied while it runs: on Linux, and as long as no accelerator knows it."""
    return sys.platform == "linux" and not torch.cuda.is_available()


def _as_it_is(answer: Any, _: int) -> Any:
    return answer


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
        processes: list[int] = []
        self._dismiss = weakref.finalize(self, _dismissed, os.getpid(), processes, self._ends)
        # What is loaded stays shared: the copies' collectors need not touch it.
        gc.freeze()
        try:
            for _ in range(size):
                here, there = Pipe()
                self._ends.append(here)
                processes.append(_copy(there, serve))
                there.close()
        except OSError as error:
            self.dismiss()
            raise CrewLost(f"this process cannot be copied: {error}") from None
        finally:
            gc.unfreeze()

    def dismiss(self) -> None:
        """End the copies; the crew is not used again."""
        self._dismiss()

    def answers(
        self,
        order: Sequence[int],
        request: Callable[[int, int], Any],
        taken: Callable[[Any, int], Any] = _as_it_is,
        patience: float | None = None,
    ) -> dict[int, Any]:
        """The answers to some requests, each given to whoever is free.

        What ``serve`` raises leaves the crew as it was; whatever else goes wrong dismisses it.

        Args:
            order: the requests' numbers, as they are to be taken up.
            request: makes request ``number``, in a slot that no other holds until its answer is taken; slots count from
                0 to ``size + AHEAD - 1``.
            taken: makes of the answer to the request in a slot what is given back.
            patience: seconds without any answer after which a copy is taken for stuck; ``None``: never.

        Raises:
            CrewLost: a copy ended or is stuck, or a request or an answer cannot travel.
            Exception: what ``serve`` raised for the lowest of the requests that failed; no new ones are then begun.
        """
        try:
            answers, failures = self._answers(deque(order), request, taken, patience)
        except BaseException:
            self.dismiss()
            raise
        if failures:
            raise failures[min(failures)]
        return answers

    def _answers(
        self,
        waiting: deque[int],
        request: Callable[[int, int], Any],
        taken: Callable[[Any, int], Any],
        patience: float | None,
    ) -> tuple[dict[int, Any], dict[int, Exception]]:
        """Answers, and what was raised, of the requests that were begun; no copy has anything left to do."""
        idle, free = list(self._ends), list(range(self.size + AHEAD))
        busy: dict[Connection[Any, Any], tuple[int, int]] = {}
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        prepared: list[tuple[int, int, bytes]] = []

        def hand_out() -> None:
            while not failures:
                if not prepared and waiting and free:
                    number, slot = waiting.popleft(), free.pop()
                    prepared.append((number, slot, pickled(request(number, slot))))
                if not prepared or not idle:
                    return
                number, slot, content = prepared.pop()
                end = idle.pop()
                _send(end, content)
                busy[end] = number, slot

        hand_out()
        while busy:
            ready = wait(list(busy), patience)
            if not ready:
                raise CrewLost(f"no worker process has answered for {patience:.0f} s")
            for end in [end for end in busy if end in ready]:
                number, slot = busy.pop(end)
                done, answer = _received(end)
                idle.append(end)
                if done:
                    hand_out()  # so that the copy has something to do while its answer is taken
                    answers[number] = taken(answer, slot)
                else:
                    failures[number] = answer
                free.append(slot)
                hand_out()
        return answers, failures


def pickled(what: Any) -> bytes:
    """What travels to a copy.

    Raises:
        CrewLost: it cannot, such as a class made up within a function; parts of a method may raise anything at that.
    """
    try:
        return pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise CrewLost(f"{type(what).__name__} cannot be sent: {type(error).__name__}: {error}") from error


def _send(end: Connection[Any, Any], content: bytes) -> None:
    try:
        end.send_bytes(content)
    except OSError as error:
        raise CrewLost(f"a worker process ended: {error}") from None


def _received(end: Connection[Any, Any]) -> tuple[bool, Any]:
    try:
        content = end.recv_bytes()
    except (EOFError, OSError) as error:
        raise CrewLost(f"a worker process ended: {type(error).__name__}") from None
    try:
        answer: tuple[bool, Any] = pickle.loads(content)
    except Exception as error:
        raise CrewLost(f"an answer cannot be read: {type(error).__name__}: {error}") from error
    return answer


def _copy(end: Connection[Any, Any], serve: Callable[[Any], Any]) -> int:
    """Copy this process; the copy serves at ``end`` and never returns. Returns its process id."""
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of threads that a copy does not have. Those that may exist here hold no lock that training takes.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Ctrl-C must not find a copy that still does with it what the process does.
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_PROCESS)
        try:
            process = os.fork()
        finally:
            if os.getpid() == parent:
                signal.pthread_sigmask(signal.SIG_SETMASK, heard)
    if process:
        return process
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        _computes_only()
        _keeps_its_memory()
        ctypes.CDLL(None).prctl(_DIES_WITH_ITS_PARENT, signal.SIGKILL)
        if os.getppid() == parent:
            _close_all_but(end.fileno())
            _serve(end, serve)
    finally:
        os._exit(0)


def _computes_only() -> None:
    """Tell the system, so that waking a copy does not interrupt the process that has yet to wake the others."""
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:
        return  # some containers forbid it; it costs a few milliseconds a call


def _keeps_its_memory() -> None:
    """Have memory that was let go at hand for the next step: giving it back and taking it anew clears every page."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # not glibc's
    mallopt(_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
    mallopt(_TRIM_THRESHOLD, 1 << 30)


def _close_all_but(kept: int) -> None:
    """Hold no file open of the process that was copied, least of all the lock on its run directory."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number != kept:
            try:
                os.close(number)
            except OSError:
                continue  # the listing's own


def _serve(end: Connection[Any, Any], serve: Callable[[Any], Any]) -> None:
    while True:
        try:
            request = pickle.loads(end.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = True, serve(request)
        except Exception as error:  # noqa: BLE001  (whoever asked is told everything)
            answer = False, error
        end.send_bytes(pickled(answer))


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
