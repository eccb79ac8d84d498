"""A protocol's decisions before clients take part, and the predictions that they depend on."""

import math
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from edgefl.errors import WrongAnswer
from edgefl.fleet import compute_joules, idle_joules, transfer_joules
from edgefl.methods.parts.common_finish import CommonFinish
from edgefl.record.events import detail
from edgefl.scheduling.blocks.base import BlockForecast, Weighed, checked_alphas, least_makespan
from edgefl.scheduling.selection.base import Charge, Foreseen, checked_cohort
from edgefl.simulation.work import Plan
from edgefl.simulation.world import World
from edgefl.training.faults import blaming
from edgefl.units import at_most


def _in_json(number: float) -> float | str:
    """A number, or its text: JSON has no numbers that are not finite."""
    return number if math.isfinite(number) else repr(number)


class Pick(NamedTuple):
    """A selector's last call: the virtual seconds at which it was called, and the clients that it could pick."""

    seconds: float
    available: NDArray[np.int64]


class Decisions:
    """Calls the run's selector and block scheduler, and logs their answers.

    ``asked`` are the clients that the last pick asked for losses, with the number of images of each; ``waits_since``:
    since when no cohort could be picked, or None. With ``shortens`` clients may do less than their local work.
    """

    def __init__(self, world: World, *, may_ask: bool = False, shortens: bool = False) -> None:
        self._world, self._may_ask = world, may_ask
        self._shortens = shortens or world.setup.method.local.common_finish is not None
        self.everyone = np.arange(world.setup.clients, dtype=np.int64)
        self.asked: dict[int, int] = {}
        self.last_pick: Pick | None = None
        self.waits_since: float | None = None
        self._too_short = False
        self._losses: dict[int, float | str] = {}

    def pick(self, number: int, available: NDArray[np.int64], size: int, round: int) -> list[int]:
        """``size`` of the available clients, or all if there are fewer; none, and no row, if no client is available.

        ``number`` counts picks from 0; ``available`` are those that the protocol could use, ascending.
        """
        setup = self._world.setup
        self.asked, self._losses = {}, {}
        available = available[self._world.presence.available()[available]]
        self._too_short = bool(len(available)) and not self._any_stays(round, available)
        if not len(available) or self._too_short:
            return self._waits([])
        self.last_pick = Pick(self._world.env.now, available)
        self._world.seen[available] = True
        now, attendance = self._world.env.now, self._world.presence.attendance
        facts = setup.facts._replace(
            foreseen=partial(self._of_round, round),
            data_sizes=setup.samples.copy(),
            now=now,
            availability=lambda clients, begin, end: attendance.share(clients, now + begin, now + end),
            charge=partial(self._charge, round),
        )
        if self._may_ask and setup.selector.asks():
            facts = facts._replace(local_losses=partial(self._local_losses, round, available))
        with blaming(setup.label, round, "selection"):
            picked = setup.selector.pick(number, available.copy(), size, facts)
            cohort = checked_cohort(picked, available, size)
        self._world.picks[cohort] += 1
        if self.asked:
            self._world.decided(round, "asked", setup.selector.reads, local_losses=self._losses)
        elif cohort:
            self.chose(round, cohort)
        return self._waits(cohort)

    def _waits(self, cohort: list[int]) -> list[int]:
        if cohort:
            self.waits_since = None
        elif self.waits_since is None:
            self.waits_since = self._world.env.now
        return cohort

    def _any_stays(self, round: int, available: NDArray[np.int64]) -> bool:
        """False if each of these devices becomes unavailable before it could have returned an update, alone."""
        attendance = self._world.presence.attendance
        if not attendance.period:
            return True
        stays = attendance.stays(available, self._world.env.now)
        first = int(stays.argmax())
        return any(
            math.isinf(stays[place]) or at_most(self._least_seconds(round, int(available[place])), stays[place])
            for place in (first, *range(len(available)))
        )

    def _least_seconds(self, round: int, client: int) -> float:
        """Predicted seconds of a participation with one block, without work if that may shrink; 0 over a dead link."""
        alpha = None if self._world.setup.scheduler is None else 1
        seconds = sum(self._foreseen(client, round, alpha, work=not self._shortens))
        return seconds if math.isfinite(seconds) else 0.0

    def _foreseen(
        self, client: int, round: int, alpha: int | None = None, *, work: bool = True
    ) -> tuple[float, float, float]:
        """Predicted seconds of the download, of the framework and the ``work``, and of the upload."""
        world = self._world
        down, up = world.bytes_of(client, round, alpha)
        seconds = world.framework(client, down, up)
        if work:
            seconds += world.foreseen_compute(client, round, world.work.of(client, world.setup.sizes.blocks))
        downlink, uplink = world.traffic.foreseen(client, "down"), world.traffic.foreseen(client, "up")
        return downlink.seconds(down), seconds, uplink.seconds(up)

    def chose(self, round: int, cohort: Sequence[int]) -> None:
        """Log the cohort of a round: at its pick or, if clients were asked for losses, when all have answered."""
        self._world.decided(round, "selection", self._world.setup.selector.reads, clients=list(cohort))

    def _local_losses(
        self, round: int, available: NDArray[np.int64], clients: NDArray[np.int64], images: int | None
    ) -> NDArray[np.float64]:
        setup = self._world.setup
        asked = checked_cohort(clients, available, len(available))
        if self.asked or asked != clients.tolist():
            raise WrongAnswer("it asked for losses twice, or not in the order of clients; expected one call, ascending")
        sizes = setup.samples[asked].tolist()
        self.asked = {
            client: size if images is None else min(images, size) for client, size in zip(asked, sizes, strict=True)
        }
        losses = setup.learner.local_losses(round, asked, images)
        self._losses = dict(zip(asked, map(_in_json, losses), strict=True))
        return np.array(losses, np.float64)

    @cached_property
    def _candidates(self) -> NDArray[np.int64] | None:
        setup = self._world.setup
        with blaming(setup.label, 0, "selection"):
            candidates = setup.selector.candidates()
            if candidates is None:
                return None
            return np.array(checked_cohort(candidates, self.everyone, setup.clients), np.int64)

    def next_arrival(self) -> float:
        """Seconds until an absent client that may be picked is available; infinite if none, or in vain for a period."""
        presence, among = self._world.presence, self._candidates
        if math.isfinite(presence.next_recovery(among)):
            self.waits_since = None
        elif self._gave_up:
            return math.inf
        arrival = presence.next_arrival(among)
        if self._too_short:
            everyone = self.everyone if among is None else among
            arrival = min(arrival, presence.attendance.stays(everyone, self._world.env.now).min())
        return float(arrival)

    @property
    def _gave_up(self) -> bool:
        since, period = self.waits_since, self._world.presence.attendance.period
        return since is not None and period > 0 and not at_most(self._world.env.now, since + period)

    def arrival(self, round: int) -> Generator[simpy.Event, object, bool]:
        """Wait until an absent client that may be picked becomes available; False, immediately, if none ever does."""
        seconds = self.next_arrival()
        if math.isinf(seconds):
            self._world.wrote("stalled", round, detail=detail(reason=self._lacking()))
            return False
        yield self._world.env.timeout(seconds)
        return True

    def _lacking(self) -> str:
        if self._gave_up:
            period = f"in {self._world.presence.attendance.period:g} s, after which all traces repeat"
            if self._too_short:
                return f"{period}, no available client stayed for as long as its part in a round takes"
            return f"{period}, selection picked no available client"
        if self._candidates is None:
            return "no client can take part, now or later"
        listed = ", ".join(str(client) for client in self._candidates.tolist())
        return f"selection may pick only clients {listed}; none of them can take part, now or later"

    def blocks(self, round: int, cohort: Sequence[int]) -> dict[int, int]:
        """The number of blocks that a scheduler chose for each client; empty if none is used in this round."""
        scheduler, payload = self._world.setup.scheduler, self._world.setup.method.payload
        with blaming(self._world.setup.label, round, "payload"):
            sends_blocks = payload.partial(round)
        if scheduler is None or not cohort or not sends_blocks:
            return {}
        forecast = self._of_blocks(round, cohort)
        with blaming(self._world.setup.label, round, "block scheduler"):
            alphas = checked_alphas(scheduler.choose(round, list(cohort), forecast), cohort, forecast.seconds.shape[1])
        chosen = {str(client): alpha for client, alpha in sorted(alphas.items())}
        # Compare with the shortest round that would have sent as many blocks.
        choice = np.array([alphas[client] for client in cohort], np.int64)
        foreseen = forecast.makespan(choice)
        arms = max(self._world.setup.sizes.blocks - 1, int(choice.max()))
        least = least_makespan(forecast, int(choice[forecast.free].sum()), arms)
        facts = {"alphas": chosen, "foreseen_seconds": foreseen, "least_seconds": least}
        self._world.decided(round, "blocks", scheduler.reads, **facts, **self._weighed(scheduler.weighed()))
        if math.isfinite(foreseen):
            self._world.accounts.totals.charge("foreseen_seconds", foreseen)
            self._world.accounts.totals.charge("least_seconds", least)
        return alphas

    def _weighed(self, weighed: Mapping[int, Weighed]) -> dict[str, dict[str, float | str]]:
        """What the choice rested on as facts of the log, and its amounts in the accounts; empty without a bonus."""
        totals, found = self._world.accounts.totals, sorted(weighed.items())
        totals.charge("choice_rewards", sum(abs(each.reward) for _, each in found))
        totals.charge("choice_bonuses", sum(each.bonus for _, each in found))
        rewards = {str(client): _in_json(each.reward) for client, each in found}
        return {"rewards": rewards, "bonuses": {str(client): each.bonus for client, each in found}} if found else {}

    def local_work(self, round: int, cohort: Sequence[int], finish: CommonFinish) -> tuple[float, dict[int, Plan]]:
        """The common finish of a round in seconds after its start, and the local work of each client."""
        world, setup = self._world, self._world.setup
        blocks = setup.sizes.blocks
        foreseen = self._of_round(round, np.array(cohort, np.int64))
        transfers = (foreseen.download + foreseen.upload).tolist()
        predicted = [
            world.work.predicted(
                client,
                blocks,
                transfer + world.framework(client, *world.bytes_of(client, round)),
                world.heat.of(client, world.env.now),
            )
            for client, transfer in zip(cohort, transfers, strict=True)
        ]
        time = finish.time(predicted)
        plans = {client: Plan(finish.steps(each, time)) for client, each in zip(cohort, predicted, strict=True)}
        facts: dict[str, object] = {"steps": {str(client): plan.steps for client, plan in sorted(plans.items())}}
        if setup.method.objective.trains_last:
            for client, each, download in zip(cohort, predicted, foreseen.download.tolist(), strict=True):
                steps, share, received = plans[client].steps, finish.part(each, time), world.bytes_of(client, round)[0]
                blocks = self._trained_blocks(client, steps, share, time - download, received=received)
                plans[client] = Plan(steps, blocks)
            facts["blocks"] = {str(client): plan.blocks for client, plan in sorted(plans.items())}
        reads = frozenset({"foreseen"})
        world.decided(round, "local work", reads, seconds=time, drop_late=finish.drop_late, **facts)
        return time, plans

    def _trained_blocks(self, client: int, steps: int | None, share: float, left: float, *, received: int) -> int:
        """The number of last blocks to train, by share or by the time left; the fewest have parameters."""
        world, setup = self._world, self._world.setup
        blocks = setup.sizes.blocks
        fewest = next(count for count in range(1, blocks + 1) if setup.sizes.last(count).model_bytes)
        if share >= 1:
            return blocks
        if not setup.method.objective.blocks_end_in_time:
            return max(fewest, math.floor(round(share * blocks, 9)))
        up = world.traffic.foreseen(client, "up")
        for count in range(blocks, fewest, -1):
            bytes = sum(part.bytes for part in world.uplink(client, count))
            seconds = world.work.of(client, count, steps).seconds + up.seconds(bytes)
            if at_most(seconds + world.framework(client, received, bytes), left):
                return count
        return fewest

    def _of_round(self, round: int, clients: NDArray[np.int64]) -> Foreseen:
        """The predicted seconds of a round with the whole model for each client; the framework's count as computing."""
        rows = [self._foreseen(client, round) for client in clients.tolist()]
        return Foreseen(*np.array(rows, np.float64).reshape(-1, 3).T.copy())

    def _charge(self, round: int, clients: NDArray[np.int64]) -> Charge:
        """The clients' batteries now, and what a round with the whole model is predicted to use of them."""
        world = self._world
        level, used = np.ones(len(clients)), np.zeros(len(clients))
        power = world.traffic.power
        foreseen = self._of_round(round, clients)
        for place, client in enumerate(clients.tolist()):
            if not power.charges.has(client):
                continue
            down, compute, up = (float(seconds[place]) for seconds in foreseen)
            down_bytes, up_bytes = world.bytes_of(client, round)
            profile, framework = world.setup.fleet.profile_of(client), world.framework(client, down_bytes, up_bytes)
            joules = (
                idle_joules(profile, down + up + framework)
                + compute_joules(profile, compute - framework)
                + transfer_joules(profile, "down", down, down_bytes)
                + transfer_joules(profile, "up", up, up_bytes)
            )
            level[place] = power.left(client) / power.charges.capacity[client]
            # Over a link that is down a transfer never ends, even with a radio without watts.
            used[place] = joules / power.charges.capacity[client] if math.isfinite(joules) else math.inf
        return Charge(level, used)

    def _of_blocks(self, round: int, cohort: Sequence[int]) -> BlockForecast:
        """The cost of each α for each client, given the parts that it holds now."""
        world, sizes = self._world, self._world.setup.sizes
        seconds = np.empty((len(cohort), sizes.blocks))
        bytes = np.empty((len(cohort), sizes.blocks), np.int64)
        free = np.ones(len(cohort), dtype=bool)
        for row, client in enumerate(cohort):
            down = world.traffic.foreseen(client, "down")
            uplink = sum(part.bytes for part in world.uplink(client))
            upload = world.traffic.foreseen(client, "up").seconds(uplink)
            for alpha in range(1, sizes.blocks + 1):
                downlink = world.downlink(client, round, alpha)
                size = sum(part.bytes for part in downlink.parts)
                bytes[row, alpha - 1] = size
                compute = world.foreseen_compute(client, round, world.work.of(client, downlink.alpha))
                compute += world.framework(client, size, uplink)
                seconds[row, alpha - 1] = down.seconds(size) + compute + upload
                free[row] &= not downlink.forced_full
        return BlockForecast(seconds, bytes, free)
