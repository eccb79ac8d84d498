"""Radios and batteries of devices that take part: tails, promotions, and the exact time at which a battery is empty."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgefl.fleet import DeviceProfile, idle_joules, promotion_joules, tail_joules, transfer_joules
from edgefl.fleet.battery import Charges
from edgefl.network.flow import Flow, Network
from edgefl.record.summary import BatteryUse
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

    Each promotion and each tail of a radio is charged once, for any sequence of transfers. After its last transfer a
    radio stays in its tail for the profile's seconds. A transfer that begins in the tail ends it and needs no
    promotion; one that begins later needs one. Parallel transfers share both.

    A transfer's power depends on its rate, which the network solves repeatedly. A battery's timer is therefore set for
    the earliest time at which it could be empty, at the highest rate that the path's links allow now. At that time the
    exact integral gives the remaining energy, and the timer is set again. These times converge to the true one from
    below. A change of capacity also sets the timer again.
    """

    def __init__(
        self, env: Clock, charges: Charges, network: Network, device: Callable[[int], DeviceProfile], note: Note
    ) -> None:
        self._env, self._network, self._device, self._note = env, network, device, note
        self.charges = charges
        self.emptied: dict[int, float] = {}  # when each client's battery first ran empty
        self._drains: dict[int, _Drain] = {}
        self._flows: defaultdict[int, list[Flow]] = defaultdict(list)
        self._quiet: dict[int, tuple[float, int]] = {}  # when a radio's tail began, and its round
        self._dead: set[int] = set()  # clients whose device has no power left, until a transfer begins
        self._dying, self._last = -1, 0.0  # the client that drops out now, and its remaining joules

    def enter(self, client: int, on_empty: Callable[[], None]) -> None:
        self.charges.enter(client, self._env.now)
        if self.charges.has(client):
            self._drains[client] = _Drain(on_empty, idle_joules(self._device(client), 1.0), self._env.now)
            self._arm(client)

    def leave(self, client: int) -> None:
        self._drains.pop(client, None)
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
        self._arm(client)

    def flow_over(self, client: int, round: int, flow: Flow) -> None:
        """The transfer has ended, and was charged."""
        tail, flows = self._device(client).power.radio.tail, self._flows[client]
        flows.remove(flow)
        if not flows and tail is not None and tail.seconds > 0 and client not in self._dead:
            quiet = self._quiet[client] = (self._env.now, round)

            def over(_: object) -> None:
                if self._quiet.get(client) is quiet:
                    self._end_tail(client)

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
        for client in self._drains:
            if any(link in flow.path for flow in self._flows[client]):
                self._arm(client)

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

        A participating device drops out when its battery is empty, so only energy that is drawn instantly (a radio's
        promotion) or outside a round (a tail, or prefetching) can exceed what it holds. ``flow`` is the transfer that
        used the energy, if :meth:`flow_over` has not been called for it yet.
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
        return transfer_joules(self._device(client), flow.tag.direction, self._env.now - flow.started, flow.delivered)

    def _arm(self, client: int) -> None:
        drain = self._drains.get(client)
        if drain is None:
            return
        drain.timer += 1
        timer, most, tail = drain.timer, drain.watts, self._device(client).power.radio.tail
        if tail is not None and client in self._quiet:
            most += tail_joules(self._device(client), tail.seconds) / tail.seconds
        for flow in self._flows[client]:
            rate = min((self._network.capacity(*self._network.topology.ends(link)) for link in flow.path), default=0.0)
            most += transfer_joules(self._device(client), flow.tag.direction, 1.0, min(rate, _FASTEST) / 8)
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
