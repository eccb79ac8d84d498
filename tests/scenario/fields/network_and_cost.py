"""How fast links are, how they are connected, and where the seconds of training come from."""

from __future__ import annotations

from .limits_and_protocol import CELLS
from .observation import world
from .probe import EARLIER, LATER, Probe, differs, probes

TCP = {"network.transport.kind": "tcp"}
FIFO = {"network.topology.server": {"down": "0.5 Mbit/s", "up": "0.5 Mbit/s"}, "network.transport.queue": "fifo"}
"""The server's link is shared, so the shares of transfers matter."""
DOWN, LINK = "network.links.*.down", "network.links.l.down"
PROCESS = {
    LINK: {
        "kind": "process", "quantiles": {0: "0.3 Mbit/s", 100: "1 Mbit/s"}, "step": "10 ms", "outage_length": "1 s",
    }
}  # fmt: skip
SECONDS = {"cost": {"kind": "seconds", "methods": {"fedavg": {"low": 1, "high": 9}}}}


PROBES: list[Probe] = probes(world, [
    (DOWN, {}, {LINK: "0.2 Mbit/s"}, LATER),
    (f"{DOWN}<constant>.rate", {LINK: {"kind": "constant", "rate": "1 Mbit/s"}}, {f"{LINK}.rate": "0.2 Mbit/s"}, LATER),
    (f"{DOWN}<process>.step", PROCESS, {f"{LINK}.step": "0.5 s"}, differs),
    (f"{DOWN}<process>.outage_length", {**PROCESS, f"{LINK}.outage_every": "100 ms", "training.rounds": 8},
     {f"{LINK}.outage_length": "3 s"}, LATER),
    ("network.links.*.up", {}, {"network.links.l.up": "0.2 Mbit/s"}, LATER),
    ("network.links.*.latency", {}, {"network.links.l.latency": "3 s"}, LATER),
    # How they are connected.
    ("network.topology<star>.latency", {}, {"network.topology.latency": "3 s"}, LATER),
    ("network.topology<star>.server.down", {}, {"network.topology.server.down": "0.2 Mbit/s"}, LATER),
    ("network.topology<star>.server.up", {}, {"network.topology.server.up": "0.2 Mbit/s"}, LATER),
    ("network.topology<cells>.latency", CELLS, {"network.topology.latency": "3 s"}, LATER),
    ("network.topology<cells>.server.down", CELLS, {"network.topology.server.down": "0.2 Mbit/s"}, LATER),
    ("network.topology<cells>.server.up", CELLS, {"network.topology.server.up": "0.2 Mbit/s"}, LATER),
    ("network.topology<cells>.cells", CELLS, {"network.topology.cells": 1}, LATER),
    ("network.topology<cells>.backhaul.down", CELLS, {"network.topology.backhaul.down": "0.2 Mbit/s"}, LATER),
    ("network.topology<cells>.backhaul.up", CELLS, {"network.topology.backhaul.up": "0.2 Mbit/s"}, LATER),
    ("network.transport.kind", {}, {"network.transport.kind": "lv08"}, LATER),
    ("network.transport.connection_limit", {}, {"network.transport.connection_limit": "0.1 Mbit/s"}, LATER),
    ("network.transport.initial_window", TCP, {"network.transport.initial_window": 1}, LATER),
    ("network.transport.queue", {**FIFO, "network.transport.queue": "fair"}, {"network.transport.queue": "fifo"},
     differs),
    # How long training takes.
    ("cost<measured>.kind", SECONDS, {"cost": {"kind": "measured"}}, EARLIER),
])  # fmt: skip
