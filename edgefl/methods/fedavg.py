"""FedAvg: local SGD from the server's model, then the weighted mean (McMahan et al. 2017, Alg. 1).

1. The server sends the model θ_t to the clients of the cohort.
2. Client k takes H_k steps θ_k ← θ_k - η_t ∇ℓ(θ_k; batch) from θ_k = θ_t, and returns θ_k.
3. θ_{t+1} = θ_t + η_s Σ_k w_k (θ_k - θ_t), w_k its share n_k/n of the cohort's images, or uniform.

The loss is :class:`CrossEntropy`, the step ``Sgd``, the server update :class:`Mean`; the whole model travels both ways.
"""

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.rates import LearningRate
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


class CrossEntropy(Objective):
    """The task's mean loss of the batch, cross-entropy for classification (McMahan et al. 2017)."""

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        cross_entropy = context.loss(context.model.apply_blocks(local, batch.inputs), batch.labels)
        return Loss(cross_entropy, cross_entropy)


@SERVER_UPDATES.register("mean")
class Mean(ServerUpdate):
    """θ_{t+1} = θ_t + η_s Σ_k w_k (θ_k - θ_t) (McMahan et al. 2017)."""

    server_lr: LearningRate = Field(default=1.0, description="server learning rate η_s; 1 gives the plain mean")

    @property
    def is_mean(self) -> bool:
        return self.server_lr == 1.0

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        mean = arrivals.mean()
        # Reuses the memory of the mean, because newly allocated memory is slower.
        return torch.add(parameters, mean, alpha=facts.rate(self.server_lr), out=mean), state


METHODS["fedavg"] = Recipe(
    summary="local SGD, then the weighted mean of the models",
    paper="McMahan et al. 2017, Alg. 1",
    objective=CrossEntropy,
    rule=Sgd,
    server=Mean(),
)
