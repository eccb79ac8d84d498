"""Radios that wake up for a transfer, and stay awake for a while after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

import simpy

from edgefl.fleet import DeviceProfile, promotion_joules, tail_joules

Note = Callable[[int, int, Literal["promotion", "tail"], float, float], None]
"""Called with client, round, kind of energy, seconds and joules."""


class Radios:
    """Charges each promotion and each tail once, for any sequence of transfers.

    After its last transfer a radio stays in its tail for the profile's seconds. A transfer that begins in the tail ends
    it and needs no promotion; one that begins later needs one. Parallel transfers share both.

    Args:
        env: the run's clock.
        device: the device of a client.
        note: called for each promotion and tail.

    Attributes:
        device: the same.
    """

    def __init__(self, env: simpy.Environment, device: Callable[[int], DeviceProfile], note: Note) -> None:
        self._env = env
        self.device = device
        self._note = note
        self._busy: Counter[int] = Counter()
        self._quiet: dict[int, tuple[float, int]] = {}
        self._dead: set[int] = set()

    def starts(self, client: int, round: int) -> None:
        """A transfer of the client begins."""
        radio = self.device(client).power.radio
        if radio.tail is None and not radio.promotion:
            return
        self._dead.discard(client)
        self._busy[client] += 1
        if self._busy[client] == 1 and not self._end_tail(client):
            self._note(client, round, "promotion", 0.0, promotion_joules(self.device(client)))

    def ends(self, client: int, round: int) -> None:
        """A transfer of the client ends."""
        if client not in self._busy:
            return
        self._busy[client] -= 1
        if self._busy[client]:
            return
        del self._busy[client]
        tail = self.device(client).power.radio.tail
        if tail is not None and tail.seconds > 0 and client not in self._dead:
            quiet = self._quiet[client] = (self._env.now, round)

            def over(_: simpy.Event) -> None:
                if self._quiet.get(client) is quiet:
                    self._end_tail(client)

            self._env.timeout(tail.seconds).callbacks.append(over)

    def dies(self, client: int) -> None:
        """The device has no power left: its tail ends, and aborted transfers have no tail."""
        self._end_tail(client)
        self._dead.add(client)

    def settle(self) -> None:
        """The run ends: charge the tails in progress."""
        for client in sorted(self._quiet):
            self._end_tail(client)

    def watts(self, client: int) -> float:
        """Watts of the client's radio in its tail now; 0 outside a tail."""
        tail = self.device(client).power.radio.tail
        return tail_joules(self.device(client), tail.seconds) / tail.seconds if tail and client in self._quiet else 0.0

    def pending(self, client: int) -> float:
        """Joules of the client's present tail that have not been charged yet."""
        if client not in self._quiet:
            return 0.0
        return tail_joules(self.device(client), self._env.now - self._quiet[client][0])

    def _end_tail(self, client: int) -> bool:
        """Charge the client's tail up to now; False if there was none."""
        if client not in self._quiet:
            return False
        since, round = self._quiet.pop(client)
        seconds = self._env.now - since
        self._note(client, round, "tail", seconds, tail_joules(self.device(client), seconds))
        return True
