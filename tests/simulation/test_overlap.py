"""FedADC's downlink as events: what is ready early travels while the round before still computes."""

from __future__ import annotations

import itertools

import pytest


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
    assert hidden.outcome.spent.hidden_seconds == pytest.approx(changes, rel=1e-12)
    assert plain.outcome.spent.hidden_seconds == 0


def test_overlap_changes_neither_cohorts_nor_bytes(run):
    plain = run(adc(False), rates=[8e6] * 6, cohort=2, rounds=6)
    hidden = run(adc(True), rates=[8e6] * 6, cohort=2, rounds=6)
    assert sorted(job.id for job in plain.learner.submitted) == sorted(job.id for job in hidden.learner.submitted)
    assert plain.outcome.spent.bytes_down == hidden.outcome.spent.bytes_down
    assert plain.outcome.spent.bytes_useful == hidden.outcome.spent.bytes_useful == plain.outcome.spent.bytes


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
    assert result.outcome.spent.bytes_useful == 0
    assert sum(event.bytes for event in result.of("transfer_end", item="prefetch")) == 1_000_000
