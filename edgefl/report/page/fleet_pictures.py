"""The data of the page's pictures of a fleet, by method, of its first seed: a map of nodes and links, and batteries."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from edgefl.randomness import generator
from edgefl.record.figures import at
from edgefl.record.tables import read_events
from edgefl.report.page.series import Series
from edgefl.report.timeline.data import Timeline


def map_data(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Links with the bytes in each direction and the larger part of their capacity that is used; clients with rounds.

    A method without a server has a second map, of its peers and what they exchanged, without capacities.
    Each client has its device, the rounds that it closed, and those in which its update was used.
    """
    found = []
    for one in series:
        if not one.timelines:
            continue
        timeline = one.timelines[0]
        closed = Counter(round.critical for round in timeline.rounds)
        joined = Counter(client for round in timeline.rounds for client in round.aggregated)
        carried: defaultdict[tuple[str, str], float] = defaultdict(float)
        for each in timeline.transfers:
            for link in each.links:
                carried[link] += each.bytes
        exchanged: defaultdict[tuple[str, str], float] = defaultdict(float)
        for each in timeline.transfers:
            if each.flow in timeline.receptions:
                exchanged[f"client/{each.client}", f"client/{timeline.receptions[each.flow]}"] += each.bytes
        links = [
            [*link, *both, max(_load(timeline, way, carried) for way in (link, link[::-1]))]
            for link, both in _both_ways(carried)
        ]
        peers = [[*link, *both, None] for link, both in _both_ways(exchanged)]
        clients = sorted({int(node[7:]) for link in carried for node in link if node.startswith("client/")})
        rounds = {f"client/{each}": [timeline.device_of(each), closed[each], joined[each]] for each in clients}
        for name, drawn in ((one.name, links), (f"{one.name}: peers", peers)):
            found.append({"name": name, "links": drawn, "clients": rounds, "rounds": len(timeline.rounds)})
    return [each for each in found if each["links"]]


def _both_ways(carried: Mapping[tuple[str, str], float]) -> Iterator[tuple[tuple[str, str], tuple[float, float]]]:
    """Each two nodes once, with the bytes in both directions."""
    for link, amount in carried.items():
        back = link[::-1]
        if back not in carried or link < back:
            yield link, (amount, carried.get(back, 0.0))


def _load(timeline: Timeline, link: tuple[str, str], carried: dict[tuple[str, str], float]) -> float:
    """The part of a link's capacity over the run that was used; 0 if its capacity is not known.

    The log has a capacity from the link's first use on; before it, the link is taken to have had that one.
    """
    known = timeline.capacities.get(link, [(0.0, 0.0)])
    changes = [(0.0, known[0][1]), *known[1:], (timeline.ended, 0.0)]
    bits = sum(value * max(0.0, until - since) for (since, value), (until, _) in pairwise(changes))
    return 8 * carried.get(link, 0.0) / bits if 0 < bits < float("inf") else 0.0


_SHOWN, _POINTS = 100, 40
"""Clients shown, those with the least left, and the points of each line."""


def battery_data(series: Sequence[Series]) -> list[dict[str, Any]]:
    """The part that each battery holds over time; empty if no device has one.

    It falls by what the device draws, and rises between two rounds of the device if it charges then, which the log
    does not contain: this is exact for devices that are never charged.
    """
    found = []
    for one in series:
        groups = [each for each in one.run.fleet for _ in range(at(each, "sample.devices") or 1)]
        batteries = {number: each for number, of in enumerate(groups) if (each := at(of, "profile.battery"))}
        if not one.timelines or not batteries:
            continue
        timeline, seed = one.timelines[0], one.results[0].seed
        even = generator(seed, "battery").random(int(one.run.option("data.clients") or 0))
        owners = {client: batteries[group] for client, (group, _) in timeline.groups.items() if group in batteries}
        lines = {client: [(0.0, _start(own, even[client]))] for client, own in owners.items()}
        rounds = dict.fromkeys(owners, -1)
        for event in read_events(one.run.of(one.label, seed).events):
            if event.joules and (own := owners.get(event.client)) is not None:
                since, left = lines[event.client][-1]
                if rounds[event.client] != event.round:
                    charged = own["charging"] * max(0.0, event.time - event.seconds - since) / own["capacity"]
                    left, rounds[event.client] = min(1.0, left + charged), event.round
                lines[event.client].append((event.time, max(0.0, left - event.joules / own["capacity"])))
        for client, own in owners.items():
            since, left = lines[client][-1]
            charged = own["charging"] * (timeline.ended - since) / own["capacity"]
            lines[client].append((timeline.ended, min(1.0, left + charged)))
        emptiest = sorted(lines.items(), key=lambda each: each[1][-1][1])[:_SHOWN]
        thin = {client: [*(of[len(of) * n // _POINTS] for n in range(_POINTS)), of[-1]] for client, of in emptiest}
        found.append({
            "name": one.name, "ended": timeline.ended,
            "lines": [[client, timeline.device_of(client), [[float(f"{t:.5g}"), round(left, 4)] for t, left in line]]
                      for client, line in thin.items()],
        })  # fmt: skip
    return [each for each in found if each["lines"]]


def _start(battery: dict[str, Any], even: float) -> float:
    start = battery["start"]
    return float(start["low"] + (start["high"] - start["low"]) * even) if isinstance(start, dict) else float(start)
