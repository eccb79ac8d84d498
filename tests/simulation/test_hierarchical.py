"""Cells that average, and when they close."""

import numpy as np
import pytest

from edgefl.simulation.setup import RoundEvaluation

from .conftest import cells

HIERARCHICAL = {"kind": "hierarchical"}


@pytest.mark.parametrize("evaluation", [None, RoundEvaluation(0.5, np.full(6, 10), on_server=0)])
def test_a_cell_fetches_a_frozen_base_once(run, evaluation):
    world = {"rates": [8e6] * 6, "topology": cells([8e6] * 6), "cohort": 3, "protocol": HIERARCHICAL, "rounds": 6}
    plain, found = (run(**world, base_bytes=size, evaluation=evaluation) for size in (0, 3_000_000))
    assert found.outcome.spent["bytes_backhaul"] - plain.outcome.spent["bytes_backhaul"] == 2 * 3_000_000
    reached = {event.client for event in found.of("transfer_start", item="down") if event.client >= 0}
    assert found.outcome.spent["bytes"] - plain.outcome.spent["bytes"] == len(reached) * 3_000_000


def test_cells_fetch_once_and_return_one_mean(run):
    rates = [8e6] * 4
    result = run(rates=rates, topology=cells(rates), protocol=HIERARCHICAL, rounds=2)
    # 1 s to the cells, 1 s to the clients, 2 s of training, 1 s to the cells, 1 s to the server.
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([6, 12], rel=1e-12)
    row = result.outcome.rows[0]
    assert (row.bytes_down, row.bytes_up, row.aggregated) == (4_000_000, 4_000_000, 4)
    assert row.exposed_seconds == pytest.approx(4, rel=1e-12)
    # Two cells, down and up, two rounds; without averaging it is four clients.
    assert result.outcome.spent["bytes_backhaul"] == 2 * 2 * 2 * 1_000_000
    flat = run(rates=rates, topology=cells(rates), rounds=2)
    # Each backhaul carries two models at once.
    assert [row.seconds for row in flat.outcome.rows] == pytest.approx([6, 12], rel=1e-12)
    assert flat.outcome.spent["bytes_backhaul"] == 0
    assert flat.learner.aggregated == result.learner.aggregated


def test_a_cell_waits_for_its_own_clients_only(run):
    rates = [8e6, 2e6, 8e6, 8e6]
    result = run(rates=rates, topology=cells(rates), protocol=HIERARCHICAL, rounds=1)
    relays = [event.time for event in result.of("transfer_end", item="relay", target="server")]
    # Cell 0 has clients 0 and 2; cell 1 waits 4 + 2 + 4 s for client 1.
    assert relays == pytest.approx([6, 12], rel=1e-12)
    assert result.outcome.rows[0].critical_client == 1
    assert result.outcome.rows[0].exposed_seconds == pytest.approx(1 + 4 + 4 + 1)


def test_cells_without_clients_in_the_cohort_are_silent(run, device):
    rates = [8e6] * 4
    small = device(memory=1e6)
    devices = [device(), small, device(), small]
    result = run(rates=rates, topology=cells(rates), devices=devices, protocol=HIERARCHICAL, rounds=1)
    assert result.outcome.spent["bytes_backhaul"] == 2_000_000
    assert (result.outcome.rows[0].refused, result.outcome.rows[0].aggregated) == (2, 2)


def test_a_budget_breaks_the_cells_off_too(run):
    rates = [8e6] * 4
    for seconds in (0.5, 1.5, 3.0, 4.5, 5.5):
        result = run(rates=rates, topology=cells(rates), protocol=HIERARCHICAL, rounds=1, budgets={"seconds": seconds})
        assert result.outcome.seconds == seconds
        starts = {event.flow for event in result.of("transfer_start")}
        assert starts == {event.flow for kind in ("transfer_end", "transfer_drop") for event in result.of(kind)}


def test_blocks_go_to_a_cell_once_each(run):
    entry, scheduler = {"method": "fedbr", "first_send": "none", "full_every": 1000}, {"kind": "fixed", "alpha": 3}
    result = hierarchical(run, [FAST] * 2, count=1, protocol={}, entry=entry, scheduler=scheduler, rounds=2)
    down = [event.bytes for event in result.of("transfer_start", item="relay", source="server")]
    assert down == [1_000_000, 750_000]


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
    assert result.outcome.spent["bytes_late"] == 750_000
    assert [(event.client, event.time) for event in result.of("lost", item="late")] == [(2, pytest.approx(7))]


def test_a_cell_that_is_still_fetching_at_the_deadline_returns_nothing(run):
    result = hierarchical(run, [FAST, FAST], count=1, protocol={"deadline": 0.5})
    assert (result.outcome.rows[0].seconds, result.outcome.rows[0].aggregated) == (pytest.approx(0.5), 0)
    assert result.outcome.spent["bytes_backhaul"] == 500_000
    assert result.outcome.spent["bytes"] == 0
    assert result.of("idle") == []


def test_an_over_selected_cell_closes_when_its_part_has_returned(run):
    # Six are picked for four, three in each cell; each closes with two of them.
    access = [FAST, FAST, FAST, FAST, SLOW, SLOW]
    result = hierarchical(run, access, cohort=4, protocol={"over_select": 1.5})
    row = result.outcome.rows[0]
    assert (row.seconds, row.participants, row.aggregated) == (pytest.approx(6), 6, 4)
    assert {event.client for event in result.of("lost", item="late")} == {4, 5}


def test_the_next_round_is_prefetched_though_a_cell_closed_before_all_had_downloaded(run):
    access, options = [FAST, FAST, SLOW, SLOW, FAST, FAST], {"protocol": {"over_select": 2.0}, "cohort": 2, "rounds": 6}
    result = hierarchical(run, access, entry={"method": "fedadc", "overlap": True}, **options)
    assert result.outcome.rounds == 6
    assert result.of("transfer_start", item="prefetch")
    spent = result.outcome.spent
    fates = spent["bytes_useful"] + spent["bytes_late"] + spent["bytes_prefetched_in_vain"]
    assert fates == spent["bytes"]
