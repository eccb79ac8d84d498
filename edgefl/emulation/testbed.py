"""One run's real world: starts its processes and links, carries its transfers, and watches its own load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import simpy

from edgefl.emulation.carried_network import CarriedNetwork
from edgefl.emulation.failure import EmulationFailed
from edgefl.emulation.history import History
from edgefl.emulation.nodes import check_alive
from edgefl.emulation.real_clock import RealClock
from edgefl.emulation.real_links import RealLinks
from edgefl.emulation.repeated_carrier import RepeatedCarrier
from edgefl.emulation.trainers import Trainers
from edgefl.emulation.trust import processor_seconds, starved
from edgefl.emulation.wire_bytes import Meter
from edgefl.network.flow import FlowObserver
from edgefl.network.topology import Topology
from edgefl.network.transport import Transport
from edgefl.record.emulation import WireBytes
from edgefl.record.events import Event
from edgefl.record.listener import EventLog
from edgefl.training.job import JobId, TrainingJob

OPENING_SECONDS = 10.0
"""How long connections may take to open before the first round."""


class Testbed:
    """The real processes and links of one run, as its world uses them.

    Args:
        real_links: the processes and links, which are ready.
        dilation: real seconds for one second of the scenario.
        trainers: train the clients' jobs in real time; None if training takes the predicted seconds.
        past: the log of measured rounds that are repeated first, because the run was interrupted.

    Attributes:
        real_clock: the run's clock.
        repeated_rounds: the number of rounds that are repeated.
    """

    __test__ = False  # for pytest

    def __init__(
        self,
        real_links: RealLinks,
        *,
        dilation: float,
        trainers: Trainers | None = None,
        past: Sequence[Event] = (),
    ) -> None:
        self._real_links = real_links
        self._nodes = real_links.nodes
        self._history = History(past, trains=trainers is not None) if past else None
        self.repeated_rounds = 0 if self._history is None else self._history.rounds
        self.real_clock = RealClock(dilation, self, self._history)
        self._repeated: RepeatedCarrier | None = None
        if self._history is not None:
            self._repeated = RepeatedCarrier(real_links, self._history, self.real_clock.start)
        self._postponed: dict[JobId, tuple[TrainingJob, float, simpy.Event]] = {}
        self._trainers = trainers
        self._network: CarriedNetwork | None = None
        self._arrived = 0
        self._log: EventLog | None = None
        self._began = 0.0
        self._worked_before = processor_seconds()
        self._meter = Meter(real_links)

    # What the world asks for

    def clock(self, log: EventLog) -> RealClock:
        """The run's clock; the world writes its rows to this log."""
        self._log = log
        if self._history is not None:
            self._history.follow(log)
        return self.real_clock

    def network(self, topology: Topology, *, observer: FlowObserver, transport: Transport) -> CarriedNetwork:
        """The run's network."""
        carrier = self._repeated or self._real_links
        self._network = CarriedNetwork(
            self.real_clock, topology, observer=observer, transport=transport, carrier=carrier
        )
        return self._network

    def wire_bytes(self) -> WireBytes:
        """What the clients' interfaces have carried since the clock started; to be read at the end."""
        return self._meter.read()

    @property
    def measured_seconds(self) -> float:
        """The scenario's seconds that were measured here, without those that were repeated."""
        return self.real_clock.now - self._began

    @property
    def measured_rounds(self) -> int:
        """The rounds that ended in them."""
        return 0 if self._log is None else self._log.rounds - self.repeated_rounds

    @property
    def busy(self) -> float:
        """The share of their time for which the processors have worked since the clock started."""
        worked, could = (after - before for after, before in zip(processor_seconds(), self._worked_before, strict=True))
        return min(1.0, worked / max(could, 1.0))

    @property
    def trains(self) -> bool:
        """Whether local training takes the time of a real process."""
        return self._trainers is not None

    def train(self, job: TrainingJob, slowdown: float) -> simpy.Event:
        """Train a job in a process; the event triggers when it is done."""
        assert self._trainers is not None
        ended = self.real_clock.event()
        if self._repeats:
            self._postponed[job.id] = job, slowdown, ended
        else:
            self._trainers.train(job, slowdown, ended)
        return ended

    def stop_training(self, job: TrainingJob) -> None:
        """End the training of a job; its event never triggers."""
        assert self._trainers is not None
        if self._postponed.pop(job.id, None) is None:
            self._trainers.stop(job.id)

    def doubts_of_training(self) -> Iterator[str]:
        """Sentences about what makes the seconds of real training doubtful."""
        if self._trainers is not None:
            yield from starved(self._trainers.used, self._trainers.granted)

    # What the clock asks for

    def begin(self) -> None:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        if self._repeated is not None:
            self._repeated.prepare()
        self._real_links.open_connections(OPENING_SECONDS)
        self._meter.begin()
        self._worked_before = processor_seconds()
        self._began = self.real_clock.now

    def go_live(self) -> None:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        assert self._repeated is not None
        self._repeated.go_live()
        for job, slowdown, ended in self._postponed.values():
            assert self._trainers is not None
            self._trainers.train(job, slowdown, ended)
        self._postponed = {}

    def wait(self, seconds: float) -> bool:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        return bool(self._nodes.reports) or self._nodes.wait(seconds)

    def earliest(self) -> float | None:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        return min((report.get("at", 0.0) for report in self._nodes.reports), default=None)

    def handle(self) -> None:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
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

    def repeat(self, row: Event) -> None:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        if row.kind == "transfer_end":
            assert self._network is not None
            assert self._repeated is not None
            self._repeated.arrived(row.flow)
            self._network.arrived(row.flow)
        else:
            job = next((each for each in self._postponed if (each.client, each.dispatch) == row.job), None)
            if job is not None:  # else the run differs, which its journal finds
                self._postponed.pop(job)[2].succeed()

    @property
    def under_way(self) -> bool:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        return self._training or (self._network is not None and self._network.under_way)

    @property
    def blocked(self) -> bool:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        return not self._training and self._network is not None and self._network.blocked

    def stuck(self) -> bool:
        """See :class:`~edgefl.emulation.real_clock.Reporter`."""
        if self._training:
            return False
        assert self._network is not None
        before, self._arrived = self._arrived, self._network.bytes_under_way()
        return self._arrived == before and not self._network.blocked

    @property
    def _repeats(self) -> bool:
        return self._history is not None and self._history.active

    @property
    def _training(self) -> bool:
        return self._trainers is not None and self._trainers.busy
