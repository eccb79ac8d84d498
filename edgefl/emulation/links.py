"""The real links between network namespaces: created, shaped, and changed while transfers run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from edgefl.emulation import shaping, window_limits
from edgefl.emulation.link_settings import LinkSettings
from edgefl.emulation.namespaces import inside, set_parameters, wait_for_own
from edgefl.emulation.traffic_control import Rate, TrafficControl, Valve
from edgefl.emulation.wiring import Hop, Pair, WiredLink, Wiring

_ADDRESS = "02:00:00:00:00:01"
"""The Ethernet address of all devices. With one address for both ends no node needs to ask for the other's."""
_TUN_FRAME = 0


class Links:
    """The links of a plan between the namespaces of the nodes' processes; a context manager.

    The process that makes them must be root in the user namespace that owns the nodes' network namespaces. Everything
    is inside these namespaces, so it vanishes with the nodes' processes, however they end.

    Args:
        wiring: the plan.
        pids: the process of each node, which is in a network namespace of its own, or will be soon.
        settings: how links queue and connections begin.

    Raises:
        OSError: a command failed; the message is the command's.
    """

    def __init__(self, wiring: Wiring, pids: Mapping[str, int], settings: LinkSettings) -> None:
        self._wiring, self._pids, self._settings = wiring, pids, settings
        self._number = {node: number for number, node in enumerate(wiring.nodes)}
        self._links = {link.ends: link for link in wiring.links}
        self._capacity = {link.ends: link.capacity for link in wiring.links}
        self._controls: dict[str, TrafficControl] = {}
        self._delay_line: subprocess.Popen[bytes] | None = None
        for node in wiring.nodes:
            wait_for_own(pids[node])
        self._latency = {
            (source, target): max(
                link.latency
                for ends in ((source, target), (target, source))
                if (link := self._links.get(ends)) is not None
            )
            for source, target in [*wiring.neighbours(), *(pair[::-1] for pair in wiring.neighbours())]
        }
        self._segments = self._segments_of_endpoints()
        self._shapers = {link.ends: self._shaper(link) for link in wiring.links}
        try:
            self._make_devices()
            for node in wiring.nodes:
                self._configure(node)
            self._limit_windows()
            self._begin_outages()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_capacities(self, changes: Mapping[Pair, float]) -> None:
        """Change capacities of links now, by their ends: bit/s of the scenario; 0 is an outage, infinite unshaped.

        In an outage no packet of a transfer passes; those in queues stay, and so do the connections. Links that no
        route crosses are ignored.
        """
        new: dict[str, list[Rate | Valve]] = {}
        opened: list[Pair] = []
        for ends, capacity in changes.items():
            if ends not in self._links or capacity == self._capacity[ends]:
                continue
            before, self._capacity[ends] = self._capacity[ends], capacity
            mine = new.setdefault(ends[0], [])
            if capacity:
                mine.append(self._shapers[ends].changed(self._rate(ends, capacity)))
            if bool(capacity) != bool(before):
                mine += self._shapers[ends].valves(open=bool(capacity))
                if capacity:
                    opened.append(ends)
        for node, mine in new.items():
            self._control(node).change(mine)
        for source, target in opened:
            # A queue that has been opened looks at its packets when the next one comes.
            self._control(source).wake(self._device(target))

    def counters(self) -> dict[Pair, int]:
        """The bytes of payload that each link has carried, from the counters of its queue: bytes less headers."""
        counts: dict[Pair, int] = {}
        for node in self._wiring.nodes:
            mine = [link.ends for link in self._wiring.links if link.source == node]
            lines = [f"class show dev {self._device(ends[1])} classid 2:1" for ends in mine]
            said = self._run(node, ["tc", "-s", "-batch", "-"], lines) if lines else ""
            for ends, (sent, packets) in zip(mine, re.findall(r"Sent (\d+) bytes (\d+) pkt", said), strict=True):
                headers = shaping.PACKET_BYTES - shaping.PAYLOAD_BYTES + self._frame(ends)
                counts[ends] = int(sent) - int(packets) * headers
        return counts

    def check(self) -> None:
        """Raise OSError if a process that the links need has ended."""
        if self._delay_line is not None and self._delay_line.poll() is not None:
            raise OSError("the process that delays packets has ended")

    def close(self) -> None:
        """End the process that delays packets."""
        for control in self._controls.values():
            control.close()
        self._controls = {}
        process, self._delay_line = self._delay_line, None
        if process is not None:
            with process:
                process.kill()

    # Making

    def _make_devices(self) -> None:
        veths: list[str] = []
        delayed: list[list[tuple[int, str, float]]] = []
        for one, other in self._wiring.neighbours():
            ends = (one, self._device(other)), (other, self._device(one))
            if self._latency[one, other] > 0.0:
                delays = self._delay((one, other)), self._delay((other, one))
                delayed.append(
                    [(self._pids[node], name, delay) for (node, name), delay in zip(ends, delays, strict=True)]
                )
                continue
            one_device, other_device = (
                f"name {name} netns {self._pids[node]} address {_ADDRESS} arp off numtxqueues 1 numrxqueues 1"
                for node, name in ends
            )
            veths.append(f"link add {one_device} type veth peer {other_device}")
        if veths:
            self._run(None, ["ip", "-batch", "-"], veths)
        if delayed:
            self._delay_line = subprocess.Popen(
                [sys.executable, "-m", "edgefl.emulation.delay_line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert self._delay_line.stdin is not None
            assert self._delay_line.stdout is not None
            self._delay_line.stdin.write(json.dumps(delayed).encode() + b"\n")
            self._delay_line.stdin.flush()
            if self._delay_line.stdout.readline() != b"ready\n":
                raise OSError("the process that delays packets did not start")

    def _configure(self, node: str) -> None:
        """Parameters, addresses, routes and shapers of one node."""
        with inside(self._pids[node]):
            available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
            set_parameters(self._parameters(available))
        devices = [
            self._device(other) for pair in self._wiring.neighbours() if node in pair for other in pair if other != node
        ]
        lines = [f"addr add {self._wiring.addresses[node]}/32 dev lo", "link set lo up"]
        lines += [
            f"link set {device} mtu {shaping.PACKET_BYTES} txqueuelen {shaping.QUEUE_PACKETS}"
            f" gso_max_segs {self._segments.get(node, shaping.MOST_SEGMENTS)} up"
            for device in devices
        ]
        self._run(node, ["ip", "-batch", "-"], lines)
        shapes = [
            line
            for link in self._wiring.links
            if link.source == node
            for line in self._shapers[link.ends].made(self._rate(link.ends, link.capacity))
        ]
        if shapes:
            self._run(node, ["tc", "-batch", "-"], shapes)
        # Last, because a connection takes the size of its segments from the device when it is made.
        hops = [hop for hop in self._wiring.hops if hop.node == node]
        tables = {hop: 100 + number for number, hop in enumerate(hop for hop in hops if hop.source is not None)}
        lines = []
        for hop in hops:
            lines.append(f"route add {self._route(hop)}" + (f" table {tables[hop]}" if hop in tables else ""))
            if hop in tables and hop.source is not None:
                addresses = self._wiring.addresses
                lines.append(f"rule add from {addresses[hop.source]} to {addresses[hop.target]} lookup {tables[hop]}")
        if lines:
            self._run(node, ["ip", "-batch", "-"], lines)

    def _limit_windows(self) -> None:
        """Put the limits of windows in force; before outages begin, because this needs the links."""
        limited = [pair for pair in self._wiring.routes if self._window(*pair).most is not None]
        pairs = {tuple(sorted(pair)): pair for pair in limited}
        window_limits.put_in_force(pairs.values(), self._pids, self._wiring.addresses)

    def _begin_outages(self) -> None:
        for link in self._wiring.links:
            if not link.capacity:
                self._control(link.source).change(self._shapers[link.ends].valves(open=False))

    def _parameters(self, congestion_controls: Sequence[str]) -> dict[str, str]:
        settings = self._settings
        largest = max((self._window(*pair).most or 4096 for pair in self._wiring.routes), default=shaping.LEAST_WINDOW)
        space = max(4 * largest * shaping.PACKET_BYTES, 1 << 18)
        control = "cubic" if settings.queue == "fifo" and "cubic" in congestion_controls else "reno"
        return {
            "net.ipv4.ip_forward": "1",
            "net.ipv4.conf.all.rp_filter": "0",
            "net.ipv4.conf.default.rp_filter": "0",
            "net.ipv6.conf.all.disable_ipv6": "1",
            "net.ipv6.conf.default.disable_ipv6": "1",
            "net.ipv4.tcp_congestion_control": control,
            "net.ipv4.tcp_slow_start_after_idle": str(int(settings.restart_idle)),
            "net.ipv4.tcp_no_metrics_save": "1",
            "net.ipv4.tcp_timestamps": "1",
            "net.ipv4.tcp_retries2": "255",
            "net.ipv4.tcp_rmem": f"4096 {space} {max(2 * space, 1 << 25)}",
            "net.ipv4.tcp_wmem": f"4096 {space} {max(2 * space, 1 << 25)}",
            **({"net.ipv4.tcp_early_retrans": "0"} if settings.queue == "fair" else {}),
        }

    def _route(self, hop: Hop) -> str:
        """A route; at a sender with the window of its connections."""
        addresses = self._wiring.addresses
        route = f"{addresses[hop.target]}/32 dev {self._device(hop.next)}"
        sender = hop.source or hop.node
        if hop.node != sender or (hop.node, hop.target) not in self._wiring.routes:
            return route
        window = self._window(hop.node, hop.target)
        route += f" src {addresses[hop.node]} initcwnd {window.initial} initrwnd {max(window.most or 0, 1000)}"
        if window.most is not None:
            route += f" cwnd lock {window.most}"
        if self._settings.queue == "fair":
            route += " rto_min 2s"
        return route

    def _window(self, source: str, target: str) -> shaping.Window:
        settings = self._settings
        there, back = self._wiring.route(source, target), self._wiring.route(target, source)
        rate = min(link.peak for link in there) * settings.efficiency / settings.dilation / 8.0
        trip = sum(link.latency for link in [*there, *back]) * settings.dilation
        filling = shaping.window_packets(min(rate, shaping.UNSHAPED), trip)
        most = filling if settings.queue == "fair" else None
        if settings.window is not None:
            most = min(max(int(settings.window / shaping.PAYLOAD_BYTES), 1), most or sys.maxsize)
        if settings.initial_window is None:
            return shaping.Window(filling if most is None else most, most)
        # With declared slow start the window grows as TCP lets it; only its beginning is set.
        return shaping.Window(settings.initial_window, None if settings.window is None else most)

    def _segments_of_endpoints(self) -> dict[str, int]:
        if self._settings.queue == "fifo":
            return dict.fromkeys(self._wiring.endpoints, 1)  # its size is counted in packets
        found: dict[str, int] = {}
        for source, target in self._wiring.routes:
            slowest = min(link.peak for link in self._wiring.route(source, target)) / 8.0 / self._settings.dilation
            found[source] = min(found.get(source, shaping.MOST_SEGMENTS), shaping.segments(min(slowest, 1e12)))
        return found

    def _shaper(self, link: WiredLink) -> shaping.Shaper:
        fifo = link.shared and self._settings.queue == "fifo"
        return shaping.Shaper(
            link,
            self._device(link.target),
            self._wiring.addresses,
            packets=self._settings.queue_packets if fifo else shaping.QUEUE_PACKETS,
            fair=not fifo,
            segments=max(self._segments[pair[0]] for pair in link.pairs),
            frame=self._frame(link.ends),
        )

    # Changing

    def _rate(self, ends: Pair, capacity: float) -> float:
        settings = self._settings
        return shaping.wire_bytes_per_second(
            capacity, efficiency=settings.efficiency, dilation=settings.dilation, frame=self._frame(ends)
        )

    def _frame(self, ends: Pair) -> int:
        return _TUN_FRAME if self._latency[ends] > 0.0 else shaping.FRAME_BYTES

    def _delay(self, ends: Pair) -> float:
        link = self._links.get(ends)
        return 0.0 if link is None else link.latency * self._settings.dilation

    def _control(self, node: str) -> TrafficControl:
        if node not in self._controls:
            self._controls[node] = TrafficControl(self._pids[node])
        return self._controls[node]

    def _device(self, neighbour: str) -> str:
        return f"to{self._number[neighbour]}"

    def _run(self, node: str | None, command: Sequence[str], lines: Sequence[str]) -> str:
        text = "".join(f"{line}\n" for line in lines)
        if node is None:
            done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        else:
            with inside(self._pids[node]):
                done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip()
            number = re.search(r"Command failed -:(\d+)", said)
            line = lines[int(number[1]) - 1] if number else lines[0]
            raise OSError(f"{command[0]} {line}: {said}")
        return done.stdout
