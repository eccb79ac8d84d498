"""Where the clock may choose: once for each kind of job, and the same again when a run goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edgefl.learning.engine.base import Arrived, JobTask, unnoticed
from edgefl.learning.engine.core import TrainingCore
from edgefl.learning.engine.measured import MeasuredEngine
from edgefl.learning.engine.spec import EngineSpec


class Clock:
    """Time that passes only where somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Pretending:
    """An engine that takes ``first`` seconds for its first call and ``then`` for each later one."""

    def __init__(self, name: str, clock: Clock, first: float, then: float) -> None:
        self.name, self.clock, self.seconds, self.then = name, clock, first, then
        self.calls = 0

    def train(self, tasks: list[JobTask], _arrived: Arrived = unnoticed) -> list[str]:
        self.calls += 1
        self.clock.now += self.seconds
        self.seconds = self.then
        return [self.name] * len(tasks)

    def evaluate(self, _vector: object, _mode: object) -> str:
        return self.name

    def close(self) -> None:
        self.calls = -1


def jobs(method: str, count: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(method=method)] * count


@pytest.fixture
def made():
    clock = Clock()
    slow_start = Pretending("batched", clock, 9.0, 1.0)
    return [Pretending("parallel", clock, 2.0, 2.0), slow_start], clock


def engine_of(made, found):
    engines, clock = made
    return MeasuredEngine({each.name: each for each in engines}, found, clock)


def test_the_fastest_second_turn_decides_and_nothing_is_measured_twice(made):
    found: dict[str, str] = {}
    engine = engine_of(made, found)
    assert engine.train(jobs("fedavg", 10)) == ["batched"] * 10
    assert [each.calls for each in made[0]] == [2, 2]
    assert engine.train(jobs("fedavg", 12)) == ["batched"] * 12, "as many rows of a chunk: the same kind"
    assert [each.calls for each in made[0]] == [2, 3]
    engine.train(jobs("moon", 10))
    engine.train(jobs("fedavg", 3))
    assert [each.calls for each in made[0]] == [6, 7]
    assert len(found) == 3


def test_what_was_found_before_is_taken_without_measuring(made):
    found = {"fedavg, up to 16 jobs": "parallel"}
    assert engine_of(made, found).train(jobs("fedavg", 10)) == ["parallel"] * 10
    assert [each.calls for each in made[0]] == [1, 0]


def test_no_jobs_decide_nothing_and_evaluation_is_the_first_engines(made):
    found: dict[str, str] = {}
    engine = engine_of(made, found)
    assert engine.train([]) == []
    assert engine.evaluate(None, {}) == "parallel"
    assert found == {}
    engine.close()
    assert [each.calls for each in made[0]] == [-1, -1]


@pytest.mark.parametrize(
    ("spec", "measures"),
    [
        (EngineSpec(), False),
        (EngineSpec(exact=False), True),
        (EngineSpec(kind="sequential", exact=False), False),
        (EngineSpec(kind="batched", exact=False), False),
    ],
    ids=str,
)
def test_only_auto_that_need_not_be_exact_measures(tiny, spec, measures):
    with TrainingCore(tiny.data(), tiny.model(), 3, engine=spec) as core:
        engine = core.engine_for(core.model)
        assert isinstance(engine, MeasuredEngine) == measures
        engine.close()
