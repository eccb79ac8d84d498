"""TimelyFL in the world: download and upload 1 s each; an epoch of one step takes 4, 1 and 0.25 s on three devices."""

from __future__ import annotations

import pytest

from .conftest import BLOCK, device


def three():
    return [device(0.25e9), device(1e9), device(4e9)]


def timely(**options):
    return {"method": "timelyfl", "local": {"epochs": 1, "common_finish": {"drop_late": False, **options}}}


def test_epochs_and_blocks_follow_the_papers_equations(run):
    result = run(timely(), rates=[8e6] * 3, devices=three(), rounds=1)
    # T is the second of 6, 3 and 2.25 s; E = (1, 1, ⌊(3 - 2) / 0.25⌋) and α = (3/6, 1, 1), of four blocks.
    [decision] = result.of("decision", item="local work")
    assert decision.facts["seconds"] == 3.0
    assert decision.facts["steps"] == {"0": 1, "1": 1, "2": 4}
    assert decision.facts["blocks"] == {"0": 2, "1": 4, "2": 4}
    jobs = {job.id.client: (job.steps, job.alpha) for job in result.learner.submitted}
    assert jobs == {0: (1, 2), 1: (1, 4), 2: (4, 4)}


def test_the_whole_model_is_received_and_only_the_trained_blocks_are_returned(run):
    result = run(timely(), rates=[8e6] * 3, devices=three(), rounds=1)
    down = {event.client: event.bytes for event in result.of("transfer_end", item="down")}
    up = {event.client: event.bytes for event in result.of("transfer_end", item="up")}
    assert down == dict.fromkeys(range(3), 4 * BLOCK)
    assert up == {0: 2 * BLOCK, 1: 4 * BLOCK, 2: 4 * BLOCK}


def test_the_round_closes_at_the_common_finish(run):
    result = run(timely(drop_late=True), rates=[8e6] * 3, devices=three(), rounds=1)
    assert result.outcome.rows[0].seconds == pytest.approx(3.0)
    assert [event.client for event in result.of("lost", item="late")] == [0]


def test_foreseen_gives_the_most_blocks_that_end_in_time(run):
    # Every step costs the same here, whatever is trained, so only the upload becomes shorter: 4 + 0.25 is too long.
    entry = {**timely(share=0.3), "blocks": "foreseen"}
    result = run(entry, rates=[8e6] * 3, devices=three(), rounds=1)
    assert result.of("decision", item="local work")[0].facts["blocks"] == {"0": 1, "1": 1, "2": 4}
    slower = run({**timely(), "blocks": "foreseen"}, rates=[8e6, 4e6, 8e6], devices=[device(1e9)] * 3, rounds=1)
    # T is 3 s; client 1 has 2 s left after its download, 1 s of it for its upload: half of the model.
    assert slower.of("decision", item="local work")[0].facts["blocks"] == {"0": 4, "1": 1, "2": 4}
