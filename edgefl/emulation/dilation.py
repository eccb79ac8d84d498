"""The rule that slows an emulation down until this machine can carry its packets.

Rates of links are divided by the dilation and latencies multiplied by it, so a scenario that the machine cannot carry
in real time runs more slowly and gives the same times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from edgefl.emulation.shaping import PAYLOAD_BYTES, UNSHAPED, segments
from edgefl.emulation.wiring import Wiring
from edgefl.errors import UserError

USED_PART = 0.5
"""The part of the measured packet rates that may be used: the processes at the nodes need processors too."""
ACKNOWLEDGEMENTS = 0.5
"""Acknowledgements for each packet with data; a receiver answers at least every second packet."""


class PacketRates(NamedTuple):
    """Packets a second, together with their acknowledgements, over all links.

    Attributes:
        delayed: those that the process which delays packets carries.
        links: those that the kernel carries: each packet counts on each link.
    """

    delayed: float
    links: float


class Dilation(NamedTuple):
    """A dilation, and why it was chosen.

    Attributes:
        factor: real seconds for one second of the scenario.
        needed: packets a second of the scenario, when as many links as possible are busy.
        measured: packets a second of this machine.
    """

    factor: float
    needed: PacketRates
    measured: PacketRates

    def __str__(self) -> str:
        """The reason in one line."""
        needed, measured = self.needed, self.measured
        return (
            f"dilation {self.factor:g}: the links carry up to {needed.links:,.0f} packets/s (this machine:"
            f" {measured.links:,.0f}), with latency {needed.delayed:,.0f} (this machine: {measured.delayed:,.0f}); at"
            f" most {USED_PART:.0%} is used"
        )


def dilation_for(needed: PacketRates, measured: PacketRates) -> Dilation:
    """The least of 1, 2, 5, 10, 20, 50, … at which the needed rates are at most half of what this machine carries.

    >>> dilation_for(PacketRates(50e3, 90e3), PacketRates(40e3, 200e3)).factor
    5.0
    """
    for factor in _factors():
        if all(need / factor <= USED_PART * rate for need, rate in zip(needed, measured, strict=True)):
            return Dilation(factor, needed, measured)
    raise AssertionError("the factors have no end")


def packet_rates(wiring: Wiring, *, efficiency: float = 1.0, kernel_delays: bool = False) -> PacketRates:
    """The most packets a second that can cross the links at once, at their peak capacities and dilation 1.

    The most over all ways to share the links: a linear program over the rates of all senders and receivers.

    Args:
        wiring: the links.
        efficiency: the share of a capacity that carries payload.
        kernel_delays: whether the kernel delays packets (netem), so that no process does.

    Raises:
        UserError: a route without a link of finite capacity.
    """
    from scipy.optimize import linprog

    pairs = list(wiring.routes)
    finite = [link for link in wiring.links if math.isfinite(link.peak)]
    crossed = np.zeros((len(finite), len(pairs)))
    for column, pair in enumerate(pairs):
        for row, link in enumerate(finite):
            crossed[row, column] = link.number in wiring.routes[pair]
        if not crossed[:, column].any():
            raise UserError(f"no link from {pair[0]} to {pair[1]} has a finite capacity, so no dilation is enough")
    packets_per_bit = np.array([_packets_per_bit(wiring, pair[0]) * efficiency for pair in pairs])
    capacities = np.array([link.peak for link in finite])

    def most(links_of_pair: list[int]) -> float:
        gain = packets_per_bit * np.array(links_of_pair, dtype=float)
        if not gain.any():
            return 0.0
        found = linprog(-gain, A_ub=crossed, b_ub=capacities)
        return float(gain @ found.x) * (1.0 + ACKNOWLEDGEMENTS)

    routes = {pair: wiring.route(*pair) for pair in pairs}
    delayed = [0 if kernel_delays else int(any(link.latency > 0.0 for link in routes[pair])) for pair in pairs]
    return PacketRates(most(delayed), most([len(routes[pair]) for pair in pairs]))


def _packets_per_bit(wiring: Wiring, sender: str) -> float:
    # What a sender hands over as one counts once: the machine carries it at once.
    peaks = [min(link.peak for link in wiring.route(*pair)) for pair in wiring.routes if pair[0] == sender]
    return 1.0 / (8.0 * PAYLOAD_BYTES * segments(min(*peaks, UNSHAPED * 8.0) / 8.0))


def _factors() -> Iterator[float]:
    for power in count():
        for first in (1, 2, 5):
            yield float(first * 10**power)
