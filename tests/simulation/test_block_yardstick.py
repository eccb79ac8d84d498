"""How far a block scheduler's choice is from the shortest round that sends as many blocks: a block takes 0.25 s."""

from __future__ import annotations

import json

import pytest

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
