"""FedBR in the world: partial downlinks, full rounds, and how far a block scheduler is from the shortest round.

A model has four blocks; one takes 0.25 s.
"""

from __future__ import annotations

import json

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


ENTRY = {"method": "fedbr", "first_send": "none", "full_every": 1000}


def blocks(result):
    return [json.loads(event.detail) for event in result.of("decision", item="blocks")]


def test_what_is_foreseen_is_what_happens_without_contention(run):
    result = run(ENTRY, rates=[8e6, 2e6], scheduler={"kind": "fixed", "alpha": 2}, rounds=2)
    facts = blocks(result)[0]
    # The slower: two blocks in 2 s, training 2 s, the whole model back in 4 s.
    assert facts["foreseen_seconds"] == pytest.approx(8.0)
    assert result.outcome.rows[1].seconds - result.outcome.rows[0].seconds == pytest.approx(8.0)
    # Four blocks in all: 3 + 1, for the slower one block is 1 s less.
    assert facts["least_seconds"] == pytest.approx(7.0)


def test_the_optimum_stays_within_its_time(run):
    result = run(ENTRY, rates=[8e6, 2e6], scheduler={"kind": "optimal", "seconds": 7.5}, rounds=3)
    assert [facts["alphas"] for facts in blocks(result)] == [{"0": 3, "1": 1}] * 2
    assert result.outcome.spent.foreseen_seconds == result.outcome.spent.least_seconds


def test_gmbs_is_never_below_the_least(run):
    result = run({**ENTRY, "first_send": "full"}, rates=[8e6, 2e6, 4e6], scheduler="gmbs", rounds=12)
    assert all(facts["foreseen_seconds"] >= facts["least_seconds"] for facts in blocks(result))
    assert result.outcome.spent.foreseen_seconds > result.outcome.spent.least_seconds
