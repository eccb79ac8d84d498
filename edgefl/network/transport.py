"""How a connection uses its path in addition to fair sharing: as a pure fluid, or like TCP; and its time-outs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self

from pydantic import Field, model_validator

from edgefl.network.flow import Alone
from edgefl.network.tcp import HEADER_BYTES, Handshake, Opening, Tcp, payload_share
from edgefl.network.topology import Node
from edgefl.options import Options
from edgefl.randomness import generator, integer_seed
from edgefl.units import BitsPerSecond, Bytes, Seconds, ShortSeconds, slack

WAIT_FACTOR = 1.6
"""A wait after a broken attempt is this multiple of the one before."""

LONGEST_WAIT = 120.0
"""Seconds; the most that a wait may be, before its jitter."""

WAIT_JITTER = 0.2
"""Each wait is drawn uniformly from 1 - this to 1 + this times its length."""


class Timeouts(Options, allow_inf_nan=False):
    """Time-outs of transfers, and what follows when one expires.

    A transfer consists of one or more *attempts*. An attempt breaks when a time-out expires; after a wait, another one
    begins, until one is complete or the last one has broken, when the transfer has failed. The waits are those of gRPC
    (its "Connection Backoff Protocol": 1 s, times :data:`WAIT_FACTOR` each, at most :data:`LONGEST_WAIT`, and at random
    more or less by :data:`WAIT_JITTER`), and five attempts are the most that its retry policy allows (gRFC A6).
    ``resume: ranges`` is HTTP's range requests (RFC 9110, section 14).
    """

    connection: ShortSeconds | None = Field(None, gt=0, description="Most seconds in which no byte moves; null: any.")
    transfer: ShortSeconds | None = Field(None, gt=0, description="Most seconds of an attempt; null: any number.")
    retries: int = Field(4, ge=0, le=1000, description="Attempts after the first one; then the transfer has failed.")
    first_wait: ShortSeconds = Field(
        1.0,
        ge=0,
        le=LONGEST_WAIT,
        description="The wait before the second attempt; then 1.6 times longer each, up to 2 min, ± 20 %.",
    )
    resume: Literal["none", "ranges"] = Field("none", description="Send all again, or what is missing.")
    chunk: Bytes | None = Field(None, ge=1, description="ranges only: bytes kept as a whole; null: every byte.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.connection is None and self.transfer is None:
            raise ValueError("expected a time-out, connection or transfer or both, found neither")
        if self.chunk is not None and self.resume == "none":
            raise ValueError("chunk: expected null, because resume is none, so nothing is kept")
        if self.chunk is not None and self.chunk != int(self.chunk):
            raise ValueError(f"chunk: expected a whole number of bytes, found {self.chunk:g}")
        return self

    def kept(self, delivered: int) -> int:
        """The number of the first ``delivered`` bytes of a transfer that need not be sent again.

        >>> Timeouts(transfer="1 min", resume="ranges", chunk="1 kB").kept(2999)
        2000
        """
        if self.resume == "none":
            return 0
        return delivered if self.chunk is None else delivered - delivered % int(self.chunk)

    def wait(self, number: int, seed: int, *place: int | str) -> float:
        """Seconds between the break number ``number`` (from 1) of a transfer and its next attempt.

        The draw is keyed by its place, so that the order of breaks does not matter.

        >>> timeouts = Timeouts(connection="10 s")
        >>> [round(timeouts.wait(number, 0, "client/1"), 2) for number in (1, 2, 20)]
        [0.92, 1.47, 110.17]
        """
        draw = float(generator(seed, "back-off", *place).random())
        seconds = min(self.first_wait * WAIT_FACTOR ** (number - 1), LONGEST_WAIT)
        return seconds * (1.0 + WAIT_JITTER * (2.0 * draw - 1.0))


SPREAD = 0.4
"""Standard deviation of the logarithm of a flow's weight."""

PERIOD = 0.5
"""Seconds; flows between the same nodes that begin within one period have the same weight."""


@dataclass(frozen=True)
class FifoQueue:
    """Draws the weights of flows that share links with one queue for all of them; a flow keeps its weight.

    Its logarithm has a Laplace distribution: a few flows get much less or more than the others. It depends on the seed,
    the two nodes and the period in which the flow begins, so all methods have the same draws. ``spread`` is its
    standard deviation; ``draw`` numbers independent draws, 0 is that of the run.
    """

    seed: int
    spread: float = SPREAD
    draw: int = 0

    def weight(self, source: Node, target: Node, began: float) -> float:
        """The weight of a flow from ``source`` to ``target`` that began at this time (seconds).

        >>> queue = FifoQueue(seed=0, spread=0.5)
        >>> weights = [queue.weight("server", f"client/{client}", 1.7) for client in range(1000)]
        >>> sum(weight < 1 for weight in weights), sum(weight < math.exp(-0.5) for weight in weights)
        (497, 140)
        """
        name = "fifo queue" if not self.draw else f"fifo queue, draw {self.draw}"
        drawn = integer_seed(self.seed, name, math.floor((began + slack(began)) / PERIOD), str(source), str(target))
        uniform = (drawn + 0.5) / 2.0**63
        power = self.spread / math.sqrt(2.0)
        return math.pow(2.0 * uniform, power) if uniform < 0.5 else math.pow(2.0 - 2.0 * uniform, -power)


@dataclass(frozen=True)
class Transport:
    """How a flow uses its path. The default is a pure fluid: whole capacities, plain latency, equal shares."""

    efficiency: float = 1.0  # the share of a link's capacity that carries payload
    latency_factor: float = 1.0  # the delay before the first byte, in multiples of the path's latency (as for set-up)
    window: float = math.inf  # the maximum of bytes in flight: the rate is at most efficiency * window / (2 * latency)
    # With a latency of L and links of B bytes/s, a flow's share of a contended link is in inverse proportion to
    # L + sum(penalty_bytes / B); None for equal shares.
    penalty_bytes: float | None = None
    connection_limit: float = math.inf  # the maximum rate of one flow, bit/s, whatever its path
    multicast: bool = False  # transfers of one payload that a node begins at one instant cross each link once
    tcp: Tcp | None = None  # how connections begin and grow
    queue: FifoQueue | None = None  # the unequal shares of flows in one queue; None for a queue for each flow

    def limit(self, latency: float) -> float:
        """The maximum rate of a flow on a path of this one-way latency (seconds), bit/s."""
        window_limit = self.efficiency * self.window * 8.0 / (2.0 * latency) if latency > 0.0 else math.inf
        return min(self.connection_limit, window_limit)

    def alone(self, latency: float, bits_per_second: float, opening: Opening) -> Alone:
        """A transfer alone on a path of this latency (seconds) and capacity, on a connection of state ``opening``."""
        usable = min(self.limit(latency), self.efficiency * bits_per_second)
        if self.tcp is None:
            return Alone(self.latency_factor * latency, usable)
        sending = partial(self.tcp.seconds, bits_per_second=usable, latency=latency, opening=opening)
        return Alone(latency + 2.0 * latency * opening.round_trips, usable, sending)

    def weight(self, latency: float, bits_per_second: Iterable[float]) -> float:
        """A flow's share, from its path's latency (seconds) and its capacities; one of 0 is ignored."""
        if self.penalty_bytes is None:
            return 1.0
        penalty = latency + sum(8.0 * self.penalty_bytes / rate for rate in bits_per_second if rate > 0.0)
        return 1.0 / penalty if penalty > 0.0 else 1.0


def lv08(*, acknowledgements: Literal["none", "shared"] = "none") -> Transport:
    """TCP as in SimGrid's LV08 model (Velho and Legrand, SIMUTools 2009; Velho et al., INRIA RR-7821, 2011).

    The delay before the first byte is 13.01 times the path's latency, 97 % of a capacity carries payload, the window is
    4 MiB, and shares fall with the round-trip time.

    With ``shared`` acknowledgements both directions are one medium: acknowledgements take 5 % more of each link.

    SimGrid's documented case, 100 kB over 1 Mbit/s and 10 ms:

    >>> for acknowledgements in ("shared", "none"):
    ...     transport = lv08(acknowledgements=acknowledgements)
    ...     print(f"{transport.latency_factor * 0.01 + 8e5 / (transport.efficiency * 1e6):.6f}")
    0.996079
    0.954842
    """
    efficiency = 0.97 / 1.05 if acknowledgements == "shared" else 0.97
    return Transport(efficiency=efficiency, latency_factor=13.01, window=4194304.0, penalty_bytes=20537.0)


class TcpOptions(Options):
    """How connections begin and grow; for ``kind: tcp`` only."""

    handshake: Handshake = Field("tls", description="tcp only. Round trips of set-up: 0, 1, 2, or first 2 and then 0.")
    keep_alive: Seconds = Field(0.0, description="tcp only. How long an idle connection stays open for its client.")
    packet_bytes: Bytes = Field(
        1500.0, gt=HEADER_BYTES, le=65535, description="tcp only. Maximum size of an IP packet, 52 bytes of it headers."
    )
    initial_window: int | None = Field(
        10, ge=1, le=1000, description="tcp only. Packets at first; null: no slow start."
    )

    def connections(self) -> tuple[Tcp, float]:
        """The connections, and the share of a capacity that carries payload."""
        share = payload_share(self.packet_bytes, encrypted=self.handshake in ("tls", "tls_0rtt"))
        # Payload of a packet: what its part of a TLS record leaves.
        segment = share * self.packet_bytes
        return Tcp(self.handshake, self.keep_alive, segment, self.initial_window), share


class TransportSpec(TcpOptions):
    """How a connection uses its path in addition to fair sharing."""

    kind: Literal["fluid", "lv08", "tcp"] = Field(
        "fluid",
        description="Plain fluid; TCP as in SimGrid's LV08; or connections with set-up, headers and slow start.",
    )
    acknowledgements: Literal["none", "shared"] = Field(
        "none", description="lv08 only; shared: both directions are one medium, and acknowledgements take 5 % of it."
    )
    connection_limit: BitsPerSecond | None = Field(None, gt=0, description="Of one transfer, on any path; null: none.")
    multicast: bool = Field(False, description="Equal parts of an instant cross each link once, at the slowest rate.")
    queue: Literal["fair", "fifo"] = Field("fair", description="Links: max-min fair, or one queue for all (drawn).")
    timeouts: Timeouts | None = Field(None, description="When a transfer breaks and is repeated; null: it waits.")

    @model_validator(mode="after")
    def _options_belong_to_their_kind(self) -> Self:
        if self.kind != "lv08" and self.acknowledgements != "none":
            raise ValueError(f"acknowledgements: expected none, because kind is {self.kind}")
        if self.kind == "tcp" and self.multicast:
            raise ValueError("multicast: expected false, because a tcp connection has two ends")
        if self.kind != "tcp":
            for name, field in TcpOptions.model_fields.items():
                if getattr(self, name) != field.default:
                    raise ValueError(f"{name}: expected no value, because kind is {self.kind}, not tcp")
        if self.multicast and self.timeouts is not None:
            raise ValueError("timeouts: expected null, because multicast is true, and one client cannot break alone")
        return self

    def build(self, seed: int = 0) -> Transport:
        """The transport for a :class:`~edgefl.network.flow_network.FlowNetwork`; the seed draws a queue's shares."""
        queue = FifoQueue(seed) if self.queue == "fifo" else None
        limit = math.inf if self.connection_limit is None else self.connection_limit
        if self.kind == "lv08":
            transport = lv08(acknowledgements=self.acknowledgements)
        else:
            tcp, share = self.connections() if self.kind == "tcp" else (None, 1.0)
            transport = Transport(share, tcp=tcp)
        return replace(transport, connection_limit=limit, multicast=self.multicast, queue=queue)
