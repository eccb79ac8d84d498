"""Synchronous rounds with secure aggregation: a round trip for each stage, each waiting for the slowest client."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from inspect import GEN_RUNNING, getgeneratorstate

import simpy

from edgefl.fleet import compute_joules
from edgefl.methods.parts.payload import Downlink, Part
from edgefl.privacy.messages import SecureRound
from edgefl.privacy.secure_aggregation import COLLECT, UNMASK
from edgefl.randomness import generator
from edgefl.simulation.participation import Life, Participation
from edgefl.simulation.protocols.synchronous_course import Synchronous
from edgefl.simulation.world import World

REASON = "secure aggregation"
"""Why a client left, in the log: it did not answer a stage, or too few were left to unmask the sum."""


class Member(Participation):
    """A client of a round with secure aggregation: it also answers the stages before and after its training."""

    stages: Stages
    left: Callable[[Participation], None]

    def _before_download(self) -> Life:
        for stage in self.stages.names[:-2]:
            yield from self._answer(stage)
        extra = self.stages.messages.down(COLLECT, self.client)
        self.downlink = self.downlink._replace(parts=(*self.downlink.parts, *extra))

    def _compute(self) -> Generator[simpy.Event, object, bool]:
        self.stages.moved(COLLECT, "down", self.downlink.parts)
        if self.stages.loses(COLLECT, self.client):
            self.quit(REASON)
            return False
        return (yield from super()._compute())

    def _upload(self, parts: Sequence[Part]) -> Life:
        yield from self._work(COLLECT)
        yield from super()._upload(parts)
        self.stages.moved(COLLECT, "up", parts)
        yield from self._waits(COLLECT)
        yield from self._answer(UNMASK)

    def _answer(self, stage: str) -> Life:
        messages, client = self.stages.messages, self.client
        self._deliveries = [self._send("down", received := messages.down(stage, client))]
        yield self._deliveries[0]
        self.stages.moved(stage, "down", received)
        if self.stages.loses(stage, client):
            self.quit(REASON)
            yield self._env.event()  # never
        yield from self._work(stage)
        if messages.raises(stage):
            self.quit(REASON)
            yield self._env.event()
        self._deliveries = [self._send("up", answer := messages.up(stage, client))]
        yield self._deliveries[0]
        self.stages.moved(stage, "up", answer)
        yield from self._waits(stage)

    def _work(self, stage: str) -> Life:
        """Compute the primitives of a stage, at full load."""
        profile, messages = self.world.setup.fleet.profile_of(self.client), self.stages.messages
        self._end_transfer()
        self.world.traffic.power.phase(self.client, watts := compute_joules(profile, 1.0))
        work = messages.work(stage, self.client)
        yield self._env.timeout(messages.spec.primitives.seconds(work) / profile.core_speed)
        self.world.secured(self.client, stage, watts, self._end_phase(), self.job.place)
        self.stages.work[self.client] += work

    def _waits(self, stage: str) -> Life:
        self._end_transfer()
        yield self.stages.answered(stage, self.client)
        self._end_transfer()

    def quit(self, reason: str) -> None:
        if self.over or not self.stages.holds(self.client):
            super().quit(reason)
            return
        # Its masked vector is in the sum, which the others can unmask.
        if getgeneratorstate(self._life) != GEN_RUNNING:
            self._life.close()
        for delivery in self._deliveries:
            self.world.traffic.cancel(delivery)
        self.world.wrote("dropout", *self.job.place, item=reason)
        self.finish()

    def fail(self) -> None:
        """Too few are left: the sum cannot be unmasked."""
        if self.phase == "arrived":
            self.phase = "dropped"
            self.lose("dropped")
        else:
            self.quit(REASON)


class Stages:
    """The stages of one round at the server: each passes when all clients that are left have answered it."""

    def __init__(
        self, world: World, messages: SecureRound, round: int, serve: Callable[[str, int, float], Life]
    ) -> None:
        self.world, self.messages, self.round = world, messages, round
        self.names = messages.spec.stages
        self.work: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._serve = serve
        self._members: list[Member] = []
        self._present: set[int] = set()
        self._answers: dict[str, set[int]] = {name: set() for name in self.names}
        self._passed = {name: world.env.event() for name in self.names}
        self._place, self._passing, self._failed = 0, False, False
        self._began = world.env.now

    def join(self, member: Member) -> None:
        member.stages = self
        self._members.append(member)
        self._present.add(member.client)

    def loses(self, stage: str, client: int) -> bool:
        """True if the client receives the stage's message and does not answer."""
        setup = self.world.setup
        given = self.messages.spec.losses.get(stage, 0.0)
        if isinstance(given, tuple):
            return client in given
        return bool(given and generator(setup.seed, "secure losses", self.round, stage, client).random() < given)

    def holds(self, client: int) -> bool:
        """True if the server has the masked vector of the client, and may unmask the sum."""
        return not self._failed and client in self._answers[COLLECT]

    def moved(self, stage: str, way: str, parts: Sequence[Part]) -> None:
        self.world.tally.moved(stage, way, sum(part.bytes for part in parts))

    def answered(self, stage: str, client: int) -> simpy.Event:
        """The client has answered; the event triggers when the stage has passed."""
        self._answers[stage].add(client)
        self._look()
        return self._passed[stage]

    def left(self, client: int) -> None:
        self._present.discard(client)
        self._look()

    def close(self) -> None:
        """The deadline of the round: whoever has not sent its masked vector is late."""
        for member in self._members:
            if not member.over and member.client not in self._answers[COLLECT]:
                member.drop("late")
                member.left(member)

    def _look(self) -> None:
        if self._failed or self._passing or self._place == len(self.names):
            return
        name = self.names[self._place]
        if not self._present:
            self._place += 1
            self._fail()
        elif self._present <= (answers := self._answers[name]):
            self._passing = True
            self.world.env.process(self._pass(name))
        elif name == COLLECT and len(answers) >= self.world.setup.enough(len(self._members)):
            self.close()

    def _pass(self, name: str) -> Life:
        messages, setup, tally = self.messages, self.world.setup, self.world.tally
        messages.answered[name] = frozenset(self._answers[name])
        if enough := messages.enough(self._answers[name]):
            work = messages.server_work(name)
            tally.server += work
            if setup.server_device is not None and work:
                seconds = messages.spec.primitives.seconds(work) / setup.server_device.core_speed
                yield from self._serve(name, self.round, seconds)
        now = self.world.env.now
        tally.seconds[name] += now - self._began
        self._began, self._passing, self._place = now, False, self._place + 1
        if enough:
            self._passed[name].succeed()
            yield self.world.env.timeout(0.0)
            self._look()
        else:
            self._fail()

    def _fail(self) -> None:
        self._failed = True
        for member in self._members:
            member.fail()

    def over(self) -> None:
        """The round has closed."""
        self.world.tally.ended(self.work.values(), trips=self._place, failed=self._failed)


class SecureRounds(Synchronous):
    """Synchronous rounds whose clients aggregate securely."""

    member = Member

    def hold(self, round: int, cohort: Sequence[int], alphas: dict[int, int]) -> Generator[simpy.Event, object, None]:
        world, setup = self.world, self.world.setup
        assert setup.secure is not None
        order = generator(setup.seed, "secure ring", round).permutation(sorted(cohort)).tolist()
        messages = SecureRound(setup.secure, order, setup.entries)
        self._stages, closed = Stages(world, messages, round, self._evaluating.serve), world.env.event()
        self._begin(round, cohort, alphas, closed)
        if self.seconds is not None:
            yield closed | world.env.alarm(self.seconds)
            self._stages.close()
        yield closed
        self._stages.over()

    def participation(
        self, client: int, round: int, downlink: Downlink, chosen: int | None, on_left: Callable[[Participation], None]
    ) -> Participation:
        stages = self._stages

        def left(participant: Participation) -> None:
            stages.left(participant.client)
            on_left(participant)

        member = super().participation(client, round, downlink, chosen, left)
        assert isinstance(member, Member)
        member.left = left
        stages.join(member)
        return member
