"""Fewer local steps under a deadline, and what becomes of bytes: download 1 s, two steps of 1 s, upload 1 s."""

from __future__ import annotations

import pytest


def partial(deadline, **options):
    return {"deadline": deadline, "late": "partial", **options}


def test_who_would_be_late_takes_fewer_steps_and_arrives_in_time(run):
    result = run(rates=[8e6], rounds=1, protocol=partial(3.0))
    row = result.outcome.rows[0]
    assert (row.seconds, row.aggregated) == (pytest.approx(3.0), 1)
    assert [job.steps for job in result.learner.submitted] == [1]
    assert row.flops == pytest.approx(1e9)
    end = result.of("compute_partial")[0]
    assert (end.value, end.seconds, end.joules) == (1.0, 1.0, 5.0)


def test_who_is_in_time_works_as_ever(run):
    settings = {"rates": [8e6, 4e6], "rounds": 3}
    assert run(**settings, protocol=partial(7.0)).outcome.rows == run(**settings).outcome.rows


def test_who_could_not_take_one_step_gives_up_at_once(run):
    result = run(rates=[8e6, 8e6], rounds=1, protocol=partial(2.9))
    assert [job.steps for job in result.learner.submitted] == []
    assert (result.outcome.rows[0].seconds, result.outcome.rows[0].aggregated) == (pytest.approx(1.0), 0)
    assert result.outcome.spent.bytes_dropped == 2_000_000


def test_the_reserve_is_a_multiple_of_the_upload_alone(run):
    # Two uploads through the server's 8 Mbit/s take 2 s, twice what each foresees; so do the downloads.
    settings = {"rates": [8e6, 8e6], "server": 8e6, "rounds": 1}
    late = run(**settings, protocol=partial(5.0, reserve=1.0))
    assert late.outcome.rows[0].aggregated == 0
    assert late.outcome.spent.bytes_late > 0
    wary = run(**settings, protocol=partial(5.0, reserve=2.0))
    assert wary.outcome.rows[0].aggregated == 2
    assert [job.steps for job in wary.learner.submitted] == [1, 1]
