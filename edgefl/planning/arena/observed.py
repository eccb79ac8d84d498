"""What an arena keeps of a simulated run: the available clients, the updates and the duration of each round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.record.events import Event
from edgefl.record.listener import Listener
from edgefl.scheduling.selection.base import Facts, SelectionFeedback, Selector


class Pick(NamedTuple):
    """When the clients of a round were picked, and from which ones."""

    seconds: float
    available: NDArray[np.int64]


class ObservedSelector(Selector):
    """A selector whose calls are kept; its answers do not change.

    Args:
        selector: the selector.

    Attributes:
        picks: the last pick of each round (from 0).
    """

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self.picks: dict[int, Pick] = {}

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        """See :class:`Selector`."""
        self.picks[round] = Pick(facts.now or 0.0, available.copy())
        return self._selector.pick(round, available, cohort, facts)

    def candidates(self) -> NDArray[np.int64] | None:
        """See :class:`Selector`."""
        return self._selector.candidates()

    def observe(self, feedback: SelectionFeedback) -> None:
        """See :class:`Selector`."""
        self._selector.observe(feedback)


def observed(selector: Selector) -> ObservedSelector:
    """The same selector, with its calls kept; its class reads what the selector's class reads."""
    reads = selector.reads
    return type("ObservedSelector", (ObservedSelector,), {"reads": reads})(selector)  # type: ignore[no-any-return]


class Rounds(Listener):
    """Keeps of each round (from 0) the clients whose updates were aggregated, and its end.

    Attributes:
        aggregated: the clients.
        ended: virtual seconds.
        fewest: the fewest bytes of a transfer in each direction, without those that go on after a break.
    """

    def __init__(self) -> None:
        self.aggregated: list[list[int]] = []
        self.ended: list[float] = []
        self.fewest = {"down": np.inf, "up": np.inf}

    def events(self, rows: list[Event]) -> None:
        """Process the next rows of the log."""
        for event in rows:
            if event.kind == "transfer_start":
                if event.bytes < self.fewest.get(event.item, 0.0) and '"first"' not in event.detail:
                    self.fewest[event.item] = event.bytes
            elif event.kind == "aggregation":
                self.aggregated.append(event.facts["clients"])
            elif event.kind == "round_end":
                self.ended.append(event.time)
