"""Running totals of what a run has spent, as in the log."""

from __future__ import annotations

from dataclasses import dataclass
from operator import sub
from typing import Literal, NamedTuple, Self

from edgefl.fleet import Direction
from edgefl.record.kinds import Lost


class Ages(NamedTuple):
    """The number of front blocks of one or more jobs, and the sum of their ages in rounds."""

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


@dataclass
class Ledger:
    """The totals so far: bytes that arrived, FLOPs executed and joules drawn by all clients together.

    Attributes:
        bytes_down, bytes_up: delivered bytes by direction, including aborted transfers.
        bytes_backhaul: delivered between the server and averaging cells; not included in the other counts.
        client_bytes: delivered to and from the client with the most bytes.
        bytes_useful: the part of both for clients whose update was aggregated.
        bytes_late: the part for clients that had not returned when their round closed.
        bytes_dropped: the part for clients that dropped out.
        bytes_prefetched_in_vain: prefetched for a participation that never began, or that then needed other parts.
        bytes_retried: moved by clients before they restarted their job.
        bytes_broken: delivered by attempts to transfer them that broke, and sent again or never.
        breaks, repeats, failures: attempts that broke, those that followed another, and transfers that failed.
        foreseen_seconds, least_seconds: makespans of partial rounds: predicted for the chosen blocks, and for the best
            choice of as many blocks.
        front_blocks, front_block_rounds: front blocks of computed jobs, and the sum of their ages (see
            :class:`~edgefl.simulation.ledger.FrontBlocks`).
        flops: training FLOPs; an aborted computation counts in proportion.
        joules: of the devices: idle while participating, compute, radio.
        download_seconds, upload_seconds, compute_seconds: summed over all clients.
        exposed_seconds, hidden_seconds: transfer seconds of each round's critical path that did, and did not, lengthen
            the round.
    """

    bytes_down: float = 0.0
    bytes_up: float = 0.0
    client_bytes: float = 0.0
    bytes_useful: float = 0.0
    bytes_late: float = 0.0
    bytes_dropped: float = 0.0
    bytes_prefetched_in_vain: float = 0.0
    bytes_retried: float = 0.0
    bytes_broken: float = 0.0
    bytes_backhaul: float = 0.0
    flops: float = 0.0
    joules: float = 0.0
    download_seconds: float = 0.0
    upload_seconds: float = 0.0
    compute_seconds: float = 0.0
    exposed_seconds: float = 0.0
    hidden_seconds: float = 0.0
    foreseen_seconds: float = 0.0
    least_seconds: float = 0.0
    front_blocks: int = 0
    front_block_rounds: int = 0
    breaks: int = 0
    repeats: int = 0
    failures: int = 0

    @property
    def bytes(self) -> float:
        """Bytes delivered in both directions."""
        return self.bytes_down + self.bytes_up

    def moved(self, direction: Direction, bytes: float, seconds: float) -> None:
        if direction == "down":
            self.bytes_down += bytes
            self.download_seconds += seconds
        else:
            self.bytes_up += bytes
            self.upload_seconds += seconds

    def computed(self, flops: float, seconds: float) -> None:
        self.flops += flops
        self.compute_seconds += seconds

    def lost(self, fate: Lost, bytes: float) -> None:
        """Add ``bytes`` that were lost; those of unfinished jobs have no total."""
        if fate != "unfinished":
            total = f"bytes_{fate}"
            setattr(self, total, getattr(self, total) + bytes)

    def of(self, kind: Literal["bytes", "client_bytes", "flops", "joules"]) -> float:
        spent: float = getattr(self, kind)
        return spent

    def copy(self) -> Self:
        return type(self)(**vars(self))

    def since(self, earlier: Ledger) -> Ledger:
        return Ledger(*map(sub, vars(self).values(), vars(earlier).values()))
