"""An audit of the transfers of a run: no link carries more than its capacity, and durations follow from fair shares."""

import itertools
import math
from types import SimpleNamespace

import networkx as nx

from edgefl.network import GraphLinks
from edgefl.network.fairness import Outlook
from edgefl.network.tcp import Opening
from edgefl.simulation.traffic import Allocation

from ..network.audit import FlowRecord, audit_flows, merged


def unfair(result):
    """What the audit finds wrong with the transfers of a small run."""
    setup = result.setup
    links = GraphLinks(setup.topology) if isinstance(setup.topology, nx.Graph) else setup.topology
    ends = {event.flow: event for kind in ("transfer_end", "transfer_drop") for event in result.of(kind)}
    groups = {}
    for start in result.of("transfer_start"):
        facts = start.facts
        group = ("multicast", facts["multicast"]) if "multicast" in facts else ("flow", start.flow)
        groups.setdefault(group, []).append(_flow(start, ends[start.flow]))
    return list(
        audit_flows(
            [(event.time, (event.source, event.target), event.value) for event in result.of("capacity")],
            [members[0] if kind == "flow" else merged(members) for (kind, _), members in groups.items()],
            air={
                tuple(map(str, links.ends(link))): links.air(link)
                for link in range(len(links.capacity))
                if links.air(link) >= 0
            },
            airtime_fair=links.airtime_fair,
            transport=setup.transport,
            allocator=None if setup.bandwidth is None else Allocation(setup.bandwidth, "of the run"),
        )
    )


def _flow(start, end):
    facts = start.facts
    connection, outlook = facts.get("connection"), facts.get("outlook")
    return FlowRecord(
        flow=start.flow,
        path=tuple(itertools.pairwise(facts["path"])),
        bytes=float(start.bytes),
        started=start.time,
        ended=end.time,
        cancelled=end.kind == "transfer_drop",
        delivered=float(end.bytes),
        latency=start.value,
        ends=(facts["path"][0], facts["path"][-1]),
        setup=float(connection["setup"]) if connection else 0.0,
        opening=Opening(0, connection["rounds"]) if connection else Opening(0),
        outlook=Outlook(outlook["up"], outlook["after"], outlook.get("deadline", math.inf)) if outlook else Outlook(),
    )


def outages(*spans, link=("internet", "client/0")):
    """Capacity changes that take a link down from ``began`` until ``ended``, for each pair."""

    def attach(network):
        usual = network.capacity(*link)
        for began, ended in spans:
            for seconds, rate in ((began, 0.0), (ended, usual)):
                network.env.timeout(seconds).callbacks.append(lambda _, rate=rate: network.set_capacity(*link, rate))

    return SimpleNamespace(attach=attach, round_begins=lambda network, round: None)


def conserved(result):
    """Check that what was sent of each transfer is what it delivered or kept, and what was lost."""
    first = {event.flow: event.facts.get("first", event.flow) for event in result.of("transfer_start")}
    sizes = {event.flow: event.bytes for event in result.of("transfer_start") if "first" not in event.facts}
    moved, lost, kept, complete = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0), set()
    for event in result.events:
        if event.kind in ("transfer_end", "transfer_drop"):
            moved[first[event.flow]] += event.bytes
            if event.kind == "transfer_end":
                complete.add(first[event.flow])
        elif event.kind == "transfer_break":
            lost[first[event.flow]] += event.bytes
            kept[first[event.flow]] = event.facts["kept"]
    for flow, size in sizes.items():
        if flow in complete:
            assert moved[flow] == size + lost[flow]
        else:
            assert kept[flow] + lost[flow] <= moved[flow] <= size + lost[flow]
    spent = result.outcome.spent
    assert sum(moved.values()) == spent["bytes"] + spent["bytes_backhaul"]
    fates = spent["bytes_useful"] + spent["bytes_late"] + spent["bytes_dropped"] + spent["bytes_retried"]
    assert fates + spent["bytes_prefetched_in_vain"] + spent["bytes_broken"] <= spent["bytes"]
