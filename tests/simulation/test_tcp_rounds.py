"""Rounds over TCP connections and one queue: closed forms."""

import pytest

from edgefl.network import FifoQueue, Tcp, Transport

from .fair_shares import unfair

KEPT = Transport(tcp=Tcp(handshake="tls", keep_alive=3600.0, segment=1000, initial_window=100))


def round_seconds(result):
    return [event.value for event in result.of("round_end")]


def test_the_first_round_opens_connections_and_later_ones_use_them(run):
    # 1 MB at 8 Mbit/s with a round trip of 0.1 s: 100 packets of 1000 bytes in it fill the link. The set-up takes 0.2 s
    # once; each transfer waits for the latency of 0.05 s; training takes 2 s.
    result = run(rates=[8e6] * 2, latency=0.05, rounds=3, transport=KEPT)
    assert round_seconds(result) == pytest.approx([4.3, 4.1, 4.1], rel=1e-9)
    assert unfair(result) == []


def test_connections_that_are_not_kept_are_opened_for_each_transfer(run):
    transport = Transport(tcp=Tcp(handshake="tls"))
    result = run(rates=[8e6] * 2, latency=0.05, rounds=2, transport=transport)
    assert round_seconds(result) == pytest.approx([4.5, 4.5], rel=1e-9)
    assert unfair(result) == []


def test_headers_lengthen_transfers_and_leave_bytes_as_they_are(run):
    result = run(rates=[8e6], rounds=1, transport=Transport(efficiency=0.8, tcp=Tcp()))
    assert round_seconds(result) == pytest.approx([1.25 + 2.0 + 1.25], rel=1e-9)
    assert result.outcome.spent.bytes_down == 1_000_000


@pytest.mark.parametrize(
    "protocol",
    [
        {"deadline": 4.4},
        {"kind": "asynchronous", "buffer": 2, "concurrency": 3},
        {"deadline": 6.0, "late": "partial", "over_select": 1.5},
    ],
)
@pytest.mark.parametrize("entry", ["fedavg", {"method": "fedadc", "overlap": True}])
def test_every_protocol_keeps_the_rules_of_connections_and_queues(run, entry, protocol):
    tcp = Tcp(handshake="tls_0rtt", keep_alive=3.0, initial_window=10, loss=0.001)
    transport = Transport(efficiency=0.95, tcp=tcp, queue=FifoQueue(1))
    result = run(
        entry, rates=[8e6, 4e6, 8e6, 2e6], cohort=3, server=12e6, latency=0.02, rounds=4, protocol=protocol,
        transport=transport,
    )  # fmt: skip
    assert unfair(result) == []
