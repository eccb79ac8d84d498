"""The seconds of a device's phases: transfers and computing, one after another."""

from __future__ import annotations

import simpy


class Phases:
    """Measures consecutive phases in virtual time; the first begins now.

    Args:
        env: the clock.

    Attributes:
        transfers: beginning and end of each completed transfer, seconds.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._began: float = env.now
        self.transfers: list[tuple[float, float]] = []

    def begin(self) -> None:
        """A phase begins now, after a pause."""
        self._began = self._env.now

    def end(self) -> float:
        """The phase ends, and the next one begins; return its seconds."""
        began, self._began = self._began, self._env.now
        return self._began - began

    def end_transfer(self) -> float:
        """The same for a completed transfer."""
        began = self._began
        seconds = self.end()
        self.transfers.append((began, self._began))
        return seconds

    @property
    def transfer_seconds(self) -> float:
        """The seconds of all completed transfers."""
        return sum((ended - began for began, ended in self.transfers), 0.0)

    def transfers_since(self, moment: float) -> tuple[float, float]:
        """The transfer seconds after and before a given time."""
        after = sum(max(0.0, ended - max(began, moment)) for began, ended in self.transfers)
        before = sum(max(0.0, min(ended, moment) - began) for began, ended in self.transfers)
        return after, before
