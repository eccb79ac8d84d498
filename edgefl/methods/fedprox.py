"""FedProx (Li et al. 2020, Eq. 2 and Alg. 2): client k minimises ℓ(θ) + (μ/2)‖θ - θ_t‖²; all else is FedAvg's."""

from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


def parameter_vector(local: Weights, context: Context) -> Tensor:
    """The parameters as one differentiable vector ``[parameter_count]``: a copy, but far fewer kernel launches."""
    return context.model.layout.vector(local)


class FedProx(Objective):
    """CE + (μ/2)‖θ - θ_t‖² (Li et al. 2020, Eq. 2)."""

    vectors = frozenset({"received"})

    mu: float = Field(default=0.01, ge=0, description="weight μ of the proximal term (μ/2)‖θ - θ_t‖²")

    @property
    def proximal_weight(self) -> float:
        return self.mu

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        cross_entropy = context.loss(context.model.apply_blocks(local, batch.inputs), batch.labels)
        away = parameter_vector(local, context) - context.vectors["received"]
        return Loss(cross_entropy + 0.5 * self.mu * away.square().sum(), cross_entropy)


METHODS["fedprox"] = Recipe(
    summary="FedAvg with a proximal term that keeps local models near the received one",
    paper="Li et al. 2020, Eq. 2 and Alg. 2",
    objective=FedProx,
    server=Mean(),
)
