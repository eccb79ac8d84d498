"""What the links of a logged run carried, compared with what they could have carried."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgefl.network.audit_records import Link, Repetition


class Carried:
    """What each link has carried, and could have carried, since it was last idle; in bits."""

    def __init__(self, capacity: Mapping[Link, float]) -> None:
        self._capacity = capacity
        self._since: dict[Link, float] = {}
        self._possible: dict[Link, float] = {}
        self._sent: dict[Link, float] = {}
        self._marks: tuple[dict[Link, float], dict[Link, float]] = ({}, {})

    def begin(self, link: Link, now: float) -> None:
        """A flow begins to use the link."""
        if link not in self._since:
            self._since[link] = now
            self._possible[link] = self._sent[link] = 0.0

    def advance(self, link: Link, now: float) -> None:
        """Add what the link could have carried up to now."""
        if link in self._since and self._capacity[link] < math.inf:
            self._possible[link] += self._capacity[link] * (now - self._since[link])
            self._since[link] = now

    def mark(self, repetition: Repetition, stage: int, now: float) -> None:
        """Record what links could have carried when a period begins and ends, or add its repetitions."""
        for link in self._since:
            if stage < 2:
                self.advance(link, now)
                self._marks[stage][link] = self._possible[link]
            else:
                before, after = (marks.get(link, 0.0) for marks in self._marks)
                self._possible[link] += repetition.times * (after - before)
                self._since[link] = now

    def excess(self, link: Link, bits: float, now: float) -> float:
        """Remove a flow that delivered ``bits``; return the share by which the link exceeded its possible load."""
        self.advance(link, now)
        self._sent[link] += bits
        if self._capacity[link] == math.inf:
            return 0.0
        possible = self._possible[link] + self._capacity[link] * 4.0 * math.ulp(now)
        sent = self._sent[link]
        return max(sent / possible - 1.0, 0.0) if possible > 0.0 else (math.inf if sent > 0.0 else 0.0)

    def end(self, link: Link) -> None:
        """The link is idle."""
        del self._since[link]
