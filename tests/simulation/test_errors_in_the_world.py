"""Whatever raises an error while a world runs, and whenever: the error comes out as it was raised."""

from __future__ import annotations

from collections import Counter

import pytest

from edgefl.record.events import Listener
from edgefl.simulation.clock import Clock
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
