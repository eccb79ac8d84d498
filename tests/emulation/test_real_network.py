from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.emulation.real_network import RealNetwork
from edgefl.network.flow import Flow
from edgefl.network.tcp import Tcp
from edgefl.network.transport import Transport
from edgefl.network.tree import TreeLinks
from edgefl.simulation.clock import Clock
from edgefl.step_trace import StepTrace


class Carrier:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.arrived = 0
        self.capacities: list[tuple[float, dict[tuple[str, str], float]]] = []
        self.clock = Clock()

    def send(self, flow: int, source: str, target: str, bytes: int, round_trips: int | None) -> None:
        self.sent.append((flow, source, target, bytes, round_trips))

    def stop(self, flow: int, source: str, target: str) -> int:
        return self.arrived

    def progress(self, flow: int, target: str) -> int:
        return self.arrived

    def set_capacities(self, changes: dict[tuple[str, str], float]) -> None:
        self.capacities.append((self.clock.now, changes))

    def end_process(self, node: str) -> None:
        self.arrived = 0  # as a process that is gone

    def begin_process(self, node: str) -> None:
        raise AssertionError


class Observer:
    """Remembers what the network reports."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def flow_started(self, flow: Flow) -> None:
        self.rows.append(("started", flow.id))

    def flow_ended(self, flow: Flow) -> None:
        self.rows.append(("ended", flow.id))

    def flow_cancelled(self, flow: Flow) -> None:
        self.rows.append(("cancelled", flow.id, flow.delivered))

    def capacity_changed(self, link: int, source: object, target: object, bits_per_second: float) -> None:
        self.rows.append(("capacity", source, target, bits_per_second))


def network(transport: Transport | None = None) -> tuple[RealNetwork, Carrier, Observer]:
    carrier, observer = Carrier(), Observer()
    star = TreeLinks(server=(1e9, 1e9), down=[8e6, 4e6], up=[1e6, 2e6], latency=0.02)
    found = RealNetwork(carrier.clock, star, observer=observer, transport=transport or Transport(), carrier=carrier)
    return found, carrier, observer


def test_a_transfer_is_carried_and_ends_when_its_last_byte_is_reported() -> None:
    net, carrier, observer = network()
    flow = net.transfer("server", "client/1", 1000)
    assert carrier.sent == [(0, "server", "client/1", 1000, None)]
    carrier.clock.run(until=3.0)
    assert net.under_way
    net.arrived(0)
    assert (flow.ended, flow.delivered, flow.triggered, net.under_way) == (3.0, 1000, True, False)
    assert [row for row in observer.rows if row[0] != "capacity"] == [("started", 0), ("ended", 0)]


def test_the_capacities_of_a_path_are_announced_before_its_first_transfer_and_once() -> None:
    net, _, observer = network()
    net.transfer("client/0", "server", 1)
    net.transfer("client/0", "server", 1)
    announced = [row for row in observer.rows if row[0] == "capacity"]
    assert announced == [("capacity", "client/0", "internet", 1e6), ("capacity", "internet", "server", 1e9)]


def test_a_cancelled_transfer_keeps_what_has_arrived_and_a_late_report_has_no_effect() -> None:
    net, carrier, observer = network()
    flow = net.transfer("server", "client/0", 1000)
    carrier.arrived = 400
    assert flow.delivered == 400
    net.cancel(flow)
    net.cancel(flow)
    net.arrived(flow.id)
    assert (flow.cancelled, flow.delivered, flow.triggered) == (True, 400, False)
    assert observer.rows[-1] == ("cancelled", 0, 400.0)


def test_a_trace_is_followed_on_idle_links_too() -> None:
    net, carrier, observer = network()
    link = net.topology.link("internet", "client/0")
    net.follow(link, StepTrace([0.0, 1.0, 2.0], [8e6, 0.0, 5e6]))
    carrier.clock.run(until=1.5)
    net.transfer("server", "client/0", 10)
    assert net.blocked
    carrier.clock.run(until=2.5)
    assert not net.blocked
    ends = ("internet", "client/0")
    assert carrier.capacities == [(1.0, {ends: 0.0}), (2.0, {ends: 5e6})]
    assert [row[1:] for row in observer.rows if row[0] == "capacity" and row[2] == "client/0"] == [
        (*ends, 0.0),
        (*ends, 5e6),
    ]


def test_handshakes_follow_the_transport() -> None:
    net, carrier, _ = network(Transport(tcp=Tcp(handshake="tls", keep_alive=10.0)))
    for seconds, expected in ((0.0, 1), (5.0, None), (30.0, 1)):
        carrier.clock.run(until=seconds + 1.0)
        net.transfer("server", "client/0", 10)
        assert carrier.sent[-1][-1] == expected
        net.arrived(carrier.sent[-1][0])


def test_during_an_outage_a_link_has_no_capacity_and_afterwards_that_of_its_trace() -> None:
    net, carrier, observer = network()
    down, up = (int(net.topology.client_links(1, up=each)[0]) for each in (False, True))
    net.follow(down, StepTrace([0.0, 2.0], [8e6, 5e6]))
    net.transfer("server", "client/0", 1_000_000)
    for seconds, act in ((1.0, net.begin_outage), (3.0, net.end_outage)):
        for link in (down, up):
            carrier.clock.timeout(seconds).callbacks.append(lambda _, act=act, link=link: act(link))
    carrier.clock.timeout(2.5).callbacks.append(lambda _: net.set_capacities(np.array([up]), np.array([3e6])))
    carrier.clock.run(until=2.75)
    assert net.blocked
    assert net.capacity("internet", "client/0") == 0.0
    carrier.clock.run(until=4.0)
    changes = [(time, ends, rate) for time, change in carrier.capacities for ends, rate in change.items()]
    assert [change for change in changes if change[0] >= 1.0] == [
        (1.0, ("internet", "client/0"), 0.0),
        (1.0, ("client/0", "internet"), 0.0),
        (3.0, ("internet", "client/0"), 5e6),
        (3.0, ("client/0", "internet"), 3e6),
    ]
    assert [row[3] for row in observer.rows if row[:3] == ("capacity", "internet", "client/0")] == [8e6, 0.0, 5e6]


def test_what_had_arrived_when_a_process_ended_is_known_from_before() -> None:
    net, carrier, _ = network()
    flows = [net.transfer("server", "client/0", 1000), net.transfer("client/0", "server", 1000)]
    carrier.arrived = 321
    net.end_process("client/0")
    for flow in flows:
        net.cancel(flow)
    assert [flow.delivered for flow in flows] == [321.0, 321.0]
    assert not net.is_under_way(0)
