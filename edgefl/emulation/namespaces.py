"""Work inside the network namespaces of other processes."""

import ctypes
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW_NET = 0x40000000
"""CLONE_NEWNET of Linux."""
_SEPARATE_SECONDS = 20.0


def python(module: str) -> list[str]:
    """The command that starts a module of this package; files of the working directory are not imported."""
    return [sys.executable, "-P", "-m", f"edgefl.emulation.{module}"]


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Let the calling thread, and processes that it starts, be in the network namespace of a process."""
    there = opened(pid)
    try:
        with entered(there):
            yield
    finally:
        os.close(there)


def opened(pid: int) -> int:
    """A descriptor, which keeps the network namespace when the process ends; OSError if there is no such process."""
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)


@contextmanager
def entered(namespace: int) -> Iterator[None]:
    """As :func:`inside`, for a namespace of :func:`opened`."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(namespace)
        try:
            yield
        finally:
            _enter(here)
    finally:
        os.close(here)


def wait_for_own(pid: int) -> None:
    """Wait until a process has left this one's network namespace for its own."""
    own = Path("/proc/self/ns/net").readlink()
    until = time.monotonic() + _SEPARATE_SECONDS
    while Path(f"/proc/{pid}/ns/net").readlink() == own:
        if time.monotonic() > until:
            raise OSError(f"process {pid} has no network namespace of its own after {_SEPARATE_SECONDS:g} s")
        time.sleep(0.002)


def set_parameters(values: dict[str, str]) -> None:
    """Write kernel parameters (``net.ipv4.ip_forward``) of the present network namespace; unknown ones are skipped."""
    for name, value in values.items():
        file = Path("/proc/sys", *name.split("."))
        if file.exists():
            file.write_text(value)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is new in Python 3.12
    if libc.setns(descriptor, _NEW_NET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}")
