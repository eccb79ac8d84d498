"""SCAFFOLD: control variates correct each local step for the client's drift (Karimireddy et al. 2020, Alg. 1).

1. Client k receives x and the server's control variate c, and steps y ← y - η (∇f(y) - c_k + c) from y = x.
2. It keeps c_k⁺ = c_k - c + (x - y)/(H_k η), and returns y - x and c_k⁺ - c_k.
3. The server computes x ← x + η_s mean (y - x) and c ← c + (1/N) Σ (c_k⁺ - c_k), with N clients in all.
"""

from collections import Counter
from types import MappingProxyType
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.methods.parts.local_step import LocalRule, Lr, direction, stepped_
from edgefl.methods.parts.payload import Downlink, ModelSizes, Part, Payload
from edgefl.methods.parts.rates import LearningRate
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate, weighted_sum
from edgefl.methods.parts.step_options import StepOptions
from edgefl.methods.recipe import METHODS, Recipe


class ScaffoldRule(LocalRule):
    """y ← y - η (g - c_k + c) (Karimireddy et al. 2020, Alg. 1, line 10); clipping touches g, not the correction."""

    lr_on_device = True
    vectors = frozenset({"control", "client_control"})
    # The control variate is the mean gradient only for plain steps.
    needs = frozenset({"no momentum", "sgd", "round's rate"})

    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        return {"correction": vectors["control"] - vectors["client_control"]}

    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        return stepped_(parameters, direction(parameters, gradient, options).add_(memory["correction"]), lr)


class ControlVariate(ClientState):
    """c_k, the client's mean gradient of its last participation, zero before (Karimireddy et al. 2020, option II)."""

    vectors = ("client_control",)
    uploads = MappingProxyType({"control": "client_control"})

    def after(self, vectors: State, received: Tensor, final: Tensor, lr: float, steps: int) -> State:
        own = vectors["client_control"]
        travelled = (received - final)[..., : own.shape[-1]]
        return {"client_control": own - vectors["control"] + travelled / (max(1, steps) * lr)}


@SERVER_UPDATES.register("scaffold")
class Scaffold(ServerUpdate):
    """x ← x + η_s mean δ_k; c ← c + (1/N) Σ_S (c_k⁺ - c_k), with c_k⁺ - c_k = -c - δ_k/(H_k η_k) (Alg. 1, lines 16-17).

    The server computes the change of each c_k as the client does, with the c and the rate of its version; in exact
    arithmetic it equals the sent one. If a codec rounds the uplink and the changes of c_k are sent, those received are
    used. The weights of stale updates scale δ_k in the mean only, so c stays the mean of all c_k.
    """

    broadcasts = ("control",)
    needs = frozenset({"plain sum"})
    default_weighting = "uniform"

    server_lr: LearningRate = Field(default=1.0, description="server learning rate η_s; 1 gives the plain mean")

    def client_state(self) -> ClientState:
        return ControlVariate()

    def begin(self, parameters: Tensor) -> State:
        return {"control": torch.zeros_like(parameters)}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        control, ones = state["control"], torch.ones_like(arrivals.weights)
        if "control" in arrivals.each[0].uploads:
            change = weighted_sum([each.uploads["control"] for each in arrivals], ones)
        else:
            gradients = -1 / (arrivals.steps.clamp(min=1) * arrivals.rates)
            change = weighted_sum(arrivals.deltas, gradients) - _sum_received(arrivals)
        after = parameters.add(arrivals.mean(), alpha=facts.rate(self.server_lr))
        return after, {"control": control + change / facts.clients}


def _sum_received(arrivals: Arrivals) -> Tensor:
    """Σ_k (the c that client k received) ``[n]``, version by version."""
    clients = Counter(each.version for each in arrivals)
    received = {each.version: each.received["control"] for each in arrivals}
    return weighted_sum([received[version] for version in clients], arrivals.per_client(clients.values()))


class ScaffoldPayload(Payload):
    """The model and the server's control variate down, the update and the change of the client's own up (2 S each).

    c = 0 is known in round 0. ``derived`` does not send the uplink's second part, which follows from the first.
    """

    control_upload: Literal["sent", "derived"] = Field(
        default="sent", description="the change of c_k is sent, as in the paper, or computed by the server"
    )

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        return frozenset({"each update"} if self.control_upload == "derived" else ())

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        parts = [Part("model", sizes.model_bytes, round)]
        if round > 0:
            parts.append(Part("control", sizes.model_bytes, round))
        return Downlink(tuple(parts), sizes.blocks)

    def uplink(self, sizes: ModelSizes) -> tuple[Part, ...]:
        update = Part("update", sizes.model_bytes, 0)
        return (update, Part("control", sizes.model_bytes, 0)) if self.control_upload == "sent" else (update,)


METHODS["scaffold"] = Recipe(
    summary="control variates correct each local step for the client's own drift",
    paper="Karimireddy et al. 2020 (SCAFFOLD), Alg. 1, option II",
    objective=CrossEntropy,
    rule=ScaffoldRule,
    server=Scaffold(),
    payload=ScaffoldPayload,
    weighting="uniform",
)
