"""Selectors that read the predicted seconds of clients, or learn from the results of rounds."""

from __future__ import annotations

import pytest

from edgefl.scheduling.selection.uniform import UniformSelector

RATES = [8e6, 8e6, 1e6, 4e6]


def test_what_is_foreseen_is_what_a_client_alone_takes(run):
    # Alone on its path a client of 8 Mbit/s takes 4 s, one of 4 Mbit/s 6 s, one of 1 Mbit/s 18 s.
    for deadline, expected in ((4.0, [0, 1]), (6.0, [0, 1, 3]), (18.0, [0, 1, 2, 3])):
        selector = {"kind": "deadline", "deadline": deadline}
        result = run(rates=RATES, rounds=1, selector=selector)
        assert [job.client for job in result.learner.aggregated[0]] == expected
        assert result.outcome.seconds == pytest.approx(deadline)


def test_oort_hears_losses_and_seconds_of_finished_rounds(run):
    result = run(rates=RATES, cohort=2, rounds=30, selector="oort")
    picked = [job.client for round in result.learner.aggregated[15:] for job in round]
    # The slowest is tried, and then mostly avoided.
    assert picked.count(2) < min(picked.count(0), picked.count(1))
    assert {job.client for round in result.learner.aggregated for job in round} == {0, 1, 2, 3}


def picks(monkeypatch, refused=None):
    """The rounds that selection is asked for; it fails at one of them."""
    asked = []
    pick = UniformSelector.pick

    def picking(self, round, *others):
        asked.append(round)
        if round == refused:
            raise ValueError("not this one")
        return pick(self, round, *others)

    monkeypatch.setattr(UniformSelector, "pick", picking)
    return asked


@pytest.mark.parametrize("overlap", [False, True])
def test_every_cohort_is_chosen_once(run, monkeypatch, overlap):
    asked = picks(monkeypatch)
    run({"method": "fedadc", "overlap": overlap}, rates=RATES, cohort=2, rounds=6, evaluate_every=2)
    assert asked == list(range(6))


def test_selection_that_fails_once_ends_the_run_when_its_round_comes(run, monkeypatch):
    asked = picks(monkeypatch, refused=2)
    ended = run(rounds=9).outcome
    assert (ended.reason, ended.rounds) == ("fault", 2)
    assert "not this one" in str(ended.fault)
    assert asked == [0, 1, 2]
