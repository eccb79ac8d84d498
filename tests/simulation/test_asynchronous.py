"""Asynchronous aggregation against times worked out by hand: a model takes 1 s over 8 Mbit/s, local training 2 s."""

import json

import pytest

from edgefl.simulation.protocols.asynchronous import AsynchronousSpec


def asynchronous(**options):
    return {"kind": "asynchronous", **options}


def aggregations(result):
    return [(event.time, json.loads(event.detail)) for event in result.of("aggregation")]


def test_with_a_buffer_of_one_every_arrival_is_an_aggregation(run):
    # A life takes 4 s at 8 Mbit/s and 6 s at 4 Mbit/s.
    result = run(rates=[8e6, 4e6], rounds=5, protocol=asynchronous(buffer=1))
    assert [time for time, _ in aggregations(result)] == pytest.approx([4, 6, 8, 12, 12], rel=1e-12)
    # At 4 s client 0 returns from version 0 and is sent version 1; client 1 returns at 6 s, one aggregation late; …
    assert [facts["clients"] for _, facts in aggregations(result)] == [[0], [1], [0], [1], [0]]
    assert [facts["staleness"] for _, facts in aggregations(result)] == [[0], [1], [1], [1], [1]]
    assert [row.staleness for row in result.outcome.rows] == [0, 1, 1, 1, 1]
    assert result.outcome.reason == "rounds"


def test_a_buffer_gathers_updates_of_any_age(run):
    result = run(rates=[8e6, 8e6, 2e6], rounds=3, protocol=asynchronous(buffer=2))
    # Clients 0 and 1 return every 4 s; client 2 needs 4 + 2 + 4 s and returns at 10 s.
    assert [time for time, _ in aggregations(result)] == pytest.approx([4, 8, 12], rel=1e-12)
    last = aggregations(result)[-1][1]
    # The buffer holds client 2's update of version 0 when clients 0 and 1 return together; the first of them goes in.
    assert (last["clients"], last["dispatches"], last["staleness"]) == ([0, 2], [2, 0], [0, 2])
    assert last["factors"] == [1.0, pytest.approx(3**-0.5)]


def test_a_slow_client_delays_no_aggregation_of_the_others(run):
    # Clients 0 and 1 alone, and beside one whose model takes 1000 s: the same moments, jobs and model versions.
    def among(rates):
        fixed = {"kind": "fixed", "clients": list(range(len(rates)))}
        return run(rates=rates, rounds=6, selector=fixed, protocol=asynchronous(buffer=2, concurrency=len(rates)))

    beside, alone = among([8e6, 4e6, 8e3]), among([8e6, 4e6])
    assert [time for time, _ in aggregations(beside)] == [time for time, _ in aggregations(alone)]
    assert beside.learner.aggregated == alone.learner.aggregated
    jobs = [job for job in beside.learner.submitted if job.id.client != 2]
    assert jobs == alone.learner.submitted


def test_concurrency_limits_who_is_under_way_and_a_free_slot_is_filled_at_once(run):
    result = run(rates=[8e6] * 6, cohort=2, rounds=4, protocol=asynchronous(concurrency=3, buffer=1))
    under_way = most = 0
    for event in result.events:
        under_way += event.kind == "transfer_start" and event.item == "down"
        under_way -= event.kind == "transfer_end" and event.item == "up"
        most = max(most, under_way)
    assert most == 3
    assert [time for time, _ in aggregations(result)] == pytest.approx([4, 4, 4, 8], rel=1e-12)


@pytest.mark.parametrize(
    ("entry", "staleness"), [("fedavg", "constant"), ("fedavg", "polynomial"), ("scaffold", "hinge")]
)
def test_on_equal_devices_a_full_buffer_makes_synchronous_rounds(run, entry, staleness):
    # Nothing is stale, so it does not matter what a stale update would count.
    settings = {"rates": [8e6] * 9, "cohort": 4, "rounds": 5, "server": 2e7, "latency": 0.02}
    one = run(entry, **settings)
    other = run(entry, **settings, protocol=asynchronous(buffer=4, concurrency=4, staleness=staleness))
    assert other.outcome.rows == one.outcome.rows
    assert other.learner.submitted == one.learner.submitted
    assert other.learner.aggregated == one.learner.aggregated
    assert other.outcome.spent == one.outcome.spent


def test_what_is_under_way_when_the_run_ends_is_wasted(run):
    result = run(rates=[8e6, 4e6], rounds=1, protocol=asynchronous(buffer=1))
    # Client 1 had received its model and computed for 2 s of 2 s when client 0's update ended the run.
    spent = result.outcome.spent
    assert spent["bytes_useful"] == 2_000_000
    assert spent["bytes"] == 3_000_000
    assert len(result.learner.discarded) == 1


def test_a_client_without_the_memory_is_not_asked_again(run, device):
    small = device(memory=1e6)
    result = run(rates=[8e6] * 3, cohort=3, rounds=3, devices=[device(), small, device()], protocol=asynchronous())
    assert len(result.of("refused")) == 1
    assert result.outcome.rounds == 3
    stuck = run(rates=[8e6], devices=[small], rounds=3, protocol=asynchronous())
    assert (stuck.outcome.reason, stuck.outcome.rounds) == ("stalled", 0)


def test_weights_of_age_are_the_papers():
    buffered = AsynchronousSpec(kind="asynchronous")
    assert [buffered.factor(age) for age in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    hinge = AsynchronousSpec.model_validate({"kind": "asynchronous", "mixing": 0.6, "staleness": {"kind": "hinge"}})
    assert [hinge.factor(age) for age in (0, 4, 5)] == pytest.approx([0.6, 0.6, 0.6 / 11])
    assert AsynchronousSpec(kind="asynchronous", staleness="constant").factor(7) == 1
