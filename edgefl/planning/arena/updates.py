"""What an arena keeps of a simulated run: whose updates were aggregated in each round."""

from __future__ import annotations

from edgefl.record.events import Event
from edgefl.record.listener import Listener


class Updates(Listener):
    """Keeps of each round (from 0) the clients whose updates were aggregated.

    Attributes:
        aggregated: the clients.
    """

    def __init__(self) -> None:
        self.aggregated: list[list[int]] = []

    def events(self, rows: list[Event]) -> None:
        """Process the next rows of the log."""
        self.aggregated += [event.facts["clients"] for event in rows if event.kind == "aggregation"]
