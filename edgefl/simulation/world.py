"""The world of one run: the clock, the network, what clients hold, and the log that sees everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import simpy
from simpy.events import EventPriority

from edgefl.fleet import DeviceProfile, Pace, Slowdown, idle_joules, transfer_joules
from edgefl.fleet.battery import Charges
from edgefl.learning.job import JobId, Mixing, TrainingJob
from edgefl.learning.payload import Downlink, Part
from edgefl.network.flow import Flow, Node
from edgefl.network.flow_network import FlowNetwork
from edgefl.simulation.batteries import Batteries
from edgefl.simulation.ledger import Ledger
from edgefl.simulation.log import Event, detail
from edgefl.simulation.presence import Presence
from edgefl.simulation.protocol_specs import HierarchicalSpec
from edgefl.simulation.radio import Radios
from edgefl.simulation.setup import Setup
from edgefl.simulation.transfer import Direction, Transfer
from edgefl.simulation.work import Work, WorkModel

_AFTER_THE_NETWORK = EventPriority(3)  # the network settles an instant at priority 2; a budget ends it after that


class World:
    """One run's world. Protocols act through it; every act is a row of the log.

    Args:
        setup: everything that the run depends on.

    Attributes:
        stopped: triggers, with the reason as its value, when the run is to end.
        held: the last model version that each client held completely.
        last_job: each client's last job that was computed to its end.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.env = simpy.Environment()
        self.log = setup.log
        self.ledger = Ledger()
        self.stopped: simpy.Event = self.env.event()
        self.held: dict[int, int] = {}
        self.last_job: dict[int, JobId] = {}
        self._dispatched: defaultdict[int, int] = defaultdict(int)
        self._begun: dict[int, tuple[int, int]] = {}
        self._moved: defaultdict[int, float] = defaultdict(float)
        self._carried: defaultdict[tuple[int, int], float] = defaultdict(float)
        self.network = FlowNetwork(self.env, setup.topology, observer=self, transport=setup.transport)
        charges = Charges([profile.battery for profile in setup.fleet.profiles], setup.fleet.group, setup.seed)
        self.radios = Radios(self.env, self.device, self._radio_drew)
        self.batteries = Batteries(self.env, charges, self.network, self.radios)
        self.presence = Presence(self.env, setup.fleet, setup.seed, self.batteries)
        setup.weather.attach(self.network)
        self.work = WorkModel(setup.cost, setup.fleet, setup.samples, setup.method.local, self._new_work)
        self.slowdown = Slowdown(setup.fleet, setup.seed)
        self._write("run", item=setup.label, value=setup.seed)
        budget = setup.limits.seconds
        if budget is not None:
            limit = budget.limit
            self.alarm(limit).callbacks.append(lambda _: self._exhausted("seconds", limit))

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return float(self.env.now)

    def device(self, client: int) -> DeviceProfile:
        """The device of a client."""
        return self.setup.fleet.profile_of(client)

    # What the clients do

    def downlink(self, client: int, round: int, alpha: int | None) -> Downlink:
        """What the client must be sent for a round, given what it holds."""
        return self.setup.method.payload.downlink(self.setup.sizes, round, alpha, self.held.get(client))

    def send(
        self,
        client: int,
        direction: Direction,
        parts: Sequence[Part],
        round: int,
        dispatch: int,
        *,
        early: bool = False,
    ) -> Flow:
        """Start one flow that carries ``parts`` to or from the client, for its job number ``dispatch``."""
        source, target = self._ends(client, direction)
        transfer = Transfer(client, round, dispatch, direction, tuple(parts), early)
        return self.network.transfer(source, target, transfer.bytes, tag=transfer, payload=transfer.payload)

    def _ends(self, client: int, direction: Direction) -> tuple[Node, Node]:
        ends: tuple[Node, Node] = (self.gate(client), f"client/{client}")
        return ends if direction == "down" else ends[::-1]

    def gate(self, client: int) -> Node:
        """Whom the client deals with: the server or, where cells average, its cell, the last node on the way to it."""
        if not isinstance(self.setup.protocol, HierarchicalSpec):
            return "server"
        links = self.network.topology
        return links.ends(links.path("server", f"client/{client}")[-1])[0]

    def relay(self, source: Node, target: Node, parts: Sequence[Part], round: int, *, early: bool = False) -> Flow:
        """Start one flow between the server and a cell."""
        direction: Direction = "down" if source == "server" else "up"
        transfer = Transfer(-1, round, -1, direction, tuple(parts), early)
        return self.network.transfer(source, target, transfer.bytes, tag=transfer, payload=transfer.payload)

    def foreseen_seconds(self, client: int, direction: Direction, bytes: float) -> float:
        """What a transfer would take alone on its path at the present capacities; infinite where a link is down."""
        return self.network.seconds_alone(*self._ends(client, direction), bytes)

    def dispatches(self, client: int) -> int:
        """How many jobs the client was given so far, which is the number of its next one."""
        return self._dispatched[client]

    def next_job(self, client: int, round: int, alpha: int, steps: int) -> TrainingJob:
        """The client's next training job; its number counts the client's dispatches."""
        dispatch = self._dispatched[client]
        self._dispatched[client] += 1
        return TrainingJob(
            id=JobId(self.setup.label, self.setup.seed, client, dispatch),
            version=round,
            round=round,
            alpha=alpha,
            steps=steps,
            previous=self.last_job.get(client) if self.setup.method.state is not None else None,
        )

    def begun(self, client: int, round: int) -> int:
        """How many times the client has begun to compute in this round (from this model version) so far."""
        last, times = self._begun.get(client, (round, 0))
        return times if last == round else 0

    def compute_started(self, client: int, round: int, work: Work, steps: int) -> None:
        """The client's device begins to train, for so many local steps."""
        self._write("compute_start", round, client, item=work.key, value=steps)
        self._begun[client] = (round, self.begun(client, round) + 1)
        self.batteries.phase(client, computing=True)

    def pace(self, client: int, round: int, work: Work) -> Pace:
        """The course of the client's next computation in this round; another one has another moment's luck."""
        slowdown = float(self.slowdown.of(round, self.begun(client, round))[client])
        if self.setup.seconds is None:
            return work.pace(slowdown)
        seconds = float(self.setup.seconds.of(round)[client]) * slowdown
        return Pace(seconds, seconds)

    def foreseen_compute(self, client: int, round: int, work: Work) -> float:
        """What its local training would take, were the device undisturbed."""
        return work.seconds if self.setup.seconds is None else float(self.setup.seconds.of(round)[client])

    def compute_ended(self, client: int, round: int, work: Work, pace: Pace, steps: int) -> None:
        """It ends after ``steps`` local steps, all of them or fewer."""
        if steps >= work.steps:
            self._computed("compute_end", client, round, work, spent=pace.seconds, share=1.0)
        else:
            share = steps / work.steps
            self._computed("compute_partial", client, round, work, spent=pace.until(share), share=share)

    def compute_broken_off(self, client: int, round: int, work: Work, pace: Pace, seconds: float) -> None:
        """It breaks off after ``seconds``; FLOPs count as far as it came, joules for as long as it took."""
        share = pace.done(seconds) if pace.seconds else 1.0
        self._computed("compute_drop", client, round, work, spent=seconds, share=share)

    def _computed(self, kind: str, client: int, round: int, work: Work, *, spent: float, share: float) -> None:
        joules = work.watts * spent
        self._write(
            kind,
            round,
            client,
            item=work.key,
            seconds=spent,
            flops=work.flops * share,
            joules=joules,
            value=work.steps * share,
        )
        self.ledger.computed(work.flops * share, spent)
        self._drew(client, joules)
        self.batteries.phase(client, computing=False)
        self._check_budgets()

    def waited(self, client: int, round: int, seconds: float, *, beside: bool = False) -> None:
        """The client was awake without computing for ``seconds`` up to now, and drew its idle watts.

        ``beside`` its part in a round, while something was sent ahead, no timer watches its battery.
        """
        joules = idle_joules(self.device(client), seconds)
        if beside:
            joules = self.batteries.given(client, joules)
        self._write("idle", round, client, seconds=seconds, joules=joules)
        self._drew(client, joules)
        self.batteries.phase(client, computing=False)
        self._check_budgets()

    def refused(self, client: int, round: int, work: Work) -> None:
        """The client's device has not the memory for its job."""
        profile = self.device(client)
        self._write("refused", round, client, item=profile.name, bytes=work.peak_memory_bytes)

    def _drew(self, client: int, joules: float) -> None:
        self.ledger.joules += joules
        self.batteries.charges.draw(client, joules)

    def _radio_drew(self, client: int, round: int, what: str, seconds: float, joules: float) -> None:
        joules = self.batteries.given(client, joules)
        self._write("radio", round, client, item=what, seconds=seconds, joules=joules)
        self._drew(client, joules)
        self._check_budgets()

    def dropped_out(self, client: int, round: int, reason: str) -> None:
        """The device has left the round by itself: ``unavailable``, ``uncharged``, ``battery`` or ``accident``.

        A device is ``uncharged`` whose battery ran empty after it was picked and before its part began.
        """
        self._write("dropout", round, client, item=reason)

    # What the server does

    def round_begins(self, round: int, cohort: Sequence[int]) -> None:
        """A round begins; capacities that are redrawn by rounds are redrawn."""
        self._write("round_start", round, value=len(cohort))
        self.setup.weather.round_begins(self.network, round)

    def decided(self, round: int, what: str, reads: frozenset[str], **facts: object) -> None:
        """A decision was taken; ``reads`` names the inputs that it depended on."""
        self._write("decision", round, item=what, detail=detail(reads=sorted(reads), **facts))

    def aggregated(self, round: int, jobs: Sequence[TrainingJob], mixing: Mixing | None = None) -> None:
        """The results of ``jobs`` became the next model; what their clients were sent and sent was useful."""
        facts: dict[str, object] = {"clients": [job.id.client for job in jobs]}
        facts["dispatches"] = [job.id.dispatch for job in jobs]
        if mixing is not None:
            facts["staleness"] = [round - job.version for job in jobs]
            facts["factors"] = [mixing.factors[job.id] for job in jobs]
        self._write("aggregation", round, value=len(jobs), detail=detail(**facts))
        for job in jobs:
            self.ledger.bytes_useful += self._carried.pop((job.id.client, job.id.dispatch), 0.0)

    def lost(self, client: int, round: int, dispatch: int, fate: str) -> None:
        """The client's job will not be aggregated: what it was sent and sent was for nothing."""
        bytes = self._carried.pop((client, dispatch), 0.0)
        self._write("lost", round, client, item=fate, bytes=bytes, value=dispatch)
        self.ledger.lost(fate, bytes)

    def wrote(
        self, kind: str, round: int, client: int = -1, *, item: str = "", value: float = 0.0, note: str = ""
    ) -> None:
        """Log a fact that moves nothing: an evaluation, a target reached, a client's feedback."""
        self._write(kind, round, client, item=item, value=value, detail=note)

    # What the network tells (FlowObserver)

    def flow_started(self, flow: Flow) -> None:
        """A transfer has been asked for."""
        tag: Transfer = flow.tag  # type: ignore[assignment]
        path = [*(str(self.network.topology.ends(link)[0]) for link in flow.path), str(flow.target)]
        facts = {} if flow.multicast is None else {"multicast": flow.multicast}
        self._write(
            "transfer_start",
            tag.round,
            tag.client,
            item=tag.item,
            flow=flow.id,
            source=str(flow.source),
            target=str(flow.target),
            bytes=flow.bytes,
            value=flow.latency,
            detail=detail(
                path=path, dispatch=tag.dispatch, parts={part.name: part.bytes for part in tag.parts}, **facts
            ),
        )
        if tag.client >= 0:
            self.radios.starts(tag.client, tag.round)
            self.batteries.flow_started(tag.client, flow)

    def flow_ended(self, flow: Flow) -> None:
        """A transfer is complete."""
        self._transferred("transfer_end", flow)

    def flow_cancelled(self, flow: Flow) -> None:
        """A transfer was broken off."""
        self._transferred("transfer_drop", flow)

    def capacity_changed(self, source: Node, target: Node, bits_per_second: float) -> None:
        """A link that is in use has another capacity from now on."""
        self._write("capacity", source=str(source), target=str(target), value=bits_per_second)
        if self.batteries.charges.any:
            self.batteries.capacity_changed(self.network.topology.link(source, target))

    def capacities_repeated(self, since: float, period: float, times: int) -> None:
        """What capacities and transfers did in the ``period`` seconds from ``since`` on they did again, and again."""
        self._write("repetition", seconds=period, value=times, detail=detail(since=since))

    def _transferred(self, kind: str, flow: Flow) -> None:
        tag: Transfer = flow.tag  # type: ignore[assignment]
        seconds = self.now - flow.started
        # Parts are whole bytes; of a broken-off transfer whole bytes count, so that sums are exact.
        delivered = float(int(flow.delivered + 1e-6))
        relayed = tag.client < 0
        joules = 0.0
        if not relayed:
            due = transfer_joules(self.device(tag.client), tag.direction, seconds, delivered)
            joules = self.batteries.given(tag.client, due, flow)
        self._write(
            kind,
            tag.round,
            tag.client,
            item=tag.item,
            flow=flow.id,
            source=str(flow.source),
            target=str(flow.target),
            bytes=delivered,
            seconds=seconds,
            joules=joules,
        )
        if relayed:
            self.ledger.bytes_backhaul += delivered
            return
        self.ledger.moved(tag.direction, delivered, seconds)
        self._drew(tag.client, joules)
        self.radios.ends(tag.client, tag.round)
        self.batteries.flow_over(tag.client, flow)
        self._moved[tag.client] += delivered
        self.ledger.client_bytes = max(self.ledger.client_bytes, self._moved[tag.client])
        self._carried[tag.client, tag.dispatch] += delivered
        self._check_budgets()

    # How a run ends

    def stop(self, reason: str) -> None:
        """End the run at this instant, once."""
        if not self.stopped.triggered:
            self.stopped.succeed(reason)

    def _check_budgets(self) -> None:
        for budget in self.setup.limits.newly_exhausted(self.ledger):
            self._exhausted(budget.kind, budget.limit)

    def alarm(self, delay: float) -> simpy.Event:
        """An event ``delay`` seconds from now, after everything else that happens at that instant."""
        bell = self.env.event()
        bell._ok, bell._value = True, None
        self.env.schedule(bell, _AFTER_THE_NETWORK, delay)
        return bell

    def _exhausted(self, kind: str, limit: float) -> None:
        self._write("budget", item=kind, value=limit)
        if self.setup.stop != "rounds":
            self.stop(kind)

    def _new_work(self, work: Work, profile: DeviceProfile) -> None:
        self._write(
            "work",
            item=work.key,
            bytes=work.peak_memory_bytes,
            seconds=work.seconds,
            flops=work.flops,
            joules=work.joules,
            value=work.steps,
            detail=detail(
                profile=profile.name,
                alpha=work.alpha,
                samples=work.samples,
                batches={str(size): count for size, count in work.batches.items()},
                fits=work.fits,
                hot_seconds=work.hot_seconds,
            ),
        )

    def _write(
        self,
        kind: str,
        round: int = -2,
        client: int = -1,
        *,
        item: str = "",
        flow: int = -1,
        source: str = "",
        target: str = "",
        bytes: float = 0.0,
        seconds: float = 0.0,
        flops: float = 0.0,
        joules: float = 0.0,
        value: float = 0.0,
        detail: str = "",
    ) -> None:
        # Rounds count from 0 in the world (a round's number is the version it trains from) and from 1 in the log.
        now = float(self.env.now)
        self.log.write(
            Event(
                now, kind, round + 1, client, item, flow, source, target, bytes, seconds, flops, joules, value, detail
            )
        )
