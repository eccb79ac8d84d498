"""The routes, delays and windows in the nodes' kernels. Pure.

As in the simulated network, a route's latency passes before its first link: a sender's own packets go to a delaying
device, and come back from there to be routed like those of others.
"""

from typing import NamedTuple

from edgefl.emulation import shaping
from edgefl.emulation.wiring import LinkSettings, Pair, Wiring

USUAL_WINDOW = 10
"""Packets in the first round trip (RFC 6928) where one queue would lose more."""
_OWN_TABLE = 100
"""The routes of packets that a node itself sends."""
_FIRST_TABLE = 200
"""The routes of single senders."""


class Window(NamedTuple):
    """Packets in flight: in the first round trip, and at any time; None for as many as TCP chooses."""

    initial: int
    most: int | None


class Routing:
    """The routes, delays and windows of a plan."""

    def __init__(self, wiring: Wiring, settings: LinkSettings) -> None:
        self._wiring, self._settings = wiring, settings
        self._number = {node: number for number, node in enumerate(wiring.nodes)}
        paths, dilation = wiring.routes.items(), settings.dilation
        self._seconds = {pair: sum(link.latency for link in path) * dilation for pair, path in paths}

    def device(self, neighbour: str) -> str:
        return f"to{self._number[neighbour]}"

    def delays(self, node: str) -> dict[str, float]:
        """The delaying devices of a node, with their real seconds."""
        seconds = {self._seconds[pair] for pair in self._seconds if pair[0] == node}
        return {f"delay{number}": each for number, each in enumerate(sorted(seconds - {0.0}))}

    def segments(self, node: str) -> int:
        """Packets that a node may hand to its devices as one."""
        if self._settings.queue == "fifo":
            return 1  # the size of a fifo is counted in packets
        own = [pair for pair in self._wiring.routes if pair[0] == node]
        return min((shaping.segments(self._bytes_per_second(pair), self._trip(pair)) for pair in own), default=1)

    def window(self, pair: Pair) -> Window:
        settings = self._settings
        filling = shaping.window_packets(self._bytes_per_second(pair), self._trip(pair))
        most = filling if settings.queue == "fair" else None
        open_window = filling if settings.queue == "fair" else min(filling, USUAL_WINDOW)
        initial = open_window if settings.initial_window is None else settings.initial_window
        return Window(initial if most is None else min(initial, most), most)

    def devices(self, node: str) -> list[str]:
        """The commands for ``ip`` that set a node's devices up."""
        pairs = [pair for pair in self._wiring.neighbours() if node in pair]
        names = [self.device(other) for pair in pairs for other in pair if other != node]
        return [
            f"addr add {self._wiring.addresses[node]}/32 dev lo",
            "link set lo up",
            *(
                f"link set {name} mtu {shaping.PACKET_BYTES} txqueuelen {shaping.QUEUE_PACKETS}"
                f" gso_max_segs {self.segments(node)} up"
                for name in [*names, *self.delays(node)]
            ),
        ]

    def routes(self, node: str) -> list[str]:
        """The commands for ``ip`` that make routes and rules."""
        addresses = self._wiring.addresses
        hops = self._wiring.hops.items()
        devices = {(source, target): self.device(other) for (at, source, target), other in hops if at == node}
        delays = {seconds: name for name, seconds in self.delays(node).items()}
        lines: list[str] = []
        for (source, target), device in devices.items():
            table = ""
            if source is not None:
                number = _FIRST_TABLE + len(lines)
                lines.append(f"rule add from {addresses[source]} to {addresses[target]} lookup {number} pref {number}")
                table = f" table {number}"
            lines.append(f"route add {addresses[target]}/32 dev {device}{table}")
        own = [pair for pair in self._wiring.routes if pair[0] == node]
        if own:
            lines.append(f"rule add iif lo lookup {_OWN_TABLE} pref {_OWN_TABLE}")
        for pair in own:
            seconds, window = self._seconds[pair], self.window(pair)
            first = devices.get((None, pair[1])) or devices[pair]
            line = (
                f"route add {addresses[pair[1]]}/32 dev {delays[seconds] if seconds else first} table {_OWN_TABLE}"
                f" src {addresses[node]} initcwnd {window.initial} initrwnd {max(window.initial, window.most or 1000)}"
            )
            if window.most is not None:
                line += f" cwnd lock {window.most}"
            if self._settings.queue == "fair":
                line += " rto_min 2s"  # nothing is lost, so whatever takes long is only late
            lines.append(line)
        return lines

    def parameters(self, node: str) -> dict[str, str]:
        settings = self._settings
        largest = max((self.window(pair).most or 4096 for pair in self._wiring.routes), default=0)
        space = max(4 * largest * shaping.PACKET_BYTES, 1 << 18)
        return {
            "net.ipv4.ip_forward": "1",
            "net.ipv4.conf.all.rp_filter": "0",
            "net.ipv4.conf.default.rp_filter": "0",
            "net.ipv4.conf.all.accept_local": "1",  # packets come back from a delaying device
            "net.ipv6.conf.all.disable_ipv6": "1",
            "net.ipv6.conf.default.disable_ipv6": "1",
            "net.ipv4.tcp_congestion_control": "reno",  # with one queue, connections that send choose another
            "net.ipv4.tcp_slow_start_after_idle": str(int(settings.initial_window is not None)),
            "net.ipv4.tcp_min_tso_segs": str(self.segments(node)),
            "net.ipv4.tcp_timestamps": "1",
            "net.ipv4.tcp_retries2": "255",
            "net.ipv4.tcp_syn_retries": "127",
            "net.ipv4.tcp_rmem": f"4096 {space} {max(2 * space, 1 << 25)}",
            "net.ipv4.tcp_wmem": f"4096 {space} {max(2 * space, 1 << 25)}",
            **({"net.ipv4.tcp_early_retrans": "0"} if settings.queue == "fair" else {}),
        }

    def _trip(self, pair: Pair) -> float:
        return self._seconds[pair] + self._seconds[pair[::-1]]

    def _bytes_per_second(self, pair: Pair) -> float:
        """The highest rate of payload between two nodes, real time."""
        settings = self._settings
        peak = min(link.peak for link in self._wiring.routes[pair])
        return min(peak * settings.efficiency / settings.dilation / 8.0, shaping.UNSHAPED)
