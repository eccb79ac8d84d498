"""Clients that restart their job after an accident, against the draws themselves: 1 s down, 2 s computing, 1 s up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgefl.fleet import Accidents, FleetAssignment, Slowdown


def draws(chance, clients=1):
    return Accidents(FleetAssignment((None,), ("link",), np.zeros(clients, np.int32), dropout=(chance,)), 0)


def attempts(chance, client, round, retries):
    """The parts of its computation that a client gets through, attempt by attempt, as the draws say."""
    parts = []
    for again in range(retries + 1):
        parts.append(draws(chance, 4).after(client, round, again))
        if parts[-1] == 1:
            break
    return parts


@pytest.mark.parametrize("retries", [1, 3])
def test_a_client_begins_anew_as_often_as_it_may_and_each_attempt_has_its_own_luck(run, retries):
    chance, rounds = 0.7, 4
    result = run(fleet={"dropout": (chance,)}, rates=[8e6] * 4, rounds=rounds, protocol={"retries": retries})
    ended = 0.0
    for round in range(rounds):
        lives = []
        for client in range(4):
            parts = attempts(chance, client, round, retries)
            seconds = sum(1 + 2 * part for part in parts) + (1 if parts[-1] == 1 else 0)
            lives.append((seconds, parts[-1] == 1, len(parts) - 1))
        row = result.outcome.rows[round]
        ended += max(seconds for seconds, _, _ in lives)
        assert row.seconds == pytest.approx(ended, rel=1e-12)
        assert row.aggregated == sum(arrives for _, arrives, _ in lives)
        moved = sum(anew * 1_000_000 for _, arrives, anew in lives if arrives)
        moved += sum(anew * 1_000_000 for _, arrives, anew in lives if not arrives)
        lost = result.of("lost", item="retried", round=round + 1)
        assert sum(event.bytes for event in lost) == moved
    spent = result.outcome.spent
    assert spent.bytes_useful + spent.bytes_dropped + spent.bytes_retried == spent.bytes


def test_a_job_that_began_anew_is_the_same_job(run):
    tried = run(fleet={"dropout": (0.5,)}, rates=[8e6] * 4, rounds=3, protocol={"retries": 50})
    spared = run(rates=[8e6] * 4, rounds=3)
    assert tried.of("lost", item="retried")
    assert tried.learner.aggregated == spared.learner.aggregated
    assert sorted(tried.learner.submitted, key=lambda job: job.id) == sorted(
        spared.learner.submitted, key=lambda job: job.id
    )
    assert tried.outcome.spent.bytes_useful == spared.outcome.spent.bytes


def test_an_accident_under_shortened_work_comes_after_its_part_of_the_work_that_is_done(run):
    # 1 s down, one step of 1 s instead of two, 1 s up.
    chance = 0.9
    result = run(fleet={"dropout": (chance,)}, rates=[8e6] * 4, rounds=1, protocol={"deadline": 3.0, "late": "partial"})
    due = {client: draws(chance, 4).after(client, 0) for client in range(4)}
    happened = {event.client: event.seconds for event in result.of("compute_drop")}
    assert happened == {client: pytest.approx(part * 1.0) for client, part in due.items() if part < 1}
    assert happened


def test_two_jobs_from_one_model_version_have_different_luck(run, device):
    shaky = device().model_copy(update={"compute": device().compute.model_copy(update={"jitter": 0.5})})
    result = run(rates=[8e6], devices=[shaky], rounds=1, protocol={"kind": "asynchronous", "buffer": 4})
    took = [event.seconds for event in result.of("compute_end")]
    fleet = result.setup.fleet
    assert took == pytest.approx([2 * float(Slowdown(fleet, 0).of(0, again)[0]) for again in range(4)], rel=1e-12)
    assert len(set(took)) == 4
    assert math.isclose(took[0], 2 * float(Slowdown(fleet, 0).of(0)[0]), rel_tol=1e-12)
