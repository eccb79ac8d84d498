"""The real links between network namespaces: created, shaped, and changed while transfers run."""

import json
import math
import os
import pickle
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from pathlib import Path
from typing import Any

from edgefl.emulation import shaping
from edgefl.emulation.machine import has_netem
from edgefl.emulation.nodes import entered, inside, opened, python, set_parameters, wait_for_own
from edgefl.emulation.routing import Routing
from edgefl.emulation.shaping import Rate, TrafficControl
from edgefl.emulation.wiring import LINK_MAKER, LinkSettings, Pair, Wiring

_ADDRESS = "02:00:00:00:00:01"
"""With one address for both ends no node needs to ask for the other's."""

_OPEN_SECONDS = 60.0
_CLOSED = 7
"""TCP_CLOSE, the state of a connection whose end is known to both sides."""
_AT_ONCE = 64


class Links:
    """The links of a plan between the network namespaces of the nodes' processes (``pids``), with which they vanish."""

    def __init__(self, wiring: Wiring, pids: Mapping[str, int], settings: LinkSettings) -> None:
        self._wiring, self._pids, self._settings = wiring, pids, settings
        self._routing = Routing(wiring, settings)
        self._capacity = {link.ends: link.capacity for link in wiring.links}
        self._controls: dict[str, TrafficControl] = {}
        self._namespaces: dict[str, int] = {}
        self._delay_line: subprocess.Popen[bytes] | None = None
        fifo, device = settings.queue == "fifo", self._routing.device
        self._shapers = {
            link.ends: shaping.Shaper(link, device(link.target), wiring.addresses, fair=not (link.shared and fifo))
            for link in wiring.links
        }

    def make(self, stack: ExitStack) -> None:
        """Make all links; what they need is closed with the stack."""
        for node in self._wiring.nodes:
            wait_for_own(self._pids[node])
            self._namespaces[node] = opened(self._pids[node])
            stack.callback(os.close, self._namespaces[node])
        self._join()
        self._delay(stack)
        for node in self._wiring.nodes:
            self._configure(node)
            self._controls[node] = stack.enter_context(closing(TrafficControl(self._namespaces[node])))
        self._limit_windows()
        for link in self._wiring.links:
            if not link.capacity:
                self._controls[link.source].change(self._shapers[link.ends].valves(open=False))

    def set_capacities(self, changes: Mapping[Pair, float]) -> None:
        """Change capacities of links by their ends, in the scenario's bit/s: 0 is an outage, infinite unshaped."""
        new: dict[str, list[Rate]] = {}
        opened: list[Pair] = []
        for ends, capacity in changes.items():
            if capacity == self._capacity.get(ends, capacity):
                continue
            before, self._capacity[ends] = self._capacity[ends], capacity
            mine = new.setdefault(ends[0], [])
            if capacity:
                mine.append(self._shapers[ends].changed(self._rate(capacity)))
            if bool(capacity) != bool(before):
                mine += self._shapers[ends].valves(open=bool(capacity))
                if capacity:
                    opened.append(ends)
        for node, mine in new.items():
            self._controls[node].change(mine)
        for source, target in opened:
            # A queue that has been opened looks at its packets when the next one comes.
            self._controls[source].wake(self._routing.device(target))

    def inside(self, node: str) -> AbstractContextManager[None]:
        """As :func:`~edgefl.emulation.nodes.inside`, also for a node without its process."""
        return entered(self._namespaces[node])

    def counters(self) -> dict[Pair, int]:
        """The bytes of payload that each link has carried, from its queue's counters: bytes less headers."""
        counts: dict[Pair, int] = {}
        for node in self._wiring.nodes:
            mine = [link.ends for link in self._wiring.links if link.source == node]
            lines = [f"class show dev {self._routing.device(target)} classid 2:1" for _, target in mine]
            said = self._run(node, ["tc", "-s", "-batch", "-"], lines) if lines else ""
            for ends, (sent, packets) in zip(mine, re.findall(r"Sent (\d+) bytes (\d+) pkt", said), strict=True):
                # A queue counts segments that a process has put back as no packet.
                frames = max(int(packets), math.ceil(int(sent) / shaping.WIRE_BYTES))
                counts[ends] = int(sent) - frames * (shaping.WIRE_BYTES - shaping.PAYLOAD_BYTES)
        return counts

    def check(self) -> None:
        """Raise OSError if a process that the links need has ended."""
        if self._delay_line is not None and self._delay_line.poll() is not None:
            raise OSError(f"the process that delays packets has ended, with exit status {self._delay_line.returncode}")

    def _join(self) -> None:
        lines = []
        for one, other in self._wiring.neighbours():
            ends = (
                f"name {self._routing.device(there)} netns {self._pids[here]} address {_ADDRESS} arp off"
                " numtxqueues 1 numrxqueues 1"
                for here, there in ((one, other), (other, one))
            )
            lines.append(f"link add {' type veth peer '.join(ends)}")
        self._run(None, ["ip", "-batch", "-"], lines)

    def _delay(self, stack: ExitStack) -> None:
        delays = [(node, *each) for node in self._wiring.nodes for each in self._routing.delays(node).items()]
        if delays and has_netem():
            for node, name, seconds in delays:
                # What enters the one comes out of the other, in the same namespace.
                line = (
                    f"link add name {name} address {_ADDRESS} arp off type veth peer name {name}out address {_ADDRESS}"
                )
                self._run(node, ["ip", "-batch", "-"], [line, f"link set {name}out up"])
                self._run(node, ["tc", "-batch", "-"], [shaping.delayed(name, seconds)])
        elif delays:
            process = subprocess.Popen(python("delay_line"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._delay_line = stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdin is not None
            assert process.stdout is not None
            ends = [(self._pids[node], name, seconds) for node, name, seconds in delays]
            process.stdin.write(json.dumps(ends).encode() + b"\n")
            process.stdin.flush()
            if process.stdout.readline() != b"ready\n":
                raise OSError("the process that delays packets did not start")

    def _configure(self, node: str) -> None:
        with self.inside(node):
            set_parameters(self._routing.parameters(node))
        self._run(node, ["ip", "-batch", "-"], [*self._routing.devices(node), *self._routing.routes(node)])
        mine = [link for link in self._wiring.links if link.source == node]
        shapes = [line for link in mine for line in self._shapers[link.ends].made(self._rate(link.capacity))]
        if shapes:
            self._run(node, ["tc", "-batch", "-"], shapes)

    def _limit_windows(self) -> None:
        """Put the limits of windows in force; before outages begin, because this needs the links.

        Linux takes a route's ``cwnd lock`` from its cache of TCP metrics, and an address is in that cache only after a
        connection with it has ended. So one connection of each pair is made and ended before any is measured.
        """
        limited = {tuple(sorted(pair)) for pair in self._wiring.routes if self._routing.window(pair).most is not None}
        ends = [[(self._pids[node], self._wiring.addresses[node]) for node in pair] for pair in sorted(limited)]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda pair: _open_and_end(*pair), ends))
        for node in self._wiring.nodes:
            with self.inside(node):
                set_parameters({"net.ipv4.tcp_no_metrics_save": "1"})

    def _rate(self, capacity: float) -> float:
        settings = self._settings
        return shaping.wire_bytes_per_second(capacity, efficiency=settings.efficiency, dilation=settings.dilation)

    def _run(self, node: str | None, command: Sequence[str], lines: Sequence[str]) -> str:
        text = "".join(f"{line}\n" for line in lines)
        with nullcontext() if node is None else self.inside(node):
            done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip()
            number = re.search(r"Command failed -:(\d+)", said)
            line = lines[int(number[1]) - 1] if number else lines[0]
            raise OSError(f"{command[0]} {line}: {said}")
        return done.stdout


def _open_and_end(source: tuple[int, str], target: tuple[int, str]) -> None:
    """Make and end a connection between two processes' namespaces; each is given by its process and its address."""
    with ExitStack() as stack:
        with inside(target[0]):
            listening = stack.enter_context(socket.create_server((target[1], 0)))
        with inside(source[0]):
            one = stack.enter_context(socket.create_connection(listening.getsockname(), _OPEN_SECONDS))
        other = stack.enter_context(listening.accept()[0])
        for end in (one, other):
            end.shutdown(socket.SHUT_WR)
        for end in (one, other):
            end.recv(1)  # that the other one has ended
        until = time.monotonic() + _OPEN_SECONDS
        while any(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != bytes([_CLOSED]) for end in (one, other)):
            if time.monotonic() > until:
                raise OSError(f"connections between the nodes did not close within {_OPEN_SECONDS:g} s")
            time.sleep(0.002)


_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def _live(coordinator: str, wiring: Wiring, settings: LinkSettings) -> None:
    with ExitStack() as stack:
        control = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        control.connect(coordinator)

        def report(**facts: Any) -> None:
            control.sendall(json.dumps(facts).encode() + b"\n")

        try:
            control_name = congestion_control(settings.queue)
            # Each in a network namespace of its own.
            nodes = {
                name: _started("unshare", "--net", *python("node"), name, coordinator, control_name)
                for name in wiring.nodes
            }
            lives = dict.fromkeys(wiring.nodes, 0)
            links = Links(wiring, {name: node.pid for name, node in nodes.items()}, settings)
            links.make(stack)
            report(node=LINK_MAKER)
            for line in stack.enter_context(control.makefile("rb")):
                links.check()
                order = json.loads(line)
                match order["do"]:
                    case "capacities":
                        links.set_capacities({(source, target): rate for source, target, rate in order["changes"]})
                    case "kill":
                        name = order["name"]
                        nodes[name].kill()
                        nodes[name].wait()
                        # Its successor starts now, so that it is ready when the node is back.
                        lives[name] += 1
                        life = str(lives[name])
                        with links.inside(name):
                            nodes[name] = _started(*python("node"), name, coordinator, control_name, life)
                    case "counters":
                        report(counters=[[*ends, count] for ends, count in links.counters().items()])
        except OSError as error:
            with suppress(OSError):  # the coordinator may be what has ended
                report(broken=str(error))
            raise


def congestion_control(queue: str) -> str:
    """Of the connections that nodes open: cubic for one queue, as most servers have it; the namespace's if empty."""
    return "cubic" if queue == "fifo" and "cubic" in _AVAILABLE.read_text().split() else ""


def _started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def main() -> None:
    """``python -m edgefl.emulation.links COORDINATOR``, with the pickled plan on standard input."""
    (coordinator,) = sys.argv[1:]
    _live(coordinator, *pickle.load(sys.stdin.buffer))


if __name__ == "__main__":
    main()
