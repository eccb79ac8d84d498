"""FedADC's server: the momentum that its clients follow in their local steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.servers.base import (
    SERVER_UPDATES,
    Arriving,
    RoundFacts,
    ServerSide,
    ServerUpdate,
    Weighting,
)
from edgefl.methods.servers.mean import mean_delta


@SERVER_UPDATES.register("fedadc")
class FedAdcServer(ServerUpdate):
    """Δ̄ = Σ_k w_k (θ_t - θ_k)/η_t; m_{t+1} = Δ̄ + (β_g - β_l) m_t; θ_{t+1} = θ_t - α η_t m_{t+1}.

    Algorithm 3 of Ozfatura et al.

    The clients' local steps already contain β_l m_t, so Δ̄ = ḡ + β_l m_t. Momentum is in units of the gradient: it is
    divided by the learning rate of the round that computed it and multiplied by that of the round that uses it.
    """

    broadcasts: ClassVar[tuple[str, ...]] = ("momentum",)
    default_weighting: ClassVar[Weighting | None] = "uniform"

    alpha: float = Field(default=1.0, gt=0, description="server learning rate α")
    beta_g: float = Field(default=0.8, ge=0, lt=1, description="momentum β_g of the server")
    beta_l: float = Field(default=0.8, ge=0, lt=1, description="share β_l of the server's momentum in the local steps")

    @property
    def carried_by(self) -> Mapping[str, str | None]:
        """Clients compute the momentum from the mean delta; see :meth:`received`."""
        return {"momentum": "mean delta"}

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
        """m_0 = 0."""
        return {"momentum": torch.zeros_like(parameters)}

    def received(self, now: ServerSide, before: ServerSide | None, lr: float, arriving: Arriving) -> ServerSide:
        """Clients compute m_t and θ_t from θ_{t-1}, m_{t-1} and Δ̄, each as received; see ``FedAdcPayload``."""
        if before is None:
            return super().received(now, before, lr, arriving)
        kept = self.beta_g - self.beta_l
        carried = kept * before.state["momentum"]
        mean = arriving("mean delta", now.state["momentum"] - carried)
        if kept:
            carried = kept * arriving("momentum", before.state["momentum"], age=1)
        momentum = mean + carried
        model = arriving("model", before.parameters, age=1)
        return ServerSide(model.sub(momentum, alpha=self.alpha * lr), {"momentum": momentum})

    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`ServerUpdate`."""
        momentum = (self.beta_g - self.beta_l) * state["momentum"] - mean_delta(deltas, weights) / facts.lr
        return parameters.sub(momentum, alpha=self.alpha * facts.lr), {"momentum": momentum}
