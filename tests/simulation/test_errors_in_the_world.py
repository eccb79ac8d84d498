"""Whatever raises an error while a world runs, and whenever: the error comes out as it was raised."""

from __future__ import annotations

import pytest

from edgefl.record.events import Listener
from edgefl.training.faults import PartFault

RATES = [8e6, 4e6, 8e6, 2e6]
WORLD = {"rates": RATES, "rounds": 2, "entry": {"method": "fedadc", "overlap": True}}


class Recorder(Listener):
    """Records its calls; it copies lists, so that a list that changes after the call is noticed."""

    def __init__(self, calls, name):
        self._calls, self._name = calls, name

    def events(self, rows):
        self._calls.append((self._name, "events", list(rows)))

    def round_ended(self, row):
        self._calls.append((self._name, "round_ended", row))

    def simulated(self, rounds):
        self._calls.append((self._name, "simulated", rounds))


def test_listeners_are_called_in_the_order_of_their_list_and_a_round_after_all_its_events(run):
    calls = []
    ended = run(**WORLD, listeners=[Recorder(calls, "first"), Recorder(calls, "second")])
    assert [name for name, *_ in calls] == ["first", "second"] * (len(calls) // 2)
    received = [call for _, *call in calls[::2]]
    assert received == [call for _, *call in calls[1::2]]
    assert [event for moment, what in received if moment == "events" for event in what] == ended.events
    closed = [place for place, (moment, _) in enumerate(received) if moment == "round_ended"]
    assert [received[place][1] for place in closed] == ended.outcome.rows
    for (_, rows), (_, row) in [(received[place - 1], received[place]) for place in closed]:
        assert ("round_end", row.round) in {(event.kind, event.round) for event in rows}
    assert received[-2] == ["simulated", ended.outcome.rounds]
    assert received[-1][1][-1].kind == "stop"


def test_an_evaluation_that_fails_at_the_end_is_the_fault_of_that_run(run, monkeypatch):
    learner = type(run(**WORLD).learner)
    asked = []

    def broken(self, version):
        asked.append(version)
        raise ValueError("no such metric")

    monkeypatch.setattr(learner, "evaluate", broken)
    ended = run(**WORLD | {"evaluate_every": 10, "rounds": 1}).outcome
    assert ended.reason == "fault"
    assert isinstance(ended.fault, PartFault)
    assert str(ended.fault).endswith("evaluation: ValueError: no such metric")
    assert len(asked) == 1


def test_a_run_ends_at_the_instant_at_which_its_seconds_are_over(run):
    result = run(rounds=9, budgets={"seconds": 10.0})
    assert (result.outcome.reason, result.outcome.rounds, result.outcome.seconds) == ("seconds", 2, 10.0)
    assert result.outcome.final.metric == pytest.approx(0.2)
    # What was under way counts: two clients computed for 1 of 2 seconds.
    assert result.outcome.spent["flops"] == pytest.approx(2 * 4e9 + 2 * 1e9)


def test_a_round_that_ends_exactly_with_the_budget_counts(run):
    result = run(rounds=9, budgets={"seconds": 8.0})
    assert (result.outcome.reason, result.outcome.rounds) == ("seconds", 2)
    assert result.outcome.limits.budgets[0].within == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("kind", "limit", "rounds"), [("bytes", 4e6 * 2.5, 2), ("flops", 4e9 * 3, 3), ("joules", 36 * 1.9, 1)]
)
def test_a_run_ends_at_the_first_event_beyond_a_budget(run, kind, limit, rounds):
    result = run(rounds=9, budgets={kind: limit})
    assert (result.outcome.reason, result.outcome.rounds) == (kind, rounds)
    spent = {
        "bytes": result.outcome.spent["bytes"],
        "flops": result.outcome.spent["flops"],
        "joules": result.outcome.spent["joules"],
    }
    assert spent[kind] > limit
    assert [event.item for event in result.of("budget")] == [kind]


def test_with_stop_rounds_every_budget_is_reported_and_none_ends_the_run(run):
    result = run(rounds=5, budgets={"seconds": 9.0, "bytes": 4e6 * 3, "joules": 1e9}, stop="rounds")
    assert (result.outcome.reason, result.outcome.rounds) == ("rounds", 5)
    within = {budget.kind: budget.within for budget in result.outcome.limits.budgets}
    assert within == pytest.approx({"seconds": 0.2, "bytes": 0.3, "joules": 0.5})


def test_targets_are_reached_at_the_end_of_a_round(run):
    result = run(rounds=5, targets=[0.2, 0.35, 0.9])
    reached = [
        target.reached and (target.reached["rounds"], target.reached["seconds"])
        for target in result.outcome.limits.targets
    ]
    assert reached == [(2, pytest.approx(8.0)), (4, pytest.approx(16.0)), None]


def test_stop_target_ends_when_all_targets_are_reached(run):
    result = run(rounds=9, targets=[0.1, 0.3], stop="target")
    assert (result.outcome.reason, result.outcome.rounds) == ("target", 3)


def test_a_budget_on_each_clients_bytes_ends_the_run_with_the_first_client_that_exceeds_it(run):
    # 1 MB each way a round; the third megabyte of a client is one too many.
    result = run(rates=[8e6] * 3, cohort=3, rounds=9, budgets={"client_bytes": 2.5e6})
    assert (result.outcome.reason, result.outcome.rounds) == ("client_bytes", 1)
    assert result.outcome.spent["client_bytes"] == 3e6
    # The total may be as large as it likes.
    assert run(rates=[8e6] * 9, cohort=1, rounds=2, budgets={"client_bytes": 4.5e6}).outcome.reason == "rounds"
