"""Asynchronous aggregation: clients start and finish at any time; the server aggregates once it has enough updates."""

import math
from collections.abc import Generator
from typing import Annotated, Literal

import numpy as np
import simpy
from pydantic import BeforeValidator, Field, Tag

from edgefl.methods.fits import Need
from edgefl.methods.parts.payload import Part
from edgefl.methods.parts.server import Weighting
from edgefl.options import Options, kind_or, of_kind
from edgefl.record.events import detail
from edgefl.simulation.decisions import Decisions
from edgefl.simulation.participation import Participation
from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.protocols.base import PROTOCOLS, Course, ProtocolSpec
from edgefl.simulation.rounds import STALL_ROUNDS, RoundBook
from edgefl.simulation.world import World
from edgefl.training.faults import blaming
from edgefl.training.job import Mixing


class ConstantStaleness(Options):
    """s(τ) = 1: an old update has the weight of a new one."""

    kind: Literal["constant"] = Field(default="constant", description="constant: the same weight for all updates")

    def factor(self, staleness: int) -> float:
        return 1.0


class PolynomialStaleness(Options, allow_inf_nan=False):
    """s(τ) = (1 + τ)^-a (FedAsync's polynomial; a = 1/2 is FedBuff's).

    >>> PolynomialStaleness().factor(3)
    0.5
    """

    kind: Literal["polynomial"] = Field(default="polynomial", description="polynomial: (1 + τ)^-exponent")
    exponent: float = Field(default=0.5, ge=0, description="a")

    def factor(self, staleness: int) -> float:
        return float((1 + staleness) ** -self.exponent)


class HingeStaleness(Options, allow_inf_nan=False):
    """s(τ) = 1 up to ``grace`` aggregations, 1 / (slope · (τ - grace) + 1) beyond (Xie et al. 2019, Sec. 5.2).

    >>> HingeStaleness().factor(4), HingeStaleness(slope=1.0).factor(5)
    (1.0, 0.5)
    """

    kind: Literal["hinge"] = Field(default="hinge", description="hinge: 1 up to grace, 1 / (slope · (τ - grace) + 1)")
    slope: float = Field(default=10.0, gt=0, description="how fast the factor falls beyond the grace")
    grace: int = Field(default=4, ge=0, description="age in aggregations up to which an update has its full weight")

    def factor(self, staleness: int) -> float:
        return 1.0 if staleness <= self.grace else 1 / (self.slope * (staleness - self.grace) + 1)


Staleness = Annotated[
    Annotated[ConstantStaleness, Tag("constant")]
    | Annotated[PolynomialStaleness, Tag("polynomial")]
    | Annotated[HingeStaleness, Tag("hinge")],
    kind_or("polynomial"),
    BeforeValidator(
        of_kind,
        json_schema_input_type=Literal["constant", "polynomial", "hinge"]
        | ConstantStaleness
        | PolynomialStaleness
        | HingeStaleness,
    ),
]
"""The weight of an update that was trained from a model τ aggregations ago."""


@PROTOCOLS.register("asynchronous")
class AsynchronousSpec(ProtocolSpec):
    """Clients start and finish at any time; the server aggregates whenever it has ``buffer`` updates.

    FedBuff (Nguyen et al. 2022) is ``buffer: 10, concurrency: 100`` with polynomial staleness; FedAsync (Xie et al.
    2019) is ``buffer: 1, mix: models, mixing: 0.6``.
    """

    has_rounds = False

    kind: Literal["asynchronous"] = Field(description="asynchronous: aggregate as updates arrive")
    buffer: int | None = Field(None, ge=1, description="updates for one aggregation, K; null: `training.cohort`")
    concurrency: int | None = Field(None, ge=1, description="clients active at any time; null: `training.cohort`")
    staleness: Staleness = Field(PolynomialStaleness(), description="s(τ), weight of an update τ aggregations old")
    mixing: float = Field(default=1.0, gt=0, le=1, description="factor α on every update, in addition to s(τ)")
    mix: Literal["deltas", "models"] = Field("deltas", description="add changes (FedBuff) or move to models (FedAsync)")
    ahead: int = Field(1, ge=1, description="with `overlap: true`: number of waiting clients that prefetch parts")

    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        none = "asynchronous clients begin and end at any time"
        takes: dict[Need, str] = {"rounds": f"{none}; expected protocol.kind: synchronous", "deadline": none}
        if self.mix == "models":
            takes["own start"] = "protocol.mix is models; expected mix: deltas"
        return takes

    def gathered(self, cohort: int) -> int:
        return cohort if self.buffer is None else self.buffer

    @property
    def gathered_by(self) -> str:
        return super().gathered_by if self.buffer is None else "protocol.buffer"

    def under_way(self, cohort: int) -> int:
        return cohort if self.concurrency is None else self.concurrency

    @property
    def under_way_by(self) -> str:
        return "protocol.concurrency"

    def by_arrival(self) -> str | None:
        return "kind: asynchronous"

    def course(self, world: World, book: RoundBook) -> Course:
        return Asynchronous(world, book, self)

    def factor(self, staleness: int) -> float:
        return self.mixing * self.staleness.factor(staleness)


class Asynchronous:
    """FedBuff (Nguyen et al. 2022, Alg. 1), and with a buffer of one FedAsync (Xie et al. 2019, Alg. 1).

    ``concurrency`` clients are active: when one returns, another one receives the latest model, and ``buffer`` updates,
    weighted by their staleness, become the next model, which ends a round. Clients that return at one instant are
    replaced together, by one pick. The run stalls after :data:`~edgefl.simulation.rounds.STALL_ROUNDS` times
    ``concurrency`` clients without an update.

    With overlap the next ``ahead`` clients receive the parts that are ready before; they train from the latest model.
    """

    def __init__(self, world: World, book: RoundBook, spec: AsynchronousSpec) -> None:
        self.world, self.book, self._spec = world, book, spec
        self._decisions = Decisions(world)
        self._picks = self._wasted = 0
        self._free = np.ones(world.setup.clients, dtype=bool)
        self._under_way: dict[int, Participation] = {}
        self._begun: list[Participation] = []
        self._buffer: list[Participation] = []
        self._change = world.env.event()
        self._ahead = spec.ahead if world.setup.method.overlap else 0
        self._queue: dict[int, Prefetch | None] = {}  # the clients that are dispatched next, first come first served

    def run(self) -> Generator[simpy.Event, object, None]:
        world, setup = self.world, self.world.setup
        gathered = self._spec.gathered(setup.cohort)
        world.round_begins(0, ())
        while True:
            self._dispatch()
            if not self._under_way:
                if not self._free.any() or not (yield from self._decisions.arrival(self.book.rounds_done)):
                    world.accounts.stop("stalled")
                    return
                continue
            self._change = world.env.event()
            seconds = self._decisions.next_arrival()
            full = len(self._under_way) >= self._spec.under_way(setup.cohort)
            yield self._change if full or math.isinf(seconds) else self._change | world.env.timeout(seconds)
            yield world.env.alarm(0.0)
            if self._wasted >= STALL_ROUNDS * self._spec.under_way(setup.cohort):
                reason = f"the last {self._wasted} clients returned no update"
                world.wrote("stalled", self.book.rounds_done, detail=detail(reason=reason))
                world.accounts.stop("stalled")
                return
            while len(self._buffer) >= gathered:
                self._aggregate(gathered)
                if world.stopped.triggered:
                    return
                if self.book.rounds_done >= setup.rounds:
                    world.accounts.stop("rounds")
                    return
                world.round_begins(self.book.rounds_done, sorted(self._under_way))

    def break_off(self) -> None:
        for participant in list(self._under_way.values()):
            participant.drop("unfinished")
        for prefetch in self._queue.values():
            if prefetch is not None:
                prefetch.drop()

    def _dispatch(self) -> None:
        """Send the latest model to as many free clients as may begin; one without the memory is not picked again."""
        world, version = self.world, self.book.rounds_done
        while (wanted := self._spec.under_way(world.setup.cohort) - len(self._under_way)) > 0:
            waiters = {client: self._queue.pop(client) for client in list(self._queue)[:wanted]}
            waiters = waiters or dict.fromkeys(self._pick(wanted))
            if not waiters:
                break
            alphas = self._decisions.blocks(version, list(waiters))
            for client, prefetch in waiters.items():
                self._begin(client, version, alphas.get(client), prefetch)
        if room := self._ahead - len(self._queue):
            for client in self._pick(room):
                self._free[client] = False
                self._queue[client] = None
            self._send_ahead(version)

    def _pick(self, wanted: int) -> list[int]:
        available = self._decisions.everyone[self._free]
        self._picks += bool(len(available))
        return self._decisions.pick(self._picks - 1, available, min(wanted, len(available)), self.book.rounds_done)

    def _send_ahead(self, latest: int) -> None:
        """Begin to prefetch for the waiting clients without a prefetch; ``latest`` is the newest model version."""
        world, setup = self.world, self.world.setup
        gathered = self._spec.gathered(setup.cohort)
        for place, (client, prefetch) in enumerate(self._queue.items()):
            # The version at the client's dispatch if the active clients return one after another.
            version = latest + (len(self._buffer) + place + 1) // gathered
            if prefetch is not None or version >= setup.rounds or world.presence.is_down(client):
                continue
            parts = self._ready(client, version, latest)
            if parts and world.work.of(client, setup.sizes.blocks).fits:
                self._queue[client] = Prefetch(world, client, parts, version, awake=False)

    def _ready(self, client: int, version: int, latest: int) -> tuple[Part, ...]:
        """The parts that a client that will train from ``version`` can receive while ``latest`` is the newest."""
        payload = self.world.setup.method.payload
        parts = self.world.downlink(client, version, None).parts
        with blaming(self.world.setup.label, version, "payload"):
            sends_blocks = payload.partial(version)
        if version == latest and not sends_blocks:
            return parts
        # Early parts come from the previous version; the blocks that a client needs are decided at its dispatch.
        return tuple(part for part in parts if part.early) if version <= latest + 1 else ()

    def _begin(self, client: int, version: int, chosen: int | None, prefetch: Prefetch | None) -> None:
        world = self.world
        downlink = world.downlink(client, version, chosen)
        participant = Participation(
            world,
            client,
            version,
            downlink,
            world.work.of(client, downlink.alpha),
            chosen=chosen,
            on_left=self._left,
            prefetch=prefetch,
            submit_first=True,
        )
        if prefetch is not None:
            world.wrote("dispatch", version, client, participant.job.id.dispatch)
        self._begun.append(participant)
        self._free[client] = False
        if participant.work.fits:
            self._under_way[client] = participant
            participant.begin()
        else:
            participant.refuse()

    def _left(self, participant: Participation) -> None:
        if self._under_way.pop(participant.client, None) is None:
            return
        self._free[participant.client] = True
        self._decisions.waits_since = None
        if participant.phase == "arrived":
            self._buffer.append(participant)
            self._wasted = 0
        else:
            self._wasted += 1
        if not self._change.triggered:
            self._change.succeed()

    def _aggregate(self, gathered: int) -> None:
        version = self.book.rounds_done
        arrived = sorted(self._buffer[:gathered], key=lambda each: (each.client, each.job.id.dispatch))
        del self._buffer[:gathered]
        factors = {each.job.id: self._spec.factor(version - each.round) for each in arrived}
        begun, self._begun = self._begun, []
        self.book.close(version, begun, arrived, Mixing(factors, self._spec.mix))
