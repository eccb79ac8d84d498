"""The base class of FedAdam, FedYogi and FedAdagrad: element-wise moments of the mean delta."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.servers.base import RoundFacts, ServerUpdate, Weighting
from edgefl.methods.servers.mean import mean_delta


class AdaptiveServer(ServerUpdate):
    """m ← β1 m + (1-β1) Δ; v by the subclass; θ ← θ + η_s m/(√v + τ) (Reddi et al. 2021, Alg. 2).

    No bias correction; v starts at τ², as the paper's analysis requires.
    """

    default_weighting: ClassVar[Weighting | None] = "uniform"

    server_lr: float = Field(default=0.01, gt=0, description="server learning rate η_s")
    beta_1: float = Field(default=0.9, ge=0, lt=1, description="decay β1 of the first moment")
    tau: float = Field(default=1e-3, gt=0, description="degree of adaptivity τ")

    @abstractmethod
    def second_moment(self, moment: Tensor, squared: Tensor) -> Tensor:
        """The next v, given v and Δ²."""

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
        """The first moment is zero, and v = τ²."""
        return {"first": torch.zeros_like(parameters), "second": torch.full_like(parameters, self.tau**2)}

    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`ServerUpdate`."""
        delta = mean_delta(deltas, weights)
        first = self.beta_1 * state["first"] + (1 - self.beta_1) * delta
        second = self.second_moment(state["second"], delta.square())
        return parameters + self.server_lr * first / (second.sqrt() + self.tau), {"first": first, "second": second}
