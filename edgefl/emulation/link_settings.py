"""How the real links queue, and how connections over them begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Queue = Literal["fair", "fifo"]


@dataclass(frozen=True)
class LinkSettings:
    """How the real links queue, and how connections over them begin.

    Attributes:
        dilation: real seconds for one second of the scenario.
        efficiency: the share of a capacity that carries payload.
        queue: ``fair``: a queue for each sender and receiver at shared links; ``fifo``: one for all.
        initial_window: packets in the first round trip; None opens the window that fills the path.
        restart_idle: whether a kept connection begins slow start again after an idle time.
        window: the maximum of bytes in flight; None for the window that fills the path.
        single_packets: whether senders hand over each packet alone; else as many at once as take a millisecond.
    """

    dilation: float = 1.0
    efficiency: float = 1.0
    queue: Queue = "fair"
    initial_window: int | None = None
    restart_idle: bool = False
    window: float | None = None
    single_packets: bool = False

    def written(self) -> dict[str, Any]:
        """The settings as data for JSON."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> LinkSettings:
        """The settings that :meth:`written` made."""
        return cls(**data)
