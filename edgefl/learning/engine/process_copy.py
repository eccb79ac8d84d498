"""A copy of this process that answers requests: how it comes to be, and how requests and answers travel."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from edgefl.errors import EdgeflError

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` of mallopt(3)."""

_DIES_WITH_ITS_PARENT = 1
"""``PR_SET_PDEATHSIG`` of prctl(2)."""

_FOR_THE_PROCESS = (signal.SIGINT, signal.SIGTERM)
"""Signals that a copy takes otherwise than the process that was copied."""


class CrewLost(EdgeflError):  # noqa: N818  (what happened to it)
    """A copy ended in the middle of its work (killed, or out of memory), is stuck, or cannot be told what to do."""


def can_be_copied() -> bool:
    """Whether this process can be copied while it runs: on Linux, and as long as no accelerator knows it."""
    return sys.platform == "linux" and not torch.cuda.is_available()


def pickled(what: Any) -> bytes:
    """What travels to a copy.

    Raises:
        CrewLost: it cannot, such as a class made up within a function; parts of a method may raise anything at that.
    """
    try:
        return pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise CrewLost(f"{type(what).__name__} cannot be sent: {type(error).__name__}: {error}") from error


def send(end: Connection[Any, Any], content: bytes) -> None:
    """Send what was :func:`pickled`.

    Raises:
        CrewLost: the copy has ended.
    """
    try:
        end.send_bytes(content)
    except OSError as error:
        raise CrewLost(f"a worker process ended: {error}") from None


def received(end: Connection[Any, Any]) -> tuple[bool, Any]:
    """Whether a copy did what was asked, and its answer or what was raised there.

    Raises:
        CrewLost: the copy has ended, or its answer cannot be read.
    """
    try:
        content = end.recv_bytes()
    except (EOFError, OSError) as error:
        raise CrewLost(f"a worker process ended: {type(error).__name__}") from None
    try:
        answer: tuple[bool, Any] = pickle.loads(content)
    except Exception as error:
        raise CrewLost(f"an answer cannot be read: {type(error).__name__}: {error}") from error
    return answer


def copy_process(end: Connection[Any, Any], serve: Callable[[Any], Any]) -> int:
    """Copy this process; the copy answers what comes to ``end`` by ``serve``, and never returns.

    Returns:
        Its process id.

    Raises:
        OSError: the system refuses.
    """
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
