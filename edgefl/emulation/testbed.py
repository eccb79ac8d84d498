"""One run's real world: starts its processes and links, carries its transfers, and judges its own load."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Iterator, Mapping

import simpy

from edgefl.emulation.nodes import EmulationFailed, check_alive
from edgefl.emulation.real_clock import RealClock
from edgefl.emulation.real_links import RealLinks
from edgefl.emulation.real_network import RealNetwork
from edgefl.emulation.trainers import Trainers
from edgefl.emulation.wiring import Carried, Pair, Wiring
from edgefl.network.flow import FlowObserver
from edgefl.network.topology import Topology
from edgefl.network.transport import Transport
from edgefl.record.emulation import Emulation, Load, WireBytes
from edgefl.record.events import EventLog
from edgefl.simulation.setup import Setup
from edgefl.training.job import TrainingJob

MOST_PROCESSORS = 0.85
"""Above this share of the processors' time, packets wait for processes."""

MOST_OF_A_ROUND = 0.01
"""Delays of the machine up to this share of a round are accepted."""

LEAST_OF_A_QUOTA = 0.95
"""For processes that train."""


def processor_seconds() -> tuple[float, float]:
    """The processors' ticks: those of work, and all."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(each) for each in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle), float(sum(ticks))


def starved(used: float, granted: float) -> Iterator[str]:
    """A sentence if processes got less of the processors than their quotas; none if nothing was trained.

    >>> list(starved(9.0, 10.0))[0]
    'local training got 90 % of the processor time of its quotas; expected at least 95 %: end other programs'
    """
    if used < LEAST_OF_A_QUOTA * granted:
        yield (
            f"local training got {100 * used / granted:.0f} % of the processor time of its quotas; expected at least "
            f"{100 * LEAST_OF_A_QUOTA:g} %: end other programs"
        )


def doubts(load: Load, *, seconds: float, rounds: int, dilation: float) -> Iterator[str]:
    """Sentences about what makes the seconds of a run doubtful; none if nothing does.

    >>> load = Load(cpu=0.97, late_seconds_median=0.0, late_seconds_worst=0.2, paused_seconds=0, paused_while_sending=0)
    >>> for doubt in doubts(load, seconds=30.0, rounds=3, dilation=2.0):
    ...     print(doubt)
    the processors were busy for 97 % of the time; expected at most 85 %: end other programs, or use --dilate 4
    an event was 0.2 s late, 2.0 % of a round; expected at most 1 %: end other programs, or use --dilate 4
    """
    more = f"end other programs, or use --dilate {2 * dilation:g}"
    if load.cpu > MOST_PROCESSORS:
        limit = f"{100 * MOST_PROCESSORS:.0f} %"
        yield f"the processors were busy for {100 * load.cpu:.0f} % of the time; expected at most {limit}: {more}"
    round = seconds / max(rounds, 1)
    limit = f"expected at most {100 * MOST_OF_A_ROUND:g} %"
    if load.late_seconds_worst > MOST_OF_A_ROUND * round:
        share = f"{100 * load.late_seconds_worst / round:.1f} % of a round" if round else "in a run without rounds"
        yield f"an event was {load.late_seconds_worst:.2g} s late, {share}; {limit}: {more}"
    if load.paused_while_sending > MOST_OF_A_ROUND * seconds:
        yield (
            f"the clock stood still for {load.paused_while_sending:.2g} s in which transfers went on, for example to"
            f" train jobs that the simulation does not have; {limit} of {seconds:.3g} s"
        )


def measured(testbed: Testbed, setup: Setup) -> Emulation:
    """How a run's seconds were measured, at its end."""
    clock = testbed.real_clock
    late = [each / clock.dilation for each in clock.late] or [0.0]
    load = Load(
        cpu=testbed.busy,
        late_seconds_median=statistics.median(late),
        late_seconds_worst=max(late),
        paused_seconds=clock.paused / clock.dilation,
        paused_while_sending=clock.paused_while_sending / clock.dilation,
    )
    trust = [
        *doubts(load, seconds=clock.now, rounds=testbed.rounds, dilation=clock.dilation),
        *testbed.doubts_of_training(),
    ]
    return Emulation(
        dilation=clock.dilation,
        compute="real" if testbed.trains else "paced",
        queue="fair" if setup.transport.queue is None else "fifo",
        trust=tuple(trust),
        wire_bytes=testbed.wire_bytes(),
        load=load,
        machine={"processors": os.cpu_count(), "kernel": platform.release()},
    )


OPENING_SECONDS = 10.0
"""For connections to open before the first round."""

READING_SECONDS = 0.1
MOST_READINGS = 30
"""For so long packets may still be on their way when the last transfer has ended."""


class Testbed:
    """The real processes and links of one run, as its world uses them.

    Args:
        real_links: the processes and links, which are ready.
        dilation: real seconds for one second of the scenario.
        trainers: train the clients' jobs in real time; None if training takes the predicted seconds.
    """

    __test__ = False  # for pytest

    def __init__(self, real_links: RealLinks, *, dilation: float, trainers: Trainers | None = None) -> None:
        self._real_links = real_links
        self._nodes = real_links.nodes
        self.real_clock = RealClock(dilation, self)
        self._trainers = trainers
        self._network: RealNetwork | None = None
        self._arrived = 0
        self._log: EventLog | None = None
        self._worked_before = processor_seconds()
        self._meter = Meter(real_links)

    # What the world asks for

    def clock(self, log: EventLog) -> RealClock:
        self._log = log
        return self.real_clock

    def network(self, topology: Topology, *, observer: FlowObserver, transport: Transport) -> RealNetwork:
        self._network = RealNetwork(
            self.real_clock, topology, observer=observer, transport=transport, carrier=self._real_links
        )
        return self._network

    def wire_bytes(self) -> WireBytes:
        """The bytes on the clients' interfaces since the clock started; to be read at the end."""
        return self._meter.read()

    @property
    def rounds(self) -> int:
        return 0 if self._log is None else self._log.rounds

    @property
    def busy(self) -> float:
        """The share of the processors' time that was used since the clock started."""
        worked, could = (after - before for after, before in zip(processor_seconds(), self._worked_before, strict=True))
        return min(1.0, worked / max(could, 1.0))

    @property
    def trains(self) -> bool:
        """True if local training takes the time of a real process."""
        return self._trainers is not None

    def train(self, job: TrainingJob, slowdown: float) -> simpy.Event:
        """The event triggers when the job is done."""
        assert self._trainers is not None
        ended = self.real_clock.event()
        self._trainers.train(job, slowdown, ended)
        return ended

    def stop_training(self, job: TrainingJob) -> None:
        """End the training of a job; its event never triggers."""
        assert self._trainers is not None
        self._trainers.stop(job.id)

    def doubts_of_training(self) -> Iterator[str]:
        """Sentences about what makes the seconds of real training doubtful."""
        if self._trainers is not None:
            yield from starved(self._trainers.used, self._trainers.granted)

    # What the clock asks for

    def begin(self) -> None:
        """The clock is about to start."""
        self._real_links.open_connections(OPENING_SECONDS)
        self._meter.begin()
        self._worked_before = processor_seconds()

    def wait(self, seconds: float) -> bool:
        """Wait for reports, at most for these seconds; return True if there are any."""
        return bool(self._nodes.reports) or self._nodes.wait(seconds)

    def earliest(self) -> float | None:
        """The machine's time of the earliest unread report."""
        return min((report.get("at", 0.0) for report in self._nodes.reports), default=None)

    def handle(self) -> None:
        """Pass the earliest unread report to the world; the clock shows its moment."""
        report = min(self._nodes.reports, key=lambda each: each.get("at", 0.0))
        self._nodes.reports.remove(report)
        assert self._network is not None
        check_alive(report)
        if "arrived" in report:
            if not report["intact"]:
                raise EmulationFailed(f"transfer {report['arrived']} arrived with other bytes than were sent")
            self._network.arrived(report["arrived"])
        elif "opened" in report:
            self._real_links.opened(report)
        elif "trained" in report:
            assert self._trainers is not None
            self._trainers.trained(report)
        elif "failed" in report and self._network.is_under_way(report["failed"]):
            # Else its client has crashed, and the transfer was aborted.
            raise EmulationFailed(f"transfer {report['failed']} failed: {report['reason']}")

    @property
    def under_way(self) -> bool:
        return self._training or (self._network is not None and self._network.under_way)

    @property
    def blocked(self) -> bool:
        """True if each transfer in progress waits for a link without capacity."""
        return not self._training and self._network is not None and self._network.blocked

    def stuck(self) -> bool:
        """True if no byte has arrived since the last call, although links have capacity."""
        if self._training:
            return False
        assert self._network is not None
        before, self._arrived = self._arrived, self._network.bytes_under_way()
        return self._arrived == before and not self._network.blocked

    @property
    def _training(self) -> bool:
        return self._trainers is not None and self._trainers.busy


class Meter:
    """Reads the counters of links and connections when the clock starts, and at the end."""

    def __init__(self, real_links: RealLinks) -> None:
        self._links = real_links
        self._carried: dict[Pair, Carried] = {}
        self._sent: dict[Pair, int] = {}

    def begin(self) -> None:
        """What has been carried so far does not count."""
        self._carried, self._sent = self._links.counters(), self._links.sent_in_addition()

    def read(self) -> WireBytes:
        """The bytes since then; waits until what aborted transfers left behind has passed the links."""
        now = self._links.counters()
        for _ in range(MOST_READINGS):
            time.sleep(READING_SECONDS)
            before, now = now, self._links.counters()
            if now == before:
                break
        none = Carried(0, 0)
        carried = {ends: each.since(self._carried.get(ends, none)) for ends, each in now.items()}
        sent = {pair: count - self._sent.get(pair, 0) for pair, count in self._links.sent_in_addition().items()}
        return wire_bytes(self._links.wiring, carried, sent)


def wire_bytes(wiring: Wiring, carried: Mapping[Pair, Carried], sent: Mapping[Pair, int]) -> WireBytes:
    """The bytes on the clients' interfaces.

    What TCP sends beyond what transfers deliver passes a client's interface, unless a queue before it has lost it.
    """
    down = {link.ends for pair in wiring.routes if pair[1].startswith("client/") for link in wiring.route(*pair)}
    own = {"down": {ends for ends in carried if ends[1].startswith("client/")}}
    own["up"] = {ends for ends in carried if ends[0].startswith("client/")}
    before = {"down": down, "up": own["up"]}
    end = {"down": 1, "up": 0}
    figures = {}
    for name, place in end.items():
        figures[name] = sum(carried[ends].sent for ends in own[name])
        more = sum(count for pair, count in sent.items() if pair[place].startswith("client/"))
        figures[f"more_{name}"] = max(more - sum(carried[ends].lost for ends in before[name]), 0)
    return WireBytes(**figures)
