"""What a flow of the simulated world carries, and for whom."""

from __future__ import annotations

from typing import Literal, NamedTuple

from edgefl.learning.payload import Part

Direction = Literal["down", "up"]
"""From the server to a client, or back."""


class Transfer(NamedTuple):
    """What a flow carries: the tag by which the world recognises it.

    Attributes:
        client: to whom or from whom; -1 between the server and a cell.
        round: the round that it belongs to.
        dispatch: numbers the client's jobs.
        direction: from the server, or to it.
        parts: what it carries.
        item: how the log calls it.
    """

    client: int
    round: int
    dispatch: int
    direction: Direction
    parts: tuple[Part, ...]
    item: str
