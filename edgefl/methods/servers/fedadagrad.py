"""FedAdagrad: Adagrad on the mean delta."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from edgefl.methods.servers.adaptive import AdaptiveServer
from edgefl.methods.servers.base import SERVER_UPDATES


@SERVER_UPDATES.register("fedadagrad")
class FedAdagrad(AdaptiveServer):
    """v ← v + Δ² (Reddi et al. 2021, Alg. 2)."""

    beta_1: float = Field(default=0.0, ge=0, lt=1, description="decay β1 of the first moment")

    def second_moment(self, moment: Tensor, squared: Tensor) -> Tensor:
        """See :class:`AdaptiveServer`."""
        return moment + squared
