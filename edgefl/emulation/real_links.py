"""The processes and links of an emulation, in new namespaces, which end with the connection to this process."""

import pickle
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from edgefl.emulation.machine import in_namespaces
from edgefl.emulation.nodes import EmulationFailed, Nodes, python
from edgefl.emulation.wiring import LINK_MAKER, LinkSettings, Pair, Wiring

MOST_WARM_BYTES = 1 << 23
"""The largest window that a connection is prepared for."""

START_SECONDS = 60.0
"""For processes and links to start."""

ANSWER_SECONDS = 10.0
"""For a process to answer."""


class RealLinks:
    """All processes and links of one run; see :func:`made_links`."""

    def __init__(self, wiring: Wiring, settings: LinkSettings, nodes: Nodes, content: Path) -> None:
        self.wiring, self._settings, self.nodes, self._content = wiring, settings, nodes, content
        self._down: set[str] = set()

    def open_connections(self, seconds: float) -> None:
        """Open connections both ways for each pair that transfers; those not open in time are opened when needed."""
        waiting = set()
        for source, target in self.wiring.routes:
            self._open(source, target)
            waiting.add((source, self.wiring.addresses[target]))
        until = time.monotonic() + seconds
        while waiting and time.monotonic() < until:
            self.nodes.wait(until - time.monotonic())
            for report in [each for each in self.nodes.reports if "opened" in each]:
                self.nodes.reports.remove(report)
                waiting.discard((report["of"], report["opened"]))

    def send(self, flow: int, source: str, target: str, bytes: int, round_trips: int | None) -> None:
        """Start a transfer; ``round_trips`` of a new connection's handshake after TCP's own, None for an open one."""
        for node in (source, target):
            if node not in self.wiring.addresses:
                raise EmulationFailed(
                    f"{node} has no process: of a large fleet, only clients that take part in the simulation have one,"
                    " and here a decision that depends on time chose another client"
                )
        self.nodes.order(
            source,
            do="send",
            flow=flow,
            to=self.wiring.addresses[target],
            bytes=bytes,
            content=str(self._content),
            round_trips=round_trips,
        )

    def stop(self, flow: int, source: str, target: str) -> int:
        """End a transfer now; return the bytes that have arrived."""
        if source not in self._down:
            self.nodes.order(source, do="abort", flow=flow)
        if target in self._down:
            return 0
        self.nodes.order(target, do="stop", flow=flow)
        return self._answered(flow)

    def progress(self, flow: int, target: str) -> int:
        """The bytes of a transfer that have arrived."""
        self.nodes.order(target, do="progress", flow=flow)
        return self._answered(flow)

    def _answered(self, flow: int) -> int:
        return int(self.nodes.wait_for("progress", flow, ANSWER_SECONDS)["bytes"])

    def end_process(self, node: str) -> None:
        """Kill a node's process in the middle of what it does; its peers reset their connections with it."""
        if node not in self.wiring.addresses:
            return  # of a large fleet, it has no process
        self._down.add(node)
        self.nodes.expect_successor(node)
        self.nodes.order(LINK_MAKER, do="kill", name=node)
        for source, target in self.wiring.routes:
            if target == node and source not in self._down:
                self.nodes.order(source, do="forget", peer=self.wiring.addresses[node])

    def begin_process(self, node: str) -> None:
        """A node is back, with a new process and new connections."""
        if node not in self._down:
            return
        self._down.remove(node)
        for source, target in self.wiring.routes:
            if node in (source, target) and not {source, target} & self._down:
                self._open(source, target)

    def set_capacities(self, changes: Mapping[Pair, float]) -> None:
        self.nodes.order(LINK_MAKER, do="capacities", changes=[[*ends, rate] for ends, rate in changes.items()])

    def counters(self) -> dict[Pair, int]:
        """The bytes that each link has carried, without headers."""
        self.nodes.order(LINK_MAKER, do="counters")
        found: list[Any] = self.nodes.wait_for("counters", ..., ANSWER_SECONDS)["counters"]
        return {(source, target): sent for source, target, sent in found}

    def _open(self, source: str, target: str) -> None:
        warm = 0
        if self._settings.initial_window is None:
            # What it carries before its first transfer, so that the receiver offers a large window.
            warm = min(self.wiring.bytes_in_flight(source, target), MOST_WARM_BYTES) // 2
        self.nodes.order(source, do="open", to=self.wiring.addresses[target], warm=warm)


@contextmanager
def made_links(wiring: Wiring, settings: LinkSettings, *, folder: Path, content: bytes) -> Iterator[RealLinks]:
    """Links and processes, which end with the block; ``content`` is what is sent, again and again if it is short."""
    command = in_namespaces()
    assert command is not None, "checked before"
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        (own / "content").write_bytes(content)
        nodes = Nodes(own / "coordinator")

        def end(maker: subprocess.Popen[bytes]) -> None:
            nodes.close()  # so that all processes end
            with suppress(subprocess.TimeoutExpired):
                maker.wait(5.0)
            maker.kill()
            maker.wait()

        nodes.start(
            [[*command, *python("links"), str(nodes.path)]],
            pickle.dumps((wiring, settings)),
            end,
            stack,
            names=[*wiring.nodes, LINK_MAKER],
            seconds=START_SECONDS,
            messages=own / "messages",
        )
        yield RealLinks(wiring, settings, nodes, own / "content")
