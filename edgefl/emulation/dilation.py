"""The rule that slows an emulation down until this machine can carry its packets.

Rates of links are divided by the dilation and latencies multiplied by it, so a scenario that the machine cannot carry
in real time runs more slowly and gives the same times.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np

from edgefl.emulation.routing import Routing
from edgefl.emulation.shaping import PAYLOAD_BYTES
from edgefl.emulation.wiring import LinkSettings, Wiring
from edgefl.errors import UserError

USED_PART = 0.5
"""The part of the packet rates that may be used: the processes at the nodes need processors too."""
ACKNOWLEDGEMENTS = 0.5
"""Acknowledgements for each packet with data; a receiver answers at least every second packet."""

DELAYED, LINKS = 30_000.0, 100_000.0
"""Packets a second that the process which delays packets carries, and those that the kernel carries per processor."""


class PacketRates(NamedTuple):
    """Packets a second, with their acknowledgements."""

    delayed: float  # those that the process which delays packets carries
    links: float  # those that the kernel carries, over all links: each packet counts on each link


class Dilation(NamedTuple):
    """A dilation, and why it was chosen."""

    factor: float  # real seconds for one second of the scenario
    needed: PacketRates  # packets a second at this dilation, when as many links as possible are busy
    carried: PacketRates  # packets a second of this machine

    def __str__(self) -> str:
        needed, carried = self.needed, self.carried
        return (
            f"dilation {self.factor:g}: at most {needed.links:,.0f} packets/s cross the links (this machine carries"
            f" {carried.links:,.0f}), and {needed.delayed:,.0f} have a latency (this machine delays"
            f" {carried.delayed:,.0f}); at most {100 * USED_PART:.0f} % of each may be used"
        )


def choose_dilation(wiring: Wiring, settings: LinkSettings, carried: PacketRates) -> Dilation:
    """The least of 1, 2, 5, 10, 20, 50, … at which the links need at most half of what this machine carries."""
    for factor in _factors():
        needed = packet_rates(wiring, replace(settings, dilation=factor))
        if all(need <= USED_PART * rate for need, rate in zip(needed, carried, strict=True)):
            break
    return Dilation(factor, needed, carried)


def packet_rates(wiring: Wiring, settings: LinkSettings) -> PacketRates:
    """The most packets a real second that cross the links at their peak capacities, with acknowledgements.

    The most over all ways to share the links: a linear program over the rates of all senders and receivers.
    """
    from scipy.optimize import linprog

    pairs = list(wiring.routes)
    finite = [link for link in wiring.links if math.isfinite(link.peak)]
    crossed = np.array([[link.number in wiring.routes[pair] for pair in pairs] for link in finite], dtype=float)
    for pair in pairs:
        if all(math.isinf(link.peak) for link in wiring.route(*pair)):
            raise UserError(f"no link from {pair[0]} to {pair[1]} has a finite capacity, so no dilation is enough")
    bytes_per_second = np.array([link.peak for link in finite]) * settings.efficiency / settings.dilation / 8.0

    def most(packets: list[float]) -> float:
        gain = np.array(packets)
        return float(gain @ linprog(-gain, A_ub=crossed, b_ub=bytes_per_second / PAYLOAD_BYTES).x)

    routing = Routing(wiring, settings)
    # The process that delays packets handles what a sender hands over as one at once; queues split it.
    delayed = [
        1.0 / routing.segments(pair[0]) + ACKNOWLEDGEMENTS if any(link.latency for link in wiring.route(*pair)) else 0.0
        for pair in pairs
    ]
    return PacketRates(most(delayed), most([len(wiring.route(*pair)) * (1.0 + ACKNOWLEDGEMENTS) for pair in pairs]))


def _factors() -> Iterator[float]:
    for power in count():
        for first in (1, 2, 5):
            yield float(first * 10**power)


def assumed_rates(*, netem: bool) -> PacketRates:
    """Packets a second that this machine carries: what a small processor did, with some left for its programs.

    Where the kernel delays packets (netem), no process sets a limit.
    """
    return PacketRates(math.inf if netem else DELAYED, LINKS * (os.cpu_count() or 1))
