"""One client's part in one round: download, compute, upload."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import simpy

from edgefl.learning.payload import Downlink, Part
from edgefl.network.flow import Flow
from edgefl.simulation.transfer import Direction
from edgefl.simulation.work import Work
from edgefl.simulation.world import World

Fate = Literal["late", "dropped", "prefetched_in_vain", "unfinished"]
"""What became of a participation that was not aggregated; ``unfinished``: the run ended first."""

Phase = Literal["download", "compute", "upload", "arrived", "refused", "dropped"]


class Prefetch:
    """Parts that are sent to a client during the round before the one that needs them.

    Args:
        world: where it happens.
        client: who will need them.
        parts: what is ready early.
        round: the round that will need them.
        awake: the client takes part in the present round too, so its idle watts are charged there.
    """

    def __init__(self, world: World, client: int, parts: tuple[Part, ...], round: int, *, awake: bool) -> None:
        self.parts = parts
        self._dispatch = world.dispatches(client)
        self.flow: Flow = world.send(client, "down", parts, round, self._dispatch, early=True)
        self._world = world
        self._client = client
        self._round = round
        self._awake = awake

    def settle(self) -> float:
        """Charge the client's waiting up to now; returns the transfer's seconds so far."""
        flow = self.flow
        seconds = (self._world.now if flow.ended is None else flow.ended) - flow.started
        if not self._awake:
            self._world.waited(self._client, self._round, seconds)
        return seconds

    def drop(self) -> None:
        """The run ends before the round that would have needed it."""
        self.settle()
        self._world.network.cancel(self.flow)
        self._world.lost(self._client, self._round, self._dispatch, "prefetched_in_vain")


class Deadline(NamedTuple):
    """The moment at which an update must have arrived, and how many times its upload's foreseen seconds to keep."""

    moment: float
    reserve: float


class Participation:
    """A client of the cohort, from the start of the round until its update has arrived or the round has closed.

    Args:
        world: where it lives.
        client: who.
        round: the round, which is also the model version that it trains from.
        downlink: what it needs for the round.
        chosen: the number of blocks that the block scheduler chose for it, if one did.
        prefetch: what was sent to it early, complete or not.
        on_downloaded, on_left: called when it holds everything (or never will), and when its part is over: it has
            arrived, was refused, or has left by itself.
        deadline: until when its update must have arrived, for clients that then take fewer local steps.

    Attributes:
        job: its training job; the learner knows of it once it computes, or from the start (see :meth:`live`).
        download_seconds, compute_seconds, upload_seconds: how long each phase of the round took.
        hidden_seconds: transfer seconds before the round began.
        arrived_at: virtual time at which its update was complete at the server (at its cell, where cells average), NaN
            before.
        reached_at: the same for the server in any case; its cell sets it, and the seconds that the cell's own transfers
            took beside (``relay_seconds``).
    """

    def __init__(
        self,
        world: World,
        client: int,
        round: int,
        downlink: Downlink,
        *,
        chosen: int | None,
        prefetch: Prefetch | None,
        on_downloaded: Callable[[Participation], None],
        on_left: Callable[[Participation], None],
        deadline: Deadline | None = None,
    ) -> None:
        self.world = world
        self.client = client
        self.round = round
        self.downlink = downlink
        self.phase: Phase = "download"
        self.work: Work = world.work.of(client, downlink.alpha)
        self.pace = world.pace(client, round, self.work)
        self.job = world.next_job(client, round, downlink.alpha, self.work.steps)
        self.download_seconds = self.compute_seconds = self.upload_seconds = self.hidden_seconds = 0.0
        self.arrived_at = self.reached_at = math.nan
        self.relay_seconds = 0.0
        self._chosen = chosen
        self._prefetch = prefetch
        self._deadline = deadline
        self._on_downloaded = on_downloaded
        self._on_left = on_left
        self._flows: list[Flow] = []
        self._submitted = False
        self._began = self._phase_began = world.now

    @property
    def exposed_seconds(self) -> float:
        """Transfer seconds within the round."""
        return self.download_seconds + self.upload_seconds

    @property
    def computing(self) -> bool:
        """Whether the device trains at the moment."""
        return self.phase == "compute"

    @property
    def _over(self) -> bool:
        return self.phase in ("arrived", "refused", "dropped")

    def played(self, blocks: int) -> int:
        """The α that this participation tried out: the scheduler's choice, or M where the model came whole anyway."""
        return blocks if self._chosen is None or self.downlink.forced_full else self._chosen

    def transfers_since(self, moment: float) -> tuple[float, float]:
        """Its transfer seconds after a moment, and before: those that lengthened a round that began then, or not."""
        if moment <= self._began:
            return self.exposed_seconds + self.relay_seconds, self.hidden_seconds
        uploading = self.arrived_at - self.upload_seconds
        exposed = max(0.0, self._began + self.download_seconds - moment)
        exposed += max(0.0, self.arrived_at - max(uploading, moment))
        return exposed, self.hidden_seconds + self.exposed_seconds - exposed

    def live(self, *, submit_first: bool = False) -> Generator[simpy.Event, object, None]:
        """The client's life in this round, as SimPy tells it.

        Args:
            submit_first: hand the job to the learner before the download instead of after it, where the model version
                that is sent may not be the latest any more by then.
        """
        world, env = self.world, self.world.env
        self._began = self._phase_began = world.now
        if not world.presence.enters(self):
            self.quit("unavailable")
            return
        if submit_first:
            self._submit()
        self._flows = self._start_download()
        for flow in self._flows:
            if flow.ended is None:
                yield flow
            if not self._still("download"):
                return
        self.download_seconds = self._end_phase()
        world.waited(self.client, self.round, self.download_seconds)
        if self.downlink.alpha == world.setup.sizes.blocks:
            world.held[self.client] = self.round
        self._on_downloaded(self)

        steps = self._affordable_steps()
        if not steps < self.work.steps:
            seconds = self.pace.seconds
        elif steps:
            seconds = self.pace.until(steps / self.work.steps)
            self.job = replace(self.job, steps=steps)
        else:
            self._give_up()
            return
        self.phase = "compute"
        if not submit_first:
            self._submit()
        world.compute_started(self.client, self.round, self.work)
        world.presence.computes(self)
        yield env.timeout(seconds)
        if not self._still("compute"):
            return
        self.compute_seconds = self._end_phase()
        world.compute_ended(self.client, self.round, self.work, self.pace, steps)
        world.last_job[self.client] = self.job.id

        self.phase = "upload"
        self._flows = [self._send("up", world.setup.method.payload.uplink(world.setup.sizes))]
        yield self._flows[0]
        if not self._still("upload"):
            return
        self.upload_seconds = self._end_phase()
        world.waited(self.client, self.round, self.upload_seconds)
        self.phase = "arrived"
        self.arrived_at = self.reached_at = world.now
        world.presence.leaves(self)
        self._on_left(self)

    def refuse(self) -> None:
        """The device has not the memory for the job: nothing is sent, nothing is trained."""
        self.phase = "refused"
        self.world.refused(self.client, self.round, self.work)
        self._on_left(self)

    def quit(self, reason: str) -> None:
        """The device leaves the round by itself: whatever it is doing breaks off, and the others go on."""
        if self._over:
            return
        downloading = self.phase == "download"
        self.drop("dropped")
        self.world.dropped_out(self.client, self.round, reason)
        if downloading:
            self._on_downloaded(self)
        self._on_left(self)

    def drop(self, fate: Fate) -> None:
        """The round closes (``late``), or the run ends, without this client: whatever it is doing breaks off."""
        if self._over:
            return
        phase, self.phase = self.phase, "dropped"
        if phase == "compute":
            self.compute_seconds = self._end_phase()
            self.world.compute_broken_off(self.client, self.round, self.work, self.pace, self.compute_seconds)
        else:
            for flow in self._flows:
                self.world.network.cancel(flow)
            self.world.waited(self.client, self.round, self._end_phase())
        self.world.presence.leaves(self)
        if self._submitted:
            self.world.setup.learner.discard(self.job.id)
        self.world.lost(self.client, self.round, self.job.id.dispatch, fate)

    def _affordable_steps(self) -> int:
        """H_k, or as many local steps as leave time for the upload until the deadline."""
        if self._deadline is None:
            return self.work.steps
        bytes = sum(part.bytes for part in self.world.setup.method.payload.uplink(self.world.setup.sizes))
        upload = self.world.foreseen_seconds(self.client, "up", bytes)
        left = self._deadline.moment - self.world.now - self._deadline.reserve * upload
        # Rounding must not cost a step that ends exactly in time.
        return math.floor(self.pace.done(max(0.0, left)) * self.work.steps + 1e-9)

    def _give_up(self) -> None:
        """Not even one step would be in time."""
        self.phase = "dropped"
        self.world.presence.leaves(self)
        self.world.lost(self.client, self.round, self.job.id.dispatch, "dropped")
        self._on_left(self)

    def _start_download(self) -> list[Flow]:
        early: tuple[Part, ...] = ()
        flows: list[Flow] = []
        if self._prefetch is not None:
            early = self._prefetch.parts
            flows.append(self._prefetch.flow)
            self.hidden_seconds = self._prefetch.settle()
        rest = [part for part in self.downlink.parts if part not in early]
        if rest:
            flows.append(self._send("down", rest))
        return flows

    def _send(self, direction: Direction, parts: Sequence[Part]) -> Flow:
        return self.world.send(self.client, direction, parts, self.round, self.job.id.dispatch)

    def _submit(self) -> None:
        self.world.setup.learner.submit(self.job)
        self._submitted = True

    def _still(self, phase: Phase) -> bool:
        """Whether the client is in that phase; while it waited, the round may have closed without it."""
        return self.phase == phase

    def _end_phase(self) -> float:
        began, self._phase_began = self._phase_began, self.world.now
        return self._phase_began - began
