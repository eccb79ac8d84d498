"""The rule that slows an emulation down until this machine can carry its packets.

Rates of links are divided by the dilation and latencies multiplied by it, so a scenario that the machine cannot carry
in real time runs more slowly and gives the same times.
"""

from __future__ import annotations

import json
import math
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np

from edgefl.emulation.links import Links
from edgefl.emulation.machine import in_namespaces
from edgefl.emulation.namespaces import inside, python
from edgefl.emulation.nodes import EmulationFailed
from edgefl.emulation.routing import Routing
from edgefl.emulation.shaping import PACKET_BYTES, PAYLOAD_BYTES
from edgefl.emulation.wiring import Hop, LinkSettings, WiredLink, Wiring
from edgefl.errors import UserError

USED_PART = 0.5
"""The part of the measured packet rates that may be used: the processes at the nodes need processors too."""
ACKNOWLEDGEMENTS = 0.5
"""Acknowledgements for each packet with data; a receiver answers at least every second packet."""

MEASURING_SECONDS = 0.5
_LATENCY = 0.002
_PEAK = 1e9
"""Of the window only: the links have no limit."""
_NODES = ("sender", "router", "receiver")


class PacketRates(NamedTuple):
    """Packets a second, with their acknowledgements.

    Attributes:
        delayed: those that the process which delays packets carries.
        links: those that the kernel carries, over all links: each packet counts on each link.
    """

    delayed: float
    links: float


class Dilation(NamedTuple):
    """A dilation, and why it was chosen.

    Attributes:
        factor: real seconds for one second of the scenario.
        needed: packets a second at this dilation, when as many links as possible are busy.
        measured: packets a second of this machine.
    """

    factor: float
    needed: PacketRates
    measured: PacketRates

    def __str__(self) -> str:
        needed, measured = self.needed, self.measured
        return (
            f"dilation {self.factor:g}: at most {needed.links:,.0f} packets/s cross the links (this machine carries"
            f" {measured.links:,.0f}), and {needed.delayed:,.0f} have a latency (this machine delays"
            f" {measured.delayed:,.0f}); at most {100 * USED_PART:.0f} % of each may be used"
        )


def choose_dilation(wiring: Wiring, settings: LinkSettings, measured: PacketRates) -> Dilation:
    """The least of 1, 2, 5, 10, 20, 50, … at which the links need at most half of what this machine carries.

    Raises:
        UserError: a route without a link of finite capacity.
    """
    for factor in _factors():
        needed = packet_rates(wiring, replace(settings, dilation=factor))
        if all(need <= USED_PART * rate for need, rate in zip(needed, measured, strict=True)):
            break
    return Dilation(factor, needed, measured)


def packet_rates(wiring: Wiring, settings: LinkSettings) -> PacketRates:
    """The most packets a real second that cross the links at their peak capacities, with acknowledgements.

    The most over all ways to share the links: a linear program over the rates of all senders and receivers.

    Raises:
        UserError: a route without a link of finite capacity.
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


def measured_rates() -> PacketRates:
    """Packets a second that this machine carries; EmulationFailed if the links cannot be made here."""
    start = in_namespaces()
    if start is None:
        raise EmulationFailed("this machine allows no namespaces to this user")
    rates = []
    for latency in (_LATENCY, 0.0):
        command = [*start, *python("dilation"), str(latency)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise EmulationFailed(f"packets cannot be counted: {done.stderr.strip().rpartition(chr(10))[2]}")
        rates.append(float(json.loads(done.stdout)))
    return PacketRates(*rates)


def _wiring(latency: float) -> Wiring:
    """Sender, router and receiver; only the links of the receiver are delayed."""
    sender, router, receiver = _NODES
    routes = {(sender, receiver): (0, 1), (receiver, sender): (2, 3)}
    ends = [(sender, router, 0.0), (router, receiver, latency), (receiver, router, latency), (router, sender, 0.0)]
    links = [
        WiredLink(
            number,
            source,
            target,
            math.inf,
            _PEAK,
            seconds,
            ((sender, receiver),) if number < 2 else ((receiver, sender),),
        )
        for number, (source, target, seconds) in enumerate(ends)
    ]
    hops = [Hop(sender, receiver, router), Hop(router, receiver, receiver)]
    hops += [Hop(receiver, sender, router), Hop(router, sender, sender)]
    return Wiring((sender, receiver, router), (sender, receiver), tuple(links), tuple(hops), routes)


def _measure(latency: float) -> float:
    wiring = _wiring(latency)
    with ExitStack() as stack:
        nodes = {}
        for node in wiring.nodes:
            nodes[node] = stack.enter_context(subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE))
        pids = {node: process.pid for node, process in nodes.items()}
        links = stack.enter_context(Links(wiring, pids, LinkSettings(single_packets=True)))
        with inside(pids["receiver"]):
            listening = stack.enter_context(socket.create_server((wiring.addresses["receiver"], 0)))
        with inside(pids["sender"]):
            sending = stack.enter_context(socket.create_connection(listening.getsockname()))
        receiving = stack.enter_context(listening.accept()[0])
        sending.setblocking(False)
        receiving.setblocking(False)
        content, space = bytes(1 << 18), bytearray(1 << 18)
        before_packets, before_bytes = links.carried_packets, sum(each.sent for each in links.counters().values())
        began = time.monotonic()
        while time.monotonic() < began + MEASURING_SECONDS:
            readable, writable, _ = select.select([receiving], [sending], [], 0.1)
            if writable:
                sending.send(content)
            if readable:
                receiving.recv_into(space)
        seconds = time.monotonic() - began
        if latency:
            # Where the kernel delays packets, no process sets a limit.
            return (links.carried_packets - before_packets) / seconds if links.carried_packets else math.inf
        # Each packet with data is answered at least every second time.
        return (sum(each.sent for each in links.counters().values()) - before_bytes) / PACKET_BYTES * 1.5 / seconds


if __name__ == "__main__":
    print(json.dumps(_measure(float(sys.argv[1]))))
