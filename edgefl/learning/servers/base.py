"""What a server update is: how the clients' deltas become the next model, as algebra on flat vectors."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from edgefl.learning.client_state import ClientState
from edgefl.learning.component import Component
from edgefl.learning.objectives.base import Objective
from edgefl.learning.rules.base import LocalOptions
from edgefl.registry import Registry

Weighting = Literal["uniform", "samples"]
"""How clients count in the mean: all alike, or by their number of training images n_k."""


class RoundFacts(NamedTuple):
    """What a server update may know of the round: η_t, N (all clients of the fleet), and H_k ``[K]`` (local steps)."""

    lr: float
    clients: int
    steps: Tensor


class ServerUpdate(Component):
    """How deltas become the next model; its fields are its options."""

    broadcasts: ClassVar[tuple[str, ...]] = ()
    """Names of server-state vectors that clients receive beside the model (FedADC's ``momentum``)."""
    default_weighting: ClassVar[Weighting | None] = None
    """Weights of the mean that its paper uses, when a scenario picks it for another method; ``None``: the method's."""

    def objective(self, loss: Objective) -> Objective:
        """The clients' loss under this server update, given the method's own; FedDyn adds its penalty."""
        return loss

    def client_state(self) -> ClientState | None:
        """What clients keep for this server update, beside what their method keeps; nothing by default."""
        return None

    def accept(self, options: LocalOptions) -> None:
        """Refuse local options that make no sense with this server update; every option fits by default.

        Raises:
            UserError: an option does not fit; the message says why.
        """

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
        """The server state before the first round, vectors ``[parameter_count]`` by name."""
        return {}

    @abstractmethod
    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The next parameters and server state.

        Args:
            parameters: θ_t ``[parameter_count]``.
            deltas: θ_k - θ_t for each arrived client ``[K, parameter_count]``, in ascending order of client.
            weights: shares that sum to 1 ``[K]``.
            state: the server state as the last update left it.
            facts: the round's learning rate, the number of all clients, and local steps.
        """


SERVER_UPDATES: Registry[type[ServerUpdate]] = Registry(
    "server update", package="edgefl.learning.servers", group="edgefl.servers"
)
"""Every server update by name; ``edgefl.servers`` entry points add to it."""
