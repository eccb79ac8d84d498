"""What the nodes' kernels are told about routes, delays and windows."""

from edgefl.emulation import shaping
from edgefl.emulation.routing import Routing, Window
from edgefl.emulation.wiring import LinkSettings, plan_wiring
from edgefl.network.tree import TreeLinks

PAIR = ("server", "client/0")


def routing(*, latency=(0.02, 0.05, 0.02), **settings):
    star = TreeLinks(server=(1e9, 1e9), down=[8e6] * 3, up=[4e6] * 3, latency=latency)
    wiring = plan_wiring(star, [("server", f"client/{client}") for client in range(3)])
    return Routing(wiring, LinkSettings(**settings))


def own_route(found, node, address):
    (line,) = [
        line for line in found.routes(node) if line.startswith(f"route add {address}/32") and "table 100" in line
    ]
    return line


def test_a_sender_has_one_delaying_device_for_each_latency():
    assert routing(dilation=2.0).delays("server") == {"delay0": 0.04, "delay1": 0.1}
    assert routing().delays("client/1") == {"delay0": 0.05}
    assert routing().delays("internet") == {}
    assert routing(latency=0.0).delays("server") == {}


def test_a_senders_own_packets_are_delayed_and_those_that_come_back_are_routed():
    found = routing()
    assert " dev delay1 " in own_route(found, "server", "10.0.0.3")
    assert f"route add 10.0.0.3/32 dev {found.device('internet')}" in found.routes("server")
    assert "rule add iif lo lookup 100 pref 100" in found.routes("server")
    assert not any("iif lo" in line for line in found.routes("internet"))


def test_packets_without_latency_go_to_the_first_link():
    found = routing(latency=0.0)
    assert f" dev {found.device('internet')} " in own_route(found, "server", "10.0.0.2")


def test_a_window_fills_the_path_from_the_beginning():
    packets = shaping.window_packets(1e6, 0.04)
    assert routing().window(PAIR) == Window(packets, packets)
    slow = shaping.window_packets(0.5e6 / 5, 0.2)  # 4 Mbit/s, five times as slow
    assert routing(dilation=5.0).window(PAIR[::-1]) == Window(slow, slow)


def test_with_slow_start_only_the_beginning_of_the_window_differs():
    packets = shaping.window_packets(1e6, 0.04)
    assert routing(initial_window=10).window(PAIR) == Window(10, packets)


def test_in_one_fifo_tcp_chooses_its_window_and_sends_single_packets():
    found = routing(queue="fifo", initial_window=10)
    assert found.window(PAIR) == Window(10, None)
    assert "cwnd" not in own_route(found, "server", "10.0.0.2").replace("initcwnd", "")
    assert found.segments("server") == 1


def test_segments_follow_from_the_slowest_receiver():
    assert routing().segments("server") == shaping.segments(1e6, 0.04)
    assert routing(dilation=50.0).segments("server") == 1
