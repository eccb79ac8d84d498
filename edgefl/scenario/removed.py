"""Options that earlier builds had: a scenario that sets one is refused by a sentence that names what replaces it."""

from typing import Any, NamedTuple

from edgefl.errors import UserError
from edgefl.scenario.overrides import each_at


class Removed(NamedTuple):
    """An option or, with ``choice``, one value of an option.

    Run directories contain every option: a value in ``unused`` had no effect, and its key is ignored.
    """

    path: str  # dotted; * is any key or index
    instead: str
    unused: tuple[Any, ...] = (None,)
    choice: str | None = None

    def leave(self, container: Any, key: Any) -> None:
        """Drop the option from its mapping; UserError if its value had an effect."""
        value = container[key]
        if self.choice is None and value in self.unused:
            del container[key]
        elif self.choice in (None, value):
            what = "this option" if self.choice is None else f"the choice '{value}'"
            raise UserError(f"{what} was removed; instead: {self.instead}", field=self.path)


_TRANSPORT = "network.transport"
REMOVED = (
    Removed("data.feature_skew.kind", "noise, or data of your own", choice="brightness"),
    Removed("data.feature_skew.kind", "noise, or data of your own", choice="shift"),
    Removed("data.feature_skew.levels", "noise that grows with the client's number", ("graded",)),
    Removed("training.engine.convolutions", "kind: sequential where grouped convolutions are slow", ("grouped",)),
    Removed("sweep.halving", "optuna, or fewer settings (random)"),
    Removed(f"{_TRANSPORT}.header_bytes", "packet_bytes, of which 52 are headers", (52,)),
    Removed(f"{_TRANSPORT}.framing_bytes", "capacities of links without what frames take", (0,)),
    Removed(f"{_TRANSPORT}.restart_idle", "keep_alive; slow start begins again after an idle time", (True,)),
    Removed(f"{_TRANSPORT}.window", "links with the rate that the window allows"),
    Removed(f"{_TRANSPORT}.loss", "links with the rate that transfers reach in spite of losses", (0,)),
    Removed(f"{_TRANSPORT}.acknowledge_every", "initial_window; each packet is acknowledged", (1,)),
    Removed(f"{_TRANSPORT}.queue_spread", "queue: fifo, with a spread of 0.4", (0.4,)),
    Removed(f"{_TRANSPORT}.timeouts.factor", "first_wait; each further wait is 1.6 times longer", (1.6,)),
    Removed(f"{_TRANSPORT}.timeouts.longest_wait", "first_wait; no wait is longer than 2 min", (120,)),
    Removed(f"{_TRANSPORT}.timeouts.jitter", "first_wait; waits differ by up to 20 %", (0.2,)),
)


def without_removed(data: dict[str, Any]) -> None:
    """Drop what had no effect from a scenario's plain data; UserError for other options that do not exist any more."""
    for option in REMOVED:
        for container, key in each_at(data, option.path.split(".")):
            option.leave(container, key)
