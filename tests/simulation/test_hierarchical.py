"""Hierarchical rounds by hand: a model takes 1 s over 8 Mbit/s, local training 2 s."""

from __future__ import annotations

import pytest

from .conftest import cells

HIERARCHICAL = {"kind": "hierarchical"}


def test_cells_fetch_once_and_return_one_mean(run):
    rates = [8e6] * 4
    result = run(rates=rates, topology=cells(rates), protocol=HIERARCHICAL, rounds=2)
    # 1 s to the cells, 1 s to the clients, 2 s of training, 1 s to the cells, 1 s to the server.
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([6, 12], rel=1e-12)
    row = result.outcome.rows[0]
    assert (row.bytes_down, row.bytes_up, row.aggregated) == (4_000_000, 4_000_000, 4)
    assert row.exposed_seconds == pytest.approx(4, rel=1e-12)
    # Two cells, down and up, two rounds; without averaging it is four clients.
    assert result.outcome.spent.bytes_backhaul == 2 * 2 * 2 * 1_000_000
    flat = run(rates=rates, topology=cells(rates), rounds=2)
    # Each backhaul carries two models at once.
    assert [row.seconds for row in flat.outcome.rows] == pytest.approx([6, 12], rel=1e-12)
    assert flat.outcome.spent.bytes_backhaul == 0
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
    assert result.outcome.spent.bytes_backhaul == 2_000_000
    assert (result.outcome.rows[0].refused, result.outcome.rows[0].aggregated) == (2, 2)


def test_a_budget_breaks_the_cells_off_too(run):
    rates = [8e6] * 4
    for seconds in (0.5, 1.5, 3.0, 4.5, 5.5):
        result = run(rates=rates, topology=cells(rates), protocol=HIERARCHICAL, rounds=1, budgets={"seconds": seconds})
        assert result.outcome.seconds == seconds
        starts = {event.flow for event in result.of("transfer_start")}
        assert starts == {event.flow for kind in ("transfer_end", "transfer_drop") for event in result.of(kind)}


def test_blocks_go_to_a_cell_once_each(run):
    rates = [8e6] * 2
    result = run(
        {"method": "fedbr", "first_send": "none", "full_every": 1000},
        rates=rates,
        topology=cells(rates, count=1),
        protocol=HIERARCHICAL,
        scheduler={"kind": "fixed", "alpha": 3},
        rounds=2,
    )
    down = [event.bytes for event in result.of("transfer_start", item="relay", source="server")]
    assert down == [1_000_000, 750_000]
