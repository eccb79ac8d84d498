"""The interface of what protects updates: clipping, noise and secure sums; ``edgefl.privacy`` implements it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.objective import Objective
from edgefl.methods.parts.server import Arrivals, RoundFacts


class Private(ABC):
    """What changes in the training of a method."""

    @abstractmethod
    def objective(self, base: Objective, samples: int) -> Objective:
        """The loss whose gradient a client with so many images follows."""

    @abstractmethod
    def begin(self, like: Tensor) -> State:
        """Its own part of the server state before the first round, as tensors of the type and device of another."""

    @abstractmethod
    def arrived(
        self, arrivals: Arrivals, samples: Sequence[int], state: Mapping[str, Tensor], facts: RoundFacts, seed: int
    ) -> tuple[Arrivals, State]:
        """What the server has of the updates, and the next state of its own; ``samples`` are the clients' images."""
