"""How fast links are, how they are connected, and where the seconds of training come from."""

from __future__ import annotations

from typing import Any

from .files import FOLDER
from .limits_and_protocol import CELLS
from .observation import world
from .probe import EARLIER, LATER, Changes, Expected, Probe, both, differs, less, more, probes

ONE_CELL = {**CELLS, "network.topology.cells": 1, "network.topology.backhaul": {"down": "9 Mbit/s", "up": "9 Mbit/s"}}
GRAPH = {"network.topology": {"kind": "file", "file": str(FOLDER / "graph.json")}}
NAMED = {
    "network.topology": {
        "kind": "file", "file": str(FOLDER / "named.json"), "server": "centre",
        "clients": [f"phone {number}" for number in range(8)],
    }
}  # fmt: skip
DRAWN = {
    f"network.links.l.{way}": {"kind": "uniform", "low": "0.1 Mbit/s", "high": "1 Mbit/s"} for way in ("down", "up")
}
OUTAGES = {
    f"network.links.l.{way}": {
        "kind": "process", "quantiles": {0: "0.1 Mbit/s", 100: "0.4 Mbit/s"}, "step": "10 ms",
        "outage_every": "80 ms", "outage_length": "80 ms",
    } for way in ("down", "up")
}  # fmt: skip
BREAKS = {**OUTAGES, "network.transport.timeouts": {"connection": "50 ms", "retries": 50, "first_wait": "20 ms"}}
RANGES = {**BREAKS, "network.transport.timeouts.resume": "ranges"}
LV08 = {"network.transport.kind": "lv08"}
TCP = {"network.transport.kind": "tcp"}
FIFO = {"network.topology.server": {"down": "0.5 Mbit/s", "up": "0.5 Mbit/s"}, "network.transport.queue": "fifo"}
"""The server's link is shared, so the shares of transfers matter."""
SECONDS = {"cost": {"kind": "seconds", "methods": {"fedavg": {"low": 1, "high": 9}}}}
BLOCKS = {"methods": ["fedbr"]}


def timeout(**options: Any) -> Changes:
    return {f"network.transport.timeouts.{name}": value for name, value in options.items()}


def capacity_probes() -> list[tuple[str, Changes, Changes, Expected]]:
    """Everything that the capacity in one direction may say."""
    field, key = "network.links.*.down", "network.links.l.down"

    def capacity(kind: str, **options: Any) -> Changes:
        return {key: {"kind": kind, **options}}

    def option(name: str, value: Any) -> Changes:
        return {f"{key}.{name}": value}

    uniform = capacity("uniform", low="0.1 Mbit/s", high="0.4 Mbit/s")
    steady = capacity("trace", file=str(FOLDER / "steady.mahimahi"), shift="none", every="10 ms")
    bursty = capacity("trace", file=str(FOLDER / "bursty.mahimahi"), shift="none", every="10 ms")
    columns = {"time": "t", "rate": "rate", "unit": "Mbit/s", "group": "run"}

    def table(**changes: Any) -> Changes:
        return capacity("trace", file=str(FOLDER / "runs.csv"), shift="none", format={**columns, **changes})

    fast = {**table(), **option("only", "near")}
    quantiles = capacity("process", quantiles={0: "0.3 Mbit/s", 100: "1 Mbit/s"}, step="10 ms", outage_length="1 s")
    outages = {**quantiles, **option("outage_every", "100 ms"), "training.rounds": 8}
    return [
        (field, {}, {key: "0.2 Mbit/s"}, LATER),
        (f"{field}<constant>.rate", capacity("constant", rate="1 Mbit/s"), option("rate", "0.2 Mbit/s"), LATER),
        (f"{field}<uniform>.kind", {}, uniform, LATER),
        (f"{field}<uniform>.low", uniform, option("low", "0.4 Mbit/s"), EARLIER),
        (f"{field}<uniform>.high", uniform, option("high", "0.1 Mbit/s"), LATER),
        (f"{field}<trace>.file", steady, option("file", str(FOLDER / "bursty.mahimahi")), LATER),
        (f"{field}<trace>.format.time", table(), option("format.time", "late"), differs),
        (f"{field}<trace>.format.time_format", table(time="late"), option("format.time_format", "ms"), differs),
        (f"{field}<trace>.format.rate", fast, option("format.rate", "slow"), LATER),
        (f"{field}<trace>.format.unit", fast, option("format.unit", "kbit/s"), LATER),
        (f"{field}<trace>.format.group", table(), option("format.group", "half"), differs),
        (f"{field}<trace>.format.group[]", table(), option("format.group", ["run", "half"]), differs),
        (f"{field}<trace>.format.missing[]", fast, option("format.missing", [9]), differs),
        (f"{field}<trace>.format.where.*", table(where={"run": "near"}), option("format.where", {"run": "far"}), LATER),
        (f"{field}<trace>.only", fast, option("only", "f?r"), LATER),
        (f"{field}<trace>.assign", table(), option("assign", "in_order"), differs),
        (f"{field}<trace>.every", bursty, option("every", "0.45 s"), EARLIER),
        (f"{field}<trace>.scale", steady, option("scale", 0.2), LATER),
        (f"{field}<trace>.shift", bursty, option("shift", "random"), differs),
        (f"{field}<process>.quantiles.*", quantiles, option("quantiles", {0: "9 Mbit/s", 100: "9 Mbit/s"}), EARLIER),
        (f"{field}<process>.like", capacity("process", like="5g_walking"), option("like", "4g_driving"), differs),
        (f"{field}<process>.step", quantiles, option("step", "0.5 s"), differs),
        (f"{field}<process>.correlation", quantiles, option("correlation", 0.1), differs),
        (f"{field}<process>.outage_every", quantiles, option("outage_every", "100 ms"), LATER),
        (f"{field}<process>.outage_length", outages, option("outage_length", "3 s"), LATER),
    ]  # fmt: skip


PROBES: list[Probe] = probes(world, [
    *capacity_probes(),
    ("network.links.*.up", {}, {"network.links.l.up": "0.2 Mbit/s"}, LATER),
    ("network.links.*.latency", {}, {"network.links.l.latency": "3 s"}, LATER),
    ("network.links.*.redraw", DRAWN, {"network.links.l.redraw": "1 round"}, differs),
    ("network.links.*.symmetric", DRAWN, {"network.links.l.symmetric": True}, differs),
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
    ("network.topology<cells>.sharing", ONE_CELL, {"network.topology.sharing": "rate_fair"}, LATER),
    ("network.topology<cells>.sharing", {**ONE_CELL, "network.topology.sharing": "rate_fair", "fleet.1.link": "slow"},
     {"network.topology.sharing": "airtime_fair"}, differs),
    ("network.topology<file>.file", GRAPH, {"network.topology.file": str(FOLDER / "slow.graphml")}, LATER),
    ("network.topology<file>.sharing", GRAPH, {"network.topology.sharing": "rate_fair"}, LATER),
    ("network.topology<file>.server", NAMED, {"network.topology.server": "far away"}, LATER),
    ("network.topology<file>.clients[]", NAMED,
     {"network.topology.clients": [f"phone {number}" for number in reversed(range(8))]}, differs),
    ("network.transport.kind", {}, LV08, LATER),
    ("network.transport.acknowledgements", LV08, {"network.transport.acknowledgements": "shared"}, LATER),
    ("network.transport.connection_limit", {}, {"network.transport.connection_limit": "0.1 Mbit/s"}, LATER),
    ("network.transport.multicast", {"network.topology.server.down": "0.2 Mbit/s"},
     {"network.transport.multicast": True}, EARLIER),
    ("network.transport.timeouts.connection", BREAKS, timeout(connection="9 s"), less("bytes")),
    ("network.transport.timeouts.transfer", BREAKS, timeout(transfer="60 ms"), more("bytes")),
    ("network.transport.timeouts.retries", BREAKS, timeout(retries=0), less("aggregated")),
    ("network.transport.timeouts.first_wait", BREAKS, timeout(first_wait="3 s"), LATER),
    ("network.transport.timeouts.resume", BREAKS, timeout(resume="ranges"), both(EARLIER, less("bytes"))),
    ("network.transport.timeouts.chunk", RANGES, timeout(chunk="900 B"), both(LATER, more("bytes"))),
    ("network.transport.handshake", TCP, {"network.transport.handshake": "tcp"}, EARLIER),
    ("network.transport.keep_alive", TCP, {"network.transport.keep_alive": "1 h"}, EARLIER),
    ("network.transport.packet_bytes", TCP, {"network.transport.packet_bytes": 9000}, EARLIER),
    ("network.transport.initial_window", TCP, {"network.transport.initial_window": 1}, LATER),
    ("network.transport.queue", {**FIFO, "network.transport.queue": "fair"}, {"network.transport.queue": "fifo"},
     differs),
    # How long training takes.
    ("cost<measured>.kind", SECONDS, {"cost": {"kind": "measured"}}, EARLIER),
    ("cost<paper>.kind", BLOCKS, {"cost": {"kind": "paper"}}, differs),
    ("cost<seconds>.methods.*", {"cost": {"kind": "seconds", "methods": {"fedavg": 6}}},
     {"cost.methods": {"fedavg": 7}}, LATER),
    ("cost<seconds>.methods.*.low", SECONDS, {"cost.methods": {"fedavg": {"low": 9, "high": 9}}}, LATER),
    ("cost<seconds>.methods.*.high", SECONDS, {"cost.methods": {"fedavg": {"low": 1, "high": 1}}}, EARLIER),
    ("cost<seconds>.redraw", SECONDS, {"cost.redraw": "1 round"}, differs),
])  # fmt: skip
