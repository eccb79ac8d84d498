"""One client's part in one round: download, compute, upload."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Literal

import simpy

from edgefl.fleet import Direction, Pace
from edgefl.methods.parts.payload import BASE, Downlink, Part
from edgefl.record.kinds import Lost
from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.traffic import Delivery
from edgefl.simulation.work import Work
from edgefl.simulation.world import Ahead, World
from edgefl.training.job import TrainingJob
from edgefl.units import slack

Life = Generator[simpy.Event, object, None]


class Participation:
    """A client of the cohort until its update has arrived or the round has closed; its life is a process."""

    def __init__(
        self,
        world: World,
        client: int,
        round: int,  # the round, which is also the model version that it trains from
        downlink: Downlink,
        work: Work,
        *,
        # on_left, on_downloaded: called when its participation has ended (it has arrived, was refused, or has dropped
        # out), and when it holds everything or never will
        on_left: Callable[[Participation], None],
        on_downloaded: Callable[[Participation], None] = lambda _: None,
        chosen: int | None = None,  # the number of blocks from the block scheduler, if there is one
        prefetch: Prefetch | None = None,
        closes: float = math.inf,  # virtual time at which its round closes at the latest, if that is known
        # the time that it reserves for its upload, in multiples of its predicted seconds, if it takes fewer local steps
        # so that its update arrives before that; None: it takes all
        reserve: float | None = None,
        # the job is submitted to the learner before the download, because the model version that is sent may no longer
        # be the latest after it
        submit_first: bool = False,
        job: TrainingJob | None = None,  # what its bytes and seconds are logged for; None: the client's next one
    ) -> None:
        self.world, self.client, self.round = world, client, round
        self.downlink = downlink  # the parts that it is sent
        self.work = work
        self.job = job or world.next_job(client, round, work.alpha, work.steps)
        self.phase: Literal["download", "compute", "upload", "arrived", "dropped"] = "download"
        self.prefetch = prefetch  # complete or not, until it begins
        self.entered = False  # whether it began; false if something since its selection prevented this
        self.refused = False  # whether its device has too little memory
        self.compute_seconds = 0.0
        self.hidden_seconds = 0.0  # transfer seconds before the round began
        self.relay_seconds = 0.0  # the additional seconds of its cell's own transfers
        # Virtual time at which its update was complete at the server (or at its cell, where cells average); NaN before.
        self.arrived_at = math.nan
        self.reached_at = math.nan  # the same for the server in all cases
        self.cut_off_at = math.nan  # virtual time at which its round closed without it, if that ended it
        self._env = world.env
        self._life = self._live(submit_first=submit_first)
        self._since = self._env.now  # when its present phase began
        self._transfers: list[tuple[float, float]] = []  # beginning and end of each completed one
        self._chosen, self._closes, self._reserve = chosen, closes, reserve
        self._on_left, self._on_downloaded = on_left, on_downloaded
        self._deliveries: list[Delivery] = []
        self._retries = world.setup.protocol.retries
        self._announced = self._submitted = False
        self._ahead: Ahead | None = None  # if it does not train

    @property
    def over(self) -> bool:
        return self.phase in ("arrived", "dropped")

    def played(self, blocks: int) -> int:
        """The α of this participation: the scheduler's choice, or M if the client received the whole model."""
        return blocks if self._chosen is None or self.downlink.forced_full else self._chosen

    @property
    def exposed_seconds(self) -> float:
        """Its transfer seconds within the round."""
        return sum((ended - began for began, ended in self._transfers), 0.0)

    def transfers_since(self, moment: float) -> tuple[float, float]:
        """Its transfer seconds after and before a given time: those that lengthened a round that began then, or not."""
        after = sum(max(0.0, ended - max(began, moment)) for began, ended in self._transfers)
        before = sum(max(0.0, min(ended, moment) - began) for began, ended in self._transfers)
        return after + self.relay_seconds, self.hidden_seconds + before

    def begin(self) -> None:
        self._env.process(self._life)

    def _live(self, *, submit_first: bool = False) -> Life:
        self._since = self._env.now
        if (hindrance := self.world.presence.enters(self.client, self.quit)) is not None:
            self.quit(hindrance)
            return
        self.entered = True
        if submit_first:
            self._submit()
        yield from self._before_download()
        self._deliveries = self._start_download()
        yield from self._attempt()

    def _before_download(self) -> Life:
        """What it does between its beginning and its download; by default nothing."""
        yield from ()

    def _attempt(self) -> Life:
        world = self.world
        for delivery in self._deliveries:
            if delivery.ended is None:
                yield delivery
        if seconds := world.before_training(self.client, sum(part.bytes for part in self.downlink.parts)):
            yield self._env.timeout(seconds)
        world.presence.started.add(self.client)
        if self._deliveries or self._env.now > self._since:  # peers download nothing
            self._end_transfer()
        self._received()

        if self.work.fits and not (yield from self._compute()):
            return

        self.phase = "upload"
        parts = self._returned()
        if seconds := world.before_sending(self.client, sum(part.bytes for part in parts)):
            yield self._env.timeout(seconds)
        yield from self._upload(parts)
        self.finish()

    def _upload(self, parts: Sequence[Part]) -> Life:
        self._deliveries = [self._send("up", parts)]
        yield self._deliveries[0]

    def finish(self) -> None:
        """Its upload is complete."""
        self._end_transfer()
        self.phase = "arrived"
        self.arrived_at = self.reached_at = self._env.now
        self.world.presence.leaves(self.client)
        self._arrived()
        self._on_left(self)

    def _compute(self) -> Generator[simpy.Event, object, bool]:
        """Its local training; False if even one step would be late."""
        world = self.world
        again = world.begun(self.client, self.round)
        self.pace = world.pace(self.client, self.round, self.work, again)
        seconds, steps = self.pace.seconds, self._affordable_steps()
        if steps < self.work.steps:
            if not steps:  # even one would be late
                self.phase = "dropped"
                world.presence.leaves(self.client)
                self.lose("dropped")
                self._on_left(self)
                return False
            seconds = self.pace.until(world.work.begun(self.work, steps)[0])
        if steps != self.job.steps:
            self.job = replace(self.job, steps=steps)
        self.phase = "compute"
        # A job that may restart is submitted when it is complete: it may take fewer steps the second time.
        if not self._retries:
            self._submit()
        if (part := world.presence.accidents.after(self.client, self.round, again)) < 1:
            self._env.timeout(part * seconds).callbacks.append(
                lambda _: self.quit("accident") if self.phase == "compute" else None
            )
        world.compute_started(self.job, self.work)
        yield world.computing(self.job, self.work, seconds)
        self._submit()
        spent = self._end_phase()
        self.compute_seconds += spent
        if world.trainer is not None:
            whole = spent / world.work.begun(self.work, steps)[0]
            self.pace = Pace(whole, whole)
        world.compute_ended(self.job, self.work, self.pace)
        return True

    def _received(self) -> None:
        """It has everything that it needs to compute."""
        record = self.world.clients[self.client]
        record.has_base = True
        if self.downlink.alpha == self.world.setup.sizes.blocks:
            record.held = self.round
        self.announce()

    def _returned(self) -> Sequence[Part]:
        """What it uploads."""
        return self.world.uplink(self.client, self.work.alpha)

    def _arrived(self) -> None:
        """Its upload is complete."""

    def refuse(self) -> None:
        """The device does not have enough memory for the job: nothing is sent or trained."""
        self.refused, self.phase = True, "dropped"
        self.world.refused(self.job, self.work)
        self.announce()
        self._on_left(self)

    def quit(self, reason: str) -> None:
        """Its activity is aborted, if it is not over; after an accident it restarts as often as the protocol allows."""
        if self.over or (reason == "accident" and self.phase != "compute"):
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
        if self.over:
            return
        phase, self.phase = self.phase, "dropped"
        if getgeneratorstate(self._life) != GEN_RUNNING:  # else it returns by itself
            self._life.close()
        if fate == "late":
            self.cut_off_at = self._env.now
        if self.prefetch is not None:
            self.prefetch.drop()
        if phase == "compute":
            self._break_off_computing()
        elif self.entered:
            for delivery in self._deliveries:
                self.world.traffic.cancel(delivery)
            self.world.waited(*self.job.place, self._end_phase())
        if self.entered:
            self.world.presence.leaves(self.client)
        self.lose(fate)

    def lose(self, fate: Lost) -> None:
        """Its bytes and its update are of no use."""
        if self._submitted:
            self.world.setup.learner.discard(self.job.id)
        self.world.lost(*self.job.place, fate)

    def strand(self) -> None:
        """Its update has arrived at its cell, which could not return it to the server."""
        self.phase = "dropped"
        self.lose("dropped")
        self.world.wrote("dropout", *self.job.place, item="backhaul")

    def announce(self) -> None:
        """Report once that it holds everything, or never will."""
        if not self._announced:
            self._announced = True
            self._on_downloaded(self)

    def _begin_anew(self) -> None:
        """After an accident the device has lost its downloads and its computation; all but a base is sent again."""
        self._retries -= 1
        self._life.close()
        self._break_off_computing()
        self.world.wrote("dropout", *self.job.place, item="accident")
        self.world.lost(*self.job.place, "retried")
        self.phase = "download"
        kept = (BASE,) if self.world.clients[self.client].has_base else ()
        again = [part for part in self.downlink.parts if part.name not in kept]
        self._deliveries = [self._send("down", again)] if again else []
        self._life = self._attempt()
        self.begin()

    def _break_off_computing(self) -> None:
        seconds = self._end_phase()
        self.compute_seconds += seconds
        self.world.compute_broken_off(self.job, self.work, self.pace, seconds)

    def _affordable_steps(self) -> int:
        """H_k, or the number of local steps that leaves time for the upload before the deadline."""
        if self._reserve is None:
            return self.work.steps
        bytes = sum(part.bytes for part in self.world.uplink(self.client, self.work.alpha))
        upload = self.world.traffic.foreseen(self.client, "up").seconds(bytes)
        sending = self.world.before_sending(self.client, bytes) + self._reserve * upload
        left = self._closes + slack(self._closes) - self._env.now - sending
        return math.floor(self.world.work.reached(self.work, self.pace.done(max(0.0, left))))

    def _start_download(self) -> list[Delivery]:
        prefetch, self.prefetch = self.prefetch, None
        early: tuple[Part, ...] = ()
        deliveries: list[Delivery] = []
        if prefetch is not None and prefetch.serves(self.downlink):
            early = prefetch.parts
            deliveries.append(self._following(prefetch.delivery))
            seconds = prefetch.settle()
            if prefetch.within_round:
                self._transfers.append((prefetch.delivery.started, prefetch.delivery.started + seconds))
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
        alpha, ahead = self.work.alpha, self._ahead
        outlook = world.outlook(self.client, self.round, alpha, up=up, deadline=self._closes, ahead=ahead)
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

    def _end_phase(self) -> float:
        """The phase ends, and the next one begins; return its seconds."""
        began, self._since = self._since, self._env.now
        return self._since - began

    def _end_transfer(self) -> None:
        began = self._since
        self.world.waited(*self.job.place, self._end_phase())
        self._transfers.append((began, self._since))
