"""SCAFFOLD's server and client control variates."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.client_state import ClientState
from edgefl.methods.servers.base import SERVER_UPDATES, RoundFacts, ServerUpdate, Weighting
from edgefl.methods.servers.mean import mean_delta


class ControlVariate(ClientState):
    """c_k, the client's mean gradient of its last participation, zero before (Karimireddy et al. 2020, option II)."""

    vectors: ClassVar[tuple[str, ...]] = ("client_control",)
    uploads: ClassVar[Mapping[str, str]] = MappingProxyType({"control": "client_control"})

    def first(self, received: Tensor, parameter_count: int) -> dict[str, Tensor]:
        """Zero."""
        return {"client_control": received.new_zeros(parameter_count)}

    def after(
        self, vectors: Mapping[str, Tensor], received: Tensor, final: Tensor, lr: float, steps: int
    ) -> dict[str, Tensor]:
        """c_k ← c_k - c + (x - y)/(H_k η)."""
        own = vectors["client_control"]
        travelled = (received - final)[..., : own.shape[-1]]
        return {"client_control": own - vectors["control"] + travelled / (max(1, steps) * lr)}


@SERVER_UPDATES.register("scaffold")
class Scaffold(ServerUpdate):
    """x ← x + η_s mean δ_k; c ← c + (1/N) Σ_S (c_k⁺ - c_k), with c_k⁺ - c_k = -c - δ_k/(H_k η) (Alg. 1, lines 16-17).

    The server computes the change of each c_k from its own values; in exact arithmetic it equals the sent one. If a
    codec rounds the uplink and the changes of c_k are sent, the received changes are used.
    """

    broadcasts: ClassVar[tuple[str, ...]] = ("control",)
    default_weighting: ClassVar[Weighting | None] = "uniform"

    server_lr: float = Field(default=1.0, gt=0, description="server learning rate η_s; 1 gives the plain mean")

    def client_state(self) -> ClientState:
        """The clients' control variates."""
        return ControlVariate()

    def begin(self, parameters: Tensor) -> dict[str, Tensor]:
        """The control variate is zero."""
        return {"control": torch.zeros_like(parameters)}

    def update(
        self,
        parameters: Tensor,
        deltas: Tensor,
        weights: Tensor,
        state: dict[str, Tensor],
        facts: RoundFacts,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`ServerUpdate`."""
        control = state["control"]
        if "control" in facts.uploads:
            change = mean_delta(facts.uploads["control"], torch.ones_like(weights))
        else:
            gradients = -1 / (facts.steps.to(deltas).clamp(min=1) * facts.lr)
            change = mean_delta(deltas, gradients) - len(deltas) * control
        after = parameters.add(mean_delta(deltas, weights), alpha=self.server_lr)
        return after, {"control": control + change / facts.clients}
