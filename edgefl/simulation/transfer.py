"""The content of a transfer in the simulated world, and its client."""

from __future__ import annotations

from typing import Literal, NamedTuple

from edgefl.methods.payload import Part

Direction = Literal["down", "up"]
"""``down``: from the server to a client; ``up``: from a client to the server."""


class Transfer(NamedTuple):
    """The content of a transfer.

    Attributes:
        client: the receiving or sending client; -1 between the server and a cell.
        round: its round.
        dispatch: the number of the client's job.
        direction: from the server, or to it.
        parts: the parts that it carries.
        item: its name in the log.
    """

    client: int
    round: int
    dispatch: int
    direction: Direction
    parts: tuple[Part, ...]
    item: str
