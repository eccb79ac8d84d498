"""FedAvgM: FedAvg with heavy-ball momentum on the server (Hsu et al. 2019)."""

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.rates import LearningRate
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate
from edgefl.methods.recipe import METHODS, Recipe


@SERVER_UPDATES.register("fedavgm")
class FedAvgM(ServerUpdate):
    """m ← β m + Δ; θ ← θ + η_s m, with Δ = Σ_k w_k (θ_k - θ_t) and no dampening (Hsu et al. 2019)."""

    beta: float = Field(default=0.4, ge=0, lt=1, description="server momentum β")
    server_lr: LearningRate = Field(default=1.0, description="server learning rate η_s")

    def begin(self, parameters: Tensor) -> State:
        return {"momentum": torch.zeros_like(parameters)}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        momentum = self.beta * state["momentum"] + arrivals.mean()
        return parameters.add(momentum, alpha=facts.rate(self.server_lr)), {"momentum": momentum}


METHODS["fedavgm"] = Recipe(
    summary="FedAvg with server momentum", paper="Hsu et al. 2019 (FedAvgM)", objective=CrossEntropy, server=FedAvgM()
)
