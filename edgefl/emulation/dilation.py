"""The rule that slows an emulation down until this machine can carry its packets.

Rates of links are divided by the dilation and latencies multiplied by it, so a scenario that the machine cannot carry
in real time runs more slowly and gives the same times.
"""

import math
import os
from dataclasses import replace
from itertools import count
from typing import NamedTuple

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


def choose_dilation(wiring: Wiring, settings: LinkSettings, carried: PacketRates) -> tuple[float, str]:
    """The least of 1, 2, 5, 10, 20, 50, … at which the links need at most half of what is carried, and why."""
    for factor in (float(first * 10**power) for power in count() for first in (1, 2, 5)):
        needed = packet_rates(wiring, replace(settings, dilation=factor))
        if all(need <= USED_PART * rate for need, rate in zip(needed, carried, strict=True)):
            break
    return factor, (
        f"dilation {factor:g}: {needed.links:,.0f} packets/s cross the links (this machine carries"
        f" {carried.links:,.0f}), and {needed.delayed:,.0f} have a latency (this machine delays"
        f" {carried.delayed:,.0f}); at most {100 * USED_PART:.0f} % of each may be used"
    )


def packet_rates(wiring: Wiring, settings: LinkSettings) -> PacketRates:
    """The packets a real second if all nodes transfer at once, with equal shares of each link's peak capacity."""
    routing, delayed, links = Routing(wiring, settings), 0.0, 0.0
    for pair, route in wiring.routes.items():
        rate = min(link.peak / len(link.pairs) for link in route)
        if math.isinf(rate):
            raise UserError(f"no link from {pair[0]} to {pair[1]} has a finite capacity, so no dilation is enough")
        packets = rate * settings.efficiency / settings.dilation / 8.0 / PAYLOAD_BYTES
        links += packets * len(route) * (1.0 + ACKNOWLEDGEMENTS)
        if any(link.latency for link in route):
            # The process that delays packets handles what a sender hands over as one at once; queues split it.
            delayed += packets * (1.0 / routing.segments(pair[0]) + ACKNOWLEDGEMENTS)
    return PacketRates(delayed, links)


def assumed_rates(*, netem: bool) -> PacketRates:
    """Packets a second that this machine carries: what a small processor did, with some left for its programs.

    Where the kernel delays packets (netem), no process sets a limit.
    """
    return PacketRates(math.inf if netem else DELAYED, LINKS * (os.cpu_count() or 1))
