"""FedYogi: Yogi on the mean delta, with bounded changes of the second moment."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from edgefl.methods.servers.adaptive import AdaptiveServer
from edgefl.methods.servers.base import SERVER_UPDATES


@SERVER_UPDATES.register("fedyogi")
class FedYogi(AdaptiveServer):
    """v ← v - (1-β2) Δ² sign(v - Δ²) (Reddi et al. 2021, Alg. 2)."""

    beta_2: float = Field(default=0.99, ge=0, lt=1, description="decay β2 of the second moment")

    def second_moment(self, moment: Tensor, squared: Tensor) -> Tensor:
        """See :class:`AdaptiveServer`."""
        return moment - (1 - self.beta_2) * squared * (moment - squared).sign()
