"""Namespaces, and the connection to the nodes in them: orders go out, reports come in, each with its moment."""

import ctypes
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from edgefl.errors import EdgeflError

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


class EmulationFailed(EdgeflError):  # noqa: N818  (what happened, as the other errors of runs)
    """A process, a link or a transfer of an emulation does not work any more."""


def check_alive(report: Mapping[str, Any]) -> None:
    """Raise EmulationFailed if a report says that a process has ended, or that the links do not work."""
    if "broken" in report:
        raise EmulationFailed(f"the links of the emulation do not work: {report['broken']}")
    if "gone" in report:
        raise EmulationFailed(f"the process of {report['gone']} has ended")


class Nodes:
    """All nodes' processes, by name, which connect to ``path``; ``reports`` are the unread ones, as they arrived."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reports: deque[dict[str, Any]] = deque()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen(256)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._rest: dict[socket.socket, bytes] = {}
        self._nodes: dict[str, socket.socket] = {}
        self._waiting: dict[str, list[bytes]] = {}
        self._lives: dict[str, int] = {}  # how many processes of a node have been killed

    def order(self, node: str, **order: Any) -> None:
        """Send an order; a node whose process is to be replaced receives it with the new process."""
        line = json.dumps(order).encode() + b"\n"
        if node in self._waiting:
            self._waiting[node].append(line)
            return
        try:
            self._nodes[node].sendall(line)
        except (OSError, KeyError):
            raise EmulationFailed(f"the process of {node} has ended") from None

    def expect_successor(self, node: str) -> None:
        """A node's process will end and get a successor; its unread reports have no effect."""
        self._nodes.pop(node, None)
        self._lives[node] = self._lives.get(node, 0) + 1
        self._waiting[node] = []

    def wait(self, seconds: float) -> bool:
        """Wait for reports, at most for these seconds; return True if there are any."""
        for key, _ in self._selector.select(max(seconds, 0.0)):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is self._listening:
                node, _ = self._listening.accept()
                self._rest[node] = b""
                self._selector.register(node, selectors.EVENT_READ)
            else:
                self._read(connection)
        return bool(self.reports)

    def wait_for(self, kind: str, value: Any, seconds: float) -> dict[str, Any]:
        """The next report in which ``kind`` is ``value``, or anything (``...``); the others stay for later readers."""
        until = time.monotonic() + seconds
        while True:
            for report in self.reports:
                if kind in report and value in (..., report[kind]):
                    self.reports.remove(report)
                    return report
            for report in self.reports:
                check_alive(report)
            if time.monotonic() >= until:
                raise EmulationFailed(f"no process reported its {kind} within {seconds:g} s")
            self.wait(until - time.monotonic())

    def start(
        self,
        commands: Iterable[Sequence[str]],
        plan: bytes,  # which each process reads from its standard input
        end: Callable[[subprocess.Popen[bytes]], None],  # how a process ends when the stack is closed
        stack: ExitStack,
        *,
        names: Collection[str],
        seconds: float,
        messages: Path,
    ) -> list[subprocess.Popen[bytes]]:
        """Start processes, and wait until these nodes have connected; errors quote what they print to ``messages``."""
        processes = []
        with messages.open("wb") as said:
            for command in commands:
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said)
                stack.callback(end, process)
                processes.append(process)
                assert process.stdin is not None
                with suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(plan)
        until = time.monotonic() + seconds
        while not set(self._nodes).issuperset(names):
            self.wait(0.1)
            for report in self.reports:
                if "broken" in report:
                    check_alive(report)
            late = time.monotonic() > until
            if late or any(process.poll() is not None for process in processes):
                why = f"were not ready within {seconds:g} s" if late else "ended at their start"
                reason = messages.read_text(errors="replace").strip() or "no message"
                raise EmulationFailed(f"the processes of the emulation {why}: {reason}")
        self.reports.clear()
        return processes

    def close(self) -> None:
        """End all connections; the nodes' processes end with them."""
        for connection in [*self._rest, self._listening]:
            connection.close()
        self._selector.close()

    def _read(self, connection: socket.socket) -> None:
        try:
            found = connection.recv(1 << 16)
        except OSError:
            found = b""
        if not found:
            self._selector.unregister(connection)
            del self._rest[connection]
            connection.close()
            for name, node in list(self._nodes.items()):
                if node is connection:
                    del self._nodes[name]
                    self.reports.append({"gone": name})
            return
        *lines, self._rest[connection] = (self._rest[connection] + found).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "node" in report:
                if report.get("life", 0) < self._lives.get(report["node"], 0):
                    continue  # it was killed before it was ready
                self._nodes[report["node"]] = connection
                with suppress(OSError):  # its end is reported when it is read
                    for order in self._waiting.pop(report["node"], ()):
                        connection.sendall(order)
            self.reports.append(report)
