"""FedADC: clients follow the server's momentum in their local steps (Ozfatura et al., Alg. 3 and 4).

1. Client k steps along its gradient and along m̄ = β_l m_t / H_k: θ ← θ - η (∇f(θ - η m̄) + m̄).
2. The server computes Δ̄ = Σ_k w_k (θ_t - θ_k)/η_t, m_{t+1} = Δ̄ + (β_g - β_l) m_t, θ_{t+1} = θ_t - α η_t m_{t+1}.
3. Clients compute m_t and θ_t from θ_{t-1}, m_{t-1} and Δ̄. The first two are known while round t-1 still computes, so
   they can be sent then (``overlap: true``): only Δ̄ remains on the critical path. Or Δ̄ is sent to all clients in each
   round (``full_to: all``), so that those of the next round have the others.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.local_step import LocalRule, Lr, direction, stepped_
from edgefl.methods.parts.payload import Downlink, ModelSizes, Part, Payload
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, Arriving, RoundFacts, ServerSide, ServerUpdate
from edgefl.methods.parts.step_options import StepOptions
from edgefl.methods.recipe import METHODS, Recipe


class FedAdcRule(LocalRule):
    """Accelerated local steps with drift control (Ozfatura et al., Alg. 3 and 4).

    With m̄ = β_l m_t / H_k, where m_t is the server's momentum of the version the client trains from and H_k this
    client's number of steps, so that each client follows exactly β_l m_t in a round:

    - ``red`` (Nesterov, consecutive): θ' = θ - η m̄; g = ∇f(θ'); θ ← θ' - η g.
    - ``blue`` (heavy ball, simultaneous): g = ∇f(θ); θ ← θ - η (g + m̄).
    - ``double`` (Alg. 4): blue with a local momentum u¹ = g¹, u ← φ u + (1-φ) g in place of g.

    Weight decay is part of g; clipping touches g, never m̄.
    """

    lr_on_device = True
    vectors = frozenset({"momentum"})
    # Local momentum is the variant double's.
    needs = frozenset({"no momentum", "sgd", "round's rate"})

    variant: Literal["red", "blue", "double"] = Field("red", description="Nesterov, heavy ball, or also local momentum")
    beta_l: float = Field(default=0.8, ge=0, lt=1, description="share β_l of the server's momentum in the local steps")
    phi: float = Field(default=0.9, ge=0, lt=1, description="local momentum φ of the variant double")

    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        memory = {"pull": vectors["momentum"] * (self.beta_l / max(1, steps))}
        if self.variant == "double":
            memory["velocity"] = torch.zeros_like(received)
            memory["fresh"] = torch.ones_like(received[..., :1])
        return memory

    def point(self, parameters: Tensor, memory: State, lr: Lr) -> Tensor:
        if self.variant != "red":
            return parameters
        if isinstance(lr, Tensor):
            return parameters.addcmul(memory["pull"], lr, value=-1)
        return parameters.sub(memory["pull"], alpha=lr)

    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        """Steps from ``parameters`` (θ, not θ') with the gradient at :meth:`point`."""
        start = self.point(parameters, memory, lr)
        step = direction(start, gradient, options)
        if self.variant == "double":
            # The first step is undamped: its weight is 1 while the flag is set, 1 - φ afterwards.
            memory["velocity"] = memory["velocity"] * self.phi + step * (1 - self.phi + self.phi * memory["fresh"])
            memory["fresh"] = torch.zeros_like(memory["fresh"])
            step = memory["velocity"]
        if self.variant != "red":
            step = step + memory["pull"]
        return stepped_(start, step, lr)


@SERVER_UPDATES.register("fedadc")
class FedAdcServer(ServerUpdate):
    """Δ̄ = Σ_k w_k (θ_t - θ_k)/η_t; m_{t+1} = Δ̄ + (β_g - β_l) m_t; θ_{t+1} = θ_t - α η_t m_{t+1}.

    Algorithm 3 of Ozfatura et al. The clients' local steps already contain β_l m_t, so Δ̄ = ḡ + β_l m_t. Momentum is in
    units of the gradient: each update is divided by its own round's rate, and m is multiplied by that of the round that
    uses it. The paper's rounds are synchronous; a stale update enters Δ̄ as it is, with its weight s_k.
    """

    broadcasts = ("momentum",)
    needs = frozenset({"own start"})
    default_weighting = "uniform"

    alpha: float = Field(default=1.0, gt=0, description="server learning rate α")
    beta_g: float = Field(default=0.8, ge=0, lt=1, description="momentum β_g of the server")
    beta_l: float = Field(default=0.8, ge=0, lt=1, description="share β_l of the server's momentum in the local steps")

    @property
    def carried_by(self) -> Mapping[str, str | None]:
        return {"momentum": "mean delta"}

    def begin(self, parameters: Tensor) -> State:
        return {"momentum": torch.zeros_like(parameters)}

    def received(self, now: ServerSide, before: ServerSide | None, lr: float, arriving: Arriving) -> ServerSide:
        if before is None:
            return super().received(now, before, lr, arriving)
        kept = self.beta_g - self.beta_l
        carried = kept * before.state["momentum"]
        mean = arriving("mean delta", now.state["momentum"] - carried)
        if kept:
            carried = kept * arriving("momentum", before.state["momentum"], age=1)
        momentum = mean + carried
        model = arriving("model", before.parameters, age=1)
        return ServerSide(model.sub(momentum, alpha=self.alpha * lr), {"momentum": momentum})

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        momentum = (self.beta_g - self.beta_l) * state["momentum"] + arrivals.mean_gradient()
        return parameters.sub(momentum, alpha=self.alpha * facts.lr), {"momentum": momentum}


class FedAdcPayload(Payload):
    """Model of round t-1 while round t-1 computes, mean delta Δ̄ at the start of round t (Ozfatura et al., Sec. II-A).

    The client computes m_t and θ_t from θ_{t-1}, m_{t-1} and Δ̄. With β_g = β_l the mean delta *is* the momentum;
    otherwise m_{t-1} is also sent. A client that took part in round t-1 already has θ_{t-1} and m_{t-1}. If a codec
    rounds, the client has values computed from rounded parts, so it is sent them like all others, and all clients
    agree. In round 0 only the model is sent, since m_0 = 0 is known. Prefetched parts are the same.

    With ``full_to: all``, Δ̄ is also sent to the clients that do not take part ("broadcasted to all the users in the
    system to ensure that each user can track the global momentum", the first way of Sec. II-A), and in round 0 the
    model. So a client that has received each Δ̄ needs nothing else when it takes part. One that has missed any, because
    it was away or its transfer did not end in the round, is sent the model and the momentum again with the next one.
    """

    full_to: Literal["cohort", "all"] = Field("cohort", description="who is sent the mean delta: the cohort, or all")
    beta_g: float = Field(default=0.8, ge=0, lt=1, description="momentum β_g of the server")
    beta_l: float = Field(default=0.8, ge=0, lt=1, description="share β_l of the server's momentum in the local steps")

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        """With ``full_to: all``, no client is sent the model again, as all are if a codec rounds its downlink."""
        return frozenset({"rounds", "exact downlink"} if self.full_to == "all" else ())

    def broadcasts(self, round: int) -> bool:
        return self.full_to == "all"

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        size = sizes.model_bytes
        if round == 0:
            return Downlink((Part("model", size, 0),), sizes.blocks)
        parts, early = [], self.full_to == "cohort"
        if held != round - 1 or not sizes.exact:
            parts.append(Part("model", size, round - 1, early))
            # m_0 = 0 is known, so the momentum of version 0 is never sent.
            if self.beta_g != self.beta_l and round > 1:
                parts.append(Part("momentum", size, round - 1, early))
        parts.append(Part("mean delta", size, round))
        return Downlink(tuple(parts), sizes.blocks)


METHODS["fedadc"] = Recipe(
    summary="clients follow the server's momentum in their local steps; most of the downlink can overlap",
    paper="Ozfatura et al. (FedADC), Alg. 3 and 4",
    objective=CrossEntropy,
    rule=FedAdcRule,
    server=FedAdcServer(),
    payload=FedAdcPayload,
    weighting="uniform",
)
