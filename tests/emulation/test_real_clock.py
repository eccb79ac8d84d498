from __future__ import annotations

import math
import time

import pytest
from simpy.core import EmptySchedule

from edgefl.emulation import testbed
from edgefl.emulation.nodes import EmulationFailed
from edgefl.emulation.testbed import RealClock


class Reports:
    """A real world of reports at given real seconds after the start; nothing else happens in it."""

    def __init__(self, seconds: list[float] | None = None) -> None:
        self.seconds = seconds or []
        self.handled: list[float] = []
        self.under_way = bool(seconds)
        self.blocked = False
        self.moves = True
        self.began = math.nan
        self.clock = RealClock(1.0, self)

    def begin(self) -> None:
        self.began = time.monotonic()

    def wait(self, seconds: float) -> bool:
        ahead = min((self.began + each - time.monotonic() for each in self.seconds), default=math.inf)
        time.sleep(max(0.0, min(seconds, ahead, 0.05)))
        return self.earliest() is not None

    def earliest(self) -> float | None:
        ready = [self.began + each for each in self.seconds if self.began + each <= time.monotonic()]
        return min(ready, default=None)

    def handle(self) -> None:
        self.handled.append(self.clock.now)
        self.seconds.remove(min(self.seconds))
        self.under_way = bool(self.seconds)

    def stuck(self) -> bool:
        return not self.moves


def test_an_event_waits_for_its_moment_times_the_dilation() -> None:
    world = Reports()
    world.clock = RealClock(4.0, world)
    done = world.clock.timeout(0.05, "done")
    assert world.clock.run_until(done) == "done"
    assert time.monotonic() - world.began >= 0.2
    assert world.clock.now == 0.05


def test_a_report_is_handled_at_its_own_moment_and_before_later_events() -> None:
    world = Reports([0.03, 0.08])
    order: list[str] = []
    stop = world.clock.timeout(0.1)
    middle = world.clock.timeout(0.05)
    middle.callbacks.append(lambda _: order.append(f"event after {len(world.handled)} report"))
    world.clock.run_until(stop)
    assert order == ["event after 1 report"]
    assert world.handled[0] >= 0.029
    assert world.handled[1] >= 0.079


def test_the_clock_stands_still_while_the_world_works_and_nothing_is_sent() -> None:
    world = Reports()
    first = world.clock.timeout(0.01)
    first.callbacks.append(lambda _: time.sleep(0.2))
    last = world.clock.timeout(0.02)
    world.clock.run_until(last)
    assert world.clock.paused >= 0.2
    assert world.clock.paused_while_sending == 0.0
    assert time.monotonic() - world.began >= 0.22


def test_long_work_while_something_is_sent_is_counted() -> None:
    world = Reports([0.5])
    first = world.clock.timeout(0.01)
    first.callbacks.append(lambda _: time.sleep(0.1))
    world.clock.run_until(world.clock.timeout(0.02))
    assert world.clock.paused_while_sending >= 0.1


def test_the_run_ends_when_nothing_can_happen_any_more() -> None:
    world = Reports()
    assert world.clock.run_until(world.clock.event()) is None
    world.under_way = world.blocked = True
    with pytest.raises(EmptySchedule):
        world.clock.step()


def test_transfers_without_progress_end_the_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testbed, "PATIENCE", 0.05)
    world = Reports([3600.0])
    world.moves = False
    with pytest.raises(EmulationFailed, match="no byte has arrived"):
        world.clock.run_until(world.clock.event())
