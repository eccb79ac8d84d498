"""What a flow of the simulated world carries, and for whom."""

from __future__ import annotations

from typing import Literal, NamedTuple

from edgefl.learning.payload import Part

Direction = Literal["down", "up"]
"""From the server to a client, or back."""


class Transfer(NamedTuple):
    """What a flow carries: the tag by which the world recognises it; ``dispatch`` numbers the client's jobs."""

    client: int
    round: int
    dispatch: int
    direction: Direction
    parts: tuple[Part, ...]
    early: bool

    @property
    def bytes(self) -> int:
        """Their sizes together."""
        return sum(part.bytes for part in self.parts)

    @property
    def payload(self) -> tuple[Part, ...] | None:
        """What others may be sent as well; an update is like no other."""
        return self.parts if self.direction == "down" else None

    @property
    def item(self) -> str:
        """How the log calls it."""
        return "relay" if self.client < 0 else "prefetch" if self.early else self.direction
