"""One message to a node and its reply in the simulated world: download, work, upload."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Generator
from typing import Any, Literal

import simpy

from edgefl.fleet import Direction
from edgefl.fleet.figure import value
from edgefl.flower.client_work import Clients
from edgefl.flower.messages import NODE_SECONDS_WITHOUT_HEARTBEAT, Sent, Wire, error_reply, expired, node_unavailable
from edgefl.flower.virtual_time import date_at
from edgefl.methods.parts.payload import Downlink, Part
from edgefl.record.kinds import Lost
from edgefl.simulation.delivery import Delivery
from edgefl.simulation.presence import Participant
from edgefl.simulation.work import Work
from edgefl.simulation.world import World
from edgefl.training.faults import blaming
from edgefl.training.job import JobId, TrainingJob

Phase = Literal["queued", "download", "compute", "upload", "arrived", "refused", "dropped"]


class Exchange(Participant):
    """A message, from its push until the server has its reply or gives it up.

    A node handles one message at a time, as Flower's SuperNode does. Where the device is lost, the reply is the error
    that Flower gives when the node's heartbeats are missing; when the message's time to live is over, it is another
    error.

    ``pulled``: the app has the reply; ``given_up``: the app will never ask for it.
    """

    downlink = Downlink((), 1)

    def __init__(
        self,
        world: World,
        clients: Clients,
        wire: Wire,
        *,
        client: int,
        round: int,
        dispatch: int,
        message: Any,
        sent: Sent,
        on_left: Callable[[Exchange], None],
    ) -> None:
        id = JobId(world.setup.label, world.setup.seed, client, dispatch)
        super().__init__(world.env, TrainingJob(id, round, round, 1, 0))
        self.message = message
        self.phase: Phase = "queued"
        self.reply: Any = None
        self.replied_at = math.nan  # virtual time at which the server had the reply
        self.replied: simpy.Event = world.env.event()  # triggers then
        self.pulled = self.given_up = self._lost = self._ended = False
        self._world, self._clients, self._wire, self._sent, self._on_left = world, clients, wire, sent, on_left
        self._work: Work | None = None
        self._delivery: Delivery | None = None
        self._pushed_at = self._env.now
        age = date_at(self._env.now).timestamp() - message.metadata.created_at
        left = max(0.0, message.metadata.ttl - age)
        # A message lives for hours, so its timer must not keep the content of one that is answered.
        own = weakref.ref(self)
        self._env.alarm(left).callbacks.append(lambda _: None if (it := own()) is None else it._answer(expired))

    @property
    def useful(self) -> bool:
        """True if the app has received a reply that is not an error."""
        return self.pulled and self.phase == "arrived" and not self.reply.has_error()

    def live(self) -> Generator[simpy.Event, object, None]:
        world = self._world
        if self.replied.triggered:  # it expired while the node had others; Flower deletes such a message
            self.drop("late")
            self._on_left(self)
            return
        self._phases.begin()
        self.phase = "download"
        hindrance = world.presence.enters(self)
        if hindrance is not None:
            self.quit(hindrance)
            return
        self.entered = True
        yield self._send("down", self._sent.parts)
        if self._over():
            return
        world.waited(*self.job.place, self._phases.end_transfer())

        answer, work = self._clients.execute(self.client, self.message, self.job.id.dispatch, self._sent.digest)
        self.job = TrainingJob(self.job.id, self.round, self.round, 1, work.steps)
        reply, self._work, self.phase = answer.reply, work, "refused"
        if work.fits:
            again = world.begun(self.client, self.round)
            self._pace = world.pace(self.client, self.round, work, again)
            self.phase = "compute"
            world.presence.computes(self, self._pace.seconds, again)
            world.compute_started(self.job, work)
            yield self._env.timeout(self._pace.seconds)
            if self._over():
                return
            self.compute_seconds = self._phases.end()
            world.compute_ended(self.job, work, self._pace)
            self._clients.keep(self.client, answer.context)
            self.phase = "upload"
        else:
            world.refused(self.job, work)
            has = value(world.setup.fleet.profile_of(self.client).memory.training)
            why = f"the work needs {work.peak_memory_bytes:.0f} bytes of memory, the device has {has:.0f}"
            reply = error_reply(self.message, "CLIENT_APP_CRASHED", why)

        with blaming(world.setup.label, self.round, f"the reply of client {self.client}"):
            parts = self._wire.sent(reply).parts
        yield self._send("up", parts)
        if self._over():
            return
        world.waited(*self.job.place, self._phases.end_transfer())
        self._ended = True
        if self.phase == "upload":
            self.phase = "arrived"
        self.arrived_at = self.reached_at = self._env.now
        world.presence.leaves(self)
        self._answer(lambda _: reply)
        if self.given_up or self.reply is not reply:
            self.lose("late")
        elif reply.has_error():
            self.lose("dropped")
        self._on_left(self)

    def quit(self, reason: str) -> None:
        """The device drops out; its heartbeats are missing."""
        if self._over():
            return
        self.drop("dropped")
        self._world.wrote("dropout", *self.job.place, item=reason)
        # A device that was not there when the message was pushed is known to be offline.
        wait = 0.0 if self._env.now == self._pushed_at else NODE_SECONDS_WITHOUT_HEARTBEAT
        self._env.timeout(wait).callbacks.append(lambda _: self._answer(node_unavailable))
        self._on_left(self)

    def drop(self, fate: Lost) -> None:
        if self._over():
            return
        self._ended = True
        phase = self.phase
        if phase != "refused":
            self.phase = "dropped"
        if phase == "compute" and self._work is not None:
            self.compute_seconds = self._phases.end()
            self._world.compute_broken_off(self.job, self._work, self._pace, self.compute_seconds)
        elif self._delivery is not None:
            self._world.traffic.cancel(self._delivery)
            self._world.waited(*self.job.place, self._phases.end())
        if phase != "queued":
            self._world.presence.leaves(self)
        self.lose(fate)

    def lose(self, fate: Lost) -> None:
        """Its bytes are of no use to the app."""
        if not self._lost:
            self._lost = True
            self._world.lost(*self.job.place, fate)

    def _over(self) -> bool:
        return self._ended

    def _answer(self, make: Callable[[Any], Any]) -> None:
        """The server has a reply, if it has none yet."""
        if self.reply is None:
            self.reply, self.replied_at = make(self.message), self._env.now
            self.replied.succeed()

    def _send(self, direction: Direction, parts: tuple[Part, ...]) -> Delivery:
        delivery = self._world.traffic.send(self.client, direction, parts, self.round, self.job.id.dispatch)
        delivery.on_failure(lambda: self.quit("timeout"))
        self._delivery = delivery
        return delivery
