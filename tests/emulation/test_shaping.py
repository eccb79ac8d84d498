"""Arrangement, dilation and shaping of real links."""

from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.emulation import shaping
from edgefl.emulation.emulate import (
    MOST_CLIENTS,
    RANDOM_BYTES,
    USED_PART,
    PacketRates,
    carried_content,
    choose_dilation,
    packet_rates,
    taking_part,
)
from edgefl.emulation.routing import Routing
from edgefl.emulation.shaping import Rate
from edgefl.emulation.wiring import LinkSettings, WiredLink, plan_wiring
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.network.topology import GraphLinks
from edgefl.network.tree import TreeLinks
from edgefl.record.paths import RunPaths, SeedPaths
from edgefl.record.tables import read_events
from edgefl.scenario.loading import check

from .campaign import scenarios

ADDRESSES = {"server": "10.0.0.1", "client/0": "10.0.0.2", "client/1": "10.0.0.3"}
PAIRS = (("server", "client/0"), ("server", "client/1"))


def shaper(**options):
    link = WiredLink(0, "server", "internet", 8e6, 8e6, 0.0, PAIRS)
    return shaping.Shaper(link, "to3", ADDRESSES, **options)


def test_payload_gets_the_scenarios_capacity():
    rate = shaping.wire_bytes_per_second(16e6, efficiency=0.5, dilation=4.0)
    # 1 MB/s of payload in the scenario, a quarter of it in real time; 1448 of each frame's 1514 bytes are payload.
    assert rate == pytest.approx(0.25e6 / 1448 * 1514, rel=1e-12)


def test_an_infinite_capacity_is_not_shaped():
    assert shaping.wire_bytes_per_second(math.inf, efficiency=1.0, dilation=5.0) == shaping.UNSHAPED


def test_a_window_covers_the_round_trip_and_the_slack():
    # 10 Mbit/s: 1.25 MB/s for 40 ms and the slack.
    assert shaping.window_packets(1.25e6, 0.04) == math.ceil(1.25e6 * (0.04 + shaping.DELAYED_SLACK_SECONDS) / 1448)
    assert shaping.window_packets(1.25e8, 0.0) == math.ceil(1.25e8 * shaping.SLACK_SECONDS / 1448)


def test_packets_that_are_sent_as_one_are_at_most_a_quarter_of_what_a_window_may_wait():
    assert shaping.segments(1448 * 4 * 3.5 / shaping.SLACK_SECONDS, 0.0) == 3
    assert shaping.segments(1448 * 4 * 3.5 / shaping.DELAYED_SLACK_SECONDS, 0.01) == 3
    assert (shaping.segments(1e3, 0.0), shaping.segments(1e12, 0.0)) == (1, shaping.MOST_SEGMENTS)


def test_each_sender_and_receiver_has_a_class_that_borrows_the_links_rate():
    lines = shaper().made(1e6)
    leaves = [line for line in lines if line.startswith("class add dev to3 parent 2:1 ")]
    filters = [line for line in lines if " prio 2 " in line]
    assert len(leaves) == len(filters) == 2
    assert "match ip src 10.0.0.1/32 match ip dst 10.0.0.3/32 classid 2:11" in filters[1]
    assert any("classid 2:1 htb rate 1000000bps ceil 1000000bps" in line for line in lines)


def test_one_fifo_has_one_class_for_all():
    lines = shaper(fair=False).made(1e6)
    assert sum("parent 2:1 " in line for line in lines) == 1
    assert any(line.endswith("pfifo limit 100") for line in lines)
    assert not any("10.0.0.2" in line for line in lines)


def test_a_change_sets_the_rate_of_the_links_class():
    assert shaper().changed(2.5e6) == Rate("to3", 0x20001, 2_500_000, 5000)


def test_an_outage_closes_every_queue_and_its_end_opens_them():
    closed, opened = shaper().valves(open=False), shaper().valves(open=True)
    assert [(each.parent, each.handle, each.bytes_per_second) for each in closed] == [
        (0x20010, 0x100000, 1),
        (0x20011, 0x110000, 1),
    ]
    assert all(each.bytes_per_second > shaping.UNSHAPED and each.packets == shaping.QUEUE_PACKETS for each in opened)


class Fleet:
    """A run's setup with this number of clients."""

    def __init__(self, clients: int) -> None:
        self.clients = clients


def test_transfers_carry_the_simulated_model_and_random_bytes_without_one(tmp_path):
    assert len(carried_content(SeedPaths(tmp_path))) == RANDOM_BYTES
    (tmp_path / "final.safetensors").write_bytes(b"model")
    assert carried_content(SeedPaths(tmp_path)) == b"model"


def test_of_a_large_fleet_only_clients_that_took_part_get_a_process(tmp_path):
    data = scenarios()["star"]
    data["data"]["clients"] = 2 * MOST_CLIENTS
    out = run(check(data), out=tmp_path / "run", train=False)
    paths = RunPaths(out).of("fedavg", 0)
    selected = {event.client for event in read_events(paths.events, {"compute_end"})}
    assert taking_part(Fleet(2 * MOST_CLIENTS), paths) == sorted(selected)
    assert taking_part(Fleet(3), paths) == [0, 1, 2]


rates = st.floats(10.0, 1e7)


def star(clients, server, client, latency=0.02):
    topology = TreeLinks(server=(server, server), down=[client] * clients, up=[client] * clients, latency=latency)
    return plan_wiring(topology, [("server", f"client/{number}") for number in range(clients)])


@pytest.mark.parametrize(("clients", "busy"), [(1, 5e6), (9, 24e6)])
@pytest.mark.parametrize("dilation", [1.0, 10.0])
def test_a_star_carries_the_smaller_of_the_servers_and_all_clients_capacities(clients, busy, dilation):
    wiring, slow = star(clients, 24e6, 5e6), LinkSettings(dilation=dilation, efficiency=0.5)
    # Both directions, and half as many acknowledgements.
    packets = 2 * busy / 8 / 1448 * 0.5 / dilation
    found = packet_rates(wiring, slow)
    assert found.links == pytest.approx(2 * 1.5 * packets)  # each packet crosses two links
    segments = Routing(wiring, slow).segments("server")
    assert found.delayed == pytest.approx(packets / segments + packets / 2)


def test_links_without_latency_need_no_process():
    assert packet_rates(star(3, 24e6, 5e6, latency=0.0), LinkSettings()).delayed == 0.0


@settings(max_examples=15)
@given(rates, rates)
def test_the_dilation_is_the_least_of_its_series_that_is_enough(delayed, links):
    wiring, measured = star(2, 1e9, 2e8), PacketRates(delayed, links)
    factor, why = choose_dilation(wiring, LinkSettings(), measured)
    series = [float(first * 10**power) for power in range(9) for first in (1, 2, 5)]

    def enough(factor):
        needed = packet_rates(wiring, LinkSettings(dilation=factor))
        return needed.delayed <= USED_PART * delayed and needed.links <= USED_PART * links

    assert enough(factor)
    assert factor == 1.0 or not enough(series[series.index(factor) - 1])
    assert f"dilation {factor:g}: " in why


def test_a_route_without_a_finite_capacity_is_refused():
    graph = nx.DiGraph()
    for source, target in (("server", "client/0"), ("client/0", "server")):
        graph.add_edge(source, target, capacity=math.inf, latency=0.0)
    with pytest.raises(UserError, match="no link from server to client/0 has a finite capacity"):
        packet_rates(plan_wiring(GraphLinks(graph), [("server", "client/0")]), LinkSettings())
