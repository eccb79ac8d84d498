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
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import torch

from edgefl.errors import EdgeflError

_DIES_WITH_ITS_PARENT = 1
"""``PR_SET_PDEATHSIG`` of prctl(2)."""


class CrewLost(EdgeflError):  # noqa: N818  (what happened to it)
    """A copy ended in the middle of its work (it was killed, or memory ran out), or never comes to its end."""


def can_be_copied() -> bool:
    """Whether this process can be copied while it runs: on Linux, and as long as no accelerator knows it."""
    return sys.platform == "linux" and not torch.cuda.is_available()


class Crew:
    """Some copies of this process, each of which answers requests with ``serve`` until it is dismissed.

    A copy has all that the process had when it was copied, for nothing, so only requests and answers travel: as
    pickles, between this process and its own copies alone. A copy ends with this process, however that ends, holds
    none of its files open, and leaves Ctrl-C to it.

    Args:
        size: how many.
        serve: makes an answer of a request; called in the copies.

    Raises:
        CrewLost: the process cannot be copied.
    """

    def __init__(self, size: int, serve: Callable[[Any], Any]) -> None:
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

    @property
    def size(self) -> int:
        """How many copies there are."""
        return len(self._ends)

    def dismiss(self) -> None:
        """End the copies; the crew is not used again."""
        self._dismiss()

    def answers(
        self, order: Sequence[int], request: Callable[[int, int], Any], patience: float | None = None
    ) -> dict[int, Any]:
        """The answers to some requests, each given to whoever is free; whatever goes wrong dismisses the crew.

        Args:
            order: the requests' numbers, as they are to be taken up.
            request: makes request ``number`` for worker ``worker``, when its turn comes.
            patience: seconds without any answer after which a copy is taken for stuck; ``None``: never.

        Raises:
            CrewLost: a copy ended, or is stuck.
            Exception: what ``serve`` raised for the lowest of the requests that failed; no new ones are then begun.
        """
        try:
            return self._answers(deque(order), request, patience)
        except BaseException:
            self.dismiss()
            raise

    def _answers(
        self, waiting: deque[int], request: Callable[[int, int], Any], patience: float | None
    ) -> dict[int, Any]:
        idle = list(range(len(self._ends)))
        busy: dict[Connection[Any, Any], tuple[int, int]] = {}
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        while busy or (waiting and not failures):
            while idle and waiting and not failures:
                worker, number = idle.pop(), waiting.popleft()
                self._send(worker, request(number, worker))
                busy[self._ends[worker]] = number, worker
            ready = wait(list(busy), patience)
            if not ready:
                raise CrewLost(f"no worker process has answered for {patience:.0f} s")
            for end in [end for end in busy if end in ready]:
                number, worker = busy.pop(end)
                done, answer = self._receive(worker)
                idle.append(worker)
                (answers if done else failures)[number] = answer
        if failures:
            raise failures[min(failures)]
        return answers

    def _send(self, worker: int, request: Any) -> None:
        content = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            self._ends[worker].send_bytes(content)
        except OSError as error:
            raise CrewLost(f"a worker process ended: {error}") from None

    def _receive(self, worker: int) -> tuple[bool, Any]:
        try:
            answer: tuple[bool, Any] = pickle.loads(self._ends[worker].recv_bytes())
        except (EOFError, OSError) as error:
            raise CrewLost(f"a worker process ended: {type(error).__name__}") from None
        return answer


def _copy(end: Connection[Any, Any], serve: Callable[[Any], Any]) -> int:
    """Copy this process; the copy serves at ``end`` and never returns. Returns its process id."""
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of threads that a copy does not have. Those that may exist here hold no lock that training takes.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        return process
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_DIES_WITH_ITS_PARENT, signal.SIGKILL)
        if os.getppid() == parent:
            _close_all_but(end.fileno())
            _serve(end, serve)
    finally:
        os._exit(0)


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
        end.send_bytes(pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


def _dismissed(owner: int, processes: Sequence[int], ends: Sequence[Connection[Any, Any]]) -> None:
    if os.getpid() != owner:
        return  # a copy lets go of a crew that is not its own
    for end in ends:
        end.close()
    for process in processes:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
