"""FedBR in the world: partial downlinks, full rounds, and what the block scheduler hears."""

from __future__ import annotations

import pytest


def test_partial_rounds_send_the_last_blocks_alone(run):
    result = run({"method": "fedbr", "full_every": 2}, rates=[8e6], rounds=4, scheduler={"kind": "fixed", "alpha": 2})
    assert [event.bytes for event in result.of("transfer_start", item="down")] == [1e6, 5e5, 1e6, 5e5]
    assert [row.blocks_actual for row in result.outcome.rows] == [1_000_000, 500_000, 1_000_000, 500_000]
    assert [job.alpha for job in result.learner.submitted] == [4, 2, 4, 2]


def test_a_newcomer_in_a_partial_round_is_sent_the_whole_model(run):
    entry = {"method": "fedbr", "full_every": 1000}
    result = run(entry, rates=[8e6] * 4, cohort=1, rounds=6, scheduler={"kind": "fixed", "alpha": 1})
    first = {}
    for event in result.of("transfer_start", item="down"):
        expected = 250_000 if event.client in first else 1_000_000
        assert event.bytes == expected
        first[event.client] = True
    assert len(first) > 1


def test_a_newcomer_may_start_from_the_initial_model_uncharged(run):
    entry = {"method": "fedbr", "full_every": 1000, "first_send": "none"}
    result = run(entry, rates=[8e6] * 4, cohort=1, rounds=4, scheduler={"kind": "fixed", "alpha": 1})
    assert [event.bytes for event in result.of("transfer_start", item="down")] == [1e6] + [250_000] * 3


def test_decisions_name_the_inputs_that_they_read(run):
    result = run("fedbr", rounds=2, scheduler="gmbs")
    blocks = result.of("decision", item="blocks")
    assert len(blocks) == 1
    assert '"reads": ["compute_seconds", "distance", "loss", "transfer_seconds"]' in blocks[0].detail
    assert all('"reads": []' in event.detail for event in result.of("decision", item="selection"))


def test_sending_less_takes_less_time(run):
    full = run("fedavg", rates=[8e6], rounds=4).outcome.seconds
    entry = {"method": "fedbr", "full_every": 2}
    assert run(entry, rates=[8e6], rounds=4, scheduler={"kind": "fixed", "alpha": 1}).outcome.seconds == pytest.approx(
        full - 2 * 0.75, rel=1e-12
    )
