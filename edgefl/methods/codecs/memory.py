"""Client state for codecs."""

from typing import ClassVar

from torch import Tensor

from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.parts.client_state import ClientState, State


class Unsent(ClientState):
    """e, the residual of error feedback ``[parameter_count]``; zero at first."""

    vectors: ClassVar[tuple[str, ...]] = ("unsent",)

    def first(self, received: Tensor, parameter_count: int) -> State:
        return {"unsent": received.new_zeros(parameter_count)}

    def after(self, vectors: State, received: Tensor, final: Tensor, lr: float, steps: int) -> State:
        return {"unsent": vectors["unsent"]}


class LastReceived(ClientState):
    """The last sent version of each block ``[size]``, known to both sides: the base of an encoded change."""

    vectors: ClassVar[tuple[str, ...]] = ("reference",)

    def first(self, received: Tensor, parameter_count: int) -> State:
        """Blocks that were not received are those of the initial model."""
        return {"reference": received}

    def after(self, vectors: State, received: Tensor, final: Tensor, lr: float, steps: int) -> State:
        return {"reference": vectors["reference"]}


def codec_state(codecs: Codecs, *, partial: bool) -> tuple[ClientState, ...]:
    """The client state that these codecs need; ``partial``: clients may be sent only some blocks."""
    unsent = (Unsent(),) if codecs.up.remembers else ()
    return (*unsent, LastReceived()) if partial and not codecs.up.exact else unsent
