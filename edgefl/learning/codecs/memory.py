"""What clients keep for the sake of a codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from edgefl.learning.client_state import ClientState
from edgefl.learning.codecs.choice import Codecs


class Unsent(ClientState):
    """e, what error feedback has left out so far ``[parameter_count]``; zero at first."""

    vectors: ClassVar[tuple[str, ...]] = ("unsent",)

    def first(self, received: Tensor, parameter_count: int) -> dict[str, Tensor]:
        """Zero."""
        return {"unsent": received.new_zeros(parameter_count)}

    def after(
        self, vectors: Mapping[str, Tensor], received: Tensor, final: Tensor, lr: float, steps: int
    ) -> dict[str, Tensor]:
        """As the upload left it."""
        return {"unsent": vectors["unsent"]}


class LastReceived(ClientState):
    """Each block as the server sent it last ``[size]``: what an encoded change leads from, known at both ends."""

    vectors: ClassVar[tuple[str, ...]] = ("reference",)

    def first(self, received: Tensor, parameter_count: int) -> dict[str, Tensor]:
        """What was received, in front of which stands the initial model where only some blocks came."""
        return {"reference": received}

    def after(
        self, vectors: Mapping[str, Tensor], received: Tensor, final: Tensor, lr: float, steps: int
    ) -> dict[str, Tensor]:
        """As the download left it."""
        return {"reference": vectors["reference"]}


def codec_state(codecs: Codecs, *, partial: bool) -> tuple[ClientState, ...]:
    """What clients must keep under these codecs; ``partial``: they may be sent some of the blocks alone."""
    unsent = (Unsent(),) if codecs.up.remembers else ()
    return (*unsent, LastReceived()) if partial and not codecs.up.exact else unsent
