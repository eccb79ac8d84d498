"""One run's real world: its clock, its processes and links, and how busy the machine was."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator

import simpy
from simpy.core import EmptySchedule

from edgefl.emulation.nodes import EmulationFailed, check_alive
from edgefl.emulation.real_links import RealLinks
from edgefl.emulation.real_network import RealNetwork
from edgefl.emulation.trainers import Trainers
from edgefl.emulation.wiring import Pair
from edgefl.network.flow import FlowObserver
from edgefl.network.topology import Topology
from edgefl.network.transport import Transport
from edgefl.record.emulation import Emulation, Load, WireBytes
from edgefl.simulation.clock import Clock
from edgefl.simulation.setup import Setup
from edgefl.training.job import TrainingJob

PATIENCE = 120.0
"""Seconds of the machine without any report, while bytes should move, after which an emulation gives up."""

LONG_STEP = 0.02
"""Seconds of the machine for a step of the world, beyond which the clock stands still meanwhile."""


class RealClock(Clock):
    """Virtual seconds are real seconds divided by the dilation.

    The world's own work (aggregation, evaluation, training) takes time that no device of the scenario spends. While no
    transfer is in progress, or if it takes longer than :data:`LONG_STEP`, the clock stands still meanwhile.
    """

    def __init__(self, dilation: float, reporter: Testbed) -> None:
        super().__init__()
        self.dilation = dilation  # real seconds for one second of the scenario
        self._reporter = reporter
        self._last_report = time.monotonic()
        self.late: list[float] = []  # for each event how many real seconds after its moment it was processed
        self.paused = 0.0  # real seconds in which the clock stood still
        self.paused_while_sending = 0.0  # those of them in which transfers went on
        self._origin = math.nan

    def virtual(self, machine: float) -> float:
        """The scenario's time at a time of the machine."""
        return (machine - self._origin - self.paused) / self.dilation

    def step(self) -> None:
        """Wait for the next event or report, and process it."""
        if math.isnan(self._origin):
            self._reporter.begin()
            self._origin = time.monotonic() - self._now * self.dilation
        while True:
            self._reporter.wait(0.0)
            due, reported = self.peek(), self._reporter.earliest()
            if reported is not None and self.virtual(reported) <= due:
                self._now = max(self._now, self.virtual(reported))
                self._work(self._reporter.handle)
                return
            ahead = (due - self.virtual(time.monotonic())) * self.dilation
            if ahead <= 0.0:
                self.late.append(-ahead)
                self._work(super().step)
                return
            if not self._reporter.under_way:
                self._last_report = time.monotonic()
            if due == math.inf and (not self._reporter.under_way or self._reporter.blocked):
                raise EmptySchedule
            if self._reporter.wait(min(ahead, PATIENCE)):
                self._last_report = time.monotonic()
            elif self._reporter.under_way and time.monotonic() - self._last_report > PATIENCE:
                if self._reporter.stuck():
                    raise EmulationFailed(f"no byte has arrived for {PATIENCE:g} s")
                self._last_report = time.monotonic()

    def _work(self, do: Callable[[], None]) -> None:
        sending = self._reporter.under_way
        began = time.monotonic()
        try:
            do()
        finally:
            spent = time.monotonic() - began
            self._last_report += spent
            if not sending or spent > LONG_STEP:
                self.paused += spent
                if sending:
                    self.paused_while_sending += spent


MOST_PROCESSORS = 0.85
"""Above this share of the processors' time, packets wait for processes."""

MOST_OF_A_ROUND = 0.01
"""Delays of the machine up to this share of a round are accepted."""

LEAST_OF_A_QUOTA = 0.95
"""For processes that train."""


def doubts(load: Load, *, seconds: float, rounds: int, dilation: float, quotas: float = 1.0) -> Iterator[str]:
    """Sentences about what makes the seconds of a run doubtful; ``quotas``: the part of them that training got.

    >>> load = Load(cpu=0.97, late_seconds_median=0.0, late_seconds_worst=0.2, paused_seconds=0, paused_while_sending=0)
    >>> for doubt in doubts(load, seconds=30.0, rounds=3, dilation=2.0):
    ...     print(doubt)
    the processors were busy for 97 % of the time; expected at most 85 %: end other programs, or use --dilate 4
    an event was late by 2 % of a round; expected at most 1 %: end other programs, or use --dilate 4
    """
    round = seconds / max(rounds, 1)
    found = (
        ("the processors were busy for {} of the time", load.cpu, MOST_PROCESSORS),
        ("an event was late by {} of a round", load.late_seconds_worst / round if round else 0.0, MOST_OF_A_ROUND),
        (
            "the clock stood still for {} of the time while transfers went on, for example to train jobs that the "
            "simulation does not have",
            load.paused_while_sending / seconds if seconds else 0.0,
            MOST_OF_A_ROUND,
        ),
    )
    for sentence, share, limit in found:
        if share > limit:
            yield (
                f"{sentence.format(f'{100 * share:.3g} %')}; expected at most {100 * limit:g} %: end other programs, "
                f"or use --dilate {2 * dilation:g}"
            )
    if quotas < LEAST_OF_A_QUOTA:
        yield (
            f"local training got {100 * quotas:.0f} % of the processor time of its quotas; expected at least "
            f"{100 * LEAST_OF_A_QUOTA:g} %: end other programs"
        )


def processor_seconds() -> tuple[float, float]:
    """The processors' ticks: those of work, and all."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(each) for each in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle), float(sum(ticks))


OPENING_SECONDS = 10.0
"""For connections to open before the first round."""

READING_SECONDS = 0.1
MOST_READINGS = 30
"""For so long packets may still be on their way when the last transfer has ended."""


class Testbed:
    """The processes and links of a run; ``dilation``: real seconds a second; ``trainers``: if real time counts."""

    __test__ = False  # for pytest

    def __init__(self, real_links: RealLinks, *, dilation: float, trainers: Trainers | None = None) -> None:
        self._real_links, self._nodes, self._trainers = real_links, real_links.nodes, trainers
        self.clock = RealClock(dilation, self)
        self._arrived = 0
        self._worked_before = processor_seconds()
        self._carried_before: dict[Pair, int] = {}

    # What the world asks for

    def network(self, topology: Topology, *, observer: FlowObserver, transport: Transport) -> RealNetwork:
        self._network = RealNetwork(
            self.clock, topology, observer=observer, transport=transport, carrier=self._real_links
        )
        return self._network

    def measured(self, setup: Setup) -> Emulation:
        """How a run's seconds were measured, at its end."""
        clock = self.clock
        worked, could = (after - before for after, before in zip(processor_seconds(), self._worked_before, strict=True))
        late = [each / clock.dilation for each in clock.late] or [0.0]
        load = Load(
            cpu=min(1.0, worked / max(could, 1.0)),
            late_seconds_median=statistics.median(late),
            late_seconds_worst=max(late),
            paused_seconds=clock.paused / clock.dilation,
            paused_while_sending=clock.paused_while_sending / clock.dilation,
        )
        quotas = 1.0 if self._trainers is None else self._trainers.share_of_quotas
        return Emulation(
            dilation=clock.dilation,
            compute="real" if self.trains else "paced",
            queue="fair" if setup.transport.queue is None else "fifo",
            trust=tuple(
                doubts(load, seconds=clock.now, rounds=setup.log.rounds, dilation=clock.dilation, quotas=quotas)
            ),
            wire_bytes=self._wire_bytes(),
            load=load,
            machine={"processors": os.cpu_count(), "kernel": platform.release()},
        )

    def _wire_bytes(self) -> WireBytes:
        """The bytes on the clients' interfaces; waits until what aborted transfers left behind has passed the links."""
        now = self._real_links.counters()
        for _ in range(MOST_READINGS):
            time.sleep(READING_SECONDS)
            before, now = now, self._real_links.counters()
            if now == before:
                break
        carried = {ends: count - self._carried_before.get(ends, 0) for ends, count in now.items()}
        up, down = (sum(carried[ends] for ends in carried if ends[end].startswith("client/")) for end in (0, 1))
        return WireBytes(down=down, up=up)

    @property
    def trains(self) -> bool:
        return self._trainers is not None

    def train(self, job: TrainingJob, slowdown: float) -> simpy.Event:
        assert self._trainers is not None
        ended = self.clock.event()
        self._trainers.train(job, slowdown, ended)
        return ended

    def stop_training(self, job: TrainingJob) -> None:
        assert self._trainers is not None
        self._trainers.stop(job.id)

    # What the clock asks for

    def begin(self) -> None:
        self._real_links.open_connections(OPENING_SECONDS)
        self._carried_before = self._real_links.counters()
        self._worked_before = processor_seconds()

    def wait(self, seconds: float) -> bool:
        return bool(self._nodes.reports) or self._nodes.wait(seconds)

    def earliest(self) -> float | None:
        return min((report.get("at", 0.0) for report in self._nodes.reports), default=None)

    def handle(self) -> None:
        report = min(self._nodes.reports, key=lambda each: each.get("at", 0.0))
        self._nodes.reports.remove(report)
        check_alive(report)
        if "arrived" in report:
            self._network.arrived(report["arrived"])
        elif "trained" in report:
            assert self._trainers is not None
            self._trainers.trained(report)
        elif "failed" in report and self._network.is_under_way(report["failed"]):
            # Else its client has crashed, and the transfer was aborted.
            raise EmulationFailed(f"transfer {report['failed']} failed: {report['reason']}")

    @property
    def under_way(self) -> bool:
        return self._training or self._network.under_way

    @property
    def blocked(self) -> bool:
        return not self._training and self._network.blocked

    def stuck(self) -> bool:
        if self._training:
            return False
        before, self._arrived = self._arrived, self._network.bytes_under_way()
        return self._arrived == before and not self._network.blocked

    @property
    def _training(self) -> bool:
        return self._trainers is not None and self._trainers.busy
