"""Synchronous rounds against times worked out by hand: a model takes 1 s over 8 Mbit/s, local training 2 s."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefl.network import FifoQueue, Tcp, Transport

from .conftest import cells
from .fair_shares import unfair


def test_a_round_lasts_as_long_as_download_compute_and_upload(run):
    result = run(rates=[8e6], rounds=3, latency=0.25)
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([4.5, 9.0, 13.5], rel=1e-12)


def test_a_round_waits_for_its_slowest_client(run, device):
    result = run(rates=[8e6, 4e6], devices=[device(0.5e9), device()], rounds=1)
    # client 0: 1 + 4 + 1 s; client 1: 2 + 2 + 2 s: a tie at 6 s.
    assert result.outcome.seconds == pytest.approx(6.0, rel=1e-12)
    faster = run(rates=[8e6, 8e6], devices=[device(0.5e9), device()], rounds=1)
    assert faster.outcome.rows[0].critical_client == 0
    assert faster.outcome.rows[0].exposed_seconds == pytest.approx(2.0, rel=1e-12)


def test_clients_share_the_servers_link(run):
    # Four models through 8 Mbit/s take 4 s each way, instead of 1 s.
    result = run(rates=[8e6] * 4, server=8e6, rounds=1)
    assert result.outcome.seconds == pytest.approx(4 + 2 + 4, rel=1e-9)


def test_bytes_flops_and_joules_are_sums_over_clients(run):
    row = run(rounds=1).outcome.rows[0]
    assert (row.bytes_down, row.bytes_up) == (2_000_000, 2_000_000)
    assert row.flops == 2 * 2e9
    # Each client: 2 s computing at 5 W, 2 s transferring at 1 W idle and 2 W radio, 2 MB at 1 J/MB.
    assert row.joules == pytest.approx(2 * (10 + 2 * 3 + 2), rel=1e-12)


def test_a_capacity_that_falls_in_mid_flight_counts_from_that_moment(run):
    def halve(network):
        network.env.timeout(0.5).callbacks.append(lambda _: network.set_capacity("internet", "client/0", 4e6))

    capacity_changes = SimpleNamespace(attach=halve, round_begins=lambda network, round: None)
    result = run(rates=[8e6], rounds=1, capacity_changes=capacity_changes)
    # Half of the download in 0.5 s, the other half at half the rate in 1 s.
    assert result.outcome.seconds == pytest.approx(1.5 + 2 + 1, rel=1e-12)


def test_a_deadline_closes_the_round_and_drops_who_is_late(run):
    result = run(rates=[8e6, 1e6], rounds=1, protocol={"deadline": 6.0})
    row = result.outcome.rows[0]
    assert result.outcome.seconds == 6.0
    assert (row.participants, row.aggregated, row.critical_client) == (2, 1, -1)
    # The slow client had received 6 of 8 Mbit.
    assert row.bytes_down == 1_000_000 + 750_000
    assert result.outcome.spent["bytes_useful"] == 2_000_000
    assert [job.client for job in result.learner.aggregated[0]] == [0]


def test_a_late_computation_is_discarded_and_charged_in_proportion(run):
    result = run(rates=[8e6], rounds=1, protocol={"deadline": 2.0})
    assert result.learner.discarded == [result.learner.submitted[0].id]
    assert result.outcome.spent["flops"] == pytest.approx(1e9)
    assert result.of("compute_drop")[0].seconds == pytest.approx(1.0)


def test_over_selection_closes_when_enough_have_arrived(run):
    result = run(rates=[8e6, 8e6, 1e6], cohort=2, rounds=1, protocol={"over_select": 1.5})
    row = result.outcome.rows[0]
    assert (row.participants, row.aggregated, row.seconds) == (3, 2, pytest.approx(4.0))


def test_rounds_without_any_update_stall_the_run(run):
    result = run(rates=[8e6], rounds=50, protocol={"deadline": 0.5})
    assert (result.outcome.reason, result.outcome.rounds) == ("stalled", 10)


def test_a_job_that_does_not_fit_is_refused_by_the_device(run, device):
    result = run(devices=[device(memory=1e8), device()], rounds=1)
    assert [event.client for event in result.of("refused")] == [0]
    assert result.of("transfer_start", client=0) == []
    assert result.outcome.rows[0].refused == 1
    assert [job.client for job in result.learner.aggregated[0]] == [1]


def test_jobs_are_values_that_count_a_clients_dispatches(run):
    jobs = run("fedbr", rounds=3, scheduler="all").learner.submitted
    mine = [job for job in jobs if job.id.client == 0]
    assert [job.id.dispatch for job in mine] == [0, 1, 2]
    assert [job.version for job in mine] == [0, 1, 2]
    assert [job.previous for job in mine] == [None, mine[0].id, mine[1].id]
    assert {job.steps for job in jobs} == {2}


def test_results_are_aggregated_in_ascending_order_of_client(run):
    result = run(rates=[1e6, 8e6, 4e6], rounds=1)
    assert [job.client for job in result.learner.aggregated[0]] == [0, 1, 2]


def test_evaluation_is_done_every_n_rounds_and_at_the_end(run):
    rows = run(rounds=5, evaluate_every=2).outcome.rows
    assert [row.accuracy == row.accuracy for row in rows] == [False, True, False, True, True]
    assert rows[3].accuracy_ema == pytest.approx(0.9 * 0.2 + 0.1 * 0.4)


def test_without_training_nothing_is_said_of_accuracy(run):
    result = run(trains=False)
    assert result.of("evaluation") == []
    assert result.of("feedback") == []


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
    assert result.outcome.spent["bytes_down"] == 1_000_000


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
    tcp = Tcp(handshake="tls_0rtt", keep_alive=3.0, initial_window=10)
    transport = Transport(efficiency=0.95, tcp=tcp, queue=FifoQueue(1))
    result = run(
        entry, rates=[8e6, 4e6, 8e6, 2e6], cohort=3, server=12e6, latency=0.02, rounds=4, protocol=protocol,
        transport=transport,
    )  # fmt: skip
    assert unfair(result) == []


FIVE = [8e6, 8e6 / 1.5, 4e6, 3.2e6, 0.8e6]
"""Durations of 4, 5, 6, 7 and 22 s: the median is 6 s, and the MAD is 1 s."""


def adaptive(**options):
    return {"deadline": {"kind": "adaptive", **options}}


def near(seconds):
    return pytest.approx(seconds, rel=1e-9)


def decided(result):
    return [event.facts["seconds"] for event in result.of("decision", item="deadline")]


def test_a_round_lasts_until_the_median_and_some_deviations_of_the_durations_before_it(run):
    result = run(rates=FIVE, rounds=3, protocol=adaptive(deviations=2.5))
    # Round 1: no deadline. Round 2: 6 + 2.5 x 1 s, which only the slowest client misses; it counts as 8.5 s, which
    # moves neither the median nor the MAD: they are those of 4, 5, 6, 7, 22, 4, 5, 6, 7, 8.5.
    assert decided(result) == [near(8.5), near(6 + 2.5 * 1)]
    assert [row.seconds for row in result.outcome.rows] == [near(22), near(30.5), near(39)]
    assert [row.aggregated for row in result.outcome.rows] == [5, 4, 4]


def test_the_first_deadline_holds_until_a_duration_is_known(run):
    result = run(rates=FIVE, rounds=2, protocol=adaptive(first=5.5, deviations=0))
    # 4, 5, and three times 5.5 s.
    assert decided(result) == [near(5.5), near(5.5)]
    assert [row.aggregated for row in result.outcome.rows] == [2, 2]


@pytest.mark.parametrize("rate", [8e6 / 3, 8e6 / 7.3])
def test_a_deadline_at_everyones_duration_cuts_nobody_off(run, rate):
    result = run(rates=[rate] * 4, rounds=40, protocol=adaptive(deviations=0))
    assert [row.aggregated for row in result.outcome.rows] == [4] * 40
    assert decided(result) == [near(2 + 2 * 8e6 / rate)] * 39


def test_cells_close_at_the_adaptive_deadline(run):
    protocol = {"kind": "hierarchical", **adaptive(deviations=0)}
    rates = [8e6, 8e6, 4e6]
    result = run(rates=rates, topology=cells(rates), rounds=2, protocol=protocol)
    # Cell 0 has the clients 0 and 2: 1 s to the cell, then 4 and 6 s; client 1 takes 5 s in all. The median is 5 s.
    assert decided(result) == [near(5)]
    assert [row.aggregated for row in result.outcome.rows] == [3, 2]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rates=st.lists(st.floats(1e6, 2e7), min_size=1, max_size=6),
    deviations=st.floats(0, 4),
    window=st.integers(1, 3),
    over=st.sampled_from([1.0, 1.5]),
)
def test_every_deadline_is_that_of_the_durations_in_the_log(run, rates, deviations, window, over):
    options = adaptive(deviations=deviations, rounds=window)
    cohort = max(1, len(rates) - 2)
    result = run(rates=rates, rounds=5, cohort=cohort, protocol={**options, "over_select": over})
    begun, durations, expected = 0.0, [], []
    for row in result.outcome.rows[:-1]:
        ends = [
            *result.of("transfer_end", item="up", round=row.round),
            *result.of("lost", item="late", round=row.round),
        ]
        durations.append([event.time - begun for event in ends])
        known = [each for seen in durations[-window:] for each in seen]
        middle = np.median(known)
        expected.append(near(middle + deviations * np.median(np.abs(np.array(known) - middle))))
        begun = row.seconds
    assert decided(result) == expected
