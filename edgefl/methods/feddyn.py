"""FedDyn: a penalty for each client that makes local optima agree with the global one (Acar et al. 2021, Alg. 1)."""

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.fedprox import parameter_vector
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate, weighted_sum
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


class FedDyn(Objective):
    """f(θ) - ⟨λ_k, θ⟩ + (α/2)‖θ - θ_t‖² with another loss f (Acar et al. 2021, Eq. 1).

    The client keeps h_k, the sum of its past deltas, as the vector ``drift``; λ_k = -α h_k. Both terms are part of the
    loss, so that clipping sees them. With ``scale_alpha`` the client's α is α n/(N n_k), n images on N clients in all:
    the loss of a client with few images has less weight in the mean, so its proximal term is stronger.
    """

    base: SerializeAsAny[Objective] = Field(default_factory=CrossEntropy, description="the loss f")
    alpha: float = Field(default=0.1, gt=0, description="weight α of the dynamic regulariser")
    scale_alpha: bool = Field(default=False, description="divide α by n_k N/n")

    # All but the loss is that of f.
    frozen = property(lambda self: self.base.frozen)
    needs = property(lambda self: self.base.needs)
    trains_last = property(lambda self: self.base.trains_last)
    side_by_side = property(lambda self: self.base.side_by_side)
    evaluates_clients = property(lambda self: self.base.evaluates_clients)
    blocks_end_in_time = property(lambda self: self.base.blocks_end_in_time)  # type: ignore[pydantic-field]
    adapt = property(lambda self: self.base.adapt)  # type: ignore[pydantic-field]
    evaluation_mode = property(lambda self: self.base.evaluation_mode)  # type: ignore[pydantic-field]
    variants = property(lambda self: self.base.variants)  # type: ignore[pydantic-field]
    draw = property(lambda self: self.base.draw)  # type: ignore[pydantic-field]

    @property
    def vectors(self) -> frozenset[str]:  # type: ignore[override]
        return self.base.vectors | {"received", "drift"}

    @property
    def client(self) -> frozenset[str]:  # type: ignore[override]
        return self.base.client | ({"relative_size"} if self.scale_alpha else frozenset())

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        loss = self.base.loss(local, batch, context)
        parameters = parameter_vector(local, context)
        away = parameters - context.vectors["received"]
        alpha = self.alpha / context.client["relative_size"] if self.scale_alpha else self.alpha
        penalty = alpha * ((context.vectors["drift"] * parameters).sum() + 0.5 * away.square().sum())
        return Loss(loss.total + penalty, loss.cross_entropy)


class Drift(ClientState):
    """h_k = -λ_k/α, the sum of the client's past deltas."""

    vectors = ("drift",)

    def after(self, vectors: State, received: Tensor, final: Tensor, lr: float, steps: int) -> State:
        return {"drift": vectors["drift"] + (final - received)[..., : vectors["drift"].shape[-1]]}


@SERVER_UPDATES.register("feddyn")
class FedDynServer(ServerUpdate):
    """h ← h - (α/N) Σ_S (θ_k - θ_t); θ_{t+1} = mean_S θ_k - h/α, N clients in all (Acar et al. 2021, Alg. 1).

    The state ``shift`` is -h/α, the mean over all clients of their summed deltas, in which α cancels. With any method,
    the clients' loss gains FedDyn's linear and quadratic terms. The paper's rounds are synchronous; here the weight s_k
    of a stale update scales its delta in the mean, and h adds whole deltas, as the clients' λ_k do.
    """

    needs = frozenset({"plain sum"})
    default_weighting = "uniform"

    alpha: float = Field(default=0.1, gt=0, description="weight α of the dynamic regulariser")
    scale_alpha: bool = Field(False, description="divide a client's α by n_k N/n (the authors' code)")

    def objective(self, loss: Objective) -> Objective:
        return FedDyn(base=loss, alpha=self.alpha, scale_alpha=self.scale_alpha)

    def client_state(self) -> ClientState:
        return Drift()

    def begin(self, parameters: Tensor) -> State:
        return {"shift": torch.zeros_like(parameters)}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        shift = state["shift"] + weighted_sum(arrivals.deltas, torch.full_like(arrivals.weights, 1 / facts.clients))
        return parameters + arrivals.mean() + shift, {"shift": shift}


METHODS["feddyn"] = Recipe(
    summary="a penalty per client that makes local optima agree with the global one",
    paper="Acar et al. 2021 (FedDyn), Alg. 1",
    objective=CrossEntropy,
    server=FedDynServer(),
    weighting="uniform",
)
