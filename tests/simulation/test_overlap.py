"""Sending the next model ahead, in every protocol."""

from __future__ import annotations

import itertools
import json

import pytest

from .conftest import cells


def adc(overlap: bool):
    return {"method": "fedadc", "overlap": overlap}


def test_prefetching_hides_a_model_of_every_round_but_the_first(run):
    # Two disjoint cohorts in turn would prefetch every round; uniform selection of 1 of 3 often does.
    plain = run(adc(False), rates=[8e6] * 3, cohort=1, rounds=8)
    hidden = run(adc(True), rates=[8e6] * 3, cohort=1, rounds=8)
    cohorts = [event.client for event in plain.of("round_end")]
    changes = sum(a != b for a, b in itertools.pairwise(cohorts))
    assert changes > 0
    # Without overlap a newcomer downloads two models (2 s); with it, one of them is hidden behind 2 s of computing.
    assert plain.outcome.seconds == pytest.approx(8 * 4 + changes, rel=1e-12)
    assert hidden.outcome.seconds == pytest.approx(8 * 4, rel=1e-12)
    assert hidden.outcome.spent["hidden_seconds"] == pytest.approx(changes, rel=1e-12)
    assert plain.outcome.spent["hidden_seconds"] == 0


def test_overlap_changes_neither_cohorts_nor_bytes(run):
    plain = run(adc(False), rates=[8e6] * 6, cohort=2, rounds=6)
    hidden = run(adc(True), rates=[8e6] * 6, cohort=2, rounds=6)
    assert sorted(job.id for job in plain.learner.submitted) == sorted(job.id for job in hidden.learner.submitted)
    assert plain.outcome.spent["bytes_down"] == hidden.outcome.spent["bytes_down"]
    assert plain.outcome.spent["bytes_useful"] == hidden.outcome.spent["bytes_useful"] == plain.outcome.spent["bytes"]


def test_what_is_left_of_a_prefetch_when_the_round_begins_is_exposed(run):
    # A prefetch of 1 MB over 1 Mbit/s takes 8 s; it starts when the other client has downloaded.
    result = run(adc(True), rates=[8e6, 1e6], cohort=1, rounds=6)
    rows = {row.round: row for row in result.outcome.rows}
    late = [
        row
        for row in rows.values()
        if row.critical_client == 1 and row.round > 1 and rows[row.round - 1].critical_client == 0
    ]
    assert late, "the seed never picks client 1 after client 0"
    for row in late:
        assert 0 < row.hidden_seconds < 8
        # The rest of the prefetch shares the link with the mean delta; both end when 16 Mbit are through.
        assert row.exposed_seconds == pytest.approx(16 - row.hidden_seconds + 8, rel=1e-9)


def test_a_prefetch_for_a_round_that_never_comes_is_wasted(run):
    result = run(adc(True), rates=[8e6] * 6, cohort=1, rounds=6, budgets={"seconds": 3.5})
    # Seconds 1 to 3: computing, while the next client's prefetch (1 MB) runs; it ends at 2 s, the round at 4 s.
    assert result.outcome.reason == "seconds"
    assert result.outcome.spent["bytes_useful"] == 0
    assert sum(event.bytes for event in result.of("transfer_end", item="prefetch")) == 1_000_000


ADC = {"method": "fedadc", "overlap": True}
PLAIN = {"method": "fedadc"}


def hierarchical(run, entry, clients=3, *, access=8e6, **options):
    rates = [access] * clients
    settings = {"rates": rates, "topology": cells(rates, count=1), "cohort": 1, "rounds": 8, **options}
    return run(entry, protocol={"kind": "hierarchical", **settings.pop("protocol", {})}, **settings)


def test_a_cell_fetches_and_passes_on_the_next_rounds_model_while_clients_compute(run):
    plain, hidden = hierarchical(run, PLAIN), hierarchical(run, ADC)
    cohorts = [event.client for event in plain.of("round_end")]
    changes = sum(a != b for a, b in itertools.pairwise(cohorts))
    assert changes > 0
    # Both hops of the mean delta, training, both hops of the update; a newcomer's model takes both hops as well, which
    # are hidden: the first behind the training's first second, the second behind its second one.
    assert plain.outcome.seconds == pytest.approx(8 * 6 + 2 * changes, rel=1e-12)
    assert hidden.outcome.seconds == pytest.approx(8 * 6, rel=1e-12)
    assert hidden.outcome.spent["hidden_seconds"] == pytest.approx(2 * changes, rel=1e-12)
    assert hidden.outcome.spent["exposed_seconds"] == pytest.approx(8 * 4, rel=1e-12)
    assert plain.outcome.spent["hidden_seconds"] == 0


def test_what_a_cell_has_not_yet_fetched_when_the_round_begins_is_exposed(run):
    # Down the backhaul a model takes 8 s; training, upload and return hide 2 + 1 + 1 of them.
    slow = {"topology": cells([8e6] * 3, count=1, backhaul=(1e6, 8e6))}
    rows = hierarchical(run, ADC, **slow).outcome.rows
    newcomers = [after for before, after in itertools.pairwise(rows) if before.critical_client != after.critical_client]
    assert newcomers
    for row in newcomers:
        # The other 4 s share the backhaul with the mean delta: the model is there after 8 s and goes on to the client
        # in the next one, unnoticed; the mean delta is there after 12 s. Then a second each down, up, and back.
        assert row.hidden_seconds == pytest.approx(4 + 1, rel=1e-9)
        assert row.exposed_seconds == pytest.approx(12 + 3, rel=1e-9)


def test_what_is_passed_on_after_the_round_began_belongs_to_that_rounds_job(run):
    result = hierarchical(run, ADC, topology=cells([8e6] * 3, count=1, backhaul=(1e6, 8e6)))
    begun = {event.round: event.time for event in result.of("round_start")}
    jobs = {(event.client, event.round): event.dispatch for event in result.of("transfer_start")}
    late = [event for event in result.of("transfer_start", item="prefetch") if event.time > begun[event.round]]
    assert late
    for event in late:
        assert event.dispatch == jobs[event.client, event.round]
    assert result.outcome.spent["bytes_useful"] == result.outcome.spent["bytes"]


def asynchronous(run, entry="fedavg", **options):
    protocol = {"kind": "asynchronous", **options.pop("protocol", {})}
    overlapping = {"method": entry, "overlap": True} if isinstance(entry, str) else entry
    return run(overlapping, protocol=protocol, **options)


def aggregations(result):
    return [(event.time, json.loads(event.detail)) for event in result.of("aggregation")]


def test_who_waits_in_line_has_the_latest_model_and_begins_at_once(run):
    # One place, a buffer of many: the model stays version 0, and the next in line is sent it while the first computes.
    result = asynchronous(run, rates=[8e6] * 3, cohort=1, rounds=1, protocol={"buffer": 4, "concurrency": 1})
    # 1 + 2 + 1 s for the first, 2 + 1 s for each of the others.
    assert [time for time, _ in aggregations(result)] == pytest.approx([4 + 3 * 3], rel=1e-12)
    assert [event.time for event in result.of("compute_start")] == pytest.approx([1, 4, 7, 10], rel=1e-12)
    assert [event.time for event in result.of("dispatch")] == pytest.approx([4, 7, 10], rel=1e-12)
    assert result.outcome.spent["bytes_down"] == 4_000_000
    plain = asynchronous(
        run, {"method": "fedavg"}, rates=[8e6] * 3, cohort=1, rounds=1, protocol={"buffer": 4, "concurrency": 1}
    )
    assert plain.outcome.seconds == pytest.approx(16, rel=1e-12)


def test_fedadcs_early_model_travels_while_a_client_waits_in_line(run):
    settings = {"rates": [8e6] * 3, "cohort": 1, "rounds": 4, "protocol": {"buffer": 1, "concurrency": 1}}
    plain, ahead = asynchronous(run, PLAIN, **settings), asynchronous(run, ADC, **settings)
    # A newcomer needs θ and Δ; who waits in line always is one, and θ is hidden behind the client before.
    cohorts = [row.critical_client for row in plain.outcome.rows]
    changes = sum(a != b for a, b in itertools.pairwise(cohorts))
    assert changes > 0
    assert plain.outcome.seconds == pytest.approx(4 * 4 + changes, rel=1e-12)
    assert ahead.outcome.seconds == pytest.approx(4 * 4, rel=1e-12)
    assert ahead.outcome.spent["hidden_seconds"] == pytest.approx(3, rel=1e-12)


def test_a_job_begins_from_the_latest_model_and_what_was_sent_ahead_of_another_is_in_vain(run):
    # Two places, equal clients, a buffer of two: both return at 4 s. The line foresaw one arrival, so model 0 was sent
    # ahead, but by then model 1 is the latest: it is sent, and model 0 was in vain.
    result = asynchronous(run, rates=[8e6] * 4, cohort=2, rounds=3, protocol={"buffer": 2, "concurrency": 2})
    assert [job.version for job in result.learner.submitted[:4]] == [0, 0, 1, 1]
    vain = result.of("lost", item="prefetched_in_vain")
    assert [event.bytes for event in vain][:1] == [1_000_000]
    assert result.outcome.spent["bytes_prefetched_in_vain"] == sum(event.bytes for event in vain)
    for time, facts in aggregations(result):
        assert facts["staleness"] == [0, 0], time


def test_everyone_in_line_is_sent_what_is_ready(run):
    settings = {"rates": [8e6] * 6, "cohort": 1, "rounds": 1}
    for ahead in (1, 3):
        result = asynchronous(run, **settings, protocol={"buffer": 9, "concurrency": 1, "ahead": ahead})
        early = result.of("transfer_start", item="prefetch")
        assert sum(event.time == 0 for event in early) == ahead
        assert len({event.client for event in early if event.time == 0}) == ahead


def test_who_waits_when_the_run_ends_was_sent_its_model_in_vain(run):
    result = asynchronous(
        run, rates=[8e6] * 2, cohort=1, rounds=1, budgets={"seconds": 2.5}, protocol={"buffer": 3, "concurrency": 1}
    )
    assert result.outcome.spent["bytes_prefetched_in_vain"] == 1_000_000
