"""What clients keep between the rounds they take part in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import SerializeAsAny
from torch import Tensor

from edgefl.learning.component import Component


class ClientState(Component):
    """What a client keeps between the rounds it takes part in; the default keeps its last local model."""

    vectors: ClassVar[tuple[str, ...]] = ("previous",)
    """Names of the vectors kept; ``previous`` is the whole local model ``[size]``, others are ``[parameter_count]``."""
    uploads: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Parts of an uplink that carry a vector's change, and the vector's name (SCAFFOLD's ``control``)."""

    def first(self, received: Tensor, parameter_count: int) -> dict[str, Tensor]:
        """The state of a client that never took part, given the received model ``[size]``."""
        return {"previous": received}

    def after(
        self,
        vectors: Mapping[str, Tensor],
        received: Tensor,
        final: Tensor,
        lr: float,
        steps: int,
    ) -> dict[str, Tensor]:
        """The state after local training, as new tensors: a checkpoint may still read the old ones.

        Args:
            vectors: the client's state before, and what the server broadcast, by name.
            received: the model that the client started from ``[size]``.
            final: the model that it came to ``[size]``.
            lr: η_t of the round.
            steps: local steps H_k.
        """
        return {"previous": final}


class StatesTogether(ClientState):
    """The states of a method and of a server update side by side, where each needs one of its own."""

    states: tuple[SerializeAsAny[ClientState], ...]

    @property
    def vectors(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of all vectors, each once."""
        return tuple(dict.fromkeys(name for state in self.states for name in state.vectors))

    def first(self, received: Tensor, parameter_count: int) -> dict[str, Tensor]:
        """See :class:`ClientState`."""
        return {
            name: vector for state in self.states for name, vector in state.first(received, parameter_count).items()
        }

    def after(
        self, vectors: Mapping[str, Tensor], received: Tensor, final: Tensor, lr: float, steps: int
    ) -> dict[str, Tensor]:
        """See :class:`ClientState`."""
        return {
            name: vector
            for state in self.states
            for name, vector in state.after(vectors, received, final, lr, steps).items()
        }
