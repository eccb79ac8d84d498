"""FedAdam, FedYogi and FedAdagrad: FedAvg with an adaptive optimiser on the server (Reddi et al. 2021, Alg. 2)."""

from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.rates import LearningRate
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate
from edgefl.methods.recipe import METHODS, Recipe


class AdaptiveServer(ServerUpdate):
    """m ← β1 m + (1-β1) Δ; v, at first τ², by the subclass; θ ← θ + η_s m/(√v + τ) (Reddi et al. 2021, Alg. 2)."""

    default_weighting = "uniform"

    server_lr: LearningRate = Field(default=0.01, description="server learning rate η_s")
    beta_1: float = Field(default=0.9, ge=0, lt=1, description="decay β1 of the first moment")
    tau: float = Field(default=1e-3, gt=0, description="degree of adaptivity τ")

    @abstractmethod
    def second_moment(self, moment: Tensor, squared: Tensor) -> Tensor:
        """The next v, given v and Δ²."""

    def begin(self, parameters: Tensor) -> State:
        return {"first": torch.zeros_like(parameters), "second": torch.full_like(parameters, self.tau**2)}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        delta = arrivals.mean()
        first = self.beta_1 * state["first"] + (1 - self.beta_1) * delta
        second = self.second_moment(state["second"], delta.square())
        after = parameters + facts.rate(self.server_lr) * first / (second.sqrt() + self.tau)
        return after, {"first": first, "second": second}


@SERVER_UPDATES.register("fedadam")
class FedAdam(AdaptiveServer):
    """v ← β2 v + (1-β2) Δ² (Reddi et al. 2021, Alg. 2)."""

    beta_2: float = Field(default=0.99, ge=0, lt=1, description="decay β2 of the second moment")

    def second_moment(self, moment: Tensor, squared: Tensor) -> Tensor:
        return self.beta_2 * moment + (1 - self.beta_2) * squared


@SERVER_UPDATES.register("fedyogi")
class FedYogi(AdaptiveServer):
    """v ← v - (1-β2) Δ² sign(v - Δ²) (Reddi et al. 2021, Alg. 2)."""

    beta_2: float = Field(default=0.99, ge=0, lt=1, description="decay β2 of the second moment")

    def second_moment(self, moment: Tensor, squared: Tensor) -> Tensor:
        return moment - (1 - self.beta_2) * squared * (moment - squared).sign()


@SERVER_UPDATES.register("fedadagrad")
class FedAdagrad(AdaptiveServer):
    """v ← v + Δ² (Reddi et al. 2021, Alg. 2)."""

    beta_1: float = Field(default=0.0, ge=0, lt=1, description="decay β1 of the first moment")

    def second_moment(self, moment: Tensor, squared: Tensor) -> Tensor:
        return moment + squared


for _name, _server in (("Adam", FedAdam), ("Yogi", FedYogi), ("Adagrad", FedAdagrad)):
    METHODS[f"fed{_name.lower()}"] = Recipe(
        summary=f"FedAvg with {_name} on the server",
        paper="Reddi et al. 2021, Alg. 2",
        objective=CrossEntropy,
        server=_server(),
        weighting="uniform",
    )
