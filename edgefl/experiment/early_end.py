"""The reason for a run's early end, in words, from its log."""

from __future__ import annotations

import math
from collections import Counter

from edgefl.record.events import Event
from edgefl.record.listener import Listener
from edgefl.simulation.rounds import STALL_ROUNDS
from edgefl.simulation.run import Outcome

_READ = frozenset({"stalled", "diverged", "aggregation", "refused", "dropout", "lost", "transfer_drop"})


class EarlyEnd(Listener):
    """Keeps the facts for the sentence while the run goes on.

    Args:
        rounds: later rounds do not count.
    """

    def __init__(self, rounds: float = math.inf) -> None:
        self._rounds = rounds
        self._stated: str | None = None
        self._in_vain: Counter[str] = Counter()
        self._broken_off = -1.0

    def events(self, rows: list[Event]) -> None:
        """Process the next rows."""
        for event in [event for event in rows if event.kind in _READ]:
            match event.kind:
                case "stalled" | "diverged":
                    self._stated = event.facts["reason"]
                case "transfer_drop":
                    self._broken_off = event.time
                case _ if event.round > self._rounds:
                    continue
                case "aggregation" if event.value:
                    self._in_vain.clear()
                case "refused":
                    self._in_vain["were refused (not enough memory)"] += 1
                case "dropout":
                    self._in_vain[f"dropped out ({event.item})"] += 1
                case "lost" if event.item == "late":
                    self._in_vain["were late"] += 1

    def why(self, outcome: Outcome) -> str | None:
        """The sentence; ``None`` if the stop reason is sufficient."""
        if outcome.fault is not None:
            return str(outcome.fault)
        if outcome.reason != "stalled" or self._stated is not None:
            return self._stated
        last = outcome.rows[-STALL_ROUNDS:]
        if len(last) == STALL_ROUNDS and not any(row.aggregated for row in last):
            return f"no update arrived in {STALL_ROUNDS} consecutive rounds{self.fates()}"
        if self._broken_off == outcome.seconds:
            return "all active transfers are on links with zero capacity"
        return f"no client is available{self.fates()}"

    def fates(self) -> str:
        """The fates of the clients picked since the last update that arrived, the most frequent first."""
        fates = ", ".join(f"{count} {fate}" for fate, count in self._in_vain.most_common())
        return fates and f": {fates}"
