"""SlowMo: FedAvg with server momentum in units of the gradient; a stale update has the θ and η of its own version."""

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate
from edgefl.methods.recipe import METHODS, Recipe


@SERVER_UPDATES.register("slowmo")
class SlowMo(ServerUpdate):
    """m ← β m + Σ_k w_k (θ_t - θ_k)/η_k; θ ← θ_t - α η_t m (Wang et al. 2020; Ozfatura et al., Alg. 2).

    With a constant learning rate and α = 1 it equals FedAvgM; when the rate decays, momentum stays a gradient.
    """

    needs = frozenset({"own start", "sgd", "round's rate"})
    default_weighting = "uniform"

    beta: float = Field(default=0.8, ge=0, lt=1, description="slow momentum β")
    alpha: float = Field(default=1.0, gt=0, description="slow learning rate α")

    def begin(self, parameters: Tensor) -> State:
        return {"momentum": torch.zeros_like(parameters)}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        momentum = self.beta * state["momentum"] + arrivals.mean_gradient()
        return parameters.sub(momentum, alpha=self.alpha * facts.lr), {"momentum": momentum}


METHODS["slowmo"] = Recipe(
    summary="FedAvg with server momentum in units of the gradient",
    paper="Wang et al. 2020 (SlowMo); Ozfatura et al., Alg. 2",
    objective=CrossEntropy,
    server=SlowMo(),
    weighting="uniform",
)
