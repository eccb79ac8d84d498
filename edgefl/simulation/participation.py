"""One client's participation in one round: download, compute, upload."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Literal

import simpy

from edgefl.fleet import Direction
from edgefl.methods.parts.payload import BASE, Downlink, Part
from edgefl.record.kinds import Lost
from edgefl.simulation.delivery import Delivery
from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.presence import Participant
from edgefl.simulation.work import Pace, Plan, Work
from edgefl.simulation.world import World
from edgefl.units import slack

Phase = Literal["download", "compute", "upload", "arrived", "refused", "dropped"]


class Participation(Participant):
    """A client of the cohort, from the start of the round until its update has arrived or the round has closed."""

    def __init__(
        self,
        world: World,
        client: int,
        round: int,  # the round, which is also the model version that it trains from
        downlink: Downlink,
        *,
        chosen: int | None,  # the number of blocks from the block scheduler, if there is one
        # on_downloaded, on_left: called when it holds everything (or never will), and when its participation has
        # ended: it has arrived, was refused, or has dropped out
        on_downloaded: Callable[[Participation], None],
        on_left: Callable[[Participation], None],
        prefetch: Prefetch | None = None,
        closes: float = math.inf,  # virtual time at which its round closes at the latest, if that is known
        # the time that it reserves for its upload, in multiples of its predicted seconds, if it takes fewer local steps
        # so that its update arrives before that; None: it takes all
        reserve: float | None = None,
        plan: Plan | None = None,
    ) -> None:
        plan = plan or Plan()
        self.work: Work = world.work.of(client, plan.blocks or downlink.alpha, plan.steps)
        super().__init__(world.env, world.next_job(client, round, self.work.alpha, self.work.steps))
        self.world = world
        self.downlink = downlink
        self.prefetch = prefetch  # complete or not, until it begins
        self.phase: Phase = "download"
        self.cut_off_at = math.nan  # virtual time at which its round closed without it, if that ended it
        self._chosen = chosen
        self._closes, self._reserve = closes, reserve
        self._on_downloaded = on_downloaded
        self._on_left = on_left
        self._deliveries: list[Delivery] = []
        self._retries = world.setup.protocol.retries
        self._attempt = 0
        self._announced = self._submitted = False

    @property
    def _over(self) -> bool:
        return self.phase in ("arrived", "refused", "dropped")

    def played(self, blocks: int) -> int:
        """The α of this participation: the scheduler's choice, or M if the client received the whole model."""
        return blocks if self._chosen is None or self.downlink.forced_full else self._chosen

    def live(self, *, submit_first: bool = False) -> Generator[simpy.Event, object, None]:
        """The client's participation as a SimPy process.

        ``submit_first`` submits the job to the learner before the download instead of after it, because the model
        version that is sent may no longer be the latest by then.
        """
        self._phases.begin()
        hindrance = self.world.presence.enters(self)
        if hindrance is not None:
            self.quit(hindrance)
            return
        self.entered = True
        if submit_first:
            self._submit()
        self._deliveries = self._start_download()
        yield from self._work_through()

    def _work_through(self) -> Generator[simpy.Event, object, None]:
        world, attempt = self.world, self._attempt
        if not (yield from self._receive(attempt)):
            return
        world.waited(*self.job.place, self._phases.end_transfer())
        world.has_base.add(self.client)
        if self.downlink.alpha == world.setup.sizes.blocks:
            world.held[self.client] = self.round
        self.announce()

        again = world.begun(self.client, self.round)
        self.pace = world.pace(self.client, self.round, self.work, again)
        steps = self._affordable_steps()
        if not steps < self.work.steps:
            seconds = self.pace.seconds
        elif steps:
            seconds = self.pace.until(world.work.begun(self.work, steps)[0])
        else:
            self._give_up()
            return
        if steps != self.job.steps:
            self.job = replace(self.job, steps=steps)
        self.phase = "compute"
        # A job that may restart is submitted when it is complete: it may take fewer steps the second time.
        if not self._retries:
            self._submit()
        world.presence.computes(self, seconds, again)
        world.compute_started(self.job, self.work)
        yield world.computing(self.job, self.work, seconds)
        if not self._still("compute", attempt):
            return
        self._submit()
        spent = self._phases.end()
        self.compute_seconds += spent
        if world.trainer is not None:
            whole = spent / world.work.begun(self.work, steps)[0]
            self.pace = Pace(whole, whole)
        world.compute_ended(self.job, self.work, self.pace)
        world.last_job[self.client] = self.job.id

        self.phase = "upload"
        if not (yield from self._return(attempt)):
            return
        world.waited(*self.job.place, self._phases.end_transfer())
        self.phase = "arrived"
        self.arrived_at = self.reached_at = self._env.now
        world.presence.leaves(self)
        self._on_left(self)

    def _receive(self, attempt: int) -> Generator[simpy.Event, object, bool]:
        """Wait for the download, and the framework; False if the participation ended or restarted in this time."""
        for delivery in self._deliveries:
            if delivery.ended is None:
                yield delivery
            if not self._still("download", attempt):
                return False
        device = self.world.setup.fleet.profile_of(self.client)
        received = sum(part.bytes for part in self.downlink.parts)
        if seconds := self.world.setup.overhead.before_training(device, received):
            yield self._env.timeout(seconds)
        return self._still("download", attempt)

    def _return(self, attempt: int) -> Generator[simpy.Event, object, bool]:
        """Wait for the framework, and the upload; False if the participation ended or restarted in this time."""
        device, parts = self.world.setup.fleet.profile_of(self.client), self.world.uplink(self.client, self.work.alpha)
        self._deliveries = []
        if seconds := self.world.setup.overhead.before_sending(device, sum(part.bytes for part in parts)):
            yield self._env.timeout(seconds)
            if not self._still("upload", attempt):
                return False
        self._deliveries = [self._send("up", parts)]
        yield self._deliveries[0]
        return self._still("upload", attempt)

    def refuse(self) -> None:
        """The device does not have enough memory for the job: nothing is sent or trained."""
        self.phase = "refused"
        self.world.refused(self.job, self.work)
        self.announce()
        self._on_left(self)

    def quit(self, reason: str) -> None:
        """The device drops out of the round: its activity is aborted, and the other clients continue.

        After an accident it restarts, as many times as the protocol allows.
        """
        if self._over:
            return
        if reason == "accident" and self._retries:
            self._begin_anew()
            return
        self.drop("dropped")
        self.world.wrote("dropout", *self.job.place, item=reason)
        self.announce()
        self._on_left(self)

    def drop(self, fate: Lost) -> None:
        """The round closes (``late``), or the run ends, without this client: its activity is aborted."""
        if self._over:
            return
        phase, self.phase = self.phase, "dropped"
        if fate == "late":
            self.cut_off_at = self._env.now
        if self.prefetch is not None:
            self.prefetch.drop()
        if phase == "compute":
            self._break_off_computing()
        elif self.entered:
            for delivery in self._deliveries:
                self.world.traffic.cancel(delivery)
            self.world.waited(*self.job.place, self._phases.end())
        self.world.presence.leaves(self)
        if self._submitted:
            self.world.setup.learner.discard(self.job.id)
        self.world.lost(*self.job.place, fate)

    def strand(self) -> None:
        """Its update has arrived at its cell, which could not return it to the server."""
        self.phase = "dropped"
        self.world.setup.learner.discard(self.job.id)
        self.world.lost(*self.job.place, "dropped")
        self.world.wrote("dropout", *self.job.place, item="backhaul")

    def announce(self) -> None:
        """Report once that it holds everything, or never will."""
        if not self._announced:
            self._announced = True
            self._on_downloaded(self)

    def _begin_anew(self) -> None:
        """After an accident the device has lost its downloads and its computation; all but a base is sent again."""
        self._retries -= 1
        self._attempt += 1
        self._break_off_computing()
        self.world.wrote("dropout", *self.job.place, item="accident")
        self.world.lost(*self.job.place, "retried")
        self.phase = "download"
        kept = (BASE,) if self.client in self.world.has_base else ()
        self._deliveries = [self._send("down", [part for part in self.downlink.parts if part.name not in kept])]
        self.world.env.process(self._work_through())

    def _break_off_computing(self) -> None:
        seconds = self._phases.end()
        self.compute_seconds += seconds
        self.world.compute_broken_off(self.job, self.work, self.pace, seconds)

    def _affordable_steps(self) -> int:
        """H_k, or the number of local steps that leaves time for the upload before the deadline."""
        if self._reserve is None:
            return self.work.steps
        bytes = sum(part.bytes for part in self.world.uplink(self.client, self.work.alpha))
        upload = self.world.traffic.foreseen(self.client, "up").seconds(bytes)
        device = self.world.setup.fleet.profile_of(self.client)
        sending = self.world.setup.overhead.before_sending(device, bytes) + self._reserve * upload
        left = self._closes + slack(self._closes) - self._env.now - sending
        return math.floor(self.world.work.reached(self.work, self.pace.done(max(0.0, left))))

    def _give_up(self) -> None:
        """Even one step would be late."""
        self.phase = "dropped"
        self.world.presence.leaves(self)
        self.world.lost(*self.job.place, "dropped")
        self._on_left(self)

    def _start_download(self) -> list[Delivery]:
        prefetch, self.prefetch = self.prefetch, None
        early: tuple[Part, ...] = ()
        deliveries: list[Delivery] = []
        if prefetch is not None and prefetch.serves(self.downlink):
            early = prefetch.parts
            deliveries.append(self._following(prefetch.delivery))
            seconds = prefetch.settle()
            if prefetch.within_round:
                self._phases.transfers.append((prefetch.delivery.started, prefetch.delivery.started + seconds))
            else:
                self.hidden_seconds += seconds
        elif prefetch is not None:
            prefetch.drop()
        rest = [part for part in self.downlink.parts if part not in early]
        if rest:
            deliveries.append(self._send("down", rest))
        return deliveries

    def _send(self, direction: Direction, parts: Sequence[Part]) -> Delivery:
        world, up = self.world, direction == "up"
        outlook = world.outlook(self.client, self.round, self.work.alpha, up=up, deadline=self._closes)
        return self._following(
            world.traffic.send(self.client, direction, parts, self.round, self.job.id.dispatch, outlook=outlook)
        )

    def _following(self, delivery: Delivery) -> Delivery:
        """Drop out when a transfer fails, even if the client waits for another one."""
        delivery.on_failure(lambda: self.quit("timeout"))
        return delivery

    def _submit(self) -> None:
        if not self._submitted:
            self.world.setup.learner.submit(self.job)
            self._submitted = True

    def _still(self, phase: Phase, attempt: int) -> bool:
        """False if the round has closed without the client, or it has restarted, while it waited."""
        return self.phase == phase and self._attempt == attempt
