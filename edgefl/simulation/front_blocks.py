"""The age of the front blocks that clients train when they receive only the last blocks."""

from __future__ import annotations

from typing import NamedTuple


class Ages(NamedTuple):
    """The front blocks of one or more jobs.

    Attributes:
        blocks: their number.
        rounds: the sum of their ages.
    """

    blocks: int
    rounds: int


class FrontBlocks:
    """The blocks that a job trains without a download for it: its *front blocks*.

    A job that receives the last α of M blocks has M-α front blocks. They are the client's own, from the end of the last
    job that it computed. A front block's *age* is the number of rounds (aggregations) between the model that the job
    starts from and the model from which the client last received that block, for a job that it computed or as a
    broadcast. All clients begin with the first model, so the age of a block that was never sent is counted from there.

    Every front block of every job that was computed to its end counts once, even if its update was late. So the mean
    age, ``blocks.front_age`` in ``summary.json``, is 1 where all clients take part in each round and every second round
    sends the whole model, and about N/K or more where K of N clients are drawn.

    Args:
        blocks: M.

    >>> front = FrontBlocks(4)
    >>> front.trained(client=7, round=0, alpha=4), front.trained(client=7, round=5, alpha=2)
    (Ages(blocks=0, rounds=0), Ages(blocks=2, rounds=10))
    >>> front.trained(client=7, round=6, alpha=1)
    Ages(blocks=3, rounds=13)
    """

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._sent: dict[int, list[int]] = {}

    def received(self, client: int, round: int) -> None:
        """The client has received the whole model of ``round`` (from 0) without a job."""
        self._sent[client] = [round] * self._blocks

    def trained(self, client: int, round: int, alpha: int) -> Ages:
        """Add a client's computed job that began from the model of ``round`` (from 0) with ``alpha`` blocks sent."""
        front = self._blocks - alpha
        kept = self._sent.get(client, [0] * self._blocks)[:front]
        self._sent[client] = kept + [round] * alpha
        return Ages(front, round * front - sum(kept))
