"""FedNova: clients with more steps do not have more weight (Wang et al. 2020, Eqs. 5-6)."""

from typing import Self

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from edgefl.errors import UserError
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Objective
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate
from edgefl.methods.recipe import METHODS, Recipe


@SERVER_UPDATES.register("fednova")
class FedNova(ServerUpdate):
    """θ ← θ + τ_eff Σ_k w_k δ_k/τ_k with τ_eff = Σ_k w_k τ_k (Wang et al. 2020, Eqs. 5-6).

    τ_k is the effective number of steps, Σ a_k: what a constant gradient of 1 moves in units of η. H steps have H
    without momentum and pull, (H - ρ(1-ρ^H)/(1-ρ))/(1-ρ) with heavy-ball momentum ρ, and (1 - (1-ημ)^H)/(ημ) with a
    pull μ: that of the proximal term (μ/2)‖θ - θ_t‖² of the loss (FedProx), weight decay, or their sum.
    """

    needs = frozenset({"each update", "own start", "zero momentum", "sgd", "known steps", "round's rate"})

    local_momentum: float = Field(default=0.0, ge=0, lt=1, description="the clients' momentum ρ, which sets τ_k")
    _pull: float = PrivateAttr(0.0)

    def with_clients(self, objective: Objective, options: LocalOptions) -> Self:
        if options.momentum != self.local_momentum or options.nesterov:
            message = (
                "FedNova divides by the effective number of local steps, which needs the clients' heavy-ball momentum: "
                f"set local_momentum to {options.momentum:g} and leave nesterov off"
            )
            raise UserError(message, field="server")
        near = objective.proximal_weight or 0.0
        if near and options.clip_norm:
            raise UserError(
                "FedNova has no effective number of steps for clip_norm with a proximal term", field="server"
            )
        if options.weight_decay and options.no_decay:
            raise UserError("FedNova has no effective number of steps for no_decay with weight_decay", field="server")
        server = self.model_copy()
        server._pull = near + options.weight_decay
        return server

    def effective_steps(self, steps: Tensor, rates: Tensor | float = 0.0) -> Tensor:
        """τ_k for each client's number of steps H_k and rate η_k, both ``[K]``."""
        steps, rho = steps.clamp(min=1), self.local_momentum
        if not self._pull:
            return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        pull = rates * self._pull
        moved, velocity = torch.zeros_like(steps), torch.zeros_like(steps)
        for step in range(int(steps.max())):
            velocity = rho * velocity + 1 - pull * moved
            moved = torch.where(step < steps, moved + velocity, moved)
        return moved

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        # In units of η_t; stale updates have the rate of their own version.
        rates = arrivals.per_client(each.rate / facts.lr for each in arrivals)
        tau, weights = self.effective_steps(arrivals.steps, arrivals.rates) * rates, arrivals.weights
        return parameters + arrivals.mean(weights * (weights * tau).sum() / tau), state


METHODS["fednova"] = Recipe(
    summary="FedAvg with deltas normalised by the number of local steps",
    paper="Wang et al. 2020 (FedNova), Eqs. 5-6",
    objective=CrossEntropy,
    server=FedNova(),
)
