"""Attempts to reach a server, and failures."""

import math

import numpy as np
import pytest

from edgefl.fleet import Accidents, FleetAssignment, Slowdown
from edgefl.network import Tcp, Transport
from edgefl.simulation.presence import joined
from edgefl.step_trace import StepTrace

MEGABYTE = 1e6
"""A model, which a client receives and sends in 1 s."""


def crash(client, at, duration=None):
    return {"kind": "crash", "client": client, "at": at, "duration": duration}


def outage(source, target, at, duration=None, **options):
    return {"kind": "outage", "link": [source, target], "at": at, "duration": duration, **options}


@pytest.mark.parametrize(
    ("at", "row", "seconds", "bytes"),
    [
        (0.5, "transfer_drop", 0.5, 0.5 * MEGABYTE),
        (2.0, "compute_drop", 1.0, 0.0),
        (3.25, "transfer_drop", 0.25, 0.25 * MEGABYTE),
    ],
)
def test_a_crash_ends_what_the_client_does_at_that_moment(run, at, row, seconds, bytes):
    result = run(rounds=1, failures=[crash(0, at, 1.0)])
    (dropped,) = result.of(row)
    assert (dropped.client, dropped.time) == (0, at)
    assert (dropped.seconds, dropped.bytes) == pytest.approx((seconds, bytes))
    assert [(event.client, event.time, event.item) for event in result.of("dropout")] == [(0, at, "crash")]
    moved = bytes if at < 1 else MEGABYTE + (bytes if at > 3 else 0)
    (lost,) = result.of("lost")
    assert (lost.item, lost.bytes) == ("dropped", pytest.approx(moved))
    # The other client is not affected.
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([4.0])
    assert [row.aggregated for row in result.outcome.rows] == [1]


def test_a_client_that_is_back_takes_part_in_the_next_round(run):
    result = run(rounds=3, failures=[crash(0, 3.5, 2.0)])
    # It crashes while it sends, is absent when the second round begins, and takes part in the third.
    assert [row.participants for row in result.outcome.rows] == [2, 1, 2]
    assert [row.aggregated for row in result.outcome.rows] == [1, 1, 2]
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([4.0, 8.0, 12.0])
    assert [(event.item, event.time) for event in result.of("failure")] == [("crash", 3.5), ("restart", 5.5)]


def test_a_round_waits_for_a_client_that_comes_back_and_not_for_one_that_does_not(run):
    both = [crash(0, 3.5, 20.0), crash(1, 3.5)]
    result = run(rounds=2, failures=both)
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([3.5, 27.5])
    result = run(rounds=2, failures=[crash(0, 3.5), crash(1, 3.5)])
    assert (result.outcome.reason, result.outcome.rounds) == ("stalled", 1)


def test_asynchronous_runs_replace_a_crashed_client_and_choose_it_again(run):
    protocol = {"kind": "asynchronous", "buffer": 1, "concurrency": 1}
    result = run(rounds=2, rates=[8e6], failures=[crash(0, 3.5, 2.5)], protocol=protocol)
    # Its first job is lost at 3.5 s; it is back at 6 s.
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([10.0, 14.0])
    assert [(event.time, event.item) for event in result.of("dropout")] == [(3.5, "crash")]


def test_a_crash_loses_what_was_sent_ahead(run):
    entry, options = {"method": "fedadc", "overlap": True}, {"rates": [8e6] * 6, "cohort": 2, "rounds": 3}
    quiet = run(entry, **options)
    sent = quiet.of("transfer_end", item="prefetch")[0]
    (needed,) = quiet.of("transfer_start", client=sent.client, item="down", round=sent.round)
    assert sent.time < needed.time
    # Between them the client crashes and comes back; then it needs everything.
    result = run(entry, **options, failures=[crash(sent.client, (sent.time + needed.time) / 2, 0.01)])
    (lost,) = result.of("lost", item="prefetched_in_vain")
    assert (lost.client, lost.bytes) == (sent.client, sent.bytes)
    (again,) = result.of("transfer_start", client=sent.client, item="down", round=sent.round)
    assert again.bytes == needed.bytes + sent.bytes
    assert result.outcome.rounds == 3
    # If it does not come back, the round is sent to the other client only.
    away = run(entry, **options, failures=[crash(sent.client, (sent.time + needed.time) / 2, 100.0)])
    rows = [outcome.rows[sent.round - 1] for outcome in (quiet.outcome, away.outcome)]
    assert [row.participants for row in rows] == [2, 1]
    assert rows[1].blocks_actual == rows[0].blocks_actual / 2


@pytest.mark.parametrize("handshake", ["tls", "tls_0rtt"])
def test_a_crash_closes_the_clients_connections(run, handshake):
    # A round over open connections: 1.05 s down, 2 s of training, 1.05 s up. A handshake adds two round trips of 0.1 s.
    tcp = Tcp(handshake=handshake, keep_alive=3600.0)
    options = {"rates": [8e6] * 2, "latency": 0.05, "rounds": 3, "transport": Transport(tcp=tcp)}
    quiet = run(**options)
    assert [event.value for event in quiet.of("round_end")] == pytest.approx([4.3, 4.1, 4.1])
    # It crashes while it computes, when its connection is idle.
    result = run(**options, failures=[crash(0, 2.0, 0.5)])
    assert [event.value for event in result.of("round_end")] == pytest.approx([4.3, 4.3, 4.1])


@pytest.mark.parametrize("protocol", [{"kind": "synchronous"}, {"kind": "asynchronous", "buffer": 1, "ahead": 2}])
@pytest.mark.parametrize("at", [0.25, 3.0, 4.0, 4.25])
def test_crashes_at_any_moment_leave_a_consistent_log(run, protocol, at):
    entry = {"method": "fedadc", "overlap": True}
    crashes = [crash(0, at, 1.7), crash(1, at + 0.4, 0.3), crash(1, 9.0)]
    result = run(entry, rounds=3, rates=[8e6, 6e6, 4e6, 8e6], cohort=2, failures=crashes, protocol=protocol)
    assert result.outcome.rounds == 3


def test_failures_at_the_start_come_before_the_first_round(run):
    result = run(rounds=2, failures=[crash(0, 0.0, 3.0), outage("internet", "client/1", 0.0, 0.5)])
    assert [row.participants for row in result.outcome.rows] == [1, 2]
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([4.5, 8.5])


def test_an_outage_stops_transfers_and_the_link_goes_on_as_it_would_have(run):
    result = run(rounds=1, failures=[outage("internet", "client/0", 0.25, 3.0)])
    # A quarter of the model, 3 s without a byte, the rest, 2 s of training, 1 s up.
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([7.0])


def test_an_outage_of_one_direction_leaves_the_other(run):
    up = outage("client/0", "internet", 0.5, 0.4, one_way=True)
    assert run(rounds=1, failures=[up]).outcome.rows[0].seconds == pytest.approx(4.0)
    assert run(rounds=1, failures=[{**up, "one_way": False}]).outcome.rows[0].seconds == pytest.approx(4.4)
    assert run(rounds=1, failures=[{**up, "at": 3.5}]).outcome.rows[0].seconds == pytest.approx(4.4)


def test_a_trace_and_a_redraw_take_effect_after_the_outage(run):
    class Changes:
        """Client 0's downlink follows a trace; client 1's is set anew when round 1 begins."""

        def attach(self, network):
            self.down = [network.topology.link("internet", f"client/{client}") for client in (0, 1)]
            network.follow(self.down[0], StepTrace([0.0, 1.0], [8e6, 2e6]))

        def round_begins(self, network, round):
            import numpy as np

            if round == 1:
                network.set_capacities(np.array([self.down[1]]), np.array([1e6]))

    both = [outage("internet", f"client/{client}", at, 2.0) for client, at in ((0, 0.5), (1, 7.0))]
    result = run(rounds=2, capacity_changes=Changes(), failures=both)
    # Client 0: half of the model until 0.5 s, nothing until 2.5 s, then 4 Mbit with 2 Mbit/s, 3 s more: 7.5 s.
    assert result.outcome.rows[0].seconds == pytest.approx(7.5)
    # Client 1's link is down from 7 to 9 s and was set to 1 Mbit/s at 7.5 s: 9 + 8 + 3 s.
    assert result.outcome.rows[1].seconds == pytest.approx(20.0)


def test_an_outage_longer_than_the_time_out_breaks_the_transfer(run):
    result = run(
        rounds=1,
        failures=[outage("internet", "client/0", 0.5, 10.0)],
        timeouts={"connection": 2.0, "first_wait": 4.0, "retries": 3},
    )
    broken = result.of("transfer_break")
    # Broken 2 s after the outage began, repeated after 4 s, broken again 2 s later, repeated after 6.4 s, at 14.9 s.
    assert [event.time for event in broken] == pytest.approx([2.5, 8.5])
    assert [event.bytes for event in broken] == pytest.approx([0.5 * MEGABYTE, 0.0])
    assert result.outcome.rows[0].seconds == pytest.approx(14.9 + 4.0)


def test_failures_that_overlap_are_one(run):
    assert joined([(3.0, 5.0), (1.0, 2.0), (4.0, 9.0), (2.0, 2.5)]) == [(1.0, 2.5), (3.0, 9.0)]
    assert joined([(2.0, 3.0), (1.0, 9.0)]) == [(1.0, 9.0)]
    twice = run(rounds=1, failures=[outage("internet", "client/0", 0.5, 1), outage("client/0", "internet", 1, 1)])
    assert twice.outcome.rows[0].seconds == pytest.approx(5.5)


def draws(chance, clients=1):
    return Accidents(FleetAssignment((None,), ("link",), np.zeros(clients, np.int32), dropout=(chance,)), 0)


def attempts(chance, client, round, retries):
    """The parts of its computation that a client gets through, attempt by attempt, as the draws say."""
    parts = []
    for again in range(retries + 1):
        parts.append(draws(chance, 4).after(client, round, again))
        if parts[-1] == 1:
            break
    return parts


@pytest.mark.parametrize("retries", [1, 3])
def test_a_client_begins_anew_as_often_as_it_may_and_each_attempt_has_its_own_luck(run, retries):
    chance, rounds = 0.7, 4
    result = run(fleet={"dropout": (chance,)}, rates=[8e6] * 4, rounds=rounds, protocol={"retries": retries})
    ended = 0.0
    for round in range(rounds):
        lives = []
        for client in range(4):
            parts = attempts(chance, client, round, retries)
            seconds = sum(1 + 2 * part for part in parts) + (1 if parts[-1] == 1 else 0)
            lives.append((seconds, parts[-1] == 1, len(parts) - 1))
        row = result.outcome.rows[round]
        ended += max(seconds for seconds, _, _ in lives)
        assert row.seconds == pytest.approx(ended, rel=1e-12)
        assert row.aggregated == sum(arrives for _, arrives, _ in lives)
        moved = sum(anew * 1_000_000 for _, arrives, anew in lives if arrives)
        moved += sum(anew * 1_000_000 for _, arrives, anew in lives if not arrives)
        lost = result.of("lost", item="retried", round=round + 1)
        assert sum(event.bytes for event in lost) == moved
    spent = result.outcome.spent
    assert spent["bytes_useful"] + spent["bytes_dropped"] + spent["bytes_retried"] == spent["bytes"]


def test_a_job_that_began_anew_is_the_same_job(run):
    tried = run(fleet={"dropout": (0.5,)}, rates=[8e6] * 4, rounds=3, protocol={"retries": 50})
    spared = run(rates=[8e6] * 4, rounds=3)
    assert tried.of("lost", item="retried")
    assert tried.learner.aggregated == spared.learner.aggregated
    assert sorted(tried.learner.submitted, key=lambda job: job.id) == sorted(
        spared.learner.submitted, key=lambda job: job.id
    )
    assert tried.outcome.spent["bytes_useful"] == spared.outcome.spent["bytes"]


def test_an_accident_under_shortened_work_comes_after_its_part_of_the_work_that_is_done(run):
    # 1 s down, one step of 1 s instead of two, 1 s up.
    chance = 0.9
    result = run(fleet={"dropout": (chance,)}, rates=[8e6] * 4, rounds=1, protocol={"deadline": 3.0, "late": "partial"})
    due = {client: draws(chance, 4).after(client, 0) for client in range(4)}
    happened = {event.client: event.seconds for event in result.of("compute_drop")}
    assert happened == {client: pytest.approx(part * 1.0) for client, part in due.items() if part < 1}
    assert happened


def test_two_jobs_from_one_model_version_have_different_luck(run, device):
    shaky = device().model_copy(update={"compute": device().compute.model_copy(update={"jitter": 0.5})})
    result = run(rates=[8e6], devices=[shaky], rounds=1, protocol={"kind": "asynchronous", "buffer": 4})
    took = [event.seconds for event in result.of("compute_end")]
    fleet = result.setup.fleet
    assert took == pytest.approx([2 * float(Slowdown(fleet, 0).of(0, again)[0]) for again in range(4)], rel=1e-12)
    assert len(set(took)) == 4
    assert math.isclose(took[0], 2 * float(Slowdown(fleet, 0).of(0)[0]), rel_tol=1e-12)
