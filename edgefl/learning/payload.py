"""What is sent: the parts of a downlink and an uplink, their bytes, and when each is ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edgefl.errors import WrongAnswer, one_line
from edgefl.learning.component import Component


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Bytes on the wire of each of the model's M blocks, first to last.

    Attributes:
        block_bytes: the bytes, encoded.
        exact: what arrives is what was sent, to the bit; a codec may round.
    """

    block_bytes: tuple[int, ...]
    exact: bool = True

    @property
    def blocks(self) -> int:
        """M."""
        return len(self.block_bytes)

    @property
    def model_bytes(self) -> int:
        """S, the bytes of the whole model."""
        return sum(self.block_bytes)


class Part(NamedTuple):
    """One named part of a payload.

    Attributes:
        name: what it holds (``model``, ``block 4``, ``mean delta``).
        bytes: its size on the wire.
        version: the model version (number of aggregations) that it comes from.
        early: it is ready while the previous round computes, so it may be prefetched.
    """

    name: str
    bytes: int
    version: int
    early: bool = False


class Downlink(NamedTuple):
    """What one client is sent for one round.

    Attributes:
        parts: the parts in the order of sending; empty parts are left out.
        alpha: number of the last blocks that are fresh after it (M: the whole model).
        forced_full: the whole model was sent although the plan asked for less (a client with nothing to build on).
    """

    parts: tuple[Part, ...]
    alpha: int
    forced_full: bool = False


class Payload(Component):
    """How a method fills downlink and uplink; its fields are the options. The default sends the model both ways."""

    @property
    def sends_blocks(self) -> bool:
        """Whether the downlink of any round may hold some of the blocks alone; where :meth:`partial` is overridden."""
        return type(self).partial is not Payload.partial

    def partial(self, round: int) -> bool:
        """Whether round ``round`` (from 0) asks the block scheduler for each client's alpha."""
        return False

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        """What a client is sent at round ``round``, which trains from model version ``round``.

        Args:
            sizes: bytes of the model's blocks.
            round: the model version that the client shall train from.
            alpha: the block scheduler's choice, or ``None`` where there is none or the round is a full one.
            held: the last model version that the client held completely, or ``None``.
        """
        return Downlink((Part("model", sizes.model_bytes, round),), sizes.blocks)

    def uplink(self, sizes: ModelSizes) -> tuple[Part, ...]:
        """What a client returns."""
        return (Part("update", sizes.model_bytes, 0),)


def checked_downlink(answer: object, blocks: int) -> Downlink:
    """What :meth:`Payload.downlink` returned, for a model of so many blocks.

    Raises:
        WrongAnswer: it is no downlink, or one of impossible parts.
    """
    if not isinstance(answer, Downlink):
        raise WrongAnswer(f"downlink returned {one_line(answer)}; expected a Downlink")
    if not isinstance(answer.alpha, int) or not 1 <= answer.alpha <= blocks:
        raise WrongAnswer(f"downlink returned alpha = {one_line(answer.alpha)}; expected 1 to {blocks}")
    checked_parts(answer.parts)
    return answer


def checked_parts(answer: object) -> tuple[Part, ...]:
    """The parts that :meth:`Payload.uplink` returned, or that a downlink holds.

    Raises:
        WrongAnswer: they are no parts, or one has no possible size.
    """
    if not isinstance(answer, tuple) or not all(isinstance(part, Part) for part in answer):
        raise WrongAnswer(f"it sends {one_line(answer)}; expected a tuple of parts")
    for part in answer:
        if not isinstance(part.bytes, int) or part.bytes < 0:
            raise WrongAnswer(f"its part '{part.name}' has {one_line(part.bytes)} bytes; expected 0 or more")
    return answer
