"""What several clients are sent alike crosses the server's link once: closed forms of whole rounds."""

import pytest

from edgefl.network import Transport

MULTICAST = Transport(multicast=True)
MODEL = 1_000_000


def test_a_broadcast_model_takes_the_server_link_once_and_every_client_counts_its_bytes(run):
    # 1 MB at 8 Mbit/s: 1 s once, or 4 s for four; then 2 s of computing, and four uploads that share 8 Mbit/s.
    ends = {}
    for transport in (Transport(), MULTICAST):
        result = run(rates=[80e6] * 4, server=8e6, rounds=1, transport=transport)
        ends[transport.multicast] = [event.time for event in result.of("transfer_end", item="down")]
        assert result.outcome.spent.bytes_down == 4 * MODEL
        assert result.outcome.spent.joules == pytest.approx(
            sum(event.joules for event in result.events if event.kind not in {"work"})
        )
    assert ends[False] == pytest.approx([4.0] * 4)
    assert ends[True] == pytest.approx([1.0] * 4)


def test_fedadc_sends_its_mean_delta_to_all_at_once_and_each_update_by_itself(run):
    result = run({"method": "fedadc", "overlap": True}, rates=[80e6] * 3, server=8e6, rounds=3, transport=MULTICAST)
    starts = result.of("transfer_start")
    assert {event.item for event in starts if '"multicast"' in event.detail} <= {"down", "prefetch"}
    assert not any('"multicast"' in event.detail for event in result.of("transfer_start", item="up"))
    deltas = [event for event in result.of("transfer_end", item="down") if event.round == 3]
    assert [event.seconds for event in deltas] == pytest.approx([1.0] * 3)


def test_the_slowest_client_paces_all_until_it_is_dropped(run):
    # Client 1 would take 10 s; the deadline of 5 s ends round 1 for all, since nobody has the model by then.
    result = run(rates=[8e6, 0.8e6], rounds=1, protocol={"deadline": 5.0}, transport=MULTICAST)
    assert [event.bytes for event in result.of("transfer_drop")] == [MODEL / 2] * 2
    assert result.outcome.spent.bytes_down == MODEL
