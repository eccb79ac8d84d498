"""Local work to a common finish: download and upload 1 s each, two steps of 1 s (slow device) or 0.25 s."""

from __future__ import annotations

import pytest

from .conftest import device


def finishing(**options):
    return {"method": "fedavg", "local": {"common_finish": options}}


def pair():
    return [device(1e9), device(4e9)]


def test_a_fast_client_takes_as_many_steps_as_end_with_the_slow_one(run):
    result = run(finishing(), devices=pair(), rounds=1)
    assert [job.steps for job in sorted(result.learner.submitted, key=lambda job: job.id.client)] == [2, 8]
    row = result.outcome.rows[0]
    assert (row.seconds, row.flops) == (pytest.approx(4.0), pytest.approx(10e9))
    assert [event.time for event in result.of("compute_end")] == pytest.approx([3.0, 3.0])


def test_a_slow_client_takes_fewer_steps_to_end_with_the_fast_one_but_at_least_one(run):
    result = run(finishing(share=0.5), devices=pair(), rounds=1)
    assert {job.id.client: job.steps for job in result.learner.submitted} == {0: 1, 1: 2}
    assert result.outcome.rows[0].seconds == pytest.approx(3.0)


def test_the_decision_is_in_the_log_and_reads_predictions(run):
    [event] = run(finishing(), devices=pair(), rounds=1).of("decision", item="local work")
    assert event.facts == {"reads": ["foreseen"], "seconds": 4.0, "drop_late": False, "steps": {"0": 2, "1": 8}}


def test_whole_epochs_and_a_limit_bound_the_work(run):
    # An epoch is one step of a batch of 10.
    assert [job.steps for job in run(finishing(unit="epochs", most=3), devices=pair(), rounds=1).learner.submitted] in (
        [2, 3],
        [3, 2],
    )


def test_late_updates_are_discarded_at_the_common_finish_if_asked_for(run):
    result = run(finishing(share=0.5, drop_late=True), devices=pair(), rounds=2)
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([2.5, 5.0])
    assert [row.aggregated for row in result.outcome.rows] == [1, 1]
    assert [event.client for event in result.of("lost", item="late")] == [0, 0]


def test_with_equal_clients_nothing_changes(run):
    settings = {"rates": [8e6, 8e6, 8e6], "rounds": 3}
    assert run(finishing(), **settings).outcome.rows == run("fedavg", **settings).outcome.rows
