"""Payloads: the parts of a downlink and an uplink, their bytes, and when each is ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.fits import Need
from edgefl.options import Component

BASE = "base"
"""The name of the part with the frozen weights, which a client receives once."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Bytes on the wire of each of the model's M blocks; ``exact``: the codec does not round."""

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

    def last(self, blocks: int) -> ModelSizes:
        """The same with nothing in the blocks before the last ``blocks``.

        >>> ModelSizes((1, 2, 3)).last(2).block_bytes
        (0, 2, 3)
        """
        first = self.blocks - blocks
        return ModelSizes((0,) * first + self.block_bytes[first:], self.exact)

    def uniform(self) -> ModelSizes:
        """The same with S/M bytes for each of the M blocks, rounded so that they sum to S exactly.

        >>> ModelSizes((1, 2, 7)).uniform().block_bytes
        (3, 3, 4)
        """
        size, blocks = self.model_bytes, self.blocks
        return ModelSizes(tuple(size * (i + 1) // blocks - size * i // blocks for i in range(blocks)), self.exact)

    def of_model_with(self, blocks: int) -> ModelSizes:
        """The same as a part of a model of so many ``blocks``, whose other blocks are last and are not sent.

        >>> ModelSizes((1, 2)).of_model_with(4).block_bytes
        (1, 2, 0, 0)
        """
        return ModelSizes(self.block_bytes + (0,) * (blocks - self.blocks), self.exact)


class Part(NamedTuple):
    """One named part of a payload."""

    name: str  # its content (model, block 4, mean delta)
    bytes: int
    version: int  # the model version (number of aggregations) that it comes from
    early: bool = False  # it is ready while the previous round computes, so that it may be prefetched


class Downlink(NamedTuple):
    """The downlink of one client for one round."""

    parts: tuple[Part, ...]  # the parts in the order of sending; empty parts are omitted
    alpha: int  # number of the last blocks that are up to date after it (M: the whole model)
    # the whole model was sent although the plan requested less (because the client has no model)
    forced_full: bool = False


class Payload(Component):
    """The content of a method's downlink and uplink; by default the model both ways. Its fields are the options."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    @property
    def sends_blocks(self) -> bool:
        """True if the downlink of any round may contain only some blocks, that is, :meth:`partial` is overridden."""
        return type(self).partial is not Payload.partial

    def partial(self, round: int) -> bool:
        """True if round ``round`` (from 0) uses the block scheduler to choose each client's alpha."""
        return False

    @property
    def may_broadcast(self) -> bool:
        """True if :meth:`broadcasts` is overridden."""
        return type(self).broadcasts is not Payload.broadcasts

    def broadcasts(self, round: int) -> bool:
        """True if in round ``round`` (from 0) clients that do not take part are sent the model, too."""
        return False

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        """The downlink of a client in round ``round``, which trains from model version ``round``.

        ``alpha`` is the block scheduler's choice, ``None`` without a scheduler or in a full round; ``held`` is the last
        complete model version at the client, or ``None``.
        """
        return Downlink((Part("model", sizes.model_bytes, round),), sizes.blocks)

    def uplink(self, sizes: ModelSizes) -> tuple[Part, ...]:
        return (Part("update", sizes.model_bytes, 0),)


def checked_downlink(answer: object, blocks: int) -> Downlink:
    """The return value of :meth:`Payload.downlink` for a model of so many blocks, if it can be sent."""
    if not isinstance(answer, Downlink):
        raise WrongAnswer(f"downlink returned {one_line(answer)}; expected a Downlink")
    if not 1 <= answer.alpha <= blocks:
        raise WrongAnswer(f"downlink returned alpha = {one_line(answer.alpha)}; expected 1 to {blocks}")
    checked_parts(answer.parts)
    return answer


def checked_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of a downlink or of the return value of :meth:`Payload.uplink`, if they can be sent."""
    if wrong := [part for part in parts if not isinstance(part, Part) or part.bytes < 0]:
        raise WrongAnswer(f"it sends {one_line(wrong[0])}; expected parts of 0 bytes or more")
    return parts
