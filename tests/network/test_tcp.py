"""TCP connections: completion times against sums done by hand, and every option in its direction."""

import math

import pytest
import simpy

from edgefl.network import FlowNetwork, Transport, TreeLinks
from edgefl.network.tcp import Opening, Tcp, payload_share
from edgefl.network.transport import TransportSpec

LATENCY = 0.05  # so a round trip takes 0.1 s
EXACT = {"rel": 1e-9}


def star(down, latency=LATENCY, server=1e9):
    return TreeLinks(server=(server, server), down=down, up=down, latency=latency)


def seconds_of(tcp, bytes, *, rate=8e6, efficiency=1.0, latency=LATENCY, times=1, pause=0.0, **options):
    """The seconds that each of some transfers takes, one after another, from the server to one client."""
    env = simpy.Environment()
    network = FlowNetwork(env, star([rate], latency), transport=Transport(tcp=tcp, efficiency=efficiency, **options))
    taken = []

    def client():
        for _ in range(times):
            flow = network.transfer("server", "client/0", bytes)
            began = env.now
            yield flow
            assert flow.delivered == bytes
            taken.append(env.now - began)
            yield env.timeout(pause)

    env.process(client())
    env.run()
    return taken[0] if times == 1 else taken


@pytest.mark.parametrize(("handshake", "round_trips"), [("none", 0), ("tcp", 1), ("tls", 2), ("tls_0rtt", 2)])
def test_a_connection_is_set_up_before_its_first_byte(handshake, round_trips):
    assert seconds_of(Tcp(handshake=handshake), 1e6) == pytest.approx(0.1 * round_trips + 0.05 + 1.0, **EXACT)


def test_a_connection_that_is_kept_alive_is_set_up_once_and_one_that_was_closed_again():
    kept = Tcp(handshake="tls", keep_alive=10.0)
    assert seconds_of(kept, 1e6, times=2, pause=9.9) == pytest.approx([1.25, 1.05], **EXACT)
    assert seconds_of(kept, 1e6, times=2, pause=10.1) == pytest.approx([1.25, 1.25], **EXACT)
    assert seconds_of(Tcp(handshake="tls"), 1e6, times=2) == pytest.approx([1.25, 1.25], **EXACT)


def test_a_repeated_connection_sends_its_first_bytes_with_its_first_packet_for_a_week():
    assert seconds_of(Tcp(handshake="tls_0rtt"), 1e6, times=2, pause=60.0) == pytest.approx([1.25, 1.05], **EXACT)
    assert seconds_of(Tcp(handshake="tls_0rtt"), 1e6, times=2, pause=604801.0) == pytest.approx([1.25] * 2, **EXACT)


def test_transfers_at_once_need_a_connection_each_and_the_next_one_takes_any_of_them():
    env = simpy.Environment()
    network = FlowNetwork(env, star([8e6]), transport=Transport(tcp=Tcp(handshake="tcp", keep_alive=60.0)))
    first = [network.transfer("server", "client/0", 5e5) for _ in range(2)]
    env.run()
    assert [flow.ended for flow in first] == pytest.approx([1.15, 1.15], **EXACT)
    more = [network.transfer("client/0", "server", 0.0) for _ in range(3)]
    assert [flow.setup for flow in more] == [0.0, 0.0, 0.1]


def test_a_cancelled_transfer_closes_its_connection():
    env = simpy.Environment()
    network = FlowNetwork(env, star([8e6]), transport=Transport(tcp=Tcp(handshake="tcp", keep_alive=60.0)))
    flow = network.transfer("server", "client/0", 1e6)
    env.run(until=0.65)
    network.cancel(flow)
    assert flow.delivered == pytest.approx(5e5, **EXACT)
    assert network.transfer("server", "client/0", 1e6).setup == pytest.approx(0.1)


def test_headers_and_records_take_their_share_of_the_capacity():
    # 1448 of 1500 bytes in each packet with timestamps; 22 bytes are added to a TLS record of 16384.
    share = payload_share(1500, encrypted=True)
    assert share == pytest.approx(1448 / 1500 * 16384 / 16406, **EXACT)
    assert seconds_of(Tcp(), 1e6, efficiency=share) == pytest.approx(0.05 + 1.0 / share, **EXACT)


def test_slow_start_doubles_the_rate_in_each_round_trip_until_the_link_is_full():
    # Packets of 1000 bytes: 10, 20, 40 and 80 kB in 0.1 s each, then 100 kB at the link's rate of 8 Mbit/s.
    # The first three rounds are below 1 MB/s; the fourth is limited by the link to 100 kB; 30 kB remain after it.
    tcp = Tcp(initial_window=10, segment=1000)
    assert seconds_of(tcp, 180e3) == pytest.approx(0.05 + 0.4 + 0.03, **EXACT)
    assert seconds_of(tcp, 25e3) == pytest.approx(0.05 + 0.1 + 0.075, **EXACT)


def test_a_kept_connection_keeps_its_window_until_it_has_been_idle_for_a_time_out():
    # 30 kB take 0.2 s from the first window, and 30 / 40 of a round trip with one that has grown twice.
    tcp = Tcp(initial_window=10, segment=1000, keep_alive=60.0)
    assert seconds_of(tcp, 30e3, times=2, pause=0.9) == pytest.approx([0.25, 0.125], **EXACT)
    assert seconds_of(tcp, 30e3, times=2, pause=1.1) == pytest.approx([0.25, 0.25], **EXACT)


def test_what_slow_start_leaves_goes_to_other_transfers():
    # Both share 1 MB/s. Client 1's transfer has no round trip, so no slow start: it gets what client 0 leaves, which
    # sends 10, 20 and 40 kB in 0.1 s each, before both get 50 kB in 0.1 s.
    env = simpy.Environment()
    network = FlowNetwork(
        env, star([8e8, 8e8], [0.05, 0.0], server=8e6), transport=Transport(tcp=Tcp(initial_window=10, segment=1000))
    )
    slow, quick = (network.transfer("server", f"client/{client}", 330e3) for client in range(2))
    env.run()
    # The quick one: 50 kB before, then 90, 80 and 60 kB, and 50 kB in 0.1 s each.
    assert quick.ended == pytest.approx(0.05 + 0.3 + 0.1, **EXACT)
    # The slow one: 70 + 50 kB so far; alone, 80 kB a round trip would have been its fourth window, 160 its fifth.
    assert slow.ended == pytest.approx(0.45 + (330 - 120) / 1000, **EXACT)


@pytest.mark.parametrize(
    "tcp", [Tcp(handshake="tls", keep_alive=60.0, initial_window=10), Tcp(initial_window=2), Tcp(handshake="tls_0rtt")]
)
@pytest.mark.parametrize("latency", [0.0, 0.05])
def test_a_transfer_alone_takes_what_was_foreseen_also_on_its_second_time(tcp, latency):
    env = simpy.Environment()
    transport = Transport(tcp=tcp, efficiency=0.95)
    network = FlowNetwork(env, star([20e6], latency), transport=transport)
    trips = 0 if tcp.keep_alive else tcp.round_trips(repeated=True)
    for _ in range(2):
        foreseen = network.alone("server", "client/0").seconds(2e6)
        flow = network.transfer("server", "client/0", 2e6)
        env.run()
        assert flow.ended - flow.started == pytest.approx(foreseen, rel=1e-12)
        assert network.alone("server", "client/0").seconds(0.0) == pytest.approx(latency * (2 * trips + 1))


def test_nothing_arrives_over_a_link_that_is_down():
    assert Tcp().seconds(1.0, 0.0, LATENCY, Opening(0)) == math.inf


def test_the_options_of_a_scenario_become_a_connection():
    transport = TransportSpec(kind="tcp").build()
    share = 1448 / 1500 * 16384 / 16406
    assert transport.efficiency == pytest.approx(share, **EXACT)
    assert transport.tcp == Tcp(
        handshake="tls", segment=pytest.approx(1448 * 16384 / 16406, **EXACT), initial_window=10
    )
    assert TransportSpec(kind="tcp", handshake="tcp").build().efficiency == pytest.approx(1448 / 1500, **EXACT)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keep_alive": 1}, "keep_alive: expected no value, because kind is fluid, not tcp"),
        ({"kind": "tcp", "multicast": True}, "multicast: expected false, because a tcp connection has two ends"),
        ({"kind": "tcp", "packet_bytes": 52}, "greater than 52"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        TransportSpec(**wrong)
