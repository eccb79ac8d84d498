"""The weighted mean of the clients' models: FedAvg's server."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.servers.base import SERVER_UPDATES, RoundFacts, ServerUpdate


def mean_delta(deltas: Tensor, weights: Tensor) -> Tensor:
    """Σ_k w_k δ_k ``[parameter_count]``.

    Clients are added one after the other, in order, so the sum depends neither on threads nor on how a library splits a
    matrix product.

    >>> mean_delta(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([0.25, 0.75]))
    tensor([2.5000, 5.0000])
    """
    total = torch.zeros_like(deltas[0])
    for delta, weight in zip(deltas, weights, strict=True):
        total.addcmul_(delta, weight)
    return total


@SERVER_UPDATES.register("mean")
class Mean(ServerUpdate):
    """θ_{t+1} = θ_t + η_s Σ_k w_k (θ_k - θ_t) (McMahan et al. 2017)."""

    server_lr: float = Field(default=1.0, gt=0, description="server learning rate η_s; 1 gives the plain mean")

    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`ServerUpdate`."""
        mean = mean_delta(deltas, weights)
        # Reuses the memory of the mean, because newly allocated memory is slower.
        return torch.add(parameters, mean, alpha=self.server_lr, out=mean), state
