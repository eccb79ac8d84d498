"""How many packets a second this machine carries: measured with one connection over unshaped links."""

from __future__ import annotations

import json
import math
import select
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

from edgefl.emulation.dilation import PacketRates
from edgefl.emulation.failure import EmulationFailed
from edgefl.emulation.link_settings import LinkSettings
from edgefl.emulation.links import Links
from edgefl.emulation.machine import in_namespaces
from edgefl.emulation.namespaces import inside, python
from edgefl.emulation.shaping import PACKET_BYTES
from edgefl.emulation.wiring import Hop, WiredLink, Wiring

SECONDS = 0.5
"""How long each measurement takes."""
_LATENCY = 0.002
_PEAK = 1e9
"""Of the window only: the links have no limit."""
_NODES = ("sender", "router", "receiver")


def measured_rates() -> PacketRates:
    """Packets a second that this machine carries, with their acknowledgements.

    Raises:
        EmulationFailed: the links cannot be made here.
    """
    start = in_namespaces()
    if start is None:
        raise EmulationFailed("this machine allows no namespaces to this user")
    rates = []
    for latency in (_LATENCY, 0.0):
        command = [*start, *python("carrying"), str(latency)]
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
        while time.monotonic() < began + SECONDS:
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
