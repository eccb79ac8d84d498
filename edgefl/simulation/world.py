"""The world of one run: the clock, the network, a record of each client, and the log of all events."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import simpy

from edgefl.fleet import Heat, Pace, Slowdown, idle_joules
from edgefl.methods.parts.broadcasts import Broadcasts
from edgefl.methods.parts.payload import BASE, Downlink, Part, checked_downlink
from edgefl.network.fairness import Outlook
from edgefl.network.topology import Node
from edgefl.privacy.tally import Tally
from edgefl.record.events import ABSENT, Event, detail
from edgefl.record.kinds import EventKind, Lost
from edgefl.simulation.accounts import Accounts
from edgefl.simulation.clock import Clock
from edgefl.simulation.power import Meter
from edgefl.simulation.presence import Presence, schedule_failures
from edgefl.simulation.setup import Setup, Testbed
from edgefl.simulation.traffic import Traffic
from edgefl.simulation.work import Work, WorkModel
from edgefl.training.faults import blaming
from edgefl.training.job import JobId, Mixing, PeerMixing, TrainingJob

Ahead = tuple[int, int, float]
"""The bytes that a client receives and sends, and the seconds that it computes."""


@dataclass
class ClientRecord:
    """What the server has noted of one client, whose model has ``blocks`` blocks.

    The blocks that a job trains without a download for it are its *front blocks*: a job that receives the last α of M
    blocks has M-α of them. They are the client's own, from the end of the last job that it computed. A front block's
    *age* is the number of rounds (aggregations) between the model that the job starts from and the model from which the
    client last received that block, for a job that it computed or as a broadcast. All clients begin with the first
    model, so the age of a block that was never sent is counted from there.

    Every front block of every job that was computed to its end counts once, even if its update was late. So the mean
    age, ``blocks.front_age`` in ``summary.json``, is 1 where all clients take part in each round and every second round
    sends the whole model, and about N/K or more where K of N clients are drawn.

    >>> record = ClientRecord(4)
    >>> record.trained(round=0, alpha=4), record.trained(round=5, alpha=2), record.trained(round=6, alpha=1)
    ((0, 0), (2, 10), (3, 13))
    """

    blocks: int
    dispatched: int = 0  # the number of its next job
    last_job: JobId | None = None  # that was computed to its end
    held: int | None = None  # the last model version that it held completely
    front: int | None = None  # the version of the model that it was broadcast since its last job
    has_base: bool = False  # it has received the weights that are sent once
    begun: tuple[int, int] = (ABSENT, 0)  # the round in which it computed last, and how often it began to in that round
    _sent: list[int] = field(default_factory=list)  # the version of each block that it has received

    def received(self, round: int) -> None:
        """It has received a broadcast of the model that round ``round`` (from 0) begins with."""
        self.held = self.front = round
        self.has_base, self._sent = True, [round] * self.blocks

    def trained(self, round: int, alpha: int) -> tuple[int, int]:
        """It has computed a job from the model of ``round`` (from 0); its front blocks, and the sum of their ages."""
        front = self.blocks - alpha
        kept = (self._sent or [0] * self.blocks)[:front]
        self._sent = kept + [round] * alpha
        return front, round * front - sum(kept)


class World:
    """One run's world. Protocols act through it; each action writes a row to the log."""

    def __init__(self, setup: Setup, testbed: Testbed | None = None) -> None:
        self.setup = setup
        self._log = setup.log
        self.env = Clock() if testbed is None else testbed.clock
        # Trains in the time of real processes; None if the predicted seconds count.
        self.trainer = testbed if testbed is not None and testbed.trains else None
        goes_on = setup.stop == "rounds"
        self.accounts = Accounts(self.env, setup.log, setup.fleet, setup.seed, setup.limits, goes_on=goes_on)
        self.stopped = self.accounts.stopped
        self._broadcasts = Broadcasts(setup.method, setup.sizes)
        self.clients: dict[int, ClientRecord] = defaultdict(partial(ClientRecord, setup.sizes.blocks))
        self.cells_with_base = set[Node]()  # those that have received the weights that are sent once
        # which clients a selection could choose, and how often each was chosen
        self.seen, self.picks = np.zeros(setup.clients, np.bool_), np.zeros(setup.clients, np.int64)
        self.traffic = Traffic(self.env, setup, self.accounts, testbed)
        self._power = self.traffic.power
        self.presence = Presence(self.env, setup.fleet, setup.seed, self._power)
        self.tally = Tally()  # of secure aggregation
        setup.capacity_changes.attach(self.traffic.network)
        method = setup.method
        self.work = WorkModel(setup.cost, setup.fleet, setup.samples, method.local, self.new_work, method.submodels)
        self.slowdown, self.heat = Slowdown(setup.fleet, setup.seed), Heat(setup.fleet)
        if setup.prices is not None:
            setup.log.priced = Meter(self.env, setup.prices, setup.fleet, self._power, self.accounts).priced
        if setup.figures:
            self.accounts.totals |= {each.name: 0.0 for each in setup.figures}
            setup.log.watch = self._charge
        digests = setup.learner.digests(0) if setup.trains else None
        note = "" if digests is None else detail(model=digests.model)
        self.wrote("run", item=setup.label, value=setup.seed, detail=note)
        schedule_failures(self.env, setup.failures, self.traffic.network, self.presence, self._log)
        if (budget := setup.limits.seconds) is not None:
            self.env.alarm(budget.limit, last=True).callbacks.append(lambda _: self.accounts.exhaust(budget))

    def _charge(self, event: Event) -> None:
        for figure in self.setup.figures:
            with blaming(self.setup.label, event.round - 1, f"figure '{figure.name}'"):
                amount = 0.0 if figure.source is None else figure.source(event)
            if amount:
                charge = self.accounts.totals.charge if figure.total == "sum" else self.accounts.totals.raise_to
                charge(figure.name, amount)
        self.accounts.check()

    def downlink(self, client: int, round: int, alpha: int | None, *, anew: bool = False) -> Downlink:
        """What the client is sent; ``anew``: as if it had received nothing before."""
        with blaming(self.setup.label, round, "payload"):
            payload, held = self.setup.method.payload, None if anew else self.clients[client].held
            sizes = self.setup.sizes_of(self.level_of(client))
            downlink = checked_downlink(payload.downlink(sizes, round, alpha, held), sizes.blocks)
            self._broadcasts.check(downlink, round, held)
        if self.setup.base_bytes and not self.clients[client].has_base:
            downlink = downlink._replace(parts=(Part(BASE, self.setup.base_bytes, 0), *downlink.parts))
        return downlink

    def uplink(self, client: int, blocks: int | None = None) -> tuple[Part, ...]:
        """The parts that the client uploads, given the α of its work if that is known."""
        return self.setup.uplink(self.level_of(client), blocks if self.setup.method.objective.trains_last else None)

    def lacking(self, cell: Node, downlinks: Iterable[Downlink]) -> list[Part]:
        """The parts that a cell has to receive for these clients: each once, and a base once in a run."""
        needed = dict.fromkeys(part for each in downlinks for part in each.parts)
        return [part for part in needed if part.name != BASE or cell not in self.cells_with_base]

    def bytes_of(self, client: int, round: int, alpha: int | None = None) -> tuple[int, int]:
        """The bytes of a downlink of a client, given what it holds, and of an uplink."""
        down, up = self.downlink(client, round, alpha).parts, self.uplink(client)
        return sum(part.bytes for part in down), sum(part.bytes for part in up)

    def level_of(self, client: int) -> int:
        """The client's capacity level; 0 for methods without levels."""
        return self.work.level_of(client, self.setup.sizes.blocks)

    def next_job(self, client: int, round: int, alpha: int, steps: int) -> TrainingJob:
        record = self.clients[client]
        record.dispatched += 1
        return TrainingJob(
            id=JobId(self.setup.label, self.setup.seed, client, record.dispatched - 1),
            version=round,
            round=round,
            alpha=alpha,
            steps=steps,
            previous=record.last_job if self.setup.method.state is not None else None,
            level=self.level_of(client),
            front=record.front if alpha < self.setup.sizes.blocks else None,
        )

    def received(self, client: int, round: int) -> None:
        """The client has received a broadcast of the model that round ``round`` begins with."""
        self.clients[client].received(round)
        if self.setup.method.payload.sends_blocks:  # else no job will train blocks of this version
            self.setup.learner.received(client, round)

    def begun(self, client: int, round: int) -> int:
        """The number of times that the client has begun to compute in this round (from this model version) so far."""
        last, times = self.clients[client].begun
        return times if last == round else 0

    def compute_started(self, job: TrainingJob, work: Work) -> None:
        client = job.id.client
        facts: dict[str, object] | None = None if job.front is None else {"front": job.front}
        self._wrote_work("compute_start", work, *job.place, value=job.steps, facts=facts)
        self.clients[client].begun = (job.round, self.begun(client, job.round) + 1)
        self._power.phase(client, work.watts)

    def pace(self, client: int, round: int, work: Work, again: int) -> Pace:
        """The pace of a computation in this round after ``again`` earlier ones; each has its own random slowdown."""
        slowdown = 1.0 if self.slowdown.steady else float(self.slowdown.of(round, again)[client])
        if self.setup.seconds is None:
            return work.pace(slowdown, self.heat.of(client, self.env.now))
        seconds = float(self.setup.seconds.of(round)[client]) * slowdown
        return Pace(seconds, seconds)

    def foreseen_compute(self, client: int, round: int, work: Work) -> float:
        """The seconds of its local training on an undisturbed device."""
        return work.seconds if self.setup.seconds is None else float(self.setup.seconds.of(round)[client])

    def framework(self, client: int, received: float, sent: float) -> float:
        """The framework's seconds in a participation that receives and sends so many bytes."""
        return self.before_training(client, received) + self.before_sending(client, sent)

    def before_training(self, client: int, received: float) -> float:
        first, device = client not in self.presence.started, self.setup.fleet.profile_of(client)
        return self.setup.overhead.before_training(device, received, first=first)

    def before_sending(self, client: int, sent: float) -> float:
        return self.setup.overhead.before_sending(self.setup.fleet.profile_of(client), sent)

    def outlook(
        self, client: int, round: int, alpha: int, *, up: bool, deadline: float = math.inf, ahead: Ahead | None = None
    ) -> Outlook | None:
        """What an allocation is told of a transfer; None: equal shares. If nothing is ``ahead``, the client trains."""
        if self.setup.bandwidth is None:
            return None
        if up:
            return Outlook(up=True, deadline=deadline)
        if ahead is None:
            work = self.work.of(client, alpha)
            ahead = *self.bytes_of(client, round, alpha), self.foreseen_compute(client, round, work)
        received, sent, compute = ahead
        upload = self.traffic.foreseen(client, "up").seconds(sent)
        compute += self.framework(client, received, sent)
        after = compute + (upload if upload < math.inf else 0.0)
        return Outlook(after=after, deadline=deadline)

    def computing(self, job: TrainingJob, work: Work, seconds: float) -> simpy.Event:
        """An event at the end of the computation, which is predicted to take these seconds."""
        if self.trainer is None:
            return self.env.timeout(seconds)
        return self.trainer.train(job, seconds / (work.seconds * self.work.begun(work, job.steps)[0]))

    def compute_ended(self, job: TrainingJob, work: Work, pace: Pace) -> None:
        """The computation ends after the job's local steps, which may be fewer than the work's."""
        if job.steps >= work.steps:
            self._computed("compute_end", job, work, spent=pace.seconds, steps=work.steps, flops=work.flops)
        else:
            seconds, flops = self.work.begun(work, job.steps)
            facts = {"spent": pace.until(seconds), "flops": work.flops * flops}
            self._computed("compute_partial", job, work, steps=job.steps, **facts)
        record = self.clients[job.id.client]
        record.last_job, record.front = job.id, None
        received = self.setup.sizes.blocks if self.setup.method.objective.trains_last else work.alpha
        blocks, rounds = record.trained(job.round, received)
        self.accounts.totals.charge("front_blocks", blocks)
        self.accounts.totals.charge("front_block_rounds", rounds)

    def compute_broken_off(self, job: TrainingJob, work: Work, pace: Pace, seconds: float) -> None:
        """The computation is aborted after ``seconds``; FLOPs count for the completed part, joules for its duration."""
        if self.trainer is not None:
            self.trainer.stop_training(job)
        share = pace.done(seconds) if pace.seconds else 1.0
        steps = self.work.reached(work, share)
        flops = work.flops * (share if work.number is not None else self.work.begun(work, steps)[1])
        self._computed("compute_drop", job, work, spent=seconds, steps=steps, flops=flops)

    def _computed(
        self, kind: EventKind, job: TrainingJob, work: Work, *, spent: float, steps: float, flops: float
    ) -> None:
        client, joules = job.id.client, work.watts * spent
        self.heat.computed(client, spent, self.env.now)
        self._wrote_work(kind, work, *job.place, seconds=spent, flops=flops, joules=joules, value=steps)
        self.accounts.totals.charge("flops", flops)
        self._drew(client, joules)

    def _drew(self, client: int, joules: float) -> None:
        self.accounts.drew(client, joules)
        self._power.phase(client)
        self.accounts.check()

    def forward(self, client: int, round: int, images: int) -> Work:
        """A forward pass on as many images, on an undisturbed device."""
        blocks, group, level = self.setup.sizes.blocks, int(self.setup.fleet.group[client]), self.level_of(client)
        work = self.work.forward(self.setup.fleet.profiles[group], blocks, images, group=group, level=level)
        if self.setup.seconds is None:
            return work
        training = self.work.of(client, blocks)
        trained = sum(size * count for size, count in training.batches.items())
        return replace(work, seconds=self.foreseen_compute(client, round, training) * images / (3 * trained))

    def evaluated(self, client: int, round: int, work: Work, seconds: float, *place: int) -> None:
        """The client has applied a model to the work's images for the last ``seconds``; ``place``: its job, if any."""
        flops = work.flops * (seconds / work.seconds if work.seconds else 1.0)
        joules = work.watts * seconds if place else self._power.given(client, work.watts * seconds)  # no timer
        columns: dict[str, Any] = {"seconds": seconds, "flops": flops, "joules": joules, "value": work.samples}
        self._wrote_work("forward", work, round, client, *place, **columns)
        self.accounts.totals.charge("flops", flops)
        self._drew(client, joules)

    def waited(self, round: int, client: int, dispatch: int, seconds: float, *, prefetching: bool = False) -> None:
        """The client was awake without computing; ``prefetching``: outside a round, where no timer watches."""
        joules = idle_joules(self.setup.fleet.profile_of(client), seconds)
        if prefetching:
            joules = self._power.given(client, joules)
        self.wrote("idle", round, client, dispatch, seconds=seconds, joules=joules)
        self._drew(client, joules)

    def secured(self, client: int, stage: str, watts: float, seconds: float, place: tuple[int, int, int]) -> None:
        """The client has computed keys, shares or masks for the last ``seconds``."""
        joules = watts * seconds
        self.wrote("secure", *place, item=stage, seconds=seconds, joules=joules)
        self._drew(client, joules)

    def refused(self, job: TrainingJob, work: Work) -> None:
        self._wrote_work("refused", work, *job.place, bytes=work.peak_memory_bytes)

    def round_begins(self, round: int, cohort: Sequence[int]) -> None:
        """A round begins; capacities that are redrawn by rounds are redrawn."""
        self.wrote("round_start", round, value=len(cohort))
        self.setup.capacity_changes.round_begins(self.traffic.network, round)

    def decided(self, round: int, what: str, reads: frozenset[str], **facts: object) -> None:
        """A decision was made; ``reads`` are the names of its inputs."""
        self.wrote("decision", round, item=what, detail=detail(reads=sorted(reads), **facts))

    def aggregated(self, round: int, jobs: Sequence[TrainingJob], mixing: Mixing | PeerMixing | None = None) -> None:
        """The results of ``jobs`` became the next model; the bytes of their clients were useful."""
        facts: dict[str, object] = {"clients": [job.id.client for job in jobs]}
        facts["dispatches"] = [job.id.dispatch for job in jobs]
        if isinstance(mixing, PeerMixing):
            facts["missing"] = mixing.missing
        elif mixing is not None:
            facts["staleness"] = [round - job.version for job in jobs]
            facts["factors"] = [mixing.factors[job.id] for job in jobs]
        if self.setup.trains and (digests := self.setup.learner.digests(round + 1)) is not None:
            facts |= digests._asdict()
        self.wrote("aggregation", round, value=len(jobs), detail=detail(**facts))
        for job in jobs:
            self.accounts.totals.charge("bytes_useful", self.traffic.carried(job.id.client, job.id.dispatch))

    def lost(self, round: int, client: int, dispatch: int, fate: Lost) -> None:
        bytes = self.traffic.carried(client, dispatch)
        self.wrote("lost", round, client, dispatch, item=fate, bytes=bytes)
        if fate != "unfinished":  # the rest of the bytes
            self.accounts.totals.charge(f"bytes_{fate}", bytes)

    def wrote(self, kind: EventKind, *place: int, **columns: Any) -> None:
        """Log a row now; ``place`` is its round (from 0), its client and the number of the client's job, if it has any.

        A ``dropout`` has a reason: ``unavailable``, ``battery``, ``uncharged`` (empty since it was picked),
        ``accident``, or a failed transfer of its own (``timeout``) or of its cell (``backhaul``).
        """
        self._log.write(self.env.now, kind, *place, **columns)

    def new_work(self, work: Work, **other: float) -> None:
        """Log work that occurs for the first time, with its seconds that are not the roofline's, if it has such."""
        self._wrote_work(
            "work",
            work,
            bytes=work.peak_memory_bytes,
            seconds=work.seconds,
            flops=work.flops,
            joules=work.joules,
            value=work.steps,
            facts={
                "batches": {str(size): count for size, count in work.batches.items()},
                "fits": work.fits,
                "hot_seconds": work.hot_seconds,
                **({} if self.setup.method.submodels is None else {"level": work.level}),
                **other,
            },
        )

    def _wrote_work(
        self, kind: EventKind, work: Work, *place: int, facts: Mapping[str, object] | None = None, **columns: Any
    ) -> None:
        if work.number is not None:
            facts = {**(facts or {}), "work": work.number}
        if work.chosen:
            facts = {**(facts or {}), "steps": work.steps}
        if facts is not None:
            columns["detail"] = detail(**facts)
        kinds = {"group": work.group, "alpha": work.alpha, "images": work.samples, "item": work.device}
        self.wrote(kind, *place, **kinds, **columns)
