"""Blocks and models that are sent down, to one client or to many."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.network import Transport
from edgefl.scheduling.selection.uniform import UniformSelector
from edgefl.simulation.presence import Crash
from edgefl.simulation.world import ClientRecord


def test_partial_rounds_send_the_last_blocks_alone(run):
    result = run({"method": "fedbr", "full_every": 2}, rates=[8e6], rounds=4, scheduler={"kind": "fixed", "alpha": 2})
    assert [event.bytes for event in result.of("transfer_start", item="down")] == [1e6, 5e5, 1e6, 5e5]
    assert [row.blocks_actual for row in result.outcome.rows] == [1_000_000, 500_000, 1_000_000, 500_000]
    assert [job.alpha for job in result.learner.submitted] == [4, 2, 4, 2]


def test_decisions_name_the_inputs_that_they_read(run):
    result = run("fedbr", rounds=2, scheduler="gmbs")
    blocks = result.of("decision", item="blocks")
    assert len(blocks) == 1
    assert '"reads": ["compute_seconds", "distance", "loss", "transfer_seconds"]' in blocks[0].detail
    assert all('"reads": []' in event.detail for event in result.of("decision", item="selection"))


def test_a_decision_of_gmbs_names_the_rewards_and_bonuses_that_it_rested_on(run):
    result = run("fedbr", rounds=4, scheduler="gmbs")
    first, second = blocks(result)
    assert set(first["bonuses"].values()) == {math.sqrt(math.log(2))}
    assert set(second["bonuses"].values()) == {math.sqrt(math.log(4))}  # of an α that was never played
    assert set(first["rewards"].values()) == {0.0}
    spent = sum(sum(facts["bonuses"].values()) for facts in (first, second))
    assert result.outcome.spent["choice_bonuses"] == pytest.approx(spent)
    assert "bonuses" not in blocks(run(ENTRY, rounds=2, scheduler="random"))[0]


ENTRY = {"method": "fedbr", "first_send": "none", "full_every": 1000}


def blocks(result):
    return [json.loads(event.detail) for event in result.of("decision", item="blocks")]


def test_what_is_foreseen_is_what_happens_without_contention(run):
    result = run(ENTRY, rates=[8e6, 2e6], scheduler={"kind": "fixed", "alpha": 2}, rounds=2)
    facts = blocks(result)[0]
    # The slower: two blocks in 2 s, training 2 s, the whole model back in 4 s.
    assert facts["foreseen_seconds"] == pytest.approx(8.0)
    assert result.outcome.rows[1].seconds - result.outcome.rows[0].seconds == pytest.approx(8.0)
    # Four blocks in all: 3 + 1, for the slower one block is 1 s less.
    assert facts["least_seconds"] == pytest.approx(7.0)


def test_the_optimum_stays_within_its_time(run):
    result = run(ENTRY, rates=[8e6, 2e6], scheduler={"kind": "optimal", "seconds": 7.5}, rounds=3)
    assert [facts["alphas"] for facts in blocks(result)] == [{"0": 3, "1": 1}] * 2
    assert result.outcome.spent["foreseen_seconds"] == result.outcome.spent["least_seconds"]


def age(result):
    spent = result.outcome.spent
    return spent["front_block_rounds"] / spent["front_blocks"]


@pytest.mark.parametrize(("alpha", "full_every", "expected"), [(1, 2, 1.0), (2, 3, 1.5), (3, 5, 2.5)])
def test_where_all_take_part_the_age_counts_from_the_last_full_round(run, alpha, full_every, expected):
    entry = {"method": "fedbr", "full_every": full_every}
    result = run(entry, rates=[8e6] * 3, rounds=2 * full_every, scheduler={"kind": "fixed", "alpha": alpha})
    assert age(result) == expected
    # Two partial spans of full_every - 1 rounds, three clients.
    assert result.outcome.spent["front_blocks"] == 2 * (full_every - 1) * 3 * (4 - alpha)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=40))
def test_ages_are_those_of_a_table_of_everything_that_was_sent(jobs):
    records, sent = [ClientRecord(5) for _ in range(4)], []
    for round, (client, alpha) in enumerate(jobs):
        expected = [
            round - max([when for who, block, when in sent if (who, block) == (client, number)], default=0)
            for number in range(5 - alpha)
        ]
        assert records[client].trained(round, alpha) == (len(expected), sum(expected))
        sent += [(client, number, round) for number in range(5 - alpha, 5)]


MULTICAST = Transport(multicast=True)
MODEL = 1_000_000


def test_a_broadcast_model_takes_the_server_link_once_and_every_client_counts_its_bytes(run):
    # 1 MB at 8 Mbit/s: 1 s once, or 4 s for four; then 2 s of computing, and four uploads that share 8 Mbit/s.
    ends = {}
    for transport in (Transport(), MULTICAST):
        result = run(rates=[80e6] * 4, server=8e6, rounds=1, transport=transport)
        ends[transport.multicast] = [event.time for event in result.of("transfer_end", item="down")]
        assert result.outcome.spent["bytes_down"] == 4 * MODEL
        assert result.outcome.spent["joules"] == pytest.approx(
            sum(event.joules for event in result.events if event.kind not in {"work"})
        )
    assert ends[False] == pytest.approx([4.0] * 4)
    assert ends[True] == pytest.approx([1.0] * 4)


def test_the_slowest_client_paces_all_until_it_is_dropped(run):
    # Client 1 would take 10 s; the deadline of 5 s ends round 1 for all, since nobody has the model by then.
    result = run(rates=[8e6, 0.8e6], rounds=1, protocol={"deadline": 5.0}, transport=MULTICAST)
    assert [event.bytes for event in result.of("transfer_drop")] == [MODEL / 2] * 2
    assert result.outcome.spent["bytes_down"] == MODEL


BROADCAST = {"method": "fedbr", "full_every": 2, "full_to": "all"}
TO_ALL = {"method": "fedadc", "full_to": "all"}
LAST = {"kind": "fixed", "alpha": 1}


@pytest.fixture
def turns(monkeypatch):
    """Makes one given client take part in each round."""

    def take(*clients):
        monkeypatch.setattr(UniformSelector, "pick", lambda self, round, *others: np.array([clients[round]]))

    return take


def sent(result, item):
    return [(event.client, event.round, event.bytes) for event in result.of("transfer_end", item=item)]


def test_the_bytes_are_those_of_each_receiver_and_belong_to_its_next_job(run, turns):
    turns(0, 1)
    result = run(BROADCAST, rates=[8e6] * 3, cohort=1, rounds=2, scheduler=LAST)
    assert sorted(sent(result, "broadcast")) == [(1, 1, 1e6), (2, 1, 1e6)]
    assert sent(result, "down") == [(0, 1, 1e6), (1, 2, 250_000)]
    rows, spent = result.outcome.rows, result.outcome.spent
    assert [(row.bytes_down, row.bytes_up) for row in rows] == [(3_000_000, 1_000_000), (250_000, 1_000_000)]
    # Client 0's model and update; client 1's broadcast, last block and update. Client 2 never used its broadcast.
    assert spent["bytes_useful"] == 2_000_000 + 2_250_000
    assert spent["bytes"] - spent["bytes_useful"] == 1_000_000
    assert [job.front for job in result.learner.submitted] == [None, 0]
    assert result.learner.received_by == [(1, 0), (2, 0)]


def test_mean_deltas_to_all_lead_each_client_to_the_present_model(run, turns):
    """Client 2 takes part with the model and the delta that it was sent in two rounds, and a third one of its own."""
    turns(0, 1, 2)
    result = run(TO_ALL, rates=[8e6] * 3, cohort=1, rounds=3)
    assert [row.bytes_down for row in result.outcome.rows] == [3_000_000] * 3
    assert sent(result, "down") == [(0, 1, 1e6), (1, 2, 1e6), (2, 3, 1e6)]
    assert sorted(sent(result, "broadcast")) == [(k, t, 1e6) for k in range(3) for t in (1, 2, 3) if t != k + 1]
    assert result.outcome.spent["bytes_useful"] == 2_000_000 + 3_000_000 + 4_000_000
    assert result.outcome.spent["bytes_prefetched_in_vain"] == 0
    assert result.learner.received_by == []


def test_a_client_that_missed_a_mean_delta_is_sent_the_model_again_and_its_deltas_were_in_vain(run, turns):
    """At 2.5 Mbit/s a delta takes 3.2 of the round's 4 s; the second one is not sent while client 1 is down."""
    turns(0, 0, 0, 1)
    outage = Crash(kind="crash", client=1, at=4.5, duration=6.0)
    result = run(TO_ALL, rates=[8e6, 2.5e6], cohort=1, rounds=4, failures=[outage])
    assert [each for each in sent(result, "broadcast") if each[0] == 1] == [(1, 1, 1e6)]
    assert sent(result, "down")[-1] == (1, 4, 2e6)
    assert result.outcome.spent["bytes_prefetched_in_vain"] > 1e6


def test_the_joules_are_those_of_a_second_awake_with_the_radio_on(run, turns):
    """2 W and 1 J/MB of the radio for 1 s and 1 MB, and 1 W of the idle device."""
    turns(0)
    result = run(BROADCAST, rates=[8e6] * 2, cohort=1, rounds=1, scheduler=LAST)
    assert sum(event.joules for event in result.events if event.client == 1) == pytest.approx(2 + 1 + 1, rel=1e-12)


@pytest.mark.parametrize("entry", [BROADCAST, TO_ALL], ids=["fedbr", "fedadc"])
def test_broadcasts_share_the_servers_link_with_the_cohort_unless_it_can_multicast(run, turns, entry):
    turns(0)
    server = {"rates": [8e6] * 4, "cohort": 1, "rounds": 1, "server": 8e6, "scheduler": LAST}
    assert run(entry, **server).outcome.seconds == pytest.approx(4 + 2 + 1, rel=1e-12)
    assert run(entry, transport=Transport(multicast=True), **server).outcome.seconds == pytest.approx(4, rel=1e-12)


def test_what_is_not_complete_when_the_round_closes_is_aborted(run, turns):
    """The round takes 1 + 2 + 1 s; by then the slow client has half of the model, so it is sent the whole one later."""
    turns(0, 1)
    result = run(BROADCAST, rates=[8e6, 1e6], cohort=1, rounds=2, scheduler=LAST)
    (dropped,) = result.of("transfer_drop", item="broadcast")
    assert (dropped.time, dropped.bytes) == (pytest.approx(4), 500_000)
    assert [(event.client, event.bytes) for event in result.of("lost", item="prefetched_in_vain")] == [(1, 500_000)]
    assert sent(result, "down") == [(0, 1, 1e6), (1, 2, 1e6)]
    assert [job.front for job in result.learner.submitted] == [None, None]


@pytest.mark.parametrize("clients", [(0, 0, 0), (0, 0, 1)], ids=["another broadcast", "the whole model for a job"])
def test_a_broadcast_that_a_newer_model_replaces_was_in_vain(run, turns, clients):
    turns(*clients)
    result = run(BROADCAST, rates=[8e6] * 2, cohort=1, rounds=3, scheduler=LAST)
    assert [(event.client, event.bytes) for event in result.of("lost", item="prefetched_in_vain")] == [(1, 1e6)]
    assert result.outcome.spent["bytes_prefetched_in_vain"] == 1e6


def test_devices_without_the_memory_for_a_job_are_not_sent_the_model(run, turns, device):
    turns(0)
    result = run(
        BROADCAST, rates=[8e6] * 3, cohort=1, rounds=1, devices=[device(), device(memory=1e8), device()], scheduler=LAST
    )
    assert sent(result, "broadcast") == [(2, 1, 1e6)]


def test_it_needs_synchronous_rounds_and_an_exact_uplink(small):
    with pytest.raises(UserError, match="needs rounds that begin for all clients at once"):
        small(methods=[BROADCAST], protocol={"kind": "asynchronous"})
    with pytest.raises(UserError, match="and the codec of the uplink rounds"):
        small(methods=[{**BROADCAST, "codec": {"up": {"kind": "quantise", "bits": 4}}}])


BASE = 3_000_000


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fleet": {"dropout": (0.5,)}, "protocol": {"retries": 5}},
        {"protocol": {"kind": "asynchronous", "buffer": 2}},
        {"entry": {"method": "fedbr", "full_every": 2}, "scheduler": {"kind": "fixed", "alpha": 4}},
    ],
    ids=["synchronous", "accidents", "asynchronous", "blocks"],
)
def test_a_frozen_base_is_sent_to_each_client_once(run, options):
    """Also to a client that takes part for the first time in a later round; an accident does not lose it."""
    result, first = run(rates=[8e6] * 4, cohort=2, rounds=6, base_bytes=BASE, **options), {}
    for event in result.of("transfer_start", item="down"):
        assert event.bytes == (1_000_000 if event.client in first else 1_000_000 + BASE)
        first.setdefault(event.client, event.round)
    assert len(first) > 2
    assert max(first.values()) > 1
