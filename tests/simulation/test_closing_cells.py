"""Deadlines, over-selection and shortened work where cells average: seconds are 1 + 1 down, 2 of work, 1 + 1 up."""

from __future__ import annotations

import pytest

from .conftest import cells

FAST, SLOW = 8e6, 1e6


def hierarchical(run, access, *, count=2, **options):
    protocol = {"kind": "hierarchical", **options.pop("protocol")}
    return run(rates=access, topology=cells(access, count=count), protocol=protocol, **{"rounds": 1, **options})


def test_a_cell_closes_at_the_deadline_and_returns_what_it_has(run):
    result = hierarchical(run, [FAST, FAST, SLOW, FAST], protocol={"deadline": 7.0})
    row = result.outcome.rows[0]
    # Cell 1 returns at 5 s and is done at 6 s; cell 0 closes at 7 s without client 2, and is done a second later.
    assert [event.time for event in result.of("transfer_end", item="relay", target="server")] == pytest.approx([6, 8])
    assert (row.seconds, row.aggregated) == (pytest.approx(8), 3)
    # From 1 s to 7 s client 2 received 6 of 8 s of a model.
    assert result.outcome.spent.bytes_late == 750_000
    assert [(event.client, event.time) for event in result.of("lost", item="late")] == [(2, pytest.approx(7))]


def test_a_cell_that_is_still_fetching_at_the_deadline_returns_nothing(run):
    result = hierarchical(run, [FAST, FAST], count=1, protocol={"deadline": 0.5})
    assert (result.outcome.rows[0].seconds, result.outcome.rows[0].aggregated) == (pytest.approx(0.5), 0)
    assert result.outcome.spent.bytes_backhaul == 500_000
    assert result.outcome.spent.bytes == 0
    assert result.of("idle") == []


def test_an_over_selected_cell_closes_when_its_part_has_returned(run):
    # Six are picked for four, three in each cell; each closes with two of them.
    access = [FAST, FAST, FAST, FAST, SLOW, SLOW]
    result = hierarchical(run, access, cohort=4, protocol={"over_select": 1.5})
    row = result.outcome.rows[0]
    assert (row.seconds, row.participants, row.aggregated) == (pytest.approx(6), 6, 4)
    assert {event.client for event in result.of("lost", item="late")} == {4, 5}


def test_the_next_round_is_prefetched_though_a_cell_closed_before_all_had_downloaded(run):
    entry = {"method": "fedadc", "overlap": True}
    access = [FAST, FAST, SLOW, SLOW, FAST, FAST]
    result = run(
        entry,
        rates=access,
        topology=cells(access),
        protocol={"kind": "hierarchical", "over_select": 2.0},
        cohort=2,
        rounds=6,
    )
    assert result.outcome.rounds == 6
    assert result.of("transfer_start", item="prefetch")
    spent = result.outcome.spent
    fates = spent.bytes_useful + spent.bytes_late + spent.bytes_prefetched_in_vain
    assert fates == spent.bytes
