"""Radios and batteries of devices that take part: tails, promotions, and the exact time at which a battery is empty."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet import (
    DeviceProfile,
    Direction,
    FleetAssignment,
    idle_joules,
    promotion_joules,
    tail_joules,
    transfer_joules,
    value,
)
from edgefl.fleet.battery import Charges
from edgefl.fleet.prices import Bills, Rates
from edgefl.network.flow import Flow, Network
from edgefl.record.events import Event, detail
from edgefl.record.summary import BatteryUse
from edgefl.simulation.accounts import Accounts, Budget
from edgefl.simulation.clock import Clock
from edgefl.units import slack

Note = Callable[[int, int, Literal["promotion", "tail"], float, float], None]
"""Called with client, round, kind of energy, seconds and joules."""


_FASTEST = 1e12
"""Bit/s, for paths without any limit."""


@dataclass
class _Drain:
    """The drain of a participating device since its last charge to the battery."""

    on_empty: Callable[[], None]
    watts: float
    since: float
    timer: int = 0


class Power:
    """The radios of a fleet, and its batteries: one timer for each battery that is being drained.

    A radio's promotion and tail are charged once for parallel transfers; one that begins in the tail ends it.

    A transfer's power depends on its rate, so a battery's timer is set for the earliest time at which it could be
    empty, at the highest rates that links allow now. Then, and when a capacity changes, it is set again.
    """

    def __init__(
        self, env: Clock, charges: Charges, network: Network, device: Callable[[int], DeviceProfile], note: Note
    ) -> None:
        self._env, self._network, self._device, self._note = env, network, device, note
        self.charges = charges
        self.meter: Meter | None = None
        self.emptied: dict[int, float] = {}  # when each client's battery first ran empty
        self._drains: dict[int, _Drain] = {}
        self._flows: defaultdict[int, list[Flow]] = defaultdict(list)
        # of each client and direction, its flows from or to peers, since when, and the seconds before that for each
        self._shared: dict[tuple[int, str], tuple[int, float, float]] = {}
        self._joined: dict[tuple[int, int], float] = {}  # those seconds when a flow began, by client and flow
        self._quiet: dict[int, tuple[float, int]] = {}  # when a radio's tail began, and its round
        self._dead: set[int] = set()  # clients whose device has no power left, until a transfer begins
        self._dying, self._last = -1, 0.0  # the client that drops out now, and its remaining joules

    def enter(self, client: int, on_empty: Callable[[], None]) -> None:
        self.charges.enter(client, self._env.now)
        if self.meter is not None or self.charges.has(client):
            self._drains[client] = _Drain(on_empty, idle_joules(self._device(client), 1.0), self._env.now)
            self._arm(client)

    def leave(self, client: int) -> None:
        self._drains.pop(client, None)
        self._changed(client)
        self.charges.leave(client, self._env.now)

    def phase(self, client: int, watts: float | None = None) -> None:
        """From now on it computes with so many watts, or waits; its earlier energy has been charged."""
        drain = self._drains.get(client)
        if drain is not None:
            drain.watts = idle_joules(self._device(client), 1.0) if watts is None else watts
            drain.since = self._env.now
            self._arm(client)

    def flow_started(self, client: int, round: int, flow: Flow) -> None:
        radio, flows = self._device(client).power.radio, self._flows[client]
        self._dead.discard(client)
        if not flows and (radio.tail or radio.promotion) and not self._end_tail(client):
            self._note(client, round, "promotion", 0.0, promotion_joules(self._device(client)))
        flows.append(flow)
        if flow.tag.receiver >= 0:
            self._joined[client, flow.id] = self._share(client, flow, 1)
        self._arm(client)

    def active_seconds(self, client: int, flow: Flow) -> float:
        """Seconds of the client's radio for a flow so far; between peers, its part of the seconds that flows share."""
        if flow.tag.receiver < 0:
            return self._env.now - flow.started
        return self._share(client, flow) - self._joined[client, flow.id]

    def _share(self, client: int, flow: Flow, change: int = 0) -> float:
        key, now = (client, flow.tag.way(client)), self._env.now
        flows, since, seconds = self._shared.get(key, (0, now, 0.0))
        seconds += (now - since) / flows if flows else 0.0
        self._shared[key] = flows + change, now, seconds
        return seconds

    def flow_over(self, client: int, round: int, flow: Flow) -> None:
        """The transfer has ended, and was charged."""
        tail, flows = self._device(client).power.radio.tail, self._flows[client]
        flows.remove(flow)
        if self._joined.pop((client, flow.id), None) is not None:
            self._share(client, flow, -1)
        if not flows and tail is not None and tail.seconds > 0 and client not in self._dead:
            quiet = self._quiet[client] = (self._env.now, round)

            def over(_: object) -> None:
                if self._quiet.get(client) is quiet:
                    self._end_tail(client)
                    self._changed(client)

            self._env.alarm(tail.seconds).callbacks.append(over)
        self._arm(client)

    def settle(self) -> None:
        """The run ends: charge the tails in progress."""
        for client in sorted(self._quiet):
            self._end_tail(client)

    def _end_tail(self, client: int) -> bool:
        if client not in self._quiet:
            return False
        since, round = self._quiet.pop(client)
        seconds = self._env.now - since
        self._note(client, round, "tail", seconds, tail_joules(self._device(client), seconds))
        return True

    def capacity_changed(self, link: int) -> None:
        """A link's capacity changed, so transfers over it may draw more power than predicted."""
        for client in self._drains if self.meter is None else self.active():
            if any(link in flow.path for flow in self._flows[client]):
                self._arm(client)

    def _changed(self, client: int) -> None:
        if self.meter is not None:
            self.meter.changed(client)

    def active(self) -> set[int]:
        """The clients whose devices draw power that is not charged yet."""
        return {*self._drains, *self._quiet, *(client for client, flows in self._flows.items() if flows)}

    def drawn(self, client: int) -> Iterator[tuple[float, float]]:
        """The watts of each activity of a client in progress, and when it began; without its transfers' bytes."""
        if (drain := self._drains.get(client)) is not None:
            yield drain.watts, drain.since
        if client in self._quiet:
            tail = self._device(client).power.radio.tail
            yield 0.0 if tail is None else value(tail.watts), self._quiet[client][0]
        for flow in self._flows[client]:
            yield transfer_joules(self._device(client), flow.tag.way(client), 1.0, 0.0), flow.started

    def flows(self, client: int) -> Iterator[tuple[Flow, float, float]]:
        """The transfers of a client in progress, their joules by byte, and the most bytes by second that they reach."""
        for flow in self._flows[client]:
            rate = min((self._network.capacity(*self._network.topology.ends(link)) for link in flow.path), default=0.0)
            yield flow, transfer_joules(self._device(client), flow.tag.way(client), 0.0, 1.0), min(rate, _FASTEST) / 8

    def left(self, client: int) -> float:
        """The remaining joules of the client's battery."""
        drain, now = self._drains.get(client), self._env.now
        drawn = 0.0
        if client in self._quiet:
            drawn = tail_joules(self._device(client), now - self._quiet[client][0])
        if drain is not None:
            drawn += drain.watts * (now - drain.since)
        for flow in self._flows[client]:
            drawn += self._drawn_by(client, flow)
        return self.charges.held(client, now) - drawn

    def use(self) -> dict[str, BatteryUse]:
        """What became of the batteries until now, by device."""
        left, found = self.charges.left(self._env.now), dict[str, list[int]]()
        for client in np.flatnonzero(np.isfinite(left)).tolist():
            found.setdefault(self._device(client).name, []).append(client)
        uses = {}
        for device, clients in found.items():
            empty = [client for client in clients if client in self.emptied]
            first = min(empty or clients, key=lambda client: (self.emptied.get(client, 0.0), left[client]))
            seconds = {"seconds": self.emptied[first]} if empty else {}
            least = float(left[clients].min())
            uses[device] = BatteryUse(clients=len(clients), empty=len(empty), left=least, client=first, **seconds)
        return uses

    def given(self, client: int, joules: float, flow: Flow | None = None) -> float:
        """The part of ``joules`` that the battery delivers now: no more than it holds.

        A participant drops out when its battery is empty, so only a promotion, or energy outside a round, can exceed
        that. ``flow`` used the energy, if :meth:`flow_over` has not been called for it yet.
        """
        if not self.charges.has(client):
            return joules
        if client == self._dying:
            held = self._last
        else:
            held = self.left(client) + (0.0 if flow is None else self._drawn_by(client, flow))
        given = joules if joules <= held + float(self.charges.least[client]) else max(held, 0.0)
        if client == self._dying:
            self._last -= given
        return given

    def _drawn_by(self, client: int, flow: Flow) -> float:
        active = self.active_seconds(client, flow)
        return transfer_joules(self._device(client), flow.tag.way(client), active, flow.delivered)

    def _arm(self, client: int) -> None:
        if self.meter is not None:
            self.meter.changed(client)
        drain = self._drains.get(client)
        if drain is None or not self.charges.has(client):
            return
        drain.timer += 1
        timer, most, tail = drain.timer, drain.watts, self._device(client).power.radio.tail
        if tail is not None and client in self._quiet:
            most += tail_joules(self._device(client), tail.seconds) / tail.seconds
        for flow, _, rate in self.flows(client):
            most += transfer_joules(self._device(client), flow.tag.way(client), 1.0, rate)
        if most > 0:
            seconds = max(self.left(client), 0.0) / most
            self._env.alarm(seconds).callbacks.append(lambda _: self._look(client, drain, timer, seconds))

    def _look(self, client: int, drain: _Drain, timer: int, seconds: float) -> None:
        if self._drains.get(client) is not drain or drain.timer != timer:
            return
        if self.left(client) > self.charges.least[client] and seconds > slack(self._env.now):
            self._arm(client)
            return
        # Set the battery to empty first: the round may close, and other clients may be picked, while the device leaves
        # it.
        self._end_tail(client)
        self._dead.add(client)  # aborted transfers have no tail
        self._dying, self._last = client, float(self.charges.joules[client])
        self.charges.run_empty(client)
        self.emptied.setdefault(client, self._env.now)
        drain.on_empty()
        self._dying = -1


Amounts = NDArray[np.float64]
"""Grams and euros, shape ``[2]``."""
_NAMES = ("grams", "euros")


class _Moved(NamedTuple):
    """What a transfer's bytes emitted and cost until the last change of a price, and their joules."""

    since: float
    joules: float = 0.0
    amounts: Amounts = np.zeros(2)


class Meter:
    """The grams and euros of each row of the log, and the instant at which their sum reaches a budget.

    Only the power of transfers is not constant: their bytes are charged at each change of a price. As for batteries, a
    budget's earliest possible end is predicted at the highest rates of links; then the exact sum is computed.
    """

    def __init__(self, env: Clock, bills: Bills, fleet: FleetAssignment, power: "Power", accounts: Accounts) -> None:
        self._env, self._bills, self._fleet, self._power, self._accounts = env, bills, fleet, power, accounts
        self._moved: dict[int, _Moved] = {}  # by the number of the flow
        self._most: dict[int, Amounts] = {}  # what each client's activities add in a second, or more
        self._total, self._spent = np.zeros(2), np.zeros(2)  # their sum; what the run has spent until now, or more
        self._since, self._change, self._armed, self._token = 0.0, math.inf, math.inf, 0
        self.breakdown: dict[str, dict[str, dict[str, float]]] = {}
        power.meter = self
        self._look()

    def priced(self, event: Event) -> Event:
        """The row, with what it emits and costs in its details."""
        facts: dict[str, float] = {}
        if event.kind == "server":
            facts = _named(_energy(self._bills.server, event, event.facts["joules"]), "server_")
        elif event.kind in ("transfer_end", "transfer_drop"):
            facts = self._transfer(event)
        elif event.client >= 0 and event.joules and event.kind != "work":
            phase = event.kind.partition("_")[0]
            facts = self._charged(event.client, {phase: _energy(self._of(event.client), event, event.joules)})
        text = detail(**facts)
        return event._replace(detail=f"{event.detail[:-1]}, {text[1:]}" if event.detail else text) if facts else event

    def _transfer(self, event: Event) -> dict[str, float]:
        server = self._bills.server
        price = server.up if event.source == "server" else server.down if event.target == "server" else 0.0
        facts = _named((0.0, event.bytes / 1e9 * price), "server_")
        if event.client < 0:
            return facts
        rates, profile = self._of(event.client), self._fleet.profile_of(event.client)
        way: Direction = "up" if event.item == "up" else "down"
        by_time, by_bytes = (transfer_joules(profile, way, *of) for of in ((event.seconds, 0.0), (0.0, event.bytes)))
        moved = self._moved.pop(event.flow, _Moved(event.time - event.seconds))
        energy = _energy(rates, event, by_time) + self._bytes(moved, by_bytes, rates)
        if event.joules < by_time + by_bytes:  # its battery ran empty
            energy *= event.joules / (by_time + by_bytes)
        traffic = np.array([0.0, event.bytes / 1e9 * getattr(rates, way)])
        return facts | self._charged(event.client, {f"{way}load": energy, "traffic": traffic})

    def _charged(self, client: int, by_phase: Mapping[str, Amounts]) -> dict[str, float]:
        amounts: Amounts = np.sum(list(by_phase.values()), axis=0)
        parts = [("by_phase", phase, each) for phase, each in by_phase.items()]
        for kind, key, both in [*parts, ("by_client", str(client), amounts)]:
            for name, amount in _named(both).items():
                sums = self.breakdown.setdefault(name, {"by_phase": {}, "by_client": {}})[kind]
                sums[key] = sums.get(key, 0.0) + amount
        self._spent = self._spent + np.maximum(amounts, 0.0)
        self._arm()
        return _named(amounts)

    def _of(self, client: int) -> Rates:
        return self._bills.groups[int(self._fleet.group[client])]

    def _bytes(self, moved: _Moved, joules: float, rates: Rates) -> Amounts:
        """What a transfer's bytes have emitted and cost, of whose joules those since the last change have one price."""
        return moved.amounts + (joules - moved.joules) * rates.of_joule((moved.since + self._env.now) / 2)

    def changed(self, client: int) -> None:
        """The activities of a client have changed, or the capacity of their links."""
        self._advance()
        if self._accounts.priced:
            before, self._most[client] = self._most.get(client, 0.0), self._rate_of(client)
            self._total = self._total + self._most[client] - before
        self._arm()

    def _rate_of(self, client: int) -> Amounts:
        rates = self._of(client)
        price = rates.of_joule(self._env.now)
        most: Amounts = sum(watts for watts, _ in self._power.drawn(client)) * price
        for flow, joules, bytes in self._power.flows(client):
            traffic = np.array([0.0, getattr(rates, flow.tag.way(client)) / 1e9])
            most += bytes * np.maximum(joules * price + traffic, 0.0)
        return most

    def _running(self, client: int) -> Amounts:
        """What the client's activities in progress have emitted and cost so far."""
        rates, found = self._of(client), np.zeros(2)
        for watts, since in self._power.drawn(client):
            found += watts * rates.of_watt(since, self._env.now)
        for flow, joules, _ in self._power.flows(client):
            found += self._bytes(self._moved.get(flow.id, _Moved(flow.started)), joules * flow.delivered, rates)
            found[1] += flow.delivered / 1e9 * getattr(rates, flow.tag.way(client))
        return found

    def _advance(self) -> None:
        self._spent = self._spent + self._total * (self._env.now - self._since)
        self._since = self._env.now

    def _arm(self) -> None:
        self._advance()
        due = self._change
        for budget, place in self._budgets():
            left, rate = budget.limit - self._spent[place], self._total[place]
            if left <= 0 or rate > 0:
                due = min(due, self._env.now + (left / rate if left > 0 else 0.0))
        if due < self._armed:
            self._armed, self._token = due, self._token + 1
            token, alarm = self._token, self._env.alarm(due - self._env.now)
            alarm.callbacks.append(lambda _: self._look() if token == self._token else None)

    def _budgets(self) -> list[tuple[Budget, int]]:
        """The budgets that are left, and their places in amounts."""
        return [(budget, _NAMES.index(budget.kind)) for budget in self._accounts.priced]

    def _look(self) -> None:
        """Sum up what is spent, at a change of a price or where a budget may be reached."""
        now, active = self._env.now, sorted(self._power.active())
        for client in active:
            for flow, joules, _ in self._power.flows(client):
                moved, drawn = self._moved.get(flow.id, _Moved(flow.started)), joules * flow.delivered
                self._moved[flow.id] = _Moved(now, drawn, self._bytes(moved, drawn, self._of(client)))
        if budgets := self._budgets():
            self._spent = sum(map(self._running, active), np.array([self._accounts.totals[name] for name in _NAMES]))
            self._most = {client: self._rate_of(client) for client in active}
            self._total = sum(self._most.values(), np.zeros(2))
            for budget, place in budgets:
                if budget.limit - self._spent[place] <= max(0.0, self._total[place] * slack(now)):
                    self._accounts.exhaust(budget)
        self._since, self._armed = now, math.inf
        prices = [price for rates in self._bills.groups for price in (rates.carbon, rates.energy)]
        self._change = min((price.next_change(now) for price in prices), default=math.inf)
        if self._env.peek() < math.inf:  # else nothing more happens: the run has stalled
            self._arm()


def _named(amounts: Iterable[float], whose: str = "") -> dict[str, float]:
    both = zip(_NAMES, map(float, amounts), strict=True)
    return {f"{whose}{name}": amount for name, amount in both if amount}


def _energy(rates: Rates, event: Event, joules: float) -> Amounts:
    """What the joules of a row emit and cost, drawn evenly over its seconds."""
    if not event.seconds:
        return joules * rates.of_joule(event.time)
    return joules / event.seconds * rates.of_watt(event.time - event.seconds, event.time)
