"""The vectors that clients keep between their rounds."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import SerializeAsAny
from torch import Tensor

from edgefl.options import Component

State = dict[str, Tensor]
"""Vectors by name."""


class ClientState(Component):
    """The vectors that a client keeps between its rounds; the default keeps its last local model."""

    vectors: ClassVar[tuple[str, ...]] = ("previous",)
    """Names of the vectors kept; ``previous`` is the whole local model ``[size]``, others are ``[parameter_count]``."""
    uploads: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Parts of an uplink that carry a vector's change, and the vector's name (SCAFFOLD's ``control``)."""

    def first(self, received: Tensor, parameter_count: int) -> State:
        """The state before the first participation: ``previous`` is the received model ``[size]``, the rest zero."""
        zeros = received.new_zeros(parameter_count)
        return {name: received if name == "previous" else zeros.clone() for name in self.vectors}

    def after(self, vectors: State, received: Tensor, final: Tensor, lr: float, steps: int) -> State:
        """The state after local training, as new tensors, because a checkpoint may still read the old ones.

        ``vectors`` are the client's previous state and the server's broadcasts, by name; ``received`` ``[size]`` is the
        model that the client started from, ``final`` ``[size]`` the trained one; ``lr`` is η_t of the round. By default
        ``previous`` is the trained model, and other vectors are those in ``vectors``.
        """
        return {name: final if name == "previous" else vectors[name] for name in self.vectors}


class StatesTogether(ClientState):
    """The combined client states of a method and a server update."""

    states: tuple[SerializeAsAny[ClientState], ...]

    @property
    def vectors(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(name for state in self.states for name in state.vectors))

    def first(self, received: Tensor, parameter_count: int) -> State:
        return _merged(state.first(received, parameter_count) for state in self.states)

    def after(self, vectors: State, received: Tensor, final: Tensor, lr: float, steps: int) -> State:
        return _merged(state.after(vectors, received, final, lr, steps) for state in self.states)


def _merged(states: Iterable[State]) -> State:
    return {name: vector for state in states for name, vector in state.items()}


def together(*states: ClientState | None) -> ClientState | None:
    """These client states as one; ``None`` if there is none."""
    kept = tuple(each for each in states if each is not None)
    return StatesTogether(states=kept) if len(kept) > 1 else next(iter(kept), None)
