"""Selectors that ask how long clients would take, or learn from what came of rounds."""

from __future__ import annotations

from itertools import count

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


def watched(monkeypatch, learner, refused=None):
    """What selection and evaluation are asked, in turn; selection refuses its pick of that number, from 0."""
    asked, picks = [], count()
    pick, evaluate = UniformSelector.pick, learner.evaluate

    def picking(self, round, *others):
        asked.append(("pick", round))
        if next(picks) == refused:
            raise ValueError("not this one")
        return pick(self, round, *others)

    def evaluating(self, version):
        asked.append(("evaluate", version))
        return evaluate(self, version)

    monkeypatch.setattr(UniformSelector, "pick", picking)
    monkeypatch.setattr(learner, "evaluate", evaluating)
    return asked


@pytest.mark.parametrize("kind", ["synchronous", "hierarchical"])
def test_the_next_cohort_is_chosen_before_the_model_is_evaluated_and_logged_when_its_round_begins(
    run, monkeypatch, kind
):
    asked = watched(monkeypatch, type(run(rounds=1).learner))
    result = run(rates=RATES, cohort=2, rounds=3, protocol={"kind": kind})
    assert asked == [("pick", 0), ("pick", 1), ("evaluate", 1), ("pick", 2), ("evaluate", 2), ("evaluate", 3)]
    rows = [(event.kind, event.round) for event in result.setup.log.rows if event.kind in ("decision", "round_end")]
    assert rows == [(kind, round) for round in (1, 2, 3) for kind in ("decision", "round_end")]


@pytest.mark.parametrize("overlap", [False, True])
def test_every_cohort_is_chosen_once(run, monkeypatch, overlap):
    asked = watched(monkeypatch, type(run(rounds=1).learner))
    run({"method": "fedadc", "overlap": overlap}, rates=RATES, cohort=2, rounds=6, evaluate_every=2)
    assert [round for what, round in asked if what == "pick"] == list(range(6))


def test_a_selector_that_asks_for_what_is_foreseen_waits_for_its_round(run, device):
    # The log says which kind of work is met for the first time, and when.
    devices = [device(flops_per_second=1e9 + kind) for kind in range(6)]
    result = run(
        rates=[8e6] * 6, cohort=1, rounds=9, devices=devices, targets=[0.2], stop="target",
        selector={"kind": "deadline", "deadline": 100.0, "asked": 1.0},
    )  # fmt: skip
    kinds = [event.kind for event in result.setup.log.rows]
    for place, kind in enumerate(kinds):
        if kind == "aggregation":
            assert "work" not in kinds[place : place + kinds[place:].index("round_end")]
    assert "work" not in kinds[len(kinds) - kinds[::-1].index("round_end") :]


def test_selection_that_fails_for_a_round_that_never_comes_is_no_fault(run, monkeypatch):
    asked = watched(monkeypatch, type(run(rounds=1).learner), refused=2)
    result = run(rounds=9, targets=[0.2], stop="target")
    assert (result.outcome.reason, result.outcome.rounds) == ("target", 2)
    assert asked[-2:] == [("pick", 2), ("evaluate", 2)]
    assert [event.round for event in result.of("decision", item="selection")] == [1, 2]


def test_selection_that_fails_once_ends_the_run_when_its_round_comes(run, monkeypatch):
    asked = watched(monkeypatch, type(run(rounds=1).learner), refused=2)
    ended = run(rounds=9).outcome
    assert (ended.reason, ended.rounds) == ("fault", 2)
    assert "not this one" in str(ended.fault)
    assert [round for what, round in asked if what == "pick"] == [0, 1, 2]
