"""Clients outside of the cohort are sent the whole model in full rounds; a model has four blocks of 250 kB, or 1 s."""

import numpy as np
import pytest

from edgefl.errors import UserError
from edgefl.network import Transport
from edgefl.scheduling.selection.uniform import UniformSelector

ENTRY = {"method": "fedbr", "full_every": 2, "full_to": "all"}
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
    result = run(ENTRY, rates=[8e6] * 3, cohort=1, rounds=2, scheduler=LAST)
    assert sorted(sent(result, "broadcast")) == [(1, 1, 1e6), (2, 1, 1e6)]
    assert sent(result, "down") == [(0, 1, 1e6), (1, 2, 250_000)]
    rows, spent = result.outcome.rows, result.outcome.spent
    assert [(row.bytes_down, row.bytes_up) for row in rows] == [(3_000_000, 1_000_000), (250_000, 1_000_000)]
    # Client 0's model and update; client 1's broadcast, last block and update. Client 2 never used its broadcast.
    assert spent.bytes_useful == 2_000_000 + 2_250_000
    assert spent.bytes - spent.bytes_useful == 1_000_000
    assert [job.front for job in result.learner.submitted] == [None, 0]
    assert result.learner.received_by == [(1, 0), (2, 0)]


def test_the_joules_are_those_of_a_second_awake_with_the_radio_on(run, turns):
    """2 W and 1 J/MB of the radio for 1 s and 1 MB, and 1 W of the idle device."""
    turns(0)
    result = run(ENTRY, rates=[8e6] * 2, cohort=1, rounds=1, scheduler=LAST)
    assert sum(event.joules for event in result.events if event.client == 1) == pytest.approx(2 + 1 + 1, rel=1e-12)
    whole = run({**ENTRY, "full_to": "cohort"}, rates=[8e6] * 2, cohort=1, rounds=1, scheduler=LAST)
    assert result.outcome.spent.joules - whole.outcome.spent.joules == pytest.approx(4, rel=1e-12)


def test_broadcasts_share_the_servers_link_with_the_cohort_unless_it_can_multicast(run, turns):
    turns(0)
    server = {"rates": [8e6] * 4, "cohort": 1, "rounds": 1, "server": 8e6, "scheduler": LAST}
    assert run(ENTRY, **server).outcome.seconds == pytest.approx(4 + 2 + 1, rel=1e-12)
    assert run(ENTRY, transport=Transport(multicast=True), **server).outcome.seconds == pytest.approx(4, rel=1e-12)


def test_what_is_not_complete_when_the_round_closes_is_aborted(run, turns):
    """The round takes 1 + 2 + 1 s; by then the slow client has half of the model, so it is sent the whole one later."""
    turns(0, 1)
    result = run(ENTRY, rates=[8e6, 1e6], cohort=1, rounds=2, scheduler=LAST)
    (dropped,) = result.of("transfer_drop", item="broadcast")
    assert (dropped.time, dropped.bytes) == (pytest.approx(4), 500_000)
    assert [(event.client, event.bytes) for event in result.of("lost", item="prefetched_in_vain")] == [(1, 500_000)]
    assert sent(result, "down") == [(0, 1, 1e6), (1, 2, 1e6)]
    assert [job.front for job in result.learner.submitted] == [None, None]


@pytest.mark.parametrize("clients", [(0, 0, 0), (0, 0, 1)], ids=["another broadcast", "the whole model for a job"])
def test_a_broadcast_that_a_newer_model_replaces_was_in_vain(run, turns, clients):
    turns(*clients)
    result = run(ENTRY, rates=[8e6] * 2, cohort=1, rounds=3, scheduler=LAST)
    assert [(event.client, event.bytes) for event in result.of("lost", item="prefetched_in_vain")] == [(1, 1e6)]
    assert result.outcome.spent.bytes_prefetched_in_vain == 1e6


def test_devices_without_the_memory_for_a_job_are_not_sent_the_model(run, turns, device):
    turns(0)
    result = run(
        ENTRY, rates=[8e6] * 3, cohort=1, rounds=1, devices=[device(), device(memory=1e8), device()], scheduler=LAST
    )
    assert sent(result, "broadcast") == [(2, 1, 1e6)]


def test_it_needs_synchronous_rounds_and_an_exact_uplink(small):
    with pytest.raises(UserError, match="needs rounds that begin for all clients at once"):
        small(methods=[ENTRY], protocol={"kind": "asynchronous"})
    with pytest.raises(UserError, match="and the codec of the uplink rounds"):
        small(methods=[{**ENTRY, "codec": {"up": {"kind": "quantise", "bits": 4}}}])
