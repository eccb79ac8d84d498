"""Whatever raises an error while a world runs, and whenever: the error comes out as it was raised."""

from __future__ import annotations

from collections import Counter

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.record.events import Listener
from edgefl.simulation.clock import Clock
from edgefl.simulation.delivery import Delivery
from edgefl.simulation.presence import Phases
from edgefl.training.faults import PartFault

from .conftest import cells

RATES = [8e6, 4e6, 8e6, 2e6]
OVERLAPPED = {"method": "fedadc", "overlap": True}

WORLDS = {
    "overlap": {"entry": OVERLAPPED},
    "deadline": {"protocol": {"deadline": 7.0, "over_select": 2.0, "late": "partial"}, "cohort": 2},
    "asynchronous": {"protocol": {"kind": "asynchronous", "buffer": 2}},
    "cells": {"entry": OVERLAPPED, "protocol": {"kind": "hierarchical"}, "topology": cells(RATES)},
    "budget": {"budgets": {"seconds": 9.0}},
    "stalled": {"rates": [0.0, 0.0]},
}


class UnnamedError(RuntimeError):
    """An error that cannot be made again from its ``args``, as SimPy does."""

    def __init__(self, *, name: str) -> None:
        super().__init__(f"the {name} is broken")


class Recorder(Listener):
    """Records its calls, and raises given errors in the n-th call of a method.

    It copies lists, so that a list that changes after the call is noticed.
    """

    def __init__(self, calls, name="", errors=None):
        self._calls, self._name, self._errors = calls, name, errors or {}
        self.counts = Counter()

    def _called(self, method, argument):
        self._calls.append((self._name, method, argument))
        self.counts[method] += 1
        error = self._errors.get((method, self.counts[method]))
        if error is not None:
            raise error

    def events(self, rows):
        self._called("events", list(rows))

    def round_ended(self, row):
        self._called("round_ended", row)

    def simulated(self, rounds):
        self._called("simulated", rounds)


@pytest.fixture
def world(request, run):
    """Runs one of the worlds, for two rounds."""
    return lambda **more: run(**{"rates": RATES, "rounds": 2, **WORLDS[request.param], **more})


every_world = pytest.mark.parametrize("world", WORLDS, indirect=True)


def test_a_fault_that_a_listener_raises_after_the_last_round_ends_the_run_as_a_fault(run):
    fault = PartFault("method", 2, "personalisation", "broken")
    ended = run(listeners=[Recorder([], errors={("simulated", 1): fault})])
    assert (ended.outcome.reason, ended.outcome.fault) == ("fault", fault)
    assert [event.kind for event in ended.events[-2:]] == ["fault", "stop"]


@every_world
def test_listeners_are_called_in_the_order_of_their_list_and_a_round_after_all_its_events(world):
    calls = []
    ended = world(listeners=[Recorder(calls, "first"), Recorder(calls, "second")])
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


@every_world
def test_an_evaluation_that_fails_at_the_end_is_the_fault_of_that_run(world, monkeypatch):
    learner = type(world().learner)
    asked = []

    def broken(self, version):
        asked.append(version)
        raise ValueError("no such metric")

    monkeypatch.setattr(learner, "evaluate", broken)
    ended = world(evaluate_every=10, rounds=1).outcome
    assert ended.reason == "fault"
    assert isinstance(ended.fault, PartFault)
    assert str(ended.fault).endswith("evaluation: ValueError: no such metric")
    assert len(asked) == 1


def test_an_error_passes_unchanged_through_the_processes_that_wait():
    error = UnnamedError(name="first")

    def life(clock, depth):
        yield clock.process(life(clock, depth - 1)) if depth else clock.timeout(1)
        raise error

    clock = Clock()
    clock.process(life(clock, 3))
    with pytest.raises(RuntimeError) as told:
        clock.run_until(clock.event())
    assert told.value is error


def passed(env, seconds):
    env.run(until=env.now + seconds)


def test_a_pause_before_a_phase_is_not_part_of_it():
    env = simpy.Environment()
    phases = Phases(env)
    passed(env, 4.0)
    phases.begin()
    passed(env, 1.0)
    assert phases.end() == 1.0


def test_only_completed_transfers_count_as_transfer_seconds():
    env = simpy.Environment()
    phases = Phases(env)
    passed(env, 2.0)
    assert phases.end_transfer() == 2.0  # download
    passed(env, 16.0)
    phases.end()  # computing
    passed(env, 4.0)
    assert phases.end_transfer() == 4.0  # upload
    assert phases.transfers == [(0.0, 2.0), (18.0, 22.0)]
    assert phases.transfer_seconds == 6.0


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)).map(lambda pair: tuple(sorted(pair))), max_size=8),
    st.floats(0, 1e6),
)
def test_the_seconds_before_and_after_a_moment_are_all_seconds(transfers, moment):
    phases = Phases(simpy.Environment())
    phases.transfers += transfers
    assert sum(phases.transfers_since(moment)) == pytest.approx(phases.transfer_seconds, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("failed", [True, False])
def test_a_function_is_called_when_a_delivery_has_failed_and_only_then(failed):
    env, calls = simpy.Environment(), []
    delivery = Delivery(env, "server", "client", None, 1)
    delivery.on_failure(lambda: calls.append(env.now))
    passed(env, 1.0)
    delivery.end(failed=failed)
    assert calls == []
    passed(env, 1.0)
    assert calls == ([1.0] if failed else [])
    delivery.on_failure(lambda: calls.append("again"))
    passed(env, 1.0)
    assert "again" not in calls


def test_a_run_ends_at_the_instant_at_which_its_seconds_are_over(run):
    result = run(rounds=9, budgets={"seconds": 10.0})
    assert (result.outcome.reason, result.outcome.rounds, result.outcome.seconds) == ("seconds", 2, 10.0)
    assert result.outcome.final.metric == pytest.approx(0.2)
    # What was under way counts: two clients computed for 1 of 2 seconds.
    assert result.outcome.spent.flops == pytest.approx(2 * 4e9 + 2 * 1e9)


def test_a_round_that_ends_exactly_with_the_budget_counts(run):
    result = run(rounds=9, budgets={"seconds": 8.0})
    assert (result.outcome.reason, result.outcome.rounds) == ("seconds", 2)
    assert result.outcome.limits.budgets[0].within.round == 2


@pytest.mark.parametrize(
    ("kind", "limit", "rounds"), [("bytes", 4e6 * 2.5, 2), ("flops", 4e9 * 3, 3), ("joules", 36 * 1.9, 1)]
)
def test_a_run_ends_at_the_first_event_beyond_a_budget(run, kind, limit, rounds):
    result = run(rounds=9, budgets={kind: limit})
    assert (result.outcome.reason, result.outcome.rounds) == (kind, rounds)
    spent = {
        "bytes": result.outcome.spent.bytes,
        "flops": result.outcome.spent.flops,
        "joules": result.outcome.spent.joules,
    }
    assert spent[kind] > limit
    assert [event.item for event in result.of("budget")] == [kind]


def test_with_stop_rounds_every_budget_is_reported_and_none_ends_the_run(run):
    result = run(rounds=5, budgets={"seconds": 9.0, "bytes": 4e6 * 3, "joules": 1e9}, stop="rounds")
    assert (result.outcome.reason, result.outcome.rounds) == ("rounds", 5)
    within = {budget.kind: budget.within.round for budget in result.outcome.limits.budgets}
    assert within == {"seconds": 2, "bytes": 3, "joules": 5}


def test_targets_are_reached_at_the_end_of_a_round(run):
    result = run(rounds=5, targets=[0.2, 0.35, 0.9])
    reached = [
        target.reached and (target.reached.round, target.reached.seconds) for target in result.outcome.limits.targets
    ]
    assert reached == [(2, pytest.approx(8.0)), (4, pytest.approx(16.0)), None]


def test_stop_target_ends_when_all_targets_are_reached(run):
    result = run(rounds=9, targets=[0.1, 0.3], stop="target")
    assert (result.outcome.reason, result.outcome.rounds) == ("target", 3)


def test_a_budget_on_each_clients_bytes_ends_the_run_with_the_first_client_that_exceeds_it(run):
    # 1 MB each way a round; the third megabyte of a client is one too many.
    result = run(rates=[8e6] * 3, cohort=3, rounds=9, budgets={"client_bytes": 2.5e6})
    assert (result.outcome.reason, result.outcome.rounds) == ("client_bytes", 1)
    assert result.outcome.spent.client_bytes == 3e6
    # The total may be as large as it likes.
    assert run(rates=[8e6] * 9, cohort=1, rounds=2, budgets={"client_bytes": 4.5e6}).outcome.reason == "rounds"
