"""FedDyn's server, which also adds a penalty and a state to its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.client_state import ClientState
from edgefl.methods.objectives.base import Objective
from edgefl.methods.objectives.feddyn import FedDyn
from edgefl.methods.servers.base import SERVER_UPDATES, RoundFacts, ServerUpdate, Weighting
from edgefl.methods.servers.mean import mean_delta


class Drift(ClientState):
    """h_k = -λ_k/α, the sum of the client's past deltas."""

    vectors: ClassVar[tuple[str, ...]] = ("drift",)

    def first(self, received: Tensor, parameter_count: int) -> dict[str, Tensor]:
        """Zero."""
        return {"drift": received.new_zeros(parameter_count)}

    def after(
        self, vectors: Mapping[str, Tensor], received: Tensor, final: Tensor, lr: float, steps: int
    ) -> dict[str, Tensor]:
        """h_k ← h_k + θ_k - θ_t, which is λ_k ← λ_k - α(θ_k - θ_t)."""
        return {"drift": vectors["drift"] + (final - received)[..., : vectors["drift"].shape[-1]]}


@SERVER_UPDATES.register("feddyn")
class FedDynServer(ServerUpdate):
    """h ← h - (α/N) Σ_S (θ_k - θ_t); θ_{t+1} = mean_S θ_k - h/α, N clients in all (Acar et al. 2021, Alg. 1).

    The state ``shift`` is -h/α, the mean over all clients of their summed deltas, in which α cancels. With any method,
    the clients' loss gains FedDyn's linear and quadratic terms.
    """

    default_weighting: ClassVar[Weighting | None] = "uniform"

    alpha: float = Field(default=0.1, gt=0, description="weight α of the dynamic regulariser")
    scale_alpha: bool = Field(
        default=False, description="divide a client's α by n_k N/n, its images over the mean (the authors' code)"
    )

    def objective(self, loss: Objective) -> Objective:
        """The loss with FedDyn's penalty."""
        return FedDyn(base=loss, alpha=self.alpha, scale_alpha=self.scale_alpha)

    def client_state(self) -> ClientState:
        """The clients' summed deltas."""
        return Drift()

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
        """The shift is zero."""
        return {"shift": torch.zeros_like(parameters)}

    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`ServerUpdate`."""
        shift = state["shift"] + mean_delta(deltas, torch.full_like(weights, 1 / facts.clients))
        return parameters + mean_delta(deltas, weights) + shift, {"shift": shift}
