"""One message to a node and its reply in the simulated world: download, work, upload."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, Literal, Protocol

import simpy

from edgefl.fleet.figure import value
from edgefl.flower.client_work import Done
from edgefl.flower.messages import NODE_SECONDS_WITHOUT_HEARTBEAT, Letter, Outcome
from edgefl.methods.payload import Downlink, Part
from edgefl.record.kinds import Lost
from edgefl.simulation.delivery import Delivery, Direction
from edgefl.simulation.participation import Phases
from edgefl.simulation.world import World
from edgefl.training.job import JobId, TrainingJob

Phase = Literal["queued", "download", "compute", "upload", "arrived", "refused", "dropped"]


class Post(Protocol):
    """Answers messages: the code of an app, or the log of a finished run."""

    def execute(self, client: int, message: Any, dispatch: int, digest: str) -> Done:
        """What the client does with a message, which is the one after ``dispatch`` others."""

    def keep(self, client: int, context: Any) -> None:
        """The client's work is complete: its state is that of this context."""

    def error(self, message: Any, outcome: Outcome, reason: str = "") -> Any:
        """A reply that is an error."""

    def parts(self, client: int, dispatch: int, reply: Any) -> tuple[Part, ...]:
        """What a reply is on the wire."""


class Exchange:
    """A message, from its push until the server has its reply or gives it up.

    A node handles one message at a time, as Flower's SuperNode does. Where the device is lost, the reply is the error
    that Flower gives when the node's heartbeats are missing; when the message's time to live is over, it is another
    error.

    Args:
        world: the world of the run.
        post: answers messages.
        round: the round in which it is pushed, from 0.
        dispatch: the number of the client's earlier messages.
        letter: the message.
        on_left: called when the node is free again.

    Attributes:
        reply: the reply, when the server has it.
        outcome: what the reply is, then.
        replied: triggers when the server has it.
        replied_at: virtual time at which the server had it.
        compute_seconds: the seconds of its work.
        arrived_at, reached_at: virtual time at which the reply was complete at the server, NaN before.
        pulled: whether the app has the reply.
        given_up: whether the app will never ask for it.
    """

    downlink = Downlink((), 1)

    def __init__(
        self,
        world: World,
        post: Post,
        *,
        round: int,
        dispatch: int,
        letter: Letter,
        on_left: Callable[[Exchange], None],
    ) -> None:
        self.client, self.round, self.message = letter.client, round, letter.message
        self.phase: Phase = "queued"
        self.job = TrainingJob(JobId(world.setup.label, world.setup.seed, self.client, dispatch), round, round, 1, 0)
        self.reply: Any = None
        self.outcome: Outcome | None = None
        self.replied_at = math.nan
        self.replied: simpy.Event = world.env.event()
        self.compute_seconds = 0.0
        self.arrived_at = self.reached_at = math.nan
        self.pulled = self.given_up = self._lost = self._ended = False
        self._world, self._post, self._sent, self._on_left = world, post, letter.sent, on_left
        self._env = world.env
        self._done: Done | None = None
        self._delivery: Delivery | None = None
        self._phases = Phases(self._env)
        self._pushed_at = self._env.now
        self._env.timeout(letter.seconds_to_live).callbacks.append(lambda _: self._answer("expired"))

    @property
    def computing(self) -> bool:
        """Whether the device computes now."""
        return self.phase == "compute"

    @property
    def exposed_seconds(self) -> float:
        """Seconds of its transfers."""
        return self._phases.transfer_seconds

    def played(self, blocks: int) -> int:
        """The number of blocks, which an app does not have."""
        return blocks

    def transfers_since(self, moment: float) -> tuple[float, float]:
        """Its transfer seconds after and before a given time."""
        return self._phases.transfers_since(moment)

    @property
    def useful(self) -> bool:
        """Whether the app has received a reply that is not an error."""
        return self.pulled and self.phase == "arrived" and self.outcome == "reply"

    def live(self) -> Generator[simpy.Event, object, None]:
        """The exchange as a SimPy process."""
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
        yield self._send("down", self._sent.parts)
        if self._over():
            return
        world.waited(*self._place, self._phases.end_transfer())

        self._done = done = self._post.execute(self.client, self.message, self.job.id.dispatch, self._sent.digest)
        self.job = TrainingJob(self.job.id, self.round, self.round, 1, done.work.steps)
        outcome: Outcome = "raised" if done.raised else "reply"
        reply, self.phase = done.reply, "refused"
        if done.work.fits:
            again = world.begun(self.client, self.round)
            self._pace = world.pace(self.client, self.round, done.work, again)
            self.phase = "compute"
            world.presence.computes(self, self._pace.seconds, again)
            world.compute_started(self.job, done.work, raises=done.raised)
            yield self._env.timeout(self._pace.seconds)
            if self._over():
                return
            self.compute_seconds = self._phases.end()
            world.compute_ended(self.job, done.work, self._pace)
            self._post.keep(self.client, done.context)
            self.phase = "upload"
        else:
            world.refused(self.job, done.work)
            outcome = "crashed"
            reply = self._post.error(self.message, outcome, _too_large(done, world, self.client))

        yield self._send("up", self._post.parts(self.client, self.job.id.dispatch, reply))
        if self._over():
            return
        world.waited(*self._place, self._phases.end_transfer())
        self._ended = True
        if self.phase == "upload":
            self.phase = "arrived"
        self.arrived_at = self.reached_at = self._env.now
        world.presence.leaves(self)
        in_time = self.outcome is None
        self._answer(outcome, reply)
        if self.given_up or not in_time:
            self.lose("late")
        elif outcome != "reply":
            self.lose("dropped")
        self._on_left(self)

    def quit(self, reason: str) -> None:
        """The device drops out; its heartbeats are missing."""
        if self._over():
            return
        self.drop("dropped")
        self._world.dropped_out(*self._place, reason)
        # A device that was not there when the message was pushed is known to be offline.
        wait = 0.0 if self._env.now == self._pushed_at else NODE_SECONDS_WITHOUT_HEARTBEAT
        self._env.timeout(wait).callbacks.append(lambda _: self._answer("unavailable"))
        self._on_left(self)

    def drop(self, fate: Lost) -> None:
        """Abort its activity."""
        if self._over():
            return
        self._ended = True
        phase = self.phase
        if phase != "refused":
            self.phase = "dropped"
        if phase == "compute" and self._done is not None:
            self.compute_seconds = self._phases.end()
            self._world.compute_broken_off(self.job, self._done.work, self._pace, self.compute_seconds)
        elif self._delivery is not None:
            self._world.traffic.cancel(self._delivery)
            self._world.waited(*self._place, self._phases.end())
        if phase != "queued":
            self._world.presence.leaves(self)
        self.lose(fate)

    def lose(self, fate: Lost) -> None:
        """Its bytes are of no use to the app."""
        if not self._lost:
            self._lost = True
            self._world.lost(*self._place, fate)

    @property
    def _place(self) -> tuple[int, int, int]:
        return self.client, self.round, self.job.id.dispatch

    def _over(self) -> bool:
        """Whether it has ended, which may happen while it waits."""
        return self._ended

    def _answer(self, outcome: Outcome, reply: Any = None) -> None:
        """The server has a reply, if it has none yet."""
        if self.outcome is None:
            self.reply = self._post.error(self.message, outcome) if reply is None else reply
            self.outcome, self.replied_at = outcome, self._env.now
            self.replied.succeed()

    def _send(self, direction: Direction, parts: tuple[Part, ...]) -> Delivery:
        delivery = self._world.traffic.send(self.client, direction, parts, self.round, self.job.id.dispatch)
        delivery.on_failure(lambda: self.quit("timeout"))
        self._delivery = delivery
        return delivery


def _too_large(done: Done, world: World, client: int) -> str:
    has = value(world.device(client).memory.training)
    return f"the work needs {done.work.peak_memory_bytes:.0f} bytes of memory, the device has {has:.0f}"
